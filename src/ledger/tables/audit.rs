//! The ledger read from one end to the other, off the claims' way.

use std::collections::HashMap;

use uuid::Uuid;

use crate::domain::grant::{Entry, Line};
use crate::domain::identity::AccountId;
use crate::domain::policy::PolicyName;
use crate::ledger::entry_rows::{EntryRow, LineRow, entry_columns, with_details};
use crate::ledger::query::{Readable, Session, query};
use crate::ledger::record::unsigned;
use crate::ledger::row::row;
use crate::ledger::{Ledger, LedgerError, postgres, sqlite};

/// An entry under audit, as its row has it.
#[derive(Debug)]
pub struct Audited {
    pub account: AccountId,
    pub number: u64,
    /// Its policy, if its account was opened for that policy.
    pub policy: Option<PolicyName>,
    /// Its account's subject; `None` also once it was erased.
    pub subject: Option<String>,
    /// The entry, or why it cannot be read.
    pub entry: Result<Entry, LedgerError>,
}

row! {
    struct AuditedRow {
        ..entry: Readable<EntryRow>,
        account: Uuid,
        number: i64,
        policy: Option<String>,
        subject: Option<String>,
    }
}

impl AuditedRow {
    fn decode(self) -> Result<Audited, LedgerError> {
        Ok(Audited {
            account: AccountId(self.account),
            number: unsigned(self.number)?,
            policy: self.policy.and_then(|name| PolicyName::new(&name).ok()),
            subject: self.subject,
            entry: self.entry.0.and_then(EntryRow::decode),
        })
    }
}

row! {
    struct AuditedLineRow {
        ..line: Readable<LineRow>,
        account: Uuid,
    }
}

const AUDITED: &str = concat!(
    "SELECT ",
    entry_columns!(),
    ", p.name AS policy, a.subject
     FROM (
         SELECT * FROM entries WHERE (account, number) > ($1, $2)
         ORDER BY account, number LIMIT $3
     ) AS e",
    with_details!(),
    "LEFT JOIN accounts AS a ON a.id = e.account AND a.policy = e.policy
     LEFT JOIN policies AS p ON p.id = a.policy
     ORDER BY e.account, e.number"
);

impl Ledger {
    /// Entries in the order of accounts and numbers, after one of them, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`], or [`LedgerError::Corrupt`] for a row whose account or
    /// number cannot be read.
    pub async fn audited(
        &self,
        after: Option<(AccountId, u64)>,
        limit: u32,
    ) -> Result<Vec<Audited>, LedgerError> {
        let (account, number) = after.unwrap_or((AccountId(Uuid::nil()), 0));
        let entries = query(AUDITED).bind(account).bind(number).bind(limit);
        let rows: Vec<AuditedRow> = self.own().await?.lend().all(entries).await?;
        rows.into_iter().map(AuditedRow::decode).collect()
    }

    /// Accounts that were opened, in order, after one of them, at most `limit`; each with
    /// whether it has an entry.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn opened(
        &self,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<(AccountId, bool)>, LedgerError> {
        let opened = query(
            "SELECT id, EXISTS (SELECT 1 FROM entries WHERE account = accounts.id) AS has_entry
             FROM accounts WHERE id > $1 ORDER BY id LIMIT $2",
        );
        let opened = opened.bind(after.unwrap_or(AccountId(Uuid::nil())));
        let rows: Vec<(Uuid, bool)> = self.own().await?.lend().all(opened.bind(limit)).await?;
        let account = |(id, has_entry)| (AccountId(id), has_entry);
        Ok(rows.into_iter().map(account).collect())
    }

    /// The last lines of accounts, read off the claims' way. An account without entries has
    /// none.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`]; a line that cannot be read is an error in its place.
    pub async fn last_lines(
        &self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, Result<Line, LedgerError>>, LedgerError> {
        let rows: Vec<AuditedLineRow> = match self.own().await?.lend() {
            Session::Postgres(connection) => postgres::last_lines(connection, accounts).await?,
            Session::Sqlite(connection) => sqlite::last_lines(connection, accounts).await?,
        };
        let line = |row: AuditedLineRow| {
            let line = row.line.0.and_then(LineRow::decode);
            (AccountId(row.account), line)
        };
        Ok(rows.into_iter().map(line).collect())
    }
}
