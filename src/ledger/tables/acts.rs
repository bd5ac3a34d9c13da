//! Acts: what somebody did with the record, such as an export or an archive.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::versions::{ChangeFilter, next_revision, next_revisions};
use crate::access::Ending;
use crate::boxed;
use crate::query::{Session, Texts, query};
use crate::row::StoredRow;
use crate::{LedgerError, RecordTables, new_blind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActKind {
    Export,
    /// The figures of a day are recorded.
    Day,
    /// A new log of seals began, under another name.
    SealRestart,
    /// Leaves of the log were written into files.
    Archive,
    /// Archived entries are dropped.
    Cut,
    Erasure,
    /// Somebody looked at a subject.
    Read,
}

impl ActKind {
    const ALL: [Self; 7] = [
        Self::Export,
        Self::Day,
        Self::SealRestart,
        Self::Archive,
        Self::Cut,
        Self::Erasure,
        Self::Read,
    ];

    /// The name in the table and in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Day => "day",
            Self::SealRestart => "seal-restart",
            Self::Archive => "archive",
            Self::Cut => "cut",
            Self::Erasure => "erasure",
            Self::Read => "read",
        }
    }
}

/// An act. It is a change: it has a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    pub revision: u64,
    pub kind: ActKind,
    /// The details: JSON, in the shape of the kind.
    pub about: String,
    pub at: DateTime<Utc>,
    pub by: String,
    pub reason: Option<String>,
}

fn decode(row: &StoredRow<'_>) -> Result<Act, LedgerError> {
    let name: String = row.get("kind")?;
    let kind = ActKind::ALL.into_iter().find(|kind| kind.as_str() == name);
    Ok(Act {
        revision: row.get("revision")?,
        kind: kind.ok_or_else(|| LedgerError::Corrupt(format!("the act {name}")))?,
        about: row.get("about")?,
        at: row.get("changed_at")?,
        by: row.get("changed_by")?,
        reason: row.get("reason")?,
    })
}

/// An act belongs to no policy, except for a read.
const LISTED: &str = "SELECT revision, kind, about, changed_at, changed_by, reason FROM acts
    WHERE revision < $1 AND ($2 IS NULL OR changed_at >= $2) AND ($3 IS NULL OR changed_at < $3)
        AND $5 IS NULL AND ($6 IS NULL OR changed_by = $6) AND kind = $7
    ORDER BY revision DESC LIMIT $4";
const READS: Texts = Texts {
    postgres: "SELECT revision, kind, about, changed_at, changed_by, reason FROM acts
        WHERE revision < $1 AND ($2 IS NULL OR changed_at >= $2)
            AND ($3 IS NULL OR changed_at < $3) AND ($6 IS NULL OR changed_by = $6)
            AND ($5 IS NULL OR about::json #>> '{filters,policy}'
                = (SELECT name FROM policies WHERE id = $5))
            AND kind = 'read'
        ORDER BY revision DESC LIMIT $4",
    sqlite: "SELECT revision, kind, about, changed_at, changed_by, reason FROM acts
        WHERE revision < $1 AND ($2 IS NULL OR changed_at >= $2)
            AND ($3 IS NULL OR changed_at < $3) AND ($6 IS NULL OR changed_by = $6)
            AND ($5 IS NULL OR about ->> '$.filters.policy'
                = (SELECT name FROM policies WHERE id = $5))
            AND kind = 'read'
        ORDER BY revision DESC LIMIT $4",
};
/// The reads of the subject $7, by an index.
const READS_OF: Texts = Texts {
    postgres: "SELECT revision, kind, about, changed_at, changed_by, reason FROM acts
        WHERE revision < $1 AND ($2 IS NULL OR changed_at >= $2)
            AND ($3 IS NULL OR changed_at < $3) AND ($6 IS NULL OR changed_by = $6)
            AND ($5 IS NULL OR about::json #>> '{filters,policy}'
                = (SELECT name FROM policies WHERE id = $5))
            AND kind = 'read' AND about::json #>> '{filters,subject}' = $7
        ORDER BY revision DESC LIMIT $4",
    sqlite: "SELECT revision, kind, about, changed_at, changed_by, reason FROM acts
        WHERE revision < $1 AND ($2 IS NULL OR changed_at >= $2)
            AND ($3 IS NULL OR changed_at < $3) AND ($6 IS NULL OR changed_by = $6)
            AND ($5 IS NULL OR about ->> '$.filters.policy'
                = (SELECT name FROM policies WHERE id = $5))
            AND kind = 'read' AND about ->> '$.filters.subject' = $7
        ORDER BY revision DESC LIMIT $4",
};

