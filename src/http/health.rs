//! Whether the instance lives, and whether it is ready.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::{HttpAnswer, words};
use super::request::{EngineData, MetricsReader, Public};

/// How an instance is.
#[derive(Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// `ready`, or `not ready`: then it decides no claims.
    #[schema(value_type = words::ReadinessStatus, example = "ready")]
    status: &'static str,
    /// What is wrong and what to do, also where it can do without.
    troubles: Vec<String>,
    /// The store of the ledger: `PostgreSQL` or `SQLite`.
    #[schema(value_type = words::Store, example = "SQLite")]
    ledger: &'static str,
    /// Whether Redis stands in front of it.
    counters: bool,
    /// The rules of time zones: the release of the tz database, and whose copy it is.
    #[schema(example = "2026b (system)")]
    zone_rules: String,
}

/// The process lives.
#[utoipa::path(
    get, path = "/livez", tag = "operation", security(()),
    responses((status = 200, description = "It lives.", body = String, content_type = "text/plain")),
)]
pub async fn livez(_caller: Public) -> &'static str {
    "ok\n"
}

/// What is measured, for Prometheus.
///
/// In the text format of OpenMetrics 1.0. With any key, or without one where
/// `PERDIEM_OPEN_METRICS` is true.
///
/// Roles: `claim`, `audit`, `admin`.
#[utoipa::path(
    get, path = "/metrics", tag = "operation",
    responses(
        (status = 200, description = "The measures of this instance.", body = String, content_type = "application/openmetrics-text"),
        (status = 401, description = "`unauthorized`: no valid key."),
        (status = 429, description = "`too-many-wrong-keys`: wait for as long as `Retry-After` says."),
    ),
)]
pub async fn metrics(_reader: MetricsReader, engine: EngineData) -> HttpAnswer {
    Ok(HttpResponse::Ok()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(engine.metrics()))
}

/// Whether the instance decides claims, and what troubles it.
#[utoipa::path(
    get, path = "/readyz", tag = "operation", security(()),
    responses(
        (status = 200, description = "It decides claims.", body = Readiness),
        (status = 503, description = "It does not.", body = Readiness),
    ),
)]
pub async fn readyz(_caller: Public, engine: EngineData) -> HttpResponse {
    let health = engine.health();
    let (status, text) = match health.is_ready {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    HttpResponse::build(status).json(Readiness {
        status: text,
        troubles: health.troubles.iter().map(ToString::to_string).collect(),
        ledger: health.ledger,
        counters: health.has_counters,
        zone_rules: health.zone_rules,
    })
}
