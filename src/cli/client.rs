//! Calls of a running server.

use std::time::Duration;

use anyhow::{Context, bail};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

use super::ServerArgs;

/// The longest that a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// All but the unreserved characters (RFC 3986, section 2.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Every item of a list, page by page.
pub async fn all_items(server: &ServerArgs, path: &str) -> anyhow::Result<Vec<Value>> {
    let mut items = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let mut request = request(server, Method::GET, path)?;
        if let Some(cursor) = cursor.as_str() {
            request = request.query(&[("cursor", cursor)]);
        }
        let mut page = call(request).await?;
        if let Value::Array(page) = page["items"].take() {
            items.extend(page);
        }
        cursor = page["next_cursor"].take();
        if cursor.is_null() {
            return Ok(items);
        }
    }
}

/// A text as a segment of a path.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

pub fn request(server: &ServerArgs, method: Method, path: &str) -> anyhow::Result<RequestBuilder> {
    // Another part of the program may have chosen it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(TIMEOUT).build()?;
    let url = format!("{}{path}", server.url.trim_end_matches('/'));
    let key = server.key_file.as_ref().or(server.key.as_ref());
    let key = key.expect("one of the two is required");
    Ok(client.request(method, url).bearer_auth(key))
}

pub async fn send(request: RequestBuilder) -> anyhow::Result<(StatusCode, Value)> {
    let response = request
        .send()
        .await
        .context("the server does not answer; see that it runs, and name it in PERDIEM_URL")?;
    let status = response.status();
    let answer = response
        .json()
        .await
        .with_context(|| format!("the answer ({status}) is not perdiem's; see PERDIEM_URL"))?;
    Ok((status, answer))
}

pub async fn call(request: RequestBuilder) -> anyhow::Result<Value> {
    let (status, answer) = send(request).await?;
    if !status.is_success() {
        bail!(describe(&answer));
    }
    Ok(answer)
}

/// A problem document in words.
pub fn describe(problem: &Value) -> String {
    let mut words = text(&problem["detail"]).to_owned();
    for part in problem["errors"].as_array().into_iter().flatten() {
        let place = part["pointer"].as_str().or(part["parameter"].as_str());
        words.push_str("; ");
        words.push_str(place.unwrap_or_default());
        words.push_str(": ");
        words.push_str(text(&part["detail"]));
    }
    words
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
