//! Changes: what was changed, by whom, when and why.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::blocks::BlockAnswer;
use super::erasures::ErasureAct;
use super::keys::KeyAnswer;
use super::manifests::ExportAct;
use super::overrides::OverrideAnswer;
use super::policies::PolicyAnswer;
use crate::domain::claim::Subject;
use crate::domain::overrides::Block;
use crate::domain::overrides::Override;
use crate::domain::policy::PolicyName;
use crate::domain::reads::ReadKind;
use crate::engine::{Act, ActKind, ChangeKind, ChangeQuery, Changed, PastChange};
use crate::http::answer::{HttpAnswer, page, words};
use crate::http::request::{Auditor, Caller, EngineData, Faults, InQuery, PageQuery, Query};

/// A change of a policy, an override, a block or a key; or an act, which is something that somebody did with
/// the record.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChangeAnswer {
    /// The number of the change. Later changes have higher numbers.
    #[schema(example = 42)]
    revision: u64,
    /// The kind of the change.
    #[schema(value_type = words::ChangeKind, example = "policy")]
    kind: &'static str,
    /// The policy, or the policy of the override or block; null for a key and an act.
    #[schema(example = "benefit")]
    policy: Option<String>,
    /// The subject of the override or block; null for everything else, and after the subject was erased.
    #[schema(example = "member-42")]
    subject: Option<String>,
    /// The key's id; null for everything else.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    key: Option<Uuid>,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    at: DateTime<Utc>,
    /// Who made the change: a key's id, `PERDIEM_ADMIN_KEY`, or `perdiem` for the first key.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    by: String,
    /// The reason.
    #[schema(example = "campaign 7")]
    reason: Option<String>,
    /// The version before the change; null where there was none.
    before: Option<VersionAnswer>,
    /// The version after the change, or what the act did; null where an override was deleted
    /// or a block was removed.
    after: Option<VersionAnswer>,
}

/// An act of the kind `day`: the figures of a policy's local day. It is made an hour after the day
/// ended, and again an hour after a later change of the figures.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the act has it as JSON")]
pub struct DayAct {
    #[schema(example = "benefit")]
    policy: String,
    #[schema(example = "2026-11-03")]
    date: NaiveDate,
    #[schema(example = "2026-11-03T16:00:00Z")]
    ends_at: DateTime<Utc>,
    /// The figures, with the names of `/v1/stats`. A figure of 0 is left out.
    #[schema(example = json!({ "grants": 12480, "units": 12480 }))]
    figures: BTreeMap<String, u64>,
}

/// An act of the kind `seal-restart`: a new log of seals began.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the act has it as JSON")]
pub struct SealRestartAct {
    /// The new log.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42/1763694000")]
    origin: String,
    /// The previous log; null where the ledger had none.
    #[schema(required, example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    before: Option<String>,
    /// The number of positions in the previous log.
    #[schema(example = 1842)]
    sealed: u64,
}

/// A file of an archive.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the act has it as JSON")]
pub struct ArchivedFileAnswer {
    #[schema(example = "leaves-000000000001-000000001842.ndjson")]
    name: String,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: String,
}

/// An act of the kind `archive`: leaves of the log were written to files.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the act has it as JSON")]
pub struct ArchiveAct {
    /// The act is about what was recorded before this instant.
    before: DateTime<Utc>,
    /// The first position in the archive.
    #[schema(example = 1)]
    first_position: u64,
    #[schema(example = 1842)]
    last_position: u64,
    /// The log of seals of these positions.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    origin: String,
    /// The root of the tree of these positions, in Base64.
    root: String,
    files: Vec<ArchivedFileAnswer>,
}

/// An act of the kind `cut`: archived entries were dropped from the ledger.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the act has it as JSON")]
pub struct CutAct {
    /// The act is about what was recorded before this instant.
    before: DateTime<Utc>,
    /// Entries up to this position may be dropped. Each account keeps the last one of them.
    #[schema(example = 1842)]
    last_position: u64,
    /// The number of entries up to that position that stay.
    #[schema(example = 311)]
    kept_entries: u64,
    /// The log of seals of these positions.
    #[schema(example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42")]
    origin: String,
    /// The root of the tree of the archive's leaves, in Base64.
    root: String,
}

