//! What a page asks `/v1`. The console has no queries and no rights of its own: it sends the requests that its
//! reader could send, with the reader's key, within the process.

use std::cell::RefCell;
use std::fmt::Display;

use chrono::{DateTime, Utc};
use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use api::ForeignAnswer;
use api::address::segment;
use api::problem::Problem;

/// The statuses of problems that say what is wrong with a form.
const OF_FORMS: [u16; 6] = [400, 403, 409, 410, 412, 422];

/// A request to `/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asking {
    pub method: &'static str,
    /// The path with its query.
    pub target: String,
    /// Fields of the header, such as `If-Match`.
    pub fields: Vec<(&'static str, String)>,
    pub body: Option<Value>,
}

/// The answer to such a request.
pub struct Answered {
    pub status: u16,
    /// How long to wait before the next try, in seconds.
    pub retry_after: Option<u64>,
    pub body: Vec<u8>,
}

/// What the console needs of the server that it is part of.
pub trait Server {
    /// Sends a request with the rights of the reader.
    fn send(&self, asking: Asking) -> LocalBoxFuture<'_, Answered>;

    /// The present instant of the instance.
    fn now(&self) -> DateTime<Utc>;

    /// A text that proves that a form comes from a page of this reader, and is for this path.
    fn form_token(&self, path: &str) -> String;

    /// The id of the request for the page, as the log has it.
    fn request_id(&self) -> String;

    /// A text that was never given before, such as a key for a claim.
    fn unique(&self) -> String;
}

/// Why a page has no answer to show.
#[derive(Debug, thiserror::Error)]
pub enum PageFailure {
    /// `/v1` refused the request, and said why.
    #[error("{}", problem_text(.0))]
    Problem(Box<Problem>, Option<u64>),
    /// The answer is not what this console reads.
    #[error(transparent)]
    Foreign(#[from] ForeignAnswer),
    #[error("the answer is not JSON: {0}")]
    NoJson(#[from] serde_json::Error),
    /// The address names something that does not exist, or has a wrong form.
    #[error("{0}")]
    NotFound(String),
}

impl PageFailure {
    pub fn status(&self) -> u16 {
        match self {
            Self::Problem(problem, _) => problem.status,
            Self::Foreign(_) | Self::NoJson(_) => 500,
            Self::NotFound(_) => 404,
        }
    }

    /// The problem, if a form can show it beside what the reader typed.
    ///
    /// # Errors
    /// Any other failure, as it is.
    pub fn of_form(self) -> Result<Problem, Self> {
        match self {
            Self::Problem(problem, _) if OF_FORMS.contains(&problem.status) => Ok(*problem),
            other => Err(other),
        }
    }

    /// The kind of problem, such as `precondition-failed`.
    pub fn code(&self) -> &str {
        match self {
            Self::Problem(problem, _) => &problem.code,
            Self::Foreign(_) | Self::NoJson(_) | Self::NotFound(_) => "",
        }
    }
}

impl Answered {
    /// The body of a success; otherwise what `/v1` says.
    fn success(self) -> Result<Vec<u8>, PageFailure> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let problem: Problem = serde_json::from_slice(&self.body)?;
        Err(PageFailure::Problem(Box::new(problem), self.retry_after))
    }
}

/// What a problem says to a person. Where it lists what is wrong, the list says more than its sentence.
pub fn problem_text(problem: &Problem) -> String {
    match &problem.errors[..] {
        [] => problem.detail.clone(),
        [one] => one.detail.clone(),
        _ => "Some values are wrong.".to_owned(),
    }
}

/// Sends the requests of one page, and remembers them, so that the page can show how to get the same from a shell.
pub struct Asker<'s> {
    server: &'s dyn Server,
    asked: RefCell<Vec<Asking>>,
}

impl<'s> Asker<'s> {
    pub fn new(server: &'s dyn Server) -> Self {
        Self {
            server,
            asked: RefCell::default(),
        }
    }

    /// The reads that were asked so far, each once.
    pub fn reads(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        let reads = asked.iter().filter(|asking| asking.method == "GET");
        let mut targets: Vec<String> = Vec::new();
        for read in reads {
            if !targets.contains(&read.target) {
                targets.push(read.target.clone());
            }
        }
        targets
    }

    /// # Errors
    /// [`PageFailure`], as for all methods here.
    pub async fn get<T: DeserializeOwned + Serialize>(
        &self,
        target: String,
    ) -> Result<T, PageFailure> {
        self.send(Asking::get(target)).await
    }

    /// The answer to a request, read into its type.
    pub async fn send<T: DeserializeOwned + Serialize>(
        &self,
        asking: Asking,
    ) -> Result<T, PageFailure> {
        Ok(api::read(&self.value(asking).await?)?)
    }

