//! The overrides that a change of a policy orphans.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::OverriddenMax;
use domain::orphans::OrphanedOverride;

/// The most overrides that are listed.
const LISTED_MOST: usize = 20;

/// The overrides that a change leaves without their limit, or beyond its bounds.
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
}

impl OrphansBody {
    pub fn new(orphans: &[OrphanedOverride]) -> Self {
        let body = |orphan: &OrphanedOverride| {
            let subject = orphan.found.subject.as_ref();
            OrphanBody {
                subject: subject.map(|subject| subject.as_str().to_owned()),
                limits: orphan.lost.iter().map(OverriddenMax::from).collect(),
            }
        };
        Self {
            count: orphans.len(),
            first: orphans.iter().take(LISTED_MOST).map(body).collect(),
        }
    }

    /// The overrides, if there are any.
    pub fn some(orphans: &[OrphanedOverride]) -> Option<Self> {
        (!orphans.is_empty()).then(|| Self::new(orphans))
    }
}
