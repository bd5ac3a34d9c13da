//! The eraser: the background worker that continues erasures.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::time::sleep;

use claims::instance::{Pace, Policies, Watch};
use counter::{Counters, Reading};
use domain::erasure::{ErasingAccount, ErasureStep};
use domain::exceptions::ExceptionsThen;
use host::clock::Clock;
use host::retried::Retried;
use ledger::{Ledger, LedgerError};
use record::reconcile::{Ended, heal_counters};

/// The pause between two looks for steps that are due.
const EVERY: Duration = Duration::from_millis(500);
/// How many accounts one look takes.
const DUE_MOST: u32 = 64;

/// Continues erasures, step by step. Each instance runs one. The ledger lets only one instance do a
/// step.
pub struct Eraser {
    pub ledger: Ledger,
    pub counters: Option<Counters>,
    pub clock: Clock,
    /// Whether the clock is right: a wrong one would take windows to be over.
    pub watch: Arc<Watch>,
    pub policies: Arc<Policies>,
    /// How much clocks may differ, plus the longest time of a claim. An account counts this long
    /// after the end of its windows.
    pub margin: TimeDelta,
}

impl Eraser {
    /// Does the steps that are due, until the task is aborted. A failed step is tried again.
    pub async fn run(self: Arc<Self>) {
        let mut retried = Retried::default();
        loop {
            sleep(EVERY).await;
            if self.watch.clock_is_off() {
                continue;
            }
            let done = self.do_due().await;
            if let Some(error) = retried.first_failure(&done) {
                tracing::warn!(%error, "an erasure cannot go on: trying again");
            }
        }
    }

    /// Erases the texts of the accounts of an erasure.
    pub async fn erase_texts_of(&self, revision: u64) -> Result<(), LedgerError> {
        let erasing = self.ledger.admin().erasing_of(revision).await?;
        for erasing in erasing.iter().filter(|it| it.step == ErasureStep::Texts) {
            self.erase_texts(erasing).await?;
        }
        self.ledger.truncate_log().await
    }

    async fn do_due(&self) -> Result<(), LedgerError> {
        // 1. Read the accounts whose next step is due.
        let due = self
            .ledger
            .admin()
            .due_erasures(self.clock.now(), DUE_MOST)
            .await?;
        if due.is_empty() {
            return Ok(());
        }
        // 2. Do the next step of each account. The steps follow in this order.
        for erasing in &due {
            match erasing.step {
                ErasureStep::Texts => self.erase_texts(erasing).await?,
                ErasureStep::Counts => self.replace(erasing).await?,
                ErasureStep::Counter => self.heal_counter(erasing).await?,
                ErasureStep::Keys => self.clear_keys(erasing).await?,
            }
        }
        self.ledger.truncate_log().await
    }

    async fn erase_texts(&self, erasing: &ErasingAccount) -> Result<(), LedgerError> {
        loop {
            let pace = Pace::begin();
            let now = self.clock.now();
            if !self
                .ledger
                .admin()
                .erase_texts(erasing, self.margin, now)
                .await?
            {
                return Ok(());
            }
            pace.rest().await;
        }
    }

    /// Gives an account its random id, unless grants of the account wait in Redis.
    async fn replace(&self, erasing: &ErasingAccount) -> Result<(), LedgerError> {
        let now = self.clock.now();
        // 1. End the exceptions first: every instance must learn of their end before the
        //    id changes.
        let ended = self
            .ledger
            .admin()
            .end_erased_terms(erasing, self.margin, now)
            .await?;
        if ended != ExceptionsThen::default() {
            self.policies.terms.learn_of_subjects(ended, None);
            return Ok(());
        }
        // 2. Wait while grants of the account wait in Redis: they are appended under the old id.
        if !self.delete_counter(erasing).await {
            return Ok(());
        }
        // 3. Move the entries to the random id, a part in each transaction.
        loop {
            let pace = Pace::begin();
            let now = self.clock.now();
            if !self
                .ledger
                .admin()
                .replace_account(erasing, self.margin, now)
                .await?
            {
                return Ok(());
            }
            pace.rest().await;
        }
    }

    /// Deletes the counter of an account, whose windows are over. Returns false if grants of the
    /// account wait in Redis, or may wait there: the counter then stays.
    async fn delete_counter(&self, erasing: &ErasingAccount) -> bool {
        let Some(counters) = &self.counters else {
            return true;
        };
        let read = counters.read(&[erasing.account]).await;
        let Ok(readings) = read else {
            return !self.policies.terms.may_be_counted(erasing.policy);
        };
        match readings.into_iter().next() {
            Some(Reading::Present {
                grants_wait,
                number,
                ..
            }) if !grants_wait => {
                let read = [(erasing.account, number)];
                counters.forget(&read).await.is_ok()
            }
            Some(Reading::Present { .. }) => false,
            Some(Reading::Absent) | None => true,
        }
    }

    /// Heals the counter of the old id: it is too high for an account that begins again.
    async fn heal_counter(&self, erasing: &ErasingAccount) -> Result<(), LedgerError> {
        if let Some(counters) = &self.counters {
            match heal_counters(&self.ledger, counters, &self.clock, &[erasing.account]).await {
                Ok(()) => {}
                // The step is tried again later.
                Err(Ended::Counters) => return Ok(()),
                Err(Ended::Ledger(error)) => return Err(error),
            }
        }
        self.ledger.admin().note_counter_forgotten(erasing).await
    }

    async fn clear_keys(&self, erasing: &ErasingAccount) -> Result<(), LedgerError> {
        loop {
            let pace = Pace::begin();
            if !self
                .ledger
                .admin()
                .clear_keys(erasing, self.clock.now())
                .await?
            {
                return Ok(());
            }
            pace.rest().await;
        }
    }
}
