//! Overrides and their versions.

use chrono::{DateTime, Utc};

use super::policies::last_policy;
use super::versions::{
    Accepted, Change, ChangeFilter, Changed, Edited, history, insert_change, nothing,
};
use crate::domain::claim::Subject;
use crate::domain::identity::AccountId;
use crate::domain::overrides::{Override, OverrideTerms, UnreadableOverride};
use crate::domain::policy::{Policy, PolicyId, PolicyName};
use crate::domain::record::RecordPlace;
use crate::domain::schedule::UnreadableTerms;
use crate::ledger::encoding::{decode_maxima, encode_maxima, narrowed};
use crate::ledger::query::{Session, Texts, any_id, query};
use crate::ledger::row::{StoredRow, only};
use crate::ledger::{Ledger, LedgerError, new_blind};

/// The instant of the next step of an erasure that keeps the account's id until then.
const ERASED_AT: &str = "SELECT due_at FROM erasing_accounts WHERE account = $1 AND step < 3";

fn decode(row: &StoredRow<'_>) -> Result<Override, LedgerError> {
    let until = row.get("until")?;
    let policy: PolicyId = row.get("policy")?;
    let limits: Option<String> = row.get("limits")?;
    let limits = limits.map(|limits| decode_maxima(&limits)).transpose();
    let limits = match limits {
        Ok(limits) => limits,
        Err(why) => {
            let name = row.get("name")?;
            let what = "an override".to_owned();
            return Err(UnreadableTerms {
                policy,
                name,
                what,
                why,
            }
            .into());
        }
    };
    Ok(Override {
        account: row.get("account")?,
        policy,
        subject: row.get("subject")?,
        version: row.get("version")?,
        revision: row.get("revision")?,
        terms: limits.map(|limits| OverrideTerms { limits, until }),
        changed_at: row.get("changed_at")?,
        changed_by: row.get("changed_by")?,
        reason: row.get("reason")?,
    })
}

fn decode_stored(row: &StoredRow<'_>) -> Result<Result<Override, UnreadableOverride>, LedgerError> {
    match decode(row) {
        Err(LedgerError::Unreadable(terms)) => Ok(Err(UnreadableOverride {
            account: row.get("account")?,
            version: row.get("version")?,
            revision: row.get("revision")?,
            terms,
        })),
        decoded => decoded.map(Ok),
    }
}

/// A query for versions `v` of overrides `o` of policies `p`.
macro_rules! versions {
    ($condition:expr) => {
        versions!("", "override_versions AS v", $condition)
    };
    ($selected:expr, $versions:expr, $condition:expr) => {
        concat!(
            "SELECT ",
            $selected,
            "v.account, o.policy, p.name, o.subject, v.version, v.revision, v.limits, v.until,
                v.changed_at, v.changed_by, v.reason
             FROM ",
            $versions,
            " JOIN overrides AS o ON o.account = v.account JOIN policies AS p ON p.id = o.policy
             WHERE ",
            $condition
        )
    };
}

const HISTORY: &str = history!(
    versions,
    "override_versions",
    "account",
    "JOIN overrides AS o ON o.account = v.account",
    "o.policy = $5"
);

macro_rules! history_of {
    ($of_these:expr) => {
        history!(
            versions,
            "override_versions",
            "account",
            "JOIN overrides AS o ON o.account = v.account",
            concat!("o.policy = $5) AND (v.account", $of_these)
        )
    };
}

/// The changes of the overrides of the accounts $7.
const HISTORY_OF: Texts = any_id!(history_of, "$7");
const BETWEEN: &str = versions!(
    "v.revision > $1 AND v.revision <= $2 AND NOT EXISTS (
         SELECT 1 FROM override_versions AS w
         WHERE w.account = v.account AND w.version > v.version AND w.revision <= $2
     ) ORDER BY v.revision"
);
/// The versions up to the place ($2, $3) of the record.
const KNOWN: &str =
    versions!("v.account = $1 AND (v.xact, v.revision) <= ($2, $3) ORDER BY v.version");
const LAST: &str = versions!("v.account = $1 ORDER BY v.version DESC LIMIT 1");
const LISTED: &str = versions!(
    "o.policy = $1 AND o.account > $2 AND v.limits IS NOT NULL AND v.version = (
         SELECT MAX(version) FROM override_versions WHERE account = o.account
     ) ORDER BY o.account LIMIT $3"
);

