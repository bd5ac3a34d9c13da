//! Lets Redis decide claims: always for policies whose grants are counted, and during an outage of
//! the ledger for policies whose owner chose so.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, timeout};

use super::decision::{
    ASKS_MOST, CountStep, CountedClaim, asked_too_often, count_of, counted_again, counted_first,
    first_count, first_word, is_counted_now, leave_to_ledger, leave_uncounted, let_leave,
    not_counted, redis_decides, totals_unknown, unanswered, word_of,
};
use crate::instance::{DrainSignal, Metrics, Policies, Stage, Watch};
use crate::protocol::settle::Settling;
use crate::protocol::{
    CounterDenial, Denied, Dispatch, InFlight, Leaving, Step, in_batches, last_line, probe, totals,
};
use counter::{Count, Counted, Counters, LedgerWord, Looked, Unavailable};
use domain::grant::Entry;
use domain::identity::AccountId;
use domain::limit::total::Total;
use domain::policy::{Mode, Policy};
use host::clock::Clock;
use host::faults::reach;
use ledger::{ClaimTables, LedgerError, LedgerView, Look};

const WORKERS: u32 = 2;
const BATCH_MOST: usize = 128;
/// How long a look waits for the ledger to find grants that are already recorded.
const STANDING_TIMEOUT: Duration = Duration::from_millis(250);

pub struct Counting {
    pub counters: Counters,
    /// The ledger, for what the counters do not know.
    pub ledger: ClaimTables,
    pub clock: Clock,
    /// The policies. A counter may deny only while they are fresh.
    pub policies: Arc<Policies>,
    pub watch: Arc<Watch>,
    /// The next steps of claims.
    pub dispatch: Arc<Dispatch>,
    /// The queue of claims for which the ledger is read. The queue is never full: a claim is in one
    /// queue only.
    pub unsure: Sender<CountedClaim>,
    /// The queue of claims that Redis decides again, because older grants went first.
    pub again: Sender<CountedClaim>,
    /// The signal that grants wait.
    pub drain: DrainSignal,
    /// The largest difference between the clocks of instances.
    pub clocks_differ: TimeDelta,
    /// The whole time of a claim.
    pub claim_time: Duration,
    pub metrics: Metrics,
}

/// Takes claims that left for Redis off the queue, and lets Redis decide them. Claims that come after
/// older grants go back after a pause.
pub async fn count_all(counting: Arc<Counting>, queue: Receiver<Leaving>) {
    in_batches(queue, WORKERS, BATCH_MOST, move |leaving| {
        let counting = counting.clone();
        async move {
            let at = Instant::now();
            let is_counted = |it: &Leaving| is_counted_now(&it.claim, it.reason, at);
            let (counted, others): (Vec<_>, Vec<_>) = leaving.into_iter().partition(is_counted);
            counting.go_back_later(others.into_iter().map(InFlight::from).collect());
            let counted = counted.into_iter().map(InFlight::from);
            counting
                .decide(counted.map(CountedClaim::from).collect())
                .await;
        }
    })
    .await;
}

/// Takes claims that waited for older grants off the queue, and lets Redis decide them.
pub async fn count_again_all(counting: Arc<Counting>, queue: Receiver<CountedClaim>) {
    in_batches(queue, WORKERS, BATCH_MOST, move |claims| {
        let counting = counting.clone();
        async move { counting.decide(claims).await }
    })
    .await;
}

/// Takes claims whose counters are not enough off the queue, reads the ledger, and lets Redis
/// decide again. Counts of other claims do not wait for the ledger.
pub async fn ask_ledger_all(counting: Arc<Counting>, queue: Receiver<CountedClaim>) {
    in_batches(queue, WORKERS, BATCH_MOST, move |claims| {
        let counting = counting.clone();
        async move {
            if counting.watch.ledger_is_silent() {
                counting.decide(claims).await
            } else {
                counting.decide_with_ledger(claims).await
            }
        }
    })
    .await;
}

/// What the ledger says about the account of a claim.
enum LedgerAnswer {
    /// The ledger has the key of the claim, or the claim leaves Redis.
    NotCounted(Box<Step>),
    /// The totals as of the last line of the account.
    Totals(LedgerWord, Vec<Total>),
}

impl Counting {
    /// Lets a claim leave for Redis in time.
    pub fn let_leave(&self, claim: &mut InFlight) {
        let_leave(claim, self.claim_time);
    }

