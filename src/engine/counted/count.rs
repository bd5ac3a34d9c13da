//! Redis decides alone: for policies whose grants are counted, and for those whose owner chose
//! so for the time that the ledger does not answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, timeout};

use crate::clock::Clock;
use crate::counter::{Count, Counted, CountedGrant, Counters, LedgerWord, Looked, Unavailable};
use crate::domain::account::{Refusal, refuse};
use crate::domain::grant::{Entry, EntryKind, Line, Provisional, Total};
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::policy::{Durability, Limit, Mode, OnLedgerOutage, Policy};
use crate::domain::totals::{are_over, with_used};
use crate::engine::claim::{
    CONFIRMED, CounterDenial, Denied, Dispatch, InFlight, Outcome, Step, Undecided, in_batches,
    last_line, probe, totals,
};
use crate::engine::instance::{DrainSignal, Metrics, Policies, Stage, Watch, is_fresh};
use crate::faults::reach;
use crate::ledger::{Ledger, LedgerError, LedgerView, Look};

const LANES: u32 = 2;
const BATCH_MOST: usize = 128;
/// How often the ledger is asked about a claim.
const ASKS_MOST: u32 = 8;
/// How long a look waits to learn what stands in the ledger already.
const STANDING_TIMEOUT: Duration = Duration::from_millis(250);

/// Lets Redis decide claims.
pub struct Counting {
    /// Where they are counted.
    pub counters: Counters,
    /// For what the counters cannot tell.
    pub ledger: Ledger,
    /// The source of time.
    pub clock: Clock,
    /// Whether they are fresh decides whether a counter may deny.
    pub policies: Arc<Policies>,
    /// Whether the ledger answers.
    pub watch: Arc<Watch>,
    /// Where claims go afterwards.
    pub dispatch: Arc<Dispatch>,
    /// Where claims wait that the ledger is asked about. It is never full: a claim is in one queue.
    pub unsure: Sender<InFlight>,
    /// Who is told that grants wait.
    pub drain: DrainSignal,
    /// By how much the clocks of instances may differ.
    pub clocks_differ: TimeDelta,
    /// What is measured.
    pub metrics: Metrics,
}

/// Takes claims off the queue, and lets Redis decide them.
pub async fn count_all(counting: Arc<Counting>, queue: Receiver<InFlight>) {
    in_batches(queue, LANES, BATCH_MOST, move |claims| {
        let counting = counting.clone();
        async move { counting.decide(claims).await }
    })
    .await;
}

/// Takes claims that the counters cannot tell of off the queue, asks the ledger, and lets Redis
/// decide again. Counts of other claims do not wait for the ledger.
pub async fn ask_ledger_all(counting: Arc<Counting>, queue: Receiver<InFlight>) {
    in_batches(queue, LANES, BATCH_MOST, move |claims| {
        let counting = counting.clone();
        async move {
            match counting.watch.ledger_is_silent() {
                true => counting.decide(claims).await,
                false => counting.decide_with_ledger(claims).await,
            }
        }
    })
    .await;
}

/// What the ledger told of a claim's account.
enum LedgerAnswer {
    /// The claim's key stands there already.
    Repeated(Entry),
    /// The totals as of the account's last line.
    Totals(LedgerWord, Vec<Total>),
}

impl Counting {
    async fn decide(&self, mut claims: Vec<InFlight>) {
        let (now, as_of) = (self.clock.now(), self.policies.terms.as_of());
        let word = self.first_word();
        // By what holds now, also for a claim that waited.
        for claim in &mut claims {
            let (own, account) = (&claim.work.policy, claim.work.account);
            claim.work.policy = self.policies.terms.of(own, account, None, now);
        }
        // Only the ledger can tell whether what must be refused was granted before.
        let refused =
            |claim: &mut InFlight| refuse(&claim.work.policy, claim.work.units, now).is_some();
        claims
            .extract_if(.., refused)
            .for_each(|claim| self.give_up(claim));
        let counts = claims.iter_mut().map(|claim| {
            let totals = totals_unknown(&claim.work.policy, now);
            count_of(claim, totals, word, now)
        });
        let counts: Vec<Count> = counts.collect();
        let is_sent = self.counters.is_available();
        let Ok(answers) = self.count(&counts).await else {
            return claims
                .into_iter()
                .for_each(|claim| self.leave_unanswered(claim, is_sent));
        };
        let mut denied = Vec::new();
        for ((mut claim, count), answer) in claims.into_iter().zip(counts).zip(answers) {
            let confirmed = |at: Option<DateTime<Utc>>| {
                at.is_some_and(|at| (now - at).abs() <= CONFIRMED)
                    && is_fresh(as_of, Instant::now())
            };
            match answer {
                Some(Counted::Waits(..)) if may_wait(&claim) => {
                    self.dispatch.go(claim, Step::CountLater);
                }
                Some(Counted::AskLedger(seen)) if word == LedgerWord::NotAsked => {
                    claim.asked.seen = seen;
                    self.ask_about(claim);
                }
                Some(Counted::Denied(_, at) | Counted::Waits(_, at))
                    if word == LedgerWord::NotAsked && !confirmed(at) =>
                {
                    self.ask_about(claim);
                }
                Some(Counted::Denied(used, _) | Counted::Waits(used, _))
                    if word == LedgerWord::NotAsked && claim.sent.is_empty() =>
                {
                    let refusal = refusal_of(count.observes, count.totals, used);
                    let denial = CounterDenial { refusal, as_of };
                    denied.extend(Denied::keyed(claim, denial));
                }
                answer => self.end(claim, count, answer),
            }
        }
        if !denied.is_empty() {
            for (claim, step) in probe(&self.ledger, denied).await {
                match step {
                    Step::Join => self.ask_about(claim),
                    step => self.dispatch.go(claim, step),
                }
            }
        }
    }

