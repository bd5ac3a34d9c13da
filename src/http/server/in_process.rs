//! Requests that the process sends to itself. They take the same way as a client's: the same routes, checks and
//! bounds. Only the key is another: who sends such a request has checked it already.

use std::net::SocketAddr;
use std::rc::Rc;

use actix_http::{Payload, h1};
use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{Method, Uri};
use actix_web::web::Bytes;
use futures_util::future::LocalBoxFuture;
use tokio::sync::OnceCell;
use tokio::task_local;

use engine::Principal;

task_local! {
    static SENDER: Principal;
}

/// Answers a request, as for a client.
pub type OwnApplication = Rc<dyn Fn(actix_http::Request) -> LocalBoxFuture<'static, HttpResponse>>;

type Make = Box<dyn Fn() -> LocalBoxFuture<'static, Option<OwnApplication>>>;

/// The application of one thread, for requests of its own. It is made when it is first needed.
pub struct InProcess {
    make: Make,
    made: OnceCell<Option<OwnApplication>>,
}

/// A request of the process.
pub struct OwnRequest<'r> {
    pub method: Method,
    pub target: &'r str,
    pub fields: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
    /// Whose rights the request has; `None` if a field of the header says so.
    pub principal: Option<Principal>,
    /// The address of the client for whom it is sent.
    pub peer: Option<SocketAddr>,
}

impl InProcess {
    pub fn new(make: Make) -> Self {
        Self {
            make,
            made: OnceCell::new(),
        }
    }

    /// The answer to a request; `None` if the target is no URL, or the application cannot be made.
    pub async fn send(&self, own: OwnRequest<'_>) -> Option<HttpResponse> {
        let uri: Uri = own.target.parse().ok()?;
        let made = self.made.get_or_init(|| (self.make)()).await;
        let dispatch = made.clone()?;
        // 1. Make the request.
        let (_, mut payload) = h1::Payload::create(true);
        payload.unread_data(own.body);
        let mut request = actix_http::Request::with_payload(Payload::H1 { payload });
        let head = request.head_mut();
        head.method = own.method;
        head.uri = uri;
        head.peer_addr = own.peer;
        for (name, value) in own.fields {
            head.headers_mut().insert(name, value);
        }
        // 2. The check of the key, which runs in this task, asks whose request it is.
        let answer = dispatch(request);
        let mut answer = match own.principal {
            Some(principal) => SENDER.scope(principal, answer).await,
            None => answer.await,
        };
        answer.extensions_mut().insert(Logged);
        Some(answer)
    }
}

/// Marks an answer whose failure the log has already.
pub struct Logged;

/// Whose rights the request has that this task answers, if the process sends it.
pub fn sender() -> Option<Principal> {
    SENDER.try_with(Principal::clone).ok()
}
