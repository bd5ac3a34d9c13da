//! The head of a plain claim.

use std::mem::MaybeUninit;

use httparse::{Request, Status};

use super::credentials::bearer_secret;

/// The most fields of a plain head.
const FIELDS_MOST: usize = 32;

/// What the head of a plain claim says. Nothing of it is checked yet.
#[derive(Debug, PartialEq, Eq)]
pub struct PlainHead<'h> {
    pub policy: &'h str,
    pub secret: &'h str,
    pub key: Option<&'h [u8]>,
    pub request_id: Option<&'h [u8]>,
    pub traceparent: Option<&'h [u8]>,
    /// The length of the head in bytes, with the empty line.
    pub length: usize,
    /// The length of the body in bytes.
    pub body_length: usize,
}

impl<'h> PlainHead<'h> {
    /// Reads the head that these bytes start with; `None` if it is not whole, or not that of a plain
    /// claim. A field that changes how a request is read, or that stands there twice, makes a head not
    /// plain.
    pub fn read(bytes: &'h [u8]) -> Option<Self> {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MOST];
        let mut request = Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, &mut fields);
        let Ok(Status::Complete(length)) = parsed else {
            return None;
        };
        if request.method != Some("POST") || request.version != Some(1) {
            return None;
        }
        let policy = request.path?.strip_prefix("/v1/policies/")?;
        let policy = policy.strip_suffix("/claims")?;
        let mut known = KnownFields::default();
        for field in &*request.headers {
            known.take(field.name, field.value)?;
        }
        // A head without it is refused (RFC 9112, section 3.2).
        known.host?;
        Some(Self {
            policy,
            secret: bearer_secret(ascii(known.authorization?)?)?,
            key: known.idempotency_key,
            request_id: known.request_id,
            traceparent: known.traceparent,
            length,
            body_length: parse_length(known.content_length?)?,
        })
    }
}

#[derive(Default)]
struct KnownFields<'h> {
    host: Option<&'h [u8]>,
    authorization: Option<&'h [u8]>,
    content_length: Option<&'h [u8]>,
    idempotency_key: Option<&'h [u8]>,
    request_id: Option<&'h [u8]>,
    traceparent: Option<&'h [u8]>,
}

impl<'h> KnownFields<'h> {
    /// Takes a field; `None` if a head with it is not plain.
    fn take(&mut self, name: &str, value: &'h [u8]) -> Option<()> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let place = match name.len() {
            4 if is("host") => &mut self.host,
            6 if is("expect") || is("prefer") => return None,
            8 if is("if-match") => return None,
            10 if is("connection") => {
                let mut options = value.split(|byte| *byte == b',');
                return options.all(stays_open).then_some(());
            }
            11 if is("traceparent") => &mut self.traceparent,
            12 if is("x-request-id") => &mut self.request_id,
            13 if is("if-none-match") || is("content-range") || is("x-http-method") => return None,
            13 if is("authorization") => &mut self.authorization,
            14 if is("content-length") => &mut self.content_length,
            15 if is("idempotency-key") => &mut self.idempotency_key,
            16 if is("content-encoding") => return None,
            17 if is("transfer-encoding") || is("x-method-override") => return None,
            19 if is("if-unmodified-since") => return None,
            22 if is("x-http-method-override") => return None,
            _ => return Some(()),
        };
        place.replace(value).is_none().then_some(())
    }
}

/// Whether the connection stays open with this option. An offer of another protocol may be ignored (RFC 9110,
/// section 7.8).
fn stays_open(option: &[u8]) -> bool {
    const OPEN: [&[u8]; 3] = [b"keep-alive", b"upgrade", b"http2-settings"];
    let option = option.trim_ascii();
    OPEN.iter().any(|open| option.eq_ignore_ascii_case(open))
}

/// A field as actix reads it: bytes outside of ASCII are no text.
fn ascii(field: &[u8]) -> Option<&str> {
    str::from_utf8(field).ok().filter(|text| text.is_ascii())
}

/// A length in digits only: another spelling is left to actix.
fn parse_length(text: &[u8]) -> Option<usize> {
    let is_plain = text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::CHANGE_MEANING;

    const PLAIN: &str = "POST /v1/policies/benefit/claims HTTP/1.1\r\nHost: here\r\n\
        authorization: Bearer secret\r\nContent-Length: 2\r\nIdempotency-Key: a\r\n\
        X-Request-Id: b\r\nTraceparent: d\r\nConnection: keep-alive\r\nUser-Agent: c\r\n\r\n";

    fn read(text: &str) -> Option<PlainHead<'_>> {
        PlainHead::read(text.as_bytes())
    }

    #[test]
    fn a_plain_head_is_read() {
        let whole = format!("{PLAIN}{{}}GET");
        let expected = PlainHead {
            policy: "benefit",
            secret: "secret",
            key: Some(b"a"),
            request_id: Some(b"b"),
            traceparent: Some(b"d"),
            length: PLAIN.len(),
            body_length: 2,
        };
        assert_eq!(read(&whole), Some(expected));
    }

    #[test]
    fn an_offer_of_another_protocol_is_ignored() {
        let offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c";
        let head = PLAIN.replacen("Connection: keep-alive", offer, 1);
        assert_eq!(read(&head).map(|head| head.length), Some(head.len()));
    }

    #[test]
    fn a_part_of_a_head_is_not_plain() {
        for end in 0..PLAIN.len() {
            assert_eq!(read(&PLAIN[..end]), None, "{end}");
        }
    }

    #[test]
    fn what_changes_how_a_request_is_read_is_not_plain() {
        for (old, new) in [
            ("POST", "PUT"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("/v1/policies", "/v2/policies"),
            ("/claims", "/claim"),
            ("/claims", "/claims?a=b"),
            ("Host", "Hosts"),
            ("User-Agent: c", "host: there"),
            ("authorization", "authority"),
            ("Bearer", "Basic"),
            ("Bearer ", "Bearer \u{a0}"),
            ("Content-Length: 2", "Content-Length: +2"),
            ("Content-Length: 2", "Content-Length: 2, 2"),
            ("Content-Length", "Content-Len"),
            ("Connection: keep-alive", "Connection: close"),
            ("Connection: keep-alive", "Connection: upgrade, close"),
            ("Connection: keep-alive", "Connection: , upgrade"),
            ("User-Agent: c", "Transfer-Encoding: chunked"),
            ("User-Agent: c", "Expect: 100-continue"),
            ("User-Agent: c", "Content-Encoding: gzip"),
            ("User-Agent: c", "Content-Length: 2"),
            ("User-Agent: c", "Authorization: Bearer other"),
            ("User-Agent: c", "idempotency-key: a"),
            ("User-Agent: c", "x-request-id: b"),
            ("User-Agent: c", "traceparent: d"),
            ("User-Agent: c", "User Agent: c"),
        ] {
            assert!(PLAIN.contains(old), "{old}");
            assert_eq!(read(&PLAIN.replacen(old, new, 1)), None, "{old} as {new}");
        }
        let names = CHANGE_MEANING;
        let others = names.iter().filter(|name| *name != "idempotency-key");
        for name in others {
            let with = PLAIN.replacen("User-Agent: c", &format!("{name}: a"), 1);
            assert_eq!(read(&with), None, "{name}");
        }
        let many = "A: b\r\n".repeat(FIELDS_MOST);
        let too_many = PLAIN.replacen("User-Agent: c\r\n", &many, 1);
        assert_eq!(read(&too_many), None);
    }
}