const ONE: &str = "SELECT revision, kind, about, changed_at, changed_by, reason FROM acts
    WHERE revision = $1";
const ADD: Texts = Texts {
    postgres: "INSERT INTO acts (revision, kind, about, changed_at, changed_by, reason, blind)
        VALUES ($1, $2, $3, $4, $5, $6, $7)",
    sqlite: "INSERT INTO acts (revision, kind, about, changed_at, changed_by, reason, blind, xact)
        VALUES ($1, $2, $3, $4, $5, $6, $7, (SELECT COALESCE(MAX(xact), 0) FROM entries))",
};
/// Adds acts from a JSON array: one array for each act, with its columns. Its instant stands there in
/// the form of each store.
const ADD_MANY: Texts = Texts {
    postgres: "INSERT INTO acts (revision, kind, about, changed_by, reason, blind, changed_at)
        SELECT (d ->> 0)::bigint, d ->> 1, d ->> 2, d ->> 3, d ->> 4, (d ->> 5)::uuid,
            (d ->> 6)::timestamptz
        FROM json_array_elements($1::json) AS d",
    sqlite: "INSERT INTO acts (revision, kind, about, changed_by, reason, blind, changed_at, xact)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4,
            unhex(value ->> 5), value ->> 7, (SELECT COALESCE(MAX(xact), 0) FROM entries)
        FROM json_each($1)",
};

impl RecordTables {
    /// Adds an act, and returns its revision. The revision of the argument is ignored.
    #[boxed]
    pub async fn add_act(&self, act: &Act) -> Result<u64, LedgerError> {
        self.ledger
            .edit(async |mut session| Ok(Ending::Commit(add_act_in(&mut session, act).await?)))
            .await
    }

    /// Adds acts in one transaction. The revisions of the arguments are ignored.
    #[boxed]
    pub async fn add_acts(&self, acts: &[Act]) -> Result<(), LedgerError> {
        let count = u32::try_from(acts.len()).unwrap_or(u32::MAX);
        self.ledger
            .edit(async |mut session| {
                let last = next_revisions(&mut session, count).await?;
                let row = |(act, revision): (&Act, i64)| {
                    json!([
                        revision,
                        act.kind.as_str(),
                        act.about,
                        act.by,
                        act.reason,
                        new_blind().simple().to_string(),
                        act.at,
                        act.at.timestamp_micros(),
                    ])
                };
                let first = last - i64::from(count) + 1;
                let rows: Value = acts.iter().zip(first..).map(row).collect();
                session
                    .execute(query(ADD_MANY).bind(rows.to_string()))
                    .await?;
                Ok(Ending::Commit(()))
            })
            .await
    }

    /// The act with this revision.
    #[boxed]
    pub async fn act(&self, revision: u64) -> Result<Option<Act>, LedgerError> {
        one(&mut self.ledger.reads().await?.lend(), revision).await
    }

    /// The acts of a kind, newest first, at most `limit`.
    pub(super) async fn acts(
        &self,
        filter: &ChangeFilter,
        kind: ActKind,
        limit: u32,
    ) -> Result<Vec<Act>, LedgerError> {
        let listed = match (kind, &filter.subject) {
            (ActKind::Read, None) => filter.bind(READS, limit),
            (ActKind::Read, Some(subject)) => filter.bind(READS_OF, limit).bind(subject.as_str()),
            _ => filter.bind(LISTED, limit).bind(kind.as_str()),
        };
        self.ledger.reads().await?.lend().all(listed, decode).await
    }
}

/// As [`RecordTables::add_act`], in a transaction.
pub(super) async fn add_act_in(session: &mut Session<'_>, act: &Act) -> Result<u64, LedgerError> {
    let revision = next_revision(session).await?;
    add(session, act, revision).await?;
    Ok(revision.cast_unsigned())
}

pub(super) async fn add(
    session: &mut Session<'_>,
    act: &Act,
    revision: i64,
) -> Result<(), LedgerError> {
    let add = query(ADD)
        .bind(revision)
        .bind(act.kind.as_str())
        .bind(act.about.as_str())
        .bind(act.at)
        .bind(act.by.as_str())
        .bind(act.reason.as_deref())
        .bind(new_blind());
    session.execute(add).await
}

pub(super) async fn one(
    session: &mut Session<'_>,
    revision: u64,
) -> Result<Option<Act>, LedgerError> {
    session.first(query(ONE).bind(revision), decode).await
}
