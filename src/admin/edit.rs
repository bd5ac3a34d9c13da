//! Changing policies, and reading their versions.

use std::sync::Arc;

use chrono::{DateTime, SubsecRound, Utc};

use crate::Admin;
use crate::proposals::{ApprovedOn, PolicyChange, Proposal, ProposedChange, WaitingChange};
use claims::instance::{ChangedTerms, Failure};
use domain::fault::Fault;
use domain::key::SupportBounds;
use domain::orphans::{OnOrphans, Orphans};
use domain::policy::{Policy, PolicyName, PolicyPause, Rule};
use domain::schedule::StoredVersion;
use domain::shared::{as_carried, calendar_faults};
use ledger::{Change, Edited, EditedPolicy, LedgerError, PolicyTerms, Standing};
use record::cursor::{self, cut_page};
use record::{InvalidCursor, ListFailure};

const OWN_URL: &str = "a pause is a state that this request does not change: leave paused out, and send \
                       PUT or DELETE /v1/policies/{policy}/pause";

/// The condition under which a change is made (RFC 9110, section 13.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// No condition: the last writer wins.
    None,
    /// `If-Match: *`: it must exist.
    Exists,
    /// `If-None-Match: *`: it must not exist.
    Absent,
    /// `If-Match` with ETags: it must be at one of these versions.
    Versions(Vec<u32>),
}

/// Why a policy or an exception was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The thing is at another version; `None` if it does not exist.
    #[error("it is at another version")]
    PreconditionFailed(Option<u32>),
    /// A replacement needs a reason.
    #[error("a reason is required")]
    ReasonRequired,
    /// Parts of the change do not fit the present state.
    #[error("the change does not fit: {0:?}")]
    Misfit(Vec<Fault>),
    /// There is no such policy, or it is archived.
    #[error("no such policy")]
    UnknownPolicy,
    /// There is nothing to delete.
    #[error("no such override")]
    UnknownOverride,
    #[error("no such block")]
    UnknownBlock,
    #[error("the subject is in no tier")]
    UnknownTier,
    #[error("the policy is not paused")]
    NotPaused,
    /// Another key put the present terms.
    #[error("another key put the present terms")]
    BeyondBounds,
    /// The change orphans overrides or tiers of subjects, and does not say what becomes of them.
    #[error("the change orphans overrides or tiers of subjects")]
    Orphans(Orphans),
    /// The subject is being erased. Its account gets another id at this instant or later.
    #[error("the subject is being erased")]
    BeingErased(DateTime<Utc>),
    /// The change is valid, and waits for a second admin.
    #[error("the change needs the approval of a second admin")]
    NeedsApproval(WaitingChange),
    #[error("the same key proposed the change")]
    OwnProposal,
    #[error("the key that proposed the change is not valid any more")]
    ProposerGone,
    /// The policy has changed since the change was proposed; `None` if it does not exist.
    #[error("the policy has another version than the proposal")]
    Stale(Option<u32>),
}

/// Who changes something.
#[derive(Debug, Clone)]
pub struct Editor {
    /// The text that the change stores as its maker.
    pub key: Arc<str>,
    /// Whether only the result is wanted, and nothing is to be changed.
    pub is_dry_run: bool,
    /// How far a support key may go; `None` for an admin.
    pub bounds: Option<SupportBounds>,
    /// Where somebody else proposed the change and the editor approves it: the version that it is for.
    pub approves: Option<ApprovedOn>,
}

impl Precondition {
    /// Checks the condition against the present version. For clients something archived or deleted
    /// does not exist.
    pub fn check(&self, version: Option<u32>) -> Result<(), EditError> {
        if self.holds(version) {
            Ok(())
        } else {
            Err(EditError::PreconditionFailed(version))
        }
    }

    /// Whether the condition is true for a version; `None` if it does not exist.
    pub fn holds(&self, version: Option<u32>) -> bool {
        match self {
            Self::None => true,
            Self::Exists => version.is_some(),
            Self::Absent => version.is_none(),
            Self::Versions(versions) => version.is_some_and(|version| versions.contains(&version)),
        }
    }
}

