//! Denials: how many there were, and the first one of each window.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::open_days::open;
use crate::access::Ending;
use crate::boxed;
#[cfg(feature = "faults")]
use crate::query::Texts;
use crate::query::query;
use crate::row::StoredRow;
use crate::{FigureTables, LedgerError};
use domain::identity::AccountId;
use domain::limit::text::encode_totals;
use domain::line_text::totals_of;
use domain::policy::{PolicyId, PolicyName};
use domain::statistics::{DenialCount, DeniedOn, FirstDenial, OpenDay};
use domain::window::Window;

/// The statements of lists, by name, for a test that reads their plans.
#[cfg(feature = "faults")]
pub(super) fn texts() -> Vec<(String, Texts)> {
    vec![
        ("denials of all".to_owned(), DENIALS_OF_ALL.into()),
        ("denials of policy".to_owned(), DENIALS_OF_POLICY.into()),
    ]
}

/// Which first denials to list: in the span from one instant up to another, of a policy or of all.
#[derive(Debug, Clone, Copy)]
pub struct DenialFilter {
    pub policy: Option<PolicyId>,
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
}

/// A place in the list of first denials.
#[derive(Debug, Clone, Copy)]
pub struct DenialPlace {
    pub denied_at: DateTime<Utc>,
    pub account: AccountId,
    pub window_start: DateTime<Utc>,
}

/// A first denial with its names.
#[derive(Debug)]
pub struct ListedDenial {
    pub denial: FirstDenial,
    pub policy: PolicyName,
    /// `None` where the ledger does not know the subject's text: it has no entry, override or block of the
    /// subject, or the subject was erased.
    pub subject: Option<String>,
}

const SAVE_DENIED: &str = "INSERT INTO denied_claims (run, policy, counted_on, denied, not_kept)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (run, policy, counted_on)
    DO UPDATE SET denied = excluded.denied, not_kept = excluded.not_kept";
const ADD_FIRST_DENIAL: &str = "INSERT INTO first_denials
    (policy, account, per, window_start, denied_at, units, policy_version, totals)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (account, per, window_start) DO NOTHING";
const FIRST_DENIALS: &str =
    "SELECT policy, account, per, window_start, denied_at, units, policy_version, totals
    FROM first_denials WHERE account = $1 AND (denied_at, window_start) < ($2, $3)
    ORDER BY denied_at DESC, window_start DESC LIMIT $4";
/// The first denials of `$of`, in the span from $1 up to $2, after the place ($3, $4, $5) in the list, at most $6.
macro_rules! denials_of {
    ($of:literal) => {
        concat!(
            "SELECT first.*, p.name AS policy_name, COALESCE(a.subject, o.subject) AS subject
            FROM (
                SELECT * FROM first_denials
                WHERE denied_at >= $1 AND denied_at < $2 AND denied_at <= $3
                    AND (denied_at, account, window_start) < ($3, $4, $5)",
            $of,
            "
                ORDER BY denied_at DESC, account DESC, window_start DESC LIMIT $6
            ) AS first
            JOIN policies AS p ON p.id = first.policy
            LEFT JOIN accounts AS a ON a.id = first.account
            LEFT JOIN overrides AS o ON o.account = first.account
            ORDER BY first.denied_at DESC, first.account DESC, first.window_start DESC"
        )
    };
}
const DENIALS_OF_ALL: &str = denials_of!("");
const DENIALS_OF_POLICY: &str = denials_of!(" AND policy = $7");
/// Deletes at most $2 first denials before an instant, the oldest first.
const FORGET_DENIALS: &str = "DELETE FROM first_denials WHERE (account, per, window_start) IN (
        SELECT account, per, window_start FROM first_denials
        WHERE denied_at < $1 ORDER BY denied_at LIMIT $2
    )";

