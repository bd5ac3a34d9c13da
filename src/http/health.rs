//! The state of an instance: whether it runs, and whether it is ready.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::HttpAnswer;
use super::operation::describe;
use super::request::{EngineData, MetricsReader, Public};
use api::words;
use engine::Engine;

words! {
    /// The store of the ledger.
    Store = Engine::STORE_NAMES;
}

/// The state of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// `ready`, or `not ready`: then the instance decides no claims. An instance that only reads is
    /// ready when it can read.
    #[schema(value_type = words::ReadinessStatus, example = "ready")]
    status: &'static str,
    /// What is wrong and what to do. A `ready` instance can have troubles too.
    troubles: Vec<String>,
    /// The store of the ledger: `PostgreSQL` or `SQLite`.
    #[schema(value_type = Store, example = "SQLite")]
    ledger: &'static str,
    /// Whether the instance uses Redis.
    counters: bool,
    /// Whether this instance seals the record: `sealed`, or `not sealed` without a key.
    #[schema(value_type = words::Sealing, example = "sealed")]
    seals: &'static str,
    /// Whether this instance only reads: it decides no claims and changes nothing.
    read_only: bool,
    /// How old the answers of an instance that only reads are at most, in seconds, because its
    /// database follows a primary. Null if that is not known, and at any other instance.
    #[schema(example = json!(null))]
    lag_seconds: Option<f64>,
    /// The time zone rules: the release of the tz database, and the source of this copy.
    #[schema(example = "2026b (system)")]
    zone_rules: String,
}

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
    /// The format is the text format of OpenMetrics 1.0. Any key can read the metrics. Where
    /// `PERDIEM_OPEN_METRICS` is true, no key is needed.
    METRICS: "metrics" of "operation", |it| it
        .text(200, "The metrics.", &["application/openmetrics-text"])
        .problem(401, "`unauthorized`: no valid key.")
        .problem(429, "`too-many-wrong-keys`: wait for as long as `Retry-After` says.")
        .is_about_nobody()
}
pub async fn metrics(_reader: MetricsReader, engine: EngineData) -> HttpAnswer {
    Ok(HttpResponse::Ok()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(engine.metrics()))
}

describe! {
    /// Check whether the instance decides claims, or only reads, and what troubles it has.
    ///
    /// Send claims only to an instance that answers 200. Each trouble says what is wrong and what to do.
    READYZ: "readyz" of "operation", |it| it
        .json::<Readiness>(200, "The instance decides claims. If it only reads: it can read.")
        .json::<Readiness>(503, "The instance decides no claims.")
}
pub async fn readyz(_caller: Public, engine: EngineData) -> HttpResponse {
    let health = engine.health();
    let (status, text) = if health.is_ready {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    };
    HttpResponse::build(status).json(Readiness {
        status: text,
        troubles: health.troubles.iter().map(ToString::to_string).collect(),
        ledger: health.ledger,
        counters: health.has_counters,
        seals: if health.is_sealing {
            "sealed"
        } else {
            "not sealed"
        },
        read_only: health.is_read_only,
        lag_seconds: health.lag.map(|lag| lag.as_secs_f64()),
        zone_rules: health.zone_rules,
    })
}
