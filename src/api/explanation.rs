//! Explanations: why a claim was granted or denied, and which limits it met.

use chrono::{DateTime, FixedOffset, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::blocks::BlockAnswer;
use super::grants::GrantBody;
use super::keys::KeyName;
use super::limits::LimitUsage;
use super::overrides::OverrideAnswer;
use super::policies::PolicyAnswer;
use super::reading::flattened;
use super::words::{self, Word};
use domain::limit::per::Per;

/// The outcome of a claim at an instant, with its causes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ClaimExplanation {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = "member-42")]
    pub subject: String,
    #[schema(example = 1)]
    pub units: u64,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    pub at: DateTime<Utc>,
    /// The position up to which the record was used; null for everything.
    #[schema(example = 1842)]
    pub known_at: Option<u64>,
    /// `granted`, or `denied` for every claim that is not granted: also where the policy was
    /// paused, archived, not active or did not exist, where the subject was blocked, and where the units
    /// can never fit. `reason`
    /// says which.
    #[schema(value_type = words::ClaimOutcome, example = "denied")]
    pub outcome: Word,
    /// The reason, in one word.
    #[schema(value_type = words::OutcomeReason, example = "no_room")]
    pub reason: Word,
    /// The reason, in a sentence.
    #[schema(example = "there was no room for 1 more: 3 of 3 per day were used")]
    pub detail: String,
    /// Where the claim is not granted: the earliest instant at which it would be, by what was known
    /// at `at`, if nobody else claims. Null where the claim is granted, and where nothing that was
    /// known makes room for it.
    #[schema(example = "2026-11-21T16:00:00Z")]
    pub fits_at: Option<DateTime<Utc>>,
    /// The limits without room for the units, each by its `per`.
    #[schema(value_type = Vec<words::LimitName>, example = json!(["day"]))]
    pub lacking: Vec<Per>,
    /// The version, the override and the block that were in force. Null where no version of the policy was.
    pub terms: Option<TermsBody>,
    /// The limits in the policy's order, without the units of the claim. Empty where no version was
    /// in force.
    pub limits: Vec<LimitExplanation>,
}

/// A grant, the limits before it, and its later entries.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantExplanation {
    /// The grant, as it was known.
    pub grant: GrantBody,
    /// The grant's entry.
    pub entry: CountedEntryBody,
    /// The position up to which the record was used; null for everything.
    #[schema(example = 1842)]
    pub known_at: Option<u64>,
    /// The units of each limit that the grant took.
    pub took: Vec<TookBody>,
    /// The special properties of the grant, as sentences.
    #[schema(example = json!(["it was a hold until 2026-11-21T03:14:05Z"]))]
    pub notes: Vec<String>,
    /// The entries that correct the grant, oldest first.
    pub since: Vec<CountedEntryBody>,
    pub terms: TermsBody,
    /// The limits before the grant, in the policy's order.
    pub limits: Vec<LimitExplanation>,
}

/// The rules that were in force.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TermsBody {
    /// The version of the policy that was in force.
    pub version: PolicyAnswer,
    /// The version of the subject's override that was in force; null without one.
    #[serde(rename = "override")]
    pub exception: Option<OverrideAnswer>,
    /// The version of the subject's block that was in force; null without one.
    pub block: Option<BlockAnswer>,
}

/// The units of a limit that a grant took: `first` 2, `last` 2 and `max` 3 mean "2nd of 3".
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

/// A limit, and the entries that used it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitExplanation {
    #[serde(flatten, deserialize_with = "flattened")]
    pub usage: LimitUsage,
    /// When the window began, in the policy's zone; null where there was no window.
    #[schema(example = "2026-11-21T00:00:00+08:00")]
    pub window_start_local: Option<DateTime<FixedOffset>>,
    /// When all units have returned, in the policy's zone; null where no units return.
    #[schema(example = "2026-11-22T00:00:00+08:00")]
    pub resets_at_local: Option<DateTime<FixedOffset>>,
    /// The number of entries that used the limit.
    #[schema(example = 3)]
    pub entry_count: u64,
    /// Whether older entries are left out of `entries`, which has at most 1,000.
    pub entries_cut: bool,
    /// The entries, newest first. Lapses of holds that have no entry yet come first; they have no
    /// id.
    pub entries: Vec<CountedEntryBody>,
}

/// An entry that counts in a window.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CountedEntryBody {
    /// Null for a lapse that has no entry yet.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub id: Option<Uuid>,
    /// What was entered.
    #[schema(value_type = words::EntryKind, example = "grant")]
    pub kind: Word,
    /// The units that the entry adds to the usage; negative where it gives units back.
    #[schema(example = 1)]
    pub units: i64,
    /// The instant in whose windows the units count.
    pub counted_at: DateTime<Utc>,
    /// When the entry was appended. For a lapse that has no entry yet: when the hold lapsed.
    pub at: DateTime<Utc>,
    /// The position of the entry. Null while it has none.
    #[schema(example = 1842)]
    pub position: Option<u64>,
    /// The version of the policy that was in force for the entry. Null for a lapse that has no entry yet.
    #[schema(example = 1)]
    pub policy_version: Option<u32>,
    /// The policy's time zone at `counted_at`. Null for a lapse that has no entry yet.
    #[schema(example = "+08:00")]
    pub time_zone: Option<String>,
    /// The grant that the entry corrects; null for grants and adjustments.
    pub grant: Option<Uuid>,
    /// The key that claimed or corrected, if it has a name.
    pub key: Option<KeyName>,
    /// Who claimed or corrected: a key's id, or `PERDIEM_ADMIN_KEY`; null for a lapse, and where it
    /// was not stored.
    pub by: Option<String>,
    /// The reason; null without one.
    pub reason: Option<String>,
}
