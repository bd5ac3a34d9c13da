//! Overrides and their versions.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Store;
use super::policies::{last_version, next_revision};
use crate::domain::claim::Subject;
use crate::domain::identity::AccountId;
use crate::domain::overrides::{Override, OverrideTerms};
use crate::domain::policy::{Policy, PolicyId, PolicyName};
use crate::ledger::history::pair;
use crate::ledger::record::{decode_limits, encode_limits, signed, unsigned};
use crate::ledger::row::row;
use crate::ledger::{
    Changed, EditedOverride, HistoryFilter, LedgerError, OverrideChange, decode_name,
};

row! {
    struct OverrideRow {
        account: Uuid,
        policy: i32,
        subject: Option<String>,
        version: i32,
        revision: i64,
        limits: Option<String>,
        until: Option<DateTime<Utc>>,
        changed_at: DateTime<Utc>,
        changed_by: String,
        reason: Option<String>,
    }
}

impl OverrideRow {
    fn decode(self) -> Result<Override, LedgerError> {
        let subject = self.subject.as_deref().map(Subject::new).transpose();
        let until = self.until;
        let limits = self.limits.as_deref().map(decode_limits).transpose()?;
        Ok(Override {
            account: AccountId(self.account),
            policy: PolicyId(self.policy),
            subject: subject.map_err(|error| LedgerError::Corrupt(error.to_string()))?,
            version: unsigned(self.version.into())?,
            revision: unsigned(self.revision)?,
            terms: limits.map(|limits| OverrideTerms { limits, until }),
            changed_at: self.changed_at,
            changed_by: self.changed_by,
            reason: self.reason,
        })
    }
}

row! {
    /// A row of a list of changes.
    struct ListedOverrideRow {
        ..version: OverrideRow,
        listed: i64,
        name: String,
    }
}

macro_rules! version_columns {
    () => {
        "v.account, o.policy, o.subject, v.version, v.revision, v.limits, v.until, v.changed_at,
            v.changed_by, v.reason"
    };
}

/// A query for versions of overrides.
macro_rules! overrides_where {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            version_columns!(),
            " FROM override_versions AS v JOIN overrides AS o ON o.account = v.account WHERE ",
            $condition
        )
    };
}

/// Changes, each with the version that it made and the one before.
const HISTORY: &str = concat!(
    "WITH listed AS (
         SELECT v.account, v.version, v.revision
         FROM override_versions AS v JOIN overrides AS o ON o.account = v.account
         WHERE v.revision < $1 AND ($2::timestamptz IS NULL OR v.changed_at >= $2)
            AND ($3::timestamptz IS NULL OR v.changed_at < $3)
            AND ($5::integer IS NULL OR o.policy = $5)
         ORDER BY v.revision DESC LIMIT $4
     )
     SELECT listed.revision AS listed, p.name, ",
    version_columns!(),
    " FROM listed
     JOIN override_versions AS v ON v.account = listed.account
        AND v.version IN (listed.version, listed.version - 1)
     JOIN overrides AS o ON o.account = v.account
     JOIN policies AS p ON p.id = o.policy
     ORDER BY listed.revision DESC, v.version DESC"
);

impl Store {
    /// See [`crate::ledger::Ledger::overrides_between`].
    pub async fn overrides_between(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<Override>, LedgerError> {
        let versions = sqlx::query_as(overrides_where!(
            "v.revision > $1 AND v.revision <= $2 AND NOT EXISTS (
                 SELECT 1 FROM override_versions AS w
                 WHERE w.account = v.account AND w.version > v.version AND w.revision <= $2
             ) ORDER BY v.revision"
        ))
        .bind(signed(after))
        .bind(signed(up_to));
        let rows: Vec<OverrideRow> = self
            .polled(async |connection| versions.fetch_all(connection).await)
            .await?;
        rows.into_iter().map(OverrideRow::decode).collect()
    }

    /// See [`crate::ledger::Ledger::changes`].
    pub async fn override_history(
        &self,
        filter: &HistoryFilter,
        limit: u32,
    ) -> Result<Vec<Changed<(PolicyName, Override)>>, LedgerError> {
        let rows: Vec<ListedOverrideRow> = sqlx::query_as(HISTORY)
            .bind(signed(filter.below))
            .bind(filter.from)
            .bind(filter.to)
            .bind(i64::from(limit))
            .bind(filter.policy.map(|policy| policy.0))
            .fetch_all(&self.reads)
            .await?;
        let decode = |row: ListedOverrideRow| {
            let version = (decode_name(&row.name)?, row.version.decode()?);
            Ok((unsigned(row.listed)?, version))
        };
        pair(rows.into_iter().map(decode))
    }

