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
use super::tiers::SubjectTierAnswer;
use super::words::{self, Word, any_of};

/// A change; or an act: what somebody did with the record.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangeAnswer {
    /// Later changes have higher numbers.
    #[schema(example = 42)]
    pub revision: u64,
    #[schema(value_type = words::ChangeKind, example = "policy")]
    pub kind: Word,
    #[schema(example = "benefit")]
    pub policy: Option<String>,
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// Only of a change of a key.
    pub key: Option<Uuid>,
    pub at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub by: String,
    #[schema(example = "campaign 7")]
    pub reason: Option<String>,
    #[schema(value_type = Option<VersionAnswer>)]
    pub before: Option<Box<RawValue>>,
    /// The version after the change, or what the act did; null where an override was deleted or a block was
    /// removed.
    #[schema(value_type = Option<VersionAnswer>)]
    pub after: Option<Box<RawValue>>,
}

/// The figures of a policy's local day. The act is made an hour after the day ended, and again an hour after a
/// later change of the figures.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DayAct {
    #[schema(example = "benefit")]
    pub policy: String,
    pub date: NaiveDate,
    pub ends_at: DateTime<Utc>,
    /// With the names of `/v1/stats`. A figure of 0 is left out.
    #[schema(example = json!({ "grants": 12480, "units": 12480 }))]
    pub figures: BTreeMap<String, u64>,
}

/// A new log of seals began.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SealRestartAct {
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42/1763694000")]
    pub origin: String,
    /// The previous log; null where there was none.
    #[schema(required, example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub before: Option<String>,
    /// The number of positions in the previous log.
    #[schema(example = 1842)]
    pub sealed: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ArchivedFileAnswer {
    #[schema(example = "leaves-000000000001-000000001842.ndjson")]
    pub name: String,
    #[schema(
        pattern = "^[0-9a-f]{64}$",
        example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )]
    pub sha256: String,
}

/// Leaves of the log were written to files.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ArchiveAct {
    /// What was recorded before this instant.
    pub before: DateTime<Utc>,
    #[schema(example = 1)]
    pub first_position: u64,
    #[schema(example = 1842)]
    pub last_position: u64,
    /// The log of seals of these positions.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub origin: String,
    /// The root of the tree of these positions, in Base64.
    #[schema(example = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")]
    pub root: String,
    pub files: Vec<ArchivedFileAnswer>,
}

/// Archived entries were dropped from the ledger.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CutAct {
    /// What was recorded before this instant.
    pub before: DateTime<Utc>,
    /// Policies that need their entries for more days keep those of these days.
    #[schema(example = 400)]
    pub age_days: u32,
    /// Entries up to this position may be dropped. Each account keeps the last one of them.
    #[schema(example = 1842)]
    pub last_position: u64,
    #[schema(example = 311)]
    pub kept_entries: u64,
    /// The log of seals of these positions.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    pub origin: String,
    /// The root of the tree of the archive's leaves, in Base64.
    #[schema(example = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")]
    pub root: String,
}

/// Somebody looked at a subject. An instance records the same read of the same key once an hour.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReadAct {
    #[schema(value_type = words::ReadKind, example = "entries")]
    pub read: String,
    pub filters: ReadFilters,
    /// `subject` after the subject was erased.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub erased: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReadFilters {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "benefit")]
    pub policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "member-42")]
    pub subject: Option<String>,
}

/// A version of a policy, an override, a block, a tier of a subject or a key; or the details of an act.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum VersionAnswer {
    Policy(Box<PolicyAnswer>),
    Override(OverrideAnswer),
    Block(BlockAnswer),
    Tier(SubjectTierAnswer),
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
    "A version of a policy, an override, a block, a tier of a subject or a key; or the details of an act.",
    [
        PolicyAnswer,
        OverrideAnswer,
        BlockAnswer,
        SubjectTierAnswer,
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

page!(ChangeList of ChangeAnswer);
