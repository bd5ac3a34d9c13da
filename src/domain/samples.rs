//! Samples for the unit tests.

use std::sync::Arc;

use chrono::DateTime;

use super::claim::Units;
use super::identity::AccountId;
use super::key::KeyNumber;
use super::limit::draft::LimitDraft;
use super::policy::{Policy, PolicyId, PolicyName, RuleDraft};
use super::work::{Task, Work};

/// A version of a policy with these limits: each has a `max` and a calendar word.
pub fn policy(version: u32, time_zone: &str, limits: &[(u64, &str)]) -> Policy {
    let limits = limits.iter().map(|(max, per)| format!("{max} per {per}"));
    policy_of(version, time_zone, &limits.collect::<Vec<_>>())
}

/// A version of a policy with these limits; see [`limit`].
pub fn policy_of(version: u32, time_zone: &str, limits: &[impl AsRef<str>]) -> Policy {
    let draft = RuleDraft {
        time_zone: time_zone.to_owned(),
        limits: limits.iter().map(|text| limit(text.as_ref())).collect(),
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
        blocked: None,
    }
}

/// A limit such as `3 per day`, `5 per 24h sliding`, `5 per 24h sliding 1h` with a step, or `10 per
/// 1s rate 20` with a burst, or `80 per 2 weeks from 2026-01-05`.
pub fn limit(text: &str) -> LimitDraft {
    let (text, from) = match text.split_once(" from ") {
        Some((text, from)) => (text, Some(from.to_owned())),
        None => (text, None),
    };
    let (max, rest) = text.split_once(" per ").unwrap();
    // Only weeks have a blank in their name, and only they have a first day.
    let parts = if from.is_some() { 1 } else { 3 };
    let mut words = rest.splitn(parts, ' ');
    let per = words.next().unwrap().to_owned();
    let kind = words.next();
    let last = words.next();
    LimitDraft {
        max: max.parse().unwrap(),
        per,
        kind: kind.map(str::to_owned),
        step: last.filter(|_| kind == Some("sliding")).map(str::to_owned),
        burst: last
            .filter(|_| kind == Some("rate"))
            .map(|burst| burst.parse().unwrap()),
        from,
    }
}

/// A claim or correction of one unit, without a key.
pub fn work(task: Task, policy: Arc<Policy>, account: AccountId) -> Work {
    Work {
        task,
        policy,
        account,
        subject: None,
        units: Units::ONE,
        key: None,
        bundle: None,
        calendar: None,
        metadata: None,
        claimed_by: KeyNumber::OF_SETTINGS,
        note: None,
        nonce: 7,
    }
}
