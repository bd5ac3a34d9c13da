//! Group commit: the claims of a batch share one transaction, and are answered after it is on disk.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::WeakSender;
use tokio::time::{Instant, sleep, timeout};

use super::group::{Basis, Group};
use super::in_flight::{InFlight, Undecided, send};
use super::settle::SettleQueue;
use crate::chain::Chain;
use crate::clock::Clock;
use crate::domain::drafting::Known;
use crate::domain::grant::{Entry, Line};
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::work::Task;
use crate::engine::Engine;
use crate::engine::instance::{Epoch, Memory, Metrics, Policies, Stage, Watch};
use crate::faults::reach;
use crate::ledger::{Appended, Burst, Draft, Fence, Ledger, LedgerError, Look, Turn};

/// An account that lost so often waits for its turn at it.
pub const LOSSES_BEFORE_TURN: u32 = 2;
const TURN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long to wait before an unreachable ledger is tried again: first and last, doubling.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_LAST: Duration = Duration::from_millis(200);

/// Appends claims to the ledger.
pub struct Appender {
    /// The ledger.
    pub ledger: Ledger,
    /// The source of time.
    pub clock: Clock,
    /// The policies, for a claim that meets a newer version than its own.
    pub policies: Arc<Policies>,
    /// The last lines that are known.
    pub memory: Arc<Memory>,
    /// Where last lines go afterwards.
    pub settle: SettleQueue,
    /// Whether the ledger answers.
    pub watch: Arc<Watch>,
    /// Where claims go that Redis decides while the ledger cannot.
    pub count: WeakSender<InFlight>,
    /// What is measured.
    pub metrics: Metrics,
}

impl Appender {
    /// Appends groups until each is decided or nobody waits for it any more. Returns those
    /// that lost to another writer, for the next batch.
    pub async fn append(&self, mut groups: Vec<Group>) -> Vec<Group> {
        let mut pause = RETRY_FIRST;
        loop {
            let now = Instant::now();
            for group in &mut groups {
                group.drop_expired(now);
            }
            for group in groups.extract_if(.., |group| !group.is_awaited(now)) {
                group.end(&Undecided::Deadline);
            }
            if pause > RETRY_FIRST || self.watch.ledger_is_silent() {
                self.leave_to_redis(&mut groups);
            }
            if groups.is_empty() {
                return Vec::new();
            }
            match self.attempt(&mut groups).await {
                Ok(()) => return groups,
                Err(error @ (LedgerError::Refused(_) | LedgerError::Corrupt(_))) => {
                    return self.halve(groups, error).await;
                }
                Err(error) => {
                    if pause == RETRY_FIRST {
                        let error = Chain(&error);
                        tracing::warn!(%error, "the ledger did not take a batch: trying again");
                    }
                    // By what holds when it is tried again.
                    groups.iter_mut().for_each(Group::dissolve_known);
                    sleep(pause).await;
                    pause = RETRY_LAST.min(pause * 2);
                }
            }
        }
    }

    /// Hands over the claims that Redis decides while the ledger cannot.
    fn leave_to_redis(&self, groups: &mut Vec<Group>) {
        let Some(count) = self.count.upgrade() else {
            return;
        };
        let ledger_is_silent = self.watch.ledger_is_silent();
        for claim in groups
            .iter_mut()
            .flat_map(|group| group.take_for_redis(ledger_is_silent))
        {
            send(&count, claim);
        }
        groups.retain(|group| group.plan.is_some() || !group.claims.is_empty());
    }

