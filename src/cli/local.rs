//! The local time of a policy: instants are shown in it, and times are read in it.

use anyhow::Context;
use chrono::{DateTime, NaiveTime, SecondsFormat, Utc, Weekday};
use reqwest::Method;

use super::ServerArgs;
use super::client::{account_path, call, read, request, segment};
use super::times::{GivenTime, LocalNow};
use api::claims::UsageBody;
use api::instant::{shown_within, written};
use api::policies::{PolicyAnswer, PolicyList};
use domain::window::Calendar;
use domain::zone::Zone;
use domain::zones::ZoneError;
use host::clock::Clock;

/// The time that clocks show where a policy is, or UTC.
pub struct LocalTime {
    calendar: Result<Calendar, ZoneError>,
    /// Whether instants are shown in UTC in any case.
    shows_utc: bool,
}

/// The present instant of this machine.
pub fn present() -> DateTime<Utc> {
    Clock::system().now()
}

/// The calendar of a zone whose days begin at a time such as `06:00`, or at midnight.
///
/// # Errors
/// This machine does not know the zone.
fn calendar(time_zone: &str, day_starts_at: Option<&str>) -> Result<Calendar, ZoneError> {
    let begins = day_starts_at.and_then(|text| NaiveTime::parse_from_str(text, "%H:%M").ok());
    Ok(Calendar {
        zone: Zone::parse(time_zone)?,
        day_starts_at: begins.unwrap_or(NaiveTime::MIN),
        week_starts_on: Weekday::Mon,
        anchor: None,
    })
}

impl LocalTime {
    /// In the zone with this name, where each day begins at a time such as `06:00`, or at midnight. Instants are
    /// shown in UTC where this machine does not know the zone, and with `--utc`.
    pub fn in_zone(server: &ServerArgs, time_zone: &str, day_starts_at: Option<&str>) -> Self {
        Self {
            calendar: calendar(time_zone, day_starts_at),
            shows_utc: server.utc,
        }
    }

    /// To show instants of an answer that names its zone.
    pub fn new(server: &ServerArgs, time_zone: &str) -> Self {
        Self::in_zone(server, time_zone, None)
    }

    /// Where no policy is named.
    pub fn utc() -> Self {
        Self {
            calendar: calendar("UTC", None),
            shows_utc: true,
        }
    }

    /// By the version of a policy that is in force, also of an archived one.
    ///
    /// # Errors
    /// The server does not show the policy, for example because it does not exist.
    pub async fn of_policy(server: &ServerArgs, policy: &str) -> anyhow::Result<Self> {
        let path = format!("/v1/policies/{}/versions", segment(policy));
        let versions: PolicyList = read(&call(request(server, Method::GET, &path)?).await?)?;
        let now = present();
        let is_in_force = |version: &&PolicyAnswer| version.effective_at <= now;
        let versions = &versions.items;
        let version = versions.iter().find(is_in_force).or(versions.last());
        let version = version.context("the policy has no version")?;
        let begins = Some(version.day_starts_at.as_str());
        Ok(Self::in_zone(server, &version.time_zone, begins))
    }

    /// By the policy, if one is named, and otherwise in UTC.
    ///
    /// # Errors
    /// As [`LocalTime::of_policy`].
    pub async fn of_scope(server: &ServerArgs, policy: Option<&String>) -> anyhow::Result<Self> {
        match policy {
            Some(policy) => Self::of_policy(server, policy).await,
            None => Ok(Self::utc()),
        }
    }

    /// To read times: in the calendar of the policy, if one is named, and otherwise in UTC. The policy is not looked
    /// at where the times do without it.
    ///
    /// # Errors
    /// As [`LocalTime::of_policy`].
    pub async fn to_read(
        server: &ServerArgs,
        policy: Option<&String>,
        times: &[Option<GivenTime>],
    ) -> anyhow::Result<Self> {
        let mut times = times.iter().flatten();
        match policy {
            Some(policy) if times.any(|time| time.needs_calendar()) => {
                Self::of_policy(server, policy).await
            }
            _ => Ok(Self::utc()),
        }
    }

    /// A policy's zone, from a subject's usage, which every key of the policy may read. UTC where
    /// the usage cannot be read.
    pub async fn of_subject(server: &ServerArgs, policy: &str, subject: &str) -> Self {
        let path = account_path(policy, subject);
        let usage = async { read::<UsageBody>(&call(request(server, Method::GET, &path)?).await?) };
        match usage.await {
            Ok(usage) => Self::new(server, &usage.time_zone),
            Err(_) => Self::utc(),
        }
    }

    /// To read times that were given at an instant.
    pub fn at(&self, now: DateTime<Utc>) -> LocalNow {
        LocalNow {
            calendar: self.calendar.clone(),
            now,
        }
    }

    /// An instant of an answer.
    pub fn show(&self, instant: DateTime<Utc>) -> String {
        match &self.calendar {
            Ok(Calendar { zone, .. }) if !self.shows_utc => {
                let local = instant.with_timezone(&zone.offset(instant));
                local.to_rfc3339_opts(SecondsFormat::AutoSi, true)
            }
            _ => written(instant),
        }
    }

    /// The text `  (until …)`, or nothing.
    pub fn show_until(&self, until: Option<DateTime<Utc>>) -> String {
        until.map_or_else(String::new, |until| {
            format!("  (until {})", self.show(until))
        })
    }

    /// A text of an answer, in which each instant is shown in the zone.
    pub fn show_within(&self, text: &str) -> String {
        shown_within(text, |instant| self.show(instant))
    }
}
