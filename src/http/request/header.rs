//! Fields of a request's header.

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderName};
use utoipa::IntoParams;

use super::extractors;
use super::route::taken;
use crate::answer::ApiError;
use crate::operation::{Argument, Operation};
use api::words;
use domain::claim::IdempotencyKey;
use engine::Precondition;

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
pub const IDEMPOTENCY_KEY_FIELD: HeaderName = HeaderName::from_static("idempotency-key");

extractors!(IfMatchOrNone);
extractors!(KeyHeader => IdempotencyKeyField, NeedlessKey => NeedlessKeyField, IfMatch => IfMatchField);

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "read by the derive")]
struct IfMatchField {
    /// Only if the ETag is still this one. With `*`, only if it exists.
    #[param(
        rename = "If-Match",
        value_type = String,
        required = false,
        format = "entity-tags",
        pattern = r#"^(\*|(W/)?"[!#-~]*"(, (W/)?"[!#-~]*")*)$"#,
    )]
    if_match: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "read by the derive")]
struct IfNoneMatchField {
    /// Only if it does not exist yet. Not together with `If-Match`.
    #[param(rename = "If-None-Match", value_type = words::Anything, required = false)]
    if_none_match: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "read by the derive")]
struct IdempotencyKeyField {
    /// Makes a retry safe: 1 to 255 characters of visible ASCII, with or without quotes, unique in the policy.
    #[param(
        rename = "Idempotency-Key",
        value_type = String,
        required = false,
        example = "order-17",
        pattern = r#"^([!#-~]([ -~]{0,253}[!-~])?|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#,
    )]
    idempotency_key: Option<String>,
}

/// Fields that change what a request means, for servers that know them. A server that drops one does
/// something else than the client asks for.
pub const CHANGE_MEANING: [HeaderName; 9] = [
    IDEMPOTENCY_KEY_FIELD,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_UNMODIFIED_SINCE,
    header::CONTENT_RANGE,
    HeaderName::from_static("prefer"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
];

/// Refuses a field that changes the meaning of a request, if the request does not take it.
pub fn check(request: &HttpRequest) -> Result<(), ApiError> {
    let is_dropped = |name: &&HeaderName| {
        request.headers().contains_key(*name) && !is_needless(name, request.method()) && {
            let taken = taken(request);
            let mut taken = taken.in_head.iter();
            !taken.any(|it| it.eq_ignore_ascii_case(name.as_str()))
        }
    };
    match CHANGE_MEANING.iter().find(is_dropped) {
        None => Ok(()),
        Some(name) => {
            let detail =
                format!("this request does not take the header field {name}: leave it out");
            Err(ApiError::Malformed(detail))
        }
    }
}

/// Whether a request without the field does the same: a repeated request of such a method changes nothing
/// more, and a whole answer is right where a client knows it already (RFC 9110, section 13.1.2).
fn is_needless(name: &HeaderName, method: &Method) -> bool {
    (*name == IDEMPOTENCY_KEY_FIELD && method.is_idempotent())
        || (*name == header::IF_NONE_MATCH && method.is_safe())
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "read by the derive")]
struct NeedlessKeyField {
    /// Not needed: a repeated request changes nothing more.
    #[param(rename = "Idempotency-Key", value_type = String, required = false)]
    idempotency_key: Option<String>,
}

/// Any `Idempotency-Key`, for a request that is safe to repeat without one.
pub struct NeedlessKey;

impl NeedlessKey {
    fn of(_: &HttpRequest) -> Result<Self, ApiError> {
        Ok(Self)
    }
}

/// The `Idempotency-Key`, if there is one.
pub struct KeyHeader(pub Option<IdempotencyKey>);

