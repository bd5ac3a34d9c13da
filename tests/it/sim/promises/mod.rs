//! The judge of the simulator. It checks each promise at every event that can break the promise. It
//! has its own sums and windows. For limits whose units return after a time it asks the plain model
//! (`crate::plain`).
//!
//! 1. Never over. Numbers have no gaps or forks. Time and versions never go back. Totals are sums.
//!    No more of a grant is given back than it has. Holds lapse in time.
//! 2. Nothing acknowledged is lost: an answered grant is in the ledger, exactly once.
//! 3. A retry is safe: a key has one entry, and its claim gets that grant or none.
//! 4. Counters follow the ledger: when nothing is open, a counter equals its account's last line.
//! 5. It decides: every claim ends, and a claim is denied only if room was missing at some moment.
//! 6. A denied claim costs nothing: it has no entry.
//!
//! When an older copy replaces the ledger, the entries that the copy lacks are lost. Every promise
//! holds again from that moment. `entries` checks each entry, `parts` what is given back of a grant,
//! `corrections` why a correction is refused, `by_hand` what admins enter, and `counted` the claims that Redis decides. `sums`
//! computes usage and room.

mod by_hand;
mod corrections;
mod counted;
mod entries;
mod grants;
mod parts;
mod sums;
mod top_ups;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::counter::Count;
use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::identity::{AccountId, EntryId};
use perdiem::domain::kind::Kind;
use perdiem::domain::refusal::{CorrectionRefusal, Refusal};
use perdiem::domain::work::Task;
use perdiem::engine::{Outcome, Undecided};

use super::clients::{BATCH_UNITS_MOST, Batch, CLAIM_TIME, Sent};
use super::courses::Course;
use super::instance::LAPSE_NONCES;
use super::ledger::{Ledger, TOLERANCE};
use super::redis::{Redis, StoredCounter};
use super::time::Time;
use super::{Counting, SKEWS};
use counted::Counts;
use grants::closes;
use sums::least_room;
pub use sums::room;
use sums::{fits_at_once, version_of};

/// The longest time after which every instance uses a change of a policy.
const CHANGE_TIME: Duration = Duration::from_secs(1);
/// How long a counter may deny after there was room again: 3 seconds, by clocks that differ.
const CONFIRMED: Duration = Duration::from_millis(3700);

/// How far the fastest clock is ahead, if no clock is off.
const FASTEST: TimeDelta = SKEWS[1];

/// The broken promise, in words.
pub type Broken = String;

/// The facts of the past that the promises depend on.
#[derive(Default)]
pub struct Promises {
    course: Course,
    /// When each version of the policy was made.
    made_at: Vec<Time>,
    /// When the clock of some instance was last off.
    off_at: Option<Time>,
    /// When each account last had no room for so many units.
    full_at: BTreeMap<(AccountId, u64), Time>,
    /// The time and the number of entries, waiting grants and versions at the last note of rooms.
    noted: Option<(Time, usize, usize, usize)>,
    /// For each entry, how many transactions had written before it.
    committed: HashMap<EntryId, usize>,
    transactions: usize,
    /// Entries that a restored copy of the ledger lacked.
    lost: Vec<Entry>,
    /// The accounts whose counter may lag.
    lagging: BTreeSet<AccountId>,
    /// The grants that Redis decided.
    pub counts: Counts,
}

fn promise(is_kept: bool, what: impl Fn() -> String) -> Result<(), Broken> {
    if is_kept { Ok(()) } else { Err(what()) }
}

impl Promises {
    pub fn new(counting: Counting, course: Course) -> Self {
        Self {
            course,
            counts: Counts::new(counting),
            ..Self::default()
        }
    }

    /// A new version of the policy was made.
    pub fn version_made(&mut self, time: Time) {
        self.made_at.push(time);
    }

    /// The clock of some instance is off.
    pub fn clock_is_off(&mut self, time: Time) {
        self.off_at = Some(time);
    }

    /// How many transactions have written.
    pub fn transactions(&self) -> usize {
        self.transactions
    }

