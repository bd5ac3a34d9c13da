//! The HTTP face: parse, authorise, render; no rules of its own.

mod archive;
mod backtest;
mod batches;
mod caller;
mod changes;
pub mod claims;
mod corrections;
mod credentials;
pub mod denial;
mod docs;
mod entries;
pub mod error;
mod exports;
pub mod extract;
mod grants;
mod health;
mod instant;
mod keys;
pub mod limits;
mod links;
mod openapi;
mod overrides;
mod policies;
mod problems;
mod query;
mod reconciliations;
mod server;
mod windows;
mod words;

use std::future::ready;

use actix_web::middleware::from_fn;
use actix_web::web::{self, PayloadConfig, ServiceConfig};
use actix_web::{FromRequest, Handler, Resource, Responder, guard};

pub use openapi::{specification, specification_yaml};
pub use server::{Application, ServeError, ServeOptions};

use error::ApiError;
use extract::BodyLimit;
use server::Bounded;

/// Every URL, with the methods that it knows.
fn routes(service: &mut ServiceConfig) {
    use Bounded::{Asked, Claims, Long, Open};
    let mut at =
        |path: &str, bounded: Bounded, allowed: &'static str, methods: fn(Resource) -> Resource| {
            let refuse = move || ready(Err::<&str, _>(ApiError::MethodNotAllowed(allowed)));
            let resource = web::resource(path).default_service(web::to(refuse));
            let keep = from_fn(move |request, next| server::keep(bounded, request, next));
            service.service(methods(resource).wrap(keep));
        };
    // Paths are tried in this order: first the one that is asked for most.
    at("/v1/policies/{policy}/claims", Claims, "POST", |r| {
        r.post(claims::post)
    });
    at("/v1/policies", Asked, "GET, HEAD", |r| {
        read(r, policies::list)
    });
    at(
        "/v1/policies/{policy}",
        Asked,
        "GET, HEAD, PUT, DELETE",
        |r| {
            read(r, policies::get)
                .put(policies::put)
                .delete(policies::archive)
        },
    );
    at("/v1/policies/{policy}/versions", Asked, "GET, HEAD", |r| {
        read(r, policies::versions)
    });
    at("/v1/policies/{policy}/windows", Asked, "GET, HEAD", |r| {
        read(r, windows::list)
    });
    at("/v1/policies/{policy}/overrides", Asked, "GET, HEAD", |r| {
        read(r, overrides::list)
    });
    at(
        "/v1/policies/{policy}/overrides/{subject}",
        Asked,
        "GET, HEAD, PUT, DELETE",
        |r| {
            read(r, overrides::get)
                .put(overrides::put)
                .delete(overrides::delete)
        },
    );
    at("/v1/policies/{policy}/backtest", Long, "POST", |r| {
        r.post(backtest::post)
    });
    at(
        "/v1/policies/{policy}/subjects/{subject}",
        Asked,
        "GET, HEAD",
        |r| read(r, claims::usage),
    );
    at(
        "/v1/policies/{policy}/subjects/{subject}/entries",
        Asked,
        "GET, HEAD",
        |r| read(r, entries::list),
    );
    at(
        "/v1/policies/{policy}/subjects/{subject}/adjustments",
        Claims,
        "POST",
        |r| r.post(entries::adjust),
    );
    at("/v1/claims", Claims, "POST", |r| {
        r.app_data(PayloadConfig::new(batches::BATCH_MAX_BYTES))
            .app_data(BodyLimit(batches::BATCH_MAX_BYTES))
            .post(batches::post)
    });
    at("/v1/grants", Asked, "GET, HEAD", |r| read(r, grants::list));
    at("/v1/grants/export", Long, "GET, HEAD", |r| {
        read(r, exports::export)
    });
    at("/v1/grants/{id}", Asked, "GET, HEAD", |r| {
        read(r, grants::get)
    });
    at("/v1/grants/{id}/reversal", Claims, "POST", |r| {
        r.post(corrections::reverse)
    });
    at("/v1/grants/{id}/confirmation", Claims, "POST", |r| {
        r.post(corrections::confirm)
    });
    at("/v1/changes", Asked, "GET, HEAD", |r| {
        read(r, changes::list)
    });
    at("/v1/reconciliations", Asked, "GET, HEAD, POST", |r| {
        read(r, reconciliations::list).post(reconciliations::post)
    });
    at("/v1/reconciliations/{id}", Asked, "GET, HEAD", |r| {
        read(r, reconciliations::get)
    });
    at("/v1/keys", Asked, "GET, HEAD, POST", |r| {
        read(r, keys::list).post(keys::post)
    });
    at("/v1/keys/{id}", Asked, "GET, HEAD, PATCH, DELETE", |r| {
        read(r, keys::get).patch(keys::patch).delete(keys::revoke)
    });
    // Open to all; everything else takes a key.
    at("/livez", Open, "GET, HEAD", |r| read(r, health::livez));
    at("/readyz", Open, "GET, HEAD", |r| read(r, health::readyz));
    at("/metrics", Open, "GET, HEAD", |r| read(r, health::metrics));
    at("/openapi.yaml", Open, "GET, HEAD", |r| {
        read(r, docs::openapi_yaml)
    });
    at("/docs", Open, "GET, HEAD", |r| read(r, docs::page));
    at("/docs/problems", Open, "GET, HEAD", |r| {
        read(r, docs::problems)
    });
    at("/docs/{file}", Open, "GET, HEAD", |r| read(r, docs::file));
    service.default_service(web::to(not_found));
}

/// Lets GET through, and HEAD, which is GET without the body (RFC 9110, section 9.3.2).
fn read<F, Args>(resource: Resource, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    let get_or_head = guard::Any(guard::Get()).or(guard::Head());
    resource.route(web::route().guard(get_or_head).to(handler))
}

async fn not_found() -> Result<&'static str, ApiError> {
    Err(ApiError::NotFound(
        "there is nothing at this path; see /docs",
    ))
}
