//! Subjects by their beginnings, and the accounts of a policy's latest entries.

use crate::boxed;
use crate::query::{Texts, query};
use crate::row::StoredRow;
use crate::{LedgerError, RecordTables};
use domain::claim::{SUBJECT_MAX_BYTES, Subject};
use domain::identity::{AccountId, EntryId};
use domain::policy::{PolicyId, PolicyName};

/// The first subject of each of the policies `named` in the table `$table`, from $2 up to $3 and after $4.
macro_rules! firsts_of_table {
    ($table:literal) => {
        concat!(
            "SELECT (
                SELECT MIN(s.subject) FROM ",
            $table,
            " AS s WHERE s.policy = named.id AND s.subject >= $2 AND s.subject > $4 AND s.subject <= $3
            ) AS subject FROM named"
        )
    };
}

/// The subjects of the table `$table` under the policies `named`, from $2 up to the one of `last` and after $4, of each
/// policy at most $5.
macro_rules! of_table {
    ($table:literal) => {
        concat!(
            "SELECT t.subject, named.name
            FROM named CROSS JOIN last JOIN ",
            $table,
            " AS t ON t.policy = named.id AND t.subject >= $2 AND t.subject > $4
                AND t.subject <= COALESCE((
                    SELECT s.subject FROM ",
            $table,
            " AS s
                    WHERE s.policy = named.id AND s.subject >= $2 AND s.subject > $4
                        AND s.subject <= last.subject
                    ORDER BY s.subject LIMIT 1 OFFSET $5 - 1
                ), last.subject)"
        )
    };
}

/// The first $5 subjects from $2 up to $3 and after $4 under the policies `$named`, each with all of these policies
/// that know it. A subject can have an exception, and no entry. If $5 policies begin with different subjects, none of the
/// wanted ones comes after these (`last`). So many policies do not have to give $5 subjects each.
macro_rules! subjects {
    ($named:literal) => {
        concat!(
            "WITH named AS (SELECT id, name FROM policies WHERE name ",
            $named,
            "), last AS (
                SELECT COALESCE((
                    SELECT subject FROM (
                        SELECT DISTINCT subject FROM (",
            firsts_of_table!("accounts"),
            " UNION ALL ",
            firsts_of_table!("overrides"),
            ") AS first WHERE subject IS NOT NULL
                    ) AS first ORDER BY subject LIMIT 1 OFFSET $5 - 1
                ), $3) AS subject
            ), found AS (",
            of_table!("accounts"),
            " UNION ",
            of_table!("overrides"),
            ") SELECT subject, name FROM (
                SELECT subject, name, DENSE_RANK() OVER (ORDER BY subject) AS place FROM found
            ) AS placed WHERE place <= $5 ORDER BY subject, name"
        )
    };
}

const SUBJECTS: Texts = Texts {
    postgres: subjects!("= ANY($1)"),
    sqlite: subjects!("IN (SELECT value FROM json_each($1))"),
};

// The entries of the policy $1 after the id $2, oldest first, at most $3. Each has an entry before it of its account: the
// last one that is a grant or has an id from $4 on. The ids of grants grow with their numbers; an adjustment of the past
// has an earlier one.
const ENTRIES_SINCE: Texts = Texts {
    postgres: "SELECT e.id, e.account, a.subject, (
            SELECT b.id FROM entries AS b
            WHERE b.account = e.account AND b.number < e.number AND (b.kind = 1 OR b.id >= $4)
            ORDER BY b.number DESC LIMIT 1
        ) AS before
        FROM (
            SELECT id, account, number FROM entries
            WHERE policy = $1 AND substring(uuid_send(id), 1, 5) >= substring(uuid_send($2), 1, 5) AND id > $2
            ORDER BY policy, substring(uuid_send(id), 1, 5), id LIMIT $3
        ) AS e
        JOIN accounts AS a ON a.id = e.account
        ORDER BY e.id",
    sqlite: "SELECT e.id, e.account, a.subject, (
            SELECT b.id FROM entries AS b
            WHERE b.account = e.account AND b.number < e.number AND (b.kind = 1 OR b.id >= $4)
            ORDER BY b.number DESC LIMIT 1
        ) AS before
        FROM (
            SELECT id, account, number FROM entries
            WHERE policy = $1 AND substr(id, 1, 5) >= substr($2, 1, 5) AND id > $2
            ORDER BY policy, substr(id, 1, 5), id LIMIT $3
        ) AS e
        JOIN accounts AS a ON a.id = e.account
        ORDER BY e.id",
};

/// The statements, by name, for a test that reads their plans.
#[cfg(feature = "faults")]
pub(super) fn texts() -> Vec<(String, Texts)> {
    vec![
        ("subjects".to_owned(), SUBJECTS),
        ("entries since".to_owned(), ENTRIES_SINCE),
    ]
}

/// An entry, its subject, and an entry before it of its account.
#[derive(Debug)]
pub struct AccountEntry {
    pub id: EntryId,
    pub account: AccountId,
    /// `None` after an erasure.
    pub subject: Option<String>,
    /// The last one before it that is a grant or counts in the span of the list.
    pub before: Option<EntryId>,
}

fn decode_account_entry(row: &StoredRow<'_>) -> Result<AccountEntry, LedgerError> {
    Ok(AccountEntry {
        id: row.get("id")?,
        account: row.get("account")?,
        subject: row.get("subject")?,
        before: row.get("before")?,
    })
}

/// A text that no subject with this beginning comes after.
fn last_with(prefix: &str) -> String {
    let longest = SUBJECT_MAX_BYTES / char::MAX.len_utf8() + 1;
    let rest = std::iter::repeat_n(char::MAX, longest);
    prefix.chars().chain(rest).collect()
}

impl RecordTables {
    /// The first `limit` subjects with a beginning, after another one, in the order of their bytes: each with
    /// the policies that know it, of those named.
    #[boxed]
    pub async fn subjects(
        &self,
        policies: &[PolicyName],
        prefix: Option<&Subject>,
        after: &str,
        limit: u32,
    ) -> Result<Vec<(String, PolicyName)>, LedgerError> {
        let prefix = prefix.map_or("", Subject::as_str);
        let list = query(SUBJECTS)
            .bind(Some(policies))
            .bind(prefix)
            .bind(last_with(prefix))
            .bind(after)
            .bind(limit);
        let decode = |row: &StoredRow<'_>| Ok((row.get("subject")?, row.get("name")?));
        self.ledger.reads().await?.lend().all(list, decode).await
    }

    /// The entries of a policy after an id, oldest first, at most `limit`, of a list that begins at the id `from`.
    #[boxed]
    pub async fn entries_since(
        &self,
        policy: PolicyId,
        from: EntryId,
        after: EntryId,
        limit: u32,
    ) -> Result<Vec<AccountEntry>, LedgerError> {
        let list = query(ENTRIES_SINCE)
            .bind(policy)
            .bind(after)
            .bind(limit)
            .bind(from);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(list, decode_account_entry)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_with_a_beginning_comes_after_its_last_text() {
        for prefix in ["", "a", "member-", "\u{10FFFF}", "ü"] {
            let longest = format!("{prefix}{}", "\u{10FFFF}".repeat(SUBJECT_MAX_BYTES / 4));
            let last = last_with(prefix);
            assert!(last.as_bytes() > longest.as_bytes());
            assert!(last.starts_with(prefix));
        }
    }
}
