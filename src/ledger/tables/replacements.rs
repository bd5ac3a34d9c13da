//! The second step of an erasure: accounts get random ids. Later their keys are cleared.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::erasures::{
    AccountOwner, ENTRIES_MOST, go_on, keep_leaves_of_entries, keep_leaves_of_override, last_line,
    note_done, over, private_entries, take,
};
use super::overrides::{StoredTerms, insert_version, last_of_subject};
use super::versions::next_revision;
use crate::access::Ending;
use crate::boxed;
use crate::query::{Session, Texts, query};
use crate::row::{StoredRow, only};
use crate::{AdminTables, ClaimTables, LedgerError, LedgerView, Look};
use domain::erasure::{ErasingAccount, ErasureStep, keys_over_at};
use domain::exceptions::ExceptionsThen;
use domain::identity::AccountId;
use domain::overrides::OfSubject;
use domain::seal::leaf::pseudonym;

/// How long after the end of its exceptions an account gets its new id. Every instance has learned of
/// the end by then.
const OVERRIDE_LEARNED: TimeDelta = TimeDelta::minutes(1);
/// The author of the changes that end an erased subject's exceptions.
const ENDED_BY: &str = "perdiem";

/// A lock that stops appends. Appends that rely on earlier reads notice the change afterwards. On
/// SQLite nobody else writes.
const HOLD_APPENDS: Texts = Texts {
    postgres: "SELECT pg_advisory_xact_lock(112, 1)",
    sqlite: "SELECT 1",
};
/// An erasure locks the ledger's row before its own row.
pub(super) const HOLD_LEDGER: Texts = Texts {
    postgres: "SELECT id FROM ledger FOR UPDATE",
    sqlite: "SELECT 1",
};
/// Limits the wait for the lock: claims wait behind it.
const WAIT_BRIEFLY: Texts = Texts {
    postgres: "SET LOCAL lock_timeout = '300ms'",
    sqlite: "SELECT 1",
};

/// A nil `blind` means no blind: the pseudonym is in `erased_accounts`.
const OPEN_REPLACEMENT: &str = "INSERT INTO accounts (id, policy, subject, blind)
    VALUES ($1, $2, NULL, $3) ON CONFLICT (id) DO NOTHING";
const KEEP_PSEUDONYM: &str = "INSERT INTO erased_accounts (account, pseudonym) VALUES ($1, $2)
    ON CONFLICT (account) DO NOTHING";
// On PostgreSQL only functions of the owner may change what was appended.
const REPLACE_ENTRIES: Texts = Texts {
    postgres: "SELECT replace_entries($1, $2, $3, $4)",
    sqlite: "UPDATE entry_details SET account = $2, reason = NULL
            WHERE account = $1 AND number > $3 AND number <= $4;
        UPDATE entries SET account = $2, metadata = NULL, flags = flags | 8
            WHERE account = $1 AND number > $3 AND number <= $4",
};
const CLEAR_KEYS: Texts = Texts {
    postgres: "SELECT clear_keys($1, $2, $3)",
    sqlite: "UPDATE entries SET key = NULL, flags = flags | 8
        WHERE account = $1 AND number > $2 AND number <= $3 AND key IS NOT NULL",
};
/// Makes the account's earlier lines useless to anyone who read them: no entry can be appended
/// after them.
const CLOSE_ACCOUNT: Texts = Texts {
    postgres: "SELECT close_account($1, $2)",
    sqlite: "DELETE FROM accounts WHERE id = $1;
        UPDATE differences SET account = $2 WHERE account = $1;
        UPDATE ledger SET erasures = erasures + 1",
};
const REPLACE_OVERRIDE: Texts = Texts {
    postgres: "SELECT replace_override($1, $2)",
    sqlite: "UPDATE override_versions SET account = $2, reason = NULL WHERE account = $1;
        DELETE FROM overrides WHERE account = $1",
};

