//! The overrides that a change of a policy orphans.

use serde::Serialize;
use utoipa::ToSchema;

use super::words;
use crate::domain::limit::per::Per;
use crate::domain::limit::shape::OtherMax;
use crate::domain::orphans::OrphanedOverride;

/// The most overrides that are listed.
const LISTED_MOST: usize = 20;

/// The overrides that a change of a policy orphans: it leaves them without their limit, or beyond its
/// bounds.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OrphansBody {
    /// The number of these overrides.
    #[schema(example = 1)]
    pub count: usize,
    /// The first 20 of them.
    pub first: Vec<OrphanBody>,
}

/// An override that a change of a policy orphans.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OrphanBody {
    /// Null after the subject was erased.
    #[schema(example = "member-42")]
    subject: Option<String>,
    /// What the override says about limits that do not exist any more, or about limits whose bounds it
    /// exceeds.
    limits: Vec<OverriddenMax>,
}

/// Another `max` for a limit of the policy.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OverriddenMax {
    #[schema(example = 10)]
    max: u64,
    #[schema(value_type = words::LimitName, example = "day")]
    per: Per,
}

impl From<&OtherMax> for OverriddenMax {
    fn from(other: &OtherMax) -> Self {
        let OtherMax { max, per } = *other;
        Self { max, per }
    }
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
