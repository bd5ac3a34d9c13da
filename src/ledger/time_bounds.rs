//! The bounds of the instants of entries: an append refuses an instant that is too far from the
//! clock of its store. PostgreSQL checks them in the statement that appends, so they cost no round
//! trip. SQLite has no clock, so this process checks them by its own.
//!
//! They are a belt. An instance whose clock is off notices it at the next look, and decides nothing
//! from then on. The bounds refuse what it decides until then, and what a wrong last line entails.

use chrono::{DateTime, TimeDelta, Utc};

use super::Draft;
use super::fence::Untimely;
use domain::grant::Entry;
use domain::kind::Dated;
use host::clock::Clock;

/// How far the instant of an entry may be from the clock of its store.
#[derive(Debug, Clone)]
pub struct TimeBounds {
    pub tolerance: TimeDelta,
    /// The longest time from a decision until its statement begins.
    pub delay: TimeDelta,
    /// The clock of a store that has none of its own.
    pub clock: Clock,
}

/// The instants between which the clock of the store must be to take some drafts. An end that is
/// missing bounds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeSpan {
    pub from: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
}

impl TimeBounds {
    /// The instants at which the store may take all of these drafts.
    pub fn span(&self, drafts: &[&Draft]) -> TimeSpan {
        drafts.iter().map(|draft| self.span_of(draft)).fold(
            TimeSpan::default(),
            |all: TimeSpan, next: TimeSpan| TimeSpan {
                from: all.from.max(next.from),
                until: match (all.until, next.until) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                },
            },
        )
    }

    fn span_of(&self, draft: &Draft) -> TimeSpan {
        let at = |entry: &Entry| entry.line.at;
        let latest = draft.entries.iter().map(at).max();
        let stamped = draft.entries.iter().filter(|entry| is_of_the_clock(entry));
        let earliest = stamped.map(at).min();
        let patience = self.tolerance + self.delay;
        TimeSpan {
            from: latest.and_then(|at| at.checked_sub_signed(self.tolerance)),
            until: earliest.and_then(|at| at.checked_add_signed(patience)),
        }
    }

    /// Why the store refuses a draft when its clock shows `theirs`; `None` if it does not.
    pub fn untimely(&self, draft: &Draft, theirs: DateTime<Utc>) -> Option<Untimely> {
        let span = self.span_of(draft);
        let is_early = span.from.is_some_and(|from| theirs < from);
        if let (true, Some(last)) = (is_early, &draft.after)
            && last.at - theirs > self.tolerance
        {
            return Some(Untimely::LastLine(last.at));
        }
        let entries = draft.entries.iter();
        let off = match (is_early, span.until.is_some_and(|until| theirs > until)) {
            (true, _) => entries.map(|entry| entry.line.at).max(),
            (false, true) => {
                let stamped = entries.filter(|entry| is_of_the_clock(entry));
                stamped.map(|entry| entry.line.at).min()
            }
            (false, false) => None,
        };
        off.map(|at| Untimely::Clock(at - theirs))
    }
}

/// Whether the clock has just stamped an entry. The others are rightly old: a lapse is at the end of
/// its hold, and a grant that Redis decided is at the instant of that decision.
fn is_of_the_clock(entry: &Entry) -> bool {
    entry.kind.facts().dated != Dated::AtEndOfHold && entry.provisional.is_none()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use domain::grant::{EntryKind, Line, Provisional};
    use domain::identity::{AccountId, EntryId};
    use domain::samples::{policy, work};
    use domain::work::Task;

    const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn line(seconds: i64) -> Line {
        Line {
            number: 1,
            at: at(seconds),
            policy_version: 1,
            lapses_at: None,
            calendar: None,
            top_ups: None,
            totals: Vec::new().into(),
        }
    }

    fn grant(seconds: i64) -> Entry {
        let policy = policy(1, "UTC", &[(3, "day")]).into();
        work(Task::Claim(None), policy, ACCOUNT).entry(line(seconds))
    }

    fn lapse(seconds: i64) -> Entry {
        Entry {
            kind: EntryKind::Lapse {
                of: EntryId::first_at(at(0)),
            },
            ..grant(seconds)
        }
    }

    fn counted(seconds: i64) -> Entry {
        Entry {
            provisional: Some(Provisional::Within),
            ..grant(seconds)
        }
    }

    fn draft(after: Option<i64>, entries: Vec<Entry>) -> Draft {
        Draft {
            shared: Vec::new(),
            account: ACCOUNT,
            component: ACCOUNT,
            policy: policy(1, "UTC", &[(3, "day")]).id,
            subject: None,
            after: after.map(line),
            entries,
        }
    }

    fn bounds() -> TimeBounds {
        TimeBounds {
            tolerance: TimeDelta::seconds(10),
            delay: TimeDelta::seconds(2),
            clock: Clock::system(),
        }
    }

    #[test]
    fn instants_near_the_clock_are_taken() {
        let bounds = bounds();
        for seconds in [-12, 0, 10] {
            let draft = draft(None, vec![grant(seconds)]);
            assert_eq!(bounds.untimely(&draft, at(0)), None);
        }
        for seconds in [-13, 11, -86_400, 365 * 86_400] {
            let draft = draft(None, vec![grant(seconds)]);
            let off = TimeDelta::seconds(seconds);
            assert_eq!(bounds.untimely(&draft, at(0)), Some(Untimely::Clock(off)));
        }
    }

    #[test]
    fn what_is_rightly_old_is_taken_and_nothing_from_the_future() {
        let bounds = bounds();
        for old in [lapse, counted] {
            let days_ago = draft(None, vec![old(-9 * 86_400), grant(0)]);
            assert_eq!(bounds.untimely(&days_ago, at(0)), None);
            let ahead = draft(None, vec![old(11)]);
            let off = Untimely::Clock(TimeDelta::seconds(11));
            assert_eq!(bounds.untimely(&ahead, at(0)), Some(off));
        }
    }

    #[test]
    fn a_last_line_in_the_future_is_named() {
        let year = 365 * 86_400;
        let draft = draft(Some(year), vec![grant(year)]);
        let told = bounds().untimely(&draft, at(0));
        assert_eq!(told, Some(Untimely::LastLine(at(year))));
    }

    /// The store compares its clock with the span alone.
    #[test]
    fn the_span_of_drafts_says_the_same_as_each_draft() {
        let bounds = bounds();
        let all: Vec<Draft> = [grant(0), grant(-5), lapse(-900), counted(3)]
            .map(|entry| draft(None, vec![entry]))
            .into();
        let span = bounds.span(&all.iter().collect::<Vec<_>>());
        let expected = TimeSpan {
            from: Some(at(-7)),
            until: Some(at(7)),
        };
        assert_eq!(span, expected);
        for now in -30..30 {
            let now = at(now);
            let is_in_span = (at(-7)..=at(7)).contains(&now);
            let is_timely = all
                .iter()
                .all(|draft| bounds.untimely(draft, now).is_none());
            assert_eq!(is_in_span, is_timely, "{now}");
        }
        assert_eq!(bounds.span(&[]), TimeSpan::default());
    }
}
