//! What a connection and the application tell each other.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Context;

use actix_web::http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};

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
    pub fn begin(exchange: Rc<Exchange>, headers: &HeaderMap) -> Self {
        exchange.begun.set(exchange.begun.get() + 1);
        exchange.at_work.set(exchange.at_work.get() + 1);
        let given = exchange.given_early.take();
        exchange.body.set(match BodyLeft::of(headers) {
            BodyLeft::Bytes(length) if length > given => BodyLeft::Bytes(length - given),
            BodyLeft::Bytes(_) => BodyLeft::Nothing,
            other => other,
        });
        Self(exchange)
    }

    /// Notes that the application reads nothing more of the body.
    pub fn end_body(&self) {
        self.0.body.set(BodyLeft::Nothing);
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.set(self.0.at_work.get() - 1);
    }
}
