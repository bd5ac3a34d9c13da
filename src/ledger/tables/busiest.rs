//! The policies with the most units granted on their present local days, for the metrics.

use std::cmp::Reverse;

use chrono::NaiveDate;
use serde_json::json;

use super::statistics::{PolicyDay, days_of, decode_figure};
use crate::boxed;
use crate::query::{Texts, query};
use crate::{FigureTables, LedgerError};
use domain::policy::PolicyId;

/// Of the days of a JSON array, one array for each with its policy and its date: the figures, not summed,
/// of the $2 days with the most units. The sums are only compared, so they need not be exact: a sum of
/// integers could be too large for SQLite.
macro_rules! busiest {
    ($days:literal, $policy:literal, $date:literal) => {
        concat!(
            "WITH busiest AS (
                SELECT f.policy, f.counted_on FROM ",
            $days,
            " AS d JOIN day_figures AS f ON f.policy = ",
            $policy,
            " AND f.counted_on = ",
            $date,
            "
                WHERE f.figure = 'units'
                GROUP BY f.policy, f.counted_on
                ORDER BY sum(f.value * 1.0) DESC, f.policy LIMIT $2
            ), found AS (
                SELECT b.counted_on, b.policy, f.figure, f.value
                FROM busiest AS b JOIN day_figures AS f
                    ON f.policy = b.policy AND f.counted_on = b.counted_on
                UNION ALL SELECT b.counted_on, b.policy, 'denied_claims', d.denied
                FROM busiest AS b JOIN denied_claims AS d
                    ON d.policy = b.policy AND d.counted_on = b.counted_on
            )
            SELECT found.counted_on, found.policy, p.name AS policy_name, found.figure, found.value
            FROM found JOIN policies AS p ON p.id = found.policy
            ORDER BY found.policy"
        )
    };
}

const BUSIEST: Texts = Texts {
    postgres: busiest!(
        "json_array_elements($1::json)",
        "(d ->> 0)::integer",
        "d ->> 1"
    ),
    sqlite: busiest!("json_each($1)", "d.value ->> 0", "d.value ->> 1"),
};

impl FigureTables {
    /// Of one day of each policy: the `limit` days with the most units granted, most units first. A day
    /// without a grant is left out.
    #[boxed]
    pub async fn busiest_days(
        &self,
        days: &[(PolicyId, NaiveDate)],
        limit: u32,
    ) -> Result<Vec<PolicyDay>, LedgerError> {
        let days = days.iter().map(|(policy, date)| json!([policy.0, date]));
        let days: Vec<serde_json::Value> = days.collect();
        let busiest = query(BUSIEST).bind(json!(days).to_string()).bind(limit);
        let mut held = self.ledger.reads().await?;
        let rows = held.lend().all(busiest, decode_figure).await?;
        let mut found = days_of(rows)?;
        found.sort_by_key(|day| (Reverse(day.figures.units), day.policy.0));
        Ok(found)
    }
}
