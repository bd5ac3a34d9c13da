//! Overrides, blocks and tiers of subjects, and their versions. All are versions of what a policy has for
//! one subject, in the same table: `ledger/subject_encoding.rs` says how they are told apart.

use chrono::{DateTime, Utc};

use super::policies::{Standing, standing};
use super::versions::{Accepted, Change, ChangeFilter, Changed, Edited, nothing};
use crate::boxed;
use crate::encoding::narrowed;
use crate::query::{Session, Texts, query};
use crate::row::{StoredRow, only};
use crate::subject_encoding::{
    decode_blocked, decode_override, decode_tier, encode_blocked, encode_override, encode_tier,
};
use crate::{AdminTables, LedgerError, RecordTables, new_blind};
use domain::blocks::{BlockTerms, SubjectTerms};
use domain::claim::Subject;
use domain::exceptions::ExceptionVersions;
use domain::identity::AccountId;
use domain::overrides::{OfSubject, OverrideTerms, UnreadableOfSubject};
use domain::policy::{PolicyId, PolicyName};
use domain::record::RecordPlace;
use domain::schedule::UnreadableTerms;
use domain::subject_tier::TierTerms;

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

/// The statements about one kind of these terms.
pub struct SubjectStatements {
    /// The last versions up to the revision $2 of what changed above $1.
    between: &'static str,
    /// See [`ChangeFilter::bind`].
    history: &'static str,
    /// The same of the accounts $7.
    history_of: Texts,
    /// The versions up to the place ($2, $3) of the record.
    known: &'static str,
    /// All versions of a policy, those of an account in their order.
    every: &'static str,
    last: &'static str,
    listed: &'static str,
}

/// The history of versions of a kind, of all accounts or of `$accounts`.
macro_rules! history {
    ($kind:literal, $accounts:literal) => {
        concat!(
            "SELECT listed.revision AS listed, v.* FROM (
                SELECT v.account, v.version, v.revision
                FROM override_versions AS v JOIN overrides AS o ON o.account = v.account AND v.kind = '",
            $kind,
            "'
                WHERE v.revision < $1 AND ($2 IS NULL OR v.changed_at >= $2)
                    AND ($3 IS NULL OR v.changed_at < $3) AND ($6 IS NULL OR v.changed_by = $6)
                    AND ($5 IS NULL OR o.policy = $5)",
            $accounts,
            "
                ORDER BY v.revision DESC LIMIT $4
            ) AS listed
            JOIN override_rows AS v ON v.account = listed.account AND v.version IN (listed.version, (
                SELECT MAX(w.version) FROM override_versions AS w
                WHERE w.account = listed.account AND w.version < listed.version
                    AND w.kind = '",
            $kind,
            "'
            ))
            ORDER BY listed.revision DESC, v.version DESC"
        )
    };
}

/// The statements about versions of one kind. `$stands` says that a version has terms.
macro_rules! statements {
    ($kind:literal, $stands:literal) => {
        SubjectStatements {
            between: concat!(
                "SELECT * FROM override_rows AS v
                WHERE v.kind = '",
                $kind,
                "' AND v.revision > $1 AND v.revision <= $2 AND NOT EXISTS (
                    SELECT 1 FROM override_versions AS w
                    WHERE w.account = v.account AND w.version > v.version AND w.revision <= $2
                        AND w.kind = '",
                $kind,
                "'
                ) ORDER BY v.revision"
            ),
            history: history!($kind, ""),
            history_of: Texts {
                postgres: history!($kind, " AND v.account = ANY($7)"),
                sqlite: history!(
                    $kind,
                    " AND v.account IN (SELECT unhex(value) FROM json_each($7))"
                ),
            },
            known: concat!(
                "SELECT * FROM override_rows
                WHERE kind = '",
                $kind,
                "' AND account = $1 AND (xact, revision) <= ($2, $3) ORDER BY version"
            ),
            every: concat!(
                "SELECT * FROM override_rows
                WHERE kind = '",
                $kind,
                "' AND policy_id = $1 ORDER BY account, version"
            ),
            last: concat!(
                "SELECT * FROM override_rows
                WHERE kind = '",
                $kind,
                "' AND account = $1 ORDER BY version DESC LIMIT 1"
            ),
            listed: concat!(
                "SELECT * FROM override_rows AS v
                WHERE v.policy_id = $1 AND v.account > $2 AND ",
                $stands,
                " AND v.version = (
                    SELECT MAX(w.version) FROM override_versions AS w
                    WHERE w.account = v.account AND w.kind = '",
                $kind,
                "'
                ) ORDER BY v.account LIMIT $3"
            ),
        }
    };
}

