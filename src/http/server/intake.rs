//! What a connection passes on of the bytes that it receives: one request at a time. actix decodes
//! all requests that it gets at once, and writes their answers one after the other. So 128 KiB of
//! requests would be megabytes of decoded heads.
//!
//! This only delays bytes, and never changes them. So a head that is read in another way than
//! actix reads it costs memory or time, and is answered as before. Only then the ends of requests are not
//! certain any more ([`is_in_step_with`](super::exchange::Exchange::is_in_step_with)).

use actix_web::web::{Buf, BytesMut};

use super::exchange::BodyLeft;

/// The most bytes of chunks that are passed on at once. After the end of a chunked body, as many
/// bytes of the next requests may be among them.
const CHUNKS_MOST: usize = 1024;
/// The most bytes that are read ahead of a request in progress, to notice that its client is gone.
pub const AHEAD_MOST: usize = 4096;

/// What may be passed on now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Portion {
    /// A request is in progress, and takes no more bytes.
    Nothing,
    /// Bytes up to the end of the next head, and the body that came with it.
    Head,
    /// Bytes of the body in progress.
    Body(BodyLeft),
}

/// Received bytes that wait for the end of a request.
#[derive(Default)]
pub struct Intake {
    pub held: BytesMut,
    /// Whether the client sends nothing more.
    pub has_ended: bool,
    /// Whether a portion was just passed on. actix takes it before the next one.
    pub is_given: bool,
    head: HeadEnd,
    /// Whether bytes were passed on since the end of the last head: a part of the next one, or the empty
    /// lines before it.
    pub is_in_head: bool,
    /// How many heads were passed on whole, or belong to plain claims.
    pub heads: u64,
}

/// What was passed on.
pub struct Given {
    pub length: usize,
    /// How many of these bytes are of a body that came with its head.
    pub of_body: u64,
}

impl Intake {
    /// How many of these bytes may be passed on.
    pub fn measure(&mut self, portion: Portion, bytes: &[u8]) -> Given {
        let length = match portion {
            Portion::Nothing | Portion::Body(BodyLeft::Nothing) => 0,
            Portion::Body(BodyLeft::Bytes(left)) => {
                usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()))
            }
            Portion::Body(BodyLeft::Chunks) => {
                self.is_given = true;
                bytes.len().min(CHUNKS_MOST)
            }
            Portion::Head => return self.measure_head(bytes),
        };
        Given { length, of_body: 0 }
    }

    fn measure_head(&mut self, bytes: &[u8]) -> Given {
        let Some(end) = self.head.find_in(bytes) else {
            let length = bytes.len();
            self.is_in_head = true;
            return Given { length, of_body: 0 };
        };
        self.is_given = true;
        self.heads += 1;
        self.is_in_head = false;
        let rest = bytes.len() - end;
        // Most bodies come with their heads: they are passed on together.
        let of_body = match rest {
            0 => 0,
            rest => content_length(&bytes[..end]).min(rest),
        };
        Given {
            length: end + of_body,
            of_body: of_body as u64,
        }
    }

    /// Takes some held bytes.
    pub fn advance(&mut self, length: usize) {
        self.held.advance(length);
        if self.held.is_empty() {
            // An idle connection keeps no buffer.
            self.held = BytesMut::new();
        }
    }
}

/// Finds the ends of heads: the first empty line after a line that is not empty.
#[derive(Default)]
struct HeadEnd {
    has_text: bool,
    is_in_line: bool,
}

impl HeadEnd {
    /// The number of bytes up to the end of a head; `None` if the head goes on after these bytes.
    fn find_in(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.has_text && !self.is_in_line => {
                    *self = Self::default();
                    return Some(index + 1);
                }
                b'\n' => self.is_in_line = false,
                b'\r' => {}
                _ => (self.has_text, self.is_in_line) = (true, true),
            }
        }
        None
    }
}

/// The length of the body, as far as this part of the head tells it.
fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length:";
    let mut lines = head.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then_some(value)
    });
    let value = value.and_then(|value| str::from_utf8(value).ok());
    value
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes bytes on as heads, in pieces of a size. Returns what is passed on at once.
    fn portions(text: &str, piece: usize) -> Vec<String> {
        let mut intake = Intake::default();
        let mut found = Vec::new();
        let mut portion = String::new();
        for piece in text.as_bytes().chunks(piece) {
            let mut bytes = piece;
            while !bytes.is_empty() {
                intake.is_given = false;
                let given = intake.measure(Portion::Head, bytes);
                portion.push_str(str::from_utf8(&bytes[..given.length]).unwrap());
                bytes = &bytes[given.length..];
                if intake.is_given {
                    found.push(std::mem::take(&mut portion));
                }
            }
        }
        found.push(portion);
        found
    }

    #[test]
    fn heads_are_passed_on_one_by_one() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /b HTTP/1.1\n\nGET /c";
        for piece in [1, 2, 3, 7, 100] {
            let heads = [
                "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                "\r\nGET /b HTTP/1.1\n\n",
                "GET /c",
            ];
            assert_eq!(portions(text, piece), heads, "{piece}");
        }
    }

    #[test]
    fn a_body_goes_with_its_head() {
        let text = "POST / HTTP/1.1\r\ncontent-LENGTH: 6 \r\n\r\n{\n\n\n\n}GET / HTTP/1.1\r\n\r\n";
        let [first, second, _] = &portions(text, 1000)[..] else {
            panic!("two requests");
        };
        assert!(first.ends_with("\n}"), "{first}");
        assert!(second.starts_with("GET"), "{second}");
    }

    #[test]
    fn a_body_is_passed_on_to_its_end() {
        let mut intake = Intake::default();
        let mut length = |portion| intake.measure(portion, &[b' '; 5000]).length;
        assert_eq!(length(Portion::Body(BodyLeft::Bytes(7))), 7);
        assert_eq!(length(Portion::Body(BodyLeft::Bytes(u64::MAX))), 5000);
        assert_eq!(length(Portion::Body(BodyLeft::Chunks)), CHUNKS_MOST);
        assert_eq!(length(Portion::Nothing), 0);
    }
}