const REPLACED: Texts = Texts {
    postgres: "SELECT account, replacement FROM erasing_accounts WHERE replacement = ANY($1)",
    sqlite: "SELECT account, replacement FROM erasing_accounts
        WHERE replacement IN (SELECT unhex(value) FROM json_each($1))",
};

impl AdminTables {
    /// Ends the exceptions of an account whose windows are over, if it has any. The account gets its new
    /// id after every instance has learned of the end. Returns the versions that end them.
    #[boxed]
    pub async fn end_erased_terms(
        &self,
        erasing: &ErasingAccount,
        margin: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<ExceptionsThen, LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                let none = ExceptionsThen::default();
                session.execute(query(HOLD_LEDGER)).await?;
                let erasing = take(&mut session, erasing, ErasureStep::Counts).await?;
                let Some(erasing) = erasing.filter(|erasing| !erasing.override_ended) else {
                    return Ok(Ending::Rollback(none));
                };
                let over = over(&mut session, erasing.account, margin).await?;
                if over.is_some_and(|over| over > now) {
                    return Ok(Ending::Rollback(none));
                }
                let ended = ExceptionsThen {
                    tier: end_terms(&mut session, erasing.account, now).await?,
                    overridden: end_terms(&mut session, erasing.account, now).await?,
                    block: end_terms(&mut session, erasing.account, now).await?,
                };
                if ended == none {
                    return Ok(Ending::Rollback(none));
                }
                let learned = query(
                    "UPDATE erasing_accounts SET override_ended = true, due_at = $2
                 WHERE replacement = $1",
                );
                let learned = learned
                    .bind(erasing.replacement)
                    .bind(now + OVERRIDE_LEARNED);
                session.execute(learned).await?;
                Ok(Ending::Commit(ended))
            })
            .await
    }

    /// Gives some entries of an account its random id, after the account's windows are over. The
    /// oldest entries come first, so that the last line stays the last line. Returns whether more
    /// can be done now. If the subject has claimed again, the step waits for the end of those
    /// windows.
    #[boxed]
    pub async fn replace_account(
        &self,
        erasing: &ErasingAccount,
        margin: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<bool, LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                // 1. Lock the ledger's row and the erasure.
                session.execute(query(WAIT_BRIEFLY)).await?;
                session.execute(query(HOLD_LEDGER)).await?;
                let Some(erasing) = take(&mut session, erasing, ErasureStep::Counts).await? else {
                    return Ok(Ending::Rollback(false));
                };
                let account = erasing.account;
                // 2. Read the next entries. If they include the last line, stop appends first, and read
                //    again.
                let mut entries = private_entries(&mut session, &erasing).await?;
                if entries.len() < ENTRIES_MOST as usize {
                    session.execute(query(HOLD_APPENDS)).await?;
                    entries = private_entries(&mut session, &erasing).await?;
                }
                // The last line moves while nothing can be appended after it.
                let has_more = entries.len() == ENTRIES_MOST as usize;
                if has_more {
                    entries.pop();
                }
                let over = over(&mut session, account, margin).await?;
                // 3. The subject may have claimed again: then wait.
                if let Some(over) = over.filter(|over| *over > now) {
                    go_on_later(&mut session, &erasing, over).await?;
                    return Ok(Ending::Commit(false));
                }
                let owner = AccountOwner::of_account(&mut session, account).await?;
                // A row with a name was opened since then.
                let owner = owner.filter(|owner| owner.subject.is_none());
                // 4. Keep the digests of these entries, and give them the random id.
                if let (Some(owner), Some(newest)) = (&owner, entries.last()) {
                    keep_leaves_of_entries(&mut session, &erasing, &entries, owner).await?;
                    replace_entries(&mut session, &erasing, owner, newest.number).await?;
                    if has_more {
                        note_done(&mut session, &erasing, newest.number).await?;
                        return Ok(Ending::Commit(true));
                    }
                }
                // 5. After the last entry: close the old account, and move the override.
                if owner.is_some() {
                    close_account(&mut session, &erasing).await?;
                }
                replace_override(&mut session, &erasing).await?;
                go_on(&mut session, &erasing, ErasureStep::Counter, now).await?;
                Ok(Ending::Commit(false))
            })
            .await
    }

    /// Stores that the counter of the account's old id is forgotten.
    #[boxed]
    pub async fn note_counter_forgotten(
        &self,
        erasing: &ErasingAccount,
    ) -> Result<(), LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                let erasing = take(&mut session, erasing, ErasureStep::Counter).await?;
                if let Some(erasing) = erasing {
                    let last = last_line(&mut session, erasing.replacement).await?;
                    let due_at = last.map_or(DateTime::UNIX_EPOCH, |last| keys_over_at(&last));
                    go_on(&mut session, &erasing, ErasureStep::Keys, due_at).await?;
                }
                Ok(Ending::Commit(()))
            })
            .await
    }

    /// Clears some keys of an account that has its random id. Returns whether more are left. After
    /// the last keys the account is erased, and nothing names its old id any more.
    #[boxed]
    pub async fn clear_keys(
        &self,
        erasing: &ErasingAccount,
        now: DateTime<Utc>,
    ) -> Result<bool, LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                let Some(erasing) = take(&mut session, erasing, ErasureStep::Keys).await? else {
                    return Ok(Ending::Rollback(false));
                };
                let last = last_line(&mut session, erasing.replacement).await?;
                if let Some(last) = &last {
                    // A correction was appended since then: wait again.
                    if keys_over_at(last) > now {
                        go_on_later(&mut session, &erasing, keys_over_at(last)).await?;
                        return Ok(Ending::Commit(false));
                    }
                    let done = erasing.done + u64::from(ENTRIES_MOST);
                    let clear = query(CLEAR_KEYS)
                        .bind(erasing.replacement)
                        .bind(erasing.done)
                        .bind(done);
                    session.execute(clear).await?;
                    if done < last.number {
                        note_done(&mut session, &erasing, done).await?;
                        return Ok(Ending::Commit(true));
                    }
                }
                let end = query("DELETE FROM erasing_accounts WHERE replacement = $1");
                session.execute(end.bind(erasing.replacement)).await?;
                Ok(Ending::Commit(false))
            })
            .await
    }
}

