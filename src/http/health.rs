//! Whether the instance lives, and whether it is ready.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::EngineData;

/// How an instance is.
#[derive(Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// `ready`, or `not ready`: then it decides no claims.
    #[schema(example = "ready")]
    status: &'static str,
    /// What is wrong and what to do, also where it can do without.
    troubles: Vec<String>,
    /// The store of the ledger: `PostgreSQL` or `SQLite`.
    #[schema(example = "SQLite")]
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
pub async fn livez() -> &'static str {
    "ok\n"
}

/// Whether the instance decides claims, and what troubles it.
#[utoipa::path(
    get, path = "/readyz", tag = "operation", security(()),
    responses(
        (status = 200, description = "It decides claims.", body = Readiness),
        (status = 503, description = "It does not.", body = Readiness),
    ),
)]
pub async fn readyz(data: EngineData) -> HttpResponse {
    let health = data.health();
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
