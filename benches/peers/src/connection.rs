//! A keep-alive connection with one open request.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

const HEADERS_MOST: usize = 32;

/// The progress of a request.
pub enum Progress {
    /// The answer is not complete.
    Waiting,
    /// The answer is complete.
    Answered { status: usize },
    /// No readable answer will come.
    Broken,
}

/// A connection, and the answer that is arriving.
pub struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    filled: usize,
    /// The place of the body, after the head is complete.
    body: usize,
    /// When the last request was sent.
    pub sent_at: Instant,
}

impl Connection {
    /// Connects, and waits for the connection.
    pub fn open(address: SocketAddr, registry: &Registry, token: usize) -> std::io::Result<Self> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        registry.register(&mut stream, Token(token), Interest::READABLE)?;
        Ok(Self {
            stream,
            answer: vec![0; 4096],
            filled: 0,
            body: 0,
            sent_at: Instant::now(),
        })
    }

    /// Sends a request, and forgets the last answer. Returns whether the whole request was sent.
    pub fn send(&mut self, request: &[u8]) -> bool {
        self.filled = 0;
        self.body = 0;
        self.sent_at = Instant::now();
        // Only one request is open. Therefore the socket has room for it, except for a batch in a
        // small buffer.
        let mut rest = request;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads the bytes that have arrived.
    pub fn read(&mut self) -> Progress {
        loop {
            if self.filled == self.answer.len() {
                self.answer.resize(2 * self.filled, 0);
            }
            match self.stream.read(&mut self.answer[self.filled..]) {
                Ok(0) => return Progress::Broken,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waiting,
                Err(_) => return Progress::Broken,
            }
            match self.parse() {
                // More bytes may be there. No event comes for bytes that have arrived already.
                Progress::Waiting => {}
                done => return done,
            }
        }
    }

    /// The body of the answer.
    pub fn body(&self) -> &[u8] {
        &self.answer[self.body..self.filled]
    }

    fn parse(&mut self) -> Progress {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MOST];
        let mut response = httparse::Response::new(&mut headers);
        let head = match response.parse(&self.answer[..self.filled]) {
            Ok(httparse::Status::Complete(head)) => head,
            Ok(httparse::Status::Partial) => return Progress::Waiting,
            Err(_) => return Progress::Broken,
        };
        let length = response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("content-length"))
            .and_then(|header| {
                std::str::from_utf8(header.value)
                    .ok()?
                    .parse::<usize>()
                    .ok()
            });
        let (Some(length), Some(status)) = (length, response.code) else {
            return Progress::Broken;
        };
        if self.filled < head + length {
            return Progress::Waiting;
        }
        self.body = head;
        Progress::Answered {
            status: status.into(),
        }
    }
}