    /// See [`crate::ledger::Ledger::override_of`].
    pub async fn override_of(&self, account: AccountId) -> Result<Option<Override>, LedgerError> {
        let mut connection = self.reads.acquire().await?;
        last_override(&mut connection, account).await
    }

    /// See [`crate::ledger::Ledger::overrides`].
    pub async fn overrides(
        &self,
        policy: PolicyId,
        after: AccountId,
        limit: u32,
    ) -> Result<Vec<Override>, LedgerError> {
        let rows: Vec<OverrideRow> = sqlx::query_as(overrides_where!(
            "o.policy = $1 AND o.account > $2 AND v.limits IS NOT NULL AND v.version = (
                 SELECT MAX(version) FROM override_versions WHERE account = o.account
             ) ORDER BY o.account LIMIT $3"
        ))
        .bind(policy.0)
        .bind(after.0)
        .bind(i64::from(limit))
        .fetch_all(&self.reads)
        .await?;
        rows.into_iter().map(OverrideRow::decode).collect()
    }

    /// See [`crate::ledger::Ledger::edit_override`].
    pub async fn edit_override<E: Send>(
        &self,
        (policy, subject, account): (&PolicyName, &Subject, AccountId),
        changed_by: &str,
        changed_at: DateTime<Utc>,
        decide: impl Fn(Option<&Policy>, Option<&Override>) -> Result<OverrideChange, E> + Send + Sync,
    ) -> Result<Result<EditedOverride, E>, LedgerError> {
        let mut transaction = self.edits.begin().await?;
        let revision = next_revision(&mut transaction).await?;
        let policy = last_version(&mut transaction, policy).await?;
        let before = last_override(&mut transaction, account).await?;
        let nothing = || LedgerError::Corrupt("no override to keep".to_owned());
        let (terms, reason) = match decide(policy.as_ref(), before.as_ref()) {
            Err(error) => {
                transaction.rollback().await?;
                return Ok(Err(error));
            }
            Ok(OverrideChange::Keep) => {
                transaction.rollback().await?;
                let after = before.clone().ok_or_else(nothing)?;
                return Ok(Ok(EditedOverride { before, after }));
            }
            Ok(OverrideChange::Version { terms, reason }) => (terms, reason),
        };
        let policy = policy.ok_or_else(nothing)?.id;
        let after = Override {
            account,
            policy,
            subject: Some(subject.clone()),
            version: before.as_ref().map_or(1, |before| before.version + 1),
            revision: unsigned(revision)?,
            terms,
            changed_at,
            changed_by: changed_by.to_owned(),
            reason,
        };
        // Whoever is erased and comes again is known again.
        sqlx::query(
            "INSERT INTO overrides (account, policy, subject) VALUES ($1, $2, $3)
             ON CONFLICT (account) DO UPDATE SET subject = excluded.subject",
        )
        .bind(account.0)
        .bind(policy.0)
        .bind(subject.as_str())
        .execute(&mut *transaction)
        .await?;
        let terms = after.terms.as_ref();
        let until = terms.and_then(|terms| terms.until);
        sqlx::query(
            "INSERT INTO override_versions
                 (account, version, revision, limits, until, changed_at, changed_by, reason)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(account.0)
        .bind(i64::from(after.version))
        .bind(revision)
        .bind(terms.map(|terms| encode_limits(&terms.limits)))
        .bind(until)
        .bind(changed_at)
        .bind(changed_by)
        .bind(&after.reason)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Ok(EditedOverride { before, after }))
    }
}

async fn last_override(
    connection: &mut PgConnection,
    account: AccountId,
) -> Result<Option<Override>, LedgerError> {
    let row: Option<OverrideRow> = sqlx::query_as(overrides_where!(
        "v.account = $1 ORDER BY v.version DESC LIMIT 1"
    ))
    .bind(account.0)
    .fetch_optional(connection)
    .await?;
    row.map(OverrideRow::decode).transpose()
}