const ERASED: Texts = Texts {
    postgres: "SELECT account FROM erasing_accounts WHERE account = ANY($1)",
    sqlite: "SELECT account FROM erasing_accounts
        WHERE account IN (SELECT unhex(value) FROM json_each($1))",
};

impl ClaimTables {
    /// Which accounts had entries that an erasure gave to another account. Their keys still belong to the claims of the
    /// subject.
    #[boxed]
    pub async fn erased(&self, accounts: &[AccountId]) -> Result<HashSet<AccountId>, LedgerError> {
        if accounts.is_empty() {
            return Ok(HashSet::new());
        }
        let erased = query(ERASED).bind(accounts);
        let erased = self
            .ledger
            .in_time(async |mut session| session.all(erased, only).await)
            .await;
        Ok(erased?.into_iter().collect())
    }

    /// Some keys' entries are in accounts that got a random id. This gives them the account's id
    /// from before the erasure, because a claim names its account by the hash of its subject. A
    /// correction names its grant, which has the new account.
    pub(crate) async fn name_old_accounts(
        &self,
        look: &Look,
        view: &mut LedgerView,
    ) -> Result<(), LedgerError> {
        let mut found: Vec<_> = view.entries.iter_mut().collect();
        found.retain(|entry| {
            let is_wanted = entry.key.is_some_and(|key| look.keys.contains(&key));
            entry.is_erased && is_wanted && entry.kind.of().is_none()
        });
        if found.is_empty() {
            return Ok(());
        }
        let accounts: Vec<AccountId> = found.iter().map(|entry| entry.account).collect();
        let replaced = query(REPLACED).bind(accounts.as_slice());
        let pair = |row: &StoredRow<'_>| Ok((row.get("account")?, row.get("replacement")?));
        let replaced: Vec<(AccountId, AccountId)> = self
            .ledger
            .in_time(async |mut session| session.all(replaced, pair).await)
            .await?;
        for entry in found {
            if let Some((account, _)) = replaced.iter().find(|(_, new)| *new == entry.account) {
                entry.account = *account;
            }
        }
        Ok(())
    }
}

