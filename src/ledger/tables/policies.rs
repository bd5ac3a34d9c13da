//! Policies and their versions.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::versions::{ChangeFilter, Changed};
use crate::boxed;
use crate::encoding::{decode_rule, encode_rule};
use crate::query::{Session, Texts, query};
use crate::row::StoredRow;
use crate::{AdminTables, LedgerError, RecordTables};
use domain::policy::{Policy, PolicyId, PolicyName, PolicyPause, Rule};
use domain::record::RecordPlace;
use domain::schedule::{StoredVersion, UnreadableTerms, UnreadableVersion, VersionTime};

/// The content of a version of a policy.
#[derive(Debug)]
pub struct PolicyTerms {
    pub rule: Rule,
    /// Whether the policy takes no claims any more.
    pub archived: bool,
    /// The instant from which the version is in force.
    pub effective_at: DateTime<Utc>,
    /// Whether the overrides that the version orphans end.
    pub drops_orphans: bool,
    /// Whether the versions that are scheduled are scheduled again after this one, with its pause.
    pub schedules_again: bool,
}

/// A policy at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The last version, which may not be in force yet.
    pub newest: Policy,
    /// The version in force.
    pub in_force: Policy,
    /// The pause, while the policy is paused.
    pub pause: Option<PolicyPause>,
}

fn decode(row: &StoredRow<'_>) -> Result<Policy, LedgerError> {
    let id: PolicyId = row.get("policy_id")?;
    let name: PolicyName = row.get("policy")?;
    let version: u32 = row.get("version")?;
    let rule = decode_rule(&row.get::<String>("rule")?).map_err(|why| UnreadableTerms {
        policy: id,
        name: name.clone(),
        what: format!("version {version}"),
        why,
    })?;
    Ok(Policy {
        id,
        name,
        version,
        rule,
        archived: row.get("archived")?,
        effective_at: row.get("effective_at")?,
        changed_at: row.get("changed_at")?,
        changed_by: row.get("changed_by")?,
        reason: row.get("reason")?,
        blocked: None,
    })
}

fn decode_stored(row: &StoredRow<'_>) -> Result<StoredVersion, LedgerError> {
    match decode(row) {
        Ok(policy) => Ok(Ok(Arc::new(policy))),
        Err(LedgerError::Unreadable(terms)) => Ok(Err(UnreadableVersion {
            time: VersionTime {
                version: row.get("version")?,
                effective_at: row.get("effective_at")?,
                changed_at: row.get("changed_at")?,
            },
            terms,
        })),
        Err(error) => Err(error),
    }
}

/// The changes of policies: see [`ChangeFilter::bind`].
const HISTORY: &str = "SELECT listed.revision AS listed, v.* FROM (
        SELECT policy, version, revision FROM policy_versions
        WHERE revision < $1 AND ($2 IS NULL OR changed_at >= $2) AND ($3 IS NULL OR changed_at < $3)
            AND ($6 IS NULL OR changed_by = $6) AND ($5 IS NULL OR policy = $5)
        ORDER BY revision DESC LIMIT $4
    ) AS listed
    JOIN policy_rows AS v ON v.policy_id = listed.policy
        AND v.version IN (listed.version, listed.version - 1)
    ORDER BY listed.revision DESC, v.version DESC";
const BETWEEN: &str =
    "SELECT * FROM policy_rows WHERE revision > $1 AND revision <= $2 ORDER BY revision";
const BELOW: &str = "SELECT * FROM policy_rows WHERE policy = $1 AND version < $2
    ORDER BY version DESC LIMIT $3";
/// The versions up to the place ($2, $3) of the record.
const KNOWN: &str = "SELECT * FROM policy_rows
    WHERE policy = $1 AND (xact, revision) <= ($2, $3) ORDER BY version";
/// The versions of the policy $2, or of all policies, that are older than the revision $1.
const OLDER: &str = "SELECT * FROM policy_rows
    WHERE revision < $1 AND ($2 IS NULL OR policy_id = $2) ORDER BY policy_id, version";
