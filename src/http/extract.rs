//! What handlers take from a request, parsed once, here.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::header;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest};
use chrono::{DateTime, Datelike, NaiveDate, Utc};
use serde::Deserialize;
use serde::de::{Error as _, Visitor};
use utoipa::IntoParams;
use uuid::Uuid;

use super::error::{ApiError, InvalidPart};
use super::route::segment;
use crate::domain::claim::{IdempotencyKey, Subject};
use crate::domain::policy::{PolicyName, check_reason};
use crate::engine::{Engine, Precondition};

/// The longest page of a list.
pub const PAGE_MAX: u32 = 1000;
/// The page of a list when none is asked for.
pub const PAGE_DEFAULT: u32 = 100;

/// Two parts of a request, of which the first one's faults are told first. The parts of a
/// tuple race: a body that is still coming in loses to a header that is wrong.
pub struct Then<A, B>(pub A, pub B);

impl<A: FromRequest + 'static, B: FromRequest + 'static> FromRequest for Then<A, B> {
    type Error = actix_web::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, actix_web::Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let first = A::from_request(request, payload);
        let request = request.clone();
        Box::pin(async move {
            let first = first.await.map_err(Into::into)?;
            let second = B::from_request(&request, &mut Payload::None);
            Ok(Then(first, second.await.map_err(Into::into)?))
        })
    }
}

/// Why something is archived, deleted or revoked.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReasonQuery {
    /// Why; 1 to 1000 characters.
    #[param(value_type = String, min_length = 1, max_length = 1000, example = "it is over")]
    reason: Option<String>,
}

impl ReasonQuery {
    /// The reason.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] without one, too.
    pub fn check(self) -> Result<String, ApiError> {
        let reason = self.reason.unwrap_or_default();
        let checked = check_reason(&reason).map_err(|detail| ApiError::invalid("reason", detail));
        checked.map(|()| reason)
    }
}

/// A policy's name in the path.
pub struct PolicyPath(pub PolicyName);

impl FromRequest for PolicyPath {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let name = PolicyName::new(&segment(request, "policy").unwrap_or_default());
        let name = name.map_err(|error| ApiError::invalid("policy", error));
        ready(name.map(PolicyPath))
    }
}

/// A subject in the path, percent-encoded.
pub struct SubjectPath(pub Subject);

impl FromRequest for SubjectPath {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // actix puts U+FFFD for what is no UTF-8, which would be another subject.
        let path = percent_encoding::percent_decode_str(request.uri().path());
        if path.decode_utf8().is_err() {
            let error = ApiError::invalid("subject", "write it as percent-encoded UTF-8");
            return ready(Err(error));
        }
        let subject = Subject::new(&segment(request, "subject").unwrap_or_default());
        let subject = subject.map_err(|error| ApiError::invalid("subject", error));
        ready(subject.map(SubjectPath))
    }
}

/// The id in the path; `what` it is, for whoever writes something else.
///
/// # Errors
/// [`ApiError::Invalid`].
pub fn path_id(request: &HttpRequest, what: &str) -> Result<Uuid, ApiError> {
    let id = Uuid::parse_str(&segment(request, "id").unwrap_or_default());
    id.map_err(|_| ApiError::invalid("id", format!("{what} is a UUID")))
}

/// An id in the path.
pub struct IdPath(pub Uuid);

impl FromRequest for IdPath {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(path_id(request, "an id").map(IdPath))
    }
}

/// The `Idempotency-Key`, if there is one.
pub struct KeyHeader(pub Option<IdempotencyKey>);

impl FromRequest for KeyHeader {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        const NAME: &str = "Idempotency-Key";
        let mut values = request.headers().get_all("idempotency-key");
        ready(match (values.next(), values.next()) {
            (None, _) => Ok(KeyHeader(None)),
            (Some(value), None) => {
                // What is no visible ASCII becomes a character that the key refuses.
                let text = String::from_utf8_lossy(value.as_bytes());
                let key = IdempotencyKey::parse(&text);
                key.map(|key| KeyHeader(Some(key)))
                    .map_err(|error| ApiError::invalid(NAME, error))
            }
            (Some(_), Some(_)) => Err(ApiError::invalid(NAME, "send one Idempotency-Key")),
        })
    }
}

impl FromRequest for Precondition {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = |name| {
            let value = request.headers().get(name);
            value.map(|value| value.to_str().unwrap_or_default().trim())
        };
        ready(
            match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
                (None, None) => Ok(Precondition::None),
                (Some("*"), None) => Ok(Precondition::Exists),
                (Some(tags), None) => parse_etags(tags).map(Precondition::Versions),
                (None, Some("*")) => Ok(Precondition::Absent),
                (None, Some(_)) => Err(ApiError::invalid("If-None-Match", "only * is understood")),
                (Some(_), Some(_)) => Err(ApiError::invalid(
                    "If-Match",
                    "send either If-Match or If-None-Match",
                )),
            },
        )
    }
}

/// The versions that a list of ETags names. A weak one never matches (RFC 9110, section
/// 13.1.1), nor does one that no version has.
fn parse_etags(tags: &str) -> Result<Vec<u32>, ApiError> {
    let wrong = || {
        ApiError::invalid(
            "If-Match",
            "write the ETag that it came with, such as \"3\"",
        )
    };
    let mut versions = Vec::new();
    for tag in tags.split(',') {
        let tag = tag.trim();
        let opaque = tag.strip_prefix("W/").unwrap_or(tag);
        let inner = opaque
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .ok_or_else(wrong)?;
        if opaque == tag {
            versions.extend(inner.parse::<u32>());
        }
    }
    Ok(versions)
}

/// Collects what is wrong with parameters and bodies, so that all of it is told at once.
#[derive(Default)]
pub struct Faults(Vec<InvalidPart>);

