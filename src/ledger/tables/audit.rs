//! The whole ledger, read in order, with connections that claims do not use.

use std::collections::HashMap;

use crate::boxed;
use crate::entry_rows::{decode_entry, decode_line};
use crate::query::{Session, query};
use crate::row::StoredRow;
use crate::sessions::answered;
use crate::{AuditTables, LedgerError, postgres, sqlite};
use domain::grant::{Entry, Line};
use domain::identity::AccountId;
use domain::policy::PolicyName;
use domain::reconciliation::LedgerPart;
use domain::record::RecordPlace;

/// An entry under audit, as its row has it.
#[derive(Debug)]
pub struct Audited {
    pub account: AccountId,
    pub number: u64,
    /// The policy of the entry, if its account was opened for that policy.
    pub policy: Option<PolicyName>,
    /// The subject of its account; `None` also after an erasure.
    pub subject: Option<String>,
    /// Whether a cut says that the entries before this one were dropped.
    pub is_after_cut: bool,
    /// The number from which on the entries of the account are to be checked. Those before it were checked.
    pub since: u64,
    /// The entry, or why it cannot be read.
    pub entry: Result<Entry, LedgerError>,
}

fn decode(row: &StoredRow<'_>) -> Result<Audited, LedgerError> {
    let policy: Option<String> = row.get("policy")?;
    Ok(Audited {
        account: row.get("account")?,
        number: row.get("number")?,
        policy: policy.and_then(|name| PolicyName::new(&name).ok()),
        subject: row.get("subject")?,
        is_after_cut: row.get("is_after_cut")?,
        since: row.get("since")?,
        entry: decode_entry(row),
    })
}

/// What the audit needs of the entries `$entries`, which have also the number `since` from which on they are
/// checked. Accounts whose ids are being replaced are left out; erasures in progress (`step < 3`) have an index.
macro_rules! audited {
    ($entries:literal, $end:literal) => {
        concat!(
            "SELECT e.account, e.number, e.at, e.policy_version, e.lapses_at, e.totals, e.id, e.kind,
                e.units, e.key, e.metadata, e.flags, e.claimed_by, d.of_grant, d.held_until, d.made_by,
                d.reason, d.per, d.bundle, p.name AS policy, a.subject, c.entry IS NOT NULL AS is_after_cut,
                e.since
            FROM (",
            $entries,
            " AND entries.account NOT IN (
                SELECT account FROM erasing_accounts WHERE step < 3 AND step = 2 AND done > 0
                UNION ALL SELECT replacement FROM erasing_accounts
                WHERE step < 3 AND step = 2 AND done > 0
            ) ",
            $end,
            ") AS e
            LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
            LEFT JOIN accounts AS a ON a.id = e.account AND a.policy = e.policy
            LEFT JOIN policies AS p ON p.id = a.policy
            LEFT JOIN cuts AS c ON c.entry = e.id
            ORDER BY e.account, e.number"
        )
    };
}

/// Entries after ($1, $2) of accounts up to $3, at most $4.
const AUDITED: &str = audited!(
    "SELECT *, CAST(1 AS bigint) AS since FROM entries
    WHERE (account, number) > ($1, $2) AND account <= $3",
    "ORDER BY account, number LIMIT $4"
);

/// The entries after the place ($1, $2) and up to ($3, $4), each account's with those between them and the
/// one before them.
const RECENT: &str = audited!(
    "SELECT entries.*, recent.since FROM (
        SELECT account, MIN(number) AS since, MAX(number) AS last FROM entries
        WHERE xact >= $1 AND (xact, id) > ($1, $2) AND xact <= $3 AND (xact, id) <= ($3, $4)
        GROUP BY account
    ) AS recent
    JOIN entries ON entries.account = recent.account
    WHERE entries.number >= recent.since - 1 AND entries.number <= recent.last",
    ""
);

/// Accounts from $1 to $2, at most $3.
const OPENED: &str =
    "SELECT id, EXISTS (SELECT 1 FROM entries WHERE account = accounts.id) AS has_entry
    FROM accounts WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3";

/// Every statement, by name.
#[cfg(feature = "faults")]
pub(super) fn texts() -> Vec<(String, crate::query::Texts)> {
    let texts = [("audited", AUDITED), ("recent", RECENT), ("opened", OPENED)];
    texts
        .map(|(name, text)| (name.to_owned(), text.into()))
        .to_vec()
}

impl AuditTables {
    /// Entries of accounts up to `last`, in the order of accounts and numbers, after one of them, at most
    /// `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`]; [`LedgerError::Corrupt`] for a row whose account or number
    /// cannot be read.
    #[boxed]
    pub async fn audited(
        &self,
        (account, number): (AccountId, u64),
        last: AccountId,
        limit: u32,
    ) -> Result<Vec<Audited>, LedgerError> {
        let entries = query(AUDITED).bind(account).bind(number).bind(last);
        let mut held = self.ledger.own().await?;
        held.lend().all(entries.bind(limit), decode).await
    }

    /// The entries after a place of the record and up to another, in the order of accounts and numbers; for
    /// each account the entry before them too, which was checked.
    ///
    /// # Errors
    /// As [`AuditTables::audited`].
    #[boxed]
    pub async fn audited_recent(
        &self,
        after: RecordPlace,
        up_to: RecordPlace,
    ) -> Result<Vec<Audited>, LedgerError> {
        let entries = query(RECENT)
            .bind(after.xact)
            .bind(after.id)
            .bind(up_to.xact)
            .bind(up_to.id);
        let mut held = self.ledger.own().await?;
        held.lend().all(entries, decode).await
    }

    /// Accounts of a part that have a row, in order, at most `limit`; each with whether it has an entry.
    #[boxed]
    pub async fn opened(
        &self,
        part: LedgerPart,
        limit: u32,
    ) -> Result<Vec<(AccountId, bool)>, LedgerError> {
        let opened = query(OPENED).bind(part.first).bind(part.last);
        let account = |row: &StoredRow<'_>| Ok((row.get("id")?, row.get("has_entry")?));
        let mut held = self.ledger.own().await?;
        held.lend().all(opened.bind(limit), account).await
    }

    /// The last lines of accounts, read with connections that claims do not use. An account without
    /// entries has no line.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`]. A line that cannot be read is an error in its place.
    #[boxed]
    pub async fn last_lines(
        &self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, Result<Line, LedgerError>>, LedgerError> {
        let line = |row: StoredRow<'_>| Ok((row.get("account")?, decode_line(&row)));
        match self.ledger.own().await?.lend() {
            Session::Postgres(connection, patience) => {
                let rows = postgres::last_lines(connection, accounts);
                let rows = answered(patience, rows).await?;
                rows.iter().map(StoredRow::Postgres).map(line).collect()
            }
            Session::Sqlite(connection) => {
                let rows = sqlite::last_lines(connection, accounts).await?;
                rows.iter().map(StoredRow::Sqlite).map(line).collect()
            }
        }
    }
}