impl KeyHeader {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        let mut values = request.headers().get_all(IDEMPOTENCY_KEY_FIELD);
        match (values.next(), values.next()) {
            (None, _) => Ok(Self(None)),
            (Some(value), None) => Self::parse(value.as_bytes()),
            (Some(_), Some(_)) => Err(ApiError::invalid(
                IDEMPOTENCY_KEY,
                "send only one Idempotency-Key",
            )),
        }
    }

    /// The keys of the claims of a batch with this key: its text and the number of the claim.
    pub fn of_members(&self, count: usize) -> Result<Vec<Option<IdempotencyKey>>, ApiError> {
        let Some(key) = &self.0 else {
            return Ok(vec![None; count]);
        };
        let of_member = |number| {
            let key = IdempotencyKey::parse(&format!("{}#{number}", key.as_str()));
            key.map(Some).map_err(|_| {
                let detail = "the key of a batch is at most 250 characters long, because each claim \
                    has its number behind it";
                ApiError::invalid(IDEMPOTENCY_KEY, detail)
            })
        };
        (1..=count).map(of_member).collect()
    }

    /// The key in a field.
    pub fn parse(field: &[u8]) -> Result<Self, ApiError> {
        // A byte that is not visible ASCII becomes a character that the key refuses.
        let key = IdempotencyKey::parse(&String::from_utf8_lossy(field));
        key.map(|key| Self(Some(key)))
            .map_err(|error| ApiError::invalid(IDEMPOTENCY_KEY, error))
    }
}

/// The precondition of a change of something that exists.
pub struct IfMatch(pub Precondition);

/// The precondition of a change that creates what does not exist.
pub struct IfMatchOrNone(pub Precondition);

impl IfMatch {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        precondition(request).map(Self)
    }
}

impl IfMatchOrNone {
    fn of(request: &HttpRequest) -> Result<Self, ApiError> {
        precondition(request).map(Self)
    }
}

impl Argument for IfMatchOrNone {
    fn describe(operation: &mut Operation) {
        operation.takes::<IfMatchField>();
        operation.takes::<IfNoneMatchField>();
    }
}

fn precondition(request: &HttpRequest) -> Result<Precondition, ApiError> {
    // Several lines of a field are one list (RFC 9110, section 5.3).
    let text = |name| {
        let lines = request.headers().get_all(name);
        let lines: Vec<&str> = lines
            .map(|line| line.to_str().unwrap_or_default())
            .collect();
        (!lines.is_empty()).then(|| lines.join(",").trim().to_owned())
    };
    let if_match = text(header::IF_MATCH);
    let if_none_match = text(header::IF_NONE_MATCH);
    match (if_match.as_deref(), if_none_match.as_deref()) {
        (None, None) => Ok(Precondition::None),
        (Some("*"), None) => Ok(Precondition::Exists),
        (Some(tags), None) => parse_etags(tags).map(Precondition::Versions),
        (None, Some("*")) => Ok(Precondition::Absent),
        (None, Some(_)) => Err(ApiError::invalid(
            "If-None-Match",
            "write *, and nothing else",
        )),
        (Some(_), Some(_)) => {
            let detail = "send either If-Match or If-None-Match, not both";
            Err(ApiError::invalid("If-Match", detail))
        }
    }
}

/// The versions that a list of ETags names. A weak ETag never matches (RFC 9110, section 13.1.1),
/// and neither does an ETag that no version has.
fn parse_etags(tags: &str) -> Result<Vec<u32>, ApiError> {
    let help = "write the ETag of the last answer, such as \"3\"";
    let mut versions = Vec::new();
    for tag in tags.split(',') {
        let tag = tag.trim();
        let opaque = tag.strip_prefix("W/").unwrap_or(tag);
        let inner = opaque
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .ok_or_else(|| ApiError::invalid("If-Match", help))?;
        if opaque == tag {
            let version = inner.parse().ok();
            versions.extend(version.filter(|version: &u32| version.to_string() == inner));
        }
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags() {
        assert_eq!(parse_etags("\"3\"").unwrap(), [3]);
        assert_eq!(parse_etags("\"03\", \"+3\"").unwrap(), [0; 0]);
        assert_eq!(parse_etags("\"3\", W/\"4\" ,\"x\"").unwrap(), [3]);
        for wrong in ["3", "", "\"3", "W/3"] {
            assert!(parse_etags(wrong).is_err(), "{wrong}");
        }
    }
}