    /// As [`Asker::get`], but `None` for what does not exist.
    pub async fn find<T: DeserializeOwned + Serialize>(
        &self,
        target: String,
    ) -> Result<Option<T>, PageFailure> {
        match self.get(target).await {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.status() == 404 => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// The answer to a read, whatever its status is; `None` if it is not JSON.
    pub async fn whatever<T: DeserializeOwned + Serialize>(&self, target: &str) -> Option<T> {
        let asking = Asking::get(target.to_owned());
        let answered = self.server.send(asking.clone()).await;
        self.asked.borrow_mut().push(asking);
        api::read(&serde_json::from_slice(&answered.body).ok()?).ok()
    }

    /// Asks whether a file can be had, without reading it.
    pub async fn check(&self, target: &str) -> Result<(), PageFailure> {
        let answered = self.server.send(Asking::get(target.to_owned())).await;
        answered.success().map(drop)
    }

    /// The answer to a request, as it is.
    pub async fn value(&self, asking: Asking) -> Result<Value, PageFailure> {
        let answered = self.server.send(asking.clone()).await;
        self.asked.borrow_mut().push(asking);
        let body = answered.success()?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_slice(&body)?)
    }
}

impl Asking {
    pub fn get(target: String) -> Self {
        Self::of("GET", target)
    }

    pub fn of(method: &'static str, target: String) -> Self {
        Self {
            method,
            target,
            fields: Vec::new(),
            body: None,
        }
    }

    pub fn body(self, body: Value) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    pub fn field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Lets the request change only this version.
    pub fn if_version(self, version: impl Display) -> Self {
        self.field("If-Match", format!("\"{version}\""))
    }

    /// The request as a command of a shell. It reads the key from the environment.
    pub fn as_curl(&self) -> String {
        let mut command = "curl -sS -H \"Authorization: Bearer $PERDIEM_KEY\"".to_owned();
        if self.method != "GET" {
            command.push_str(&format!(" -X {}", self.method));
        }
        for (name, value) in &self.fields {
            command.push_str(&format!(" -H {}", quoted(&format!("{name}: {value}"))));
        }
        if let Some(body) = &self.body {
            command.push_str(" -H 'Content-Type: application/json'");
            command.push_str(&format!(" -d {}", quoted(&body.to_string())));
        }
        format!(
            "{command} \"${{PERDIEM_URL:-http://127.0.0.1:8080}}\"{}",
            quoted(&self.target)
        )
    }
}

/// A command of a shell, whose words are texts as they are. A word that begins with a hyphen is no option.
pub fn command(words: &[&str]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@+".contains(&byte);
    let word = |word: &&str| {
        if !word.is_empty() && word.bytes().all(is_plain) {
            (*word).to_owned()
        } else {
            quoted(word)
        }
    };
    let words: Vec<String> = words.iter().map(word).collect();
    words.join(" ")
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A path whose parts are texts, such as `/v1/policies/benefit/near`.
pub fn path(parts: &[&str]) -> String {
    let part = |part: &&str| format!("/{}", segment(part));
    parts.iter().map(part).collect()
}

/// A path with parameters. An empty value leaves its parameter out.
pub fn with(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    query.extend_pairs(given);
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_of_a_path_stay_parts() {
        let target = path(&["v1", "subjects", "a/b ü?&\"'"]);
        assert_eq!(target, "/v1/subjects/a%2Fb%20%C3%BC%3F%26%22%27");
        assert_eq!(
            with("/x", &[("a", "1 &"), ("b", ""), ("c", "ü")]),
            "/x?a=1+%26&c=%C3%BC"
        );
        assert_eq!(with("/x", &[("a", "")]), "/x");
    }

    #[test]
    fn a_command_has_no_words_that_a_shell_reads_otherwise() {
        let words = [
            "perdiem", "subject", "--", "$(id)", "it's; x", "", "-x", "a-1",
        ];
        let expected = "perdiem subject -- '$(id)' 'it'\\''s; x' '' -x a-1";
        assert_eq!(command(&words), expected);
    }

    #[test]
    fn a_request_is_a_command_that_a_shell_takes_as_it_is() {
        let asking = Asking::of("PUT", "/v1/x?a=1&b=2".to_owned())
            .if_version(3)
            .body(json!({ "reason": "it's out" }));
        assert_eq!(
            asking.as_curl(),
            "curl -sS -H \"Authorization: Bearer $PERDIEM_KEY\" -X PUT -H 'If-Match: \"3\"' -H 'Content-Type: \
             application/json' -d '{\"reason\":\"it'\\''s out\"}' \"${PERDIEM_URL:-http://127.0.0.1:8080}\"'/v1/x?a=1&b=2'"
        );
    }
}
