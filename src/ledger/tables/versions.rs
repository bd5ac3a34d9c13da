//! What has versions: policies, overrides and keys. Each change makes the next version, under a
//! revision: the number of the change in the one order of all changes.

use chrono::{DateTime, Utc};

use crate::domain::identity::AccountId;
use crate::domain::policy::PolicyId;
use crate::ledger::access::Ending;
use crate::ledger::query::{Session, Statement, Texts, query};
use crate::ledger::row::StoredRow;
use crate::ledger::{Ledger, LedgerError};

/// What a change makes of something.
#[derive(Debug)]
pub enum Change<T> {
    /// Nothing: it is so already.
    Keep,
    /// A new version.
    Version { terms: T, reason: Option<String> },
}

/// A change that was made, or that was found made already.
#[derive(Debug)]
pub struct Edited<V> {
    /// How it was; `None` for something new.
    pub before: Option<V>,
    pub after: V,
}

/// What a new version says, and its place in the order of changes.
pub struct Accepted<T> {
    pub revision: i64,
    pub terms: T,
    pub reason: Option<String>,
}

/// Which changes to list.
#[derive(Debug, Clone)]
pub struct ChangeFilter {
    /// Those of a policy and its overrides; without it, all, also those of keys.
    pub policy: Option<PolicyId>,
    /// Those made at this instant or later.
    pub from: Option<DateTime<Utc>>,
    /// Those made before this instant.
    pub to: Option<DateTime<Utc>>,
    /// Those with a lower revision.
    pub below: u64,
    /// Those that were made by this key's id, or by what else `changed_by` says.
    pub by: Option<String>,
    /// Those of the overrides of these accounts.
    pub accounts: Option<Vec<AccountId>>,
}

/// A version that a change made, and the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed<T> {
    /// The number of the change in the ledger's order of changes.
    pub revision: u64,
    /// The version before; `None` for the first one.
    pub before: Option<T>,
    pub after: T,
}

/// The changes up to $1, from $2 up to $3, of the policy $5, by $6, at most $4: each with the version `v`
/// that it made and the one before. `$versions` selects from versions `v`; `$joined` is what `$of_policy`
/// needs beside them. It is a join, since an EXISTS under the OR would read every version.
macro_rules! history {
    ($versions:ident, $table:literal, $key:literal, $joined:literal, $of_policy:expr) => {
        $versions!(
            "listed.revision AS listed, ",
            concat!(
                "(SELECT v.",
                $key,
                ", v.version, v.revision FROM ",
                $table,
                " AS v ",
                $joined,
                " WHERE v.revision < $1 AND ($2 IS NULL OR v.changed_at >= $2)
                    AND ($3 IS NULL OR v.changed_at < $3) AND ($6 IS NULL OR v.changed_by = $6)
                    AND ($5 IS NULL OR ",
                $of_policy,
                ")
                 ORDER BY v.revision DESC LIMIT $4
                ) AS listed
                JOIN ",
                $table,
                " AS v ON v.",
                $key,
                " = listed.",
                $key,
                " AND v.version IN (listed.version, listed.version - 1)"
            ),
            "true ORDER BY listed.revision DESC, v.version DESC"
        )
    };
}
pub(super) use history;

impl ChangeFilter {
    /// A statement of [`history!`] with its values.
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

impl Ledger {
    /// The number of the last change of a policy, override or key. It grows by each change, and
    /// changes are visible in its order.
    pub async fn revision(&self) -> Result<u64, LedgerError> {
        let revision = query("SELECT revision FROM ledger");
        self.polled(async |mut session| session.one(revision).await)
            .await
    }

    /// The versions that a statement finds above the revision $1 and up to $2.
    pub(super) async fn between<V>(
        &self,
        text: &'static str,
        after: u64,
        up_to: u64,
        decode: fn(&StoredRow<'_>) -> Result<V, LedgerError>,
    ) -> Result<Vec<V>, LedgerError> {
        let versions = query(text).bind(after).bind(up_to);
        self.polled(async |mut session| session.all(versions, decode).await)
            .await
    }

    /// The changes that a statement of [`history!`] finds.
    pub(super) async fn history<V>(
        &self,
        history: Statement,
        decode: fn(&StoredRow<'_>) -> Result<V, LedgerError>,
    ) -> Result<Vec<Changed<V>>, LedgerError> {
        let version = |row: &StoredRow<'_>| Ok((row.get("listed")?, decode(row)?));
        let listed = self.reads().await?.lend().all(history, version).await?;
        Ok(pair(listed))
    }

    /// Changes something as `decide` says. `see` reads how it is, and what else `decide` wants to
    /// know, when no other change can come between; `add` inserts the version. The outer error is
    /// the ledger's, the inner one is `decide`'s, and on both nothing is changed. In a dry run
    /// what was inserted is taken back.
    pub(super) async fn change<V: Clone, B, T, E>(
        &self,
        dry_run: bool,
        see: impl AsyncFnOnce(&mut Session<'_>) -> Result<(Option<V>, B), LedgerError>,
        decide: impl FnOnce(Option<&V>, &B) -> Result<Change<T>, E>,
        add: impl AsyncFnOnce(&mut Session<'_>, Option<&V>, B, Accepted<T>) -> Result<V, LedgerError>,
    ) -> Result<Result<Edited<V>, E>, LedgerError> {
        self.edit(async |mut session| {
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
            Ok(match dry_run {
                true => Ending::Rollback(edited),
                false => Ending::Commit(edited),
            })
        })
        .await
    }
}

/// Takes the next revision. The row's lock lets changes through one by one, so that revisions
/// become visible in their order, and what is read afterwards stays so until the commit.
pub(super) async fn next_revision(session: &mut Session<'_>) -> Result<i64, LedgerError> {
    let next = query("UPDATE ledger SET revision = revision + 1 RETURNING revision");
    session.one(next).await
}

/// An insert of a change. Its place in the record is PostgreSQL's to tell, by the column's default: see
/// [`RecordPlace`](crate::domain::record::RecordPlace).
macro_rules! insert_change {
    ($table:literal, $columns:literal, $values:literal) => {
        $crate::ledger::query::Texts {
            postgres: concat!(
                "INSERT INTO ",
                $table,
                " (",
                $columns,
                ") VALUES (",
                $values,
                ")"
            ),
            sqlite: concat!(
                "INSERT INTO ",
                $table,
                " (",
                $columns,
                ", xact) VALUES (",
                $values,
                ", (SELECT COALESCE(MAX(xact), 0) FROM entries))"
            ),
        }
    };
}
pub(super) use insert_change;

/// That `decide` changes what does not exist.
pub(super) fn nothing() -> LedgerError {
    LedgerError::Corrupt("nothing to change".to_owned())
}

/// Puts versions beside those before them. They come with the revisions that they were listed
/// for: each one's own version first, the one before it, if there is one, next.
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
