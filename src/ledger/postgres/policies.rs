//! Policies and their versions.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::Store;
use crate::domain::policy::{Policy, PolicyId, PolicyName};
use crate::ledger::history::pair;
use crate::ledger::record::{decode_rule, encode_rule, signed, unsigned};
use crate::ledger::row::row;
use crate::ledger::{Change, Changed, Edited, HistoryFilter, LedgerError, Standing, decode_name};

row! {
    struct PolicyRow {
        policy: i32,
        name: String,
        version: i32,
        rule: String,
        archived: bool,
        effective_at: DateTime<Utc>,
        changed_at: DateTime<Utc>,
        changed_by: String,
        reason: Option<String>,
    }
}

impl PolicyRow {
    fn decode(self) -> Result<Policy, LedgerError> {
        Ok(Policy {
            id: PolicyId(self.policy),
            name: decode_name(&self.name)?,
            version: unsigned(self.version.into())?,
            rule: decode_rule(&self.rule)?,
            archived: self.archived,
            effective_at: self.effective_at,
            changed_at: self.changed_at,
            changed_by: self.changed_by,
            reason: self.reason,
        })
    }
}

row! {
    /// A row of a list of changes.
    struct ListedPolicyRow {
        ..version: PolicyRow,
        listed: i64,
    }
}

macro_rules! version_columns {
    () => {
        "v.policy, p.name, v.version, v.rule, v.archived, v.effective_at, v.changed_at,
            v.changed_by, v.reason"
    };
}

/// A query for versions of policies.
macro_rules! versions_where {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            version_columns!(),
            " FROM policy_versions AS v JOIN policies AS p ON p.id = v.policy WHERE ",
            $condition
        )
    };
}

/// Changes, each with the version that it made and the one before.
const HISTORY: &str = concat!(
    "WITH listed AS (
         SELECT v.policy, v.version, v.revision FROM policy_versions AS v
         WHERE v.revision < $1 AND ($2::timestamptz IS NULL OR v.changed_at >= $2)
            AND ($3::timestamptz IS NULL OR v.changed_at < $3)
            AND ($5::integer IS NULL OR v.policy = $5)
         ORDER BY v.revision DESC LIMIT $4
     )
     SELECT listed.revision AS listed, ",
    version_columns!(),
    " FROM listed
     JOIN policy_versions AS v ON v.policy = listed.policy
        AND v.version IN (listed.version, listed.version - 1)
     JOIN policies AS p ON p.id = v.policy
     ORDER BY listed.revision DESC, v.version DESC"
);

const LAST_OF_NAME: &str = versions_where!("p.name = $1 ORDER BY v.version DESC LIMIT 1");
/// The version in force: see [`Policy::has_effect`].
const IN_FORCE: &str = versions_where!(
    "v.policy = $1 AND v.version < $2 AND (v.effective_at <= $3 OR v.effective_at <= v.changed_at)
     ORDER BY v.version DESC LIMIT 1"
);

impl Store {
    /// See [`crate::ledger::Ledger::revision`].
    pub async fn revision(&self) -> Result<u64, LedgerError> {
        let revision = sqlx::query_scalar("SELECT revision FROM ledger");
        let revision: i64 = self
            .polled(async |connection| revision.fetch_one(connection).await)
            .await?;
        unsigned(revision)
    }

