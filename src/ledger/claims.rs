//! What a claim does with the ledger: it looks, and appends. The stores do both.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    Appended, Burst, ClaimTables, Draft, Fence, Ledger, LedgerError, LedgerView, Look, Turn,
    Untimely, store,
};
use crate::boxed;
use crate::components::leave_out;
use crate::shared_use::shares;
use domain::identity::AccountId;

impl ClaimTables {
    /// Reads what a decision needs.
    #[boxed]
    pub async fn look(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let mut view = store!(&self.ledger, store => store.look(look).await)?;
        self.name_old_accounts(look, &mut view).await?;
        if look.counts && view.fence.is_none_or(|fence| fence.place.erasures > 0) {
            let mut new = look.accounts.clone();
            new.retain(|account| !view.lines.contains_key(account));
            view.erased = self.erased(&new).await?;
        }
        Ok(view)
    }

    /// Appends drafts in a burst if there is a fence. Without a fence, and after a conflict, it
    /// appends them as [`ClaimTables::append`] does. If the ledger does not show the fence, nothing is
    /// appended. If a draft takes its account to be new and the account exists, the draft is left
    /// out. A draft whose instants are too far from the clock of the store is left out too.
    ///
    /// Invariant: the line before each draft is known to be committed, because this process
    /// appended it or read it from the ledger, and the fence is not older than that line.
    ///
    /// # Errors
    /// As [`ClaimTables::append`].
    #[boxed]
    pub async fn append_in_burst(
        &self,
        drafts: &[&Draft],
        fence: Option<&Fence>,
    ) -> Result<Appended, LedgerError> {
        let mut drafts = drafts.to_vec();
        let mut untimely = Vec::new();
        // 1. Without a fence only the guarded append is safe, and only it looks for room in shared limits.
        let Some(fence) = fence.filter(|_| !shares(&drafts)) else {
            return Ok(Appended {
                accounts: self.append_timely(drafts, &mut untimely).await?,
                burst: None,
                untimely,
            });
        };
        // 2. Send the burst. Leave out drafts of accounts that exist already, and drafts that are
        //    refused for their instants, and send the rest again.
        let burst = loop {
            match self.burst(&drafts, fence).await? {
                Burst::Exist(existing)
                    if leave_out(&mut drafts, |draft| existing.contains(&draft.account)) => {}
                Burst::Untimely(theirs) if self.leaves_some(&mut drafts, theirs, &mut untimely) => {
                }
                ended => break ended,
            }
        };
        // 3. After a conflict the guarded append finds the accounts that fit.
        let accounts = match burst {
            Burst::Committed(_) => drafts.iter().map(|draft| draft.account).collect(),
            Burst::Exist(_) | Burst::Untimely(_) => HashSet::new(),
            Burst::Conflict => self.append_timely(drafts, &mut untimely).await?,
            // The drafts were decided by lines and policies of a server that is gone. The guarded
            // append would notice other lines, but not that a version of the policy is gone.
            Burst::Behind => HashSet::new(),
        };
        Ok(Appended {
            accounts,
            burst: Some(burst),
            untimely,
        })
    }

    /// Appends drafts as [`ClaimTables::append`] does, without those whose instants are refused.
    async fn append_timely(
        &self,
        mut drafts: Vec<&Draft>,
        untimely: &mut Vec<(AccountId, Untimely)>,
    ) -> Result<HashSet<AccountId>, LedgerError> {
        loop {
            match store!(&self.ledger, store => store.append(&drafts).await)? {
                Ok(accounts) => return Ok(accounts),
                Err(theirs) if self.leaves_some(&mut drafts, theirs, untimely) => {}
                Err(_) => return Ok(HashSet::new()),
            }
        }
    }

    /// Leaves out the drafts that the store refuses when its clock shows `theirs`, and lists them in `untimely`.
    /// Returns whether some were left out and some are left.
    fn leaves_some(
        &self,
        drafts: &mut Vec<&Draft>,
        theirs: DateTime<Utc>,
        untimely: &mut Vec<(AccountId, Untimely)>,
    ) -> bool {
        leave_out(drafts, |draft| {
            let why = self
                .ledger
                .bounds()
                .and_then(|it| it.untimely(draft, theirs));
            untimely.extend(why.map(|why| (draft.account, why)));
            why.is_some()
        })
    }

    /// The error of drafts that the store refused together when its clock showed `theirs`.
    fn refused_instant(&self, drafts: &[&Draft], theirs: DateTime<Utc>) -> LedgerError {
        let bounds = self.ledger.bounds();
        let why = |draft: &&Draft| bounds.and_then(|it| it.untimely(draft, theirs));
        let why = drafts.iter().find_map(why);
        LedgerError::Untimely(why.unwrap_or(Untimely::Clock(TimeDelta::zero())))
    }

    /// Appends drafts in one transaction, all or none. [`ClaimTables::append_in_burst`] says what must
    /// be true.
    ///
    /// # Errors
    /// As [`ClaimTables::append`], except [`LedgerError::Conflict`].
    #[boxed]
    pub async fn burst(&self, drafts: &[&Draft], fence: &Fence) -> Result<Burst, LedgerError> {
        store!(&self.ledger, store => store.burst(drafts, fence).await)
    }

    /// Appends drafts in one transaction. Returns the accounts whose entries are now committed to
    /// disk. Invariant: the entries of an account, and those of a component of accounts, are appended all or none.
    /// The entries of the other accounts are not appended, because the last line of one of their component is not
    /// the assumed one or a key is taken.
    ///
    /// # Errors
    /// On [`LedgerError::Conflict`], [`LedgerError::Refused`] and [`LedgerError::Untimely`] nothing
    /// was written. On [`LedgerError::Unavailable`] the transaction may or may not be committed: look for the
    /// entries' ids, or append the same drafts again.
    #[boxed]
    pub async fn append(&self, drafts: &[&Draft]) -> Result<HashSet<AccountId>, LedgerError> {
        let appended = store!(&self.ledger, store => store.append(drafts).await)?;
        appended.map_err(|theirs| self.refused_instant(drafts, theirs))
    }

    /// Waits for a turn at accounts that several instances want at once.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`], also if the turn does not come in time.
    #[boxed]
    pub async fn turn(&self, accounts: &[AccountId]) -> Result<Turn, LedgerError> {
        match &self.ledger {
            Ledger::Postgres(store) => Ok(Turn(Some(Box::new(store.turn(accounts).await?)))),
            Ledger::Sqlite(_) => Ok(Turn(None)),
        }
    }
}
