//! The state of an instance: whether it runs, and whether it is ready.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::HttpAnswer;
use super::request::{EngineData, MetricsReader, Public};
use crate::api::words::{self, words};
use crate::engine::Engine;

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

/// Check that the process runs.
#[utoipa::path(
    get, path = "/livez", tag = "operation", security(()),
    responses((status = 200, description = "The process runs.", body = String, content_type = "text/plain")),
)]
pub async fn livez(_caller: Public) -> &'static str {
    "ok\n"
}

/// The metrics of this instance, for Prometheus.
///
/// The format is the text format of OpenMetrics 1.0. Any key can read the metrics. Where
/// `PERDIEM_OPEN_METRICS` is true, no key is needed.
///
/// Roles: `claim`, `audit`, `admin`.
#[utoipa::path(
    get, path = "/metrics", tag = "operation",
    responses(
        (status = 200, description = "The metrics.", body = String, content_type = "application/openmetrics-text"),
        (status = 401, description = "`unauthorized`: no valid key."),
        (status = 429, description = "`too-many-wrong-keys`: wait for as long as `Retry-After` says."),
    ),
)]
pub async fn metrics(_reader: MetricsReader, engine: EngineData) -> HttpAnswer {
    Ok(HttpResponse::Ok()
        .content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")
        .body(engine.metrics()))
}

/// Check whether the instance decides claims, or only reads, and what troubles it has.
#[utoipa::path(
    get, path = "/readyz", tag = "operation", security(()),
    responses(
        (status = 200, description = "The instance decides claims. If it only reads: it can read.",
            body = Readiness),
        (status = 503, description = "The instance decides no claims.", body = Readiness),
    ),
)]
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