/// An act of the kind `read`: somebody looked at a subject. An instance records the same read of the
/// same key once an hour.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the act has it as JSON")]
pub struct ReadAct {
    /// What the answer showed.
    #[schema(value_type = words::ReadKind, example = "entries")]
    read: String,
    filters: ReadFilters,
    /// `subject` after the subject was erased; absent before.
    #[schema(required = false)]
    erased: Vec<String>,
}

/// Whom a read was about.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "the act has it as JSON")]
pub struct ReadFilters {
    /// Absent for a list of all policies.
    #[schema(example = "benefit")]
    policy: Option<String>,
    /// Absent after the subject was erased.
    #[schema(example = "member-42")]
    subject: Option<String>,
}

/// A version of a policy, an override, a block or a key; or the details of an act.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum VersionAnswer {
    Policy(Box<PolicyAnswer>),
    Override(OverrideAnswer),
    Block(BlockAnswer),
    Key(KeyAnswer),
    #[schema(value_type = ExportAct)]
    Export(Box<RawValue>),
    #[schema(value_type = DayAct)]
    Day(Box<RawValue>),
    #[schema(value_type = SealRestartAct)]
    SealRestart(Box<RawValue>),
    #[schema(value_type = ArchiveAct)]
    Archive(Box<RawValue>),
    #[schema(value_type = CutAct)]
    Cut(Box<RawValue>),
    #[schema(value_type = ErasureAct)]
    Erasure(Box<RawValue>),
    #[schema(value_type = ReadAct)]
    Read(Box<RawValue>),
}

page! {
    /// A page of changes.
    ChangeList of ChangeAnswer
    /// The cursor of the next page; null on the last page. It stays valid while changes are made.
}

/// Filters for changes. They combine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ChangeFilterQuery {
    /// Only changes of this policy, archived or not, and of its overrides and blocks; with `kind=read`,
    /// reads under this policy.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// Only changes at this instant or later. A date means the start of that local day of the policy.
    #[param(format = "day-or-instant", example = "2026-11-03T00:00:00Z")]
    from: Option<String>,
    /// Only changes before this instant. A date means the start of that local day of the policy.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    to: Option<String>,
    /// Only changes of this kind.
    #[param(value_type = Option<words::ChangeKind>)]
    kind: Option<String>,
    /// Only changes that this key made: a key's id, `PERDIEM_ADMIN_KEY`, or `perdiem`.
    #[param(format = "maker", example = "PERDIEM_ADMIN_KEY")]
    by: Option<String>,
    /// Only changes of this subject's overrides and blocks; with `kind=read`, reads of this subject.
    #[param(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    subject: Option<String>,
}

fn parse_kind(text: &str) -> Result<ChangeKind, String> {
    let mut kinds = ChangeKind::ALL.into_iter();
    let found = kinds.find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let names = ChangeKind::ALL.map(ChangeKind::as_str);
        format!("write one of the kinds {}", names.join(", "))
    })
}

/// The maker of a change, as changes name it.
fn parse_by(text: &str) -> Result<String, &'static str> {
    let id = text.parse::<Uuid>().map(|id| id.to_string());
    match text {
        "PERDIEM_ADMIN_KEY" | "perdiem" => Ok(text.to_owned()),
        _ => id.map_err(|_| "write a key's id, PERDIEM_ADMIN_KEY, or perdiem"),
    }
}

