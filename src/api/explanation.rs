//! Explanations: why a claim was granted or denied, and which limits it met.

use chrono::{DateTime, FixedOffset, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::blocks::BlockAnswer;
use super::grants::{GrantBody, is_zero};
use super::keys::KeyName;
use super::limits::LimitUsage;
use super::overrides::OverrideAnswer;
use super::policies::PolicyAnswer;
use super::reading::flattened;
use super::tiers::SubjectTierAnswer;
use super::words::{self, Word};
use domain::limit::per::Per;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ClaimExplanation {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = "member-42")]
    pub subject: String,
    #[schema(example = 1)]
    pub units: u64,
    pub at: DateTime<Utc>,
    /// The record was used up to this position; null for everything.
    #[schema(example = 1842)]
    pub known_at: Option<u64>,
    /// `denied` for every claim that is not granted; `reason` says why.
    #[schema(value_type = words::ClaimOutcome, example = "denied")]
    pub outcome: Word,
    #[schema(value_type = words::OutcomeReason, example = "no_room")]
    pub reason: Word,
    /// The reason, as a sentence.
    #[schema(example = "there was no room for 1 more: 3 of 3 per day were used")]
    pub detail: String,
    /// The earliest instant at which it would be granted, by what was known at `at`, if nobody else claims.
    pub fits_at: Option<DateTime<Utc>>,
    /// The limits without room for the units; that of all subjects as `total day`.
    #[schema(example = json!(["day"]))]
    pub lacking: Vec<String>,
    /// Null where no version of the policy was in force.
    pub terms: Option<TermsBody>,
    /// Without the units of the claim.
    pub limits: Vec<LimitExplanation>,
    /// The limits that all subjects share, without the units of the claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub total: Vec<LimitUsage>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantExplanation {
    /// The grant, as it was known.
    pub grant: GrantBody,
    pub entry: CountedEntryBody,
    /// The record was used up to this position; null for everything.
    #[schema(example = 1842)]
    pub known_at: Option<u64>,
    /// Empty where all units came from top-ups.
    pub took: Vec<TookBody>,
    /// The special properties of the grant, as sentences.
    #[schema(example = json!(["it was a hold until 2026-11-21T03:14:05Z"]))]
    pub notes: Vec<String>,
    /// The entries that correct the grant, oldest first.
    pub since: Vec<CountedEntryBody>,
    pub terms: TermsBody,
    /// The limits before the grant.
    pub limits: Vec<LimitExplanation>,
}

/// What was in force.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TermsBody {
    pub version: PolicyAnswer,
    #[serde(rename = "override")]
    pub exception: Option<OverrideAnswer>,
    pub block: Option<BlockAnswer>,
    pub tier: Option<SubjectTierAnswer>,
}

/// `first` 2, `last` 2 and `max` 3 mean "2nd of 3".
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TookBody {
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    #[schema(example = 2)]
    pub first: u64,
    #[schema(example = 2)]
    pub last: u64,
    #[schema(example = 3)]
    pub max: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitExplanation {
    #[serde(flatten, deserialize_with = "flattened")]
    pub usage: LimitUsage,
    /// In the policy's zone.
    #[schema(example = "2026-11-21T00:00:00+08:00")]
    pub window_start_local: Option<DateTime<FixedOffset>>,
    /// In the policy's zone.
    #[schema(example = "2026-11-22T00:00:00+08:00")]
    pub resets_at_local: Option<DateTime<FixedOffset>>,
    #[schema(example = 3)]
    pub entry_count: u64,
    /// Whether older entries are left out of `entries`, which has at most 1000.
    pub entries_cut: bool,
    /// Newest first. Lapses of holds that have no entry yet come first, without an id.
    pub entries: Vec<CountedEntryBody>,
}

/// An entry that counts in a window.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CountedEntryBody {
    /// Null for a lapse that has no entry yet.
    pub id: Option<Uuid>,
    #[schema(value_type = words::EntryKind, example = "grant")]
    pub kind: Word,
    /// What the entry adds to the usage; negative where it gives units back.
    #[schema(example = 1)]
    pub units: i64,
    /// The units that came from top-ups or returned to them. They count in no window.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false, example = 0)]
    pub topped_up_units: u64,
    /// The instant in whose windows the units count.
    pub counted_at: DateTime<Utc>,
    /// When the entry was appended, or the hold lapsed.
    pub at: DateTime<Utc>,
    /// Null while the entry has none.
    #[schema(example = 1842)]
    pub position: Option<u64>,
    #[schema(example = 1)]
    pub policy_version: Option<u32>,
    /// The policy's time zone at `counted_at`.
    #[schema(example = "+08:00")]
    pub time_zone: Option<String>,
    /// The grant that the entry corrects.
    pub grant: Option<Uuid>,
    /// The limit that was reset; null for a reset of all limits, and for other kinds.
    #[schema(example = "day")]
    pub per: Option<String>,
    pub key: Option<KeyName>,
    /// Who claimed or corrected; null for a lapse, and where it was not stored.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub by: Option<String>,
    #[schema(example = "opening balance")]
    pub reason: Option<String>,
}
