//! Acts: what somebody did with the record, such as an export or an archive.

use chrono::{DateTime, Utc};

use super::versions::{ChangeFilter, insert_change, next_revision};
use crate::ledger::access::Ending;
use crate::ledger::query::{Session, Texts, query};
use crate::ledger::row::StoredRow;
use crate::ledger::{Ledger, LedgerError, new_blind};

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
}

impl ActKind {
    const ALL: [Self; 6] = [
        Self::Export,
        Self::Day,
        Self::SealRestart,
        Self::Archive,
        Self::Cut,
        Self::Erasure,
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

/// A query for acts.
macro_rules! acts {
    ($choice:literal) => {
        concat!(
            "SELECT revision, kind, about, changed_at, changed_by, reason FROM acts ",
            $choice
        )
    };
}

/// An act belongs to no policy.
const LISTED: &str = acts!(
    "WHERE revision < $1 AND ($2 IS NULL OR changed_at >= $2) AND ($3 IS NULL OR changed_at < $3)
        AND $5 IS NULL AND ($6 IS NULL OR changed_by = $6) AND kind = $7
     ORDER BY revision DESC LIMIT $4"
);
const ONE: &str = acts!("WHERE revision = $1");
const ADD: Texts = insert_change!(
    "acts",
    "revision, kind, about, changed_at, changed_by, reason, blind",
    "$1, $2, $3, $4, $5, $6, $7"
);

impl Ledger {
    /// Adds an act, and returns its revision. The revision of the argument is ignored.
    pub async fn add_act(&self, act: &Act) -> Result<u64, LedgerError> {
        self.edit(async |mut session| Ok(Ending::Commit(add_act_in(&mut session, act).await?)))
            .await
    }

    /// The act with this revision.
    pub async fn act(&self, revision: u64) -> Result<Option<Act>, LedgerError> {
        one(&mut self.reads().await?.lend(), revision).await
    }

    /// The acts of a kind, newest first, at most `limit`.
    pub(super) async fn acts(
        &self,
        filter: &ChangeFilter,
        kind: ActKind,
        limit: u32,
    ) -> Result<Vec<Act>, LedgerError> {
        let listed = filter.bind(LISTED, limit).bind(kind.as_str());
        self.reads().await?.lend().all(listed, decode).await
    }
}

/// As [`Ledger::add_act`], in a transaction.
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