    /// A settlement of an account may be missing.
    pub fn may_lag(&mut self, account: AccountId) {
        self.lagging.insert(account);
    }

    /// A copy replaced the ledger, and entries are lost. A claim that is being decided can read
    /// both the old ledger and the copy.
    pub fn lost(&mut self, entries: Vec<Entry>, accounts: &[AccountId], time: Time) {
        self.lost.extend(entries);
        accounts
            .iter()
            .for_each(|account| self.note_room(*account, 0, time));
    }

    /// Checks the entries that a transaction appended, from an index on.
    pub fn check_appended(
        &mut self,
        ledger: &Ledger,
        from: usize,
        sent: &[Sent],
        time: Time,
    ) -> Result<(), Broken> {
        self.transactions += 1;
        for (index, entry) in ledger.entries.iter().enumerate().skip(from) {
            self.committed.insert(entry.id, self.transactions);
            let so_far = &ledger.entries[..=index];
            entries::check(self.course, entry, so_far, &self.counts)?;
            // Without bounds of the ledger, an instant is as late as the fastest clock shows.
            let ahead = self.off_at.map_or(FASTEST, |_| TOLERANCE);
            // Each reset of the account is a microsecond after the entry before it.
            let resets = so_far.iter().filter(|it| it.kind.kind() == Kind::Reset);
            let resets = resets
                .filter(|reset| reset.account == entry.account)
                .count();
            let latest = time.by_clock(ahead) + TimeDelta::microseconds(resets as i64);
            promise(entry.line.at <= latest, || {
                format!("no entry is in the future: {}", entry.line.at)
            })?;
            self.counts.check_appended(entry)?;
            let line = &entry.line;
            let version = line.policy_version;
            let left = least_room(self.course, so_far, entry.account, version, line.at);
            self.note_room(entry.account, left, time);
            let Some(claim) = claim_of(entry, sent) else {
                continue;
            };
            self.counts.note_key(entry, claim);
            promise(!claim.is_refused || self.counts.is_mixed, || {
                "a denied claim takes nothing: its entry came".to_owned()
            })?;
            if entry.provisional.is_none() {
                self.check_version(entry.line.policy_version, claim)?;
            }
            by_hand::check_place(entry, &claim.work)?;
            check_batch(claim, ledger, sent)?;
        }
        Ok(())
    }

    /// Checks a claim that Redis is asked to count.
    pub fn check_count(&self, count: &Count) -> Result<(), Broken> {
        let version = version_of(self.course, count.policy_version);
        promise(version.may_be_counted(), || {
            "Redis counts only under limits that it can count".to_owned()
        })
    }

