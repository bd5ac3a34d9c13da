//! The calendar of an account: the policy's, with what the account has of its own.
//!
//! A window that has begun keeps its end: a calendar that moves divides the time after it. The window that
//! follows can begin before that end, and counts what was used in it already. So a move hands out nothing
//! twice, and takes nothing away.

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::almanac::Almanac;
use super::grant::Line;
use super::limit::total::{LimitState, Total};
use super::own_calendar::{CalendarOwner, OwnCalendar};
use super::policy::Rule;
use super::window::{Calendar, Length, Window};

/// The zone and the anchor that an account has of its own.
pub(super) fn calendar_of(last: Option<&Line>) -> Option<&Arc<OwnCalendar>> {
    last.and_then(|line| line.calendar.as_ref())
}

impl Rule {
    /// The zone and the anchor that an account has of its own from its next line on, after those that it had.
    pub fn own_calendar(
        &self,
        had: Option<&Arc<OwnCalendar>>,
        asked: Option<&OwnCalendar>,
        at: DateTime<Utc>,
    ) -> Option<Arc<OwnCalendar>> {
        if !self.calendar_owner.lets_subjects_own() {
            return had.cloned();
        }
        let own = match (had, asked) {
            (Some(had), Some(asked)) => Some(Arc::new(had.changed_by(asked))),
            (None, Some(asked)) => Some(Arc::new(asked.clone())),
            (had, None) => had.cloned(),
        };
        let has_anchor = own.as_ref().is_some_and(|own| own.anchor.is_some());
        if self.calendar_owner == CalendarOwner::Subject || has_anchor {
            return own;
        }
        let almanac = self.almanac(own.as_deref());
        let day = almanac.window(Length::Day, at);
        Some(Arc::new(OwnCalendar {
            anchor: Some(almanac.local_date(Length::Day, day)),
            zone: own.and_then(|own| own.zone.clone()),
        }))
    }

    /// The calendar after the last line of an account, and what a claim tells of it.
    pub(super) fn almanac_after(
        &self,
        last: Option<&Line>,
        asked: Option<&OwnCalendar>,
        at: DateTime<Utc>,
    ) -> Cow<'_, Almanac> {
        if !self.calendar_owner.lets_subjects_own() {
            return Cow::Borrowed(&self.calendar);
        }
        let own = self.own_calendar(calendar_of(last), asked, at);
        self.almanac(own.as_deref())
    }

    /// The calendar of an account.
    pub fn almanac(&self, own: Option<&OwnCalendar>) -> Cow<'_, Almanac> {
        match own {
            Some(own) if self.calendar_owner.lets_subjects_own() => {
                Cow::Owned(Almanac::from(Calendar {
                    zone: own.zone.as_ref().unwrap_or(&self.calendar.zone).clone(),
                    anchor: own.anchor,
                    ..Calendar::clone(&self.calendar)
                }))
            }
            Some(_) | None => Cow::Borrowed(&self.calendar),
        }
    }

    /// The window of a limit that has begun by the last line of an account, and goes on whatever the calendar
    /// says now.
    pub fn begun_window(
        &self,
        unused: &Total,
        last: Option<&Line>,
        at: DateTime<Utc>,
    ) -> Option<Window> {
        let last = last.filter(|_| self.calendar_owner.lets_subjects_own())?;
        let own = unused.window_use()?;
        let uses = last.totals.iter().filter_map(Total::window_use);
        let mut begun = uses.filter(|it| it.division == own.division && it.window.contains(at));
        begun.next().map(|begun| begun.window)
    }

    /// The first instant at which more than the ends of windows moves the totals: the end of a window that has
    /// begun under another calendar than the one that counts after the last line of an account, if `asked` moves
    /// it, or the next day, if the next entry begins the anchor, and so another day another one.
    pub fn turns_at(
        &self,
        last: Option<&Line>,
        asked: Option<&OwnCalendar>,
        totals: &[Total],
        at: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        if !self.calendar_owner.lets_subjects_own() {
            return None;
        }
        let almanac = self.almanac_after(last, asked, at);
        let had = calendar_of(last).map(|had| &**had);
        let begins_anchor = self.calendar_owner == CalendarOwner::FirstGrant
            && [had, asked]
                .into_iter()
                .flatten()
                .all(|own| own.anchor.is_none());
        let ends = totals.iter().filter_map(|total| {
            let LimitState::Calendar(begun) = &total.state else {
                return None;
            };
            let window = almanac.window(begun.division?, at);
            if window != begun.window {
                return (at < begun.window.end).then_some(begun.window.end);
            }
            let day = almanac.window(Length::Day, at);
            (begins_anchor && total.used() > 0 && day.end < window.end).then_some(day.end)
        });
        ends.min()
    }
}
