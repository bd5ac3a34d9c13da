//! What a connection and the application tell each other.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Context;

use actix_web::HttpRequest;
use actix_web::http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING, UPGRADE};
use actix_web::http::{Method, Version};

use super::newcomers::Newcomer;
use engine::Authority;

/// The state that a connection shares with the application.
#[derive(Default)]
pub struct Exchange {
    /// The number of requests that the application has received.
    pub begun: Cell<u64>,
    /// The number of requests that are not answered yet.
    pub at_work: Cell<u32>,
    /// The bytes of the request in progress that may still be read.
    pub body: Cell<BodyLeft>,
    /// The bytes of the next body that were given together with its head.
    pub given_early: Cell<u64>,
    /// Set when it is not certain any more where a request ends.
    is_out_of_step: Cell<bool>,
    /// The key of the newest request.
    authority: RefCell<Option<Authority>>,
    /// Set until the connection has shown a valid key.
    newcomer: RefCell<Option<Newcomer>>,
}

/// What is left of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyLeft {
    #[default]
    Nothing,
    Bytes(u64),
    /// Chunks, whose end only actix knows.
    Chunks,
}

/// Whether the bytes after a request are the next request. After any other one actix reads on to the end of the
/// connection, and drops what it reads.
fn is_followed(request: &HttpRequest) -> bool {
    let headers = request.headers();
    let mut connection = headers.get_all(CONNECTION);
    request.version() == Version::HTTP_11
        && request.method() != Method::CONNECT
        && !headers.contains_key(UPGRADE)
        && connection.all(|value| value.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
}

impl BodyLeft {
    fn of(headers: &HeaderMap) -> Self {
        if headers.contains_key(TRANSFER_ENCODING) {
            return Self::Chunks;
        }
        let length = headers.get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        length.map_or(Self::Nothing, Self::Bytes)
    }
}

impl Exchange {
    pub fn new(newcomer: Option<Newcomer>) -> Rc<Self> {
        Rc::new(Self {
            newcomer: RefCell::new(newcomer),
            ..Self::default()
        })
    }

    /// Whether it is certain that all requests have ended where their bytes end, if so many heads were
    /// passed on. What actix answers by itself, a body that nobody has read to its end, or a last request
    /// can be followed by bytes that look like a request, and are none.
    pub fn is_in_step_with(&self, heads: u64) -> bool {
        if heads != self.begun.get() {
            self.is_out_of_step.set(true);
        }
        !self.is_out_of_step.get()
    }

    /// Whether the connection has shown a valid key.
    pub fn has_shown_a_key(&self) -> bool {
        self.newcomer.borrow().is_none()
    }

    /// Notes the key of a request: a valid key, or none.
    pub fn note_key(&self, authority: Option<Authority>) {
        let has_key = authority.is_some();
        match &*self.newcomer.borrow() {
            Some(newcomer) if !has_key => newcomer.is_served(),
            _ => {}
        }
        if has_key {
            self.newcomer.take();
        }
        *self.authority.borrow_mut() = authority;
    }

    /// Whether the connection must make room for another one.
    pub fn must_leave(&self, context: &mut Context<'_>) -> bool {
        let newcomer = self.newcomer.borrow();
        newcomer.as_ref().is_some_and(|it| it.must_leave(context))
    }

    /// Whether the key of the newest request has lost its rights since.
    pub fn has_lost_its_key(&self) -> bool {
        let authority = self.authority.borrow();
        authority.as_ref().is_some_and(|it| !it.holds())
    }
}

/// A request in progress. It ends when its answer is written or dropped, because this value is
/// dropped with it.
pub struct AtWork(Rc<Exchange>);

impl AtWork {
    /// Begins a request that actix has read.
    pub fn begin(exchange: Rc<Exchange>, request: &HttpRequest) -> Self {
        if !is_followed(request) {
            exchange.is_out_of_step.set(true);
        }
        Self::begin_with(exchange, BodyLeft::of(request.headers()))
    }

    /// Begins a plain claim, whose body is read already.
    pub fn begin_whole(exchange: Rc<Exchange>) -> Self {
        Self::begin_with(exchange, BodyLeft::Nothing)
    }

    fn begin_with(exchange: Rc<Exchange>, body: BodyLeft) -> Self {
        exchange.begun.set(exchange.begun.get() + 1);
        exchange.at_work.set(exchange.at_work.get() + 1);
        let given = exchange.given_early.take();
        let has_certain_end = match body {
            BodyLeft::Nothing => given == 0,
            BodyLeft::Bytes(length) => given <= length,
            BodyLeft::Chunks => false,
        };
        if !has_certain_end {
            exchange.is_out_of_step.set(true);
        }
        exchange.body.set(match body {
            BodyLeft::Bytes(length) if length > given => BodyLeft::Bytes(length - given),
            BodyLeft::Bytes(_) => BodyLeft::Nothing,
            other => other,
        });
        Self(exchange)
    }

    /// Notes that the application reads nothing more of the body.
    pub fn end_body(&self) {
        if self.0.body.take() != BodyLeft::Nothing {
            self.0.is_out_of_step.set(true);
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.set(self.0.at_work.get() - 1);
    }
}
