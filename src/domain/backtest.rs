//! A backtest: replays the entries of the ledger under a draft of a policy, to show what the draft
//! would have denied.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};

use super::claim::Units;
use super::exceptions::ExceptionHistory;
use super::grant::EntryKind;
use super::identity::{AccountId, EntryId};
use super::own_calendar::OwnCalendar;
use super::policy::Rule;
use super::replay::ReplayedUnits;
use super::replayed_rule::ReplayedRule;
use super::top_up::TopUps;
use super::window::{Length, Window};

/// The largest number of days.
pub const DAYS_MOST: i64 = 400;
/// The number of subjects that are reported by name.
pub const FIRST_MOST: usize = 100;

/// Local days, from the first to the day after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DayRange {
    from: NaiveDate,
    to: NaiveDate,
}

/// Why two dates are not a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DayRangeError {
    #[error("to is not after from; write the day after the last day")]
    Empty,
    #[error("the range has {0} days; write at most {DAYS_MOST} days")]
    TooLong(i64),
}

impl DayRange {
    /// # Errors
    /// [`DayRangeError`].
    pub fn new(from: NaiveDate, to: NaiveDate) -> Result<Self, DayRangeError> {
        match (to - from).num_days() {
            ..1 => Err(DayRangeError::Empty),
            1..=DAYS_MOST => Ok(Self { from, to }),
            days => Err(DayRangeError::TooLong(days)),
        }
    }
}

/// An entry for a backtest. Entries come in the order of their ids, the order of instants.
#[derive(Debug, Clone)]
pub struct Replayed {
    pub account: AccountId,
    /// The id of the entry, with its instant.
    pub id: EntryId,
    pub kind: EntryKind,
    pub units: Units,
    /// For a grant: whether a reversal, of all units or of some, or a lapse names it.
    pub is_given_back: bool,
    /// The zone and the anchor that the account has of its own.
    pub calendar: Option<Arc<OwnCalendar>>,
    pub top_ups: Option<Arc<TopUps>>,
}

/// The result of a backtest for a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BacktestDay {
    pub window: Window,
    pub local_date: NaiveDate,
    /// The grants of the ledger, and how many of them the draft would have denied.
    pub tally: BacktestTally,
}

/// Counts of grants, and of grants that would have been denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BacktestTally {
    pub grants: u64,
    /// The units of all grants.
    pub units: u64,
    /// The number of grants that would have been denied.
    pub denied_grants: u64,
    /// The units of the grants that would have been denied.
    pub denied_units: u64,
}

/// An account with a grant that would have been denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeniedAccount {
    pub account: AccountId,
    /// The first grant that would have been denied.
    pub first: EntryId,
    /// The number of grants that would have been denied.
    pub grants: u64,
}

/// The result of a backtest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BacktestReport {
    /// Every local day of the range.
    pub days: Vec<BacktestDay>,
    /// The counts of all days.
    pub total: BacktestTally,
    /// The number of accounts with a grant that would have been denied.
    pub denied_accounts: u64,
    /// The first accounts with such a grant, in the order of these grants, at most [`FIRST_MOST`].
    pub first_denied: Vec<DeniedAccount>,
}

/// A draft that replays the entries of the ledger one after the other.
///
/// A grant takes units of all limits, also of those that all subjects share, if it fits into all of
/// them. Otherwise it would have been denied, and takes none. A reversal or lapse gives back the units of a grant that was not denied,
/// from its own instant on. An adjustment moves the usage whether or not it fits, and a reset begins
/// the limits of the draft again that have its name. Only limits
/// count: a draft that is paused or not yet active denies nothing for that reason. The exceptions that
/// a subject had then apply: its override and its tier, if the draft has the limit and the tier. A grant
/// of a subject that was blocked then would have been denied, which a policy that observed did not do.
pub struct Backtest {
    replayed: ReplayedRule,
    begin: DateTime<Utc>,
    end: DateTime<Utc>,
    exceptions: ExceptionHistory,
    /// Denied grants that will be given back. They took nothing, so nothing returns.
    denied_grants: BTreeSet<EntryId>,
    days: Vec<BacktestDay>,
    /// The index of the day of the last entry, or of an earlier day.
    day: usize,
    first_denied: Vec<DeniedAccount>,
    /// Every account with a denied grant, and its index in `first_denied`.
    denied: HashMap<AccountId, Option<usize>>,
}

