//! Overrides and blocks, and their versions. Both are versions of what a policy has for one subject, in
//! the same table: `ledger/subject_encoding.rs` says how they are told apart.

use chrono::{DateTime, Utc};

use super::policies::{Standing, standing};
use super::versions::{Accepted, Change, ChangeFilter, Changed, Edited, history, nothing};
use crate::domain::blocks::{BlockTerms, SubjectTerms};
use crate::domain::claim::Subject;
use crate::domain::identity::AccountId;
use crate::domain::overrides::Block;
use crate::domain::overrides::{OfSubject, Override, OverrideTerms, UnreadableOfSubject};
use crate::domain::policy::{PolicyId, PolicyName};
use crate::domain::record::RecordPlace;
use crate::domain::schedule::UnreadableTerms;
use crate::ledger::encoding::narrowed;
use crate::ledger::query::{Session, Texts, any_id, query};
use crate::ledger::row::{StoredRow, only};
use crate::ledger::subject_encoding::{
    decode_blocked, decode_override, encode_blocked, encode_override, is_block,
};
use crate::ledger::{Ledger, LedgerError, new_blind};

/// The instant of the next step of an erasure that keeps the account's id until then.
const ERASED_AT: &str = "SELECT due_at FROM erasing_accounts WHERE account = $1 AND step < 3";

/// Terms of one subject, as the ledger stores them.
pub trait StoredTerms: SubjectTerms + Clone + PartialEq + Send + Sync + 'static {
    /// The name in errors.
    const WHAT: &'static str;
    const STATEMENTS: SubjectStatements;

    /// The terms, from the column `limits`; `None` for a version that ends them.
    ///
    /// # Errors
    /// The reason why the text cannot be read.
    fn decode(text: Option<&str>, until: Option<DateTime<Utc>>) -> Result<Option<Self>, String>;

    /// The value of the column `limits`.
    fn encode(terms: Option<&Self>) -> Option<String>;
}

/// The statements about overrides, or about blocks.
pub struct SubjectStatements {
    between: &'static str,
    history: &'static str,
    history_of: Texts,
    known: &'static str,
    last: &'static str,
    listed: &'static str,
}

/// A query for versions `v` of overrides and blocks `o` of policies `p`.
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

/// The changes of overrides or blocks: of a policy, or, with `$of_these`, of accounts.
macro_rules! subject_history {
    ($of_these:expr, $is:ident) => {
        history!(
            versions,
            "override_versions",
            "account",
            concat!(
                "JOIN overrides AS o ON o.account = v.account AND ",
                $is!("v")
            ),
            concat!("o.policy = $5", $of_these),
            concat!(
                "(SELECT MAX(w.version) FROM override_versions AS w
                  WHERE w.account = listed.account AND w.version < listed.version AND ",
                $is!("w"),
                ")"
            )
        )
    };
}

macro_rules! is_override {
    ($v:literal) => {
        concat!("NOT ", is_block!($v))
    };
}

macro_rules! history_of_overrides {
    ($of_these:expr) => {
        subject_history!(concat!(") AND (v.account", $of_these), is_override)
    };
}

macro_rules! history_of_blocks {
    ($of_these:expr) => {
        subject_history!(concat!(") AND (v.account", $of_these), is_block)
    };
}

macro_rules! statements {
    ($is:ident, $history_of:ident, $exists:literal) => {
        SubjectStatements {
            between: versions!(concat!(
                $is!("v"),
                " AND v.revision > $1 AND v.revision <= $2 AND NOT EXISTS (
                     SELECT 1 FROM override_versions AS w
                     WHERE w.account = v.account AND w.version > v.version AND w.revision <= $2
                         AND ",
                $is!("w"),
                ") ORDER BY v.revision"
            )),
            history: subject_history!("", $is),
            // The changes of the accounts $7.
            history_of: any_id!($history_of, "$7"),
            // The versions up to the place ($2, $3) of the record.
            known: versions!(concat!(
                $is!("v"),
                " AND v.account = $1 AND (v.xact, v.revision) <= ($2, $3) ORDER BY v.version"
            )),
            last: versions!(concat!(
                $is!("v"),
                " AND v.account = $1 ORDER BY v.version DESC LIMIT 1"
            )),
            listed: versions!(concat!(
                "o.policy = $1 AND o.account > $2 AND ",
                $exists,
                " AND v.version = (
                     SELECT MAX(w.version) FROM override_versions AS w
                     WHERE w.account = o.account AND ",
                $is!("w"),
                ") ORDER BY o.account LIMIT $3"
            )),
        }
    };
}

impl StoredTerms for OverrideTerms {
    const WHAT: &'static str = "an override";
    const STATEMENTS: SubjectStatements =
        statements!(is_override, history_of_overrides, "v.limits IS NOT NULL");

