//! Things with versions: policies, overrides, blocks and keys. Each change makes the next version, under a
//! revision: the number of the change in the one order of all changes.

use chrono::{DateTime, Utc};

use crate::access::Ending;
use crate::boxed;
use crate::query::{Session, Statement, Texts, query};
use crate::row::StoredRow;
use crate::{AdminTables, LedgerError};
use domain::identity::AccountId;
use domain::policy::PolicyId;

/// The result of a decision about a change.
#[derive(Debug)]
pub enum Change<T> {
    /// No change: it is already so.
    Keep,
    /// A new version.
    Version { terms: T, reason: Option<String> },
}

/// A change that was made, or was already made.
#[derive(Debug)]
pub struct Edited<V> {
    /// The version before; `None` for something new.
    pub before: Option<V>,
    pub after: V,
}

/// The content of a new version, and its place in the order of changes.
pub struct Accepted<T> {
    pub revision: i64,
    pub terms: T,
    pub reason: Option<String>,
}

/// Which changes to list.
#[derive(Debug, Clone)]
pub struct ChangeFilter {
    /// Changes of a policy and its exceptions; `None` for all changes, also of keys.
    pub policy: Option<PolicyId>,
    /// Changes made at this instant or later.
    pub from: Option<DateTime<Utc>>,
    /// Changes made before this instant.
    pub to: Option<DateTime<Utc>>,
    /// Changes with a lower revision.
    pub below: u64,
    /// Changes made by this author: a key's id, or another value of `changed_by`.
    pub by: Option<String>,
    /// Changes of the exceptions of these accounts.
    pub accounts: Option<Vec<AccountId>>,
    /// Reads of this subject.
    pub subject: Option<String>,
}

/// A version that a change made, and the version before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed<T> {
    /// The number of the change in the ledger's order of changes.
    pub revision: u64,
    /// The version before; `None` for the first one.
    pub before: Option<T>,
    pub after: T,
}

impl ChangeFilter {
    /// A statement of a history: the changes with revisions below $1, from the instant $2 up to $3, of the policy $5,
    /// by $6, at most $4. Each has the version that it made and the one before, with the change's revision as
    /// `listed`.
    pub(super) fn bind(&self, texts: impl Into<Texts>, limit: u32) -> Statement {
        query(texts)
            .bind(self.below)
            .bind(self.from)
            .bind(self.to)
            .bind(limit)
            .bind(self.policy)
            .bind(self.by.as_deref())
    }
}

/// How many revisions one statement reads.
const REVISIONS_MOST: usize = 10_000;

impl AdminTables {
    /// The number of the last change of a policy, override or key. It grows with each change.
    /// Invariant: changes become visible in the order of their numbers.
    #[boxed]
    pub async fn revision(&self) -> Result<u64, LedgerError> {
        let revision = query("SELECT revision FROM ledger");
        self.ledger
            .polled(async |mut session| session.one(revision).await)
            .await
    }

    /// The versions that a statement finds above the revision $1 and up to $2, in the order of their changes. Each of
    /// its statements reads some revisions, so that none takes longer than a poll may.
    pub(super) async fn between<V>(
        &self,
        text: &'static str,
        after: u64,
        up_to: u64,
        decode: fn(&StoredRow<'_>) -> Result<V, LedgerError>,
    ) -> Result<Vec<V>, LedgerError> {
        let mut found = Vec::new();
        for from in (after..up_to).step_by(REVISIONS_MOST) {
            let to = up_to.min(from + REVISIONS_MOST as u64);
            let versions = query(text).bind(from).bind(to);
            let read = self
                .ledger
                .polled(async |mut session| session.all(versions, decode).await);
            found.extend(read.await?);
        }
        Ok(found)
    }

    /// The changes that a history finds: see [`ChangeFilter::bind`].
    pub(super) async fn history<V>(
        &self,
        history: Statement,
        decode: fn(&StoredRow<'_>) -> Result<V, LedgerError>,
    ) -> Result<Vec<Changed<V>>, LedgerError> {
        let version = |row: &StoredRow<'_>| Ok((row.get("listed")?, decode(row)?));
        let listed = self
            .ledger
            .reads()
            .await?
            .lend()
            .all(history, version)
            .await?;
        Ok(pair(listed))
    }

    /// Changes something as `decide` says. `see` reads the present state while no other change is
    /// possible; `add` inserts the version. The outer error is the ledger's, the inner one is
    /// `decide`'s. On both nothing is changed. A dry run rolls the insert back.
    pub(super) async fn change<V: Clone, B, T, E>(
        &self,
        dry_run: bool,
        see: impl AsyncFnOnce(&mut Session<'_>) -> Result<(Option<V>, B), LedgerError>,
        decide: impl FnOnce(Option<&V>, &B) -> Result<Change<T>, E>,
        add: impl AsyncFnOnce(&mut Session<'_>, Option<&V>, B, Accepted<T>) -> Result<V, LedgerError>,
    ) -> Result<Result<Edited<V>, E>, LedgerError> {
        self.ledger
            .edit(async |mut session| {
                let revision = next_revision(&mut session).await?;
                let (before, beside) = see(&mut session).await?;
                let (terms, reason) = match decide(before.as_ref(), &beside) {
                    Err(error) => return Ok(Ending::Rollback(Err(error))),
                    Ok(Change::Keep) => {
                        let after = before.clone().ok_or_else(nothing)?;
                        return Ok(Ending::Rollback(Ok(Edited { before, after })));
                    }
                    Ok(Change::Version { terms, reason }) => (terms, reason),
                };
                let accepted = Accepted {
                    revision,
                    terms,
                    reason,
                };
                let after = add(&mut session, before.as_ref(), beside, accepted).await?;
                let edited = Ok(Edited { before, after });
                Ok(if dry_run {
                    Ending::Rollback(edited)
                } else {
                    Ending::Commit(edited)
                })
            })
            .await
    }
}

/// Takes the next revision. Invariant: the row's lock lets one change through at a time, so
/// revisions become visible in their order, and what is read after this stays true until the
/// commit.
pub(super) async fn next_revision(session: &mut Session<'_>) -> Result<i64, LedgerError> {
    next_revisions(session, 1).await
}

/// Takes the next revisions, as [`next_revision`] does. Returns the last of them.
pub(super) async fn next_revisions(
    session: &mut Session<'_>,
    count: u32,
) -> Result<i64, LedgerError> {
    let next = query("UPDATE ledger SET revision = revision + $1 RETURNING revision");
    session.one(next.bind(count)).await
}

/// The error that `decide` changes something that does not exist.
pub(super) fn nothing() -> LedgerError {
    LedgerError::Corrupt("nothing to change".to_owned())
}

/// Pairs versions with the versions before them. Each row has the revision that it was listed for:
/// the change's own version first, then the version before it, if there is one.
fn pair<T>(listed: Vec<(u64, T)>) -> Vec<Changed<T>> {
    let mut changes: Vec<Changed<T>> = Vec::new();
    for (revision, version) in listed {
        match changes.last_mut() {
            Some(last) if last.revision == revision => last.before = Some(version),
            _ => changes.push(Changed {
                revision,
                before: None,
                after: version,
            }),
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_beside_those_before_them() {
        let changed = |revision, before, after| Changed {
            revision,
            before,
            after,
        };
        let listed = [(9, "b3"), (9, "b2"), (7, "a1"), (4, "b2"), (4, "b1")];
        let changes = pair(listed.into());
        assert_eq!(
            changes,
            [
                changed(9, Some("b2"), "b3"),
                changed(7, None, "a1"),
                changed(4, Some("b1"), "b2"),
            ]
        );
    }
}
