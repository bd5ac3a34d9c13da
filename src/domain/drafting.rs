//! Drafts the next entries of an account: first the lapses that are due, then the entries of claims
//! and corrections. Each is decided on the totals that the entries before it leave.

use chrono::{DateTime, Utc};

use super::account::{UnitsAsked, Unknown, Verdict, decide, instant_after, own_units, totals_at};
use super::account_facts::AccountFacts;
use super::account_totals::{levels_reached, totals_asked};
use super::claim::Units;
use super::correction::{
    Hold, HoldChange, Holds, adjust, carry_on, give_back, lapse, move_calendar,
};
use super::grant::{Entry, EntryKind, Follower, Followers, Line};
use super::identity::{AccountId, EntryId};
use super::limit::total::Total;
use super::partial::{Confirming, Reversing, check_confirmation, check_reversal};
use super::past::Past;
use super::policy::{Mode, Policy};
use super::refusal::{DeniedClaim, Refusal};
use super::reset::reset;
use super::shared::{SharedChange, SharedKey, SharedTotal};
use super::topping_up::{end_top_up, top_up};
use super::work::{Task, Work};

/// A draft in progress.
pub struct Drafting<'a> {
    account: AccountId,
    policy: &'a Policy,
    known: &'a AccountFacts,
    now: DateTime<Utc>,
    pub(super) holds: Option<Holds>,
    /// The line that the next entry follows.
    pub(super) line: Option<Line>,
    pub(super) entries: Vec<Entry>,
    pub(super) shared: Vec<SharedChange>,
}

/// The outcome of a claim or correction.
#[derive(Debug)]
pub enum Decided {
    /// The entry with this index in the draft answers it.
    Entry(usize),
    /// The same was done before, by the entry with this index in the draft.
    Repeated(usize),
    /// The same was done before: the ledger has this entry.
    Stands(Box<Entry>),
    Refused(Refusal),
}

/// The next entries of an account, and the outcome of each claim or correction.
pub struct Drafted {
    /// `None` if so many lapses are due that they are appended alone.
    pub decided: Option<Vec<Decided>>,
    pub entries: Vec<Entry>,
    /// What the entries do to the limits that all subjects share, in their order.
    pub shared: Vec<SharedChange>,
}

/// The lapses that are appended before any other entry of an account.
pub struct Lapses {
    pub entries: Vec<Entry>,
    /// See [`Drafted::shared`].
    pub shared: Vec<SharedChange>,
    /// The line after the lapses.
    pub line: Option<Line>,
    /// Whether so many lapses are due that these are appended alone.
    pub has_more: bool,
}

impl Lapses {
    pub fn none(line: Option<Line>) -> Self {
        Self {
            entries: Vec::new(),
            shared: Vec::new(),
            line,
            has_more: false,
        }
    }
}

/// Decides claims and corrections after the last line of an account.
///
/// # Errors
/// [`Unknown`].
pub fn draft<'w>(
    account: AccountId,
    policy: &Policy,
    last: Option<Line>,
    works: impl Iterator<Item = &'w Work>,
    known: &AccountFacts,
    now: DateTime<Utc>,
) -> Result<Drafted, Unknown> {
    // 1. The lapses that are due come first.
    let mut drafting = Drafting::begin(account, policy, last, known, now)?;
    // 2. If more lapses are due, nothing else is decided yet.
    let decided = if drafting.has_more_lapses() {
        None
    } else {
        // 3. Each claim is decided on the entries before it.
        let decided = works.map(|work| drafting.decide(work));
        Some(decided.collect::<Result<_, _>>()?)
    };
    Ok(Drafted {
        decided,
        entries: drafting.entries,
        shared: drafting.shared,
    })
}

