//! A denial: the answer with status 429.

use std::fmt;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::limits::{LimitUsage, insert_fields, seconds_until};
use super::problem::{MEDIA_TYPE, Problem, QUOTA_EXCEEDED};
use super::words::{self, any_of};
use crate::domain::claim::Units;
use crate::domain::grant::Total;
use crate::domain::policy::Policy;
use crate::domain::window::Per;

const QUOTA_EXCEEDED_TYPE: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// What a claim asked for, and when.
#[derive(Debug)]
pub struct Asked {
    /// The version of the policy that decided.
    pub policy: Arc<Policy>,
    pub subject: String,
    pub units: Units,
    /// When it was answered.
    pub now: DateTime<Utc>,
}

/// A claim that some window lacks room for.
#[derive(Debug)]
pub struct Denial {
    pub asked: Asked,
    pub totals: Vec<Total>,
}

/// The body of a denial (draft-ietf-httpapi-ratelimit-headers-10, "quota-exceeded").
#[derive(Debug, Serialize, ToSchema)]
pub struct DenialBody {
    /// Always `https://iana.org/assignments/http-problem-types#quota-exceeded`.
    #[serde(rename = "type")]
    #[schema(example = "https://iana.org/assignments/http-problem-types#quota-exceeded")]
    pub kind: &'static str,
    /// Always `Quota exceeded`.
    #[schema(example = "Quota exceeded")]
    pub title: &'static str,
    /// Always 429.
    #[schema(example = 429)]
    pub status: u16,
    /// What is used up, and when there is room again.
    #[schema(
        example = "member-42 has used 3 of 3 for today under benefit; the next window begins at 2026-11-21T16:00:00Z"
    )]
    pub detail: String,
    /// Always `denied`.
    #[schema(value_type = words::Denied, example = "denied")]
    pub outcome: &'static str,
    /// The policy.
    #[schema(example = "benefit")]
    pub policy: String,
    /// The subject.
    #[schema(example = "member-42")]
    pub subject: String,
    /// The limits that lack room, by their `per`.
    #[serde(rename = "violated-policies")]
    #[schema(value_type = Vec<words::Per>, example = json!(["day"]))]
    pub violated_policies: Vec<&'static str>,
    /// Every limit as it stands.
    pub limits: Vec<LimitUsage>,
}

/// What a claim is told with status 429.
pub enum ClaimRefusal {}

any_of!(
    ClaimRefusal,
    "A denial; or the problem `too-many-wrong-keys`.",
    [DenialBody, Problem]
);

impl Denial {
    fn lacking(&self) -> impl Iterator<Item = &Total> {
        let units = self.asked.units;
        self.totals.iter().filter(move |total| !total.fits(units))
    }

    pub fn body(&self) -> DenialBody {
        DenialBody {
            kind: QUOTA_EXCEEDED_TYPE,
            title: QUOTA_EXCEEDED.title,
            status: QUOTA_EXCEEDED.status.as_u16(),
            detail: self.to_string(),
            outcome: "denied",
            policy: self.asked.policy.name.to_string(),
            subject: self.asked.subject.clone(),
            violated_policies: self.lacking().map(|total| total.per.as_str()).collect(),
            limits: LimitUsage::all(&self.totals),
        }
    }

    /// The answer, with `Retry-After`: the time until the claim could fit.
    pub fn response(&self) -> HttpResponse {
        let now = self.asked.now;
        let mut response = HttpResponse::TooManyRequests();
        insert_fields(&mut response, &self.totals, now);
        if let Some(ends_at) = self.lacking().map(|total| total.window.end).max() {
            response.insert_header((header::RETRY_AFTER, seconds_until(ends_at, now).max(1)));
        }
        response.content_type(MEDIA_TYPE).json(self.body())
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked {
            policy,
            subject,
            units,
            ..
        } = &self.asked;
        let last = self.lacking().max_by_key(|total| total.window.end);
        let Some(total) = last else { return Ok(()) };
        write!(
            formatter,
            "{} has used {} of {} for {} under {}",
            subject,
            total.used,
            total.max,
            this_window(total.per),
            policy.name,
        )?;
        if total.remaining() > 0 {
            write!(formatter, " and asks for {}", units.get())?;
        }
        write!(
            formatter,
            "; the next window begins at {}",
            total
                .window
                .end
                .to_rfc3339_opts(SecondsFormat::AutoSi, true)
        )
    }
}

fn this_window(per: Per) -> &'static str {
    match per {
        Per::Minute => "this minute",
        Per::Hour => "this hour",
        Per::Day => "today",
        Per::Week => "this week",
        Per::Month => "this month",
        Per::Year => "this year",
    }
}
