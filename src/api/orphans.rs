//! The overrides and tiers of subjects that a change of a policy orphans.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::OverriddenMax;
use domain::orphans::{OrphanedOverride, Orphans};
use domain::overrides::{OfSubject, SubjectTier};

/// The most that are listed.
const LISTED_MOST: usize = 20;

/// The overrides that a change leaves without their limit, or beyond its bounds, and the subjects whose tier it
/// removes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OrphansBody {
    #[schema(example = 1)]
    pub count: usize,
    /// The first 20.
    pub first: Vec<OrphanBody>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OrphanBody {
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The limits that do not exist any more, or whose bounds the override exceeds.
    pub limits: Vec<OverriddenMax>,
    /// The tier of the subject that does not exist any more. Absent for an override.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false, example = "gold")]
    pub tier: Option<String>,
}

fn named<T>(found: &OfSubject<T>) -> Option<String> {
    let subject = found.subject.as_ref();
    subject.map(|subject| subject.as_str().to_owned())
}

impl OrphansBody {
    pub fn new(orphans: &Orphans) -> Self {
        let of_override = |orphan: &OrphanedOverride| OrphanBody {
            subject: named(&orphan.found),
            limits: orphan.lost.iter().map(OverriddenMax::from).collect(),
            tier: None,
        };
        let of_tier = |orphan: &SubjectTier| OrphanBody {
            subject: named(orphan),
            limits: Vec::new(),
            tier: orphan.terms.as_ref().map(|terms| terms.tier.to_string()),
        };
        let overrides = orphans.overrides.iter().map(of_override);
        let all = overrides.chain(orphans.tiers.iter().map(of_tier));
        Self {
            count: orphans.overrides.len() + orphans.tiers.len(),
            first: all.take(LISTED_MOST).collect(),
        }
    }

    /// What is orphaned, if anything is.
    pub fn some(orphans: &Orphans) -> Option<Self> {
        (!orphans.is_empty()).then(|| Self::new(orphans))
    }
}
