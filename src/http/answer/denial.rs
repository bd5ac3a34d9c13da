//! A denial: the answer with status 429.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header;
use chrono::{DateTime, Utc};

use super::limits::{insert_fields, retry_after, shared_name};
use super::plain::write_denial;
use super::problem::{MEDIA_TYPE, QUOTA_EXCEEDED, QUOTA_EXCEEDED_PAGE};
use api::claims::{DenialBody, QUOTA_EXCEEDED_TYPE};
use api::instant::written;
use api::limits::LimitUsage;
use domain::claim::Units;
use domain::forecast::Forecast;
use domain::limit::per::Per;
use domain::limit::shape::LimitKind;
use domain::limit::total::Total;
use domain::policy::{Inactive, Policy};
use domain::refusal::lacking;
use domain::shared::SharedTotal;
use domain::window::Length;

/// The claim that was denied, and the instant of the answer.
#[derive(Debug)]
pub struct Asked {
    /// The version of the policy that decided the claim.
    pub policy: Arc<Policy>,
    pub subject: String,
    pub units: Units,
    /// The instant of the answer.
    pub now: DateTime<Utc>,
}

/// A claim for which at least one window has no room.
#[derive(Debug)]
pub struct Denial {
    pub asked: Asked,
    /// See `DeniedClaim::own_units`.
    pub own_units: u64,
    pub totals: Box<[Total]>,
    /// See `DeniedClaim::shared`.
    pub shared: Box<[SharedTotal]>,
    pub forecast: Forecast,
}

impl Denial {
    /// The limits that lack room.
    pub fn lacking(&self) -> impl Iterator<Item = &Total> {
        lacking(&self.totals, self.own_units).map(|(total, _)| total)
    }

    /// The limits that all subjects share and that lack room.
    pub fn lacking_shared(&self) -> impl Iterator<Item = &SharedTotal> {
        let units = self.asked.units;
        self.shared.iter().filter(move |total| !total.fits(units))
    }

    /// The names of the limits that lack room.
    pub fn violated(&self) -> impl Iterator<Item = String> {
        let own = self.lacking().map(|total| total.per().to_string());
        own.chain(self.lacking_shared().map(shared_name))
    }

    /// The limit that all subjects share and that lacks room for longest.
    pub fn binding_shared(&self) -> Option<&SharedTotal> {
        let later = |one: &&SharedTotal, two: &&SharedTotal| compare_ends(one.ends_at, two.ends_at);
        self.lacking_shared().max_by(later)
    }

    /// The limit of the subject that lacks room for longest.
    pub fn binding(&self) -> Option<&Total> {
        let binding =
            lacking(&self.totals, self.own_units).max_by(|one, two| compare_ends(one.1, two.1));
        binding.map(|(total, _)| total)
    }

    /// Seconds until the claim fits.
    pub fn retry_after(&self) -> Option<u64> {
        retry_after(self.forecast.fits_at, self.asked.now)
    }

    pub fn body(&self) -> DenialBody {
        DenialBody {
            kind: QUOTA_EXCEEDED_TYPE.into(),
            code: QUOTA_EXCEEDED.name.into(),
            title: QUOTA_EXCEEDED.title.into(),
            status: QUOTA_EXCEEDED.status.as_u16(),
            detail: self.to_string(),
            page: QUOTA_EXCEEDED_PAGE.into(),
            request_id: None,
            trace_id: None,
            outcome: "denied".into(),
            policy: self.asked.policy.name.to_string(),
            subject: self.asked.subject.clone(),
            violated_policies: self.violated().collect(),
            fits_at: self.forecast.fits_at,
            limits: LimitUsage::foretold(&self.totals, &self.forecast),
            total: LimitUsage::shared(&self.shared),
        }
    }

    /// The body of the answer to the request with this id, in this trace, as JSON.
    pub fn json(&self, request_id: &str, trace_id: Option<&str>) -> Vec<u8> {
        let body = DenialBody {
            request_id: Some(request_id.to_owned()),
            trace_id: trace_id.map(str::to_owned),
            ..self.body()
        };
        write_denial(&body)
    }

