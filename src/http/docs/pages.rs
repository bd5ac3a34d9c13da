//! The pages below `/docs`, and their files. A page loads nothing from the internet.

use actix_web::http::header::{self, ContentEncoding};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;

use super::archive::{self, Packed};
use super::first_claim::PAGE as FIRST_CLAIM;
use super::problems::PAGE as PROBLEMS;
use crate::http::answer::{ApiError, HttpAnswer};
use crate::http::request::{Public, segment};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/png";

/// The files of the pages that this folder has.
const OWN_FILES: [(&str, &str, &str); 3] = [
    ("page.css", CSS, include_str!("page.css")),
    ("page.js", SCRIPT, include_str!("page.js")),
    ("reference.js", SCRIPT, include_str!("reference.js")),
];

/// The files of Swagger UI, which renders the reference.
const SWAGGER_FILES: [(&str, &str); 5] = [
    ("swagger-ui-bundle.js", SCRIPT),
    ("swagger-ui.css", CSS),
    ("index.css", CSS),
    ("favicon-32x32.png", IMAGE),
    ("favicon-16x16.png", IMAGE),
];

/// Nothing from elsewhere. Swagger UI sets styles and images of its own making inline.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; \
                                       img-src 'self' data:; frame-ancestors 'none'";

/// A page for people who see perdiem for the first time: a first claim in several languages.
#[utoipa::path(
    get, path = "/docs", operation_id = "docs", tag = "operation", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")),
)]
pub async fn first_claim(_caller: Public) -> HttpResponse {
    answer(HTML).body(FIRST_CLAIM.clone())
}

/// A page that renders this specification.
#[utoipa::path(
    get, path = "/docs/reference", operation_id = "reference", tag = "operation", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")),
)]
pub async fn reference(_caller: Public) -> HttpResponse {
    answer(HTML).body(include_str!("reference.html"))
}

/// A page that explains every kind of problem.
#[utoipa::path(
    get, path = "/docs/problems", operation_id = "problems", tag = "operation", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")),
)]
pub async fn problems(_caller: Public) -> HttpResponse {
    answer(HTML).body(PROBLEMS.clone())
}

/// A file of a page. Every browser takes gzip, so the files of Swagger UI have no other form.
pub async fn file(_caller: Public, request: HttpRequest) -> HttpAnswer {
    let name = segment(&request, "file").unwrap_or_default();
    if let Some((_, kind, text)) = OWN_FILES.iter().find(|(own, ..)| *own == name) {
        return Ok(answer(kind).body(*text));
    }
    let known = SWAGGER_FILES.iter().find(|(known, _)| *known == name);
    let found = known.and_then(|(name, content_type)| {
        let packed = archive::find(SWAGGER_UI_VENDORED, &format!("/dist/{name}"))?;
        Some((answer(content_type), packed))
    });
    match found {
        Some((mut answer, Packed::Stored(bytes))) => Ok(answer.body(bytes)),
        Some((mut answer, Packed::Gzip(bytes))) => {
            Ok(answer.insert_header(ContentEncoding::Gzip).body(bytes))
        }
        None => Err(ApiError::NotFound("there is no such page")),
    }
}

fn answer(content_type: &str) -> HttpResponseBuilder {
    let mut answer = HttpResponse::Ok();
    answer
        .content_type(content_type)
        .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY));
    answer
}
