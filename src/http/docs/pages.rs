//! The pages below `/docs`, and their files. A page loads nothing from the internet.

use std::sync::LazyLock;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;

use super::archive::{self, Packed};
use super::document::Document;
use crate::answer::{ApiError, HttpAnswer};
use crate::operation::describe;
use crate::request::{Public, segment};

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

describe! {
    /// A page for people who see perdiem for the first time: a first claim in several languages.
    ///
    /// The page loads nothing from elsewhere.
    FIRST_CLAIM: "docs" of "operation", |it| it.text(200, "The page.", &["text/html"])
}
pub async fn first_claim(_caller: Public, request: HttpRequest) -> HttpResponse {
    super::first_claim::PAGE.answer(answer(HTML), &request)
}

/// Leads from the address of the server to the page for people who see perdiem for the first time.
pub async fn start(_caller: Public) -> HttpResponse {
    HttpResponse::TemporaryRedirect()
        .insert_header((header::LOCATION, "/docs"))
        .finish()
}

describe! {
    /// A page that renders this specification.
    ///
    /// The page loads nothing from elsewhere.
    REFERENCE: "reference" of "operation", |it| it.text(200, "The page.", &["text/html"])
}
pub async fn reference(_caller: Public) -> HttpResponse {
    answer(HTML).body(include_str!("reference.html"))
}

describe! {
    /// A page that explains every kind of problem.
    ///
    /// Each problem has a link to its section, in `page`.
    PROBLEMS: "problems" of "operation", |it| it.text(200, "The page.", &["text/html"])
}
pub async fn problems(_caller: Public, request: HttpRequest) -> HttpResponse {
    super::problems::PAGE.answer(answer(HTML), &request)
}

/// A file of a page.
pub async fn file(_caller: Public, request: HttpRequest) -> HttpAnswer {
    let name = segment(&request, "file").unwrap_or_default();
    let mut files = FILES.iter();
    let found = files.find(|(known, ..)| *known == name);
    let (_, content_type, file) = found.ok_or(ApiError::NotFound("there is no such page"))?;
    Ok(file.answer(answer(content_type), &request))
}

/// All files, with their types.
static FILES: LazyLock<Vec<(&str, &str, Document)>> = LazyLock::new(|| {
    let own = OWN_FILES.map(|(name, content_type, text)| (name, content_type, Document::new(text)));
    let of_swagger = SWAGGER_FILES.map(|(name, content_type)| {
        let packed = archive::find(SWAGGER_UI_VENDORED, &format!("/dist/{name}"));
        let file = match packed.expect("the crate has the files of Swagger UI") {
            Packed::Stored(bytes) => Document::new(bytes),
            Packed::Gzip(bytes) => Document::packed(bytes),
        };
        (name, content_type, file)
    });
    own.into_iter().chain(of_swagger).collect()
});

fn answer(content_type: &str) -> HttpResponseBuilder {
    let mut answer = HttpResponse::Ok();
    answer
        .content_type(content_type)
        .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY));
    answer
}
