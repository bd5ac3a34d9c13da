//! The check of the ledger itself. The numbers of an account have no gap, its time does not run
//! backwards, and each total is the sum of the entries in its window.
//!
//! A total is compared with the total on the line before, so an account of any length is checked
//! with one line in memory. A flaw is reported once, at the entry with the flaw: the entries after
//! it were decided on it.

use super::account::top_ups_at;
use super::account_totals::next_number;
use super::grant::{Entry, EntryKind, Line};
use super::kind::Dated;
use super::limit::total::Total;
use super::past::{Past, WantedPast, total_after, total_with};
use super::reconciliation::Figures;
use super::top_up::{TopUp, TopUps};

/// A flaw of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The entry should have this number.
    Gap(u64),
    /// The instant of the entry is before the entry before it, or differs from the instant in its
    /// id.
    TimeBackwards,
    /// The calendar of the account is another one than before, and the entry moves none.
    WrongCalendar,
    /// The top-ups on the line do not follow from the line before and the entry.
    WrongTopUps,
    /// These totals are not the sums of the entries up to this one.
    WrongTotals(Vec<Figures>),
}

/// Checks the entries of one account, in the order of their numbers.
#[derive(Debug, Default)]
pub struct AccountAudit {
    /// The number of the entry before; 0 before the first entry.
    number: u64,
    before: Before,
}

/// The line before the next entry.
#[derive(Debug, Default)]
enum Before {
    #[default]
    Nothing,
    Line(Line),
    /// The entry before could not be read: the totals of the next entry are not checked.
    Unreadable,
}

impl Before {
    fn line(&self) -> Option<&Line> {
        match self {
            Self::Line(line) => Some(line),
            Self::Nothing | Self::Unreadable => None,
        }
    }
}

impl AccountAudit {
    /// The part of the past that [`AccountAudit::check`] needs, and the last line that it ends
    /// with. `past` is what was read so far.
    pub fn unknown(&self, entry: &Entry, past: &Past) -> Option<(&Line, WantedPast)> {
        let before = self.before.line()?;
        let mut wanted = WantedPast::default();
        for total in entry.line.totals.iter() {
            if let Err(more) = self.expected(total, entry, past) {
                wanted.add(more);
            }
        }
        (!wanted.is_empty()).then_some((before, wanted))
    }

    /// Checks the next entry and returns its flaws. A total is not checked if the past does not
    /// have what it needs.
    pub fn check(&mut self, entry: &Entry, past: &Past) -> Vec<Flaw> {
        // 1. The number must be the next one.
        let mut flaws = self.count(entry.line.number);
        // 2. The instant must not be before the entry before, and must be the instant in the id.
        //    A reset is later.
        let is_reset = matches!(entry.kind, EntryKind::Reset { .. });
        let is_before =
            |before: &Line| entry.line.at < before.at || is_reset && entry.line.at == before.at;
        if self.before.line().is_some_and(is_before) || !is_of_its_instant(entry) {
            flaws.push(Flaw::TimeBackwards);
        }
        // 3. A claim and an admin move the calendar of an account, and nothing else does.
        if self
            .before
            .line()
            .is_some_and(|before| has_other_calendar(before, entry))
        {
            flaws.push(Flaw::WrongCalendar);
        }
        // 4. The top-ups and each total must follow from the line before and this entry.
        if !matches!(self.before, Before::Unreadable) {
            if entry.line.top_ups != top_ups_after(self.before.line(), entry).on_line() {
                flaws.push(Flaw::WrongTopUps);
            }
            let wrong = |total: &Total| {
                let expected = self.expected(total, entry, past).ok()?;
                (*total != expected).then(|| Figures {
                    per: total.per(),
                    window: total.span(entry.line.at),
                    found: Some(total.used()),
                    expected: Some(expected.used()),
                })
            };
            let wrong: Vec<Figures> = entry.line.totals.iter().filter_map(wrong).collect();
            if !wrong.is_empty() {
                flaws.push(Flaw::WrongTotals(wrong));
            }
        }
        // 5. The next entry is compared with this one, even if it has a flaw.
        self.before = Before::Line(entry.line.clone());
        flaws
    }

    /// The expected total of the next entry.
    fn expected(&self, total: &Total, entry: &Entry, past: &Past) -> Result<Total, WantedPast> {
        let last = self.before.line();
        let at = entry.line.at;
        let unused = total.emptied(at, next_number(last));
        total_with(total_after(unused, last, past, at)?, last, entry, past)
    }

