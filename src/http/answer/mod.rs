//! The parts of answers: bodies that several resources share, header fields, problems.

mod denial;
mod error;
mod export;
mod failures;
mod limits;
mod plain;
pub mod problem;
mod reason;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, HttpResponseBuilder};

pub use denial::{Asked, Denial};
pub use error::{ApiError, END_HAS_PASSED, Forbidden, entered};
pub use export::{csv_lines, file_answer, json_lines, streamed};
pub use limits::{RATE_LIMIT, RATE_LIMIT_POLICY, insert_fields, seconds_until, shared_name};
pub use plain::respond;
pub use reason::{describe_verdict, notes};

pub type HttpAnswer = Result<HttpResponse, ApiError>;

/// Begins an answer with a version of a policy, an override or a key: the version is its ETag.
pub fn versioned(status: StatusCode, version: u32) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response.insert_header((header::ETAG, etag(version)));
    response
}

/// Begins an answer to a change, with its version. The answer to a dry run has no ETag: nothing has that
/// version.
pub fn changed(status: StatusCode, version: u32, is_dry_run: bool) -> HttpResponseBuilder {
    if is_dry_run {
        HttpResponse::Ok()
    } else {
        versioned(status, version)
    }
}

/// Begins an answer to a request that an `Idempotency-Key` makes safe to repeat.
pub fn entered_once(is_repeat: bool) -> HttpResponseBuilder {
    let mut response = made(is_repeat);
    if is_repeat {
        response.insert_header(("Idempotent-Replayed", "true"));
    }
    response
}

/// Begins an answer to a request that makes something, unless the same was made before.
pub fn made(is_repeat: bool) -> HttpResponseBuilder {
    if is_repeat {
        HttpResponse::Ok()
    } else {
        HttpResponse::Created()
    }
}

fn etag(version: u32) -> String {
    format!("\"{version}\"")
}
