//! The lanes take groups from the dispatch, do the IO of many groups at once, and give the groups
//! back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use tokio::time::{Instant, sleep, timeout};

use super::append::EndedTransaction;
use super::dispatch::LaneBatch;
use super::group::Group;
use super::lane::Lane;
use super::lane_worker::{LaneWorker, halves};
use super::step::Steps;
use domain::identity::AccountId;
use host::chain::Chain;
use host::faults::reach;
use ledger::{ClaimTables, LedgerError, Turn};

/// A batch that takes longer delays others: the next batch may run at the same time.
const PATIENCE: Duration = Duration::from_millis(20);
const TURN_TIMEOUT: Duration = Duration::from_millis(500);
/// The first and the longest pause before an unreachable ledger is tried again. Each pause is twice
/// as long as the one before.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_LAST: Duration = Duration::from_millis(200);

struct Pause(Duration);

impl LaneWorker {
    /// Reads the ledger for groups, and decides the groups.
    pub async fn run_looks(self) {
        let mut pause = Pause(RETRY_FIRST);
        loop {
            let mut batch = self.dispatch.next(Lane::Look).await;
            let groups = self.shed(&mut batch, &pause);
            let mut steps = Steps::default();
            let looking = self.look_in_halves(groups, &mut steps);
            let (groups, failure) = with_patience(&mut batch, looking).await;
            batch.groups.extend(groups);
            batch.give_back(steps);
            pause.after(failure).await;
        }
    }

    /// Appends the drafts of groups. While a transaction runs, the claims of the transaction before
    /// it are answered.
    pub async fn run_appends(self) {
        let mut pause = Pause(RETRY_FIRST);
        let mut before: Option<(LaneBatch, Vec<EndedTransaction>)> = None;
        loop {
            // 1. The next batch. If a transaction has just ended, the lane does not wait for new
            //    groups.
            let next = if before.is_some() {
                self.dispatch.try_next(Lane::Append)
            } else {
                Some(self.dispatch.next(Lane::Append).await)
            };
            // 2. Without a next batch, the ended transaction is answered at once.
            let ended = before.take();
            let Some(mut batch) = next else {
                pause.after(self.answer(ended)).await;
                continue;
            };
            // 3. The next transaction runs while the ended one is answered.
            let groups = std::mem::take(&mut batch.groups);
            let appending = with_patience(&mut batch, self.append(groups));
            let (ended, failure) = join(appending, async { self.answer(ended) }).await;
            // 4. The groups of the new transaction wait for the next round. After a failure they
            //    are answered before the pause.
            batch.end();
            before = Some((batch, ended));
            if failure.is_some() {
                let failure = self.answer(before.take()).or(failure);
                pause.after(failure).await;
            }
        }
    }

    /// Reads and appends for groups that lost too often. The groups wait for the turn of their
    /// accounts.
    pub async fn run_contended(self) {
        let mut pause = Pause(RETRY_FIRST);
        loop {
            let mut batch = self.dispatch.next(Lane::Contend).await;
            // 1. The turn: other instances that lost at the same accounts wait.
            let groups = self.shed(&mut batch, &pause);
            let accounts = groups.iter().flat_map(|group| group.scope.accounts());
            let accounts = accounts.copied().collect();
            let turn = turn_at(&self.ledger, accounts).await;
            if turn.is_some() {
                reach("append.turn");
            }
            // 2. The look decides the groups.
            let mut steps = Steps::default();
            let (groups, looked) = self.look_in_halves(groups, &mut steps).await;
            // 3. Refusals do not wait for the append.
            self.dispatch.go_all(steps);
            // 4. The append.
            let mut steps = Steps::default();
            let ended = self.append_apart(groups).await;
            let (groups, appended) = self.report(ended, &mut steps);
            drop(turn);
            batch.groups.extend(groups);
            batch.give_back(steps);
            pause.after(looked.or(appended)).await;
        }
    }

    /// Appends the drafts of atomic batches.
    pub async fn run_together(self) {
        let mut pause = Pause(RETRY_FIRST);
        loop {
            let mut batch = self.dispatch.next(Lane::Together).await;
            let components = std::mem::take(&mut batch.groups);
            let appending = self.append_apart(components);
            let ended = with_patience(&mut batch, appending).await;
            pause.after(self.answer(Some((batch, ended)))).await;
        }
    }

