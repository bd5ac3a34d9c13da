//! The figures of quarter hours, for charts. They are no part of the record.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::access::Ending;
use crate::boxed;
use crate::query::{Session, Texts, query};
use crate::row::StoredRow;
use crate::{FigureTables, LedgerError};
use domain::policy::{PolicyId, PolicyName};
use domain::quarters::{PolicyQuarter, QUARTERS_KEPT, QuarterFigures, QuarterSums};

/// The statements of lists, by name, for a test that reads their plans.
#[cfg(feature = "faults")]
pub(super) fn texts() -> Vec<(String, Texts)> {
    vec![
        ("quarters of all".to_owned(), QUARTERS_OF_ALL.into()),
        ("quarters of policy".to_owned(), QUARTERS_OF_POLICY.into()),
    ]
}

/// Which quarter hours to list: those that begin in the span from one instant up to another, after a place.
/// They are ordered by their starts, then by policy.
#[derive(Debug, Clone, Copy)]
pub struct QuarterFilter {
    pub policy: Option<PolicyId>,
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    pub after: (DateTime<Utc>, PolicyId),
}

/// A quarter hour with its figures.
#[derive(Debug)]
pub struct ListedQuarter {
    pub quarter: PolicyQuarter,
    pub policy: PolicyName,
    pub figures: QuarterFigures,
    pub denied_claims: u64,
}

/// Adds the figures of `$rows` to those that are there.
macro_rules! add_quarters {
    ($rows:literal) => {
        concat!(
            "INSERT INTO quarter_figures (policy, starts_at, grants, units, given_back_units) ",
            $rows,
            " ON CONFLICT (policy, starts_at) DO UPDATE SET
            grants = quarter_figures.grants + excluded.grants,
            units = CASE
                WHEN quarter_figures.units > 9223372036854775807 - excluded.units
                THEN 9223372036854775807 ELSE quarter_figures.units + excluded.units
            END,
            given_back_units = CASE
                WHEN quarter_figures.given_back_units > 9223372036854775807 - excluded.given_back_units
                THEN 9223372036854775807
                ELSE quarter_figures.given_back_units + excluded.given_back_units
            END"
        )
    };
}

/// Adds the figures of a JSON array: one array for each quarter hour, with its columns. Those that began more
/// than $2 seconds before the newest mark are left out, so that figures of years are made again without them. The
/// clock of a mark is right, that of an instance may not be.
const ADD_QUARTERS: Texts = Texts {
    postgres: add_quarters!(
        "SELECT (q ->> 0)::integer, to_timestamp((q ->> 1)::bigint), (q ->> 2)::bigint,
            (q ->> 3)::bigint, (q ->> 4)::bigint
        FROM json_array_elements($1::json) AS q
        WHERE to_timestamp((q ->> 1)::bigint) >= (
            SELECT recorded_at - $2::bigint * interval '1 second'
            FROM record_marks ORDER BY after DESC LIMIT 1
        )"
    ),
    sqlite: add_quarters!(
        "SELECT value ->> 0, (value ->> 1) * 1000000, value ->> 2, value ->> 3, value ->> 4
        FROM json_each($1)
        WHERE (value ->> 1) * 1000000 >= (
            SELECT recorded_at - $2 * 1000000 FROM record_marks ORDER BY after DESC LIMIT 1
        )"
    ),
};

/// Stores the denials of the run $1 in a JSON array: one array for each quarter hour, with its columns.
const SAVE_DENIED: Texts = Texts {
    postgres: "INSERT INTO quarter_denials (run, policy, starts_at, denied)
        SELECT $1, (q ->> 0)::integer, to_timestamp((q ->> 1)::bigint), (q ->> 2)::bigint
        FROM json_array_elements($2::json) AS q WHERE true
        ON CONFLICT (policy, starts_at, run) DO UPDATE SET denied = excluded.denied",
    sqlite: "INSERT INTO quarter_denials (run, policy, starts_at, denied)
        SELECT $1, value ->> 0, (value ->> 1) * 1000000, value ->> 2
        FROM json_each($2) WHERE true
        ON CONFLICT (policy, starts_at, run) DO UPDATE SET denied = excluded.denied",
};

