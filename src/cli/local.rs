//! Instants for people: in the policy's time zone. JSON keeps UTC.

use chrono::{DateTime, SecondsFormat, Utc};
use reqwest::Method;
use serde_json::Value;

use super::ServerArgs;
use super::client::{call, request, segment, text};
use crate::domain::zone::Zone;

/// The time zone that instants are shown in.
pub struct LocalTime(Option<Zone>);

impl LocalTime {
    /// The zone with this name; UTC where this machine does not know the name.
    pub fn new(time_zone: &Value) -> Self {
        Self(Zone::parse(text(time_zone)).ok())
    }

    /// A policy's zone, from a subject's usage, which every key of the policy may read. UTC where
    /// the usage cannot be read.
    pub async fn of(server: &ServerArgs, policy: &str, subject: &str) -> Self {
        let policy = segment(policy);
        let subject = segment(subject);
        let path = format!("/v1/policies/{policy}/subjects/{subject}");
        let usage = match request(server, Method::GET, &path) {
            Ok(request) => call(request).await.unwrap_or_default(),
            Err(_) => Value::Null,
        };
        Self::new(&usage["time_zone"])
    }

    /// An instant of an answer.
    pub fn show(&self, instant: &Value) -> String {
        let instant = text(instant);
        match (&self.0, instant.parse::<DateTime<Utc>>()) {
            (Some(zone), Ok(at)) => {
                let local = at.with_timezone(&zone.offset(at));
                local.to_rfc3339_opts(SecondsFormat::AutoSi, true)
            }
            (None, _) | (_, Err(_)) => instant.to_owned(),
        }
    }

    /// A text of an answer, in which these instants of the answer are shown in the zone.
    pub fn show_within<'v>(
        &self,
        detail: &str,
        instants: impl IntoIterator<Item = &'v Value>,
    ) -> String {
        let named = instants.into_iter().filter(|instant| instant.is_string());
        named.fold(detail.to_owned(), |detail, instant| {
            detail.replace(text(instant), &self.show(instant))
        })
    }
}
