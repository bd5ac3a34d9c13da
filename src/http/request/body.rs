//! A request's body: its bounds, and its parsing.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header;
use actix_web::web::{Bytes, BytesMut, Data};
use actix_web::{FromRequest, HttpRequest};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;
use utoipa::openapi::Required;

use super::query::describe_unknown;
use super::route::body_max_bytes;
use crate::answer::ApiError;
use crate::operation::{Argument, Operation};
use api::strict::Object;
use engine::Engine;

/// The longest time for a request's body to arrive.
#[derive(Clone, Copy)]
pub struct ReadTime(pub Duration);

/// A JSON body.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Body<T> {
    type Error = ApiError;
    type Future = Parsing<Self>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        parsed(request, payload, |bytes| parse_json(&bytes).map(Self))
    }
}

impl<T: ToSchema> Argument for Body<T> {
    fn describe(operation: &mut Operation) {
        operation.takes_body::<T>(Some(Required::True));
    }
}

/// A JSON body that comes often: it is parsed without its path first, which costs a second parser.
pub struct FrequentBody<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for FrequentBody<T> {
    type Error = ApiError;
    type Future = Parsing<Self>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        parsed(request, payload, |bytes| {
            let body = try_parse_json(&bytes).or_else(|_| parse_json(&bytes));
            body.map(Self)
        })
    }
}

impl<T: ToSchema> Argument for FrequentBody<T> {
    fn describe(operation: &mut Operation) {
        Body::<T>::describe(operation);
    }
}

/// An optional JSON body.
pub struct OptionalBody<T>(pub Option<T>);

impl<T: DeserializeOwned + 'static> FromRequest for OptionalBody<T> {
    type Error = ApiError;
    type Future = Parsing<Self>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        parsed(request, payload, |bytes| {
            if bytes.is_empty() {
                Ok(Self(None))
            } else {
                parse_json(&bytes).map(Some).map(Self)
            }
        })
    }
}

/// Generated clients may leave the body out, but send no null.
impl<T: ToSchema> Argument for OptionalBody<T> {
    fn describe(operation: &mut Operation) {
        operation.takes_body::<T>(None);
    }
}

/// The bytes of a form. Its page knows its fields.
pub struct FormBytes(pub Bytes);

impl FromRequest for FormBytes {
    type Error = ApiError;
    type Future = Parsing<Self>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        parsed(request, payload, |bytes| Ok(Self(bytes)))
    }
}

impl Argument for FormBytes {
    fn describe(_: &mut Operation) {}
}

/// Two parts of a request. An error of the first part is reported before an error of the second. In
/// a tuple the parts race: a wrong header would be reported before a wrong body that is still
/// arriving.
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

impl<A: Argument, B: Argument> Argument for Then<A, B> {
    fn describe(operation: &mut Operation) {
        A::describe(operation);
        B::describe(operation);
    }
}

/// A body that is read and parsed.
type Parsing<B> = Pin<Box<dyn Future<Output = Result<B, ApiError>>>>;

/// Reads the body, and parses it.
fn parsed<B>(
    request: &HttpRequest,
    payload: &mut Payload,
    parse: impl FnOnce(Bytes) -> Result<B, ApiError> + 'static,
) -> Parsing<B> {
    let bytes = read_body(request, payload);
    Box::pin(async move { parse(bytes.await?) })
}

/// Reads the body, at most the largest one of the URL.
fn read_body(
    request: &HttpRequest,
    payload: &mut Payload,
) -> impl Future<Output = Result<Bytes, ApiError>> + use<> {
    let most = body_max_bytes(request);
    let is_encoded = is_encoded(request);
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let bytes = collect(payload.take(), length, most);
    let read_time = request.app_data::<ReadTime>().copied();
    let engine = request.app_data::<Data<Engine>>();
    let time = engine.map(|engine| engine.running_time());
    async move {
        let mut bytes = pin!(bytes);
        // 1. Refuse an encoding, rather than read its bytes as JSON.
        if is_encoded {
            return Err(ApiError::EncodedBody);
        }
        // 2. Take a body that has arrived with the head: this needs no timer.
        if let Some(bytes) = at_once(bytes.as_mut()).await {
            return bytes;
        }
        // 3. Wait for the rest within the time for a body.
        match read_time.zip(time) {
            Some((ReadTime(most), time)) => time
                .timeout(most, bytes)
                .await
                .ok_or(ApiError::SlowRequest)?,
            None => bytes.await,
        }
    }
}