impl Ledger {
    /// The last versions, up to a revision, of the overrides that changed after another revision,
    /// in the order of their changes.
    pub async fn overrides_between(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<Result<Override, UnreadableOverride>>, LedgerError> {
        self.between(BETWEEN, after, up_to, decode_stored).await
    }

    pub(super) async fn override_history(
        &self,
        filter: &ChangeFilter,
        limit: u32,
    ) -> Result<Vec<Changed<(PolicyName, Override)>>, LedgerError> {
        let history = match &filter.accounts {
            Some(accounts) => filter.bind(HISTORY_OF, limit).bind(accounts.as_slice()),
            None => filter.bind(HISTORY, limit),
        };
        let decode = |row: &StoredRow<'_>| Ok((row.get("name")?, decode(row)?));
        self.history(history, decode).await
    }

    /// The last version of an account's override, also if it deletes the override.
    pub async fn override_of(&self, account: AccountId) -> Result<Option<Override>, LedgerError> {
        last_override(&mut self.reads().await?.lend(), account).await
    }

    /// The versions of an account's override up to a place of the record, oldest first.
    pub async fn known_overrides(
        &self,
        account: AccountId,
        up_to: RecordPlace,
    ) -> Result<Vec<Override>, LedgerError> {
        let versions = query(KNOWN)
            .bind(account)
            .bind(up_to.xact)
            .bind(up_to.revision);
        self.reads().await?.lend().all(versions, decode).await
    }

    /// A policy's overrides that are not deleted, by account after `after`, at most `limit`.
    pub async fn overrides(
        &self,
        policy: PolicyId,
        after: AccountId,
        limit: u32,
    ) -> Result<Vec<Override>, LedgerError> {
        let overrides = query(LISTED).bind(policy).bind(after).bind(limit);
        self.reads().await?.lend().all(overrides, decode).await
    }

    /// Changes a subject's override as `decide` says. `decide` gets the policy's last version and
    /// the override's, while no other change is possible. If the subject is being erased, it also
    /// gets the instant of the next step. The outer error is the ledger's, the inner one is
    /// `decide`'s. On both nothing is changed.
    pub async fn edit_override<E: Send>(
        &self,
        policy: &PolicyName,
        subject: &Subject,
        changed_by: &str,
        changed_at: DateTime<Utc>,
        decide: impl Fn(
            Option<&Policy>,
            Option<&Override>,
            Option<DateTime<Utc>>,
        ) -> Result<Change<Option<OverrideTerms>>, E>
        + Send
        + Sync,
    ) -> Result<Result<Edited<Override>, E>, LedgerError> {
        let account = self.identity().account(policy, subject);
        self.change(
            false,
            async |session: &mut Session<'_>| {
                let policy = last_policy(session, policy).await?;
                let erased_at = session.first(query(ERASED_AT).bind(account), only).await?;
                Ok((last_override(session, account).await?, (policy, erased_at)))
            },
            |before, (policy, erased_at)| decide(policy.as_ref(), before, *erased_at),
            async |session: &mut Session<'_>, before, (policy, _), accepted| {
                let Accepted {
                    revision,
                    terms,
                    reason,
                } = accepted;
                let after = Override {
                    account,
                    policy: policy.ok_or_else(nothing)?.id,
                    subject: Some(subject.clone()),
                    version: before.map_or(1, |before| before.version + 1),
                    revision: narrowed(revision)?,
                    terms,
                    changed_at,
                    changed_by: changed_by.to_owned(),
                    reason,
                };
                insert_version(session, &after, revision).await?;
                Ok(after)
            },
        )
        .await
    }
}

pub(super) async fn last_override(
    session: &mut Session<'_>,
    account: AccountId,
) -> Result<Option<Override>, LedgerError> {
    session.first(query(LAST).bind(account), decode).await
}

pub(super) async fn insert_version(
    session: &mut Session<'_>,
    version: &Override,
    revision: i64,
) -> Result<(), LedgerError> {
    let subject = query(
        "INSERT INTO overrides (account, policy, subject, blind) VALUES ($1, $2, $3, $4)
         ON CONFLICT (account) DO NOTHING",
    )
    .bind(version.account)
    .bind(version.policy)
    .bind(version.subject.as_ref().map(Subject::as_str))
    .bind(new_blind());
    session.execute(subject).await?;
    let terms = version.terms.as_ref();
    let insert = query(insert_change!(
        "override_versions",
        "account, version, revision, limits, until, changed_at, changed_by, reason",
        "$1, $2, $3, $4, $5, $6, $7, $8"
    ))
    .bind(version.account)
    .bind(version.version)
    .bind(revision)
    .bind(terms.map(|terms| encode_maxima(&terms.limits)))
    .bind(terms.and_then(|terms| terms.until))
    .bind(version.changed_at)
    .bind(version.changed_by.as_str())
    .bind(version.reason.as_deref());
    session.execute(insert).await
}