/// All versions of some policies, by policy.
const TO_FOLLOW: Texts = Texts {
    postgres: "SELECT * FROM policy_rows WHERE policy_id = ANY(CAST($1 AS integer[]))
        ORDER BY policy_id, version",
    sqlite: "SELECT * FROM policy_rows
        WHERE policy_id IN (SELECT CAST(value AS integer) FROM json_each($1))
        ORDER BY policy_id, version",
};
const LAST: &str = "SELECT * FROM policy_rows WHERE policy = $1 ORDER BY version DESC LIMIT 1";
/// The version in force: see [`Policy::has_effect`].
const IN_FORCE: &str = "SELECT * FROM policy_rows
    WHERE policy_id = $1 AND version < $2 AND (effective_at <= $3 OR effective_at <= changed_at)
    ORDER BY version DESC LIMIT 1";
const LATER: &str =
    "SELECT * FROM policy_rows WHERE policy_id = $1 AND version > $2 ORDER BY version";

/// The first of the versions that are paused without a break, up to $2. A text in a rule has no such
/// quotes: JSON escapes them.
const FIRST_PAUSED: &str = r#"SELECT * FROM policy_rows
    WHERE policy_id = $1 AND version <= $2 AND version > (
        SELECT COALESCE(MAX(w.version), 0) FROM policy_versions AS w
        WHERE w.policy = $1 AND w.version <= $2 AND w.rule NOT LIKE '%"paused":true%'
    ) ORDER BY version LIMIT 1"#;

/// The policies by name: all, or those with the names $3; with the archived ones if $4 is true.
const LISTED: Texts = Texts {
    postgres: r#"SELECT * FROM policy_rows
        WHERE policy COLLATE "C" > $1 AND ($4 OR NOT archived) AND version = (
            SELECT MAX(w.version) FROM policy_versions AS w WHERE w.policy = policy_rows.policy_id
        ) AND ($3 IS NULL OR policy = ANY($3))
        ORDER BY policy COLLATE "C" LIMIT $2"#,
    sqlite: "SELECT * FROM policy_rows
        WHERE policy > $1 AND ($4 OR NOT archived) AND version = (
            SELECT MAX(w.version) FROM policy_versions AS w WHERE w.policy = policy_rows.policy_id
        ) AND ($3 IS NULL OR policy IN (SELECT value FROM json_each($3)))
        ORDER BY policy LIMIT $2",
};

const ADD_VERSION: Texts = Texts {
    postgres: "INSERT INTO policy_versions
            (policy, version, revision, rule, archived, effective_at, changed_at, changed_by, reason)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    sqlite: "INSERT INTO policy_versions
            (policy, version, revision, rule, archived, effective_at, changed_at, changed_by, reason, xact)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,
            (SELECT COALESCE(MAX(xact), 0) FROM entries))",
};