    /// Checks the answer to a claim or correction.
    pub fn check_answer(
        &mut self,
        claim: &Sent,
        answer: &Result<Outcome, Undecided>,
        ledger: &Ledger,
        redis: &Redis,
        time: Time,
    ) -> Result<(), Broken> {
        // 1. While Redis decides alone, a key gets one grant.
        if let Ok(Outcome::Entered(entry) | Outcome::Repeated(entry)) = answer {
            self.counts.check_told(entry, &self.lost)?;
        }
        // 2. Check what each kind of answer promises.
        match answer {
            Ok(Outcome::Entered(entry)) => {
                promise(nonce(entry) == claim.work.nonce, || {
                    "a claim that is entered has an entry of its own".to_owned()
                })?;
                self.check_grant(claim, entry, ledger, redis)
            }
            Ok(Outcome::Repeated(entry)) => {
                let is_earlier = |other: &Entry| self.committed[&other.id] <= claim.sent_after;
                let is_closed =
                    |other: &Entry| closes(other.kind) == Some(entry.id) && is_earlier(other);
                let is_claim = matches!(claim.work.task, Task::Claim(_));
                promise(!is_claim || !ledger.entries.iter().any(is_closed), || {
                    "a retry says that its grant has ended".to_owned()
                })?;
                self.check_grant(claim, entry, ledger, redis)
            }
            Ok(Outcome::KeyReused) => {
                let counted = [Counts::waiting(ledger, redis), self.counts.were_queued()].concat();
                let mut entries = ledger.entries.iter().chain(&self.lost).chain(&counted);
                let is_other = |entry: &Entry| entry.key == claim.work.key && !does(entry, claim);
                promise(entries.any(is_other), || {
                    "a key is reused only where another claim has it".to_owned()
                })
            }
            Ok(Outcome::Refused(policy, refusal)) => {
                // How a grant ended depends on no version. A claim without a key that never fits is
                // refused at once, by the version that the instance knows.
                let is_ended = matches!(refusal, Refusal::Ended(_));
                let is_too_large = matches!(refusal, Refusal::NeverFits { .. });
                let is_at_once = is_too_large && claim.work.key.is_none();
                if !self.counts.is_mixed && !is_ended && !is_at_once {
                    self.check_version(policy.version, claim)?;
                }
                let version = version_of(self.course, policy.version);
                promise(
                    !is_too_large || !fits_at_once(version, claim.work.units.get()),
                    || "a claim that fits into its limits is not too large".to_owned(),
                )?;
                if let Refusal::NotCorrected(refusal) = refusal {
                    self.check_by_hand(claim, refusal, policy.version, ledger, time)?;
                }
                // The claims of a batch share what all subjects share, and what one subject has.
                let wanted = claim.batch.map_or(claim.work.units.get(), |batch| {
                    if version.total.is_some() {
                        batch.units
                    } else {
                        batch.own_units
                    }
                });
                self.check_refusal((claim, wanted), refusal, ledger, redis, time)
            }
            Ok(Outcome::Withheld(..)) => promise(claim.batch.is_some(), || {
                "nothing but a batch withholds a grant".to_owned()
            }),
            Err(Undecided::Deadline) => promise(claim.sent_at.0 + CLAIM_TIME <= time.0, || {
                "a claim has its time".to_owned()
            }),
            Err(Undecided::Lost) => promise(!self.lost.is_empty(), || {
                "a grant is lost only with the ledger".to_owned()
            }),
            Err(Undecided::Clock) => {
                // The claim may have joined others that were decided while the clock was off.
                let since = claim.sent_at.before(CLAIM_TIME);
                let was_off = self.off_at.is_some_and(|off_at| off_at >= since);
                promise(was_off, || {
                    "a clock is told as off only if one was".to_owned()
                })
            }
            Err(Undecided::Ledger(_) | Undecided::Sent) => Ok(()),
            Err(Undecided::Unseen) if self.counts.is_possible() => Ok(()),
            Err(other) => Err(format!("it decides, or it says that it can't: {other}")),
        }
    }

    fn check_grant(
        &self,
        claim: &Sent,
        entry: &Entry,
        ledger: &Ledger,
        redis: &Redis,
    ) -> Result<(), Broken> {
        let is_it = |other: &&Entry| *other == entry;
        let committed = ledger.entries.iter().filter(is_it).count();
        let is_safe = match entry.line.number {
            0 => self.counts.is_safe(entry, &self.lost, ledger, redis),
            _ => committed == 1 || self.lost.contains(entry),
        };
        promise(is_safe, || {
            "a grant that was answered is in the ledger, exactly once".to_owned()
        })?;
        promise(does(entry, claim), || {
            "a claim is answered with an entry that does what it asks".to_owned()
        })
    }

