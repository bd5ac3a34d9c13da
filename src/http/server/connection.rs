//! A client's connection, with the bounds that actix does not set. actix limits only the time of a
//! connection's first head, and no write. And it answers a request that it cannot read by itself,
//! without an explanation.
//!
//! - A request's head must arrive within [`Bounds::request_time`] after its first byte. The same
//!   holds for the rest of a body that nobody reads.
//! - Between requests a connection may be idle for at most [`Bounds::idle_time`].
//! - If the client takes nothing of its answer for [`Bounds::stall_time`], the connection is
//!   closed, and everything that the answer keeps is freed.
//! - The next request is read when the answer before it is written ([`Intake`]).
//! - The system buffers at most [`SEND_BUFFER`] bytes of an answer, before the client shows a key.
//! - A plain claim ([`PlainClaims`]) is answered here, and actix never sees it.
//! - A client that has no key makes room for others ([`Exchange::must_leave`]). A client whose key
//!   is revoked gets nothing more of its answer.
//!
//! The body that a handler reads has its bound in `body.rs`.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{CONNECTION, HeaderValue};
use actix_web::web::{Buf, Bytes};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;

use super::every::complete;
use super::exchange::{BodyLeft, Exchange};
use super::intake::{AHEAD_MOST, Intake, Portion};
use super::plain_claims::{PlainClaim, PlainClaims};
use super::request_id::RequestId;
use super::wire::{Beginning, Wire};
use super::written::AnswerWriter;
use crate::answer::ApiError;
use host::running::{Alarm, RunningTime};

/// The send buffer of the system for a client without a key, in bytes. By itself the system buffers
/// up to 4 MiB, for everybody who asks for documents and does not read them.
const SEND_BUFFER: usize = 32 * 1024;
/// The send buffer for a client that has shown a key: enough for a distant reader of an export.
const SEND_BUFFER_WITH_KEY: usize = 1024 * 1024;
/// The most bytes that are read for a plain claim.
const PLAIN_MOST: usize = 2048;
/// The pause between two checks of the key of an answer that its client does not take.
const KEY_EVERY: Duration = Duration::from_millis(250);

const MADE_ROOM: &str = "a connection without a key made room for another one";
const LOST_ITS_KEY: &str = "the key of an answer was revoked, has ended or was changed";
const DOES_NOT_READ: &str = "a client does not read its answer: the connection is closed";

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

/// Invariant: while no request is in progress, the alarm `reading` is set: either for the head that
/// is arriving, or for the idle time. So a client cannot keep a connection open without sending.
pub struct Connection {
    wire: Wire,
    bounds: Bounds,
    exchange: Rc<Exchange>,
    /// The number of requests that had begun when the alarm `reading` was set.
    begun: u64,
    /// Whether bytes have arrived that belong to no request in progress.
    is_receiving: bool,
    intake: Intake,
    reading: Alarm,
    writing: Alarm,
    /// Ticks while the client does not take its answer.
    key_checks: Option<Interval>,
    has_large_buffer: bool,
    /// Whether all bytes of actix are written.
    is_flushed: bool,
    /// `None` if this instance decides no claims.
    plain_claims: Option<Rc<PlainClaims>>,
    plain_claim: Option<PlainClaim>,
    /// What is not written yet of an answer of this connection itself: the answer to a plain claim, or
    /// an answer that the connection ends after.
    own_answer: Bytes,
}