impl Admin {
    /// Creates, replaces or revives a policy. A policy that is already so is left as it is. A dry
    /// run only returns the result.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError`] inside.
    pub async fn put_policy(
        self: &Arc<Self>,
        name: PolicyName,
        change: PolicyChange,
        precondition: Precondition,
        editor: Editor,
    ) -> Result<Result<EditedPolicy, EditError>, Failure> {
        let is_dry_run = editor.is_dry_run;
        let proposed = Some(ProposedChange::Put(change.clone()));
        self.edit(name, editor, proposed, move |current, orphans, now| {
            // The pause outlives every other change, also the archive.
            let paused = current.is_some_and(|current| current.in_force.rule.paused);
            let is_archived = current.is_some_and(|current| current.newest.archived);
            let current = current.filter(|_| !is_archived);
            let newest = current.map(|current| &current.newest);
            precondition.check(newest.map(|newest| newest.version))?;
            let PolicyChange {
                rule,
                effective,
                reason,
                paused: paused_in_request,
                on_orphans,
            } = &change;
            if paused_in_request.is_some_and(|pause| pause != paused) {
                return Err(EditError::Misfit(vec![Fault::new("/paused", OWN_URL)]));
            }
            let rule = Rule {
                paused,
                ..rule.clone()
            };
            let rule = &match newest {
                Some(newest) => as_carried(rule, newest),
                None => rule,
            };
            let in_force = current.map(|current| &current.in_force);
            let effective_at = effective.instant(in_force, newest, rule, now);
            // A version that is not in force yet can be moved to another instant.
            let is_so = |newest: &Policy| {
                let is_then = effective_at == Ok(newest.effective_at);
                newest.rule == *rule && (newest.has_effect(now) || is_then)
            };
            if newest.is_some_and(is_so) {
                return Ok(Change::Keep);
            }
            for version in in_force.into_iter().chain(newest) {
                let faults = calendar_faults(rule, version);
                if !faults.is_empty() {
                    return Err(EditError::Misfit(faults));
                }
            }
            if reason.is_none() && (newest.is_some() || is_archived) {
                return Err(EditError::ReasonRequired);
            }
            let effective_at = effective_at
                .map_err(|error| EditError::Misfit(vec![Fault::new("/effective", error)]))?;
            if on_orphans.is_none() && !is_dry_run {
                let orphans = orphans.clone().lasting(effective_at);
                if !orphans.is_empty() {
                    return Err(EditError::Orphans(orphans));
                }
            }
            let terms = PolicyTerms {
                rule: rule.clone(),
                archived: false,
                effective_at,
                drops_orphans: *on_orphans == Some(OnOrphans::Drop),
                schedules_again: false,
            };
            let reason = reason.clone();
            Ok(Change::Version { terms, reason })
        })
        .await
    }

    /// Archives a policy: it takes no more claims, and its history stays.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError`] inside.
    pub async fn archive_policy(
        self: &Arc<Self>,
        name: PolicyName,
        reason: String,
        precondition: Precondition,
        editor: Editor,
    ) -> Result<Result<EditedPolicy, EditError>, Failure> {
        let proposed = ProposedChange::Archive {
            reason: reason.clone(),
        };
        self.edit(name, editor, Some(proposed), move |current, _, now| {
            let newest = current.map(|current| &current.newest);
            let policy = newest.filter(|policy| !policy.archived);
            let policy = policy.ok_or(EditError::UnknownPolicy)?;
            precondition.check(Some(policy.version))?;
            let terms = PolicyTerms {
                rule: policy.rule.clone(),
                archived: true,
                effective_at: now,
                drops_orphans: false,
                schedules_again: false,
            };
            let reason = Some(reason.clone());
            Ok(Change::Version { terms, reason })
        })
        .await
    }

    /// Pauses a policy, or ends its pause. The versions that are scheduled stay scheduled, and get the
    /// same pause. A policy that is already paused stays as it is. A pause waits for nobody.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError`] inside.
    pub async fn pause_policy(
        self: &Arc<Self>,
        name: PolicyName,
        paused: bool,
        reason: String,
        precondition: Precondition,
        editor: Editor,
    ) -> Result<Result<Edited<Standing>, EditError>, Failure> {
        let edited = self.edit(name, editor, None, move |current, _, now| {
            let current = current.filter(|current| !current.newest.archived);
            let current = current.ok_or(EditError::UnknownPolicy)?;
            let Standing {
                newest, in_force, ..
            } = current;
            precondition.check(Some(newest.version))?;
            let is_so = |version: &Policy| version.rule.paused == paused;
            if is_so(newest) && is_so(in_force) {
                return if paused {
                    Ok(Change::Keep)
                } else {
                    Err(EditError::NotPaused)
                };
            }
            let terms = PolicyTerms {
                rule: Rule {
                    paused,
                    ..in_force.rule.clone()
                },
                archived: false,
                effective_at: now,
                drops_orphans: false,
                schedules_again: true,
            };
            let reason = Some(reason.clone());
            Ok(Change::Version { terms, reason })
        });
        Ok(edited.await?.map(|edited| edited.edited))
    }

