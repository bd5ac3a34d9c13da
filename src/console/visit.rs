//! A visit of a page: who reads it, what the address and the form say, and what the page may ask.

use chrono::{DateTime, Utc};
use maud::Markup;

use super::asking::{Asker, PageFailure, Server};
use super::local::Local;
use api::keys::OwnKeyAnswer;

/// The methods of pages: a page shows, and a form acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
}

/// What the operator says of this console.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The name of the environment, such as `production`.
    pub environment: Option<String>,
    /// Whether the console only shows.
    pub is_read_only: bool,
    /// Whether people can sign in with an account of their company.
    pub has_accounts: bool,
}

/// A request for a page, by a reader who is signed in.
pub struct Visit<'v> {
    pub server: &'v dyn Server,
    pub asker: Asker<'v>,
    pub settings: &'v Settings,
    pub reader: OwnKeyAnswer,
    /// The path, without the query.
    pub path: String,
    /// The parts of the path for which the pattern of the page has names.
    pub names: Vec<String>,
    pub query: FormFields,
    pub form: FormFields,
    pub now: DateTime<Utc>,
}

/// The parameters of a query, or the fields of a form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FormFields(Vec<(String, String)>);

/// What a page answers.
pub enum PageReply {
    Page(Shown),
    /// Leads to another page; a form answers so, because a reload must not send it again.
    Redirect(String),
    /// The answer of `/v1` as a file, whose bytes the console does not read.
    File {
        target: String,
    },
}

/// A page in its parts.
pub struct Shown {
    pub status: u16,
    pub title: String,
    /// The first line of text: it answers the question of the page.
    pub lead: Markup,
    /// What the reader can do here.
    pub acts: Markup,
    pub body: Markup,
    /// The zone in which the page shows instants.
    pub local: Local,
    /// The command with which the same is had, if there is one.
    pub command: Option<String>,
    /// Whether the page loads itself again every ten seconds.
    pub reloads: bool,
}

impl Shown {
    pub fn new(title: impl Into<String>, local: Local) -> Self {
        Self {
            status: 200,
            title: title.into(),
            lead: Markup::default(),
            acts: Markup::default(),
            body: Markup::default(),
            local,
            command: None,
            reloads: false,
        }
    }

    pub fn lead(self, lead: Markup) -> Self {
        Self { lead, ..self }
    }

    pub fn acts(self, acts: Markup) -> Self {
        Self { acts, ..self }
    }

    pub fn body(self, body: Markup) -> Self {
        Self { body, ..self }
    }

    pub fn command(self, command: impl Into<String>) -> Self {
        Self {
            command: Some(command.into()),
            ..self
        }
    }

    pub fn reloads(self, reloads: bool) -> Self {
        Self { reloads, ..self }
    }

    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }
}

impl From<Shown> for PageReply {
    fn from(shown: Shown) -> Self {
        Self::Page(shown)
    }
}

pub type Replied = Result<PageReply, PageFailure>;

impl FormFields {
    /// Reads a query, or the body of a form.
    pub fn read(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().collect())
    }

    /// The first value with this name, without blanks around it; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        let mut fields = self.0.iter();
        let found = fields.find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.trim())
    }

    /// As [`FormFields::get`], but `None` for an empty value.
    pub fn some(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The values with this name, in their order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.0.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.trim()).collect()
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl Visit<'_> {
    /// The key of a form that enters something once: the one that it sent, or a new one.
    pub fn once(&self) -> String {
        let sent = self.form.some("once").map(str::to_owned);
        sent.unwrap_or_else(|| self.server.unique())
    }

    /// The part of the path for the n-th name of the pattern.
    pub fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }

    /// Whether the page is shown in UTC because the reader wants so.
    pub fn wants_utc(&self) -> bool {
        self.query.get("zone") == "utc"
    }

    /// The time of a zone, or UTC if the reader wants so.
    pub fn local(&self, time_zone: &str) -> Local {
        if self.wants_utc() {
            Local::utc(self.now)
        } else {
            Local::of(time_zone, self.now)
        }
    }

    pub fn utc(&self) -> Local {
        Local::utc(self.now)
    }

    pub fn is_admin(&self) -> bool {
        &*self.reader.role == "admin"
    }

    /// Whether the reader may reverse, confirm, and put overrides, tiers and blocks.
    pub fn may_help(&self) -> bool {
        ["support", "admin"].contains(&&*self.reader.role) && !self.settings.is_read_only
    }

    /// Whether the reader may change policies and keys.
    pub fn may_change(&self) -> bool {
        self.is_admin() && !self.settings.is_read_only
    }

    /// Whether the reader's key is confined to some policies.
    pub fn is_confined(&self) -> bool {
        self.reader.policies.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_a_browser_writes_them() {
        let fields = FormFields::read(b"a=1&b=x+y%26&a=2&c=+&d");
        assert_eq!((fields.get("a"), fields.get("b")), ("1", "x y&"));
        assert_eq!(fields.all("a"), ["1", "2"]);
        assert_eq!((fields.some("c"), fields.some("e")), (None, None));
        assert!(fields.has("d") && !fields.has("e"));
    }
}
