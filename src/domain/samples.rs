//! What the unit tests decide by.

use std::sync::Arc;

use chrono::DateTime;

use super::claim::Units;
use super::identity::AccountId;
use super::key::KeyNumber;
use super::limit::draft::LimitDraft;
use super::policy::{Policy, PolicyId, PolicyName, RuleDraft};
use super::work::{Task, Work};

/// A limit in words: `day`, `24h sliding`, `24h sliding step 1h`, `1s rate burst 20`.
fn limit(max: u64, text: &str) -> LimitDraft {
    let words: Vec<&str> = text.split(' ').collect();
    let after = |word: &str| {
        let place = words.iter().position(|found| *found == word)?;
        words.get(place + 1)
    };
    LimitDraft {
        max: i128::from(max),
        per: words[0].to_owned(),
        kind: words.get(1).map(|kind| (*kind).to_owned()),
        step: after("step").map(|step| (*step).to_owned()),
        burst: after("burst").map(|burst| burst.parse().unwrap()),
    }
}

/// A version of a policy with these limits, each a `max` and a `per` with what follows it.
pub fn policy(version: u32, time_zone: &str, limits: &[(u64, &str)]) -> Policy {
    let limits = limits.iter().map(|(max, text)| limit(*max, text));
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
