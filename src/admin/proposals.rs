//! Proposals: changes of a policy that wait for a second admin. A proposal is a text that contains the whole change,
//! sealed with a key of the ledger. Nothing stores it, so nothing has to be withdrawn or cleaned up: it names the
//! version that it changes, and every other change of the policy makes it stale.

use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use claims::instance::{Access, SealedTexts};
use domain::four_eyes::FourEyes;
use domain::identity::Identity;
use domain::orphans::OnOrphans;
use domain::policy::{PolicyName, Rule, TEXT_MAX_CHARACTERS};
use domain::schedule::Effective;
use ledger::{decode_rule, encode_rule};

/// How long a change can be approved.
const PROPOSED_FOR: TimeDelta = TimeDelta::days(7);
const PURPOSE: &str = "perdiem 2026-11-28 proposals";
/// How each text begins, so that people recognise it, and no shell takes it for a flag.
const PREFIX: &str = "proposal_";

/// What an instance needs for the changes that wait.
pub struct Proposals {
    pub four_eyes: FourEyes,
    texts: SealedTexts,
    access: Arc<Access>,
}

/// A change of a policy, as an admin sends it.
#[derive(Debug, Clone)]
pub struct PolicyChange {
    pub rule: Rule,
    pub effective: Effective,
    pub reason: Option<String>,
    /// What the client says about the pause, which the change keeps.
    pub paused: Option<bool>,
    /// What becomes of the overrides that the change orphans; required if there are any.
    pub on_orphans: Option<OnOrphans>,
}

/// What would be done to a policy.
#[derive(Debug, Clone)]
pub enum ProposedChange {
    Put(PolicyChange),
    Archive { reason: String },
}

/// A change that waits for a second admin.
#[derive(Debug, Clone)]
pub struct Proposal {
    pub policy: PolicyName,
    /// The newest version when the change was proposed; `None` for a policy that never existed.
    pub version: Option<u32>,
    pub change: ProposedChange,
    /// The key that proposed it, as changes store their maker.
    pub by: String,
    /// When it was proposed, to the second.
    pub at: DateTime<Utc>,
}

/// The version of a policy that an approved change is made to; `None` for a policy that never existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovedOn(pub Option<u32>);

/// A change as it waits: its text, and until when it can be approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingChange {
    pub proposal: String,
    pub until: DateTime<Utc>,
}

/// Why a text is not a proposal that can be approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProposalFault {
    #[error(
        "this is no proposal of this ledger: copy the whole text, which the answer to the change has"
    )]
    Foreign,
    #[error(
        "this proposal could be approved until {}: propose the change again",
        .0.to_rfc3339_opts(SecondsFormat::AutoSi, true)
    )]
    Over(DateTime<Utc>),
}

/// What is sealed. An unknown field comes from a newer perdiem, and is never ignored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProposalRecord {
    policy: String,
    version: Option<u32>,
    by: String,
    reason: Option<String>,
    /// Absent where the policy is to be archived.
    put: Option<PutRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PutRecord {
    /// As the ledger stores it.
    rule: String,
    effective: Effective,
    paused: Option<bool>,
    on_orphans: Option<OnOrphans>,
}

impl Proposal {
    pub fn until(&self) -> DateTime<Utc> {
        self.at + PROPOSED_FOR
    }

