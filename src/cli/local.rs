//! Instants for people: in the policy's time zone. JSON keeps UTC.

use chrono::{DateTime, SecondsFormat, Utc};
use reqwest::Method;

use super::ServerArgs;
use super::client::{call, read, request, segment};
use api::claims::UsageBody;
use api::instant::written;
use domain::zone::Zone;

/// The time zone that instants are shown in.
pub struct LocalTime(Option<Zone>);

impl LocalTime {
    /// The zone with this name; UTC where this machine does not know the name.
    pub fn new(time_zone: &str) -> Self {
        Self(Zone::parse(time_zone).ok())
    }

    /// A policy's zone, from a subject's usage, which every key of the policy may read. UTC where
    /// the usage cannot be read.
    pub async fn of(server: &ServerArgs, policy: &str, subject: &str) -> Self {
        let policy = segment(policy);
        let subject = segment(subject);
        let path = format!("/v1/policies/{policy}/subjects/{subject}");
        let usage = async { read::<UsageBody>(&call(request(server, Method::GET, &path)?).await?) };
        match usage.await {
            Ok(usage) => Self::new(&usage.time_zone),
            Err(_) => Self(None),
        }
    }

    /// An instant of an answer.
    pub fn show(&self, instant: DateTime<Utc>) -> String {
        let Some(zone) = &self.0 else {
            return written(instant);
        };
        let local = instant.with_timezone(&zone.offset(instant));
        local.to_rfc3339_opts(SecondsFormat::AutoSi, true)
    }

    /// A text of an answer, in which these instants of the answer are shown in the zone.
    pub fn show_within(
        &self,
        detail: &str,
        instants: impl IntoIterator<Item = DateTime<Utc>>,
    ) -> String {
        let instants = instants.into_iter();
        instants.fold(detail.to_owned(), |detail, instant| {
            detail.replace(&written(instant), &self.show(instant))
        })
    }
}
