//! The console within the server: who is signed in, whether a form comes from the console itself, and how its pages
//! become answers. The pages are in the crate `console`.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::body::to_bytes_limited;
use actix_web::http::header::{
    self, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER,
};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, HttpResponseBuilder};
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::LocalBoxFuture;

use super::in_process::{InProcess, OwnRequest};
use super::request_id::{OwnId, X_REQUEST_ID};
use crate::request::{Bounded, FormBytes, Route};
use api::keys::OwnKeyAnswer;
use api::problem::Problem;
use console::{
    Answered, Asking, FormFields, PageAnswer, Request, SIGN_IN, SIGN_ON, Settings, sign_in_page,
};
use engine::{Engine, Principal, SIGNED_IN_FOR, new_id, proof};
use sign_on::{BACK, SignOn};

const SIGN_OUT: &str = "/console/sign-out";
const COOKIE: &str = "perdiem_console";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// Nothing from elsewhere, and nothing inline.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                                       form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// The largest answer of `/v1` that a page reads, in bytes.
const ANSWER_MOST: usize = 8 * 1024 * 1024;

/// The console of one thread.
pub struct Console {
    pub engine: Arc<Engine>,
    pub settings: Settings,
    in_process: InProcess,
    sign_on: Option<Arc<SignOn>>,
}

/// The addresses of the console. Its pages have a table of their own.
pub fn console_routes() -> Vec<Route> {
    vec![
        Route::at("/console", Bounded::Open).pages(page),
        Route::at("/console/{page}", Bounded::Open)
            .with_slashes()
            .pages(page),
    ]
}

async fn page(request: HttpRequest, form: FormBytes) -> HttpResponse {
    match request.app_data::<Option<Rc<Console>>>() {
        Some(Some(console)) => console.clone().answer(&request, form.0).await,
        _ => HttpResponse::NotFound().finish(),
    }
}