impl BacktestTally {
    fn add(&mut self, units: Units, is_denied: bool) {
        self.grants += 1;
        self.units = self.units.saturating_add(units.get());
        if is_denied {
            self.denied_grants += 1;
            self.denied_units = self.denied_units.saturating_add(units.get());
        }
    }
}

impl Backtest {
    /// A backtest of a draft on a range of its own local days.
    pub fn new(rule: Rule, range: DayRange, exceptions: ExceptionHistory) -> Self {
        let calendar = &rule.calendar;
        let start = calendar.day_start(range.from);
        let end = calendar.day_start(range.to);
        let days = calendar.windows(Length::Day, start, end);
        let day = |window| BacktestDay {
            window,
            local_date: calendar.local_date(Length::Day, window),
            tally: BacktestTally::default(),
        };
        let days = days.map(day).collect();
        let begin = ReplayedRule::counts_from(&rule, start);
        Self {
            exceptions,
            denied_grants: BTreeSet::new(),
            replayed: ReplayedRule::new(rule, begin),
            begin,
            end,
            days,
            day: 0,
            first_denied: Vec::new(),
            denied: HashMap::new(),
        }
    }

    /// The entries to replay, in the order of their ids: from the first id up to the second id,
    /// which is excluded. They start with the earliest window that contains the first day, so that
    /// the usage before that day is known.
    pub fn span(&self) -> (EntryId, EntryId) {
        (EntryId::first_at(self.begin), EntryId::first_at(self.end))
    }

    /// Replays the next entry.
    pub fn meet(&mut self, entry: &Replayed) {
        // 1. Units that have returned by this instant are forgotten.
        let at = entry.id.at();
        self.move_on(at);
        let Replayed { account, units, .. } = *entry;
        self.replayed
            .set_calendar(account, entry.calendar.as_ref(), at);
        let top_ups = entry.top_ups.as_ref();
        self.replayed.meet(account, entry.id, entry.kind, top_ups);
        let exceptions = self.exceptions.at(account, at);
        if let Some(exceptions) = &exceptions {
            let max_of = |rule: &Rule, per| exceptions.max_of(rule, per);
            self.replayed.set_max(account, max_of);
        }
        let moved = ReplayedUnits {
            account,
            id: entry.id,
            units,
            is_given_back: entry.is_given_back,
        };
        match entry.kind {
            // 2. A grant takes units of all limits, or would have been denied.
            EntryKind::Grant { .. } => {
                let is_blocked = exceptions.is_some_and(|it| it.blocked.is_some());
                let fits = !is_blocked && self.replayed.fits(account, units, at);
                if fits {
                    self.replayed.grant(moved, entry.kind);
                } else if entry.is_given_back {
                    self.denied_grants.insert(entry.id);
                }
                self.tally(entry, at, !fits);
            }
            // 3. A reversal or lapse gives back only what the grant took.
            EntryKind::Reversal { of }
            | EntryKind::PartialReversal { of }
            | EntryKind::Lapse { of } => {
                let was_taken = !self.denied_grants.contains(&of) && of.at() >= self.begin;
                if was_taken {
                    self.replayed.give_back(account, units, of, at);
                } else if of.at() < self.begin {
                    self.replayed.give_back_as(account, top_ups);
                }
            }
            // 4. An adjustment moves the usage of every limit.
            EntryKind::Adjustment(direction) => self.replayed.adjust(moved, direction),
            // 5. A reset begins the limits with its name again. The others only pass time.
            EntryKind::Reset { .. }
            | EntryKind::Confirmation { .. }
            | EntryKind::Calendar
            | EntryKind::TopUp
            | EntryKind::TopUpReversal { .. } => {
                self.replayed.pass(account, entry.kind, at);
            }
        }
    }

    /// Forgets units that have returned.
    fn move_on(&mut self, at: DateTime<Utc>) {
        if let Some(earliest) = self.replayed.move_on(at) {
            let earliest = EntryId::first_at(earliest);
            self.denied_grants = self.denied_grants.split_off(&earliest);
        }
    }