    /// Starts with an entry after a recorded cut: the entries before it were archived and dropped.
    /// The totals of this entry are not checked.
    pub fn begin_after_cut(&mut self, number: u64) {
        if self.number == 0 {
            self.begin_after(number.saturating_sub(1), None);
        }
    }

    /// Starts after an entry that was checked before: with its line, if it can be read.
    pub fn begin_after(&mut self, number: u64, line: Option<Line>) {
        self.number = number;
        self.before = line.map_or(Before::Unreadable, Before::Line);
    }

    /// Skips an entry that cannot be read.
    pub fn pass_over(&mut self, number: u64) -> Vec<Flaw> {
        self.before = Before::Unreadable;
        self.count(number)
    }

    fn count(&mut self, number: u64) -> Vec<Flaw> {
        let expected = self.number + 1;
        self.number = number;
        if number == expected {
            Vec::new()
        } else {
            vec![Flaw::Gap(expected)]
        }
    }
}

/// Whether an entry that moves no calendar has another one than the line before it. It can begin an anchor.
fn has_other_calendar(before: &Line, entry: &Entry) -> bool {
    let moves = matches!(entry.kind, EntryKind::Grant { .. } | EntryKind::Calendar);
    let had = before.calendar.as_deref().cloned().unwrap_or_default();
    let has = entry.line.calendar.as_deref().cloned().unwrap_or_default();
    let has_begun = had.anchor.is_none() && had.zone == has.zone;
    !moves && had != has && !has_begun
}

/// The top-ups after an entry that moves of them what its line says, as far as it can.
fn top_ups_after(before: Option<&Line>, entry: &Entry) -> TopUps {
    let mut expected = top_ups_at(before, entry.line.at);
    let told = entry.line.top_ups.as_deref();
    let moved = || told.into_iter().flat_map(TopUps::draws);
    match entry.kind {
        EntryKind::TopUp => {
            if let Some(given) = entry.top_up() {
                expected.add(TopUp::new(entry.id, entry.units, given.ends_at));
            }
        }
        EntryKind::TopUpReversal { of } => {
            expected
                .each
                .retain(|top_up| top_up.id != of || top_up.left != entry.units.get());
        }
        EntryKind::Grant { .. } => moved().for_each(|draw| expected.take(draw)),
        // What returned to a top-up that has ended is on no line.
        _ if entry.kind.gives_back().is_some() => {
            expected.give_back(moved());
            let aside = told.map_or(0, |told| told.aside);
            expected.aside = aside.clamp(expected.aside, entry.units.get());
        }
        _ => {}
    }
    expected
}

