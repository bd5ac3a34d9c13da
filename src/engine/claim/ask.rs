//! The first step of a claim where there are counters: Redis says no, fast.

use std::pin::pin;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::mpsc::{Receiver, Sender, WeakSender};
use tokio::time::Instant;

use super::batch::in_batches;
use super::denied::Denied;
use super::in_flight::{CounterView, InFlight, send};
use crate::clock::Clock;
use crate::counter::{Ask, Counter, Counters, Unavailable};
use crate::domain::account::{Refusal, Verdict};
use crate::engine::instance::{DrainSignal, Metrics, Policies, Stage};
use crate::faults::reach;

/// A counter may deny for so long after the ledger confirmed it.
pub const CONFIRMED: TimeDelta = TimeDelta::seconds(3);
const LANES: u32 = 2;
const BATCH_MOST: usize = 128;

/// Asks the counters about claims.
pub struct Asker {
    /// The counters.
    pub counters: Counters,
    /// The source of time.
    pub clock: Clock,
    /// Whether they are fresh decides whether a counter may deny.
    pub policies: Arc<Policies>,
    /// Where claims go that the counters deny.
    pub deny: Sender<Denied>,
    /// Where claims go that the counters do not deny.
    pub append: Sender<InFlight>,
    /// Where claims go that Redis decides.
    pub count: Sender<InFlight>,
    /// This queue again.
    pub again: WeakSender<InFlight>,
    /// Who brings into the ledger what waits.
    pub drain: DrainSignal,
    /// What is measured.
    pub metrics: Metrics,
}

/// Takes claims off the queue, ends those that a counter denies, and sends the others on.
pub async fn ask_all(asker: Arc<Asker>, queue: Receiver<InFlight>) {
    in_batches(queue, LANES, BATCH_MOST, move |claims| {
        let asker = asker.clone();
        async move { asker.ask(claims).await }
    })
    .await;
}

impl Asker {
    async fn ask(&self, claims: Vec<InFlight>) {
        let asks: Vec<Ask> = claims
            .iter()
            .map(|claim| Ask {
                account: claim.work.account,
                key: claim.work.key,
                looks_at_queue: claim.work.policy.rule.may_be_counted(),
            })
            .collect();
        reach("ask.begun");
        let asking = pin!(self.counters.ask(&asks));
        match self.metrics.timed(Stage::Ask, asks.len(), asking).await {
            Ok(answers) => {
                reach("ask.answered");
                for (mut claim, answer) in claims.into_iter().zip(answers) {
                    claim.may_wait = answer.grants_wait;
                    match answer.grants_wait && claim.waits_for_queue() {
                        true => self.wait_for_ledger(claim),
                        false => self.judge(claim, answer.counter),
                    }
                }
            }
            // The ledger decides alone.
            Err(Unavailable) => claims.into_iter().for_each(|claim| self.send_on(claim)),
        }
    }

    /// Sends a claim on: to be denied, or to the ledger.
    fn judge(&self, mut claim: InFlight, counter: Option<Counter>) {
        let Some(counter) = counter else {
            claim.asked = CounterView {
                has_no_counter: true,
                wants_keys: claim.work.key.is_some(),
                ..CounterView::default()
            };
            return self.send_on(claim);
        };
        let (now, as_of) = (self.clock.now(), self.policies.as_of());
        let verdict = self.policies.decide_on(&counter.line, &mut claim.work, now);
        claim.asked = CounterView {
            seen: Some(counter.line.number),
            wants_keys: claim.work.key.is_some() && !counter.holds_all_keys,
            ..CounterView::default()
        };
        // The ledger has the last word on everything but a denial.
        let Ok(Verdict::Refused(refusal @ Refusal::Denied(_))) = verdict else {
            return self.send_on(claim);
        };
        if !self.may_deny(&claim, &counter, now) {
            return self.send_on(claim);
        }
        let denied = Denied {
            claim,
            refusal,
            as_of,
        };
        match denied.claim.work.key {
            // Only a key could have a grant that the counter does not tell.
            Some(_) => send(&self.deny, denied),
            None => denied.end(),
        }
    }

    /// Grants of the account that Redis decided are on their way into the ledger: the claim
    /// comes after them. If that takes too long, Redis decides this one too, if it can.
    fn wait_for_ledger(&self, claim: InFlight) {
        let now = Instant::now();
        if claim.may_be_counted && (claim.count_from..claim.deadline).contains(&now) {
            return send(&self.count, claim);
        }
        claim.wait_for_drain(&self.drain, self.again.clone());
    }

    fn send_on(&self, claim: InFlight) {
        send(&self.append, claim);
    }

    /// Whether a counter may deny. A claim with a key that it knows, or might have to know, is
    /// more likely a retry: then the ledger is asked at once.
    fn may_deny(&self, claim: &InFlight, counter: &Counter, now: DateTime<Utc>) -> bool {
        let confirmed = (now - counter.confirmed_at).abs() <= CONFIRMED;
        let is_hardly_a_retry = claim.work.key.is_none()
            || counter.holds_all_keys
                && !counter.knows_key
                && counter.line.policy_version == claim.work.policy.version;
        confirmed && is_hardly_a_retry && self.policies.are_fresh()
    }
}