impl From<PastChange> for ChangeAnswer {
    fn from(change: PastChange) -> Self {
        let revision = change.revision();
        match change {
            PastChange::Policy(Changed { before, after, .. }) => Self {
                revision,
                kind: ChangeKind::Policy.as_str(),
                policy: Some(after.name.to_string()),
                subject: None,
                key: None,
                at: after.changed_at,
                by: after.changed_by.clone(),
                reason: after.reason.clone(),
                before: before.map(|before| VersionAnswer::Policy(Box::new(before.into()))),
                after: Some(VersionAnswer::Policy(Box::new(after.into()))),
            },
            PastChange::Override(Changed { before, after, .. }) => Self {
                revision,
                kind: ChangeKind::Override.as_str(),
                policy: Some(after.0.to_string()),
                subject: after.1.subject.as_ref().map(|it| it.as_str().to_owned()),
                key: None,
                at: after.1.changed_at,
                by: after.1.changed_by.clone(),
                reason: after.1.reason.clone(),
                before: before.and_then(VersionAnswer::of_override),
                after: VersionAnswer::of_override(after),
            },
            PastChange::Block(Changed { before, after, .. }) => Self {
                revision,
                kind: ChangeKind::Block.as_str(),
                policy: Some(after.0.to_string()),
                subject: after.1.subject.as_ref().map(|it| it.as_str().to_owned()),
                key: None,
                at: after.1.changed_at,
                by: after.1.changed_by.clone(),
                reason: after.1.reason.clone(),
                before: before.and_then(VersionAnswer::of_block),
                after: VersionAnswer::of_block(after),
            },
            PastChange::Key(Changed { before, after, .. }) => Self {
                revision,
                kind: ChangeKind::Key.as_str(),
                policy: None,
                subject: None,
                key: Some(after.id),
                at: after.changed_at,
                by: after.changed_by.clone(),
                reason: after.reason.clone(),
                before: before.map(|before| VersionAnswer::Key(before.into())),
                after: Some(VersionAnswer::Key(after.into())),
            },
            PastChange::Act(Act {
                kind,
                about,
                at,
                by,
                reason,
                ..
            }) => Self {
                revision,
                kind: kind.as_str(),
                policy: None,
                subject: None,
                key: None,
                at,
                by,
                reason,
                before: None,
                after: VersionAnswer::of_act(kind, about),
            },
        }
    }
}

impl VersionAnswer {
    fn of_act(kind: ActKind, about: String) -> Option<Self> {
        let about = RawValue::from_string(about).ok()?;
        Some(match kind {
            ActKind::Export => Self::Export(about),
            ActKind::Day => Self::Day(about),
            ActKind::SealRestart => Self::SealRestart(about),
            ActKind::Archive => Self::Archive(about),
            ActKind::Cut => Self::Cut(about),
            ActKind::Erasure => Self::Erasure(about),
            ActKind::Read => Self::Read(about),
        })
    }

    /// A version of an override; `None` for a version that deletes it.
    fn of_override((policy, version): (PolicyName, Override)) -> Option<Self> {
        version.terms.as_ref()?;
        Some(Self::Override(OverrideAnswer::new(&policy, version)))
    }

    /// A version of a block; `None` for a version that removes it.
    fn of_block((policy, version): (PolicyName, Block)) -> Option<Self> {
        version.terms.as_ref()?;
        Some(Self::Block(BlockAnswer::new(&policy, version)))
    }
}

/// List the changes of policies, overrides, blocks and keys, newest first.
///
/// Each change has the version before and after it, who made it, when and why. The list also has
/// acts: what somebody did with the record, such as an export. Acts of the kinds `day` and `read` are
/// listed only where `kind` asks for them, because there are many. A key that is confined to policies
/// must name one of them.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/changes", operation_id = "list_changes", tag = "changes",
    params(ChangeFilterQuery, PageQuery),
    responses((status = 200, description = "A page.", body = ChangeList)),
)]
pub async fn list(
    caller: Caller<Auditor, InQuery>,
    query: Query<ChangeFilterQuery>,
    page: Query<PageQuery>,
    engine: EngineData,
) -> HttpAnswer {
    let query = query.0;
    let mut faults = Faults::default();
    let query = ChangeQuery {
        policy: faults.parameter("policy", query.policy.as_ref(), PolicyName::new),
        from: faults.bound("from", query.from.as_ref()),
        to: faults.bound("to", query.to.as_ref()),
        kind: faults.parameter("kind", query.kind.as_ref(), parse_kind),
        by: faults.parameter("by", query.by.as_ref(), parse_by),
        subject: faults.parameter("subject", query.subject.as_ref(), Subject::existing),
    };
    let page = page.0.check(&mut faults);
    let query = faults.or(Some(query))?;
    let policy = query.policy.clone();
    let subject = query.subject.clone();
    let found = engine.changes(query, page.limit, page.cursor()).await?;
    let subject = subject.as_ref().map(Subject::as_str);
    let read = caller.record_read(&engine, ReadKind::Changes, policy.as_ref(), subject);
    read.await?;
    ChangeList::answer(found, ChangeAnswer::from)
}
