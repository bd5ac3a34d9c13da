//! The sweep of lapses: it records the lapses of holds soon after their ends, also if no claim of the
//! subject comes. A decision of the account records them by itself, and first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::{Instant, sleep};

use crate::instance::{Metrics, Pace, Policies, Watch, nonce};
use crate::protocol::{SettleQueue, learn_facts};
use domain::account::Unknown;
use domain::account_facts::AccountFacts;
use domain::drafting::{Drafting, Lapses};
use domain::grant::Line;
use domain::identity::{AccountId, EntryId};
use domain::policy::{Policy, PolicyId};
use host::chain::Chain;
use host::clock::Clock;
use host::retried::Retried;
use ledger::{ClaimTables, Draft, EndedHold, LapsesMark, LedgerError, Look};

/// The pause between two looks for lapses that are due.
const EVERY: Duration = Duration::from_secs(1);
/// How many holds are read at once, and how many lapses are recorded at once.
const HOLDS_MOST: usize = 1024;
const LAPSES_MOST: usize = 128;
/// How often the sweep goes back, and how far: a hold may be committed after its end was passed. It
/// is decided before its end, and committed within the time of a claim.
const GO_BACK_EVERY: Duration = Duration::from_secs(60);
const GO_BACK: TimeDelta = TimeDelta::minutes(3);
/// The mark moves at least this far, so that an idle ledger is not written.
const MARK_MOVES: TimeDelta = TimeDelta::minutes(1);

/// Records lapses. Each instance runs one; one of them takes the turns.
pub struct LapseSweep {
    pub ledger: ClaimTables,
    pub clock: Clock,
    pub policies: Arc<Policies>,
    /// Whether the clock is right: a wrong one would end holds early.
    pub watch: Arc<Watch>,
    pub settle: SettleQueue,
    pub metrics: Metrics,
    /// How long after its end a lapse is recorded.
    pub after: TimeDelta,
}

/// How far a sweep came.
struct Reached {
    /// The last turn that it saw.
    turn: Option<i64>,
    /// The last hold that it read; `None` to begin at the mark.
    place: Option<(DateTime<Utc>, EntryId)>,
    goes_back_at: Instant,
}

/// What one step does.
#[derive(Default)]
struct DueHolds {
    /// The accounts in which lapses are due.
    due: BTreeSet<(AccountId, PolicyId)>,
    /// The earliest end of a hold whose lapse is due.
    earliest: Option<DateTime<Utc>>,
    /// The last hold of the step, if there may be more.
    last: Option<(DateTime<Utc>, EntryId)>,
}

impl DueHolds {
    /// Ends with the last hold whose lapse is recorded in this step.
    fn of(ended: &[EndedHold]) -> Self {
        let mut found = Self::default();
        let mut lapses = 0;
        for (read, hold) in ended.iter().enumerate() {
            if let Some(policy) = hold.due_of {
                found.due.insert((hold.account, policy));
                found.earliest.get_or_insert(hold.held_until);
                lapses += 1;
            }
            if lapses == LAPSES_MOST || read + 1 == HOLDS_MOST {
                found.last = Some((hold.held_until, hold.grant));
                break;
            }
        }
        found
    }
}

impl LapseSweep {
    /// Records lapses until the task is aborted. If the ledger does not answer, it tries again.
    pub async fn run(self: Arc<Self>) {
        let mut reached = Reached {
            turn: None,
            place: None,
            goes_back_at: Instant::now() + GO_BACK_EVERY,
        };
        let mut retried = Retried::default();
        loop {
            let pace = Pace::begin();
            let swept = if self.watch.clock_is_off() {
                Ok(false)
            } else {
                self.step(&mut reached).await
            };
            if let Some(error) = retried.first_failure(&swept) {
                tracing::warn!(%error, "lapses cannot be recorded: trying again");
            }
            match swept {
                Ok(true) => pace.rest().await,
                Ok(false) | Err(_) => sleep(EVERY).await,
            }
        }
    }

    /// Records the next lapses that are due. Returns whether there may be more.
    async fn step(&self, reached: &mut Reached) -> Result<bool, LedgerError> {
        // 1. Read the next holds that ended. Go back now and then.
        let now = self.clock.now();
        let mark = self.ledger.lapses_mark().await?;
        if reached.goes_back_at <= Instant::now() {
            reached.place = None;
            reached.goes_back_at = Instant::now() + GO_BACK_EVERY;
        }
        let begin = || {
            (
                mark.until - GO_BACK,
                EntryId::first_at(DateTime::UNIX_EPOCH),
            )
        };
        let place = reached.place.unwrap_or_else(begin);
        let until = now - self.after;
        let ended = self.ledger.ended_holds(place, until, HOLDS_MOST as u32);
        let DueHolds {
            due,
            earliest,
            last,
        } = DueHolds::of(&ended.await?);
        let age = earliest.map(|earliest| now - earliest);
        self.metrics.lapses_lag(age.unwrap_or_default());
        // 2. If another instance has taken a turn meanwhile, leave the work to it this time.
        let seen = reached.turn.replace(mark.turn);
        let mut turn = mark.turn;
        if !due.is_empty() {
            if seen.is_some_and(|seen| seen != turn) || !self.ledger.take_lapses_turn(turn).await? {
                reached.place = None;
                return Ok(false);
            }
            turn += 1;
            reached.turn = Some(turn);
            // 3. Record them.
            self.record(&due, now).await?;
        }
        // 4. Note how far the sweep came.
        let place = last.unwrap_or((until, EntryId::first_at(DateTime::UNIX_EPOCH)));
        reached.place = Some(place);
        let (until, _) = place;
        if until - mark.until >= MARK_MOVES {
            let moved = LapsesMark { until, turn };
            self.ledger.move_lapses_mark(moved).await?;
        }
        Ok(last.is_some())
    }