impl Connection {
    /// A connection that waits for its first request.
    pub fn new(
        io: TcpStream,
        acceptor: Option<&TlsAcceptor>,
        bounds: Bounds,
        time: &Arc<RunningTime>,
        exchange: Rc<Exchange>,
        plain_claims: Option<Rc<PlainClaims>>,
    ) -> Self {
        set_send_buffer(&io, SEND_BUFFER);
        // Otherwise the system holds the last bytes of a long answer until the client confirms the bytes
        // before them, and a client may take 40 ms for that.
        if let Err(error) = io.set_nodelay(true) {
            tracing::debug!(%error, "a connection sends the ends of long answers late");
        }
        // The system also waits at most this long for the client to take the bytes that it buffers.
        #[cfg(target_os = "linux")]
        if let Err(error) = SockRef::from(&io).set_tcp_user_timeout(Some(bounds.stall_time)) {
            tracing::debug!(%error, "a connection has no time limit for the bytes that the system buffers");
        }
        let mut reading = Alarm::new(time.clone());
        reading.set(bounds.request_time);
        Self {
            wire: Wire::new(io, acceptor),
            bounds,
            exchange,
            begun: 0,
            is_receiving: true,
            intake: Intake::default(),
            reading,
            writing: Alarm::new(time.clone()),
            key_checks: None,
            has_large_buffer: false,
            is_flushed: true,
            plain_claims,
            plain_claim: None,
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

    /// Sets the alarm for the idle time: the requests that had begun have ended.
    fn becomes_idle(&mut self) {
        self.begun = self.exchange.begun.get();
        self.is_receiving = false;
        self.reading.set(self.bounds.idle_time);
    }

    /// Ready when no request is in progress, and the awaited bytes take too long.
    fn poll_tardy(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // 1. A request in progress has bounds of its own.
        if self.exchange.at_work.get() > 0 {
            return Poll::Pending;
        }
        // 2. Requests have ended since the alarm was set: now the connection is idle.
        if self.exchange.begun.get() != self.begun {
            self.becomes_idle();
        }
        // 3. Otherwise the alarm runs for a head, or for the idle time.
        self.reading.poll_over(context)
    }

    /// Writes within the bounds.
    fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.has_large_buffer && self.exchange.has_shown_a_key() {
            self.has_large_buffer = true;
            if let Some(socket) = self.wire.socket() {
                set_send_buffer(socket, SEND_BUFFER_WITH_KEY);
            }
        }
        let written = Pin::new(&mut self.wire).poll_write(context, bytes);
        self.poll_taken(context, written)
    }

    /// Sends what TLS keeps back, within the same bounds.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.wire).poll_flush(context);
        self.poll_taken(context, flushed)
    }

    /// Waits until the client takes bytes, unless it takes nothing for too long, or may have nothing more.
    fn poll_taken<T>(
        &mut self,
        context: &mut Context<'_>,
        taken: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if taken.is_ready() {
            self.writing.clear();
            return taken;
        }
        self.writing.set_if_clear(self.bounds.stall_time);
        if self.poll_lost_key(context).is_ready() {
            return Poll::Ready(Err(self.cut(LOST_ITS_KEY)));
        }
        if self.exchange.must_leave(context) {
            return Poll::Ready(Err(self.cut(MADE_ROOM)));
        }
        ready!(self.writing.poll_over(context));
        Poll::Ready(Err(self.cut(DOES_NOT_READ)))
    }

    /// The error that ends the connection at once, whatever is not written yet. The bytes that the
    /// system buffers for the client are dropped too.
    fn cut(&self, why: &'static str) -> io::Error {
        tracing::debug!("{why}");
        match self.wire.socket().map(TcpStream::set_zero_linger) {
            Some(Err(error)) => error,
            Some(Ok(())) | None => ErrorKind::TimedOut.into(),
        }
    }