    fn ask_about(&self, claim: InFlight) {
        if let Err(error) = self.unsure.try_send(claim) {
            self.give_up(error.into_inner());
        }
    }

    /// Asks the ledger for what the counters could not tell, and lets Redis decide again:
    /// several times where grants come into the ledger meanwhile.
    async fn decide_with_ledger(&self, mut claims: Vec<InFlight>) {
        for _ in 0..ASKS_MOST {
            if claims.is_empty() {
                return;
            }
            claims = self.decide_on_its_word(claims).await;
        }
        for mut claim in claims {
            // It does not wait in the queue, which was seen.
            claim.may_wait = false;
            self.give_up(claim);
        }
    }

    /// Returns the claims whose accounts went on meanwhile.
    async fn decide_on_its_word(&self, mut claims: Vec<InFlight>) -> Vec<InFlight> {
        let now = self.clock.now();
        let mut counts = Vec::with_capacity(claims.len());
        let mut open = Vec::with_capacity(claims.len());
        let told = self.ask_ledger(&mut claims, now).await;
        for (mut claim, told) in claims.into_iter().zip(told) {
            let count = match told {
                Ok(LedgerAnswer::Repeated(entry)) => {
                    let outcome = Outcome::of_key(&claim.work, entry);
                    claim.end(Ok(outcome));
                    continue;
                }
                Ok(LedgerAnswer::Totals(word, totals)) => count_of(&mut claim, totals, word, now),
                Err(_) => {
                    let totals = totals_unknown(&claim.work.policy, now);
                    count_of(&mut claim, totals, LedgerWord::Silent, now)
                }
            };
            counts.push(count);
            open.push(claim);
        }
        let is_sent = self.counters.is_available();
        let Ok(answers) = self.count(&counts).await else {
            open.into_iter()
                .for_each(|claim| self.leave_unanswered(claim, is_sent));
            return Vec::new();
        };
        let mut unsure = Vec::new();
        for ((mut claim, count), answer) in open.into_iter().zip(counts).zip(answers) {
            match (answer, count.ledger) {
                (Some(Counted::AskLedger(seen)), LedgerWord::Line(_)) => {
                    claim.asked.seen = seen;
                    unsure.push(claim);
                }
                (answer, _) => self.end(claim, count, answer),
            }
        }
        unsure
    }

    async fn look_at_ledger(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let seen = self.ledger.look(look).await?;
        // After it: it may have taken its time.
        self.policies.freshen_for(&seen, &self.ledger).await?;
        Ok(seen)
    }

