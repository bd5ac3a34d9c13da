//! The way of a claim that Redis counts. As in `protocol/way.rs`, nothing here waits, sends, or reads
//! a clock: each function says what happens next, `count` does it, and the simulator drives the
//! same functions.
//!
//! 1. A claim leaves the way of all claims for Redis (`let_leave`, `is_counted_now`).
//! 2. The claim is *counted* on its counter alone (`first_count`, `counted_first`).
//! 3. If the counter is not enough to decide, the ledger is read. The claim ends if the ledger has
//!    its key, and goes back if the present terms do not let Redis count (`not_counted`).
//!    Otherwise the claim is *counted again* on the line of the ledger (`count_of`,
//!    `counted_again`).
//! 4. A count may get no answer (`unanswered`).
//!
//! A claim that goes back to the ledger never leaves for Redis again.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::instance::{Terms, is_fresh};
use crate::protocol::{CONFIRMED, CounterDenial, InFlight, LeaveReason, Outcome, Step, Undecided};
use counter::{Count, Counted, CountedGrant, LedgerWord};
use domain::account::{line_of, refuse};
use domain::claim::Units;
use domain::grant::{Entry, Line, Provisional};
use domain::identity::EntryId;
use domain::limit::shape::Limit;
use domain::limit::total::{Total, with_used};
use domain::policy::{Durability, Mode, OnLedgerOutage, Policy, Rule};
use domain::refusal::{DeniedClaim, Refusal};
use domain::work::Task;
use ledger::LedgerView;

/// The largest number of times that the ledger is read for one claim.
pub const ASKS_MOST: u32 = 8;

/// A claim that Redis decides.
pub struct CountedClaim {
    pub claim: InFlight,
    /// The id in the last request to count the claim. Redis may still execute that request.
    pub requested: Option<EntryId>,
}

/// What happens next to a claim that Redis decides.
#[derive(Debug)]
pub enum CountStep {
    /// The ledger is read for the claim, and Redis decides again.
    ReadLedger,
    /// The counter denies the claim: the ledger is searched for the key of the claim.
    Probe(CounterDenial),
    /// Grants of the account wait for the ledger and go first. Redis decides the claim after a short
    /// pause.
    CountLater,
    /// The claim goes back to the way of all claims, where it goes on or ends.
    GoBack(Step),
}

impl From<InFlight> for CountedClaim {
    fn from(claim: InFlight) -> Self {
        Self {
            claim,
            requested: None,
        }
    }
}

impl From<CountedClaim> for InFlight {
    fn from(counted: CountedClaim) -> Self {
        counted.claim
    }
}

/// Lets a claim leave for Redis after half of `claim_time`, the whole time of the claim. Redis
/// decides no holds and no corrections.
pub fn let_leave(claim: &mut InFlight, claim_time: Duration) {
    let is_plain = matches!(claim.work.task, Task::Claim(None));
    claim.leaves_from = is_plain.then(|| claim.deadline - claim_time / 2);
    claim.grants_may_wait = claim.work.policy.rule.may_be_counted();
}

/// Whether Redis decides a claim as soon as the claim has left. If older grants of its account wait,
/// the claim comes after them, and its counter is asked again after a short pause. If they take too
/// long, Redis decides the claim too, if it can.
pub fn is_counted_now(claim: &InFlight, reason: LeaveReason, at: Instant) -> bool {
    match reason {
        LeaveReason::RedisDecides => true,
        LeaveReason::GrantsWait => claim
            .leaves_from
            .is_some_and(|from| (from..claim.deadline).contains(&at)),
    }
}

/// Whether Redis decides the claims of a rule at present.
pub fn redis_decides(rule: &Rule, ledger_is_silent: bool) -> bool {
    rule.durability == Durability::Counted
        || rule.on_ledger_outage == OnLedgerOutage::Count && ledger_is_silent
}

/// The state of the ledger before it is read.
pub fn first_word(ledger_is_silent: bool) -> LedgerWord {
    if ledger_is_silent {
        LedgerWord::Silent
    } else {
        LedgerWord::NotAsked
    }
}

/// The state of the ledger after the last line of an account was read.
pub fn word_of(last: Option<&Line>) -> LedgerWord {
    LedgerWord::Line(last.map_or(0, |line| line.number))
}