impl Console {
    pub fn new(
        engine: Arc<Engine>,
        settings: Settings,
        in_process: InProcess,
        sign_on: Option<Arc<SignOn>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            engine,
            settings,
            in_process,
            sign_on,
        })
    }

    async fn answer(self: Rc<Self>, request: &HttpRequest, form: Bytes) -> HttpResponse {
        let path = request.path();
        let is_form = !request.method().is_safe();
        // 1. A form that another site sends changes nothing.
        if is_form && !comes_from_here(request) {
            let says =
                "This form does not come from the console. Open the console, and send its form.";
            return self.sign_in(StatusCode::FORBIDDEN, "", Some(says));
        }
        // 2. What needs no key.
        if let Some(asset) = console::find_asset(path) {
            return HttpResponse::Ok()
                .content_type(asset.content_type)
                .insert_header((header::CACHE_CONTROL, FOR_EVER))
                .body(asset.text);
        }
        if path == SIGN_IN {
            return if is_form {
                self.try_key(request, &form).await
            } else {
                let query = FormFields::read(request.query_string().as_bytes());
                self.sign_in(StatusCode::OK, query.get("to"), None)
            };
        }
        match &self.sign_on {
            Some(sign_on) if path == SIGN_ON => return self.begin_sign_on(sign_on, request).await,
            Some(sign_on) if path == BACK => return self.finish_sign_on(sign_on, request).await,
            _ => {}
        }
        // 3. Who is signed in?
        let session = cookie_of(request, COOKIE);
        let Some(principal) = self.engine.callers.signed_in(session).await else {
            return to_sign_in(request);
        };
        let server = Visited {
            console: self.clone(),
            session: session.to_owned(),
            principal,
            request_id: request_id(request),
            peer: request.peer_addr(),
        };
        if path == SIGN_OUT && is_form {
            return server.sign_out(request, &form);
        }
        // 4. The page.
        let visit = Request {
            method: if is_form {
                console::Method::Post
            } else {
                console::Method::Get
            },
            path,
            query: request.query_string(),
            form: &form,
        };
        match console::answer(&server, &self.settings, visit).await {
            PageAnswer::Page { status, html } => answer_page(status, html),
            PageAnswer::Redirect(target) => see_other(&target),
            PageAnswer::File { target } => server.file(&target).await,
            PageAnswer::SignIn => to_sign_in(request),
        }
    }

    /// The page that asks for a key.
    pub fn sign_in(&self, status: StatusCode, to: &str, fault: Option<&str>) -> HttpResponse {
        answer_page(status.as_u16(), sign_in_page(&self.settings, to, fault))
    }

    /// The cookie of a browser that signed in with this secret.
    pub fn session(&self, request: &HttpRequest, secret: &str) -> String {
        let now = self.engine.instance.now();
        let session = self.engine.callers.access.sign_ins.seal(secret, now);
        session_cookie(request, &session, SIGNED_IN_FOR)
    }

    /// Signs in with the key of a form. `/v1` checks the key, so wrong keys share the bound of the API.
    async fn try_key(&self, request: &HttpRequest, form: &Bytes) -> HttpResponse {
        let form = FormFields::read(form);
        let secret = form.get("key");
        let to = form.get("to");
        let refuse = |status, says: &str| self.sign_in(status, to, Some(says));
        let wrong = "This key is not valid: it is mistyped, unknown, revoked or ended.";
        let Ok(bearer) = HeaderValue::from_str(&format!("Bearer {secret}")) else {
            return refuse(StatusCode::UNAUTHORIZED, wrong);
        };
        let own = OwnRequest {
            method: Method::GET,
            target: "/v1/keys/me",
            fields: vec![(AUTHORIZATION, bearer)],
            body: Bytes::new(),
            principal: None,
            peer: request.peer_addr(),
        };
        let Some(answer) = self.in_process.send(own).await else {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "This did not work.");
        };
        let answered = read(answer).await;
        let status =
            StatusCode::from_u16(answered.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let own_key = serde_json::from_slice::<OwnKeyAnswer>(&answered.body);
        match (status, own_key) {
            (StatusCode::OK, Ok(key)) if &*key.role != "claim" => {
                let to = if is_own_page(to) { to } else { "/console" };
                let mut answer = see_other(to);
                set_cookie(&mut answer, &self.session(request, secret));
                answer
            }
            (StatusCode::OK, Ok(_)) => refuse(
                StatusCode::FORBIDDEN,
                "This key is for a backend. Ask an admin for a key of the role support, audit or admin.",
            ),
            (StatusCode::UNAUTHORIZED, ..) => refuse(status, wrong),
            (StatusCode::TOO_MANY_REQUESTS, ..) => {
                let wait = answered.retry_after.unwrap_or(1);
                refuse(
                    status,
                    &format!("Too many wrong keys were sent. Try again in {wait} s."),
                )
            }
            _ => {
                let problem = serde_json::from_slice::<Problem>(&answered.body);
                let says = problem.map_or("This is not available now.".to_owned(), |it| it.detail);
                refuse(StatusCode::SERVICE_UNAVAILABLE, &says)
            }
        }
    }
}

/// A visit by somebody who is signed in.
struct Visited {
    console: Rc<Console>,
    session: String,
    principal: Principal,
    request_id: String,
    peer: Option<SocketAddr>,
}

impl Visited {
    async fn send(&self, asking: Asking) -> Option<HttpResponse> {
        let mut fields = vec![(X_REQUEST_ID, HeaderValue::from_str(&self.request_id).ok()?)];
        for (name, value) in &asking.fields {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            fields.push((name, HeaderValue::from_str(value).ok()?));
        }
        let body = asking.body.map(|body| Bytes::from(body.to_string()));
        if body.is_some() {
            fields.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        }
        let own = OwnRequest {
            method: Method::from_bytes(asking.method.as_bytes()).ok()?,
            target: &asking.target,
            fields,
            body: body.unwrap_or_default(),
            principal: Some(self.principal.clone()),
            peer: self.peer,
        };
        self.console.in_process.send(own).await
    }

    /// The answer of `/v1` as a download.
    async fn file(&self, target: &str) -> HttpResponse {
        let Some(mut answer) = self.send(Asking::get(target.to_owned())).await else {
            return HttpResponse::NotFound().finish();
        };
        let headers = answer.headers_mut();
        if !headers.contains_key(header::CONTENT_DISPOSITION) {
            let attachment = HeaderValue::from_static("attachment");
            headers.insert(header::CONTENT_DISPOSITION, attachment);
        }
        answer
    }

    fn sign_out(&self, request: &HttpRequest, form: &Bytes) -> HttpResponse {
        let is_own =
            FormFields::read(form).get("form") == console::Server::form_token(self, SIGN_OUT);
        let mut answer = see_other(if is_own { SIGN_IN } else { "/console" });
        if is_own {
            set_cookie(&mut answer, &session_cookie(request, "", TimeDelta::zero()));
        }
        answer
    }
}

