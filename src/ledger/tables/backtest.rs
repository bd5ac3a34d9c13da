//! A policy's entries, for a backtest.

use std::collections::HashMap;

use crate::LedgerError;
use crate::access::Snapshot;
use crate::boxed;
use crate::encoding::decode_kind;
use crate::query::{Texts, query};
use crate::row::StoredRow;
use domain::backtest::Replayed;
use domain::identity::{AccountId, EntryId};
use domain::line_text::{decode_calendar, top_ups_of};
use domain::policy::PolicyId;

fn decode(row: &StoredRow<'_>) -> Result<Replayed, LedgerError> {
    let own: Option<String> = row.get("own")?;
    Ok(Replayed {
        account: row.get("account")?,
        id: row.get("id")?,
        kind: decode_kind(
            row.get("kind")?,
            row.get("of_grant")?,
            None,
            row.get("per")?,
        )?,
        units: row.get("units")?,
        is_given_back: row.get("is_given_back")?,
        calendar: own.as_deref().map_or(Ok(None), decode_calendar)?,
        top_ups: own.as_deref().map_or(Ok(None), top_ups_of)?,
    })
}

/// A subquery with LIMIT: for EXISTS, PostgreSQL would hash all reversals again for each page.
const REPLAYED: Texts = Texts {
    postgres: "SELECT e.account, e.id, e.kind, d.of_grant, d.per, e.units,
            CASE WHEN substr(e.totals, 1, 1) IN ('@', '+') THEN e.totals END AS own, e.kind = 1 AND (
            SELECT id FROM entry_details WHERE of_grant = e.id
                AND kind IN (SELECT kind FROM entry_kinds WHERE sign < 0) LIMIT 1
        ) IS NOT NULL AS is_given_back
        FROM (
            SELECT * FROM entries WHERE policy = $1 AND id >= $2 AND id < $3
                AND substring(uuid_send(id), 1, 5)
                    BETWEEN substring(uuid_send($2), 1, 5) AND substring(uuid_send($3), 1, 5)
            ORDER BY policy, substring(uuid_send(id), 1, 5), id LIMIT $4
        ) AS e
        LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
        ORDER BY e.id",
    sqlite: "SELECT e.account, e.id, e.kind, d.of_grant, d.per, e.units,
            CASE WHEN substr(e.totals, 1, 1) IN ('@', '+') THEN e.totals END AS own, e.kind = 1 AND (
            SELECT id FROM entry_details WHERE of_grant = e.id
                AND kind IN (SELECT kind FROM entry_kinds WHERE sign < 0) LIMIT 1
        ) IS NOT NULL AS is_given_back
        FROM (
            SELECT * FROM entries WHERE policy = $1 AND id >= $2 AND id < $3
                AND substr(id, 1, 5) BETWEEN substr($2, 1, 5) AND substr($3, 1, 5)
            ORDER BY policy, substr(id, 1, 5), id LIMIT $4
        ) AS e
        LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
        ORDER BY e.id",
};

const SUBJECTS: Texts = Texts {
    postgres: "SELECT id, subject FROM accounts WHERE id = ANY($1) AND subject IS NOT NULL",
    sqlite: "SELECT id, subject FROM accounts
        WHERE id IN (SELECT unhex(value) FROM json_each($1)) AND subject IS NOT NULL",
};

impl Snapshot {
    /// A policy's entries with ids in `[from, to)`, in order, at most `limit`.
    #[boxed]
    pub async fn replayed(
        &mut self,
        policy: PolicyId,
        from: EntryId,
        to: EntryId,
        limit: u32,
    ) -> Result<Vec<Replayed>, LedgerError> {
        let entries = query(REPLAYED).bind(policy).bind(from).bind(to).bind(limit);
        self.0.lend().all(entries, decode).await
    }

    /// The subjects of accounts. An erased subject is left out.
    #[boxed]
    pub async fn subjects(
        &mut self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, String>, LedgerError> {
        let subject = |row: &StoredRow<'_>| Ok((row.get("id")?, row.get("subject")?));
        let subjects = query(SUBJECTS).bind(accounts);
        let subjects = self.0.lend().all(subjects, subject).await?;
        Ok(subjects.into_iter().collect())
    }
}
