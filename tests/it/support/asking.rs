//! Requests written as their first lines (`PUT /v1/keys`), and the content of their answers.

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::app::{Answer, App, KEY};

impl App {
    /// A request with a key, by its first line. The body null means no body.
    pub fn line(&self, secret: &str, line: &str, body: &Value) -> RequestBuilder {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let method: Method = method.parse().expect("a method");
        let request = self.bare_request(method, path).bearer_auth(secret);
        match body {
            Value::Null => request,
            body => request.json(body),
        }
    }

    /// Sends a request with the admin key.
    pub async fn ask(&self, line: &str, body: Value) -> Answer {
        self.ask_as(KEY, line, body).await
    }

    /// Sends a request with a key.
    pub async fn ask_as(&self, secret: &str, line: &str, body: Value) -> Answer {
        Answer::of(self.line(secret, line, &body)).await
    }

    /// Sends a request with a header field and the admin key.
    pub async fn ask_with(&self, field: (&str, &str), line: &str, body: Value) -> Answer {
        Answer::of(self.line(KEY, line, &body).header(field.0, field.1)).await
    }
}

impl Answer {
    /// Asserts the status, and returns the document.
    #[track_caller]
    pub fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// The value in the document at a JSON pointer, such as `/limits/0/used`.
    #[track_caller]
    pub fn at(&self, pointer: &str) -> Value {
        let found = self.json().pointer(pointer).cloned();
        found.unwrap_or_else(|| panic!("{pointer}: {self:?}"))
    }
}
