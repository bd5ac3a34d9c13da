//! Overrides: another `max` for one subject of a policy.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::OverriddenMax;
use super::page::page;
use crate::domain::overrides::Override;
use crate::domain::policy::PolicyName;

/// A version of an override.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct OverrideAnswer {
    #[schema(example = "benefit")]
    pub policy: String,
    /// Null after the subject was erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The number of the version. Every change makes a new version. The override and the block of a
    /// subject share the numbers 1, 2, 3 …
    #[schema(example = 1)]
    pub version: u32,
    pub limits: Vec<OverriddenMax>,
    pub until: Option<DateTime<Utc>>,
    /// When this version was made.
    pub changed_at: DateTime<Utc>,
    /// Who made this version: a key's id, or `PERDIEM_ADMIN_KEY`.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub changed_by: String,
    /// The reason.
    #[schema(example = "vip")]
    pub reason: Option<String>,
}

page! {
    /// A page of overrides.
    OverrideList of OverrideAnswer
    /// The cursor of the next page; null on the last page.
}

impl OverrideAnswer {
    pub fn new(policy: &PolicyName, found: Override) -> Self {
        let terms = found.terms.as_ref();
        let limits = terms.iter().flat_map(|terms| &terms.limits);
        Self {
            policy: policy.to_string(),
            subject: found.subject.map(|subject| subject.as_str().to_owned()),
            version: found.version,
            limits: limits.map(OverriddenMax::from).collect(),
            until: terms.and_then(|terms| terms.until),
            changed_at: found.changed_at,
            changed_by: found.changed_by,
            reason: found.reason,
        }
    }
}