/// Whether the entry has the instant of its id. An entry that was appended afterwards may be later.
fn is_of_its_instant(entry: &Entry) -> bool {
    let own = entry.id.at();
    let is_later = entry.provisional.is_some() || entry.kind.facts().dated == Dated::ByAuthor;
    entry.line.at == own || is_later && entry.line.at > own
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chrono::{DateTime, TimeDelta, Utc};
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::claim::Units;
    use crate::grant::Direction;
    use crate::histories::{History, What, any_calendar, assert_every_kind_is_made, past, plant};
    use crate::kind::Kind;
    use crate::own_calendar::CalendarOwner;
    use crate::samples::policy_of;

    /// A step of a history: hours that pass, the policy that is active then, units, and the action.
    #[derive(Debug, Clone)]
    struct Step {
        hours: i64,
        rule: usize,
        units: u64,
        what: What,
    }

    const RULES: usize = 13;

    /// The entries of a history. It starts with a grant.
    fn history(steps: &[Step]) -> Vec<Entry> {
        let rules: [(&str, &[&str]); RULES] = [
            ("UTC", &["30 per day", "90 per week"]),
            ("GMT+8", &["30 per day"]),
            ("America/New_York", &["20 per hour", "200 per month"]),
            ("UTC", &["500 per year", "30 per day"]),
            ("UTC", &["60 per ever", "20 per 24h from_first_claim"]),
            ("UTC", &["20 per 24h sliding", "60 per 168h rate 20"]),
            (
                "UTC",
                &["20 per 24h from_first_claim", "60 per 168h sliding 12h"],
            ),
            ("UTC", &["7 per 24h rate", "30 per day", "70 per 168h rate"]),
            ("UTC", &["11 per 24h rate", "20 per 168h rate 30"]),
            ("America/New_York", &["20 per 6h calendar", "90 per week"]),
            ("UTC", &["80 per 2 weeks from 2026-10-21", "30 per day"]),
            ("GMT+8", &["30 per day", "90 per week", "200 per month"]),
            ("UTC", &["80 per 2 weeks from 2026-10-21", "30 per day"]),
        ];
        let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
        let mut history = History::default();
        for (version, step) in (1..).zip([&grant(1)].into_iter().chain(steps)) {
            now += TimeDelta::hours(step.hours);
            let (zone, limits) = rules[step.rule];
            let mut policy = policy_of(version, zone, limits);
            policy.rule.calendar_owner = match step.rule {
                11 => CalendarOwner::Subject,
                12 => CalendarOwner::FirstGrant,
                _ => CalendarOwner::Policy,
            };
            let units = Units::new(step.units.into()).unwrap();
            history.step(&policy, units, &step.what, now);
        }
        history.entries
    }

    fn grant(units: u64) -> Step {
        Step {
            hours: 0,
            rule: 1,
            units,
            what: What::Grant,
        }
    }

    fn hours(least: i64) -> impl Strategy<Value = TimeDelta> {
        (least..60).prop_map(TimeDelta::hours)
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let direction = prop_oneof![Just(Direction::Up), Just(Direction::Down)];
        let what = prop_oneof![
            4 => Just(What::Grant),
            3 => hours(1).prop_map(What::Hold),
            2 => hours(0).prop_map(What::Record),
            2 => any::<Index>().prop_map(What::Reverse),
            2 => any::<Index>().prop_map(What::Confirm),
            2 => (direction, hours(0)).prop_map(|(direction, ago)| What::Adjust(direction, ago)),
            1 => proptest::option::of(any::<Index>()).prop_map(What::Reset),
            2 => any_calendar().prop_map(What::GrantIn),
            1 => any_calendar().prop_map(What::MoveTo),
            2 => hours(1).prop_map(What::TopUp),
            1 => any::<Index>().prop_map(What::EndTopUp),
        ];
        // Often the calendars are those of subjects.
        let rule = prop_oneof![2 => 0usize..RULES, 1 => 11usize..RULES];
        let step = (0i64..30, rule, 1u64..6, what);
        let step = step.prop_map(|(hours, rule, units, what)| Step {
            hours,
            rule,
            units,
            what,
        });
        proptest::collection::vec(step, 3..60)
    }

    #[test]
    fn the_steps_make_every_kind_of_entry() {
        assert_every_kind_is_made(&Kind::ALL, steps(), |steps| history(&steps));
    }

    /// All flaws, each with the number of its entry.
    fn audit(entries: &[Entry]) -> Vec<(u64, Flaw)> {
        audit_from(AccountAudit::default(), entries, entries)
    }

    /// The flaws of what is left of `all`.
    fn audit_from(mut audit: AccountAudit, all: &[Entry], entries: &[Entry]) -> Vec<(u64, Flaw)> {
        let mut flaws = Vec::new();
        for entry in entries {
            let mut known = Past::default();
            while let Some((line, wanted)) = audit.unknown(entry, &known) {
                known.extend(past(all, line.number, &wanted));
            }
            let found = audit.check(entry, &known);
            flaws.extend(found.into_iter().map(|flaw| (entry.line.number, flaw)));
        }
        flaws
    }

    /// Grants of one day: one unit, and then this many units each.
    fn day_of(units: &[u64]) -> Vec<Entry> {
        let steps: Vec<Step> = units.iter().map(|units| grant(*units)).collect();
        history(&steps)
    }

    /// Changes the usage of the first limit in an entry.
    fn change(entry: &mut Entry, used: impl Fn(u64) -> u64) {
        let total = &mut Arc::make_mut(&mut entry.line.totals)[0];
        total.set_used(used(total.used()));
    }

    #[test]
    fn a_wrong_total_is_told_once_with_its_figures() {
        let mut entries = day_of(&[2, 3, 4]);
        // As if perdiem had continued from a total that somebody lowered.
        for entry in &mut entries[1..] {
            change(entry, |used| used - 1);
        }
        let total = &entries[1].line.totals[0];
        let figures = Figures {
            per: total.per(),
            window: total.window().unwrap(),
            found: Some(2),
            expected: Some(3),
        };
        assert_eq!(audit(&entries), [(2, Flaw::WrongTotals(vec![figures]))]);
    }

    #[test]
    fn a_gap_is_told_with_the_number_that_is_missing() {
        let mut entries = day_of(&[1, 1, 1]);
        entries.remove(1);
        let flaws = audit(&entries);
        assert_eq!(flaws[0], (3, Flaw::Gap(2)));
        assert!(matches!(&flaws[1..], [(3, Flaw::WrongTotals(_))]));
        // The first entry too.
        entries.remove(0);
        assert_eq!(audit(&entries)[0], (3, Flaw::Gap(1)));
    }

    #[test]
    fn an_entry_that_cannot_be_read_leaves_the_rest_to_be_checked() {
        let mut entries = day_of(&[2, 3, 4]);
        change(&mut entries[3], |_| 1);
        let mut audit = AccountAudit::default();
        let none = Past::default();
        assert!(audit.check(&entries[0], &none).is_empty());
        assert!(audit.pass_over(2).is_empty());
        assert!(audit.unknown(&entries[2], &none).is_none());
        assert!(audit.check(&entries[2], &none).is_empty());
        assert_eq!(audit.check(&entries[3], &none).len(), 1);
        assert_eq!(audit.pass_over(6), [Flaw::Gap(5)]);
    }

    #[test]
    fn time_that_runs_backwards_is_told() {
        let mut entries = day_of(&[1]);
        entries[1].line.at -= TimeDelta::microseconds(1);
        assert_eq!(audit(&entries), [(2, Flaw::TimeBackwards)]);
    }

    fn has_top_up(line: &mut Line) -> Option<&mut TopUps> {
        let top_ups = line.top_ups.as_mut().map(Arc::make_mut);
        top_ups.filter(|top_ups| !top_ups.each.is_empty())
    }

    proptest! {
        #[test]
        fn what_the_rule_decided_has_no_flaw(steps in steps()) {
            prop_assert_eq!(audit(&history(&steps)), []);
        }

        #[test]
        fn whatever_is_changed_in_one_entry_is_found_there(
            steps in steps(),
            which: Index,
            planted: Index,
            how: Index,
            altered in 0usize..5,
        ) {
            let mut entries = history(&steps);
            let index = which.index(entries.len());
            let entry = &mut entries[index];
            let number = entry.line.number;
            // Other units leave no trace if they count in none of the windows of the line.
            let is_grant = matches!(entry.kind, EntryKind::Grant { .. });
            let shows_units = is_grant && entry.provisional.is_none();
            let top_up = has_top_up(&mut entry.line).filter(|_| altered == 4);
            let is_topped_up = top_up.map(|top_ups| top_ups.each[0].left += 1).is_some();
            match altered {
                4 if is_topped_up => {}
                0 => plant(planted.get_mut(Arc::make_mut(&mut entry.line.totals)), how),
                1 if shows_units => entry.units = Units::new(i128::from(entry.units.get()) + 1).unwrap(),
                3 => entry.line.number += 1,

                _ => entry.line.at -= TimeDelta::days(800),
            }
            let flaws = audit(&entries);
            let expected = if altered == 3 { number + 1 } else { number };
            prop_assert!(flaws.iter().any(|(number, _)| *number == expected), "{flaws:?}");
        }

        #[test]
        fn what_is_left_behind_a_cut_has_no_flaw(steps in steps(), which: Index) {
            let all = history(&steps);
            let first = which.index(all.len());
            let left = &all[first..];
            let mut behind_cut = AccountAudit::default();
            behind_cut.begin_after_cut(left[0].line.number);
            prop_assert_eq!(audit_from(behind_cut, &all, left), []);
            let missed = audit_from(AccountAudit::default(), &all, left);
            prop_assert_eq!(matches!(missed[..], [(_, Flaw::Gap(1)), ..]), first > 0);
            // A cut explains no other missing entries.
            let mut second_gone = AccountAudit::default();
            second_gone.begin_after_cut(left[0].line.number);
            if left.len() > 2 {
                let holed: Vec<Entry> = [&left[..1], &left[2..]].concat();
                let missed = audit_from(second_gone, &all, &holed);
                prop_assert!(missed.iter().any(|(_, flaw)| matches!(flaw, Flaw::Gap(_))));
            }
        }

        #[test]
        fn an_entry_that_was_lost_is_missed(steps in steps(), which: Index) {
            let mut entries = history(&steps);
            let lost = which.index(entries.len());
            entries.remove(lost);
            // The last entry leaves no trace in the ledger: its counter is too high.
            let missed = audit(&entries).iter().any(|(_, flaw)| matches!(flaw, Flaw::Gap(_)));
            prop_assert_eq!(missed, lost < entries.len());
        }
    }
}