    /// What the ledger tells of each claim's account, by the terms that hold then; its counter
    /// learns it too.
    async fn ask_ledger(
        &self,
        claims: &mut [InFlight],
        now: DateTime<Utc>,
    ) -> Vec<Result<LedgerAnswer, Arc<LedgerError>>> {
        let look = Look {
            accounts: claims.iter().map(|claim| claim.work.account).collect(),
            keys: claims.iter().filter_map(|claim| claim.work.key).collect(),
            ..Look::default()
        };
        let seen = match self.look_at_ledger(&look).await {
            Ok(seen) => seen,
            Err(error) => {
                let error = Arc::new(error);
                return claims.iter().map(|_| Err(error.clone())).collect();
            }
        };
        let mut told = Vec::with_capacity(claims.len());
        for claim in claims {
            let is_repeated =
                |entry: &&Entry| claim.work.key.is_some() && entry.key == claim.work.key;
            let last = seen.lines.get(&claim.work.account);
            let (policies, account) = (&self.policies, claim.work.account);
            let terms = policies.terms_after(&claim.work.policy, account, last, now, &self.ledger);
            match terms.await {
                Ok(terms) => claim.work.policy = terms,
                Err(error) => {
                    told.push(Err(Arc::new(error)));
                    continue;
                }
            }
            told.push(match seen.entries.iter().find(is_repeated) {
                Some(entry) => Ok(LedgerAnswer::Repeated(entry.clone())),
                None => {
                    if let Some(line) = last {
                        let seen = claim.asked.seen;
                        self.dispatch
                            .settle
                            .confirm(claim.work.account, line, seen, now);
                    }
                    let policy = &claim.work.policy;
                    let last = last.cloned();
                    let word = word_of(last.as_ref());
                    let told = totals(&self.ledger, policy, claim.work.account, last, now).await;
                    match told {
                        Ok(totals) => Ok(LedgerAnswer::Totals(word, totals)),
                        Err(error) => Err(Arc::new(error)),
                    }
                }
            });
        }
        told
    }

    /// Ends a claim by what Redis answered to a count.
    fn end(&self, mut claim: InFlight, count: Count, answer: Option<Counted>) {
        match (answer, count.grant) {
            (Some(Counted::Granted(used)), Some(grant)) => {
                self.drain.grants_wait(claim.work.account);
                let entry = entry_of(grant, with_used(count.totals, used));
                claim.end(Ok(Outcome::Entered(entry)));
            }
            (Some(Counted::Queued(queued)), _) => {
                self.drain.grants_wait(claim.work.account);
                let entry = entry_of(queued.grant, queued.totals);
                let outcome = Outcome::of_key(&claim.work, entry);
                claim.end(Ok(outcome));
            }
            (Some(Counted::Waits(..)), _) if may_wait(&claim) => {
                self.dispatch.go(claim, Step::CountLater);
            }
            // It may stand in the ledger: only that can tell.
            (Some(Counted::Denied(..) | Counted::Waits(..)), _) if !claim.sent.is_empty() => {
                self.give_up(claim);
            }
            (Some(Counted::Denied(used, _) | Counted::Waits(used, _)), _) => {
                let policy = claim.work.policy.clone();
                let refusal = refusal_of(count.observes, count.totals, used);
                claim.end(Ok(Outcome::Refused(policy, refusal)));
            }
            (Some(Counted::AskLedger(_)), _) => {
                claim.may_wait = false;
                self.give_up(claim);
            }
            (Some(Counted::Looked(_) | Counted::Granted(_)) | None, _) => self.give_up(claim),
        }
    }

    /// Redis gave no answer, and may have counted a claim that was sent to it. One with a key is
    /// known by it, whoever decides; another one must not be decided a second time.
    fn leave_unanswered(&self, claim: InFlight, is_sent: bool) {
        match is_sent && claim.work.key.is_none() {
            true => claim.end(Err(Undecided::Unseen)),
            false => self.give_up(claim),
        }
    }

    /// Leaves a claim to the ledger.
    fn give_up(&self, mut claim: InFlight) {
        claim.may_be_counted = false;
        self.dispatch.go(claim, Step::Join);
    }

    /// An account's totals by some terms, with the units that wait for the ledger; `None` when
    /// Redis cannot tell.
    ///
    /// # Errors
    /// [`LedgerError`], where the ledger must be asked.
    pub async fn look(
        &self,
        policy: &Policy,
        account: AccountId,
        now: DateTime<Utc>,
    ) -> Result<Option<Vec<Total>>, LedgerError> {
        let mut count = Count {
            account,
            policy_version: policy.version,
            now,
            observes: policy.rule.mode == Mode::Observe,
            totals: totals_unknown(policy, now),
            ledger: self.first_word(),
            grant: None,
        };
        let mut answer = self.count_one(&count).await;
        if matches!(answer, Some(Counted::AskLedger(_))) && count.ledger == LedgerWord::NotAsked {
            let last = last_line(&self.ledger, account).await?;
            count.ledger = word_of(last.as_ref());
            count.totals = totals(&self.ledger, policy, account, last, now).await?;
            answer = self.count_one(&count).await;
        }
        let Some(Counted::Looked(looked)) = answer else {
            return Ok(None);
        };
        let standing = self.standing(&looked).await;
        let mut totals = count.totals;
        for (total, (used, waits)) in totals.iter_mut().zip(looked.units) {
            let of_window = standing.iter().filter(|entry| {
                let same = |other: &Total| other.per == total.per && other.window == total.window;
                entry.line.totals.iter().any(same)
            });
            let twice = of_window.map(|entry| entry.units.get()).sum();
            total.used = used + waits.saturating_sub(twice);
        }
        Ok(Some(totals))
    }

