//! Open days: days whose figures have changed since they were recorded.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::LedgerError;
use crate::query::{Session, Texts, query};
use domain::statistics::OpenDay;

/// Opens the days of a JSON array: one array for each day, with its columns. Ordered by policy
/// and day: instances that open the same days take the rows in the same order.
const OPEN: Texts = Texts {
    postgres: "INSERT INTO open_days (policy, counted_on, ends_at, changed_at)
        SELECT (d ->> 0)::integer, d ->> 1, (d ->> 2)::timestamptz, $2
        FROM json_array_elements($1::json) AS d
        WHERE true ORDER BY 1, 2
        ON CONFLICT (policy, counted_on)
        DO UPDATE SET ends_at = excluded.ends_at, changed_at = excluded.changed_at",
    sqlite: "INSERT INTO open_days (policy, counted_on, ends_at, changed_at)
        SELECT value ->> 0, value ->> 1, value ->> 3, $2 FROM json_each($1)
        WHERE true ORDER BY 1, 2
        ON CONFLICT (policy, counted_on)
        DO UPDATE SET ends_at = excluded.ends_at, changed_at = excluded.changed_at",
};

/// Marks days as changed.
pub(super) async fn open(
    session: &mut Session<'_>,
    days: impl Iterator<Item = OpenDay>,
    now: DateTime<Utc>,
) -> Result<(), LedgerError> {
    // One row for each day: the last end counts.
    let days: BTreeMap<_, _> = days
        .map(|day| ((day.policy, day.counted_on), day))
        .collect();
    if days.is_empty() {
        return Ok(());
    }
    let row = |day: &OpenDay| {
        let micros = day.ends_at.timestamp_micros();
        json!([day.policy.0, day.counted_on, day.ends_at, micros])
    };
    let rows: Vec<serde_json::Value> = days.values().map(row).collect();
    let open = query(OPEN).bind(json!(rows).to_string()).bind(now);
    session.execute(open).await
}