    fn check_refusal(
        &self,
        (claim, wanted): (&Sent, u64),
        refusal: &Refusal,
        ledger: &Ledger,
        redis: &Redis,
        time: Time,
    ) -> Result<(), Broken> {
        // 1. A refused claim has no entry.
        let own = |entry: &Entry| nonce(entry) == claim.work.nonce;
        let waiting = Counts::waiting(ledger, redis);
        let mut entries = ledger.entries.iter().chain(&waiting);
        promise(!entries.any(own) || self.counts.is_mixed, || {
            "a denied claim takes nothing: its entry is committed".to_owned()
        })?;
        // 2. A refused key had no grant when the claim was sent.
        let is_earlier = |entry: &Entry| {
            entry.key.is_some()
                && entry.key == claim.work.key
                && self.committed[&entry.id] <= claim.sent_after
                && (entry.account == claim.work.account || !self.counts.is_mixed)
        };
        let is_ended = matches!(refusal, Refusal::Ended(_));
        promise(is_ended || !ledger.entries.iter().any(is_earlier), || {
            "a retry gets its grant: it was refused".to_owned()
        })?;
        // 3. A denied claim lacked least_room, and a refused correction came too late.
        match refusal {
            // An instance may still use a version without zones of subjects.
            Refusal::NoOwnCalendar => {
                let has_old = self.course.iter().any(|version| !version.has_own_zones);
                promise(claim.work.calendar.is_some() && has_old, || {
                    "a subject can have a zone of its own: it was refused".to_owned()
                })
            }
            Refusal::Denied(_) if self.counts.may_deny(claim, time) => Ok(()),
            // By a clock that is off, a top-up may have ended.
            Refusal::Denied(_)
                if self.off_at.is_some()
                    && top_ups::has_some(&ledger.entries, claim.work.account) =>
            {
                Ok(())
            }
            Refusal::Denied(_) => {
                let wanted = (claim.work.account, wanted);
                let full_at = self.full_at.get(&wanted);
                let since = claim.sent_at.before(CONFIRMED);
                promise(full_at.is_some_and(|full_at| *full_at >= since), || {
                    "a claim that fits is granted: it was denied".to_owned()
                })
            }
            Refusal::Ended(_) => {
                let mut entries = ledger.entries.iter().chain(&self.lost);
                let grant =
                    entries.find(|entry| entry.key.is_some() && entry.key == claim.work.key);
                let grant = grant.ok_or("a grant that has ended was granted")?;
                let mut entries = ledger.entries.iter().chain(&self.lost);
                let is_closed = entries.any(|entry| closes(entry.kind) == Some(grant.id));
                promise(is_closed || grant.held_until().is_some(), || {
                    "a grant has ended only if it was given back".to_owned()
                })
            }
            Refusal::NotCorrected(refusal) if by_hand::is_of_usage(refusal) => Ok(()),
            Refusal::NotCorrected(refusal) => {
                let entries = [&ledger.entries[..], &self.lost].concat();
                // By a clock that is off, an end may have passed. A copy of the ledger may lack a top-up.
                let is_known = self.off_at.is_none() && self.lost.is_empty();
                let latest = if is_known {
                    time.by_clock(TOLERANCE)
                } else {
                    DateTime::<Utc>::MAX_UTC
                };
                corrections::check_refusal(refusal, &claim.work, &entries, latest)
            }
            Refusal::NeverFits { .. } => Ok(()),
            other => Err(format!("no version says {other:?}")),
        }
    }

    /// Checks why an adjustment or a reset is refused. After a restore nobody knows what it was decided on, and by a
    /// clock that is off nothing may be used.
    fn check_by_hand(
        &self,
        claim: &Sent,
        refusal: &CorrectionRefusal,
        version: u32,
        ledger: &Ledger,
        time: Time,
    ) -> Result<(), Broken> {
        let was_off = self.off_at.is_some_and(|off_at| off_at >= claim.sent_at);
        if !self.lost.is_empty() || was_off || !by_hand::is_of_usage(refusal) {
            return Ok(());
        }
        let entries = &ledger.entries;
        let is_earlier = |entry: &&Entry| self.committed[&entry.id] <= claim.sent_after;
        let from = entries.iter().take_while(is_earlier).count();
        let ahead = self.off_at.map_or(FASTEST, |_| TOLERANCE);
        let moments = [claim.sent_at.by_clock(SKEWS[2]), time.by_clock(ahead)];
        let moved = by_hand::Moved {
            course: self.course,
            entries,
            from,
            moments,
        };
        moved.check_refusal(&claim.work, refusal, version)
    }