    /// See [`crate::ledger::Ledger::policies_between`].
    pub async fn policies_between(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<Policy>, LedgerError> {
        let versions = sqlx::query_as(versions_where!(
            "v.revision > $1 AND v.revision <= $2 ORDER BY v.revision"
        ))
        .bind(signed(after))
        .bind(signed(up_to));
        let rows: Vec<PolicyRow> = self
            .polled(async |connection| versions.fetch_all(connection).await)
            .await?;
        rows.into_iter().map(PolicyRow::decode).collect()
    }

    /// See [`crate::ledger::Ledger::changes`].
    pub async fn policy_history(
        &self,
        filter: &HistoryFilter,
        limit: u32,
    ) -> Result<Vec<Changed<Policy>>, LedgerError> {
        let rows: Vec<ListedPolicyRow> = sqlx::query_as(HISTORY)
            .bind(signed(filter.below))
            .bind(filter.from)
            .bind(filter.to)
            .bind(i64::from(limit))
            .bind(filter.policy.map(|policy| policy.0))
            .fetch_all(&self.reads)
            .await?;
        let decode = |row: ListedPolicyRow| Ok((unsigned(row.listed)?, row.version.decode()?));
        pair(rows.into_iter().map(decode))
    }

    /// See [`crate::ledger::Ledger::policy`].
    pub async fn policy(
        &self,
        name: &PolicyName,
        at: DateTime<Utc>,
    ) -> Result<Option<Standing>, LedgerError> {
        let mut connection = self.reads.acquire().await?;
        standing(&mut connection, name, at).await
    }

    /// See [`crate::ledger::Ledger::versions`].
    pub async fn versions(
        &self,
        name: &PolicyName,
        before: u32,
        limit: u32,
    ) -> Result<Vec<Policy>, LedgerError> {
        let rows: Vec<PolicyRow> = sqlx::query_as(versions_where!(
            "p.name = $1 AND v.version < $2 ORDER BY v.version DESC LIMIT $3"
        ))
        .bind(name.as_str())
        .bind(i64::from(before))
        .bind(i64::from(limit))
        .fetch_all(&self.reads)
        .await?;
        rows.into_iter().map(PolicyRow::decode).collect()
    }

    /// See [`crate::ledger::Ledger::policies`].
    pub async fn policies(
        &self,
        only: Option<&[PolicyName]>,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Policy>, LedgerError> {
        let only: Option<Vec<&str>> =
            only.map(|names| names.iter().map(PolicyName::as_str).collect());
        let rows: Vec<PolicyRow> = sqlx::query_as(versions_where!(
            "p.name COLLATE \"C\" > $1 AND NOT v.archived AND v.version = (
                 SELECT MAX(version) FROM policy_versions WHERE policy = v.policy
             ) AND ($3::text[] IS NULL OR p.name = ANY($3))
             ORDER BY p.name COLLATE \"C\" LIMIT $2"
        ))
        .bind(after)
        .bind(i64::from(limit))
        .bind(only)
        .fetch_all(&self.reads)
        .await?;
        rows.into_iter().map(PolicyRow::decode).collect()
    }

    /// See [`crate::ledger::Ledger::edit_policy`].
    pub async fn edit_policy<E: Send>(
        &self,
        name: &PolicyName,
        changed_by: &str,
        changed_at: DateTime<Utc>,
        dry_run: bool,
        decide: impl Fn(Option<&Standing>) -> Result<Change, E> + Send + Sync,
    ) -> Result<Result<Edited, E>, LedgerError> {
        let mut transaction = self.edits.begin().await?;
        let revision = next_revision(&mut transaction).await?;
        let before = standing(&mut transaction, name, changed_at).await?;
        let nothing = || LedgerError::Corrupt("no policy to keep".to_owned());
        let (rule, archived, effective_at, reason) = match decide(before.as_ref()) {
            Err(error) => {
                transaction.rollback().await?;
                return Ok(Err(error));
            }
            Ok(Change::Keep) => {
                transaction.rollback().await?;
                return Ok(Ok(Edited::kept(before.ok_or_else(nothing)?)));
            }
            Ok(Change::Version {
                rule,
                archived,
                effective_at,
                reason,
            }) => (rule, archived, effective_at, reason),
        };
        let newest = before.as_ref().map(|before| &before.newest);
        let id = match newest {
            Some(policy) => policy.id,
            None => PolicyId(
                sqlx::query_scalar("INSERT INTO policies (name) VALUES ($1) RETURNING id")
                    .bind(name.as_str())
                    .fetch_one(&mut *transaction)
                    .await?,
            ),
        };
        let after = Policy {
            id,
            name: name.clone(),
            version: newest.map_or(1, |policy| policy.version + 1),
            rule,
            archived,
            effective_at,
            changed_at,
            changed_by: changed_by.to_owned(),
            reason,
        };
        sqlx::query(
            "INSERT INTO policy_versions
                 (policy, version, revision, rule, archived, effective_at, changed_at, changed_by,
                  reason)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(after.id.0)
        .bind(i64::from(after.version))
        .bind(revision)
        .bind(encode_rule(&after.rule))
        .bind(after.archived)
        .bind(after.effective_at)
        .bind(after.changed_at)
        .bind(&after.changed_by)
        .bind(&after.reason)
        .execute(&mut *transaction)
        .await?;
        match dry_run {
            true => transaction.rollback().await?,
            false => transaction.commit().await?,
        }
        Ok(Ok(Edited::made(before, after, changed_at)))
    }
}

/// The number of a change. Its row's lock lets changes through one by one, so that revisions
/// become visible in their order.
pub async fn next_revision(connection: &mut PgConnection) -> Result<i64, LedgerError> {
    let next = "UPDATE ledger SET revision = revision + 1 RETURNING revision";
    Ok(sqlx::query_scalar(next).fetch_one(connection).await?)
}

async fn standing(
    connection: &mut PgConnection,
    name: &PolicyName,
    at: DateTime<Utc>,
) -> Result<Option<Standing>, LedgerError> {
    let Some(newest) = last_version(connection, name).await? else {
        return Ok(None);
    };
    let in_force = match newest.has_effect(at) {
        true => newest.clone(),
        false => {
            let row: PolicyRow = sqlx::query_as(IN_FORCE)
                .bind(newest.id.0)
                .bind(i64::from(newest.version))
                .bind(at)
                .fetch_one(connection)
                .await?;
            row.decode()?
        }
    };
    Ok(Some(Standing { newest, in_force }))
}

/// A policy's last version, archived or not.
pub async fn last_version(
    connection: &mut PgConnection,
    name: &PolicyName,
) -> Result<Option<Policy>, LedgerError> {
    let row: Option<PolicyRow> = sqlx::query_as(LAST_OF_NAME)
        .bind(name.as_str())
        .fetch_optional(connection)
        .await?;
    row.map(PolicyRow::decode).transpose()
}
