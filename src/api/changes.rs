//! Changes: what was changed, by whom, when and why.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::blocks::BlockAnswer;
use super::erasures::ErasureAct;
use super::exports::ExportAct;
use super::keys::KeyAnswer;
use super::overrides::OverrideAnswer;
use super::page::page;
use super::policies::PolicyAnswer;
use super::words::{self, Word, any_of};

/// A change of a policy, an override, a block or a key; or an act, which is something that somebody did with
/// the record.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangeAnswer {
    /// The number of the change. Later changes have higher numbers.
    #[schema(example = 42)]
    pub revision: u64,
    /// The kind of the change.
    #[schema(value_type = words::ChangeKind, example = "policy")]
    pub kind: Word,
    /// The policy, or the policy of the override or block; null for a key and an act.
    #[schema(example = "benefit")]
    pub policy: Option<String>,
    /// The subject of the override or block; null for everything else, and after the subject was erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The key's id; null for everything else.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub key: Option<Uuid>,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    pub at: DateTime<Utc>,
    /// Who made the change: a key's id, `PERDIEM_ADMIN_KEY`, or `perdiem` for the first key.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub by: String,
    /// The reason.
    #[schema(example = "campaign 7")]
    pub reason: Option<String>,
    /// The version before the change; null where there was none.
    #[schema(value_type = Option<VersionAnswer>)]
    pub before: Option<Box<RawValue>>,
    /// The version after the change, or what the act did; null where an override was deleted
    /// or a block was removed.
    #[schema(value_type = Option<VersionAnswer>)]
    pub after: Option<Box<RawValue>>,
}

/// An act of the kind `day`: the figures of a policy's local day. It is made an hour after the day
/// ended, and again an hour after a later change of the figures.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DayAct {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = "2026-11-03")]
    pub date: NaiveDate,
    #[schema(example = "2026-11-03T16:00:00Z")]
    pub ends_at: DateTime<Utc>,
    /// The figures, with the names of `/v1/stats`. A figure of 0 is left out.
    #[schema(example = json!({ "grants": 12480, "units": 12480 }))]
    pub figures: BTreeMap<String, u64>,
}

/// An act of the kind `seal-restart`: a new log of seals began.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SealRestartAct {
    /// The new log.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42/1763694000")]
    pub origin: String,
    /// The previous log; null where the ledger had none.
    #[schema(required, example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub before: Option<String>,
    /// The number of positions in the previous log.
    #[schema(example = 1842)]
    pub sealed: u64,
}

/// A file of an archive.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ArchivedFileAnswer {
    #[schema(example = "leaves-000000000001-000000001842.ndjson")]
    pub name: String,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub sha256: String,
}

/// An act of the kind `archive`: leaves of the log were written to files.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ArchiveAct {
    /// The act is about what was recorded before this instant.
    pub before: DateTime<Utc>,
    /// The first position in the archive.
    #[schema(example = 1)]
    pub first_position: u64,
    #[schema(example = 1842)]
    pub last_position: u64,
    /// The log of seals of these positions.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub origin: String,
    /// The root of the tree of these positions, in Base64.
    pub root: String,
    pub files: Vec<ArchivedFileAnswer>,
}

/// An act of the kind `cut`: archived entries were dropped from the ledger.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CutAct {
    /// The act is about what was recorded before this instant.
    pub before: DateTime<Utc>,
    /// Entries up to this position may be dropped. Each account keeps the last one of them.
    #[schema(example = 1842)]
    pub last_position: u64,
    /// The number of entries up to that position that stay.
    #[schema(example = 311)]
    pub kept_entries: u64,
    /// The log of seals of these positions.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub origin: String,
    /// The root of the tree of the archive's leaves, in Base64.
    pub root: String,
}

/// An act of the kind `read`: somebody looked at a subject. An instance records the same read of the
/// same key once an hour.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReadAct {
    /// What the answer showed.
    #[schema(value_type = words::ReadKind, example = "entries")]
    pub read: String,
    pub filters: ReadFilters,
    /// `subject` after the subject was erased; absent before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub erased: Vec<String>,
}

/// Whom a read was about.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReadFilters {
    /// Absent for a list of all policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "benefit")]
    pub policy: Option<String>,
    /// Absent after the subject was erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "member-42")]
    pub subject: Option<String>,
}

/// A version of a policy, an override, a block or a key; or the details of an act.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum VersionAnswer {
    Policy(Box<PolicyAnswer>),
    Override(OverrideAnswer),
    Block(BlockAnswer),
    Key(KeyAnswer),
    Export(ExportAct),
    Day(DayAct),
    SealRestart(SealRestartAct),
    Archive(ArchiveAct),
    Cut(CutAct),
    Erasure(ErasureAct),
    Read(ReadAct),
}

any_of!(
    VersionAnswer,
    "A version of a policy, an override, a block or a key; or the details of an act.",
    [
        PolicyAnswer,
        OverrideAnswer,
        BlockAnswer,
        KeyAnswer,
        ExportAct,
        DayAct,
        SealRestartAct,
        ArchiveAct,
        CutAct,
        ErasureAct,
        ReadAct
    ]
);

page! {
    /// A page of changes.
    ChangeList of ChangeAnswer
    /// The cursor of the next page; null on the last page. It stays valid while changes are made.
}