    /// Every instance uses a change of the policy within a second.
    fn check_version(&self, version: u32, claim: &Sent) -> Result<(), Broken> {
        let binding = self.version_at(claim.sent_at.before(CHANGE_TIME));
        promise(version >= binding, || {
            format!("a change holds within a second: decided under {version}, not {binding}")
        })
    }

    /// The version that was in force at an instant.
    fn version_at(&self, time: Time) -> u32 {
        let made = self.made_at.iter().filter(|made_at| **made_at <= time);
        u32::try_from(made.count()).expect("few versions").max(1)
    }

    /// Notes for how many units an account has no room.
    fn note_room(&mut self, account: AccountId, left: u64, time: Time) {
        let full = (left + 1..=BATCH_UNITS_MOST).map(|units| ((account, units), time));
        self.full_at.extend(full);
    }

    /// Notes for how many units accounts have no room now, by any instance's clock, under any version that an
    /// instance may still use.
    pub fn note_rooms(
        &mut self,
        ledger: &Ledger,
        redis: &Redis,
        accounts: &[AccountId],
        time: Time,
    ) {
        let entries = ledger.entries.len();
        let queued = redis.queue.len();
        let moment = (time, entries, queued, self.made_at.len());
        if self.noted.replace(moment) == Some(moment) {
            return;
        }
        let versions = self.version_at(time.before(CHANGE_TIME))..=self.version_at(time);
        let waiting = Counts::waiting(ledger, redis);
        let all = if waiting.is_empty() {
            Cow::Borrowed(&ledger.entries)
        } else {
            Cow::Owned([&ledger.entries[..], &waiting].concat())
        };
        for account in accounts {
            let clocks = SKEWS.iter().map(|skew| time.by_clock(*skew));
            let rooms = clocks.flat_map(|now| {
                let room = |version| least_room(self.course, &all, *account, version, now);
                versions.clone().map(room).collect::<Vec<_>>()
            });
            let least = rooms.min().expect("a clock and a version");
            self.note_room(*account, least, time);
        }
    }

    /// Checks a counter that was settled. `is_last` means that no other settlement is on its way.
    /// After the ledger was restored, a counter may have a line that the ledger lacks.
    pub fn check_counter(
        &mut self,
        account: AccountId,
        before: Option<&StoredCounter>,
        counter: &StoredCounter,
        ledger: &Ledger,
        is_last: bool,
    ) -> Result<(), Broken> {
        if is_last && Some(&counter.line) == ledger.last(account) {
            self.lagging.remove(&account);
        }
        if !self.lost.is_empty() {
            return Ok(());
        }
        let number = counter.line.number;
        promise(
            before.is_none_or(|before| before.line.number <= number),
            || "counters follow the ledger: one went back".to_owned(),
        )?;
        let mut entries = ledger.entries_of(account, number);
        promise(entries.any(|entry| entry.line == counter.line), || {
            "counters follow the ledger: a line that it does not have".to_owned()
        })?;
        let keys = ledger.keys_of(account, number);
        let has_all = keys.iter().all(|key| counter.keys.contains(key));
        promise(!counter.has_all_keys || has_all, || {
            "a counter that says so holds all keys".to_owned()
        })
    }

    /// Checks a world in which nothing is open.
    pub fn check_rest(
        &self,
        ledger: &Ledger,
        redis: &Redis,
        sent: &[Sent],
        time: Time,
    ) -> Result<(), Broken> {
        promise(sent.iter().all(|claim| claim.reply.is_none()), || {
            "every claim ends".to_owned()
        })?;
        self.counts.check_rest(&self.lost, ledger, redis)?;
        let accounts: BTreeSet<AccountId> =
            ledger.entries.iter().map(|entry| entry.account).collect();
        for account in accounts.difference(&self.lagging) {
            let last = ledger.last(*account);
            let counter = redis.counter(*account, time.0);
            promise(
                counter.is_none_or(|counter| Some(&counter.line) == last),
                || "counters follow the ledger: one lags, and nothing was lost".to_owned(),
            )?;
        }
        Ok(())
    }
}

