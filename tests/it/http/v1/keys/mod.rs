//! API keys: who may do what, until when.

mod bodies;
mod claimed_by;
mod life;
mod rights;
mod terminal;
mod wrong;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::app::{Answer, App};

/// A key that was made through the API.
#[derive(Debug, Clone)]
pub struct Made {
    pub id: String,
    pub secret: String,
}

/// Makes a key.
pub async fn make(app: &App, body: Value) -> Made {
    let request = app.request(Method::POST, "/v1/keys").json(&body);
    let answer = Answer::of(request).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let key = answer.json();
    let text = |name: &str| key[name].as_str().expect("a text").to_owned();
    Made {
        id: text("id"),
        secret: text("secret"),
    }
}

/// Makes a key of a role, perhaps confined to a policy.
pub async fn make_role(app: &App, role: &str, policy: Option<&str>) -> Made {
    let policies = policy.map(|policy| vec![policy]);
    let body = json!({ "name": format!("a {role}"), "role": role, "policies": policies });
    make(app, body).await
}

/// A request with a key's secret.
pub fn with(app: &App, secret: &str, method: Method, path: &str) -> RequestBuilder {
    app.bare_request(method, path).bearer_auth(secret)
}

/// The status of a request that any valid key may send, each time from another address, so that
/// nobody is slowed down who waits for a key to work.
async fn status_of(app: &App, secret: &str) -> u16 {
    status_at(&app.url, secret).await
}

/// As [`status_of`], at a server's URL.
async fn status_at(url: &str, secret: &str) -> u16 {
    static ADDRESSES: AtomicU16 = AtomicU16::new(0);
    let [high, low] = ADDRESSES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let client = client_from([100 + high % 100, low]);
    let request = client.get(format!("{url}/metrics"));
    Answer::of(request.bearer_auth(secret))
        .await
        .status
        .as_u16()
}

pub async fn revoke(app: &App, secret: &str, id: &str) -> Answer {
    let path = format!("/v1/keys/{id}?reason=a+test");
    Answer::of(with(app, secret, Method::DELETE, &path)).await
}

pub async fn end(app: &App, secret: &str, id: &str, at: Option<&str>) -> Answer {
    let body = json!({ "ends_at": at, "reason": "a test" });
    let request = with(app, secret, Method::PATCH, &format!("/v1/keys/{id}"));
    Answer::of(request.json(&body)).await
}

/// A client that comes from another address of this machine.
pub fn client_from(last: [u8; 2]) -> reqwest::Client {
    drop(crate::support::app::client());
    let address = Ipv4Addr::new(127, 9, last[0], last[1]);
    let client = reqwest::Client::builder().local_address(Some(address.into()));
    client.build().expect("a client")
}