    fn decode(text: Option<&str>, until: Option<DateTime<Utc>>) -> Result<Option<Self>, String> {
        let limits = decode_override(text)?;
        Ok(limits.map(|limits| Self { limits, until }))
    }

    fn encode(terms: Option<&Self>) -> Option<String> {
        encode_override(terms.map(|terms| &terms.limits[..]))
    }
}

impl StoredTerms for BlockTerms {
    const WHAT: &'static str = "a block";
    const STATEMENTS: SubjectStatements = statements!(
        is_block,
        history_of_blocks,
        "v.limits = '{\"blocked\":true}'"
    );

    fn decode(text: Option<&str>, until: Option<DateTime<Utc>>) -> Result<Option<Self>, String> {
        Ok(decode_blocked(text)?.then_some(Self { until }))
    }

    fn encode(terms: Option<&Self>) -> Option<String> {
        Some(encode_blocked(terms.is_some()))
    }
}

fn decode<T: StoredTerms>(row: &StoredRow<'_>) -> Result<OfSubject<T>, LedgerError> {
    let policy: PolicyId = row.get("policy")?;
    let limits: Option<String> = row.get("limits")?;
    let terms = match T::decode(limits.as_deref(), row.get("until")?) {
        Ok(terms) => terms,
        Err(why) => {
            let name = row.get("name")?;
            let what = T::WHAT.to_owned();
            return Err(UnreadableTerms {
                policy,
                name,
                what,
                why,
            }
            .into());
        }
    };
    Ok(OfSubject {
        account: row.get("account")?,
        policy,
        subject: row.get("subject")?,
        version: row.get("version")?,
        revision: row.get("revision")?,
        terms,
        changed_at: row.get("changed_at")?,
        changed_by: row.get("changed_by")?,
        reason: row.get("reason")?,
    })
}

fn decode_stored<T: StoredTerms>(
    row: &StoredRow<'_>,
) -> Result<Result<OfSubject<T>, UnreadableOfSubject>, LedgerError> {
    match decode(row) {
        Err(LedgerError::Unreadable(terms)) => Ok(Err(UnreadableOfSubject {
            account: row.get("account")?,
            version: row.get("version")?,
            revision: row.get("revision")?,
            terms,
        })),
        decoded => decoded.map(Ok),
    }
}

/// All versions of the blocks of a policy, those of an account in their order.
const EVERY_BLOCK: &str = versions!(concat!(
    is_block!("v"),
    " AND o.policy = $1 ORDER BY v.account, v.version"
));

const ADD_VERSION: Texts = Texts {
    postgres: "INSERT INTO override_versions
            (account, version, revision, limits, until, changed_at, changed_by, reason)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    sqlite: "INSERT INTO override_versions
            (account, version, revision, limits, until, changed_at, changed_by, reason, xact)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
            (SELECT COALESCE(MAX(xact), 0) FROM entries))",
};