const OVERRIDES: SubjectStatements = statements!("override", "v.limits IS NOT NULL");
const BLOCKS: SubjectStatements = statements!("block", r#"v.limits = '{"blocked":true}'"#);
const TIERS: SubjectStatements = statements!("tier", r#"v.limits <> '{"tier":null}'"#);

impl StoredTerms for OverrideTerms {
    const WHAT: &'static str = "an override";
    const STATEMENTS: SubjectStatements = OVERRIDES;

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
    const STATEMENTS: SubjectStatements = BLOCKS;

    fn decode(text: Option<&str>, until: Option<DateTime<Utc>>) -> Result<Option<Self>, String> {
        Ok(decode_blocked(text)?.then_some(Self { until }))
    }

    fn encode(terms: Option<&Self>) -> Option<String> {
        Some(encode_blocked(terms.is_some()))
    }
}

impl StoredTerms for TierTerms {
    const WHAT: &'static str = "a subject's tier";
    const STATEMENTS: SubjectStatements = TIERS;

    fn decode(text: Option<&str>, until: Option<DateTime<Utc>>) -> Result<Option<Self>, String> {
        Ok(decode_tier(text)?.map(|tier| Self { tier, until }))
    }

    fn encode(terms: Option<&Self>) -> Option<String> {
        Some(encode_tier(terms.map(|terms| &terms.tier)))
    }
}

fn decode<T: StoredTerms>(row: &StoredRow<'_>) -> Result<OfSubject<T>, LedgerError> {
    let policy: PolicyId = row.get("policy_id")?;
    let limits: Option<String> = row.get("limits")?;
    let terms = match T::decode(limits.as_deref(), row.get("until")?) {
        Ok(terms) => terms,
        Err(why) => {
            let name = row.get("policy")?;
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

const ADD_VERSION: Texts = Texts {
    postgres: "INSERT INTO override_versions
            (account, version, revision, limits, until, changed_at, changed_by, reason)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    sqlite: "INSERT INTO override_versions
            (account, version, revision, limits, until, changed_at, changed_by, reason, xact)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
            (SELECT COALESCE(MAX(xact), 0) FROM entries))",
};

impl AdminTables {
    /// The last versions, up to a revision, of the terms of a kind that changed after another revision, in the order of their changes.
    pub async fn of_subjects_between<T: StoredTerms>(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<Result<OfSubject<T>, UnreadableOfSubject>>, LedgerError> {
        self.between(T::STATEMENTS.between, after, up_to, decode_stored::<T>)
            .await
    }

    /// The changes of one kind, newest first, with the version before each.
    pub(super) async fn history_of_subjects<T: StoredTerms>(
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
        let decode = |row: &StoredRow<'_>| Ok((row.get("policy")?, decode(row)?));
        self.history(history, decode).await
    }

    /// The last version of an account's terms of a kind, also if it ends there.
    pub async fn of_subject<T: StoredTerms>(
        &self,
        account: AccountId,
    ) -> Result<Option<OfSubject<T>>, LedgerError> {
        last_of_subject(&mut self.ledger.reads().await?.lend(), account).await
    }

    /// A policy's overrides that are not deleted, or its blocks that are not removed, by account after
    /// `after`, at most `limit`.
    pub async fn of_subjects<T: StoredTerms>(
        &self,
        policy: PolicyId,
        after: AccountId,
        limit: u32,
    ) -> Result<Vec<OfSubject<T>>, LedgerError> {
        listed(&mut self.ledger.reads().await?.lend(), policy, after, limit).await
    }

    /// All versions of the exceptions of a policy, those of an account in their order.
    #[boxed]
    pub async fn every_exception(
        &self,
        policy: PolicyId,
    ) -> Result<ExceptionVersions, LedgerError> {
        let mut held = self.ledger.reads().await?;
        let mut session = held.lend();
        Ok(ExceptionVersions {
            tiers: every_of_policy(&mut session, policy).await?,
            overrides: every_of_policy(&mut session, policy).await?,
            blocks: every_of_policy(&mut session, policy).await?,
        })
    }

    /// Changes a subject's terms of a kind as `decide` says. `decide` gets the policy and the last
    /// version, while no other change is possible. If the subject is being erased, it also gets the
    /// instant of the next step. The outer error is the ledger's, the inner one is `decide`'s. On both,
    /// and in a dry run, nothing is changed.
    pub async fn edit_of_subject<T: StoredTerms, E: Send>(
        &self,
        policy: &PolicyName,
        subject: &Subject,
        changed_by: &str,
        changed_at: DateTime<Utc>,
        dry_run: bool,
        decide: impl Fn(
            Option<&Standing>,
            Option<&OfSubject<T>>,
            Option<DateTime<Utc>>,
        ) -> Result<Change<Option<T>>, E>
        + Send
        + Sync,
    ) -> Result<Result<Edited<OfSubject<T>>, E>, LedgerError> {
        let account = self.ledger.identity().account(policy, subject);
        self.change(
            dry_run,
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

impl RecordTables {
    /// The versions of an account's exceptions up to a place of the record.
    #[boxed]
    pub async fn known_exceptions(
        &self,
        account: AccountId,
        up_to: RecordPlace,
    ) -> Result<ExceptionVersions, LedgerError> {
        let mut held = self.ledger.reads().await?;
        let mut session = held.lend();
        Ok(ExceptionVersions {
            tiers: known_of_subject(&mut session, account, up_to).await?,
            overrides: known_of_subject(&mut session, account, up_to).await?,
            blocks: known_of_subject(&mut session, account, up_to).await?,
        })
    }
}

async fn every_of_policy<T: StoredTerms>(
    session: &mut Session<'_>,
    policy: PolicyId,
) -> Result<Vec<OfSubject<T>>, LedgerError> {
    let every = query(T::STATEMENTS.every).bind(policy);
    session.all(every, decode).await
}

async fn known_of_subject<T: StoredTerms>(
    session: &mut Session<'_>,
    account: AccountId,
    up_to: RecordPlace,
) -> Result<Vec<OfSubject<T>>, LedgerError> {
    let versions = query(T::STATEMENTS.known)
        .bind(account)
        .bind(up_to.xact)
        .bind(up_to.revision);
    session.all(versions, decode).await
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
