//! The ledger read from one end to the other, off the claims' way.

use std::collections::HashMap;

use sqlx::FromRow;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::Store;
use super::entries::{EntryRow, LastRow, LineRow, last_lines};
use crate::domain::grant::Line;
use crate::domain::identity::AccountId;
use crate::domain::policy::PolicyName;
use crate::ledger::record::{entry_columns, signed, unsigned, with_details};
use crate::ledger::row::row;
use crate::ledger::{Audited, LedgerError};

row! {
    struct PlaceRow {
        account: Uuid,
        number: i64,
        policy: Option<String>,
        subject: Option<String>,
    }
}

fn decode(row: &SqliteRow) -> Result<Audited, LedgerError> {
    let place = PlaceRow::from_row(row)?;
    Ok(Audited {
        account: AccountId(place.account),
        number: unsigned(place.number)?,
        policy: place.policy.and_then(|name| PolicyName::new(&name).ok()),
        subject: place.subject,
        entry: EntryRow::from_row(row)
            .map_err(LedgerError::from)
            .and_then(EntryRow::decode),
    })
}

impl Store {
    /// See [`crate::ledger::Ledger::audited`].
    pub async fn audited(
        &self,
        after: Option<(AccountId, u64)>,
        limit: u32,
    ) -> Result<Vec<Audited>, LedgerError> {
        let (account, number) = after.unwrap_or((AccountId(Uuid::nil()), 0));
        let rows: Vec<SqliteRow> = sqlx::query(concat!(
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
        ))
        .bind(account.0)
        .bind(signed(number))
        .bind(limit)
        .fetch_all(&self.own)
        .await?;
        rows.iter().map(decode).collect()
    }

    /// See [`crate::ledger::Ledger::opened`].
    pub async fn opened(
        &self,
        after: Option<AccountId>,
        limit: u32,
    ) -> Result<Vec<(AccountId, bool)>, LedgerError> {
        let rows: Vec<(Uuid, bool)> = sqlx::query_as(
            "SELECT id, EXISTS (SELECT 1 FROM entries WHERE account = accounts.id) AS has_entry
             FROM accounts WHERE id > $1 ORDER BY id LIMIT $2",
        )
        .bind(after.map_or(Uuid::nil(), |account| account.0))
        .bind(limit)
        .fetch_all(&self.own)
        .await?;
        let account = |(id, has_entry)| (AccountId(id), has_entry);
        Ok(rows.into_iter().map(account).collect())
    }

    /// See [`crate::ledger::Ledger::last_lines`].
    pub async fn last_lines(
        &self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, Result<Line, LedgerError>>, LedgerError> {
        let mut connection = self.own.acquire().await?;
        let rows = last_lines(&mut connection, accounts).await?;
        let lines = rows.into_iter().map(LastRow::line);
        let line = |line: LineRow| (AccountId(line.account), line.decode());
        Ok(lines.map(line).collect())
    }
}
