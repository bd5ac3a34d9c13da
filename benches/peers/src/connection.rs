//! A connection that is kept alive, with one request under way.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

const HEADERS_MOST: usize = 32;

/// What became of a request.
pub enum Progress {
    /// The answer is not whole yet.
    Waiting,
    /// The answer is whole.
    Answered { status: usize },
    /// No answer will come, or none that can be read.
    Broken,
}

/// A connection, and the answer that is arriving.
pub struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    filled: usize,
    /// Where the body begins, once the head is whole.
    body: usize,
    /// When the last request was sent.
    pub sent_at: Instant,
}

impl Connection {
    /// Connects, and waits for that.
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

    /// Sends a request; whether all of it could be. The last answer is forgotten.
    pub fn send(&mut self, request: &[u8]) -> bool {
        self.filled = 0;
        self.body = 0;
        self.sent_at = Instant::now();
        // One request is under way, so there is room for it, but for a batch in a small buffer.
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

    /// Reads what has arrived.
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
                // There may be more to read: no event comes for what lies there already.
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