fn decode_denial(row: &StoredRow<'_>) -> Result<FirstDenial, LedgerError> {
    let totals = totals_of(&row.get::<String>("totals")?)?;
    let per: String = row.get("per")?;
    let start: DateTime<Utc> = row.get("window_start")?;
    let denied_at: DateTime<Utc> = row.get("denied_at")?;
    let mut windows = totals.iter().map(|total| total.denied_in(denied_at));
    let window = windows.find(|(of, window)| of.to_string() == per && window.start == start);
    Ok(FirstDenial {
        policy: row.get("policy")?,
        account: row.get("account")?,
        denied_at,
        units: row.get("units")?,
        policy_version: row.get("policy_version")?,
        window: window.ok_or_else(|| LedgerError::Corrupt(format!("a denial of no {per}")))?,
        totals,
    })
}

fn decode_listed_denial(row: &StoredRow<'_>) -> Result<ListedDenial, LedgerError> {
    Ok(ListedDenial {
        denial: decode_denial(row)?,
        policy: row.get("policy_name")?,
        subject: row.get("subject")?,
    })
}

impl FigureTables {
    /// Stores how many claims a run of an instance has denied so far, and first denials. A second
    /// write of the same changes nothing.
    #[boxed]
    pub async fn save_denials(
        &self,
        run: Uuid,
        denied: &[(DeniedOn, DenialCount)],
        first: &[FirstDenial],
        open_days: &BTreeSet<OpenDay>,
        now: DateTime<Utc>,
    ) -> Result<(), LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                // Counts change only on open days.
                open(&mut session, open_days.iter().copied(), now).await?;
                for (of, count) in denied {
                    let save = query(SAVE_DENIED)
                        .bind(run)
                        .bind(of.policy)
                        .bind(of.date)
                        .bind(count.denied)
                        .bind(count.not_kept);
                    session.execute(save).await?;
                }
                for denial in first {
                    let (per, Window { start, .. }) = denial.window;
                    let add = query(ADD_FIRST_DENIAL)
                        .bind(denial.policy)
                        .bind(denial.account)
                        .bind(per.to_string())
                        .bind(start)
                        .bind(denial.denied_at)
                        .bind(denial.units)
                        .bind(denial.policy_version)
                        .bind(encode_totals(&denial.totals));
                    session.execute(add).await?;
                }
                Ok(Ending::Commit(()))
            })
            .await
    }

    /// An account's first denials, newest first, at most `limit`: those before an instant, or at
    /// this instant with a window that begins before another.
    #[boxed]
    pub async fn first_denials(
        &self,
        account: AccountId,
        (denied_at, window_start): (DateTime<Utc>, DateTime<Utc>),
        limit: u32,
    ) -> Result<Vec<FirstDenial>, LedgerError> {
        let list = query(FIRST_DENIALS)
            .bind(account)
            .bind(denied_at)
            .bind(window_start)
            .bind(limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(list, decode_denial)
            .await
    }

    /// First denials of all subjects, newest first, at most `limit`: those after a place in the list.
    #[boxed]
    pub async fn listed_denials(
        &self,
        filter: &DenialFilter,
        after: DenialPlace,
        limit: u32,
    ) -> Result<Vec<ListedDenial>, LedgerError> {
        let text = match filter.policy {
            Some(_) => DENIALS_OF_POLICY,
            None => DENIALS_OF_ALL,
        };
        let mut list = query(text)
            .bind(filter.from)
            .bind(filter.to)
            .bind(after.denied_at)
            .bind(after.account)
            .bind(after.window_start)
            .bind(limit);
        if let Some(policy) = filter.policy {
            list = list.bind(policy);
        }
        self.ledger
            .reads()
            .await?
            .lend()
            .all(list, decode_listed_denial)
            .await
    }

    /// Deletes first denials before an instant, at most `limit`.
    #[boxed]
    pub async fn forget_denials(
        &self,
        before: DateTime<Utc>,
        limit: u32,
    ) -> Result<(), LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                let forget = query(FORGET_DENIALS).bind(before).bind(limit);
                session.execute(forget).await?;
                Ok(Ending::Commit(()))
            })
            .await
    }
}