/// Prepares the count of a claim on its counter alone, by the present terms. Returns `None` for a
/// claim that must be refused or is of a blocked subject: only the ledger knows whether the claim was
/// granted before ([`leave_uncounted`]).
pub fn first_count(
    counted: &mut CountedClaim,
    word: LedgerWord,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Option<Count> {
    let claim = &mut counted.claim;
    let account = claim.work.account;
    claim.work.policy = terms.of(&claim.work.policy, account, None, now);
    redis_may_decide(claim, now).then(|| count_of(counted, None, word, now))
}

/// Whether the terms of a claim let Redis decide it.
fn redis_may_decide(claim: &InFlight, now: DateTime<Utc>) -> bool {
    let terms = &claim.work.policy;
    terms.rule.may_be_counted()
        && terms.blocked.is_none()
        && refuse(terms, &claim.work.asked(), 0, now).is_none()
}

/// Prepares the count of a claim. The totals come from the ledger, or are not known.
pub fn count_of(
    counted: &mut CountedClaim,
    totals: Option<Vec<Total>>,
    ledger: LedgerWord,
    now: DateTime<Utc>,
) -> Count {
    let policy = &counted.claim.work.policy;
    let totals = totals.unwrap_or_else(|| totals_unknown(policy, now));
    let grant = grant_of(counted, &totals, now);
    let claim = &counted.claim;
    Count {
        account: claim.work.account,
        policy_version: claim.work.policy.version,
        now,
        observes: claim.work.policy.rule.mode == Mode::Observe,
        totals,
        ledger,
        grant: Some(grant),
    }
}

/// Takes the answer of Redis to a count on the counter alone. Every change of a policy that was
/// made before `as_of` was known.
pub fn counted_first(
    claim: &mut InFlight,
    count: Count,
    answer: Option<Counted>,
    as_of: Instant,
    at: Instant,
) -> CountStep {
    // 1. A denial is certain if the ledger confirmed the counter recently, and the terms are fresh.
    let is_confirmed = |confirmed: Option<DateTime<Utc>>| {
        confirmed.is_some_and(|confirmed| (count.now - confirmed).abs() <= CONFIRMED)
            && is_fresh(as_of, at)
    };
    let may_ask = count.ledger == LedgerWord::NotAsked;
    // 2. Older grants of the account go first, while there is time.
    match answer {
        Some(Counted::Waits(..)) if has_time_to_wait(claim, at) => CountStep::CountLater,
        // 3. The counter is missing or too old: the ledger is read.
        Some(Counted::AskLedger(seen)) if may_ask => {
            claim.hints.counter = seen;
            CountStep::ReadLedger
        }
        // 4. A denial that is not certain: the ledger is read.
        Some(Counted::Denied(_, confirmed) | Counted::Waits(_, confirmed))
            if may_ask && !is_confirmed(confirmed) =>
        {
            CountStep::ReadLedger
        }
        // 5. A certain denial of a claim with a key: the ledger is searched for the key.
        Some(Counted::Denied(used, _) | Counted::Waits(used, _))
            if may_ask && claim.sent.is_empty() && claim.work.key.is_some() =>
        {
            // The key may have a grant that the counter does not know.
            let refusal = refusal_of(count, claim.work.units, used);
            CountStep::Probe(CounterDenial { refusal, as_of })
        }
        // 6. Every other answer decides.
        answer => ended(claim, count, answer, at),
    }
}

/// Returns the next step of a claim that must not be counted after the ledger was read: the ledger
/// has its key, or the present terms do not let Redis decide: they refuse the claim, or have limits
/// without calendar windows, which Redis cannot count. Redis takes an account without entries for
/// one without keys, which is not true after an erasure.
pub fn not_counted(claim: &mut InFlight, seen: &LedgerView, now: DateTime<Utc>) -> Option<Step> {
    if let Some(outcome) = Outcome::of_earlier(&claim.work, &seen.entries, now) {
        return Some(Step::End(Ok(outcome)));
    }
    let is_erased = seen.erased.contains(&claim.work.account);
    (is_erased || !redis_may_decide(claim, now)).then(|| leave_to_ledger(claim))
}

/// Takes the answer of Redis to a count after the ledger was read. If the account got new entries
/// meanwhile, the ledger is read again.
pub fn counted_again(
    claim: &mut InFlight,
    count: Count,
    answer: Option<Counted>,
    at: Instant,
) -> CountStep {
    match (answer, count.ledger) {
        (Some(Counted::AskLedger(seen)), LedgerWord::Line(_)) => {
            claim.hints.counter = seen;
            CountStep::ReadLedger
        }
        (answer, _) => ended(claim, count, answer, at),
    }
}

/// Returns the step that the answer of Redis alone decides.
fn ended(claim: &mut InFlight, count: Count, answer: Option<Counted>, at: Instant) -> CountStep {
    let step = match answer {
        // 1. Granted: the grant waits in the queue.
        Some(Counted::Granted(used)) => match count.grant {
            Some(grant) => {
                let totals = with_used(count.totals, used);
                let entry = marked(claim, entry_of(&grant, totals));
                Step::End(Ok(Outcome::Entered(entry)))
            }
            None => leave_to_ledger(claim),
        },
        // 2. The same key already waits in the queue.
        Some(Counted::Queued(queued)) => {
            let entry = marked(claim, entry_of(&queued.grant, queued.totals));
            // What waits in the queue was not given back: nothing corrects it there.
            let outcome = Outcome::of_key(&claim.work, &entry, &[], count.now);
            Step::End(Ok(outcome))
        }
        // 3. Older grants of the account go first, while there is time.
        Some(Counted::Waits(..)) if has_time_to_wait(claim, at) => return CountStep::CountLater,
        // 4. An entry that was sent before may be in the ledger: only the ledger can tell.
        Some(Counted::Denied(..) | Counted::Waits(..)) if !claim.sent.is_empty() => {
            leave_to_ledger(claim)
        }
        // 5. Denied.
        Some(Counted::Denied(used, _) | Counted::Waits(used, _)) => {
            let policy = claim.work.policy.clone();
            Step::End(Ok(Outcome::Refused(
                policy,
                refusal_of(count, claim.work.units, used),
            )))
        }
        // 6. The ledger must be read, but was read too often or is silent.
        Some(Counted::AskLedger(_)) => asked_too_often(claim),
        // 7. No usable answer.
        Some(Counted::Looked(_)) | None => leave_to_ledger(claim),
    };
    CountStep::GoBack(step)
}

/// Leaves a claim to the ledger after the ledger could not be read, or was read too often. The
/// queue was seen: the claim does not wait there.
pub fn asked_too_often(claim: &mut InFlight) -> Step {
    claim.grants_may_wait = false;
    leave_to_ledger(claim)
}

/// Returns the next step after Redis gave no answer. Redis may have counted a claim that was sent.
/// A claim with a key is found by its key. A claim without a key must not be decided twice.
pub fn unanswered(claim: &mut InFlight, is_sent: bool) -> Step {
    if is_sent && claim.work.key.is_none() {
        Step::End(Err(Undecided::Unseen))
    } else {
        leave_to_ledger(claim)
    }
}

/// Leaves a claim to the ledger, because its terms do not let Redis decide it. The counter is asked
/// first whether grants of the account wait: one of them may have the key of the claim.
pub fn leave_uncounted(claim: &mut InFlight) -> Step {
    claim.leaves_from = None;
    Step::Ask
}

/// Leaves a claim to the ledger: Redis does not decide it.
pub fn leave_to_ledger(claim: &mut InFlight) -> Step {
    claim.leaves_from = None;
    Step::Join
}

/// Whether a claim may wait for older grants on their way into the ledger. If newer grants keep
/// coming, the claim is denied in the end on what is known.
fn has_time_to_wait(claim: &InFlight, at: Instant) -> bool {
    claim.leaves_from.is_some_and(|from| at < from)
}

/// The meaning of a denial by Redis. Under a policy that only observes, the units cannot be
/// counted.
fn refusal_of(count: Count, units: Units, used: Vec<u64>) -> Refusal {
    if count.observes {
        Refusal::TooMany
    } else {
        let totals = with_used(count.totals, used);
        let last = Some(line_of(count.policy_version, &totals, count.now));
        Refusal::Denied(DeniedClaim {
            own_units: units.get(),
            totals: totals.into(),
            last,
            shared: Box::default(),
        })
    }
}

/// The limits and windows of a policy, with nothing used.
pub fn totals_unknown(policy: &Policy, now: DateTime<Utc>) -> Vec<Total> {
    let limits = policy.rule.limits.iter();
    let unused = |limit: &Limit| Total::unused(limit, &policy.rule.calendar, now, 1);
    limits.map(unused).collect()
}

fn grant_of(counted: &mut CountedClaim, totals: &[Total], now: DateTime<Utc>) -> CountedGrant {
    let claim = &counted.claim;
    // The id of an entry holds the instant of the grant. This instant must lie in the windows that
    // count the grant.
    let windows = || totals.iter().filter_map(Total::window);
    let fits = |id: &EntryId| windows().all(|window| window.contains(id.at()));
    // The newest id that the ledger may know, or else the id that Redis may know.
    let sent = claim.sent.last().copied();
    let known = sent.or(counted.requested.filter(fits));
    // The ledger may already be in the next window if its clock is a little ahead.
    let starts = windows().map(|window| window.start);
    let at = starts.fold(now, DateTime::max);
    let entry = known.unwrap_or_else(|| EntryId::new(at, 0, claim.work.nonce));
    counted.requested = Some(entry);
    CountedGrant {
        account: claim.work.account,
        entry,
        key: claim.work.key,
        policy: claim.work.policy.id,
        policy_version: claim.work.policy.version,
        subject: claim.work.subject.clone(),
        units: claim.work.units,
        metadata: claim.work.metadata.clone(),
        claimed_by: claim.work.claimed_by,
    }
}

/// The entry with the levels of use that Redis' totals reach.
fn marked(claim: &InFlight, mut entry: Entry) -> Entry {
    let levels = claim.work.policy.rule.warn_at;
    if !levels.is_empty() {
        let after = &entry.line.totals;
        let less = |total: &Total| total.used().saturating_sub(entry.units.get());
        let before = with_used(after.to_vec(), after.iter().map(less).collect());
        entry.crossed = levels.crossed(&before, after);
    }
    entry
}

/// The entry of a grant before the ledger has it: its number is not known yet.
pub fn entry_of(grant: &CountedGrant, totals: Vec<Total>) -> Entry {
    let totals: Arc<[Total]> = totals.into();
    let line = Line {
        number: 0,
        at: grant.entry.at(),
        policy_version: grant.policy_version,
        lapses_at: None,
        calendar: None,
        top_ups: None,
        totals: totals.clone(),
    };
    grant.entry(line, Provisional::Within, &totals)
}