    /// Lets Redis decide claims.
    async fn decide(&self, claims: Vec<CountedClaim>) {
        // 1. Each claim is prepared by the present terms, which also apply to a claim that waited.
        let now = self.clock.now();
        let as_of = self.policies.terms.as_of();
        let word = first_word(self.watch.ledger_is_silent());
        let mut counts = Vec::new();
        let mut prepared = Vec::with_capacity(claims.len());
        for mut counted in claims {
            match first_count(&mut counted, word, &self.policies.terms, now) {
                Some(count) => {
                    counts.push(count);
                    prepared.push(counted);
                }
                None => {
                    let step = leave_uncounted(&mut counted.claim);
                    self.dispatch.go(counted.claim, step);
                }
            }
        }
        // 2. Redis decides all claims in one call.
        let Some((claims, answers)) = self.count_claims(prepared, &counts).await else {
            return;
        };
        // 3. Each answer ends the claim, or names its next step.
        let mut denied = Vec::new();
        let mut later = Vec::new();
        for ((mut counted, count), answer) in claims.into_iter().zip(counts).zip(answers) {
            let claim = &mut counted.claim;
            match counted_first(claim, count, answer, as_of, Instant::now()) {
                CountStep::Probe(denial) => denied.push((counted, denial)),
                CountStep::CountLater => later.push(counted),
                CountStep::ReadLedger => self.read_ledger(counted),
                CountStep::GoBack(step) => self.dispatch.go(counted.claim, step),
            }
        }
        self.decide_later(later);
        // 4. Denied claims with keys are searched for in the ledger.
        self.probe(denied).await;
    }

    /// Searches the ledger for the keys of denied claims. For a claim that the ledger has to decide,
    /// the ledger is read, and Redis decides again.
    async fn probe(&self, denied: Vec<(CountedClaim, CounterDenial)>) {
        if denied.is_empty() {
            return;
        }
        let requested: Vec<_> = denied
            .iter()
            .map(|(counted, _)| counted.requested)
            .collect();
        let denied = denied.into_iter().map(|(counted, denial)| Denied {
            claim: counted.claim,
            denial,
        });
        let probed = probe(&self.dispatch, &self.ledger, denied.collect()).await;
        for ((claim, step), requested) in probed.into_iter().zip(requested) {
            match step {
                Step::Join => self.read_ledger(CountedClaim { claim, requested }),
                step => self.dispatch.go(claim, step),
            }
        }
    }

    /// Reads the ledger for claims that the counters could not decide, and lets Redis decide again.
    /// This repeats if the accounts get new entries meanwhile.
    async fn decide_with_ledger(&self, mut claims: Vec<CountedClaim>) {
        for _ in 0..ASKS_MOST {
            if claims.is_empty() {
                return;
            }
            claims = self.decide_on_its_word(claims).await;
        }
        for mut counted in claims {
            let step = asked_too_often(&mut counted.claim);
            self.dispatch.go(counted.claim, step);
        }
    }

    /// One round of [`Self::decide_with_ledger`]. Returns the claims whose accounts got new entries
    /// meanwhile.
    async fn decide_on_its_word(&self, mut claims: Vec<CountedClaim>) -> Vec<CountedClaim> {
        // 1. The ledger is read for all claims.
        let now = self.clock.now();
        let mut counts = Vec::with_capacity(claims.len());
        let mut open = Vec::with_capacity(claims.len());
        let answers = self.ask_ledger(&mut claims, now).await;
        for (mut counted, answer) in claims.into_iter().zip(answers) {
            let (word, totals) = match answer {
                Ok(LedgerAnswer::NotCounted(step)) => {
                    self.dispatch.go(counted.claim, *step);
                    continue;
                }
                Ok(LedgerAnswer::Totals(word, totals)) => (word, Some(totals)),
                Err(_) => (LedgerWord::Silent, None),
            };
            counts.push(count_of(&mut counted, totals, word, now));
            open.push(counted);
        }
        // 2. Redis decides again, with the totals of the ledger.
        let Some((open, answers)) = self.count_claims(open, &counts).await else {
            return Vec::new();
        };
        // 3. A claim whose account got new entries meanwhile goes into the next round.
        let mut unsure = Vec::new();
        let mut later = Vec::new();
        for ((mut counted, count), answer) in open.into_iter().zip(counts).zip(answers) {
            let claim = &mut counted.claim;
            match counted_again(claim, count, answer, Instant::now()) {
                CountStep::ReadLedger => unsure.push(counted),
                CountStep::CountLater => later.push(counted),
                CountStep::Probe(denial) => self.dispatch.go(counted.claim, Step::Probe(denial)),
                CountStep::GoBack(step) => self.dispatch.go(counted.claim, step),
            }
        }
        self.decide_later(later);
        unsure
    }

    /// Lets Redis count claims. Returns `None` if Redis gives no answer: then the claims already
    /// have their next steps.
    async fn count_claims(
        &self,
        claims: Vec<CountedClaim>,
        counts: &[Count],
    ) -> Option<(Vec<CountedClaim>, Vec<Option<Counted>>)> {
        let is_sent = self.counters.is_available();
        let Ok(answers) = self.count(counts).await else {
            for mut counted in claims {
                let step = unanswered(&mut counted.claim, is_sent);
                self.dispatch.go(counted.claim, step);
            }
            return None;
        };
        self.note_grants(&claims, &answers);
        Some((claims, answers))
    }