    /// Why the proposer wants it.
    pub fn reason(&self) -> Option<&str> {
        match &self.change {
            ProposedChange::Put(change) => change.reason.as_deref(),
            ProposedChange::Archive { reason } => Some(reason),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let put = match &self.change {
            ProposedChange::Put(change) => Some(PutRecord {
                rule: encode_rule(&change.rule),
                effective: change.effective,
                paused: change.paused,
                on_orphans: change.on_orphans,
            }),
            ProposedChange::Archive { .. } => None,
        };
        let record = ProposalRecord {
            policy: self.policy.to_string(),
            version: self.version,
            by: self.by.clone(),
            reason: self.reason().map(str::to_owned),
            put,
        };
        serde_json::to_vec(&record).expect("texts, numbers and instants are JSON")
    }

    fn decode(content: &[u8], at: DateTime<Utc>) -> Option<Self> {
        let record: ProposalRecord = serde_json::from_slice(content).ok()?;
        let change = match record.put {
            Some(put) => ProposedChange::Put(PolicyChange {
                rule: decode_rule(&put.rule).ok()?,
                effective: put.effective,
                reason: record.reason,
                paused: put.paused,
                on_orphans: put.on_orphans,
            }),
            None => ProposedChange::Archive {
                reason: record.reason?,
            },
        };
        Some(Self {
            policy: PolicyName::new(&record.policy).ok()?,
            version: record.version,
            change,
            by: record.by,
            at,
        })
    }
}

impl ProposedChange {
    /// The rule that the policy would get.
    pub fn draft(&self) -> Option<&Rule> {
        match self {
            Self::Put(change) => Some(&change.rule),
            Self::Archive { .. } => None,
        }
    }

    /// The same change, with a reason that names who proposed it.
    pub fn proposed_by(self, proposer: &str) -> Self {
        match self {
            Self::Put(change) => Self::Put(PolicyChange {
                reason: Some(reason_of(change.reason.as_deref(), proposer)),
                ..change
            }),
            Self::Archive { reason } => Self::Archive {
                reason: reason_of(Some(&reason), proposer),
            },
        }
    }
}

/// The reason in the record: that of the proposer, shortened where both have no room, and who proposed it.
fn reason_of(reason: Option<&str>, proposer: &str) -> String {
    let proposed = format!("proposed by {proposer}");
    let Some(reason) = reason.map(str::trim).filter(|reason| !reason.is_empty()) else {
        return proposed;
    };
    let whole = format!("{reason}; {proposed}");
    let excess = whole.chars().count().saturating_sub(TEXT_MAX_CHARACTERS);
    if excess == 0 {
        return whole;
    }
    let kept = reason.chars().count().saturating_sub(excess + 1);
    let kept: String = reason.chars().take(kept).collect();
    format!("{kept}…; {proposed}")
}

impl Proposals {
    pub fn new(four_eyes: FourEyes, ledger: &Identity, access: Arc<Access>) -> Self {
        Self {
            four_eyes,
            texts: SealedTexts::of(ledger, PURPOSE),
            access,
        }
    }

    /// Makes a change wait.
    pub fn seal(&self, proposal: &Proposal) -> WaitingChange {
        WaitingChange {
            proposal: format!(
                "{PREFIX}{}",
                self.texts.seal(&proposal.encode(), proposal.at)
            ),
            until: proposal.until(),
        }
    }

    /// The change that a text proposes.
    ///
    /// # Errors
    /// [`ProposalFault`].
    pub fn open(&self, text: &str, now: DateTime<Utc>) -> Result<Proposal, ProposalFault> {
        let sealed = text.trim().strip_prefix(PREFIX);
        let opened = sealed.and_then(|sealed| self.texts.open(sealed, now));
        let proposal = opened.and_then(|(at, content)| Proposal::decode(&content, at));
        let proposal = proposal.ok_or(ProposalFault::Foreign)?;
        if now < proposal.until() {
            Ok(proposal)
        } else {
            Err(ProposalFault::Over(proposal.until()))
        }
    }

    /// Whether the admin key of the settings is valid here.
    pub fn has_key_of_settings(&self) -> bool {
        self.access.has_key_of_settings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_the_proposer_and_stays_short_enough() {
        assert_eq!(reason_of(Some("fewer"), "ops"), "fewer; proposed by ops");
        assert_eq!(reason_of(Some(" "), "ops"), "proposed by ops");
        assert_eq!(reason_of(None, "ops"), "proposed by ops");
        let longest = "ü".repeat(TEXT_MAX_CHARACTERS);
        let cut = reason_of(Some(&longest), "ops");
        assert_eq!(cut.chars().count(), TEXT_MAX_CHARACTERS);
        assert!(cut.ends_with("ü…; proposed by ops"), "{cut}");
    }
}
