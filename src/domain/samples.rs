//! What the unit tests decide by.

use chrono::DateTime;

use super::policy::{LimitDraft, Policy, PolicyId, PolicyName, RuleDraft};

/// A version of a policy with these limits, each a `max` and a `per`.
pub fn policy(version: u32, time_zone: &str, limits: &[(u64, &str)]) -> Policy {
    let limits = limits.iter().map(|(max, per)| LimitDraft {
        max: i128::from(*max),
        per: (*per).to_owned(),
    });
    let draft = RuleDraft {
        time_zone: time_zone.to_owned(),
        limits: limits.collect(),
        ..RuleDraft::default()
    };
    Policy {
        id: PolicyId(1),
        name: PolicyName::new("benefit").unwrap(),
        version,
        rule: draft.check().unwrap(),
        archived: false,
        effective_at: DateTime::UNIX_EPOCH,
        changed_at: DateTime::UNIX_EPOCH,
        changed_by: "test".to_owned(),
        reason: None,
    }
}
