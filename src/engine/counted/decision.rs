//! What becomes of a claim that Redis counts. As in `claim/way.rs` nothing here waits, sends, or reads
//! a clock: each function says what happens next, `count` does it, and the simulator drives the same
//! functions.
//!
//! 1. A claim is *counted* on its counter alone (`first_count`, `counted_first`).
//! 2. Where the counter cannot tell, the ledger is asked. A claim whose key it has ends, and one that
//!    the present terms do not let Redis count is left to it (`not_counted`). The others are *counted
//!    again* on the ledger's word (`count_of`, `counted_again`).
//! 3. A count may have no answer (`unanswered`).

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::counter::{Count, Counted, CountedGrant, LedgerWord};
use crate::domain::account::refuse;
use crate::domain::grant::{Entry, Line, Provisional};
use crate::domain::identity::EntryId;
use crate::domain::limit::shape::Limit;
use crate::domain::limit::total::{Total, with_used};
use crate::domain::policy::{Durability, Mode, OnLedgerOutage, Policy, Rule};
use crate::domain::refusal::Refusal;
use crate::engine::claim::{CONFIRMED, CounterDenial, InFlight, Outcome, Step, Undecided};
use crate::engine::instance::{Terms, is_fresh};
use crate::ledger::LedgerView;

/// How often the ledger is asked about a claim.
pub const ASKS_MOST: u32 = 8;

/// Whether Redis decides the claims of a rule at present.
pub fn redis_decides(rule: &Rule, ledger_is_silent: bool) -> bool {
    rule.durability == Durability::Counted
        || rule.on_ledger_outage == OnLedgerOutage::Count && ledger_is_silent
}

/// What the ledger says before it is asked.
pub fn first_word(ledger_is_silent: bool) -> LedgerWord {
    match ledger_is_silent {
        true => LedgerWord::Silent,
        false => LedgerWord::NotAsked,
    }
}

/// What the ledger says with an account's last line.
pub fn word_of(last: Option<&Line>) -> LedgerWord {
    LedgerWord::Line(last.map_or(0, |line| line.number))
}

/// How a claim is counted on its counter alone, by the terms that hold now. `None` for one that must
/// be refused: only the ledger can tell whether it was granted before.
pub fn first_count(
    claim: &mut InFlight,
    word: LedgerWord,
    terms: &Terms,
    now: DateTime<Utc>,
) -> Option<Count> {
    let (own, account) = (&claim.work.policy, claim.work.account);
    claim.work.policy = terms.of(own, account, None, now);
    let may_be_counted = claim.work.policy.rule.may_be_counted();
    match refuse(&claim.work.policy, claim.work.units, now) {
        None if may_be_counted => Some(count_of(claim, None, word, now)),
        Some(_) | None => None,
    }
}

