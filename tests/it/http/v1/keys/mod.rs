//! API keys: the rights of a key, and its end.

mod bodies;
mod claimed_by;
mod lasting;
mod life;
mod own;
mod replacement;
mod rights;
mod support;
mod terminal;
mod uses;
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

pub async fn make(app: &App, body: Value) -> Made {
    let key = app.ask("POST /v1/keys", body).await.is(201);
    let text = |name: &str| key[name].as_str().expect("a text").to_owned();
    Made {
        id: text("id"),
        secret: text("secret"),
    }
}

/// Makes a key with a role. The key is confined if a policy is given.
pub async fn make_role(app: &App, role: &str, policy: Option<&str>) -> Made {
    let policies = policy.map(|policy| vec![policy]);
    let bounds = (role == "support").then(|| json!({ "max": 10, "days": 7 }));
    let body = json!({
        "name": format!("a {role}"), "role": role, "policies": policies, "bounds": bounds,
    });
    make(app, body).await
}

/// A request with a key's secret.
pub fn with(app: &App, secret: &str, method: Method, path: &str) -> RequestBuilder {
    app.bare_request(method, path).bearer_auth(secret)
}

/// The status of a request that any valid key may send. Each request comes from another address, so
/// that the wrong keys of a waiting test slow nobody down.
async fn status_of(app: &App, secret: &str) -> u16 {
    status_at(&app.url, secret).await
}

/// [`status_of`] for a server's URL.
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
    let line = format!("DELETE /v1/keys/{id}?reason=a+test");
    app.ask_as(secret, &line, Value::Null).await
}

pub async fn end(app: &App, secret: &str, id: &str, at: Option<&str>) -> Answer {
    let body = json!({ "ends_at": at, "reason": "a test" });
    app.ask_as(secret, &format!("PATCH /v1/keys/{id}"), body)
        .await
}

/// A client with another address of this machine.
pub fn client_from(last: [u8; 2]) -> reqwest::Client {
    let address = Ipv4Addr::new(127, 9, last[0], last[1]);
    let client = crate::support::app::client_builder().local_address(Some(address.into()));
    client.build().expect("a client")
}