    /// Makes a change of a policy. Where the policy needs four eyes, a change that is valid waits for a second admin,
    /// unless nobody has to approve it: then `proposed` is `None`.
    async fn edit(
        self: &Arc<Self>,
        name: PolicyName,
        editor: Editor,
        proposed: Option<ProposedChange>,
        decide: impl Fn(
            Option<&Standing>,
            &Orphans,
            DateTime<Utc>,
        ) -> Result<Change<PolicyTerms>, EditError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Result<EditedPolicy, EditError>, Failure> {
        let admin = self.clone();
        let work = async move {
            let is_guarded = admin.proposals.four_eyes.guard(&name);
            let waits = is_guarded && !editor.is_dry_run && editor.approves.is_none();
            let draft = proposed.as_ref().and_then(ProposedChange::draft).cloned();
            let waiting = proposed.filter(|_| waits);
            let decide = |current: Option<&Standing>, orphans: &Orphans, now: DateTime<Utc>| {
                let version = current.map(|current| current.newest.version);
                if editor.approves.is_some_and(|on| on.0 != version) {
                    return Err(EditError::Stale(version));
                }
                let decided = decide(current, orphans, now)?;
                match (&decided, &waiting) {
                    (Change::Version { .. }, Some(change)) => {
                        let proposal = Proposal {
                            policy: name.clone(),
                            version,
                            change: change.clone(),
                            by: editor.key.to_string(),
                            at: now.trunc_subsecs(0),
                        };
                        let waiting = admin.proposals.seal(&proposal);
                        Err(EditError::NeedsApproval(waiting))
                    }
                    _ => Ok(decided),
                }
            };
            let edited = admin
                .ledger
                .edit_policy(
                    &name,
                    &editor.key,
                    || admin.instance.clock.now(),
                    editor.is_dry_run,
                    draft.as_ref(),
                    decide,
                )
                .await?;
            if let Ok(EditedPolicy { made, dropped, .. }) = &edited
                && !editor.is_dry_run
            {
                let changed = ChangedTerms {
                    tiers: dropped.tiers.iter().cloned().map(Ok).collect(),
                    overrides: dropped.overrides.iter().cloned().map(Ok).collect(),
                    blocks: Vec::new(),
                };
                admin
                    .instance
                    .policies
                    .terms
                    .learn_of_subjects(changed, None);
                let made = made.iter().map(|version| Ok(Arc::new(version.clone())));
                let made: Vec<StoredVersion> = made.collect();
                admin.instance.policies.terms.learn(&made);
            }
            Ok(edited)
        };
        self.instance.detached(work).await?
    }

    /// A policy as the ledger has it; `None` also for an archived one.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn policy(self: &Arc<Self>, name: PolicyName) -> Result<Option<Standing>, Failure> {
        let admin = self.clone();
        let now = self.instance.clock.now();
        let work = async move { admin.ledger.policy(&name, now).await };
        let policy = self.instance.detached(work).await??;
        Ok(policy.filter(|policy| !policy.newest.archived))
    }

    /// A page of the policies by name, with the archived ones or without them, and the cursor of the next
    /// page. If the caller is confined to policies, only these.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn policies(
        self: &Arc<Self>,
        confined_to: Option<&[PolicyName]>,
        with_archived: bool,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<Standing>, Option<String>), ListFailure> {
        let list = if with_archived {
            "policies and archived ones"
        } else {
            "policies"
        };
        let identity = self.ledger.identity();
        // A name has at most 63 bytes. A position is a name, filled up with zeros.
        let after: [u8; 63] = match cursor {
            Some(cursor) => cursor::decode(identity, list, cursor)?,
            None => [0; 63],
        };
        let after = std::str::from_utf8(&after).map_err(|_| InvalidCursor)?;
        let after = after.trim_end_matches('\0').to_owned();
        let admin = self.clone();
        let only = confined_to.map(<[PolicyName]>::to_vec);
        let work = async move {
            let only = only.as_deref();
            let limit = limit + 1;
            admin
                .ledger
                .policies(only, with_archived, &after, limit)
                .await
        };
        let mut policies = self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut policies, limit).map(|last| {
            let mut position = [0; 63];
            let name = last.name.as_str().as_bytes();
            position[..name.len()].copy_from_slice(name);
            cursor::encode(identity, list, &position)
        });
        let now = self.instance.clock.now();
        let admin = self.clone();
        let work = async move {
            let mut listed = Vec::with_capacity(policies.len());
            for newest in policies {
                let pause = admin.ledger.pause(&newest).await?;
                listed.push(admin.standing(newest, pause, now));
            }
            Ok::<_, LedgerError>(listed)
        };
        let listed = self.instance.detached(work).await?.map_err(Failure::from)?;
        Ok((listed, next))
    }

    /// A policy whose newest version was read. This instance knows the version in force.
    fn standing(&self, newest: Policy, pause: Option<PolicyPause>, now: DateTime<Utc>) -> Standing {
        let in_force = if newest.has_effect(now) {
            None
        } else {
            // A policy that cannot be read is in no list.
            self.instance
                .policies
                .terms
                .get(&newest.name, now)
                .ok()
                .flatten()
        };
        Standing {
            in_force: in_force.map_or_else(|| newest.clone(), Arc::unwrap_or_clone),
            newest,
            pause,
        }
    }

    /// A page of a policy's versions, newest first, and the cursor of the next page. Empty for a
    /// policy that never existed.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn versions(
        self: &Arc<Self>,
        name: PolicyName,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<Policy>, Option<String>), ListFailure> {
        let list = format!("versions of {name}");
        let identity = self.ledger.identity();
        let before = match cursor {
            Some(cursor) => u32::from_be_bytes(cursor::decode(identity, &list, cursor)?),
            None => i32::MAX.cast_unsigned(),
        };
        let admin = self.clone();
        let work = async move { admin.ledger.versions(&name, before, limit + 1).await };
        let mut versions = self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut versions, limit)
            .map(|last| cursor::encode(identity, &list, &last.version.to_be_bytes()));
        Ok((versions, next))
    }
}