/// The nonce that connects an entry with its claim.
pub fn nonce(entry: &Entry) -> u64 {
    nonce_of(entry.id)
}

fn nonce_of(entry: EntryId) -> u64 {
    entry.0.as_u64_pair().1 & ((1 << 42) - 1)
}

/// The claim or correction that made an entry. A lapse has none.
fn claim_of<'a>(entry: &Entry, sent: &'a [Sent]) -> Option<&'a Sent> {
    let nonce = nonce(entry);
    (nonce < LAPSE_NONCES).then(|| &sent[nonce as usize])
}

/// Every claim of a batch that has an entry is granted: each has an entry of its own, or its key had
/// one. The same holds for corrections of a bundle, or another correction did the same.
fn check_batch(claim: &Sent, ledger: &Ledger, sent: &[Sent]) -> Result<(), Broken> {
    let Some(batch) = claim.batch else {
        return Ok(());
    };
    let first = batch.first;
    promise(!batch.is_doomed, || {
        "a batch is granted whole: a wrong claim stands in the way".to_owned()
    })?;
    let has_entry = |claim: &Sent| {
        let mut entries = ledger.entries.iter();
        let has_key = |entry: &Entry| claim.work.key.is_some() && entry.key == claim.work.key;
        let is_corrected = |entry: &Entry| claim.work.corrects().is_some() && does(entry, claim);
        entries
            .any(|entry| nonce(entry) == claim.work.nonce || has_key(entry) || is_corrected(entry))
    };
    let is_member = |batch: Batch| batch.first == first;
    let mut members = sent
        .iter()
        .filter(|member| member.batch.is_some_and(is_member));
    promise(members.all(has_entry), || {
        "a batch is granted whole: a claim has no entry".to_owned()
    })
}

/// Whether an entry does what a claim asks.
fn does(entry: &Entry, claim: &Sent) -> bool {
    let is_done = match (&claim.work.task, entry.kind) {
        (Task::Claim(hold), EntryKind::Grant { held_until }) => {
            hold.is_some() == held_until.is_some() && entry.units == claim.work.units
        }
        (Task::Reverse(grant, None), EntryKind::Reversal { of }) => grant.id == of,
        (
            Task::Reverse(grant, Some(asked)),
            EntryKind::Reversal { of } | EntryKind::PartialReversal { of },
        ) => grant.id == of && entry.units == *asked,
        (Task::Confirm(grant, asked), EntryKind::Confirmation { of }) => {
            grant.id == of && asked.is_none_or(|asked| entry.units == asked)
        }
        (Task::Adjust(direction, counted_at), EntryKind::Adjustment(entered)) => {
            let is_in_place = counted_at.unwrap_or(entry.line.at) == entry.id.at();
            *direction == entered && is_in_place && entry.units == claim.work.units
        }
        (Task::Reset(per), EntryKind::Reset { per: done }) => *per == done,
        (Task::MoveCalendar, EntryKind::Calendar) => true,
        (Task::TopUp(until), EntryKind::TopUp) => {
            let given = entry.top_up().map(|it| it.ends_at);
            given == Some(*until) && entry.units == claim.work.units
        }
        (Task::EndTopUp(top_up), EntryKind::TopUpReversal { of }) => *top_up == of,
        _ => false,
    };
    // A retry of a claim keeps the calendar of its grant.
    let asked = claim.work.calendar.as_deref();
    let own = entry.line.calendar.as_deref();
    let is_new = nonce(entry) == claim.work.nonce || entry.kind == EntryKind::Calendar;
    let has_calendar = !is_new || asked.is_none_or(|asked| own.is_some_and(|own| own.has(asked)));
    // A correction without a key is made once: the same may have been done with a key.
    let needs_no_key = claim.work.key.is_none() && claim.work.corrects().is_some();
    is_done
        && has_calendar
        && entry.account == claim.work.account
        && (entry.key == claim.work.key || needs_no_key)
        && entry.metadata == claim.work.metadata
}
