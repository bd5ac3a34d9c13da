//! Editing policies, and reading their versions.

use std::sync::Arc;

use super::{Engine, Failure, InvalidCursor, ListFailure, cursor};
use crate::domain::policy::{Policy, PolicyName, Rule};
use crate::ledger::{Change, Edited};

/// What must be so for a change to be made (RFC 9110, section 13.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: the last writer wins.
    None,
    /// `If-Match: *`: the policy exists.
    Exists,
    /// `If-None-Match: *`: it does not.
    Absent,
    /// `If-Match` with ETags: it stands at one of these versions.
    Versions(Vec<u32>),
}

/// Why a policy was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The policy stands at another version; `None` when it does not exist.
    #[error("the policy stands at another version")]
    PreconditionFailed(Option<u32>),
    /// Whoever replaces or archives a policy says why.
    #[error("a reason is needed to replace or archive a policy")]
    ReasonRequired,
    /// There is nothing to archive.
    #[error("no such policy")]
    UnknownPolicy,
}

impl Precondition {
    /// An archived policy does not exist for clients.
    fn check(&self, current: Option<&Policy>) -> Result<(), EditError> {
        let version = current.map(|policy| policy.version);
        let holds = match self {
            Self::None => true,
            Self::Exists => version.is_some(),
            Self::Absent => version.is_none(),
            Self::Versions(versions) => version.is_some_and(|version| versions.contains(&version)),
        };
        match holds {
            true => Ok(()),
            false => Err(EditError::PreconditionFailed(version)),
        }
    }
}

impl Engine {
    /// Creates, replaces or revives a policy. What is so already is left as it is. A dry run
    /// only tells what would come of it.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError`] inside.
    pub async fn put_policy(
        self: &Arc<Self>,
        name: PolicyName,
        rule: Rule,
        reason: Option<String>,
        precondition: Precondition,
        changed_by: Arc<str>,
        dry_run: bool,
    ) -> Result<Result<Edited, EditError>, Failure> {
        self.edit(name, changed_by, dry_run, move |current| {
            let current = current.filter(|policy| !policy.archived);
            precondition.check(current)?;
            match current {
                Some(current) if current.rule == rule => return Ok(Change::Keep),
                Some(_) if reason.is_none() => return Err(EditError::ReasonRequired),
                Some(_) | None => {}
            }
            Ok(Change::Version {
                rule: rule.clone(),
                archived: false,
                reason: reason.clone(),
            })
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
        reason: Option<String>,
        precondition: Precondition,
        changed_by: Arc<str>,
    ) -> Result<Result<Edited, EditError>, Failure> {
        self.edit(name, changed_by, false, move |current| {
            let current = current.filter(|policy| !policy.archived);
            let policy = current.ok_or(EditError::UnknownPolicy)?;
            precondition.check(current)?;
            if reason.is_none() {
                return Err(EditError::ReasonRequired);
            }
            Ok(Change::Version {
                rule: policy.rule.clone(),
                archived: true,
                reason: reason.clone(),
            })
        })
        .await
    }

    async fn edit(
        self: &Arc<Self>,
        name: PolicyName,
        changed_by: Arc<str>,
        dry_run: bool,
        decide: impl Fn(Option<&Policy>) -> Result<Change, EditError> + Send + Sync + 'static,
    ) -> Result<Result<Edited, EditError>, Failure> {
        let engine = self.clone();
        let work = async move {
            let now = engine.clock.now();
            let edited = engine
                .ledger
                .edit_policy(&name, &changed_by, now, dry_run, decide)
                .await?;
            if let Ok(edited) = &edited
                && !dry_run
            {
                engine.policies.learn(vec![edited.after.clone()]);
            }
            Ok(edited)
        };
        self.detached(work).await?
    }

    /// A policy as it stands in the ledger; `None` also for an archived one.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn policy(self: &Arc<Self>, name: PolicyName) -> Result<Option<Policy>, Failure> {
        let engine = self.clone();
        let work = async move { engine.ledger.policy(&name).await };
        let policy = self.detached(work).await??;
        Ok(policy.filter(|policy| !policy.archived))
    }

    /// A page of the policies that are not archived, by name, and the cursor of the next; only
    /// of those that the caller is confined to, if to any.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn policies(
        self: &Arc<Self>,
        confined_to: Option<&[PolicyName]>,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<Policy>, Option<String>), ListFailure> {
        const LIST: &str = "policies";
        let identity = self.ledger.identity();
        // Names have at most 63 bytes; a position is one, filled up with zeros.
        let after: [u8; 63] = match cursor {
            Some(cursor) => cursor::decode(identity, LIST, cursor)?,
            None => [0; 63],
        };
        let after = std::str::from_utf8(&after).map_err(|_| InvalidCursor)?;
        let after = after.trim_end_matches('\0').to_owned();
        let engine = self.clone();
        let only = confined_to.map(<[PolicyName]>::to_vec);
        let work = async move {
            let only = only.as_deref();
            engine.ledger.policies(only, &after, limit + 1).await
        };
        let mut policies = self.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut policies, limit).map(|last| {
            let mut position = [0; 63];
            let name = last.name.as_str().as_bytes();
            position[..name.len()].copy_from_slice(name);
            cursor::encode(identity, LIST, &position)
        });
        Ok((policies, next))
    }

    /// A page of a policy's versions, newest first, and the cursor of the next. Nothing for
    /// a policy that never was.
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
        let engine = self.clone();
        let work = async move { engine.ledger.versions(&name, before, limit + 1).await };
        let mut versions = self.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut versions, limit)
            .map(|last| cursor::encode(identity, &list, &last.version.to_be_bytes()));
        Ok((versions, next))
    }
}

/// Cuts a page that was read with one item too many, and returns its last item if there are
/// more.
pub fn cut_page<T>(items: &mut Vec<T>, limit: u32) -> Option<&T> {
    let limit = limit as usize;
    if items.len() <= limit {
        return None;
    }
    items.truncate(limit);
    items.last()
}
