//! A time zone: the questions that windows ask about its rules.
//!
//! The rules come from the tz database (`zones`). jiff knows their form; everything that is asked here uses
//! the types of chrono.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset, NaiveDateTime, Offset as _, TimeDelta, Utc};
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

/// The rules of a time zone under one name.
///
/// Zones are equal if their names are equal: the rules of one name differ only between versions of
/// the tz database. A clone is cheap and shares the rules.
///
/// Nothing here panics. Instants outside the years −9999 to 9999 have the offset of the nearest
/// instant inside, and results outside the range of chrono are the nearest inside.
#[derive(Clone)]
pub struct Zone {
    name: Arc<str>,
    rules: TimeZone,
}

impl Zone {
    pub(super) fn new(name: &str, rules: TimeZone) -> Zone {
        Zone {
            name: name.into(),
            rules,
        }
    }

    /// The canonical name: the spelling of IANA, or an offset such as `+08:00`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The date and time that clocks in the zone show at `instant`.
    pub fn local(&self, instant: DateTime<Utc>) -> NaiveDateTime {
        to_local(instant, self.offset(instant))
    }

    /// How far clocks in the zone are ahead of UTC at `instant`.
    pub fn offset(&self, instant: DateTime<Utc>) -> FixedOffset {
        to_fixed_offset(self.rules.to_offset(to_timestamp(instant)))
    }

    /// The first instant whose local date-time is `local` or later.
    ///
    /// If clocks show `local` twice, this is the first time. If clocks skip it, this is the instant
    /// of the change.
    pub fn first_instant(&self, local: NaiveDateTime) -> DateTime<Utc> {
        // An offset is less than a day: before this instant clocks show less than `local`.
        let from = saturating_sub(local.and_utc(), DAY);
        self.spans(from)
            .map(|span| (to_instant(local, span.offset).max(span.start), span.end))
            .find(|(reached, end)| reached < end)
            .map_or(DateTime::<Utc>::MAX_UTC, |(reached, _)| reached)
    }

    /// The latest date and time that clocks in the zone have shown up to `instant`.
    ///
    /// This is [`Zone::local`], but it never runs backwards: when clocks are set back, it stays at
    /// the last nanosecond before the change until clocks have caught up. Invariant: for a `local`
    /// of whole seconds, `local <= latest_local(t)` exactly if `first_instant(local) <= t`.
    pub fn latest_local(&self, instant: DateTime<Utc>) -> NaiveDateTime {
        // An offset is less than a day: clocks showed less before this instant than they show now.
        let from = saturating_sub(instant, DAY * 2);
        self.spans(from)
            .take_while(|span| span.start <= instant)
            .map(|span| {
                let last = saturating_sub(span.end, TimeDelta::nanoseconds(1));
                to_local(instant.min(last), span.offset)
            })
            .max()
            .unwrap_or_else(|| self.local(instant))
    }

    /// The spans of one offset each, in order. The first span contains `from` and is cut to start
    /// there.
    fn spans(&self, from: DateTime<Utc>) -> impl Iterator<Item = Span> {
        let mut changes = self.rules.following(to_timestamp(from));
        let mut next = Some((from, self.offset(from)));
        std::iter::from_fn(move || {
            let (start, offset) = next?;
            // jiff repeats the last change for ever if the file of a zone has no rule for the time
            // after it.
            next = changes
                .next()
                .map(|change| {
                    (
                        from_timestamp(change.timestamp()),
                        to_fixed_offset(change.offset()),
                    )
                })
                .filter(|(end, _)| *end > start);
            let end = next.map_or(DateTime::<Utc>::MAX_UTC, |(end, _)| end);
            Some(Span { start, end, offset })
        })
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name).finish()
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

/// A half-open span of instants in which clocks keep one offset.
struct Span {
    start: DateTime<Utc>,
    end: DateTime<Utc>,
    offset: FixedOffset,
}

const DAY: TimeDelta = TimeDelta::days(1);

fn saturating_sub(instant: DateTime<Utc>, span: TimeDelta) -> DateTime<Utc> {
    instant
        .checked_sub_signed(span)
        .unwrap_or(DateTime::<Utc>::MIN_UTC)
}

fn to_local(instant: DateTime<Utc>, offset: FixedOffset) -> NaiveDateTime {
    let utc = instant.naive_utc();
    utc.checked_add_offset(offset).unwrap_or(utc)
}

fn to_instant(local: NaiveDateTime, offset: FixedOffset) -> DateTime<Utc> {
    local.checked_sub_offset(offset).unwrap_or(local).and_utc()
}

/// The second of the instant. An offset does not change within a second.
fn to_timestamp(instant: DateTime<Utc>) -> Timestamp {
    let nearest = if instant.timestamp() < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    Timestamp::from_second(instant.timestamp()).unwrap_or(nearest)
}

fn from_timestamp(timestamp: Timestamp) -> DateTime<Utc> {
    DateTime::from_timestamp(timestamp.as_second(), 0).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// No zone is a day or more away from UTC; chrono could not represent it.
fn to_fixed_offset(offset: Offset) -> FixedOffset {
    FixedOffset::east_opt(offset.seconds()).unwrap_or_else(|| Utc.fix())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_rule_for_the_future_keeps_its_last_offset() {
        // Version 1 of RFC 9636: UTC until 1970-01-12 13:46:40, one hour ahead afterwards.
        let mut file = b"TZif".to_vec();
        file.extend([0; 16]);
        for count in [0, 0, 0, 1, 2, 4_u32] {
            file.extend(count.to_be_bytes());
        }
        file.extend(1_000_000_i32.to_be_bytes());
        file.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0x0e, 0x10, 0, 0]);
        file.extend(b"ABC\0");
        let zone = Zone::new("Test", TimeZone::tzif("Test", &file).unwrap());
        let instant: DateTime<Utc> = "2024-01-01T00:00:00Z".parse().unwrap();
        let local = instant.naive_utc() + TimeDelta::hours(1);
        assert_eq!(zone.latest_local(instant), local);
        assert_eq!(zone.first_instant(local), instant);
    }
}