impl Ledger {
    /// The last versions, up to a revision, of the overrides or blocks that changed after another
    /// revision, in the order of their changes.
    pub async fn of_subjects_between<T: StoredTerms>(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<Result<OfSubject<T>, UnreadableOfSubject>>, LedgerError> {
        self.between(T::STATEMENTS.between, after, up_to, decode_stored::<T>)
            .await
    }

    pub(super) async fn override_history(
        &self,
        filter: &ChangeFilter,
        limit: u32,
    ) -> Result<Vec<Changed<(PolicyName, Override)>>, LedgerError> {
        self.history_of_subjects(filter, limit).await
    }

    pub(super) async fn block_history(
        &self,
        filter: &ChangeFilter,
        limit: u32,
    ) -> Result<Vec<Changed<(PolicyName, Block)>>, LedgerError> {
        self.history_of_subjects(filter, limit).await
    }

    async fn history_of_subjects<T: StoredTerms>(
        &self,
        filter: &ChangeFilter,
        limit: u32,
    ) -> Result<Vec<Changed<(PolicyName, OfSubject<T>)>>, LedgerError> {
        let history = match &filter.accounts {
            Some(accounts) => {
                let history = filter.bind(T::STATEMENTS.history_of, limit);
                history.bind(accounts.as_slice())
            }
            None => filter.bind(T::STATEMENTS.history, limit),
        };
        let decode = |row: &StoredRow<'_>| Ok((row.get("name")?, decode(row)?));
        self.history(history, decode).await
    }

    /// The last version of an account's override or block, also if it ends there.
    pub async fn of_subject<T: StoredTerms>(
        &self,
        account: AccountId,
    ) -> Result<Option<OfSubject<T>>, LedgerError> {
        last_of_subject(&mut self.reads().await?.lend(), account).await
    }

    /// The versions of an account's override or block up to a place of the record, oldest first.
    pub async fn known_of_subject<T: StoredTerms>(
        &self,
        account: AccountId,
        up_to: RecordPlace,
    ) -> Result<Vec<OfSubject<T>>, LedgerError> {
        let versions = query(T::STATEMENTS.known)
            .bind(account)
            .bind(up_to.xact)
            .bind(up_to.revision);
        self.reads().await?.lend().all(versions, decode).await
    }

    /// A policy's overrides that are not deleted, or its blocks that are not removed, by account after
    /// `after`, at most `limit`.
    pub async fn of_subjects<T: StoredTerms>(
        &self,
        policy: PolicyId,
        after: AccountId,
        limit: u32,
    ) -> Result<Vec<OfSubject<T>>, LedgerError> {
        listed(&mut self.reads().await?.lend(), policy, after, limit).await
    }

    /// All versions of the blocks of a policy, those of an account in their order.
    pub async fn every_block(&self, policy: PolicyId) -> Result<Vec<Block>, LedgerError> {
        let blocks = query(EVERY_BLOCK).bind(policy);
        self.reads().await?.lend().all(blocks, decode).await
    }

    /// Changes a subject's override or block as `decide` says. `decide` gets the policy and the last
    /// version, while no other change is possible. If the subject is being erased, it also gets the
    /// instant of the next step. The outer error is the ledger's, the inner one is `decide`'s. On both
    /// nothing is changed.
    pub async fn edit_of_subject<T: StoredTerms, E: Send>(
        &self,
        policy: &PolicyName,
        subject: &Subject,
        changed_by: &str,
        changed_at: DateTime<Utc>,
        decide: impl Fn(
            Option<&Standing>,
            Option<&OfSubject<T>>,
            Option<DateTime<Utc>>,
        ) -> Result<Change<Option<T>>, E>
        + Send
        + Sync,
    ) -> Result<Result<Edited<OfSubject<T>>, E>, LedgerError> {
        let account = self.identity().account(policy, subject);
        self.change(
            false,
            async |session: &mut Session<'_>| {
                let policy = standing(session, policy, changed_at).await?;
                let erased_at = session.first(query(ERASED_AT).bind(account), only).await?;
                let last = last_of_subject(session, account).await?;
                Ok((last, (policy, erased_at)))
            },
            |before, (policy, erased_at)| decide(policy.as_ref(), before, *erased_at),
            async |session: &mut Session<'_>, _, (policy, _), accepted| {
                let Accepted {
                    revision,
                    terms,
                    reason,
                } = accepted;
                let after = OfSubject {
                    account,
                    policy: policy.ok_or_else(nothing)?.newest.id,
                    subject: Some(subject.clone()),
                    version: 0,
                    revision: narrowed(revision)?,
                    terms,
                    changed_at,
                    changed_by: changed_by.to_owned(),
                    reason,
                };
                insert_version(session, after).await
            },
        )
        .await
    }
}

pub(super) async fn last_of_subject<T: StoredTerms>(
    session: &mut Session<'_>,
    account: AccountId,
) -> Result<Option<OfSubject<T>>, LedgerError> {
    let last = query(T::STATEMENTS.last).bind(account);
    session.first(last, decode).await
}

pub(super) async fn listed<T: StoredTerms>(
    session: &mut Session<'_>,
    policy: PolicyId,
    after: AccountId,
    limit: u32,
) -> Result<Vec<OfSubject<T>>, LedgerError> {
    let listed = query(T::STATEMENTS.listed);
    let listed = listed.bind(policy).bind(after).bind(limit);
    session.all(listed, decode).await
}

/// Inserts a version, with the next number of its account.
pub(super) async fn insert_version<T: StoredTerms>(
    session: &mut Session<'_>,
    version: OfSubject<T>,
) -> Result<OfSubject<T>, LedgerError> {
    let subject = query(
        "INSERT INTO overrides (account, policy, subject, blind) VALUES ($1, $2, $3, $4)
         ON CONFLICT (account) DO NOTHING",
    )
    .bind(version.account)
    .bind(version.policy)
    .bind(version.subject.as_ref().map(Subject::as_str))
    .bind(new_blind());
    session.execute(subject).await?;
    let number =
        query("SELECT COALESCE(MAX(version), 0) + 1 FROM override_versions WHERE account = $1");
    let number: u32 = session.one(number.bind(version.account)).await?;
    let version = OfSubject {
        version: number,
        ..version
    };
    let terms = version.terms.as_ref();
    let insert = query(ADD_VERSION)
        .bind(version.account)
        .bind(version.version)
        .bind(version.revision)
        .bind(T::encode(terms))
        .bind(terms.and_then(SubjectTerms::until))
        .bind(version.changed_at)
        .bind(version.changed_by.as_str())
        .bind(version.reason.as_deref());
    session.execute(insert).await?;
    Ok(version)
}