    /// Finds the claim whose data the ledger refuses, and lets the others through.
    async fn halve(&self, mut groups: Vec<Group>, error: LedgerError) -> Vec<Group> {
        match groups.as_mut_slice() {
            [group] => group.dissolve(),
            groups => groups.iter_mut().for_each(Group::dissolve_known),
        }
        let (one, other) = match groups.as_mut_slice() {
            [group] if group.claims.len() <= 1 => {
                tracing::error!(error = %Chain(&error), "the ledger refuses a claim");
                let undecided = Undecided::Ledger(Arc::new(error));
                for group in groups {
                    group.end(&undecided);
                }
                return Vec::new();
            }
            [group] => {
                let half = group.claims.len() / 2;
                let other = Group {
                    account: group.account,
                    claims: group.claims.split_off(half),
                    plan: None,
                    losses: 0,
                };
                (groups, vec![other])
            }
            _ => {
                let other = groups.split_off(groups.len() / 2);
                (groups, other)
            }
        };
        let mut losers = Box::pin(self.append(one)).await;
        let mut rest = Vec::with_capacity(other.len());
        for group in other {
            // The halves of one account's group stay in order behind a draft that may stand.
            match losers
                .iter_mut()
                .find(|loser| loser.account == group.account)
            {
                Some(loser) => loser.claims.extend(group.claims),
                None => rest.push(group),
            }
        }
        losers.extend(Box::pin(self.append(rest)).await);
        losers
    }

    /// Decides the groups and appends what they grant. Leaves those that lost.
    async fn attempt(&self, groups: &mut Vec<Group>) -> Result<(), LedgerError> {
        reach("append.begun");
        // Some waited a while, and a change holds everywhere within a second.
        self.freshen().await?;
        let turn = self.turn(groups).await;
        if turn.is_some() {
            reach("append.turn");
        }
        self.decide_on_known_lines(groups);
        self.decide_on_ledger(groups).await?;
        let (epoch, fence) = self.memory.fence();
        // The ledger may have taken its time. What is late is left to the next batch, and so is
        // what rests on a line that was forgotten.
        let now = Instant::now();
        let late: Vec<Group> = groups
            .extract_if(.., |group| group.take_back(now, epoch))
            .collect();
        let appended = self.append_decided(groups, fence.as_ref()).await;
        groups.extend(late);
        appended
    }