/// Whether the body is compressed, or encoded in another way.
fn is_encoded(request: &HttpRequest) -> bool {
    let mut encodings = request.headers().get_all(header::CONTENT_ENCODING);
    encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// The result of a future that is ready at the first or the second poll. actix passes a request on
/// before it reads the body that arrived with the head. A body that has arrived needs no timer.
async fn at_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut is_second = false;
    let polled_twice = poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_second => Poll::Ready(None),
        Poll::Pending => {
            is_second = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    });
    polled_twice.await
}

async fn collect(
    mut payload: Payload,
    length: Option<usize>,
    most: usize,
) -> Result<Bytes, ApiError> {
    if length.is_some_and(|length| length > most) {
        return Err(ApiError::TooLarge(most));
    }
    let broken = "the body is incomplete, or its transfer encoding is wrong";
    let mut body = BytesMut::new();
    while let Some(piece) = payload.next().await {
        let piece = piece.map_err(|_| ApiError::Malformed(broken.to_owned()))?;
        if body.len() + piece.len() > most {
            return Err(ApiError::TooLarge(most));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// A JSON object, without an explanation of what is wrong.
pub fn try_parse_json<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice::<Object<T>>(bytes).map(|object| object.0)
}

/// A JSON object. An error has the path of the wrong value.
fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value: Result<Object<T>, _> = serde_path_to_error::deserialize(&mut deserializer);
    let value = value.map_err(|error| malformed(&error.path().to_string(), error.inner()))?;
    deserializer.end().map_err(|error| malformed(".", &error))?;
    Ok(value.0)
}

fn malformed(path: &str, error: &serde_json::Error) -> ApiError {
    let fault = match error.classify() {
        serde_json::error::Category::Data => describe(&error.to_string()),
        _ => return ApiError::Malformed(format!("the body is not JSON: {error}")),
    };
    ApiError::Malformed(match path {
        "." => fault,
        path => format!("{path}: {fault}"),
    })
}

/// serde's text about a wrong body, with the nearest known name for an unknown one.
fn describe(error: &str) -> String {
    let unknown = error.strip_prefix("unknown field `");
    let Some((field, expected)) = unknown.and_then(|rest| rest.rsplit_once("`, expected ")) else {
        return error.to_owned();
    };
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    describe_unknown("field", field, &known)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Map, Value};

    use super::*;
    use api::strict::WholeNumber;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "written by Debug")]
    struct Claimlike {
        subject: String,
        units: Option<WholeNumber>,
        hold_seconds: Option<WholeNumber>,
        #[serde(default)]
        dry_run: bool,
        metadata: Option<Map<String, Value>>,
    }

    #[test]
    fn an_unknown_field_is_told_with_the_nearest() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only the names count")]
        struct Fields {
            subject: Option<u8>,
            units: Option<u8>,
        }
        let error = parse_json::<Fields>(br#"{"unit`s": 1}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unit`s: unknown field \"unit`s\": the nearest known name is units; known names: \
             subject, units"
        );
    }

    /// Good bodies with one byte changed: both ways to parse take the same ones.
    #[test]
    fn what_is_parsed_does_not_depend_on_the_path() {
        let claim = br#"{"subject":"\u00e9","units":1.0,"dry_run":false,"metadata":{"a":[1.5e3]}}"#;
        let twice = br#"{"subject":"a","units":1,"subject":"a","hold_seconds":null} "#;
        let deep = [r#"{"subject":"a","metadata":{"a":"#, &"[".repeat(126)].concat();
        let deep = [deep, "]".repeat(126), "}}".to_owned()].concat();
        for body in [&claim[..], twice, deep.as_bytes()] {
            for index in 0..body.len() {
                for byte in *b"\0\"{]9- x\xff" {
                    let mut body = body.to_vec();
                    body[index] = byte;
                    let plain = serde_json::from_slice::<Object<Claimlike>>(&body);
                    let with_path = parse_json::<Claimlike>(&body);
                    let plain = plain.map(|it| it.0).ok();
                    let with_path = with_path.ok();
                    let body = String::from_utf8_lossy(&body);
                    assert_eq!(format!("{plain:?}"), format!("{with_path:?}"), "{body}");
                }
            }
        }
    }

    #[test]
    fn a_body_is_one_object() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Named {
            name: u8,
        }
        assert_eq!(
            parse_json::<Named>(b" {\"name\": 1} ").unwrap(),
            Named { name: 1 }
        );
        for wrong in ["", "1", "[1]", "{\"name\":1} 2", "{\"name\":1}{}"] {
            assert!(parse_json::<Named>(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
