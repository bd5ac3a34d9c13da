//! Documents that never change, each compressed once. Everybody may ask for them, so they must cost
//! little.

use std::io::{Read, Write};
use std::sync::OnceLock;

use actix_web::http::header::{self, ContentEncoding, HeaderMap, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// A document in two forms.
pub struct Document {
    /// Made for the first client that takes no gzip, if the document comes compressed.
    plain: OnceLock<Bytes>,
    /// A gzip stream.
    packed: Bytes,
}

impl Document {
    pub fn new(plain: impl Into<Bytes>) -> Self {
        let plain = plain.into();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let packed = encoder.write_all(&plain).and_then(|()| encoder.finish());
        Self {
            plain: OnceLock::from(plain),
            packed: packed.expect("memory takes all bytes").into(),
        }
    }

    /// A document that comes as a gzip stream.
    pub fn packed(packed: impl Into<Bytes>) -> Self {
        Self {
            plain: OnceLock::new(),
            packed: packed.into(),
        }
    }

    /// Answers with the form that the client takes.
    pub fn answer(&self, mut answer: HttpResponseBuilder, request: &HttpRequest) -> HttpResponse {
        answer.insert_header((header::VARY, HeaderValue::from_static("Accept-Encoding")));
        if takes_gzip(request.headers()) {
            answer
                .insert_header(ContentEncoding::Gzip)
                .body(self.packed.clone())
        } else {
            answer.body(self.plain())
        }
    }

    fn plain(&self) -> Bytes {
        let unpack = || {
            let mut plain = Vec::new();
            let read = GzDecoder::new(&*self.packed).read_to_end(&mut plain);
            read.expect("this program has made the stream");
            plain.into()
        };
        self.plain.get_or_init(unpack).clone()
    }
}

/// Whether a client takes gzip (RFC 9110, section 12.5.3). A client that says nothing gets the
/// document as it is.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(header::ACCEPT_ENCODING);
    let fields = fields.filter_map(|field| field.to_str().ok());
    let mut of_others = false;
    for coding in fields.flat_map(|field| field.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let is_taken = weight.is_none_or(|weight| weight.parse().is_ok_and(|it: f32| it > 0.0));
        match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => return is_taken,
            "*" => of_others = is_taken,
            _ => {}
        }
    }
    of_others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_taken_where_the_client_says_so() {
        let takes = |fields: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(field));
            }
            takes_gzip(&headers)
        };
        for fields in [
            &["gzip"][..],
            &["br, GZIP;q=0.5"],
            &["*"],
            &["br", "x-gzip"],
            &["identity;q=0, *;q=0.1"],
        ] {
            assert!(takes(fields), "{fields:?}");
        }
        for fields in [
            &[][..],
            &[""],
            &["br"],
            &["identity"],
            &["gzip;q=0"],
            &["gzip; q=0.000, *"],
            &["*;q=0"],
            &["gzip;q=much"],
        ] {
            assert!(!takes(fields), "{fields:?}");
        }
    }

    #[test]
    fn both_forms_are_the_same_document() {
        let document = Document::new("a document ".repeat(1000));
        assert!(document.packed.len() < 200);
        let unpacked = Document::packed(document.packed.clone()).plain();
        assert_eq!(unpacked, document.plain());
    }
}