    /// Counts a grant on its day, if the day is in the range.
    fn tally(&mut self, entry: &Replayed, at: DateTime<Utc>, is_denied: bool) {
        let later = self.days[self.day..]
            .iter()
            .take_while(|day| day.window.end <= at);
        self.day += later.count();
        let Some(day) = self.days.get_mut(self.day) else {
            return;
        };
        if !day.window.contains(at) {
            return;
        }
        day.tally.add(entry.units, is_denied);
        if is_denied {
            self.note_denied(entry);
        }
    }

    fn note_denied(&mut self, entry: &Replayed) {
        let next = self.first_denied.len();
        let place = self.denied.entry(entry.account).or_insert_with(|| {
            let has_room = next < FIRST_MOST;
            has_room.then_some(next)
        });
        match place {
            None => {}
            Some(place) if *place < next => self.first_denied[*place].grants += 1,
            Some(_) => self.first_denied.push(DeniedAccount {
                account: entry.account,
                first: entry.id,
                grants: 1,
            }),
        }
    }

    pub fn report(self) -> BacktestReport {
        let mut total = BacktestTally::default();
        for BacktestDay { tally, .. } in &self.days {
            total.grants += tally.grants;
            total.units = total.units.saturating_add(tally.units);
            total.denied_grants += tally.denied_grants;
            total.denied_units = total.denied_units.saturating_add(tally.denied_units);
        }
        BacktestReport {
            days: self.days,
            total,
            denied_accounts: self.denied.len() as u64,
            first_denied: self.first_denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::grant::Direction;
    use crate::limit::draft::LimitDraft;
    use crate::policy::RuleDraft;

    fn rule(time_zone: &str, limits: &[(u64, Length)]) -> Rule {
        let limits = limits.iter().map(|(max, per)| LimitDraft {
            max: i128::from(*max),
            per: per.to_string(),
            ..LimitDraft::default()
        });
        let draft = RuleDraft {
            time_zone: time_zone.to_owned(),
            limits: limits.collect(),
            day_starts_at: Some("06:00".to_owned()),
            ..RuleDraft::default()
        };
        draft.check().unwrap()
    }

    fn date(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    fn range(from: &str, to: &str) -> DayRange {
        DayRange::new(date(from), date(to)).unwrap()
    }

    fn account(number: u8) -> AccountId {
        AccountId(Uuid::from_u128(number.into()))
    }

    fn grant(account_number: u8, at: DateTime<Utc>, units: u64, number: u64) -> Replayed {
        Replayed {
            account: account(account_number),
            id: EntryId::new(at, number, 0),
            kind: EntryKind::Grant { held_until: None },
            units: Units::new(units.into()).unwrap(),
            is_given_back: false,
            calendar: None,
            top_ups: None,
        }
    }

    #[test]
    fn a_range_has_days() {
        let of = |from, to| DayRange::new(date(from), date(to));
        assert!(of("2026-11-21", "2026-11-22").is_ok());
        assert_eq!(of("2026-11-21", "2026-11-21"), Err(DayRangeError::Empty));
        assert_eq!(of("2026-11-21", "2026-11-20"), Err(DayRangeError::Empty));
        assert!(of("2026-01-01", "2027-02-05").is_ok());
        assert_eq!(
            of("2026-01-01", "2027-02-06"),
            Err(DayRangeError::TooLong(401))
        );
    }

    #[test]
    fn the_first_ones_are_told_in_their_order() {
        let range = range("2026-11-21", "2026-11-22");
        let mut backtest = Backtest::new(
            rule("UTC", &[(1, Length::Day)]),
            range,
            ExceptionHistory::default(),
        );
        let noon: DateTime<Utc> = "2026-11-21T12:00:00Z".parse().unwrap();
        let mut number = 0;
        for round in 0..3 {
            for subject in 0..150 {
                number += 1;
                let at = noon + TimeDelta::minutes(round);
                backtest.meet(&grant(subject, at, 1, number));
            }
        }
        let report = backtest.report();
        assert_eq!(
            (report.total.grants, report.total.denied_grants),
            (450, 300)
        );
        assert_eq!(report.denied_accounts, 150);
        assert_eq!(report.first_denied.len(), FIRST_MOST);
        for (number, denied) in (0..).zip(&report.first_denied) {
            assert_eq!(denied.account, account(number));
            assert_eq!(denied.grants, 2);
            assert_eq!(denied.first.at(), noon + TimeDelta::minutes(1));
        }
    }

    #[test]
    fn a_month_is_known_from_its_beginning() {
        let limits = [(10, Length::Month)];
        let mut backtest = Backtest::new(
            rule("UTC", &limits),
            range("2026-11-20", "2026-11-21"),
            ExceptionHistory::default(),
        );
        let (first, end) = backtest.span();
        assert_eq!(first.at().to_rfc3339(), "2026-11-01T06:00:00+00:00");
        assert_eq!(end.at().to_rfc3339(), "2026-11-21T06:00:00+00:00");
        backtest.meet(&grant(1, first.at(), 9, 1));
        let day = "2026-11-20T06:00:00Z".parse().unwrap();
        backtest.meet(&grant(1, day, 2, 2));
        backtest.meet(&grant(1, day, 1, 3));
        let report = backtest.report();
        let tally = BacktestTally {
            grants: 2,
            units: 3,
            denied_grants: 1,
            denied_units: 2,
        };
        assert_eq!(report.total, tally);
        assert_eq!(report.days.len(), 1);
        assert_eq!(report.days[0].tally, tally);
    }

    #[test]
    fn what_was_granted_before_reading_began_is_not_given_back() {
        // The week with the first day of the month starts before the month.
        let limits = [(4, Length::Month), (3, Length::Week)];
        let mut backtest = Backtest::new(
            rule("UTC", &limits),
            range("2026-11-20", "2026-11-21"),
            ExceptionHistory::default(),
        );
        let (first, _) = backtest.span();
        let before = EntryId::new(first.at() - TimeDelta::hours(1), 1, 0);
        backtest.meet(&grant(1, first.at(), 3, 2));
        let reversal = Replayed {
            kind: EntryKind::Reversal { of: before },
            ..grant(1, first.at(), 3, 3)
        };
        backtest.meet(&reversal);
        backtest.meet(&grant(1, first.at(), 1, 4));
        let day = "2026-11-20T06:00:00Z".parse().unwrap();
        backtest.meet(&grant(1, day, 1, 5));
        let total = backtest.report().total;
        assert_eq!((total.grants, total.denied_grants), (1, 0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Grant,
        GiveBack(proptest::sample::Index, bool),
        Adjust(Direction),
        Confirm,
        Reset(Option<crate::limit::per::Per>),
    }

    /// A step: minutes that pass, an account, units, and the action.
    fn steps() -> impl Strategy<Value = Vec<(i64, u8, u64, Step)>> {
        let minutes = prop_oneof![0i64..3, 0i64..3000];
        let step = prop_oneof![
            6 => Just(Step::Grant),
            3 => any::<(proptest::sample::Index, bool)>()
                .prop_map(|(index, lapses)| Step::GiveBack(index, lapses)),
            1 => Just(Step::Adjust(Direction::Up)),
            1 => Just(Step::Adjust(Direction::Down)),
            1 => any::<bool>().prop_map(|all| Step::Reset((!all).then(|| Length::Day.into()))),
            1 => Just(Step::Confirm),
        ];
        proptest::collection::vec((minutes, 0u8..3, 1u64..4, step), 1..120)
    }

    /// The entries that a ledger would have of a history.
    fn history(steps: Vec<(i64, u8, u64, Step)>, begin: DateTime<Utc>) -> Vec<Replayed> {
        let mut at = begin;
        let mut entries: Vec<Replayed> = Vec::new();
        for (number, (minutes, account, units, step)) in (1..).zip(steps) {
            at += TimeDelta::minutes(minutes) + TimeDelta::microseconds(1); // A reset is later.
            let mut entry = grant(account, at, units, number);
            match step {
                Step::Grant => {}
                Step::Adjust(direction) => entry.kind = EntryKind::Adjustment(direction),
                Step::Confirm => entry.kind = EntryKind::Confirmation { of: entry.id },
                Step::Reset(per) => entry.kind = EntryKind::Reset { per },
                Step::GiveBack(index, lapses) => {
                    let mut open: Vec<&mut Replayed> = entries
                        .iter_mut()
                        .filter(|entry| matches!(entry.kind, EntryKind::Grant { .. }))
                        .filter(|entry| !entry.is_given_back)
                        .collect();
                    if open.is_empty() {
                        continue;
                    }
                    let place = index.index(open.len());
                    let granted = &mut open[place];
                    granted.is_given_back = true;
                    let of = granted.id;
                    entry.kind = if lapses {
                        EntryKind::Lapse { of }
                    } else {
                        EntryKind::Reversal { of }
                    };
                    (entry.account, entry.units) = (granted.account, granted.units);
                }
            }
            entries.push(entry);
        }
        entries
    }

    /// The usage of an account in a window, from all entries that were replayed and not denied.
    fn used(met: &[Replayed], account: AccountId, per: Length, window: Window) -> u64 {
        let own = met.iter().filter(|entry| entry.account == account);
        let is_reset = |entry: &&Replayed| entry.kind.resets(per.into());
        let reset_at = own.clone().rfind(is_reset).map(|entry| entry.id.at());
        own.fold(0, |used, entry| {
            let (at, is_more) = match entry.kind {
                EntryKind::Grant { .. } => (entry.id.at(), true),
                EntryKind::Reversal { of }
                | EntryKind::PartialReversal { of }
                | EntryKind::Lapse { of } => (of.at(), false),
                EntryKind::Adjustment(direction) => (entry.id.at(), direction == Direction::Up),
                _ => return used,
            };
            match (window.contains(at) && reset_at <= Some(at), is_more) {
                (false, _) => used,
                (true, true) => used + entry.units.get(),
                (true, false) => used.saturating_sub(entry.units.get()),
            }
        })
    }

    const ZONES: [&str; 3] = ["GMT+8", "America/New_York", "Australia/Lord_Howe"];

    proptest! {
        /// Compared with the plain model: the sum of all replayed entries, for each grant.
        #[test]
        fn it_is_what_the_plain_model_says(
            steps in steps(),
            zone in 0..ZONES.len(),
            limits in proptest::sample::subsequence(Length::ALL.to_vec(), 1..=3),
            most in 1u64..12,
            days in 1i64..40,
        ) {
            let limits: Vec<(u64, Length)> = (most..).step_by(3).zip(limits).collect();
            let draft = rule(ZONES[zone], &limits);
            let calendar = draft.calendar.clone();
            let from = date("2026-10-20");
            let to = from + TimeDelta::days(days);
            let mut backtest = Backtest::new(draft, DayRange::new(from, to).unwrap(), ExceptionHistory::default());
            let (begin, end) = backtest.span();
            let mut met: Vec<Replayed> = Vec::new();
            let mut refused: Vec<EntryId> = Vec::new();
            let mut by_day: HashMap<NaiveDate, BacktestTally> = HashMap::new();
            let mut denied: Vec<DeniedAccount> = Vec::new();
            let entries = history(steps, begin.at());
            for entry in entries.iter().take_while(|entry| entry.id < end) {
                backtest.meet(entry);
                let at = entry.id.at();
                match entry.kind {
                    EntryKind::Grant { .. } => {}
                    EntryKind::Reversal { of } | EntryKind::Lapse { of }
                        if refused.contains(&of) => continue,
                    _ => {
                        met.push(entry.clone());
                        continue;
                    }
                }
                let fits = limits.iter().all(|(max, per)| {
                    let used = used(&met, entry.account, *per, calendar.window(*per, at));
                    used + entry.units.get() <= *max
                });
                if fits {
                    met.push(entry.clone());
                } else {
                    refused.push(entry.id);
                }
                let day = calendar.local_date(Length::Day, calendar.window(Length::Day, at));
                if day < from {
                    continue;
                }
                by_day.entry(day).or_default().add(entry.units, !fits);
                if fits {
                    continue;
                }
                match denied.iter_mut().find(|denied| denied.account == entry.account) {
                    Some(denied) => denied.grants += 1,
                    None => denied.push(DeniedAccount {
                        account: entry.account,
                        first: entry.id,
                        grants: 1,
                    }),
                }
            }
            let report = backtest.report();
            prop_assert_eq!(report.days.len() as i64, days);
            for day in &report.days {
                let tally = by_day.remove(&day.local_date).unwrap_or_default();
                prop_assert_eq!(day.tally, tally);
            }
            prop_assert!(by_day.is_empty());
            prop_assert_eq!(report.denied_accounts, denied.len() as u64);
            prop_assert_eq!(report.first_denied, denied);
        }
    }
}
