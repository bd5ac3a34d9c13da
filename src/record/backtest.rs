//! Backtests: a draft of a policy, tried on the ledger's grants.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::oneshot;

use crate::cut::{NeededEntries, check_cut};
use crate::{ListFailure, Record};
use claims::instance::Failure;
use domain::backtest::{Backtest, BacktestReport, DayRange};
use domain::exceptions::ExceptionHistory;
use domain::identity::{AccountId, EntryId};
use domain::orphans::Orphans;
use domain::policy::{Policy, PolicyId, PolicyName, Rule};
use domain::record::RecordPlace;
use ledger::{Ledger, LedgerError};

/// The number of entries that are read at once.
const PAGE: u32 = 5000;

/// The result of a backtest.
#[derive(Debug)]
pub struct Backtested {
    pub report: BacktestReport,
    /// The subjects of the accounts that were denied first. Erased subjects are left out.
    pub subjects: HashMap<AccountId, String>,
    /// What the draft would orphan.
    pub orphans: Orphans,
}

impl Record {
    /// Tries a draft of a policy on the policy's entries, as they are at one instant. Memory grows
    /// with the accounts that are active in a window and with the policy's exceptions, not with the entries.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn backtest(
        self: &Arc<Self>,
        caller: &Arc<str>,
        name: PolicyName,
        draft: Rule,
        range: DayRange,
    ) -> Result<Backtested, ListFailure> {
        let policy = self.listed_policy(&name).await?;
        let place = self.long_place(caller).await?;
        let ledger = self.ledger.clone();
        let (answer, answered) = oneshot::channel();
        let now = self.instance.clock.now();
        self.instance.runtime.spawn(async move {
            let _place = place;
            let replayed = replay(&ledger, &policy, draft, range, now, || answer.is_closed());
            if let Some(result) = replayed.await.transpose() {
                // The caller may be gone.
                let _ = answer.send(result);
            }
        });
        let result = answered.await.map_err(|_| Failure::Interrupted)?;
        Ok(result.map_err(Failure::from)?)
    }
}

/// Replays the policy's entries under a draft. `None` if the caller is gone.
async fn replay(
    ledger: &Ledger,
    policy: &Policy,
    draft: Rule,
    range: DayRange,
    now: DateTime<Utc>,
    is_left: impl Fn() -> bool,
) -> Result<Option<Backtested>, LedgerError> {
    let orphans = ledger.admin().orphans_of(&policy.name, &draft, now).await?;
    let exceptions = ledger.admin().every_exception(policy.id).await?;
    let exceptions = ExceptionHistory::of(exceptions);
    let replay = Replay {
        backtest: Backtest::new(draft, range, exceptions),
        policy: policy.id,
        orphans,
    };
    replay.run(ledger, is_left).await
}

struct Replay {
    backtest: Backtest,
    policy: PolicyId,
    orphans: Orphans,
}

impl Replay {
    /// Reads and replays page after page. `None` if the caller is gone.
    async fn run(
        mut self,
        ledger: &Ledger,
        is_left: impl Fn() -> bool,
    ) -> Result<Option<Backtested>, LedgerError> {
        let (mut from, to) = self.backtest.span();
        let mut snapshot = ledger.snapshot().await?;
        // After the view began: what is dropped later is still in it.
        let needed = NeededEntries::OfPolicy(self.policy);
        check_cut(ledger, RecordPlace::FIRST, Some(from.at()), needed).await?;
        loop {
            let page = snapshot.replayed(self.policy, from, to, PAGE).await?;
            for entry in &page {
                self.backtest.meet(entry);
            }
            match page.last() {
                Some(last) if page.len() == PAGE as usize => from = next_id(last.id),
                Some(_) | None => break,
            }
            if is_left() {
                return Ok(None);
            }
        }
        let report = self.backtest.report();
        let accounts = report.first_denied.iter().map(|denied| denied.account);
        let accounts: Vec<AccountId> = accounts.collect();
        let subjects = snapshot.subjects(&accounts).await?;
        Ok(Some(Backtested {
            report,
            subjects,
            orphans: self.orphans,
        }))
    }
}

fn next_id(id: EntryId) -> EntryId {
    EntryId(uuid::Uuid::from_u128(id.0.as_u128() + 1))
}
