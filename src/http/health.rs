//! The state of an instance: whether it runs, and whether it is ready.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};

use super::answer::HttpAnswer;
use super::operation::describe;
use super::request::{EngineData, GateKey, MetricsReader, Public};
use api::health::Readiness;
use api::words::Word;

describe! {
    /// Check that the process runs.
    ///
    /// It asks neither the ledger nor Redis: restart the process if it does not answer.
    LIVEZ: "livez" of "operation", |it| it.text(200, "The process runs.", &["text/plain"])
}
pub async fn livez(_caller: Public) -> &'static str {
    "ok\n"
}

describe! {
    /// The metrics of this instance, for Prometheus.
    ///
    /// The format is the text format of OpenMetrics 1.0. Where `PERDIEM_OPEN_METRICS` is true, no key is
    /// needed. Where `PERDIEM_POLICY_METRICS` is not 0, the metrics name policies, also to a key that is
    /// confined to other policies.
    METRICS: "metrics" of "operation", |it| it
        .text(200, "The metrics.", &["application/openmetrics-text"])
        .is_about_nobody()
}
pub async fn metrics(_reader: MetricsReader, engine: EngineData) -> HttpAnswer {
    Ok(HttpResponse::Ok()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(engine.metrics().await))
}

describe! {
    /// Check whether the instance decides claims, or only reads, and what troubles it has.
    ///
    /// Send claims only to an instance that answers 200. Each trouble says what is wrong and what to do.
    READYZ: "readyz" of "operation", |it| it
        .json::<Readiness>(200, "The instance decides claims. If it only reads: it can read.")
        .json::<Readiness>(503, "The instance decides no claims.")
}
pub async fn readyz(_caller: Public, request: HttpRequest, engine: EngineData) -> HttpResponse {
    let health = engine.health();
    let mut troubles: Vec<_> = health.troubles.iter().map(ToString::to_string).collect();
    if let Some(key) = request.app_data::<GateKey>() {
        troubles.extend(key.trouble(&engine).await);
    }
    let (status, text) = if health.is_ready {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    };
    HttpResponse::build(status).json(Readiness {
        status: text.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        troubles,
        ledger: Word::Borrowed(health.ledger),
        counters: health.has_counters,
        seals: if health.is_sealing {
            "sealed"
        } else {
            "not sealed"
        }
        .into(),
        read_only: health.is_read_only,
        lag_seconds: health.lag.map(|lag| lag.as_secs_f64()),
        zone_rules: health.zone_rules,
    })
}

#[cfg(test)]
mod tests {
    use api::words;
    use engine::Engine;

    #[test]
    fn the_wire_has_the_names_of_all_stores() {
        assert_eq!(words::STORES, Engine::STORE_NAMES);
    }
}
