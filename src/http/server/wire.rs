//! What carries the bytes of a connection: TCP, or TLS on TCP.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// The first byte of a connection that begins TLS: that of a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// The most bytes that are dropped of a request that came without TLS.
const DROPPED_MOST: usize = 128 * 1024;

pub enum Wire {
    Plain(TcpStream),
    /// The client has not finished its handshake.
    Greeting {
        accept: Box<Accept<TcpStream>>,
        /// Whether the client speaks TLS.
        has_begun: bool,
    },
    Secure(Box<TlsStream<TcpStream>>),
}

/// How a connection begins.
#[derive(Debug, PartialEq, Eq)]
pub enum Beginning {
    Open,
    /// The client speaks something else where perdiem speaks TLS. It can be answered without TLS.
    WithoutTls,
    /// The handshake failed: there is nothing to say.
    Failed,
}

impl Wire {
    pub fn new(io: TcpStream, acceptor: Option<&TlsAcceptor>) -> Self {
        match acceptor {
            Some(acceptor) => Self::Greeting {
                accept: Box::new(acceptor.accept(io)),
                has_begun: false,
            },
            None => Self::Plain(io),
        }
    }

    /// The connection below; `None` after its handshake failed.
    pub fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(io) => Some(io),
            Self::Greeting { accept, .. } => accept.get_ref(),
            Self::Secure(stream) => Some(stream.get_ref().0),
        }
    }

    /// Goes on with the handshake. Ready when it has ended, or when the client does not begin one.
    pub fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Beginning> {
        let Self::Greeting { accept, has_begun } = self else {
            return Poll::Ready(Beginning::Open);
        };
        let Some(io) = accept.get_mut() else {
            return Poll::Ready(Beginning::Failed);
        };
        if !*has_begun {
            let mut first = [0];
            let mut first = ReadBuf::new(&mut first);
            let peeked = ready!(io.poll_peek(context, &mut first));
            if peeked.is_ok() && first.filled().first().is_some_and(|it| *it != HANDSHAKE) {
                drop_received(io);
                return Poll::Ready(Beginning::WithoutTls);
            }
            *has_begun = true;
        }
        match ready!(Pin::new(accept).poll(context)) {
            Ok(stream) => {
                *self = Self::Secure(Box::new(stream));
                Poll::Ready(Beginning::Open)
            }
            Err(error) => {
                tracing::debug!(%error, "a client did not finish its TLS handshake");
                Poll::Ready(Beginning::Failed)
            }
        }
    }
}

/// Drops what has arrived: a connection that ends with bytes that nobody read takes its answer back.
fn drop_received(io: &TcpStream) {
    let mut space = [0; 4096];
    let mut dropped = 0;
    while dropped < DROPPED_MOST {
        match io.try_read(&mut space) {
            Ok(length @ 1..) => dropped += length,
            Ok(0) | Err(_) => return,
        }
    }
}

/// A client that ends without a word of TLS has ended. HTTP says itself where a request ends.
fn as_end(read: io::Result<()>) -> io::Result<()> {
    match read {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
        read => read,
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(context, buffer),
            Self::Secure(stream) => Pin::new(stream).poll_read(context, buffer).map(as_end),
            Self::Greeting { .. } => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(context, bytes),
            Self::Secure(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Greeting { accept, .. } => match accept.get_mut() {
                Some(io) => Pin::new(io).poll_write(context, bytes),
                None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
            },
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Secure(stream) => Pin::new(stream).poll_flush(context),
            // TCP keeps nothing back.
            Self::Plain(_) | Self::Greeting { .. } => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(context),
            Self::Secure(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Greeting { accept, .. } => match accept.get_mut() {
                Some(io) => Pin::new(io).poll_shutdown(context),
                None => Poll::Ready(Ok(())),
            },
        }
    }
}
