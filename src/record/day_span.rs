//! Spans of time whose bounds may be local days.

use chrono::{DateTime, Days, NaiveDate, TimeDelta, Utc};

use crate::listed::{METADATA_DAYS_MOST, Misfit};
use crate::{ListFailure, Record};
use domain::claim::MetadataFilter;
use domain::identity::EntryId;
use domain::local_days::LocalDays;
use domain::policy::{Policy, PolicyName};
use domain::record::RecordPlace;
use domain::window::Length;
use ledger::{CountedSpan, LedgerError};

/// An instant, or the beginning of a local day of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    Instant(DateTime<Utc>),
    Day(NaiveDate),
}

impl Bound {
    /// The instant. `name` is that of the parameter, and `days` are those of the policy, if there is one.
    ///
    /// # Errors
    /// [`Misfit::DayWithoutPolicy`].
    fn start(
        self,
        name: &'static str,
        days: Option<&LocalDays<'_>>,
    ) -> Result<DateTime<Utc>, ListFailure> {
        match (self, days) {
            (Self::Instant(instant), _) => Ok(instant),
            (Self::Day(date), Some(days)) => Ok(days.start(date)),
            (Self::Day(_), None) => Err(ListFailure::Misfit(name, Misfit::DayWithoutPolicy)),
        }
    }
}

/// A span of time. Filters combine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DaySpan {
    /// This local day.
    pub on: Option<NaiveDate>,
    /// From this bound on.
    pub from: Option<Bound>,
    /// Up to this bound.
    pub to: Option<Bound>,
}

/// Instants: from one up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstantSpan {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
}

impl InstantSpan {
    pub const ALL: Self = Self {
        from: DateTime::<Utc>::MIN_UTC,
        to: DateTime::<Utc>::MAX_UTC,
    };

    /// The ids of what counts in the span.
    pub fn ids(self) -> CountedSpan {
        CountedSpan(EntryId::first_from(self.from), EntryId::first_from(self.to))
    }
}

/// Checks that a search by metadata has a policy and a short span.
///
/// # Errors
/// [`Misfit::MetadataWithoutSpan`].
pub fn check_metadata(
    metadata: Option<&MetadataFilter>,
    policy: Option<&Policy>,
    span: Option<InstantSpan>,
) -> Result<(), ListFailure> {
    // Local days can make the span some hours longer.
    let most = TimeDelta::days(METADATA_DAYS_MOST + 1);
    let is_short = |span: InstantSpan| span.to - span.from < most;
    let is_bounded = policy.is_some() && span.is_some_and(is_short);
    if metadata.is_none() || is_bounded {
        Ok(())
    } else {
        Err(ListFailure::Misfit(METADATA, Misfit::MetadataWithoutSpan))
    }
}

/// The name of the parameter.
const METADATA: &str = "metadata.<name>";

impl Record {
    /// The instants of two bounds, each with the name of its parameter. Its local days are those of the
    /// policy, as they are known now.
    ///
    /// # Errors
    /// As [`Record::counted_span`].
    pub(crate) async fn instants(
        &self,
        policy: Option<&PolicyName>,
        (from_name, from): (&'static str, Option<Bound>),
        (to_name, to): (&'static str, Option<Bound>),
    ) -> Result<[Option<DateTime<Utc>>; 2], ListFailure> {
        let is_day = |bound: &Option<Bound>| matches!(bound, Some(Bound::Day(_)));
        let versions = match policy.filter(|_| is_day(&from) || is_day(&to)) {
            Some(policy) => {
                self.listed_policy(policy).await?;
                let as_of = RecordPlace::LAST;
                self.ledger.record().known_versions(policy, as_of).await?
            }
            None => Vec::new(),
        };
        let days = policy.map(|_| LocalDays::of(&versions));
        let start = |name, bound: Bound| bound.start(name, days.as_ref());
        let from = from.map(|bound| start(from_name, bound)).transpose()?;
        let to = to.map(|bound| start(to_name, bound)).transpose()?;
        match (from, to) {
            (Some(from), Some(to)) if to <= from => {
                Err(ListFailure::Misfit(to_name, Misfit::EmptySpan))
            }
            instants => Ok(instants.into()),
        }
    }

    /// The local day of a bound. An instant must begin a local day of the policy.
    ///
    /// # Errors
    /// [`ListFailure::Misfit`]; [`ListFailure::Failure`].
    pub(crate) async fn local_day(
        &self,
        policy: Option<&PolicyName>,
        name: &'static str,
        bound: Option<Bound>,
    ) -> Result<Option<NaiveDate>, ListFailure> {
        let instant = match bound {
            None => return Ok(None),
            Some(Bound::Day(date)) => return Ok(Some(date)),
            Some(Bound::Instant(instant)) => instant,
        };
        let policy = policy.ok_or(ListFailure::Misfit(name, Misfit::DayWithoutPolicy))?;
        let policy = self.listed_policy(policy).await?;
        let calendar = &policy.rule.calendar;
        let window = calendar.window(Length::Day, instant);
        if window.start == instant {
            Ok(Some(calendar.local_date(Length::Day, window)))
        } else {
            Err(ListFailure::Misfit(name, Misfit::WithinADay))
        }
    }

    /// The versions of a policy that were known at a place of the record. A policy that was not known
    /// has no entries up to there, so any days do: those of now.
    async fn versions_of_days(
        &self,
        policy: &PolicyName,
        as_of: RecordPlace,
    ) -> Result<Vec<Policy>, LedgerError> {
        let known = self.ledger.record().known_versions(policy, as_of).await?;
        if known.is_empty() {
            return self
                .ledger
                .record()
                .known_versions(policy, RecordPlace::LAST)
                .await;
        }
        Ok(known)
    }

    /// The instants of a span. Its local days are those of the policy, by the versions that were in
    /// force then, as far as they were known at a place of the record.
    ///
    /// # Errors
    /// [`ListFailure::Misfit`] for a local day without a policy, and for a span that has no instant;
    /// [`ListFailure::Failure`].
    pub(crate) async fn counted_span(
        &self,
        span: &DaySpan,
        policy: Option<&Policy>,
        as_of: RecordPlace,
    ) -> Result<Option<InstantSpan>, ListFailure> {
        if *span == DaySpan::default() {
            return Ok(None);
        }
        let versions = match policy {
            Some(policy) => self.versions_of_days(&policy.name, as_of).await?,
            None => Vec::new(),
        };
        let days = policy.map(|_| LocalDays::of(&versions));
        let start = |name, bound: Bound| bound.start(name, days.as_ref());
        let next = |date: NaiveDate| date.checked_add_days(Days::new(1)).unwrap_or(date);
        let mut counted = InstantSpan::ALL;
        for (name, bound) in [("on", span.on.map(Bound::Day)), ("from", span.from)] {
            if let Some(bound) = bound {
                counted.from = counted.from.max(start(name, bound)?);
            }
        }
        let end = span.on.map(next).map(Bound::Day);
        for (name, bound) in [("on", end), ("to", span.to)] {
            if let Some(bound) = bound {
                counted.to = counted.to.min(start(name, bound)?);
            }
        }
        // A day that the zone skipped has no instants. Any other empty span is a wrong question.
        let bounds = [span.on.is_some(), span.from.is_some(), span.to.is_some()];
        let has_two = bounds.iter().filter(|is_given| **is_given).count() > 1;
        if has_two && counted.to <= counted.from {
            let name = if span.to.is_some() { "to" } else { "from" };
            return Err(ListFailure::Misfit(name, Misfit::EmptySpan));
        }
        Ok(Some(counted))
    }
}
