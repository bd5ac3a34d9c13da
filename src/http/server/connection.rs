//! A client's connection, with the bounds that actix does not set. actix limits only the time of a
//! connection's first head, and no write. And it answers a request that it cannot read by itself,
//! without an explanation.
//!
//! - A request's head must arrive within [`Bounds::request_time`] after its first byte. The same
//!   holds for the rest of a body that nobody reads.
//! - Between requests a connection may be idle for at most [`Bounds::idle_time`].
//! - If the client takes nothing of its answer for [`Bounds::stall_time`], the connection is
//!   closed, and everything that the answer keeps is freed.
//!
//! The body that a handler reads has its bound in `body.rs`.

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

use crate::clock::wall_clock;
use crate::http::answer::ApiError;
use crate::running::{Alarm, RunningTime};

/// The time limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// For a request's head, and again for its body.
    pub request_time: Duration,
    /// Between requests.
    pub idle_time: Duration,
    /// For the client to take the next bytes of an answer.
    pub stall_time: Duration,
}

/// The state that a connection shares with the application.
#[derive(Debug, Default)]
pub struct Exchange {
    /// The number of requests that the application has received.
    begun: Cell<u64>,
    /// The number of requests that are not answered yet.
    at_work: Cell<u32>,
}

/// A request in progress. It ends when its answer is written or dropped, because this value is
/// dropped with it.
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

/// Invariant: while no request is in progress, the alarm `reading` is set: either for the head that
/// is arriving, or for the idle time. So a client cannot keep a connection open without sending.
pub struct Connection {
    io: TcpStream,
    bounds: Bounds,
    exchange: Rc<Exchange>,
    /// The number of requests that had begun when the alarm `reading` was set.
    begun: u64,
    /// Whether bytes have arrived that belong to no request in progress.
    is_receiving: bool,
    reading: Alarm,
    writing: Alarm,
    /// Whether all bytes of actix are written.
    is_flushed: bool,
    /// An answer of this connection itself. The connection ends after it.
    own_answer: Bytes,
}

impl Connection {
    /// A connection that waits for its first request.
    pub fn new(io: TcpStream, bounds: Bounds, time: &Arc<RunningTime>) -> Self {
        // The system also waits at most this long for the client to take the bytes that it buffers.
        #[cfg(target_os = "linux")]
        if let Err(error) = SockRef::from(&io).set_tcp_user_timeout(Some(bounds.stall_time)) {
            tracing::debug!(%error, "a connection has no time limit for the bytes that the system buffers");
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

    /// Sets the alarm for a head at its first byte.
    fn received(&mut self) {
        if self.exchange.at_work.get() == 0 && !self.is_receiving {
            self.is_receiving = true;
            self.reading.set(self.bounds.request_time);
        }
    }

    /// Ready when no request is in progress, and the awaited bytes take too long.
    fn poll_tardy(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // 1. A request in progress has bounds of its own.
        if self.exchange.at_work.get() > 0 {
            return Poll::Pending;
        }
        // 2. Requests have ended since the alarm was set: now the connection is idle.
        let begun = self.exchange.begun.get();
        if begun != self.begun {
            self.begun = begun;
            self.is_receiving = false;
            self.reading.set(self.bounds.idle_time);
        }
        // 3. Otherwise the alarm runs for a head, or for the idle time.
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
        tracing::debug!("a client does not read its answer: the connection is closed");
        // The bytes that the system buffers for the client are dropped too.
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
        // 1. Take the bytes that are there.
        let before = buffer.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut self.io).poll_read(context, buffer) {
            if buffer.filled().len() > before {
                self.received();
            }
            return Poll::Ready(result);
        }
        // 2. Without bytes, wait until the alarm.
        ready!(self.poll_tardy(context));
        // 3. Explain the end to a client that has sent no whole request. After a first request, the
        // bytes may be the rest of a body that is answered already.
        if self.exchange.begun.get() == 0 {
            self.own_answer = own_answer(&ApiError::SlowRequest);
        }
        // 4. Report that nothing was read: actix takes this as the end of the connection.
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // 1. Replace an answer of actix itself by one that explains. Such an answer is the first
        // write after a flush, with no request in progress.
        let begins_an_answer = self.is_flushed && self.exchange.at_work.get() == 0;
        if begins_an_answer && let Some(error) = unexplained(bytes) {
            self.own_answer = own_answer(&error);
            return Poll::Ready(Ok(bytes.len()));
        }
        // 2. Write every other answer as it is.
        self.is_flushed = false;
        self.poll_send(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own_answer(context))?;
        self.is_flushed = true;
        // The answer is written: the wait for the next request begins. If the alarm is already
        // over, wake the task, so that the next read finds it.
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

/// The error to explain, where the bytes are an answer of actix itself to a request that it could
/// not read. Answers of the application have a request's id.
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

/// An answer that comes from no handler. The connection ends after it.
fn own_answer(error: &ApiError) -> Bytes {
    let problem = serde_json::to_string(&error.problem()).expect("texts are JSON");
    let date = wall_clock().format("%a, %d %b %Y %H:%M:%S GMT");
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