/// The quarter hours of `$of` that begin from $1 up to $2, after ($3, $4), at most $5.
macro_rules! quarters_of {
    ($of:literal) => {
        concat!(
            "WITH found AS (
                SELECT * FROM (
                    SELECT starts_at, policy FROM quarter_figures
                    WHERE starts_at >= $1 AND starts_at < $2 AND (starts_at, policy) > ($3, $4)",
            $of,
            "
                    ORDER BY starts_at, policy LIMIT $5
                ) AS first
                UNION SELECT * FROM (
                    SELECT DISTINCT starts_at, policy FROM quarter_denials
                    WHERE starts_at >= $1 AND starts_at < $2 AND (starts_at, policy) > ($3, $4)",
            $of,
            "
                    ORDER BY starts_at, policy LIMIT $5
                ) AS first
                ORDER BY starts_at, policy LIMIT $5
            )
            SELECT found.starts_at, found.policy, p.name AS policy_name,
                COALESCE(f.grants, 0) AS grants, COALESCE(f.units, 0) AS units,
                COALESCE(f.given_back_units, 0) AS given_back_units,
                COALESCE((
                    SELECT CAST(sum(d.denied) AS bigint) FROM quarter_denials AS d
                    WHERE d.policy = found.policy AND d.starts_at = found.starts_at
                ), 0) AS denied_claims
            FROM found JOIN policies AS p ON p.id = found.policy
            LEFT JOIN quarter_figures AS f
                ON f.policy = found.policy AND f.starts_at = found.starts_at
            ORDER BY found.starts_at, found.policy"
        )
    };
}
const QUARTERS_OF_ALL: &str = quarters_of!("");
const QUARTERS_OF_POLICY: &str = quarters_of!(" AND policy = $6");

/// Deletes at most $2 rows of quarter hours before an instant, the oldest first.
const FORGET_FIGURES: &str = "DELETE FROM quarter_figures WHERE (policy, starts_at) IN (
        SELECT policy, starts_at FROM quarter_figures
        WHERE starts_at < $1 ORDER BY starts_at LIMIT $2
    )";
const FORGET_DENIALS: &str = "DELETE FROM quarter_denials WHERE (policy, starts_at, run) IN (
        SELECT policy, starts_at, run FROM quarter_denials
        WHERE starts_at < $1 ORDER BY starts_at LIMIT $2
    )";

fn decode(row: &StoredRow<'_>) -> Result<ListedQuarter, LedgerError> {
    Ok(ListedQuarter {
        quarter: PolicyQuarter::of(row.get("policy")?, row.get("starts_at")?),
        policy: row.get("policy_name")?,
        figures: QuarterFigures {
            grants: row.get("grants")?,
            units: row.get("units")?,
            given_back_units: row.get("given_back_units")?,
        },
        denied_claims: row.get("denied_claims")?,
    })
}

/// A JSON array with an array for each quarter hour: its policy, its start, and its values.
fn encode<const N: usize>(rows: impl Iterator<Item = (PolicyQuarter, [u64; N])>) -> String {
    let rows = rows.map(|(quarter, values)| {
        let columns = [
            json!(quarter.policy().0),
            json!(quarter.starts_at().timestamp()),
        ];
        let values = values.into_iter().map(Value::from);
        Value::Array(columns.into_iter().chain(values).collect())
    });
    Value::Array(rows.collect()).to_string()
}

/// Adds figures, in the transaction that adds those of days.
pub(super) async fn add_quarters(
    session: &mut Session<'_>,
    QuarterSums(quarters): &QuarterSums,
) -> Result<(), LedgerError> {
    if quarters.is_empty() {
        return Ok(());
    }
    let rows = quarters.iter().map(|(quarter, figures)| {
        let values = [figures.grants, figures.units, figures.given_back_units];
        (*quarter, values)
    });
    let add = query(ADD_QUARTERS)
        .bind(encode(rows))
        .bind(QUARTERS_KEPT.num_seconds());
    session.execute(add).await
}

impl FigureTables {
    /// Stores how many claims a run of an instance has denied so far in quarter hours. A second write of the
    /// same changes nothing.
    pub async fn save_quarter_denials(
        &self,
        run: Uuid,
        denied: impl Iterator<Item = (PolicyQuarter, u64)>,
    ) -> Result<(), LedgerError> {
        let rows = encode(denied.map(|(quarter, denied)| (quarter, [denied])));
        self.ledger
            .own_edit(async |mut session| {
                let save = query(SAVE_DENIED).bind(run).bind(rows.as_str());
                session.execute(save).await?;
                Ok(Ending::Commit(()))
            })
            .await
    }

    /// The figures of quarter hours, oldest first, at most `limit`.
    #[boxed]
    pub async fn quarters(
        &self,
        filter: &QuarterFilter,
        limit: u32,
    ) -> Result<Vec<ListedQuarter>, LedgerError> {
        let text = match filter.policy {
            Some(_) => QUARTERS_OF_POLICY,
            None => QUARTERS_OF_ALL,
        };
        let (starts_at, policy) = filter.after;
        let mut list = query(text)
            .bind(filter.from)
            .bind(filter.to)
            .bind(starts_at)
            .bind(policy)
            .bind(limit);
        if let Some(policy) = filter.policy {
            list = list.bind(policy);
        }
        self.ledger.reads().await?.lend().all(list, decode).await
    }

    /// Deletes the figures of quarter hours that began before an instant: at most `limit` rows of each table.
    #[boxed]
    pub async fn forget_quarters(
        &self,
        before: DateTime<Utc>,
        limit: u32,
    ) -> Result<(), LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                for forget in [FORGET_FIGURES, FORGET_DENIALS] {
                    let forget = query(forget).bind(before).bind(limit);
                    session.execute(forget).await?;
                }
                Ok(Ending::Commit(()))
            })
            .await
    }
}