impl AdminTables {
    /// The versions of policies after a revision and up to another, in order.
    #[boxed]
    pub async fn policies_between(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<StoredVersion>, LedgerError> {
        self.between(BETWEEN, after, up_to, decode_stored).await
    }

    pub(super) async fn policy_history(
        &self,
        filter: &ChangeFilter,
        limit: u32,
    ) -> Result<Vec<Changed<Policy>>, LedgerError> {
        self.history(filter.bind(HISTORY, limit), decode).await
    }

    /// A policy at an instant, archived or not.
    #[boxed]
    pub async fn policy(
        &self,
        name: &PolicyName,
        at: DateTime<Utc>,
    ) -> Result<Option<Standing>, LedgerError> {
        standing(&mut self.ledger.reads().await?.lend(), name, at).await
    }

    /// The pause of a policy as of a version.
    #[boxed]
    pub async fn pause(&self, version: &Policy) -> Result<Option<PolicyPause>, LedgerError> {
        pause_of(&mut self.ledger.reads().await?.lend(), version).await
    }

    /// A policy's versions below `before`, newest first, at most `limit`.
    #[boxed]
    pub async fn versions(
        &self,
        name: &PolicyName,
        before: u32,
        limit: u32,
    ) -> Result<Vec<Policy>, LedgerError> {
        let versions = query(BELOW).bind(name.as_str()).bind(before).bind(limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(versions, decode)
            .await
    }

    /// Policies that are not archived, by name after `after`, at most `limit`: all, or `only`
    /// these.
    #[boxed]
    pub async fn policies(
        &self,
        only: Option<&[PolicyName]>,
        with_archived: bool,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Policy>, LedgerError> {
        let policies = query(LISTED)
            .bind(after)
            .bind(limit)
            .bind(only)
            .bind(with_archived);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(policies, decode)
            .await
    }
}

impl RecordTables {
    /// The versions of a policy up to a place of the record, oldest first.
    #[boxed]
    pub async fn known_versions(
        &self,
        name: &PolicyName,
        up_to: RecordPlace,
    ) -> Result<Vec<Policy>, LedgerError> {
        let versions = query(KNOWN)
            .bind(name.as_str())
            .bind(up_to.xact)
            .bind(up_to.revision);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(versions, decode)
            .await
    }

    /// The versions of a policy, or of all policies, that are older than a change: the oldest first for each policy.
    #[boxed]
    pub async fn older_versions(
        &self,
        revision: u64,
        of: Option<PolicyId>,
    ) -> Result<Vec<Policy>, LedgerError> {
        let versions = query(OLDER).bind(revision).bind(of);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(versions, decode)
            .await
    }

    /// All versions of some policies, the oldest first for each, for a follower of the record.
    #[boxed]
    pub async fn versions_to_follow(
        &self,
        policies: &[PolicyId],
    ) -> Result<Vec<Policy>, LedgerError> {
        let numbers = policies.iter().map(|policy| policy.0.to_string());
        let versions = query(TO_FOLLOW).bind(numbers.collect::<Vec<String>>());
        self.ledger.own().await?.lend().all(versions, decode).await
    }
}

/// A policy at an instant, archived or not.
pub(super) async fn standing(
    session: &mut Session<'_>,
    name: &PolicyName,
    at: DateTime<Utc>,
) -> Result<Option<Standing>, LedgerError> {
    let Some(newest) = last_policy(session, name).await? else {
        return Ok(None);
    };
    let before = query(IN_FORCE)
        .bind(newest.id)
        .bind(newest.version)
        .bind(at);
    let in_force = if newest.has_effect(at) {
        newest.clone()
    } else {
        let before = session.first(before, decode).await?;
        before.ok_or(sqlx::Error::RowNotFound)?
    };
    let pause = pause_of(session, &newest).await?;
    Ok(Some(Standing {
        newest,
        in_force,
        pause,
    }))
}

/// The versions that are still to take effect, in this order.
pub(super) async fn scheduled(
    session: &mut Session<'_>,
    standing: &Standing,
) -> Result<Vec<Policy>, LedgerError> {
    let Standing {
        newest, in_force, ..
    } = standing;
    let later = query(LATER).bind(newest.id).bind(in_force.version);
    let later: Vec<Policy> = session.all(later, decode).await?;
    let last = later.iter().enumerate().filter(|(index, version)| {
        let mut higher = later[index + 1..].iter();
        higher.all(|higher| higher.effective_at > version.effective_at)
    });
    Ok(last.map(|(_, version)| version.clone()).collect())
}

/// The pause of a policy as of a version.
pub(super) async fn pause_of(
    session: &mut Session<'_>,
    version: &Policy,
) -> Result<Option<PolicyPause>, LedgerError> {
    if !version.rule.paused {
        return Ok(None);
    }
    let first = query(FIRST_PAUSED).bind(version.id).bind(version.version);
    let first = session.first(first, decode).await?;
    Ok(first.map(|first| PolicyPause {
        since: first.changed_at,
        by: first.changed_by,
        reason: first.reason,
    }))
}

/// A policy's last version, archived or not.
pub(super) async fn last_policy(
    session: &mut Session<'_>,
    name: &PolicyName,
) -> Result<Option<Policy>, LedgerError> {
    let last = query(LAST).bind(name.as_str());
    session.first(last, decode).await
}

pub(super) async fn insert_policy(
    session: &mut Session<'_>,
    name: &PolicyName,
) -> Result<PolicyId, LedgerError> {
    let insert = query("INSERT INTO policies (name) VALUES ($1) RETURNING id").bind(name.as_str());
    Ok(PolicyId(session.one(insert).await?))
}

pub(super) async fn insert_version(
    session: &mut Session<'_>,
    policy: &Policy,
    revision: i64,
) -> Result<(), LedgerError> {
    let insert = query(ADD_VERSION)
        .bind(policy.id)
        .bind(policy.version)
        .bind(revision)
        .bind(encode_rule(&policy.rule))
        .bind(policy.archived)
        .bind(policy.effective_at)
        .bind(policy.changed_at)
        .bind(policy.changed_by.as_str())
        .bind(policy.reason.as_deref());
    session.execute(insert).await
}