    /// Of the grants that wait, those that stand in the line already by which a look goes: an
    /// entry up to it stood there when the line was learnt. None where the ledger cannot tell.
    async fn standing(&self, looked: &Looked) -> Vec<Entry> {
        if looked.waiting.is_empty() || looked.number == 0 {
            return Vec::new();
        }
        let look = Look {
            entries: looked.waiting.clone(),
            ..Look::default()
        };
        let Ok(Ok(seen)) = timeout(STANDING_TIMEOUT, self.ledger.look(&look)).await else {
            return Vec::new();
        };
        let entries = seen.entries.into_iter();
        entries
            .filter(|entry| entry.line.number <= looked.number)
            .collect()
    }

    /// Whether Redis decides a policy's claims just now.
    pub fn decides(&self, policy: &Policy) -> bool {
        let rule = &policy.rule;
        let counts = rule.durability == Durability::Counted
            || rule.on_ledger_outage == OnLedgerOutage::Count && self.watch.ledger_is_silent();
        counts && self.counters.is_available()
    }

    async fn count(&self, counts: &[Count]) -> Result<Vec<Option<Counted>>, Unavailable> {
        reach("count.begun");
        let counting = pin!(self.counters.count(counts, self.clocks_differ));
        let timed = self.metrics.timed(Stage::Count, counts.len(), counting);
        let answers = timed.await;
        reach("count.ended");
        answers
    }

    async fn count_one(&self, count: &Count) -> Option<Counted> {
        let answers = self.count(std::slice::from_ref(count)).await;
        answers.ok()?.pop()?
    }

    /// What the ledger says before it is asked.
    fn first_word(&self) -> LedgerWord {
        match self.watch.ledger_is_silent() {
            true => LedgerWord::Silent,
            false => LedgerWord::NotAsked,
        }
    }
}

/// Whether a claim may wait for grants that are on their way into the ledger. If those that come
/// after them never let it know for sure, it is denied on what is known.
fn may_wait(claim: &InFlight) -> bool {
    Instant::now() < claim.count_from
}

fn word_of(last: Option<&Line>) -> LedgerWord {
    LedgerWord::Line(last.map_or(0, |line| line.number))
}

/// What a denial by Redis means: under a policy that only observes, that the units cannot be
/// counted.
fn refusal_of(observes: bool, totals: Vec<Total>, used: Vec<u64>) -> Refusal {
    match observes {
        true => Refusal::TooMany,
        false => Refusal::Denied(with_used(totals, used)),
    }
}

fn totals_unknown(policy: &Policy, now: DateTime<Utc>) -> Vec<Total> {
    let limits = policy.rule.limits.iter();
    let total = |limit: &Limit| Total {
        per: limit.per,
        max: limit.max,
        used: 0,
        window: policy.rule.calendar.window(limit.per, now),
    };
    limits.map(total).collect()
}

fn count_of(
    claim: &mut InFlight,
    totals: Vec<Total>,
    ledger: LedgerWord,
    now: DateTime<Utc>,
) -> Count {
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

fn grant_of(claim: &mut InFlight, totals: &[Total], now: DateTime<Utc>) -> CountedGrant {
    // An id bears the grant's instant, and that lies in the windows that are counted in.
    let fits = |id: &EntryId| totals.iter().all(|total| total.window.contains(id.at()));
    // Under the newest id that the ledger may know it by; else the one that Redis may know it by.
    let sent = claim.sent.last().copied();
    let known = sent.or(claim.counted.filter(fits));
    // The ledger may be in the next window, by a clock that is a little ahead.
    let starts = totals.iter().map(|total| total.window.start);
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
fn entry_of(grant: CountedGrant, totals: Vec<Total>) -> Entry {
    Entry {
        account: grant.account,
        id: grant.entry,
        kind: EntryKind::Grant { held_until: None },
        units: grant.units,
        key: grant.key,
        metadata: grant.metadata,
        provisional: Some(Provisional::Within),
        would_deny: are_over(&totals),
        claimed_by: grant.claimed_by,
        note: None,
        line: Line {
            number: 0,
            at: grant.entry.at(),
            policy_version: grant.policy_version,
            lapses_at: None,
            totals: totals.into(),
        },
    }
}