impl Faults {
    /// Notes a fault.
    pub fn add(&mut self, part: InvalidPart) {
        self.0.push(part);
    }

    /// Parses a parameter, if it was given.
    pub fn parameter<T, E: ToString>(
        &mut self,
        name: &'static str,
        text: Option<&String>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = parse(text?);
        parsed
            .map_err(|error| self.add(InvalidPart::parameter(name, error)))
            .ok()
    }

    /// Takes a part of the body, if it was right.
    pub fn body<T, E: ToString>(&mut self, pointer: &str, parsed: Result<T, E>) -> Option<T> {
        parsed
            .map_err(|error| self.add(InvalidPart::body(pointer, error)))
            .ok()
    }

    /// An instant in the query.
    pub fn instant(&mut self, name: &'static str, text: Option<&String>) -> Option<DateTime<Utc>> {
        self.parameter(name, text, parse_instant)
    }

    /// The `limit` of a list.
    pub fn limit(&mut self, text: Option<&String>) -> u32 {
        let parse = |text: &str| match text.parse() {
            Ok(limit @ 1..=PAGE_MAX) => Ok(limit),
            _ => Err(format!("a page has 1 to {PAGE_MAX} items")),
        };
        self.parameter("limit", text, parse).unwrap_or(PAGE_DEFAULT)
    }

    /// What was made of the parts, unless one of them was wrong.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] when there was a fault.
    pub fn or<T>(self, made: Option<T>) -> Result<T, ApiError> {
        match made {
            Some(made) if self.0.is_empty() => Ok(made),
            _ => Err(ApiError::Invalid(self.0)),
        }
    }
}

/// The word `true`: what a parameter that is a mark says.
///
/// # Errors
/// What to write instead.
pub fn parse_true(text: &str) -> Result<(), &'static str> {
    match text {
        "true" => Ok(()),
        _ => Err("write true, or leave it out"),
    }
}

/// An instant in RFC 3339, in UTC between the years 0 and 9999.
///
/// # Errors
/// What to write instead.
pub fn parse_instant(text: &str) -> Result<DateTime<Utc>, String> {
    let help = "write an instant as RFC 3339 has it, such as 2026-11-21T00:00:00Z (in a query \
                + is written %2B)";
    let instant = DateTime::parse_from_rfc3339(text).map_err(|_| help.to_owned())?;
    let instant = instant.to_utc();
    // Its offset may have led out of the years that RFC 3339 can write.
    match instant.year() {
        0..=9999 => Ok(instant),
        _ => Err("in UTC it lies outside the years 0 to 9999".to_owned()),
    }
}

/// A date in ISO 8601, of the years 0 to 9999.
///
/// # Errors
/// What to write instead.
pub fn parse_date(text: &str) -> Result<NaiveDate, &'static str> {
    // chrono lets blanks stand before a number.
    let is_of_dates = |byte: u8| byte.is_ascii_digit() || byte == b'-';
    let is_shaped = text.len() == 10 && !text.starts_with('-') && text.bytes().all(is_of_dates);
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    date.filter(|_| is_shaped)
        .ok_or("write a date like 2026-11-21")
}

/// A whole number of any size: `3` and `3.0` are one, `3.5` and `"3"` are none (JSON Schema,
/// section 4.2.3). What lies beyond 128 bits becomes the nearest end.
#[derive(Debug, Clone, Copy)]
pub struct WholeNumber(pub i128);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeNumberVisitor;
        impl Visitor<'_> for WholeNumberVisitor {
            type Value = WholeNumber;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a whole number")
            }

            fn visit_i64<E>(self, number: i64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number.into()))
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<WholeNumber, E> {
                match number.fract() == 0.0 {
                    true => Ok(WholeNumber(number as i128)),
                    false => Err(E::custom(format!("{number} is not a whole number"))),
                }
            }
        }
        deserializer
            .deserialize_any(WholeNumberVisitor)
            .map_err(D::Error::custom)
    }
}

/// The engine, as handlers take it.
pub type EngineData = Data<Engine>;

/// The engine behind its handle, for the use cases that outlive a request.
pub fn engine(data: &EngineData) -> Arc<Engine> {
    data.clone().into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers() {
        let parse = |text: &str| serde_json::from_str::<WholeNumber>(text).map(|number| number.0);
        assert_eq!(parse("3").unwrap(), 3);
        assert_eq!(parse("3.0").unwrap(), 3);
        assert_eq!(parse("-1").unwrap(), -1);
        assert_eq!(parse("1e300").unwrap(), i128::MAX);
        assert_eq!(parse("18446744073709551616").unwrap(), 1 << 64);
        for wrong in ["3.5", "\"3\"", "true", "null", "[]"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dates() {
        let date = parse_date("2028-02-29").unwrap();
        assert_eq!(date.to_string(), "2028-02-29");
        for wrong in [
            "",
            "2027-02-29",
            "2026-1-211",
            "+2026-1-2",
            "20261121",
            "2026-11-21T00:00:00Z",
            " 2026-1-2 ",
            "-001-01-01",
            "2026- 1- 1",
        ] {
            assert!(parse_date(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn instants() {
        for text in ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"] {
            assert!(parse_instant(text).is_ok(), "{text}");
        }
        for wrong in [
            "",
            "2026-11-21",
            "0000-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
        ] {
            assert!(parse_instant(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn etags() {
        assert_eq!(parse_etags("\"3\"").unwrap(), [3]);
        assert_eq!(parse_etags("\"3\", W/\"4\" ,\"x\"").unwrap(), [3]);
        for wrong in ["3", "", "\"3", "W/3"] {
            assert!(parse_etags(wrong).is_err(), "{wrong}");
        }
    }
}