    /// The answer, without its body, with `Retry-After`: the time until the claim fits.
    pub fn response(&self) -> HttpResponse {
        let now = self.asked.now;
        let mut response = HttpResponse::TooManyRequests();
        insert_fields(
            &mut response,
            &self.totals,
            &self.shared,
            &self.forecast,
            now,
        );
        if let Some(seconds) = self.retry_after() {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        response.content_type(MEDIA_TYPE).finish()
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
        if let Some(total) = self.binding_shared() {
            write!(
                formatter,
                "all subjects together have used {} of {} {} under {}",
                total.used(),
                total.limit.max,
                this_window(total.limit.per()),
                policy.name,
            )?;
            if total.remaining() > 0 {
                write!(formatter, ", and {} asks for {}", subject, units.get())?;
            }
            return match total.ends_at {
                Some(ends_at) => {
                    write!(
                        formatter,
                        "; the next window begins at {}",
                        written(ends_at)
                    )
                }
                None => write!(formatter, "; used units of this limit do not return"),
            };
        }
        let Some(total) = self.binding() else {
            return Ok(());
        };
        write!(
            formatter,
            "{} has used {} of {} {} under {}",
            subject,
            total.used(),
            total.at_once(),
            this_window(total.per()),
            policy.name,
        )?;
        let topped_up = units.get().saturating_sub(self.own_units);
        if total.remaining() > 0 || topped_up > 0 {
            write!(formatter, " and asks for {}", units.get())?;
        }
        if topped_up > 0 {
            write!(formatter, ", of which its top-ups have {topped_up}")?;
        }
        let is_calendar = total.kind() == LimitKind::Calendar;
        match self.forecast.fits_at {
            Some(told) if is_calendar && total.resets_at() == Some(told) => {
                write!(formatter, "; the next window begins at {}", written(told))
            }
            Some(told) => write!(formatter, "; there is room again at {}", written(told)),
            None if total.per() == Per::Ever => {
                write!(formatter, "; used units of this limit do not return")
            }
            None => write!(formatter, "; nothing that is known now makes room for it"),
        }
    }
}

/// A claim under a policy that grants nothing now.
#[derive(Debug)]
pub struct InactiveAnswer {
    pub asked: Asked,
    pub why: Inactive,
    /// The earliest instant at which the claim would be granted.
    pub fits_at: Option<DateTime<Utc>>,
}

impl fmt::Display for InactiveAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inactive = describe_inactive(self.why);
        write!(
            formatter,
            "the policy {} is {inactive}",
            self.asked.policy.name
        )?;
        match self.fits_at {
            Some(fits_at) if self.why != Inactive::Before(fits_at) => {
                write!(formatter, "; there is room at {}", written(fits_at))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl InactiveAnswer {
    /// Seconds until the claim would be granted.
    pub fn retry_after(&self) -> Option<u64> {
        retry_after(self.fits_at, self.asked.now)
    }
}

/// `None` comes last.
fn compare_ends(one: Option<DateTime<Utc>>, two: Option<DateTime<Utc>>) -> Ordering {
    (one.is_none(), one).cmp(&(two.is_none(), two))
}

fn this_window(per: Per) -> String {
    let word = match per {
        Per::Calendar(Length::Minute) => "for this minute",
        Per::Calendar(Length::Hour) => "for this hour",
        Per::Calendar(Length::Day) => "for today",
        Per::Calendar(Length::Week) => "for this week",
        Per::Calendar(Length::Month) => "for this month",
        Per::Calendar(Length::Quarter) => "for this quarter",
        Per::Calendar(Length::Year) => "for this year",
        Per::Ever => "for ever",
        Per::Weeks(_) | Per::Elapsed(_) => return format!("per {per}"),
    };
    word.to_owned()
}

fn describe_inactive(inactive: Inactive) -> String {
    match inactive {
        Inactive::Paused => "paused".to_owned(),
        Inactive::Before(from) => format!("not active before {}", written(from)),
        Inactive::After(until) => format!("not active since {}", written(until)),
    }
}
