//! Lists of a policy's windows.

use chrono::{DateTime, NaiveDate, TimeDelta};

use crate::cursor::{self, cut_page};
use crate::day_span::Bound;
use crate::{InvalidCursor, ListFailure, Misfit, Record};
use domain::limit::per::Per;
use domain::local_days::{InForce, Lived};
use domain::policy::PolicyName;
use domain::record::RecordPlace;
use domain::window::{Calendar, Division, Window};
use domain::zone::Zone;

/// Which windows to list.
#[derive(Debug, Clone)]
pub struct WindowQuery {
    /// A word of the calendar, or the name of a limit of the policy.
    pub per: Per,
    /// From the window that contains this instant on; `None` means now.
    pub from: Option<Bound>,
    /// Windows that begin before this instant; `None` means one window.
    pub to: Option<Bound>,
}

/// A window, with its local date, and the version of the policy whose calendar has it.
#[derive(Debug, Clone)]
pub struct LivedWindow {
    pub window: Window,
    pub local_date: NaiveDate,
    pub policy_version: u32,
    pub zone: Zone,
}

impl Record {
    /// A page of at most `limit` windows that touch a span, oldest first, and the cursor of the
    /// next page. If the calendar or the limit changed in the middle of a window, the windows of both
    /// are listed.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn windows(
        &self,
        policy: &PolicyName,
        query: &WindowQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<LivedWindow>, Option<String>), ListFailure> {
        let list = format!("windows of {policy} {query:?}");
        let identity = self.ledger.identity();
        let now = self.instance.clock.now();
        let begins = query.from.unwrap_or(Bound::Instant(now));
        let from = ("from", Some(begins));
        let to = ("to", query.to);
        let [from, to] = self.instants(Some(policy), from, to).await?;
        let from = from.unwrap_or(now);
        let to = to.unwrap_or_else(|| {
            let next = from.checked_add_signed(TimeDelta::microseconds(1));
            next.unwrap_or(from)
        });
        // A cursor has the instant at which a calendar came into force, and the instant from which
        // its windows are still to be listed.
        let (since, after) = match cursor {
            Some(cursor) => {
                let both = i128::from_be_bytes(cursor::decode(identity, &list, cursor)?);
                let since = (both >> 64) as i64;
                let seconds = both as i64;
                (
                    since,
                    DateTime::from_timestamp(seconds, 0).ok_or(InvalidCursor)?,
                )
            }
            None => (i64::MIN, from),
        };
        let versions = self
            .ledger
            .record()
            .known_versions(policy, RecordPlace::LAST)
            .await?;
        if versions.is_empty() {
            return Err(ListFailure::UnknownPolicy(policy.clone()));
        }
        let divided = Lived::of(&versions, |version| {
            let calendar: &Calendar = &version.rule.calendar;
            Some((calendar, version.rule.division(query.per)?))
        });
        if divided.is_empty() {
            return Err(ListFailure::Misfit("per", Misfit::NoSuchWindows));
        }
        let lived = divided.iter();
        let lived = lived.filter(|lived| lived.from.timestamp_micros() >= since);
        let windows = lived.flat_map(|lived| {
            let is_begun = lived.from.timestamp_micros() == since;
            let from = if is_begun { after } else { from };
            let first = from.max(lived.from);
            let last = to.min(lived.until);
            let (calendar, division) = lived.common;
            let windows = calendar.windows(division, first, last);
            windows.map(move |window| (lived, window))
        });
        let mut windows: Vec<(&Lived<(&Calendar, Division)>, Window)> =
            windows.take(limit as usize + 1).collect();
        let next = cut_page(&mut windows, limit).map(|(lived, window)| {
            let since = i128::from(lived.from.timestamp_micros()) << 64;
            let both = since | i128::from(window.end.timestamp().cast_unsigned());
            cursor::encode(identity, &list, &both.to_be_bytes())
        });
        let in_force = InForce::of(&versions);
        let lived = |(lived, window): (&Lived<(&Calendar, Division)>, Window)| {
            let (calendar, division) = lived.common;
            // Several versions may have the windows: name the one of the window's beginning.
            let from = window.start.max(lived.from);
            let begun = in_force.iter().rev().find(|it| it.from <= from);
            LivedWindow {
                window,
                local_date: calendar.local_date(division, window),
                policy_version: begun.map_or(0, |it| it.version.version),
                zone: calendar.zone.clone(),
            }
        };
        Ok((windows.into_iter().map(lived).collect(), next))
    }
}
