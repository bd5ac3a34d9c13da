//! What the unit tests decide by.

use std::sync::Arc;

use chrono::DateTime;

use super::claim::Units;
use super::identity::AccountId;
use super::key::KeyNumber;
use super::limit::draft::LimitDraft;
use super::policy::{Policy, PolicyId, PolicyName, RuleDraft};
use super::work::{Task, Work};

/// A version of a policy with these limits, each a `max` and a `per`.
pub fn policy(version: u32, time_zone: &str, limits: &[(u64, &str)]) -> Policy {
    let limits = limits.iter().map(|(max, per)| LimitDraft {
        max: i128::from(*max),
        per: (*per).to_owned(),
        ..LimitDraft::default()
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

/// What a claim or correction of one unit is to do, without a key.
pub fn work(task: Task, policy: Arc<Policy>, account: AccountId) -> Work {
    Work {
        task,
        policy,
        account,
        subject: None,
        units: Units::ONE,
        key: None,
        metadata: None,
        claimed_by: KeyNumber::OF_SETTINGS,
        note: None,
        nonce: 7,
    }
}
