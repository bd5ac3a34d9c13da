//! The specification, and a page that renders it without reaching out to the internet.

use std::sync::{Arc, LazyLock};

use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::{Bytes, Path};
use utoipa_swagger_ui::Config;

use super::error::ApiError;
use super::openapi::specification_yaml;

static YAML: LazyLock<Bytes> = LazyLock::new(|| specification_yaml().into());

static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
    let config = Config::new(["/openapi.yaml"])
        .validator_url("none")
        .persist_authorization(false)
        .use_base_layout();
    Arc::new(config)
});

/// Nothing from elsewhere. Swagger UI sets styles and images of its own making inline.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; \
                                       img-src 'self' data:; frame-ancestors 'none'";

/// The specification.
#[utoipa::path(
    get, path = "/openapi.yaml", tag = "operation", security(()),
    responses((status = 200, description = "This document.", body = Object, content_type = "application/yaml")),
)]
pub async fn openapi_yaml() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/yaml")
        .body(YAML.clone())
}

/// A page that renders the specification.
#[utoipa::path(
    get, path = "/docs", operation_id = "docs", tag = "operation", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")),
)]
pub async fn page() -> Result<HttpResponse, ApiError> {
    asset("index.html")
}

/// What the page is made of.
pub async fn file(name: Path<String>) -> Result<HttpResponse, ApiError> {
    asset(&name)
}

fn asset(name: &str) -> Result<HttpResponse, ApiError> {
    let found = utoipa_swagger_ui::serve(name, CONFIG.clone());
    let file = found
        .ok()
        .flatten()
        .ok_or(ApiError::NotFound("there is no such page"))?;
    let mut bytes = file.bytes.into_owned();
    if name == "index.html" {
        // The page stands at /docs, without a slash; what it is made of lies below.
        let html = String::from_utf8_lossy(&bytes);
        bytes = html
            .replacen("<head>", "<head><base href=\"/docs/\">", 1)
            .into_bytes();
    }
    Ok(HttpResponse::Ok()
        .content_type(file.content_type)
        .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY))
        .body(bytes))
}