/// How a claim is counted. The ledger told the totals, or they are not known.
pub fn count_of(
    claim: &mut InFlight,
    totals: Option<Vec<Total>>,
    ledger: LedgerWord,
    now: DateTime<Utc>,
) -> Count {
    let totals = totals.unwrap_or_else(|| totals_unknown(&claim.work.policy, now));
    let grant = grant_of(claim, &totals, now);
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

/// A claim was counted on its counter alone. Every change of a policy that was made before `as_of`
/// was known. `None` where the ledger must be asked.
pub fn counted_first(
    claim: &mut InFlight,
    count: Count,
    answer: Option<Counted>,
    as_of: Instant,
    at: Instant,
) -> Option<Step> {
    let is_confirmed = |confirmed: Option<DateTime<Utc>>| {
        confirmed.is_some_and(|confirmed| (count.now - confirmed).abs() <= CONFIRMED)
            && is_fresh(as_of, at)
    };
    let may_ask = count.ledger == LedgerWord::NotAsked;
    match answer {
        Some(Counted::Waits(..)) if may_wait(claim, at) => Some(Step::CountLater),
        Some(Counted::AskLedger(seen)) if may_ask => {
            claim.asked.seen = seen;
            None
        }
        Some(Counted::Denied(_, confirmed) | Counted::Waits(_, confirmed))
            if may_ask && !is_confirmed(confirmed) =>
        {
            None
        }
        Some(Counted::Denied(used, _) | Counted::Waits(used, _))
            if may_ask && claim.sent.is_empty() && claim.work.key.is_some() =>
        {
            // The key may have a grant that the counter does not tell.
            let refusal = refusal_of(count, used);
            Some(Step::Probe(CounterDenial { refusal, as_of }))
        }
        answer => Some(ended(claim, count, answer, at)),
    }
}

/// What becomes of a claim that is not counted on the ledger's word: the ledger has its key, or the
/// terms that hold after the ledger's line do not let Redis decide. They may have other limits than the
/// calendar's, which Redis cannot count.
pub fn not_counted(claim: &mut InFlight, seen: &LedgerView) -> Option<Step> {
    let mut entries = seen.entries.iter();
    let has_key = |entry: &&Entry| claim.work.key.is_some() && entry.key == claim.work.key;
    if let Some(entry) = entries.find(has_key) {
        let outcome = Outcome::of_key(&claim.work, entry.clone());
        return Some(Step::End(Ok(outcome)));
    }
    let may_be_counted = claim.work.policy.rule.may_be_counted();
    (!may_be_counted).then(|| leave_to_ledger(claim))
}

/// A claim was counted after the ledger was asked. `None` where its account went on meanwhile: the
/// ledger must be asked again.
pub fn counted_again(
    claim: &mut InFlight,
    count: Count,
    answer: Option<Counted>,
    at: Instant,
) -> Option<Step> {
    match (answer, count.ledger) {
        (Some(Counted::AskLedger(seen)), LedgerWord::Line(_)) => {
            claim.asked.seen = seen;
            None
        }
        (answer, _) => Some(ended(claim, count, answer, at)),
    }
}

/// What Redis answered to a count decides, without the ledger.
fn ended(claim: &mut InFlight, count: Count, answer: Option<Counted>, at: Instant) -> Step {
    match answer {
        Some(Counted::Granted(used)) => match count.grant {
            Some(grant) => {
                let entry = entry_of(&grant, with_used(count.totals, used));
                Step::End(Ok(Outcome::Entered(entry)))
            }
            None => leave_to_ledger(claim),
        },
        Some(Counted::Queued(queued)) => {
            let entry = entry_of(&queued.grant, queued.totals);
            Step::End(Ok(Outcome::of_key(&claim.work, entry)))
        }
        Some(Counted::Waits(..)) if may_wait(claim, at) => Step::CountLater,
        // It may be in the ledger: only that can tell.
        Some(Counted::Denied(..) | Counted::Waits(..)) if !claim.sent.is_empty() => {
            leave_to_ledger(claim)
        }
        Some(Counted::Denied(used, _) | Counted::Waits(used, _)) => {
            let policy = claim.work.policy.clone();
            Step::End(Ok(Outcome::Refused(policy, refusal_of(count, used))))
        }
        Some(Counted::AskLedger(_)) => asked_too_often(claim),
        Some(Counted::Looked(_)) | None => leave_to_ledger(claim),
    }
}

/// The ledger cannot be asked about a claim, or not once more. The claim does not wait in the queue,
/// which was seen.
pub fn asked_too_often(claim: &mut InFlight) -> Step {
    claim.may_wait = false;
    leave_to_ledger(claim)
}

/// Redis gave no answer, and may have counted a claim that was sent to it. A claim with a key is known
/// by the key. A claim without one must not be decided a second time.
pub fn unanswered(claim: &mut InFlight, is_sent: bool) -> Step {
    match is_sent && claim.work.key.is_none() {
        true => Step::End(Err(Undecided::Unseen)),
        false => leave_to_ledger(claim),
    }
}

/// Redis does not decide a claim.
pub fn leave_to_ledger(claim: &mut InFlight) -> Step {
    claim.may_be_counted = false;
    Step::Join
}

/// Whether a claim may wait for grants that are on their way into the ledger. If those that come
/// after them never let it know for sure, it is denied on what is known.
fn may_wait(claim: &InFlight, at: Instant) -> bool {
    at < claim.count_from
}

/// What a denial by Redis means: under a policy that only observes, that the units cannot be
/// counted.
fn refusal_of(count: Count, used: Vec<u64>) -> Refusal {
    match count.observes {
        true => Refusal::TooMany,
        false => Refusal::Denied(with_used(count.totals, used)),
    }
}

/// A policy's limits and windows, without what is used.
pub fn totals_unknown(policy: &Policy, now: DateTime<Utc>) -> Vec<Total> {
    let limits = policy.rule.limits.iter();
    let unused = |limit: &Limit| Total::unused(limit, &policy.rule.calendar, now, 1);
    limits.map(unused).collect()
}

fn grant_of(claim: &mut InFlight, totals: &[Total], now: DateTime<Utc>) -> CountedGrant {
    // An id has the grant's instant, which lies in the windows that are counted in.
    let windows = || totals.iter().filter_map(Total::window);
    let fits = |id: &EntryId| windows().all(|window| window.contains(id.at()));
    // Under the newest id that the ledger may know it by; else the one that Redis may know it by.
    let sent = claim.sent.last().copied();
    let known = sent.or(claim.counted.filter(fits));
    // The ledger may be in the next window, by a clock that is a little ahead.
    let starts = windows().map(|window| window.start);
    let at = starts.fold(now, DateTime::max);
    let entry = known.unwrap_or_else(|| EntryId::new(at, 0, claim.work.nonce));
    claim.counted = Some(entry);
    CountedGrant {
        account: claim.work.account,
        entry,
        key: claim.work.key,
        policy: claim.work.policy.id,
        policy_version: claim.work.policy.version,
        subject: claim.work.subject.clone(),
        units: claim.work.units,
        metadata: claim.work.metadata.clone(),
        claimed_by: Some(claim.work.claimed_by),
    }
}

/// A grant as it is answered before the ledger has it: its number is still to come.
pub fn entry_of(grant: &CountedGrant, totals: Vec<Total>) -> Entry {
    let totals: Arc<[Total]> = totals.into();
    let line = Line {
        number: 0,
        at: grant.entry.at(),
        policy_version: grant.policy_version,
        lapses_at: None,
        totals: totals.clone(),
    };
    grant.entry(line, Provisional::Within, &totals)
}