    /// Appends the drafts that change limits that all subjects share. They wait for each other here, so that
    /// nobody else waits for them.
    pub async fn run_shared(self) {
        let mut pause = Pause(RETRY_FIRST);
        loop {
            let mut batch = self.dispatch.next(Lane::Shared).await;
            let groups = std::mem::take(&mut batch.groups);
            let ended = with_patience(&mut batch, self.append(groups)).await;
            pause.after(self.answer(Some((batch, ended)))).await;
        }
    }

    /// Drops claims that no client waits for, and lets claims leave for Redis during an outage. Returns the groups that still have claims.
    fn shed(&self, batch: &mut LaneBatch, pause: &Pause) -> Vec<Group> {
        let now = Instant::now();
        let is_silent = self.watch.ledger_is_silent();
        let mut steps = Steps::default();
        for group in &mut batch.groups {
            group.drop_expired(now, &mut steps);
            if is_silent || pause.is_long() {
                group.leave(is_silent, now, &mut steps);
            }
        }
        self.dispatch.go_all(steps);
        let has_claims = |group: &mut Group| group.lane().is_some();
        batch.groups.extract_if(.., has_claims).collect()
    }

    /// Reads the ledger for groups. If the ledger cannot read the data of one group, each half of
    /// the batch is read alone. Returns the groups, and the error of a look that failed.
    async fn look_in_halves(
        &self,
        groups: Vec<Group>,
        steps: &mut Steps,
    ) -> (Vec<Group>, Option<Arc<LedgerError>>) {
        let mut all = Vec::new();
        let mut failure = None;
        // 1. Each batch is read with one look.
        let mut batches = vec![groups];
        while let Some(mut groups) = batches.pop().filter(|groups| !groups.is_empty()) {
            match self.look(&mut groups, steps).await {
                Ok(()) => {}
                // 2. Bad data: each half is read alone. A single group is refused.
                Err(error) if error.is_about_data() && groups.len() > 1 => {
                    batches.extend(halves(groups));
                    continue;
                }
                Err(error) if error.is_about_data() => {
                    let error = Arc::new(error);
                    groups
                        .iter_mut()
                        .for_each(|group| group.refuse(&error, steps));
                }
                // 3. The ledger does not answer: every group looks again.
                Err(error) => {
                    groups.iter_mut().for_each(Group::look_again);
                    failure = Some(Arc::new(error));
                }
            }
            all.extend(groups);
        }
        (all, failure)
    }

    /// Answers the groups of an ended batch. Returns the error of a transaction that did not reach
    /// the ledger.
    fn answer(
        &self,
        ended: Option<(LaneBatch, Vec<EndedTransaction>)>,
    ) -> Option<Arc<LedgerError>> {
        let (mut batch, ended) = ended?;
        let mut steps = Steps::default();
        let (groups, failure) = self.report(ended, &mut steps);
        batch.groups = groups;
        batch.give_back(steps);
        reach("append.answered");
        failure
    }
}

impl Pause {
    fn is_long(&self) -> bool {
        self.0 > RETRY_FIRST
    }

    /// Waits after a failure; each pause is longer.
    async fn after(&mut self, failure: Option<Arc<LedgerError>>) {
        let Some(error) = failure else {
            self.0 = RETRY_FIRST;
            return;
        };
        if !self.is_long() {
            let error = Chain(&error);
            tracing::warn!(%error, "the ledger did not take a batch: trying again");
        }
        sleep(self.0).await;
        self.0 = RETRY_LAST.min(self.0 * 2);
    }
}

/// Lets the next batch run beside this batch if this batch takes too long.
async fn with_patience<T>(batch: &mut LaneBatch, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    match timeout(PATIENCE, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            batch.let_next_begin();
            work.await
        }
    }
}

/// Waits a short time for the turn of some accounts. A batch without a turn goes on: the guard of
/// the append keeps it right.
async fn turn_at(ledger: &ClaimTables, accounts: Vec<AccountId>) -> Option<Turn> {
    // Boxed: this future is rare, and twice as large as the rest of the future of a batch.
    let turn = timeout(TURN_TIMEOUT, Box::pin(ledger.turn(&accounts))).await;
    turn.ok()?.ok()
}