impl console::Server for Visited {
    fn send(&self, asking: Asking) -> LocalBoxFuture<'_, Answered> {
        Box::pin(async move {
            match Visited::send(self, asking).await {
                Some(answer) => read(answer).await,
                None => Answered {
                    status: StatusCode::BAD_REQUEST.as_u16(),
                    retry_after: None,
                    body: Vec::new(),
                },
            }
        })
    }

    fn now(&self) -> DateTime<Utc> {
        self.console.engine.instance.now()
    }

    fn form_token(&self, path: &str) -> String {
        let text = format!("{}\n{path}", self.session);
        proof(&self.principal, &text).to_hex().to_string()
    }

    fn request_id(&self) -> String {
        self.request_id.clone()
    }

    fn unique(&self) -> String {
        new_id(console::Server::now(self)).to_string()
    }
}

/// Reads an answer of `/v1`.
pub async fn read(answer: HttpResponse) -> Answered {
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|field| field.to_str().ok()?.parse().ok());
    let body = to_bytes_limited(answer.into_body(), ANSWER_MOST).await;
    let body = body.ok().and_then(Result::ok).unwrap_or_default();
    Answered {
        status,
        retry_after,
        body: body.to_vec(),
    }
}

pub fn answer_page(status: u16, html: String) -> HttpResponse {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponseBuilder::new(status)
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY))
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header((OPENER_POLICY, "same-origin"))
        .body(html)
}

pub fn see_other(target: &str) -> HttpResponse {
    HttpResponse::SeeOther()
        .insert_header((header::LOCATION, target))
        .finish()
}

/// Leads to the sign-in, and from there back to the page.
fn to_sign_in(request: &HttpRequest) -> HttpResponse {
    let wanted = request.uri().path_and_query().map_or("", |it| it.as_str());
    let to = if request.method().is_safe() && wanted != "/console" {
        wanted
    } else {
        ""
    };
    see_other(&console::with(SIGN_IN, &[("to", to)]))
}

/// Whether a target is a page of the console, and nothing that a browser takes for another site.
pub fn is_own_page(target: &str) -> bool {
    let below = target.strip_prefix("/console");
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
        && target
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

/// The field that gives the browser its session, or takes it away.
fn session_cookie(request: &HttpRequest, session: &str, life: TimeDelta) -> String {
    let cookie = cookie(request, COOKIE, session, life);
    format!("{cookie}; SameSite=Strict")
}

/// A cookie for the console that no script reads, without the sites that may send it.
pub fn cookie(request: &HttpRequest, name: &str, value: &str, life: TimeDelta) -> String {
    let life = life.num_seconds();
    let secure = if is_loopback(request) { "" } else { "; Secure" };
    format!("{name}={value}; Path=/console; Max-Age={life}; HttpOnly{secure}")
}

pub fn set_cookie(answer: &mut HttpResponse, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        answer.headers_mut().append(header::SET_COOKIE, value);
    }
}

/// A cookie that a browser sends; empty without one.
pub fn cookie_of<'r>(request: &'r HttpRequest, name: &str) -> &'r str {
    let fields = request.headers().get_all(header::COOKIE);
    let cookies = fields.filter_map(|field| field.to_str().ok());
    let mut cookies = cookies.flat_map(|field| field.split(';'));
    let found = cookies.find_map(|cookie| cookie.trim().strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_default()
}

fn text_of(request: &HttpRequest, name: HeaderName) -> Option<&str> {
    request.headers().get(name)?.to_str().ok()
}

/// Whether the browser reached this machine without a network: then it needs no TLS.
fn is_loopback(request: &HttpRequest) -> bool {
    let host = text_of(request, HOST)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is_it = |name: &&str| {
        let port = host.strip_prefix(*name);
        port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
    };
    ["localhost", "127.0.0.1", "[::1]"].iter().any(is_it)
}

/// Whether a page of this server sent the form.
fn comes_from_here(request: &HttpRequest) -> bool {
    if let Some(site) = text_of(request, SEC_FETCH_SITE) {
        return site == "same-origin";
    }
    let origin = text_of(request, ORIGIN).and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, host)| text_of(request, HOST) == Some(host))
}

/// The id of a request, for the request that is made of it.
pub fn request_id(request: &HttpRequest) -> String {
    let extensions = request.extensions();
    let id = extensions.get::<OwnId>();
    id.map_or_else(String::new, |id| id.0.clone())
}
