//! A client's connection, with the bounds that actix does not set. actix bounds the time of a
//! connection's first head only, and no write at all; and it answers by itself, without a word,
//! what it cannot read.
//!
//! - A request's head, and what is left of a body that nobody reads, arrive within
//!   [`Bounds::request_time`] after their first byte.
//! - Between requests a connection rests for [`Bounds::idle_time`] at most.
//! - An answer of which the client takes nothing for [`Bounds::stall_time`] is given up with its
//!   connection, and so is all that it holds.
//!
//! The body that a handler reads has its bound where it is read (`body.rs`).

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::ResponseError;
use actix_web::web::{Buf, Bytes};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::clock::SystemClock;
use crate::http::answer::ApiError;
use crate::running::{Alarm, RunningTime};

/// How long a connection may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// A request's head, and then its body again.
    pub request_time: Duration,
    /// Between requests.
    pub idle_time: Duration,
    /// To take the next bytes of an answer.
    pub stall_time: Duration,
}

/// What a connection and the application tell each other of its requests.
#[derive(Debug, Default)]
pub struct Exchange {
    /// How many requests came to the application.
    begun: Cell<u64>,
    /// How many of them are not answered yet.
    at_work: Cell<u32>,
}

/// A request is at work until its answer is written or given up: until this is dropped.
pub struct AtWork(Rc<Exchange>);

impl AtWork {
    pub fn begin(exchange: Rc<Exchange>) -> Self {
        exchange.begun.set(exchange.begun.get() + 1);
        exchange.at_work.set(exchange.at_work.get() + 1);
        Self(exchange)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.set(self.0.at_work.get() - 1);
    }
}

pub struct Connection {
    io: TcpStream,
    bounds: Bounds,
    exchange: Rc<Exchange>,
    /// How many requests had begun when the alarm of reading was set.
    begun: u64,
    /// Whether bytes have arrived that belong to no request at work.
    is_receiving: bool,
    reading: Alarm,
    writing: Alarm,
    /// Whether all that actix wrote has gone out.
    is_flushed: bool,
    /// An answer of its own, after which the connection ends.
    own_answer: Bytes,
}

impl Connection {
    /// A connection whose first request is expected.
    pub fn new(io: TcpStream, bounds: Bounds, time: &Arc<RunningTime>) -> Self {
        // What the system has taken for the client is bounded the same way.
        #[cfg(target_os = "linux")]
        if let Err(error) = SockRef::from(&io).set_tcp_user_timeout(Some(bounds.stall_time)) {
            tracing::debug!(%error, "a connection has no bound for what the system holds");
        }
        let mut reading = Alarm::new(time.clone());
        reading.set(bounds.request_time);
        Self {
            io,
            bounds,
            exchange: Rc::default(),
            begun: 0,
            is_receiving: true,
            reading,
            writing: Alarm::new(time.clone()),
            is_flushed: true,
            own_answer: Bytes::new(),
        }
    }

    pub fn exchange(&self) -> Rc<Exchange> {
        self.exchange.clone()
    }

    fn received(&mut self) {
        if self.exchange.at_work.get() == 0 && !self.is_receiving {
            self.is_receiving = true;
            self.reading.set(self.bounds.request_time);
        }
    }

    /// Whether nothing is at work here, and what is waited for takes too long.
    fn poll_tardy(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.exchange.at_work.get() > 0 {
            return Poll::Pending;
        }
        let begun = self.exchange.begun.get();
        if begun != self.begun {
            self.begun = begun;
            self.is_receiving = false;
            self.reading.set(self.bounds.idle_time);
        }
        self.reading.poll_over(context)
    }

    /// Writes, unless the client takes nothing for too long.
    fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut self.io).poll_write(context, bytes) {
            self.writing.clear();
            return Poll::Ready(written);
        }
        self.writing.set_if_clear(self.bounds.stall_time);
        ready!(self.writing.poll_over(context));
        tracing::debug!("a client does not read its answer: the connection is given up");
        // What the system keeps for the client goes too.
        self.io.set_zero_linger()?;
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }

    fn poll_own_answer(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own_answer.is_empty() {
            let answer = self.own_answer.clone();
            let written = ready!(self.poll_send(context, &answer))?;
            self.own_answer.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut self.io).poll_read(context, buffer) {
            if buffer.filled().len() > before {
                self.received();
            }
            return Poll::Ready(result);
        }
        ready!(self.poll_tardy(context));
        // What follows the first request may be the rest of a body, which has its answer.
        if self.exchange.begun.get() == 0 {
            self.own_answer = own_answer(&ApiError::SlowRequest);
        }
        // Nothing was read: for actix the client has ended the connection.
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let begins_an_answer = self.is_flushed && self.exchange.at_work.get() == 0;
        if begins_an_answer && let Some(error) = unexplained(bytes) {
            self.own_answer = own_answer(&error);
            return Poll::Ready(Ok(bytes.len()));
        }
        self.is_flushed = false;
        self.poll_send(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own_answer(context))?;
        self.is_flushed = true;
        // The answer is written: from now on the next request is waited for. What is tardy is
        // found by the next read, which this alarm brings about.
        if self.poll_tardy(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own_answer(context))?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// What is wrong, where the bytes are an answer of actix' own to what it could not read. Those of
/// the application bear a request's id.
fn unexplained(bytes: &[u8]) -> Option<ApiError> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ")?.get(..4)?;
    let error = match status {
        b"400 " => ApiError::UnreadableHead,
        b"431 " => ApiError::HeadTooLarge,
        _ => return None,
    };
    let is_the_applications = bytes
        .split(|byte| *byte == b'\n')
        .take_while(|line| !line.is_empty() && *line != b"\r")
        .any(|line| line.starts_with(b"x-request-id:"));
    (!is_the_applications).then_some(error)
}

/// An answer that no request's handler gives, after which the connection ends.
fn own_answer(error: &ApiError) -> Bytes {
    let problem = serde_json::to_string(&error.problem()).expect("texts are JSON");
    let date = SystemClock.now().format("%a, %d %b %Y %H:%M:%S GMT");
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n\
         content-length: {length}\r\nx-request-id: {id}\r\ncache-control: no-store\r\n\
         x-content-type-options: nosniff\r\nconnection: close\r\ndate: {date}\r\n\r\n{problem}",
        status = error.status_code(),
        length = problem.len(),
        id = Uuid::new_v4(),
    );
    answer.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_applications_own_answers_are_left_alone() {
        let bare = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        assert!(matches!(unexplained(bare), Some(ApiError::UnreadableHead)));
        let too_large = b"HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n";
        assert!(matches!(
            unexplained(too_large),
            Some(ApiError::HeadTooLarge)
        ));
        for theirs in [
            &b"HTTP/1.1 400 Bad Request\r\nx-request-id: 1\r\n\r\n{}"[..],
            b"HTTP/1.1 404 Not Found\r\n\r\n",
            b"HTTP/1.1 20",
            b"{\"id\": 1}",
        ] {
            assert!(unexplained(theirs).is_none());
        }
    }
}
