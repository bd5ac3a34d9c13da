//! Approving a change that another admin proposed.

use std::sync::Arc;

use uuid::Uuid;

use crate::proposals::{ApprovedOn, Proposal, ProposalFault, ProposedChange};
use crate::{Admin, EditError, Editor, Precondition};
use claims::instance::{Failure, KEY_OF_SETTINGS};
use domain::key::Role;
use ledger::EditedPolicy;

/// An approved change, or a dry run of the approval.
pub struct ApprovedChange {
    pub edited: EditedPolicy,
    /// The name of the key that proposed it.
    pub proposer: String,
}

impl Admin {
    /// The change that a text proposes.
    ///
    /// # Errors
    /// [`ProposalFault`].
    pub fn proposal(&self, text: &str) -> Result<Proposal, ProposalFault> {
        self.proposals.open(text, self.instance.clock.now())
    }

    /// Makes a proposed change, to the version that it was proposed for, unless the editor proposed it. A dry run
    /// shows it to its proposer too.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError`] inside: also [`EditError::Stale`] if the policy has changed since.
    pub async fn approve(
        self: &Arc<Self>,
        proposal: Proposal,
        editor: Editor,
    ) -> Result<Result<ApprovedChange, EditError>, Failure> {
        let Proposal {
            policy,
            version,
            change,
            by,
            ..
        } = proposal;
        // 1. Two keys of two admins, and both of them valid.
        if !editor.is_dry_run && self.are_of_one_admin(&by, &editor.key).await? {
            return Ok(Err(EditError::OwnProposal));
        }
        let Some(proposer) = self.proposer(&by).await? else {
            return Ok(Err(EditError::ProposerGone));
        };
        // 2. The same change as the proposer's, on the same version.
        let whose = if proposer == by {
            by
        } else {
            format!("{proposer} ({by})")
        };
        let editor = Editor {
            approves: Some(ApprovedOn(version)),
            ..editor
        };
        let edited = match change.proposed_by(&whose) {
            ProposedChange::Put(change) => {
                self.put_policy(policy, change, Precondition::None, editor)
                    .await?
            }
            ProposedChange::Archive { reason } => {
                self.archive_policy(policy, reason, Precondition::None, editor)
                    .await?
            }
        };
        Ok(edited.map(|edited| ApprovedChange { edited, proposer }))
    }

    /// Whether two keys are the same, or one of them took the place of the other: it has the same name, and the other
    /// made it.
    async fn are_of_one_admin(self: &Arc<Self>, one: &str, other: &str) -> Result<bool, Failure> {
        if one == other {
            return Ok(true);
        }
        let (Ok(one), Ok(other)) = (one.parse::<Uuid>(), other.parse::<Uuid>()) else {
            return Ok(false);
        };
        let name = async |id| Ok::<_, Failure>(self.key(id).await?.map(|used| used.key.rule.name));
        if name(one).await? != name(other).await? {
            return Ok(false);
        }
        let made = async |maker: Uuid, key| {
            let found = self.ledger.key_maker(key).await?;
            Ok::<_, Failure>(found.is_some_and(|found| found == maker.to_string()))
        };
        Ok(made(one, other).await? || made(other, one).await?)
    }

    /// The name of the key that proposed a change; `None` if the key is not valid any more. The ledger is asked,
    /// because another instance may have revoked the key.
    async fn proposer(self: &Arc<Self>, by: &str) -> Result<Option<String>, Failure> {
        if by == KEY_OF_SETTINGS {
            let is_valid = self.proposals.has_key_of_settings();
            return Ok(is_valid.then(|| by.to_owned()));
        }
        let Ok(id) = by.parse::<Uuid>() else {
            return Ok(None);
        };
        let now = self.instance.clock.now();
        let found = self.key(id).await?.map(|used| used.key.rule);
        // A person who signs in with an account can have lost the role meanwhile.
        let valid = found.filter(|rule| rule.role == Role::Admin && rule.is_valid(now));
        Ok(valid.map(|rule| rule.name))
    }
}
