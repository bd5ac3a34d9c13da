//! Answers that a connection writes itself, as HTTP/1.1 has them (RFC 9112).

use actix_web::HttpResponse;
use actix_web::body::MessageBody;
use actix_web::web::Bytes;

use host::clock::wall_clock;

/// More than the head of an answer to a claim.
const HEAD_LENGTH: usize = 512;

/// Writes answers. It keeps the `Date` field of the present second.
#[derive(Default)]
pub struct AnswerWriter {
    second: i64,
    date: String,
}

impl AnswerWriter {
    /// The bytes of an answer, whose body must be whole.
    pub fn write(&mut self, answer: HttpResponse) -> Bytes {
        let (head, body) = answer.into_parts();
        let body = body.try_into_bytes();
        let body = body.expect("an answer that a connection writes is not streamed");
        let mut out = Vec::with_capacity(HEAD_LENGTH + body.len());
        let status = head.status();
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        out.extend_from_slice(b"\r\ncontent-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
        for (name, value) in head.headers() {
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(name.as_ref());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
        }
        out.extend_from_slice(b"\r\ndate: ");
        out.extend_from_slice(self.date());
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&body);
        out.into()
    }

    fn date(&mut self) -> &[u8] {
        let now = wall_clock();
        if self.date.is_empty() || now.timestamp() != self.second {
            self.second = now.timestamp();
            self.date = now.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        }
        self.date.as_bytes()
    }
}
