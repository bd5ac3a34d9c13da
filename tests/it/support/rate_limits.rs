//! A proxy that asks the rate limit service over gRPC.

use std::net::SocketAddr;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use perdiem::http::rate_limit_messages::{
    Descriptor, DescriptorEntry, RateLimitRequest, RateLimitResponse,
};
use prost::Message;
use tokio::net::TcpStream;

/// The method of the service.
pub const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How a call ended: with an answer, or with a code and its message.
pub type Ended = Result<RateLimitResponse, (u32, String)>;

pub fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    let entries = entries.iter().map(|(key, value)| DescriptorEntry {
        key: (*key).to_owned(),
        value: value.as_bytes().to_vec(),
    });
    Descriptor {
        entries: entries.collect(),
        ..Descriptor::default()
    }
}

pub fn request(descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    RateLimitRequest {
        domain: "perdiem".to_owned(),
        descriptors: descriptors.iter().map(|it| descriptor(it)).collect(),
        hits_addend: 0,
    }
}

/// A message as gRPC sends it: uncompressed, with its length.
pub fn framed(request: &RateLimitRequest) -> Bytes {
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message");
    [&[0][..], &length.to_be_bytes(), &message].concat().into()
}

pub async fn connect<B>(address: SocketAddr) -> SendRequest<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static,
{
    let io = TcpStream::connect(address).await.expect("a connection");
    let shaken = handshake(TokioExecutor::new(), TokioIo::new(io)).await;
    let (sender, connection) = shaken.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

pub async fn send(connection: &mut SendRequest<Full<Bytes>>, path: &str, body: &Bytes) -> Ended {
    let request = call(path, Full::new(body.clone()));
    let answer = connection.send_request(request).await.expect("an answer");
    ended(answer).await
}

pub fn call<B>(path: &str, body: B) -> hyper::Request<B> {
    hyper::Request::post(format!("http://gate{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-request-id", "r1")
        .body(body)
        .expect("a request")
}

pub async fn ended(answer: hyper::Response<hyper::body::Incoming>) -> Ended {
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    let (head, body) = answer.into_parts();
    let body = body.collect().await.expect("a body");
    let trailers = body.trailers().unwrap_or(&head.headers).clone();
    let text = |name| trailers.get(name).map(|it| it.to_str().expect("ASCII"));
    let code = text("grpc-status").expect("a code").parse();
    let message = text("grpc-message").unwrap_or_default();
    let message = percent_encoding::percent_decode_str(message).decode_utf8_lossy();
    match code.expect("a number") {
        0 => {
            let bytes = body.to_bytes();
            assert_eq!(bytes[0], 0, "uncompressed");
            Ok(RateLimitResponse::decode(&bytes[5..]).expect("a message"))
        }
        code => Err((code, message.into_owned())),
    }
}