    async fn look_at_ledger(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let seen = self.ledger.look(look).await?;
        // The terms are read after the look, which may have taken long.
        self.policies.freshen_for(&seen).await?;
        Ok(seen)
    }

    /// Reads the accounts of the claims from the ledger, by the terms that apply then. The counters
    /// get the lines too.
    async fn ask_ledger(
        &self,
        claims: &mut [CountedClaim],
        now: DateTime<Utc>,
    ) -> Vec<Result<LedgerAnswer, Arc<LedgerError>>> {
        let works = || claims.iter().map(|counted| &counted.claim.work);
        let look = Look {
            accounts: works().map(|work| work.account).collect(),
            keys: works().filter_map(|work| work.key).collect(),
            counts: true,
            ..Look::default()
        };
        let seen = match self.look_at_ledger(&look).await {
            Ok(seen) => seen,
            Err(error) => {
                let error = Arc::new(error);
                return claims.iter().map(|_| Err(error.clone())).collect();
            }
        };
        let mut answers = Vec::with_capacity(claims.len());
        for CountedClaim { claim, .. } in claims {
            let last = seen.lines.get(&claim.work.account);
            let policies = &self.policies;
            let account = claim.work.account;
            let terms = policies.terms_after(&claim.work.policy, account, last, now);
            match terms.await {
                Ok(terms) => claim.work.policy = terms,
                Err(error) => {
                    answers.push(Err(Arc::new(error)));
                    continue;
                }
            }
            answers.push(match not_counted(claim, &seen, now) {
                Some(step) => Ok(LedgerAnswer::NotCounted(Box::new(step))),
                None => {
                    if let Some(line) = last {
                        let account = claim.work.account;
                        let seen = claim.hints.counter;
                        let settling = Settling::confirmation(account, line, seen, now);
                        self.dispatch.settle.send(settling);
                    }
                    let policy = &claim.work.policy;
                    let last = last.cloned();
                    let word = word_of(last.as_ref());
                    let read = totals(&self.ledger, policy, claim.work.account, last, now).await;
                    match read {
                        Ok(totals) => Ok(LedgerAnswer::Totals(word, totals)),
                        Err(error) => Err(Arc::new(error)),
                    }
                }
            });
        }
        answers
    }

    /// Lets the ledger be read for a claim, after which Redis decides again.
    fn read_ledger(&self, counted: CountedClaim) {
        if let Err(error) = self.unsure.try_send(counted) {
            let mut claim = error.into_inner().claim;
            let step = leave_to_ledger(&mut claim);
            self.dispatch.go(claim, step);
        }
    }

    /// Starts the drain of the accounts of counted grants.
    fn note_grants(&self, claims: &[CountedClaim], answers: &[Option<Counted>]) {
        for (counted, answer) in claims.iter().zip(answers) {
            if let Some(Counted::Granted(_) | Counted::Queued(_)) = answer {
                self.drain.grants_wait(counted.claim.work.account);
            }
        }
    }

    /// The totals of an account by some terms, with the units that wait for the ledger; `None` if
    /// Redis does not decide the claims of the policy at present, or cannot tell.
    ///
    /// # Errors
    /// [`LedgerError`] if the ledger must be read.
    pub async fn look(
        &self,
        policy: &Policy,
        account: AccountId,
        now: DateTime<Utc>,
    ) -> Result<Option<Vec<Total>>, LedgerError> {
        if !self.decides(policy) {
            return Ok(None);
        }
        // 1. Redis is asked for the units of each window. If the counter is missing or too old,
        //    Redis gets the line of the ledger first.
        let mut count = Count {
            account,
            policy_version: policy.version,
            now,
            observes: policy.rule.mode == Mode::Observe,
            totals: totals_unknown(policy, now),
            ledger: first_word(self.watch.ledger_is_silent()),
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
        // 2. Units that wait in the queue and are also in the line count once.
        let standing = self.standing(&looked).await;
        let mut totals = count.totals;
        for (total, (used, waits)) in totals.iter_mut().zip(looked.units) {
            let of_window = standing.iter().filter(|entry| {
                let same = |other: &Total| other.is_of_same_limit(total);
                entry.line.totals.iter().any(same)
            });
            let twice = of_window.map(|entry| entry.units.get()).sum();
            total.set_used(used + waits.saturating_sub(twice));
        }
        Ok(Some(totals))
    }

    /// The waiting grants that the line of a look already contains: entries up to that line were
    /// committed when the line was read. None if the ledger does not answer.
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

    /// Whether Redis decides the claims of a policy at present.
    pub fn decides(&self, policy: &Policy) -> bool {
        redis_decides(&policy.rule, self.watch.ledger_is_silent()) && self.counters.is_available()
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
}
