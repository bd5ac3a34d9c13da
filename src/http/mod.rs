//! The HTTP face: parse, authorise, render; no rules of its own.

mod application;
mod claims;
mod denial;
mod docs;
mod error;
mod extract;
mod grants;
mod health;
mod limits;
mod openapi;
mod policies;
mod request_id;

use std::future::ready;

use actix_web::Resource;
use actix_web::web::{self, ServiceConfig};

pub use application::{Application, ServeError};
pub use openapi::{specification, specification_yaml};

use error::ApiError;

/// Every URL, with the methods that it knows.
fn routes(service: &mut ServiceConfig) {
    let mut at = |path: &str, allowed: &'static str, methods: fn(Resource) -> Resource| {
        let refuse = move || ready(Err::<&str, _>(ApiError::MethodNotAllowed(allowed)));
        let resource = web::resource(path).default_service(web::to(refuse));
        service.service(methods(resource));
    };
    at("/v1/policies", "GET", |r| r.get(policies::list));
    at("/v1/policies/{policy}", "GET, PUT, DELETE", |r| {
        r.get(policies::get)
            .put(policies::put)
            .delete(policies::archive)
    });
    at("/v1/policies/{policy}/versions", "GET", |r| {
        r.get(policies::versions)
    });
    at("/v1/policies/{policy}/windows", "GET", |r| {
        r.get(policies::windows)
    });
    at("/v1/policies/{policy}/claims", "POST", |r| {
        r.post(claims::post)
    });
    at("/v1/policies/{policy}/subjects/{subject}", "GET", |r| {
        r.get(claims::usage)
    });
    at("/v1/grants", "GET", |r| r.get(grants::list));
    at("/v1/grants/export", "GET", |r| r.get(grants::export));
    at("/v1/grants/{id}", "GET", |r| r.get(grants::get));
    // Open to all; everything else takes a key.
    at("/livez", "GET", |r| r.get(health::livez));
    at("/readyz", "GET", |r| r.get(health::readyz));
    at("/openapi.yaml", "GET", |r| r.get(docs::openapi_yaml));
    at("/docs", "GET", |r| r.get(docs::page));
    at("/docs/{file}", "GET", |r| r.get(docs::file));
    service.default_service(web::to(not_found));
}

async fn not_found() -> Result<&'static str, ApiError> {
    Err(ApiError::NotFound(
        "there is nothing at this path; see /docs",
    ))
}
