//! Calls of a running server.

use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::places::NOWHERE;
use super::refusal::Refused;
use super::{ServerArgs, TRY_AGAIN};
use crate::setting::WrongSetting;
pub use api::address::segment;
use api::{self, AnyPage};
use host::chain::Chain;

/// The longest wait for an answer of the server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The path of an account: a subject under a policy.
pub fn account_path(policy: &str, subject: &str) -> String {
    format!(
        "/v1/policies/{}/subjects/{}",
        segment(policy),
        segment(subject)
    )
}

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

/// A request with the key of the person.
pub fn request(server: &ServerArgs, method: Method, path: &str) -> anyhow::Result<RequestBuilder> {
    let request = request_without_key(server, method, path)?;
    let Some(key) = server.key_file.as_ref().or(server.key.as_ref()) else {
        let reason = "is not set: put an API key into it, or name a file that contains one with \
                      --key-file or PERDIEM_KEY_FILE";
        bail!(WrongSetting::new("PERDIEM_KEY", reason));
    };
    let key = key.trim();
    let is_key = |key: &str| !key.is_empty() && key.chars().all(|it| it.is_ascii_graphic());
    if !is_key(key) {
        let reason = "is not an API key: it is empty, or has a space, a control character or a \
                      character outside of ASCII";
        bail!(WrongSetting::new("PERDIEM_KEY", reason));
    }
    Ok(request.bearer_auth(key))
}

/// A request that anybody may send.
pub fn request_without_key(
    server: &ServerArgs,
    method: Method,
    path: &str,
) -> anyhow::Result<RequestBuilder> {
    let url = format!("{}{path}", server.url.trim_end_matches('/'));
    let is_http = Url::parse(&url).is_ok_and(|url| ["http", "https"].contains(&url.scheme()));
    if !is_http {
        let reason = "is not the URL of a server: write one such as http://127.0.0.1:8080";
        bail!(WrongSetting::new("PERDIEM_URL", reason));
    }
    Ok(client()?.request(method, url))
}

/// The client of all requests: it reads the certificates of this machine once. A connection serves one request, because
/// a server may close one that waits.
fn client() -> anyhow::Result<&'static Client> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    // Another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().timeout(TIMEOUT).pool_max_idle_per_host(0);
    let client = client.build()?;
    Ok(CLIENT.get_or_init(|| client))
}

/// The request, which is done once for each key.
pub fn once(request: RequestBuilder, key: Option<&String>) -> RequestBuilder {
    match key {
        Some(key) => request.header("Idempotency-Key", key),
        None => request,
    }
}

/// An error that can be over the next time: the server does not answer, or something before it says so.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TryAgain(pub String);

/// Whether the same command can succeed the next time.
pub fn can_try_again(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    error.is::<TryAgain>() || refused.is_some_and(|refused| refused.exit_code() == TRY_AGAIN)
}

async fn reach(request: RequestBuilder) -> anyhow::Result<Response> {
    request
        .send()
        .await
        .map_err(|error| unreached(error.without_url()))
}

/// Why there is no answer.
fn unreached(error: reqwest::Error) -> anyhow::Error {
    let is_builder = error.is_builder();
    let words = Chain(&error).to_string();
    let tls = causes(&error).find_map(|cause| cause.downcast_ref::<rustls::Error>().cloned());
    let error = anyhow::Error::new(error);
    match tls {
        Some(rustls::Error::InvalidMessage(_)) => error.context(
            "the server does not speak TLS: check whether PERDIEM_URL begins with http or https",
        ),
        Some(_) => error.context(
            "the server's certificate is not accepted: check PERDIEM_URL and the certificate",
        ),
        // The parser of HTTP says so, whose crate is not ours. A server of TLS answers with an alert.
        None if words.contains("invalid HTTP") => error.context(
            "the server does not speak plain HTTP: check whether PERDIEM_URL begins with http or \
             https",
        ),
        None if is_builder => {
            error.context("--idempotency-key cannot be sent: write only visible ASCII characters")
        }
        None => {
            let reason =
                "the server does not answer: check that it runs, and that PERDIEM_URL names it";
            error.context(TryAgain(reason.to_owned()))
        }
    }
}

/// An error and its causes. An error of IO hides the error that it was made of.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let hidden = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        match hidden {
            Some(hidden) => Some(hidden),
            None => error.source(),
        }
    })
}

async fn receive(response: Response) -> anyhow::Result<(StatusCode, Value)> {
    let status = response.status();
    let header = |name: &str| response.headers().get(name)?.to_str().ok();
    let version = header("etag").map(|etag| etag.trim_matches('"').to_owned());
    let answer = body(response).await?;
    if status.is_success() {
        return Ok((status, answer));
    }
    Err(anyhow::Error::new(Refused {
        problem: read(&answer)?,
        answer,
        version,
        places: NOWHERE,
    }))
}

async fn body(response: Response) -> anyhow::Result<Value> {
    let status = response.status();
    response.json().await.map_err(|error| {
        let error = anyhow::Error::new(error.without_url());
        match status {
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => error.context(TryAgain(format!(
                "the answer ({status}) is not from perdiem, but from something before it: check \
                 that perdiem runs, and PERDIEM_URL"
            ))),
            _ => error.context(format!(
                "the answer ({status}) is not from perdiem: check PERDIEM_URL"
            )),
        }
    })
}

/// The body of an answer, also of a server that is not ready.
///
/// # Errors
/// As [`send`].
pub async fn look(request: RequestBuilder) -> anyhow::Result<Value> {
    let response = reach(request).await?;
    match response.status() {
        StatusCode::SERVICE_UNAVAILABLE => body(response).await,
        _ => Ok(receive(response).await?.1),
    }
}

/// The status and the body of a successful answer.
///
/// # Errors
/// [`Refused`]; or there is no answer.
pub async fn send(request: RequestBuilder) -> anyhow::Result<(StatusCode, Value)> {
    receive(reach(request).await?).await
}

/// A successful answer whose body is not read yet.
pub async fn stream(request: RequestBuilder) -> anyhow::Result<Response> {
    let response = reach(request).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (status, _) = receive(response).await?;
    bail!("the answer ({status}) is no success")
}

/// The body of a successful answer.
///
/// # Errors
/// As [`send`].
pub async fn call(request: RequestBuilder) -> anyhow::Result<Value> {
    Ok(send(request).await?.1)
}