impl<'a> Drafting<'a> {
    /// Starts a draft with the lapses that are due.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn begin(
        account: AccountId,
        policy: &'a Policy,
        last: Option<Line>,
        known: &'a AccountFacts,
        now: DateTime<Utc>,
    ) -> Result<Self, Unknown> {
        let at = instant_after(last.as_ref(), now);
        let mut drafting = Self {
            account,
            policy,
            known,
            now,
            holds: known.holds.clone(),
            line: last,
            entries: Vec::new(),
            shared: Vec::new(),
        };
        let is_due = |line: &Line| line.may_have_lapses(at);
        if drafting.line.as_ref().is_some_and(is_due) {
            drafting.lapse()?;
        }
        Ok(drafting)
    }

    fn lapse(&mut self) -> Result<(), Unknown> {
        // 1. Each lapsed hold gives its units back, in the order of their ends.
        while let (Some(last), Some(hold)) = (self.line.clone(), self.next_lapse()?) {
            let line = lapse(&hold, &last, &self.past())?;
            let lapse = hold.lapsed(self.account, line, self.known.nonce);
            self.append(lapse, hold.version);
        }
        // 2. There may have been no lapse: `lapses_at` only says when the first hold can lapse.
        if let (Some(line), Some(holds)) = (&mut self.line, &self.holds) {
            line.lapses_at = holds.lapses_at();
        }
        Ok(())
    }

    fn next_lapse(&mut self) -> Result<Option<Hold>, Unknown> {
        let holds = self.holds.as_mut().ok_or(Unknown::Holds)?;
        Ok(holds.lapsed.pop_front())
    }

    /// Whether more lapses are due than fit into the draft: they are appended alone.
    pub fn has_more_lapses(&self) -> bool {
        let at = instant_after(self.line.as_ref(), self.now);
        let line = self.line.as_ref();
        line.is_some_and(|line| line.may_have_lapses(at))
    }

    /// Ends the draft with the lapses only.
    pub fn into_lapses(self) -> Lapses {
        Lapses {
            has_more: self.has_more_lapses(),
            entries: self.entries,
            shared: self.shared,
            line: self.line,
        }
    }

    /// The verdict of the rule on a claim now. Nothing is added to the draft.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn rehearse(&self, asked: impl Into<UnitsAsked>) -> Result<Verdict, Unknown> {
        let asked = asked.into();
        let units = asked.units;
        let last = self.line.as_ref();
        let verdict = decide(self.policy, asked, last, &self.past(), self.now)?;
        let (Verdict::Granted(line) | Verdict::WouldDeny(line)) = &verdict else {
            return Ok(verdict);
        };
        let shared = self.shared_totals(line.at);
        if shared.iter().all(|total| total.fits(units)) {
            return Ok(verdict);
        }
        if self.policy.rule.mode == Mode::Observe {
            return Ok(Verdict::WouldDeny(line.clone()));
        }
        let asked = line.calendar.as_deref();
        let totals = totals_asked(self.policy, asked, last, &self.past(), line.at)?;
        Ok(Verdict::Refused(Refusal::Denied(DeniedClaim {
            own_units: own_units(units, last, line.at),
            totals: totals.into(),
            last: last.cloned(),
            shared: shared.into(),
        })))
    }

    /// The present totals.
    ///
    /// # Errors
    /// [`Unknown::Past`].
    pub fn totals(&self) -> Result<Vec<Total>, Unknown> {
        let line = self.line.as_ref();
        let at = instant_after(line, self.now);
        totals_at(self.policy, line, &self.past(), at)
    }

    /// The last line, after the lapses that are due.
    pub fn line(&self) -> Option<&Line> {
        self.line.as_ref()
    }

    /// Decides the next claim or correction, and adds its entry to the draft.
    ///
    /// # Errors
    /// [`Unknown`]: the draft must be dropped.
    pub(super) fn decide(&mut self, work: &Work) -> Result<Decided, Unknown> {
        let last = self.line.as_ref();
        let past = self.past();
        let units = work.units;
        // 1. A claim takes units, if the rule grants it.
        let entered = match &work.task {
            Task::Claim(_) => match self.rehearse(work.asked())? {
                Verdict::Granted(line) => return self.grant(work, line, false),
                Verdict::WouldDeny(line) => return self.grant(work, line, true),
                Verdict::Refused(refusal) => {
                    if let Refusal::Denied(denied) = &refusal {
                        self.deny(denied, units);
                    }
                    return Ok(Decided::Refused(refusal));
                }
            },
            // 2. A reversal gives units of its grant back: all that are left, or some.
            Task::Reverse(grant, asked) => {
                let followers = self.followers(grant.id);
                let (returned, is_part) = match check_reversal(grant, &followers, *asked) {
                    Ok(Reversing::Before(reversal)) => return Ok(self.made_before(reversal)),
                    Err(refusal) => return Ok(Decided::Refused(refusal.into())),
                    Ok(Reversing::Part(returned)) => (returned, true),
                    Ok(Reversing::Rest(returned)) => (returned, false),
                };
                self.must_know_the_next_hold(grant)?;
                let returning = followers.returning(grant, returned);
                let line = give_back(self.policy, &returning, last, &past, self.now)?;
                let mut entry = work.entry(line);
                entry.units = returned;
                if is_part {
                    entry.kind = EntryKind::PartialReversal { of: grant.id };
                }
                return self.enter(entry, grant.line.policy_version);
            }
            // 3. A confirmation ends a hold, once. What it does not confirm is given back first.
            Task::Confirm(grant, asked) => {
                let followers = self.followers(grant.id);
                let (settled, returned) = match check_confirmation(grant, &followers, *asked) {
                    Ok(Confirming::Before(confirmation)) => {
                        return Ok(self.made_before(confirmation));
                    }
                    Err(refusal) => return Ok(Decided::Refused(refusal.into())),
                    Ok(Confirming::Settle { settled, returned }) => (settled, returned),
                };
                self.must_know_the_next_hold(grant)?;
                if let Some(returned) = returned {
                    let returning = followers.returning(grant, returned);
                    let line = give_back(self.policy, &returning, last, &past, self.now)?;
                    let returned = Entry {
                        kind: EntryKind::PartialReversal { of: grant.id },
                        units: returned,
                        key: None,
                        ..work.entry(line)
                    };
                    self.enter(returned, grant.line.policy_version)?;
                }
                let last = self.line.as_ref();
                let past = self.past();
                let line = carry_on(self.policy, last, &past, self.now)?;
                let confirmed = Entry {
                    units: settled,
                    ..work.entry(line)
                };
                return self.enter(confirmed, grant.line.policy_version);
            }
            // 4. What is left of a top-up is taken back, once.
            Task::EndTopUp(top_up) => {
                if let Some(ended) = &self.followers(*top_up).closing {
                    return Ok(self.made_before(ended));
                }
                end_top_up(self.policy, *top_up, last, &past, self.now)?
            }
            // 5. An adjustment moves units by hand, a reset begins limits again, a calendar moves, and a top-up
            //    gives units. An archived policy takes none of them.
            Task::Adjust(..) | Task::Reset(_) | Task::MoveCalendar | Task::TopUp(_)
                if self.policy.archived =>
            {
                return Ok(Decided::Refused(Refusal::Archived));
            }
            Task::Adjust(direction, counted_at) => {
                let at = counted_at.unwrap_or_else(|| instant_after(last, self.now));
                let adjusted = adjust(self.policy, units, *direction, at, last, &past, self.now)?;
                adjusted.map(|line| (line, units))
            }
            Task::Reset(per) => {
                let reset = reset(self.policy, *per, last, &past, self.now)?;
                reset.map(|line| (line, units))
            }
            Task::MoveCalendar => {
                let asked = work.calendar.as_deref();
                let moved = move_calendar(self.policy, asked, last, &past, self.now)?;
                moved.map(|line| (line, units))
            }
            Task::TopUp(ends_at) => {
                let given = top_up(self.policy, *ends_at, last, &past, self.now)?;
                given.map(|line| (line, units))
            }
        };
        // 6. The entry follows the line before.
        let (line, units) = match entered {
            Ok(entered) => entered,
            Err(refusal) => return Ok(Decided::Refused(refusal)),
        };
        let mut entry = Entry {
            units,
            ..work.entry(line)
        };
        if let Task::TopUp(ends_at) = work.task {
            entry.add_top_up(ends_at);
        }
        self.enter(entry, self.policy.version)
    }

    /// Adds the entry of a claim. Shared limits must still have the room that they have now.
    fn grant(&mut self, work: &Work, line: Line, would_deny: bool) -> Result<Decided, Unknown> {
        let shared = self.shared_totals(line.at);
        let entry = Entry {
            would_deny,
            ..work.entry(line)
        };
        let decided = self.enter(entry, self.policy.version)?;
        // The changes of the entry are the last ones, one for each shared limit.
        let begun = self.shared.len() - shared.len();
        for (change, total) in self.shared[begun..].iter_mut().zip(&shared) {
            change.room = Some(total.room(work.units));
        }
        Ok(decided)
    }

    /// Notes the denial of a claim. If the draft is appended, a shared limit that lacks room must still lack it.
    fn deny(&mut self, denied: &DeniedClaim, units: Units) {
        let mut shared = denied.shared.iter();
        let lacking = shared.find(|total| !total.fits(units));
        self.shared.extend(lacking.map(|total| SharedChange {
            key: total.key,
            units: 0,
            room: Some(total.room(units)),
        }));
    }

    /// The limits that all subjects share, after the entries of the draft.
    pub fn shared_totals(&self, at: DateTime<Utc>) -> Vec<SharedTotal> {
        let used = |key: &SharedKey| {
            let before = self.known.shared.get(key).copied().unwrap_or(0);
            let own = self.shared.iter().filter(|change| change.key == *key);
            before + own.map(|change| change.units).sum::<i64>()
        };
        self.policy.shared_totals(used, at)
    }

    fn enter(&mut self, mut entry: Entry, version: u32) -> Result<Decided, Unknown> {
        // Only levels ask for the past, which is a copy.
        if !self.policy.rule.warn_at.is_empty() {
            let last = self.line.as_ref();
            entry.crossed = levels_reached(self.policy, last, &self.past(), &entry.line)?;
        }
        self.append(entry, version);
        Ok(Decided::Entry(self.entries.len() - 1))
    }

    /// Adds an entry. `version` is the one that decided it, or the grant that it names.
    fn append(&mut self, mut entry: Entry, version: u32) {
        // 1. The line says when the next hold can lapse.
        let change = HoldChange::by(&entry);
        let line = &mut entry.line;
        if let Some(holds) = &mut self.holds {
            if let Some(change) = change {
                holds.change(change);
            }
            line.lapses_at = holds.lapses_at();
        } else if let Some(HoldChange::Opens(hold)) = change {
            line.lapses_at = line.lapses_at.into_iter().chain([hold.until]).min();
        }
        // 2. The limits that all subjects share change with it.
        self.shared
            .extend(self.policy.shared_changes(&entry, version));
        // 3. The next entry follows this one.
        self.line = Some(entry.line.clone());
        self.entries.push(entry);
    }

    /// Checks that the hold after the first one is known before the first one ends.
    fn must_know_the_next_hold(&self, grant: &Entry) -> Result<(), Unknown> {
        let first = self.line.as_ref().and_then(|line| line.lapses_at);
        match grant.held_until() {
            Some(until) if Some(until) == first && self.holds.is_none() => Err(Unknown::Holds),
            Some(_) | None => Ok(()),
        }
    }

    /// The past, with the entries of the draft.
    fn past(&self) -> Past {
        self.known.past.clone().after(&self.entries)
    }

    fn followers(&self, grant: EntryId) -> Followers {
        // Somebody can name the top-up of another account.
        let known = self.known.followers.iter();
        let own = known.filter(|entry| entry.account == self.account);
        Followers::among(grant, own.chain(&self.entries))
    }

    fn made_before(&self, follower: &Follower) -> Decided {
        let is_it = |entry: &Entry| entry.id == follower.id;
        match self.entries.iter().position(is_it) {
            Some(place) => Decided::Repeated(place),
            None => {
                let mut standing = self.known.followers.iter();
                let entry = standing.find(|entry| is_it(entry));
                Decided::Stands(Box::new(entry.expect("it is one of them").clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;
    use crate::claim::HoldTime;
    use crate::samples;

    const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));
    const NONCE: u64 = 42;

    fn policy() -> Arc<Policy> {
        Arc::new(samples::policy(1, "UTC", &[(3, "day")]))
    }

    fn noon(seconds: i64) -> DateTime<Utc> {
        let noon: DateTime<Utc> = "2026-11-21T12:00:00Z".parse().unwrap();
        noon + TimeDelta::seconds(seconds)
    }

    fn work(task: Task) -> Work {
        samples::work(task, policy(), ACCOUNT)
    }

    fn hold(seconds: i128) -> Work {
        work(Task::Claim(Some(HoldTime::new(seconds).unwrap())))
    }

    /// Drafts after the last of some entries.
    fn drafted(
        before: &[Entry],
        works: &[Work],
        known: &AccountFacts,
        now: DateTime<Utc>,
    ) -> Result<Drafted, Unknown> {
        let last = before.last().map(|entry| entry.line.clone());
        draft(ACCOUNT, &policy(), last, works.iter(), known, now)
    }

    /// Three holds of one unit. They lapse after 60, 70 and 80 seconds.
    fn three_holds() -> Vec<Entry> {
        let works = [60, 70, 80].map(hold);
        drafted(&[], &works, &AccountFacts::to_append(NONCE), noon(0))
            .unwrap()
            .entries
    }

    /// What is known at an instant, if this many lapses are read at a time.
    fn knows_holds(held: &[Entry], now: DateTime<Utc>, lapses_most: usize) -> AccountFacts {
        let open = held.iter().map(|entry| Hold {
            grant: entry.id,
            units: entry.units,
            granted: entry.units,
            top_ups: None,
            until: entry.held_until().unwrap(),
            version: entry.line.policy_version,
        });
        let lapsed = open.clone().filter(|hold| hold.until <= now);
        let read = lapsed.count().min(lapses_most);
        let next = open.clone().filter(|hold| hold.until > now);
        let found = open.take(read).chain(next).collect();
        AccountFacts {
            holds: Some(Holds::at(now, found, lapses_most, 64)),
            ..AccountFacts::to_append(NONCE)
        }
    }

    fn used(entries: &[Entry]) -> Vec<u64> {
        let used = |entry: &Entry| entry.line.totals[0].used();
        entries.iter().map(used).collect()
    }

    #[test]
    fn each_claim_is_decided_on_what_those_before_it_leave() {
        let works = [1, 2, 3, 4].map(|_| work(Task::Claim(None)));
        let drafted = drafted(&[], &works, &AccountFacts::to_append(NONCE), noon(0)).unwrap();
        let decided = drafted.decided.unwrap();
        assert!(matches!(
            decided[..],
            [
                Decided::Entry(0),
                Decided::Entry(1),
                Decided::Entry(2),
                Decided::Refused(Refusal::Denied(_))
            ]
        ));
        assert_eq!(used(&drafted.entries), [1, 2, 3]);
        let numbers = drafted.entries.iter().map(|entry| entry.line.number);
        assert!(numbers.eq(1..=3));
    }

    #[test]
    fn lapses_go_first_and_what_they_give_back_is_claimed() {
        let held = three_holds();
        let now = noon(75);
        let works = [1, 2, 3].map(|_| work(Task::Claim(None)));
        let unread = drafted(&held, &works, &AccountFacts::to_append(NONCE), now);
        assert_eq!(unread.err(), Some(Unknown::Holds));
        let known = knows_holds(&held, now, 1000);
        let drafted = drafted(&held, &works, &known, now).unwrap();
        for (index, number) in [(0, 4), (1, 5)] {
            let lapse = &drafted.entries[index];
            assert_eq!(lapse.kind, EntryKind::Lapse { of: held[index].id });
            let until = held[index].held_until().unwrap();
            assert_eq!(lapse.id, EntryId::new(until, number, NONCE));
        }
        assert!(matches!(
            drafted.decided.as_deref(),
            Some([Decided::Entry(2), Decided::Entry(3), Decided::Refused(_)])
        ));
        assert_eq!(used(&drafted.entries), [2, 1, 2, 3]);
        let lapses_at = drafted.entries.iter().map(|entry| entry.line.lapses_at);
        assert!(lapses_at.eq([70, 80, 80, 80].map(|seconds| Some(noon(seconds)))));
    }

    #[test]
    fn too_many_lapses_go_alone() {
        let held = three_holds();
        let now = noon(100);
        let works = [work(Task::Claim(None))];
        let first = drafted(&held, &works, &knows_holds(&held, now, 2), now).unwrap();
        assert!(first.decided.is_none());
        assert_eq!(used(&first.entries), [2, 1]);
        let known = knows_holds(&held[2..], now, 2);
        let second = drafted(&first.entries, &works, &known, now).unwrap();
        assert!(matches!(
            second.decided.as_deref(),
            Some([Decided::Entry(1)])
        ));
        assert_eq!(used(&second.entries), [0, 1]);
    }

    #[test]
    fn a_correction_is_made_once() {
        let held = three_holds();
        let grant = Arc::new(held[2].clone());
        let works = [1, 2].map(|_| work(Task::Reverse(grant.clone(), None)));
        let first = drafted(&held, &works, &AccountFacts::to_append(NONCE), noon(1)).unwrap();
        assert!(matches!(
            first.decided.as_deref(),
            Some([Decided::Entry(0), Decided::Repeated(0)])
        ));
        assert_eq!(used(&first.entries), [2]);
        let known = AccountFacts {
            followers: first.entries.clone(),
            ..AccountFacts::to_append(NONCE)
        };
        let second = drafted(&first.entries, &works[..1], &known, noon(2)).unwrap();
        match &second.decided.unwrap()[..] {
            [Decided::Stands(entry)] => assert_eq!(**entry, first.entries[0]),
            other => panic!("{other:?}"),
        }
        assert!(second.entries.is_empty());
    }
}