    /// Ready when the answer that the client does not take is for a key that has lost its rights.
    /// An answer that the client takes is checked where it is made.
    fn poll_lost_key(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let checks = self.key_checks.get_or_insert_with(|| {
            let mut checks = interval(KEY_EVERY);
            checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            checks
        });
        while checks.poll_tick(context).is_ready() {
            if self.exchange.has_lost_its_key() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// What actix may get now.
    fn portion(&self) -> Portion {
        match self.exchange.at_work.get() {
            0 if self.is_flushed => Portion::Head,
            0 => Portion::Nothing,
            _ => match self.exchange.body.get() {
                BodyLeft::Nothing => Portion::Nothing,
                left => Portion::Body(left),
            },
        }
    }

    /// Reads some bytes ahead of a request in progress, to notice that its client is gone. Ready if
    /// bytes came, or the end.
    fn poll_ahead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut space = [MaybeUninit::uninit(); 1024];
        let mut is_more = false;
        while !self.intake.has_ended && self.intake.held.len() < AHEAD_MOST {
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.wire).poll_read(context, &mut buffer) {
                Poll::Pending if is_more => break,
                Poll::Pending => return Poll::Pending,
                Poll::Ready(read) => read?,
            }
            is_more = true;
            self.intake.has_ended = buffer.filled().is_empty();
            self.intake.held.extend_from_slice(buffer.filled());
        }
        if is_more {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Fills the buffer with received bytes that may be passed on.
    fn poll_portion(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        portion: Portion,
    ) -> Poll<io::Result<()>> {
        // 1. Take the bytes that wait, or the bytes that are there.
        let before = buffer.filled().len();
        let is_held = !self.intake.held.is_empty();
        if is_held {
            let length = self.intake.held.len().min(buffer.remaining());
            buffer.put_slice(&self.intake.held[..length]);
        } else if !self.intake.has_ended {
            ready!(Pin::new(&mut self.wire).poll_read(context, buffer))?;
        }
        // 2. Keep those that must wait.
        let bytes = &buffer.filled()[before..];
        if bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let given = self.intake.measure(portion, bytes);
        if is_held {
            self.intake.advance(given.length)
        } else {
            self.intake.held.extend_from_slice(&bytes[given.length..])
        }
        buffer.set_filled(before + given.length);
        // 3. Note how much of the body is passed on.
        match portion {
            Portion::Head => self.exchange.given_early.set(given.of_body),
            Portion::Body(BodyLeft::Bytes(left)) => {
                let left = left.saturating_sub(given.length as u64);
                self.exchange.body.set(match left {
                    0 => BodyLeft::Nothing,
                    left => BodyLeft::Bytes(left),
                });
            }
            Portion::Nothing | Portion::Body(BodyLeft::Nothing | BodyLeft::Chunks) => {}
        }
        self.received();
        Poll::Ready(Ok(()))
    }

    /// Ready when no plain claim is in progress: its answer is written.
    fn poll_plain_claim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(claim) = &mut self.plain_claim else {
            return Poll::Ready(Ok(()));
        };
        if let Some(answering) = &mut claim.answering {
            self.own_answer = ready!(answering.as_mut().poll(context));
            claim.answering = None;
        }
        ready!(self.poll_own_answer(context))?;
        self.plain_claim = None;
        self.becomes_idle();
        Poll::Ready(Ok(()))
    }

    /// Begins the next request if it is a plain claim. If it is not, its bytes wait for actix.
    fn begin_plain_claim(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let Some(plain_claims) = self.plain_claims.clone() else {
            return Ok(false);
        };
        let intake = &mut self.intake;
        // 1. A request begins here, and not in the middle of another one.
        if !self.exchange.is_in_step_with(intake.heads) || intake.is_in_head {
            return Ok(false);
        }
        // 2. Take the bytes that wait, or the bytes that are there.
        if !intake.held.is_empty() {
            self.plain_claim = plain_claims.begin(&intake.held, &self.exchange);
            if let Some(claim) = &self.plain_claim {
                intake.advance(claim.length);
            }
        } else if !intake.has_ended {
            let mut space = [MaybeUninit::uninit(); PLAIN_MOST];
            let mut buffer = ReadBuf::uninit(&mut space);
            let Poll::Ready(read) = Pin::new(&mut self.wire).poll_read(context, &mut buffer) else {
                return Ok(false);
            };
            read?;
            let bytes = buffer.filled();
            intake.has_ended = bytes.is_empty();
            self.plain_claim = plain_claims.begin(bytes, &self.exchange);
            let length = self.plain_claim.as_ref().map_or(0, |claim| claim.length);
            intake.held.extend_from_slice(&bytes[length..]);
        }
        intake.heads += u64::from(self.plain_claim.is_some());
        Ok(self.plain_claim.is_some())
    }

    fn poll_own_answer(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own_answer.is_empty() {
            let answer = self.own_answer.clone();
            let written = ready!(self.poll_send(context, &answer))?;
            self.own_answer.advance(written);
        }
        self.poll_rest(context)
    }

    /// Ready when the connection is open. A handshake is a part of the first head, and has its time.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Beginning> {
        if let Poll::Ready(opening) = self.wire.poll_open(context) {
            return Poll::Ready(opening);
        }
        ready!(self.poll_tardy(context));
        Poll::Ready(Beginning::Failed)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // 1. Make room for another connection.
        if self.exchange.must_leave(context) {
            let cut = self.cut(MADE_ROOM);
            return Poll::Ready(Err(cut));
        }
        // 2. Begin. A client without TLS where it is needed gets an answer that says so.
        match ready!(self.poll_open(context)) {
            Beginning::Open => {}
            Beginning::Failed => return Poll::Ready(Ok(())),
            Beginning::WithoutTls => {
                self.own_answer = own_answer(ApiError::WithoutTls);
                return Poll::Ready(Ok(()));
            }
        }
        // 3. Answer a plain claim before anything else is read.
        ready!(self.poll_plain_claim(context))?;
        // 4. Let actix take a portion before it gets the next one.
        let portion = self.portion();
        if std::mem::take(&mut self.intake.is_given) && portion != Portion::Nothing {
            if self.intake.held.is_empty() && !self.intake.has_ended {
                ready!(self.poll_ahead(context))?;
            }
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // 5. While a request is in progress, only look whether the client is gone.
        if portion == Portion::Nothing {
            loop {
                if self.intake.has_ended && self.intake.held.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                ready!(self.poll_ahead(context))?;
            }
        }
        // 6. Decide plain claims here.
        while portion == Portion::Head && self.begin_plain_claim(context)? {
            ready!(self.poll_plain_claim(context))?;
        }
        // 7. Pass on the bytes that are there.
        if let Poll::Ready(read) = self.poll_portion(context, buffer, portion) {
            return Poll::Ready(read);
        }
        // 8. Without bytes, wait until the alarm.
        ready!(self.poll_tardy(context));
        // 9. Explain the end to a client that has sent no whole request. After a first request, the
        // bytes may be the rest of a body that is answered already.
        if self.exchange.begun.get() == 0 {
            self.own_answer = own_answer(ApiError::SlowRequest);
        }
        // 10. Report that nothing was read: actix takes this as the end of the connection.
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
            self.own_answer = own_answer(error);
            return Poll::Ready(Ok(bytes.len()));
        }
        // 2. Write every other answer as it is.
        self.is_flushed = false;
        self.poll_send(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.plain_claim.is_none() {
            ready!(self.poll_own_answer(context))?;
        }
        ready!(self.poll_rest(context))?;
        self.is_flushed = true;
        // The answer is written: the wait for the next request begins. If the alarm is already
        // over, wake the task, so that the next read finds it.
        // If bytes wait, wake the task too: nothing else may come that does.
        let waits = !self.intake.held.is_empty() || self.intake.has_ended;
        let goes_on = waits && self.portion() != Portion::Nothing;
        if self.poll_tardy(context).is_ready() || goes_on {
            context.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_plain_claim(context))?;
        ready!(self.poll_own_answer(context))?;
        Pin::new(&mut self.wire).poll_shutdown(context)
    }
}

fn set_send_buffer(io: &TcpStream, bytes: usize) {
    if let Err(error) = SockRef::from(io).set_send_buffer_size(bytes) {
        tracing::debug!(%error, "the send buffer of a connection has no bound");
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
fn own_answer(error: ApiError) -> Bytes {
    let mut answer = complete(HttpResponse::from_error(error), &RequestId::of(None, None));
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    AnswerWriter::default().write(answer)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The end of a long answer would wait for the client's system.
    #[tokio::test]
    async fn a_connection_sends_without_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (io, _) = accepted.unwrap();
        let second = Duration::from_secs(1);
        let bounds = Bounds {
            request_time: second,
            idle_time: second,
            stall_time: second,
        };
        let exchange = Exchange::new(None);
        let connection = Connection::new(io, None, bounds, &RunningTime::begin(), exchange, None);
        let socket = connection.wire.socket().unwrap();
        assert!(socket.nodelay().unwrap());
        drop(client);
    }

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