    /// Appends what the groups' plans grant. Leaves those that lost.
    async fn append_decided(
        &self,
        groups: &mut Vec<Group>,
        fence: Option<&Fence>,
    ) -> Result<(), LedgerError> {
        // What grants nothing needs no commit.
        self.answer(groups, |group| {
            group.plan.as_ref().is_some_and(|plan| plan.draft.is_none())
        });
        if groups.iter().all(|group| group.draft().is_none()) {
            return Ok(());
        }
        reach("append.decided");
        match self.append_drafts(groups, fence).await {
            Ok(appended) => {
                reach("append.committed");
                self.answer(groups, |group| appended.contains(&group.account));
                reach("append.answered");
                let now = Instant::now();
                for group in groups.iter() {
                    self.memory.distrust(group.account, now);
                }
                self.lose(groups);
                Ok(())
            }
            Err(LedgerError::Conflict) => {
                self.lose(groups);
                Ok(())
            }
            Err(error @ LedgerError::Unavailable(_)) => {
                for plan in groups.iter_mut().filter_map(|group| group.plan.as_mut()) {
                    plan.outcome_unknown = true;
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Appends what the groups' plans hold. Returns the accounts whose drafts are committed.
    async fn append_drafts(
        &self,
        groups: &[Group],
        fence: Option<&Fence>,
    ) -> Result<HashSet<AccountId>, LedgerError> {
        let drafts: Vec<&Draft> = groups.iter().filter_map(Group::draft).collect();
        let entries = drafts.iter().map(|draft| draft.entries.len()).sum();
        let appending = pin!(self.ledger.append_in_burst(&drafts, fence));
        let appended = self.metrics.timed(Stage::Append, entries, appending).await;
        self.watch.note_write(&appended);
        let Appended { accounts, burst } = appended?;
        match burst {
            Some(Burst::Committed(fence)) => {
                self.memory.show(Some(fence));
            }
            Some(Burst::Conflict) => {
                self.memory.rest(Instant::now());
                self.metrics.burst_fell_back();
            }
            Some(Burst::Behind) => {
                tracing::warn!("the ledger's server was started again, restored or replaced");
                self.memory.forget();
                self.metrics.burst_fell_back();
            }
            None => {}
        }
        Ok(accounts)
    }

    /// Waits for the turn at the accounts that lost too often.
    async fn turn(&self, groups: &[Group]) -> Option<Turn> {
        let contended: Vec<AccountId> = groups
            .iter()
            .filter(|group| group.losses >= LOSSES_BEFORE_TURN)
            .map(|group| group.account)
            .collect();
        match contended.is_empty() {
            true => None,
            false => turn_at(&self.ledger, &contended).await,
        }
    }

    /// Decides the groups whose last lines are known, if all of their claims are granted. A
    /// refusal needs the ledger's own word.
    fn decide_on_known_lines(&self, groups: &mut [Group]) {
        let (now, as_of) = (self.clock.now(), self.policies.as_of());
        for group in groups {
            if !group.may_be_known() {
                continue;
            }
            // Of now: while the claims waited, the batch before may have appended to the account.
            let known = self.memory.line(group.account, None, Instant::now());
            let Some(known) = known else {
                continue;
            };
            let claims = group.claims.iter_mut();
            claims.for_each(|claim| claim.asked.has_no_counter = !known.may_have_counter);
            let Some(claim) = group.claims.first() else {
                continue;
            };
            let basis = Basis {
                after: Some(known.line),
                epoch: known.epoch,
                as_of,
            };
            let (policies, account) = (&self.policies, group.account);
            let after = basis.after.as_ref();
            let policy = policies.terms(&claim.work.policy, account, after, now);
            let decided = group.decide(&policy, basis, &Known::default(), now);
            let refuses = group
                .plan
                .as_ref()
                .is_some_and(|plan| !plan.others.is_empty());
            if decided.is_err() || refuses {
                // The counters can deny the next ones.
                self.memory.distrust(group.account, Instant::now());
                group.dissolve();
            }
        }
    }

    /// Looks at the ledger for the other groups, finds out what became of drafts whose
    /// outcome was unknown, and decides.
    async fn decide_on_ledger(&self, groups: &mut Vec<Group>) -> Result<(), LedgerError> {
        let mut look = Look::default();
        let open = |group: &Group| group.plan.is_none() || group.has_unknown_outcome();
        for group in groups.iter().filter(|group| open(group)) {
            look.accounts.push(group.account);
            for claim in group.every_claim() {
                look.keys.extend(claim.work.key);
                look.entries.extend(&claim.sent);
                look.followers_of.extend(corrected(claim));
            }
            look.entries
                .extend(group.plan.iter().flat_map(|plan| plan.entry_ids()));
        }
        if look.accounts.is_empty() {
            return Ok(());
        }
        let looking = pin!(self.ledger.look(&look));
        let accounts = look.accounts.len();
        let seen = self.metrics.timed(Stage::Look, accounts, looking).await?;
        reach("append.looked");
        let epoch = self.memory.show(seen.fence);
        for key in seen.entries.iter().filter_map(|entry| entry.key) {
            self.memory.learn_key(key);
        }
        // The guard tells whether what was seen still holds; nothing tells that of the terms.
        self.freshen().await?;
        let now = Instant::now();
        let stand = |group: &Group| {
            group.has_unknown_outcome()
                && group
                    .plan
                    .iter()
                    .flat_map(|plan| plan.entry_ids())
                    .any(|id| seen.entries.iter().any(|entry| entry.id == id))
        };
        self.answer(groups, stand);
        for group in groups.iter_mut().filter(|group| open(group)) {
            let last = seen.lines.get(&group.account);
            if let Some(plan) = &mut group.plan {
                let number = |line: Option<&Line>| line.map_or(0, |line| line.number);
                let is_taken = |entry: &Entry| {
                    let mut entered = plan.entered.iter();
                    entry.key.is_some()
                        && entered.any(|entered| entered.claim.work.key == entry.key)
                };
                let is_free = !seen.entries.iter().any(is_taken);
                let may_stand = is_free && number(plan.basis.after.as_ref()) == number(last);
                if may_stand && plan.holds(now) {
                    // It may still be on its way in: the same draft is sent again.
                    continue;
                }
                // Of it and what is decided now the ledger takes one at most: both go on from
                // the same line.
                plan.outcome_unknown = may_stand;
                group.dissolve();
                group.drop_expired(now);
            }
            group.answer_repeated(&seen);
            let of_account = |entry: &&Entry| entry.account == group.account;
            let known = Known {
                followers: seen.entries.iter().filter(of_account).cloned().collect(),
                ..Known::to_append(Engine::nonce())
            };
            self.decide_after(group, last.cloned(), epoch, known)
                .await?;
        }
        Ok(())
    }

    async fn freshen(&self) -> Result<(), LedgerError> {
        self.policies.freshen(&self.ledger, || false).await
    }

    async fn decide_after(
        &self,
        group: &mut Group,
        last: Option<Line>,
        epoch: Epoch,
        mut known: Known,
    ) -> Result<(), LedgerError> {
        // One instant for all of it: at another one other windows' sums might be missing, and
        // so on for ever where the clock steps back over a window's edge.
        let now = self.clock.now();
        let Some(claim) = group.claims.first() else {
            return Ok(());
        };
        let (policies, ledger) = (&self.policies, &self.ledger);
        let as_of = policies.as_of();
        let after = last.as_ref();
        let policy = policies.terms_after(&claim.work.policy, group.account, after, now, ledger);
        let policy = policy.await?;
        loop {
            let basis = Basis {
                after: last.clone(),
                epoch,
                as_of,
            };
            match group.decide(&policy, basis, &known, now) {
                Ok(()) => return Ok(()),
                Err(unknown) => {
                    known
                        .learn(unknown, &self.ledger, group.account, last.as_ref(), now)
                        .await?;
                }
            }
        }
    }

    /// The draft did not go in.
    fn lose(&self, groups: &mut [Group]) {
        self.metrics.conflicts(groups.len());
        groups.iter_mut().for_each(Group::lose);
    }

    /// Answers the plans that `are_done`, and settles their counters. Groups with nobody left
    /// are taken out.
    fn answer(&self, groups: &mut Vec<Group>, are_done: impl Fn(&Group) -> bool) {
        for group in groups.iter_mut().filter(|group| are_done(group)) {
            if let Some(plan) = group.plan.take() {
                let (now, settles) = (Instant::now(), !plan.needs_no_counter());
                match &plan.draft {
                    Some(draft) => {
                        let (entries, epoch) = (&draft.entries, plan.basis.epoch);
                        self.memory
                            .learn(group.account, entries, epoch, settles, now);
                    }
                    // The account has a counter from now on.
                    None if settles => self.memory.distrust(group.account, now),
                    None => {}
                }
                self.settle.answer(plan, group.account, self.clock.now());
            }
        }
        groups.retain(|group| group.plan.is_some() || !group.claims.is_empty());
    }
}

/// The turn at accounts, if it comes soon. Whoever has none goes on: the guard is what makes it
/// right.
pub async fn turn_at(ledger: &Ledger, accounts: &[AccountId]) -> Option<Turn> {
    // Boxed: it is rare, and twice as large as all else that a batch's future holds.
    let turn = timeout(TURN_TIMEOUT, Box::pin(ledger.turn(accounts))).await;
    turn.ok()?.ok()
}

/// The grant that a claim's answer depends on, if it is a correction.
fn corrected(claim: &InFlight) -> Option<EntryId> {
    match &claim.work.task {
        Task::Reverse(grant) | Task::Confirm(grant) => Some(grant.id),
        Task::Claim(_) | Task::Adjust(..) => None,
    }
}