    /// Records the lapses that are due in some accounts.
    async fn record(
        &self,
        accounts: &BTreeSet<(AccountId, PolicyId)>,
        now: DateTime<Utc>,
    ) -> Result<(), LedgerError> {
        let look = Look {
            accounts: accounts.iter().map(|(account, _)| *account).collect(),
            ..Look::default()
        };
        let seen = self.ledger.look(&look).await?;
        let mut drafts = Vec::with_capacity(accounts.len());
        for &(account, policy) in accounts {
            let Some(last) = seen.lines.get(&account) else {
                continue;
            };
            match self.draft(account, policy, last, now).await {
                Ok(draft) => drafts.extend(draft),
                Err(error) if error.is_about_data() => self.leave(&error),
                Err(error) => return Err(error),
            }
        }
        let drafts: Vec<&Draft> = drafts.iter().collect();
        self.append(&drafts, now).await
    }

    /// The lapses of an account; `None` if nothing is due, or only a newer perdiem can read its
    /// policy.
    async fn draft(
        &self,
        account: AccountId,
        policy: PolicyId,
        last: &Line,
        now: DateTime<Utc>,
    ) -> Result<Option<Draft>, LedgerError> {
        let Ok(Some(terms)) = self.policies.terms.newest(policy) else {
            return Ok(None);
        };
        let mut known = AccountFacts::to_append(nonce());
        loop {
            match draft_of_lapses(account, &terms, last, &known, now) {
                Ok(draft) => return Ok(draft),
                Err(unknown) => {
                    let learned =
                        learn_facts(&mut known, unknown, &self.ledger, account, Some(last), now);
                    learned.await?;
                }
            }
        }
    }

    /// Appends drafts in one transaction; one by one if the ledger refuses one of them.
    async fn append(&self, drafts: &[&Draft], now: DateTime<Utc>) -> Result<(), LedgerError> {
        match self.append_once(drafts, now).await {
            Err(error) if error.is_about_data() => {}
            result => return result,
        }
        for draft in drafts {
            match self.append_once(&[draft], now).await {
                Err(error) if error.is_about_data() => self.leave(&error),
                result => result?,
            }
        }
        Ok(())
    }

    async fn append_once(&self, drafts: &[&Draft], now: DateTime<Utc>) -> Result<(), LedgerError> {
        if drafts.is_empty() {
            return Ok(());
        }
        let appended = self.ledger.append_in_burst(drafts, None).await;
        self.watch.note_write(&appended);
        // A decision of the account was first: it has recorded the lapses.
        let appended = match appended {
            Err(LedgerError::Conflict) => return Ok(()),
            appended => appended?,
        };
        for (_, why) in &appended.untimely {
            self.metrics.untimely();
            self.watch.clocks.note_untimely(*why);
        }
        let is_committed = |draft: &&Draft| appended.accounts.contains(&draft.account);
        for draft in drafts.iter().copied().filter(is_committed) {
            self.metrics.lapses_recorded(draft.entries.len());
            let counts = self.policies.terms.may_be_counted(draft.policy);
            self.settle.send_draft(draft, counts, now);
        }
        Ok(())
    }

    /// Leaves the lapses of an account to its next decision.
    fn leave(&self, error: &LedgerError) {
        tracing::error!(error = %Chain(error), "the lapses of an account cannot be recorded");
    }
}

/// The draft of the lapses of an account that are due; `None` if none is due. An account whose last
/// line is in the future waits. The simulator calls this too.
///
/// # Errors
/// [`Unknown`].
pub fn draft_of_lapses(
    account: AccountId,
    policy: &Policy,
    last: &Line,
    known: &AccountFacts,
    now: DateTime<Utc>,
) -> Result<Option<Draft>, Unknown> {
    if last.at > now || !last.may_have_lapses(now) {
        return Ok(None);
    }
    let drafting = Drafting::begin(account, policy, Some(last.clone()), known, now)?;
    let Lapses {
        entries, shared, ..
    } = drafting.into_lapses();
    Ok((!entries.is_empty()).then(|| Draft {
        account,
        component: account,
        policy: policy.id,
        subject: None,
        after: Some(last.clone()),
        entries,
        shared,
    }))
}
