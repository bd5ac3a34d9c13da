//! Calls of a running server.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::RETRY_AFTER;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ServerArgs;
use crate::config::WrongSetting;
use api::problem::Problem;
use api::{self, AnyPage};

/// The longest wait for an answer of the server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// All characters except the unreserved ones (RFC 3986, section 2.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Every item of a list, page by page.
pub async fn all_items(server: &ServerArgs, path: &str) -> anyhow::Result<Vec<Value>> {
    all_found(|| request(server, Method::GET, path)).await
}

/// Every item of the list that a request asks for, page by page.
pub async fn all_found(
    list: impl Fn() -> anyhow::Result<RequestBuilder>,
) -> anyhow::Result<Vec<Value>> {
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let page = page(list()?, cursor.as_ref()).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(items);
        }
    }
}

/// The first page of a list that has an item; the last page of a list without items. The server reads
/// only a part of the record for each page.
pub async fn first_found(
    list: impl Fn() -> anyhow::Result<RequestBuilder>,
) -> anyhow::Result<AnyPage> {
    let mut found = page(list()?, None).await?;
    while found.items.is_empty() && found.next_cursor.is_some() {
        found = page(list()?, found.next_cursor.as_ref()).await?;
    }
    Ok(found)
}

async fn page(list: RequestBuilder, cursor: Option<&String>) -> anyhow::Result<AnyPage> {
    let cursor = cursor.map(|cursor| ("cursor", cursor));
    read(&call(list.query(cursor.as_slice())).await?)
}

/// Reads an answer into its type.
///
/// # Errors
/// A field is missing, or of another type.
pub fn read<T: DeserializeOwned + Serialize>(answer: &Value) -> anyhow::Result<T> {
    api::read(answer).context(
        "the server and this command line are of different versions, so use the command line of the \
         server's version",
    )
}

/// Shows an answer: as it came, or in its type.
pub fn show<T: DeserializeOwned + Serialize>(
    server: &ServerArgs,
    answer: &Value,
    print: impl FnOnce(&T),
) -> anyhow::Result<ExitCode> {
    if server.json {
        println!("{answer:#}");
    } else {
        print(&read(answer)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the items of a list: as they came, or in their type.
pub fn show_all<T: DeserializeOwned + Serialize>(
    server: &ServerArgs,
    items: Vec<Value>,
    print: impl FnMut(&T),
) -> anyhow::Result<ExitCode> {
    show(server, &Value::Array(items), |items: &Vec<T>| {
        items.iter().for_each(print)
    })
}

/// A text as a segment of a path.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

pub fn request(server: &ServerArgs, method: Method, path: &str) -> anyhow::Result<RequestBuilder> {
    // Another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(TIMEOUT).build()?;
    let url = format!("{}{path}", server.url.trim_end_matches('/'));
    let is_http = Url::parse(&url).is_ok_and(|url| ["http", "https"].contains(&url.scheme()));
    if !is_http {
        bail!(WrongSetting {
            setting: "PERDIEM_URL",
            reason: "is not the URL of a server: write one such as http://127.0.0.1:8080"
                .to_owned(),
        });
    }
    let key = server.key_file.as_ref().or(server.key.as_ref());
    let key = key.expect("one of the two is required").trim();
    let is_key = |key: &str| !key.is_empty() && key.chars().all(|it| it.is_ascii_graphic());
    if !is_key(key) {
        bail!(WrongSetting {
            setting: "PERDIEM_KEY",
            reason: "is not an API key: it is empty, or has a space, a control character or a \
                   character outside of ASCII"
                .to_owned(),
        });
    }
    Ok(client.request(method, url).bearer_auth(key))
}

/// An error that can be over the next time: the server does not answer, or it answers with 503.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TryAgain(pub String);

async fn reach(request: RequestBuilder) -> anyhow::Result<Response> {
    request.send().await.map_err(|error| {
        let reason =
            "the server does not answer: check that it runs, and that PERDIEM_URL names it";
        if error.is_builder() {
            anyhow::Error::new(error).context(reason)
        } else {
            anyhow::Error::new(error).context(TryAgain(reason.to_owned()))
        }
    })
}

async fn receive(response: Response) -> anyhow::Result<(StatusCode, Value)> {
    let status = response.status();
    let is_for_now = response.headers().contains_key(RETRY_AFTER);
    let answer = response
        .json()
        .await
        .with_context(|| format!("the answer ({status}) is not from perdiem: check PERDIEM_URL"))?;
    match status {
        StatusCode::SERVICE_UNAVAILABLE if is_for_now => Err(TryAgain(describe(&answer)).into()),
        // An instance that only reads says so for ever.
        StatusCode::SERVICE_UNAVAILABLE => bail!(describe(&answer)),
        _ => Ok((status, answer)),
    }
}

pub async fn send(request: RequestBuilder) -> anyhow::Result<(StatusCode, Value)> {
    receive(reach(request).await?).await
}

/// A successful answer whose body is not read yet.
pub async fn stream(request: RequestBuilder) -> anyhow::Result<Response> {
    let response = reach(request).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (_, answer) = receive(response).await?;
    bail!(describe(&answer))
}

pub async fn call(request: RequestBuilder) -> anyhow::Result<Value> {
    let (status, answer) = send(request).await?;
    if !status.is_success() {
        bail!(describe(&answer));
    }
    Ok(answer)
}

/// The text of a problem document.
pub fn describe(problem: &Value) -> String {
    let problem: Problem = match read(problem) {
        Ok(problem) => problem,
        Err(foreign) => return format!("{foreign:#}"),
    };
    let mut words = problem.detail;
    for part in problem.errors {
        let parameter = part.parameter.as_deref();
        words.push_str("; ");
        words.push_str(part.pointer.as_deref().or(parameter).unwrap_or_default());
        words.push_str(": ");
        words.push_str(&part.detail);
    }
    words
}