/// Ends terms of an erased subject, if they are in force.
async fn end_terms<T: StoredTerms>(
    session: &mut Session<'_>,
    account: AccountId,
    now: DateTime<Utc>,
) -> Result<Option<OfSubject<T>>, LedgerError> {
    let last: Option<OfSubject<T>> = last_of_subject(session, account).await?;
    let is_in_force = |last: &OfSubject<T>| last.subject.is_none() && last.in_force(now).is_some();
    let Some(last) = last.filter(is_in_force) else {
        return Ok(None);
    };
    let revision = next_revision(session).await?;
    let ended = OfSubject {
        revision: revision.cast_unsigned(),
        terms: None,
        changed_at: now,
        changed_by: ENDED_BY.to_owned(),
        reason: None,
        ..last
    };
    insert_version(session, ended).await.map(Some)
}

/// Delays the erasure to an instant.
async fn go_on_later(
    session: &mut Session<'_>,
    erasing: &ErasingAccount,
    due_at: DateTime<Utc>,
) -> Result<(), LedgerError> {
    let later = query("UPDATE erasing_accounts SET due_at = $2 WHERE replacement = $1");
    session
        .execute(later.bind(erasing.replacement).bind(due_at))
        .await
}

/// Gives the entries up to a number the random id.
async fn replace_entries(
    session: &mut Session<'_>,
    erasing: &ErasingAccount,
    owner: &AccountOwner,
    up_to: u64,
) -> Result<(), LedgerError> {
    let open = query(OPEN_REPLACEMENT)
        .bind(erasing.replacement)
        .bind(erasing.policy)
        .bind(Uuid::nil());
    session.execute(open).await?;
    let pseudonym = pseudonym(owner.blind);
    let keep = query(KEEP_PSEUDONYM)
        .bind(erasing.replacement)
        .bind(pseudonym.as_slice());
    session.execute(keep).await?;
    let replace = query(REPLACE_ENTRIES)
        .bind(erasing.account)
        .bind(erasing.replacement)
        .bind(erasing.done)
        .bind(up_to);
    session.execute(replace).await
}

/// Deletes what is left of the old id.
async fn close_account(
    session: &mut Session<'_>,
    erasing: &ErasingAccount,
) -> Result<(), LedgerError> {
    let denials = query("DELETE FROM first_denials WHERE account = $1");
    session.execute(denials.bind(erasing.account)).await?;
    let close = query(CLOSE_ACCOUNT)
        .bind(erasing.account)
        .bind(erasing.replacement);
    session.execute(close).await
}

/// Gives the override of an account the random id, unless the subject was named again.
async fn replace_override(
    session: &mut Session<'_>,
    erasing: &ErasingAccount,
) -> Result<(), LedgerError> {
    let owner = AccountOwner::of_override(session, erasing.account).await?;
    let Some(owner) = owner.filter(|owner| owner.subject.is_none()) else {
        return Ok(());
    };
    keep_leaves_of_override(session, erasing.account, &owner).await?;
    let open =
        query("INSERT INTO overrides (account, policy, subject, blind) VALUES ($1, $2, NULL, $3)");
    let open = open
        .bind(erasing.replacement)
        .bind(erasing.policy)
        .bind(Uuid::nil());
    session.execute(open).await?;
    let replace = query(REPLACE_OVERRIDE)
        .bind(erasing.account)
        .bind(erasing.replacement);
    session.execute(replace).await
}
