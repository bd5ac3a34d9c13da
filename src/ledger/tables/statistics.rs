//! Statistics: the figures of policies' local days, and the entries behind them.

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::json;

use super::open_days::open;
use super::quarters::add_quarters;
use crate::access::Ending;
use crate::boxed;
use crate::encoding::{decode_flags, decode_kind, kind_of_number};
use crate::query::{Session, Texts, query};
use crate::row::{StoredRow, only};
use crate::{FigureTables, LedgerError};
use domain::identity::{AccountId, EntryId};
use domain::kind::Kind;
use domain::line_text::totals_of;
use domain::policy::{PolicyId, PolicyName};
use domain::quarters::QuarterSums;
use domain::record::RecordPlace;
use domain::statistics::{DayFigures, FigureSums, OpenDay, TalliedEntry, sum};

/// The first and the last day. Days are compared as texts, so a year has four digits.
const FIRST_DATE: NaiveDate = NaiveDate::from_ymd_opt(0, 1, 1).expect("a date");
const LAST_DATE: NaiveDate = NaiveDate::from_ymd_opt(9999, 12, 31).expect("a date");

/// Which days to list. They are ordered by day, then by policy.
#[derive(Debug, Clone, Default)]
pub struct FigureFilter {
    pub policy: Option<PolicyId>,
    /// Local days from this one on …
    pub from: Option<NaiveDate>,
    /// … and before this one.
    pub to: Option<NaiveDate>,
    /// What got its position on a local day from this one on …
    pub recorded_from: Option<NaiveDate>,
    /// … and before this one.
    pub recorded_to: Option<NaiveDate>,
    /// Days after this one.
    pub after: Option<(NaiveDate, PolicyId)>,
}

/// The figures of a day.
#[derive(Debug, Clone)]
pub struct PolicyDay {
    pub policy: PolicyId,
    pub policy_name: PolicyName,
    pub date: NaiveDate,
    pub figures: DayFigures,
}

/// What the figures need of the entries after ($1, $2) and up to ($3, $4).
const TALLIED: &str =
    "SELECT e.xact, e.account, e.number, e.policy_id AS policy, e.kind, e.units, e.flags, e.id, e.totals,
        e.of_grant
    FROM counted_entries AS e
    WHERE e.xact >= $1 AND (e.xact, e.id) > ($1, $2)
        AND e.xact <= $3 AND (e.xact, e.id) <= ($3, $4)";

/// For each account and number of a JSON array: at most $2 entries before the number that were
/// appended at $3 or later, newest first. The look at the entry before the number spares most accounts
/// the look at $2 entries, because most accounts have none so new.
const EARLIER: Texts = Texts {
    postgres: "SELECT e.account, e.number, e.at, e.kind, e.id, e.totals
        FROM (
            SELECT account, number
            FROM json_to_recordset($1::json) AS r(account uuid, number bigint)
        ) AS w
        JOIN entries AS e ON e.account = w.account
            AND e.number < w.number AND e.number >= w.number - $2 AND e.at >= $3
        WHERE EXISTS (
            SELECT 1 FROM entries AS b
            WHERE b.account = w.account AND b.number = w.number - 1 AND b.at >= $3
        )
        ORDER BY e.account, e.number DESC",
    sqlite: "SELECT e.account, e.number, e.at, e.kind, e.id, e.totals
        FROM (
            SELECT unhex(replace(value ->> 'account', '-', '')) AS account,
                value ->> 'number' AS number
            FROM json_each($1)
        ) AS w
        JOIN entries AS e ON e.account = w.account
            AND e.number < w.number AND e.number >= w.number - $2 AND e.at >= $3
        WHERE EXISTS (
            SELECT 1 FROM entries AS b
            WHERE b.account = w.account AND b.number = w.number - 1 AND b.at >= $3
        )
        ORDER BY e.account, e.number DESC",
};

/// How far the figures are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiguresMark {
    /// The figures have the entries up to this position.
    pub position: u64,
    /// The local day up to which figures are kept when the others are made again: entries that were
    /// recorded until then may be dropped.
    pub kept_to: Option<NaiveDate>,
}

/// What entries add to the figures.
#[derive(Debug, Default)]
pub struct TalliedFigures {
    pub days: FigureSums,
    /// The days that change.
    pub open_days: BTreeSet<OpenDay>,
    pub quarters: QuarterSums,
}

impl TalliedFigures {
    /// Adds what other entries add.
    pub fn extend(&mut self, others: Self) {
        self.days.extend(others.days);
        self.open_days.extend(others.open_days);
        self.quarters.extend(others.quarters);
    }

    /// How many rows change.
    pub fn rows(&self) -> usize {
        let of_days = self.days.0.values().map(|figures| figures.named().count());
        of_days.sum::<usize>() + self.open_days.len() + self.quarters.0.len()
    }
}

/// An earlier entry of an account, with what the figures need of it.
#[derive(Debug)]
pub struct EarlierEntry {
    pub account: AccountId,
    pub number: u64,
    /// When it was appended. Invariant: no entry before it was appended later, or counts later.
    pub at: DateTime<Utc>,
    /// For a grant: when it counts, and whether it used up a limit.
    pub grant: Option<(DateTime<Utc>, bool)>,
}

const POSITION: &str = "SELECT position FROM day_figures_mark";
const MOVE_POSITION: &str = "UPDATE day_figures_mark SET position = $2 WHERE position = $1
    RETURNING position";
const FIGURES_MARK: &str = "SELECT position, kept_to FROM day_figures_mark";

/// Adds the figures of a JSON array: one array for each figure, with its columns.
const ADD_FIGURES: Texts = Texts {
    postgres: "INSERT INTO day_figures (policy, counted_on, recorded_on, figure, value)
        SELECT (d ->> 0)::integer, d ->> 1, d ->> 2, d ->> 3, (d ->> 4)::bigint
        FROM json_array_elements($1::json) AS d WHERE true
        ON CONFLICT (policy, counted_on, recorded_on, figure)
        DO UPDATE SET value = CASE
            WHEN day_figures.value > 9223372036854775807 - excluded.value THEN 9223372036854775807
            ELSE day_figures.value + excluded.value
        END",
    sqlite: "INSERT INTO day_figures (policy, counted_on, recorded_on, figure, value)
        SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
        FROM json_each($1) WHERE true
        ON CONFLICT (policy, counted_on, recorded_on, figure)
        DO UPDATE SET value = CASE
            WHEN day_figures.value > 9223372036854775807 - excluded.value THEN 9223372036854775807
            ELSE day_figures.value + excluded.value
        END",
};

/// The figures of days, not summed: from the day $1 up to $2, of the policy $3, after ($4, $5), at most
/// $6 days, of what was recorded from $7 up to $8. Denials are recorded on their own day.
const FIGURES: &str = "WITH days AS (
        SELECT * FROM (
            SELECT DISTINCT counted_on, policy FROM day_figures
            WHERE counted_on >= $1 AND counted_on < $2 AND ($3 IS NULL OR policy = $3)
                AND (counted_on, policy) > ($4, $5) AND recorded_on >= $7 AND recorded_on < $8
            ORDER BY counted_on, policy LIMIT $6
        ) AS of_table
        UNION SELECT * FROM (
            SELECT DISTINCT counted_on, policy FROM denied_claims
            WHERE counted_on >= $1 AND counted_on < $2 AND ($3 IS NULL OR policy = $3)
                AND (counted_on, policy) > ($4, $5) AND counted_on >= $7 AND counted_on < $8
            ORDER BY counted_on, policy LIMIT $6
        ) AS of_table
        ORDER BY counted_on, policy LIMIT $6
    ), found AS (
        SELECT f.counted_on, f.policy, f.figure, f.value
        FROM days JOIN day_figures AS f
            ON f.policy = days.policy AND f.counted_on = days.counted_on
        WHERE f.recorded_on >= $7 AND f.recorded_on < $8
        UNION ALL SELECT d.counted_on, d.policy, 'denied_claims', d.denied
        FROM days JOIN denied_claims AS d
            ON d.policy = days.policy AND d.counted_on = days.counted_on
        WHERE d.counted_on >= $7 AND d.counted_on < $8
        UNION ALL SELECT d.counted_on, d.policy, 'denials_not_kept', d.not_kept
        FROM days JOIN denied_claims AS d
            ON d.policy = days.policy AND d.counted_on = days.counted_on
        WHERE d.counted_on >= $7 AND d.counted_on < $8
    )
    SELECT found.counted_on, found.policy, p.name AS policy_name, found.figure, found.value
    FROM found JOIN policies AS p ON p.id = found.policy
    ORDER BY found.counted_on, found.policy";

pub(super) fn decode_tallied(row: &StoredRow<'_>) -> Result<TalliedEntry, LedgerError> {
    let (provisional, would_deny) = decode_flags(row.get("flags")?)?;
    let kind = decode_kind(row.get("kind")?, row.get("of_grant")?, None, None)?;
    let id: EntryId = row.get("id")?;
    Ok(TalliedEntry {
        place: RecordPlace {
            xact: row.get("xact")?,
            id,
            revision: 0,
        },
        account: row.get("account")?,
        number: row.get("number")?,
        policy: row.get("policy")?,
        kind,
        units: row.get("units")?,
        provisional,
        would_deny,
        counted_at: kind.of().unwrap_or(id).at(),
        is_at_limit: is_at_limit(row)?,
    })
}

fn is_at_limit(row: &StoredRow<'_>) -> Result<bool, LedgerError> {
    let totals = totals_of(&row.get::<String>("totals")?)?;
    Ok(totals.iter().any(|total| total.remaining() == 0))
}

fn decode_earlier(row: &StoredRow<'_>) -> Result<EarlierEntry, LedgerError> {
    let id: EntryId = row.get("id")?;
    let kind = kind_of_number(row.get("kind")?)?;
    Ok(EarlierEntry {
        account: row.get("account")?,
        number: row.get("number")?,
        at: row.get("at")?,
        grant: if kind == Kind::Grant {
            Some((id.at(), is_at_limit(row)?))
        } else {
            None
        },
    })
}

/// Figures as JSON, so that one statement adds all.
fn encode_figures(figures: &FigureSums) -> String {
    let rows = figures.0.iter().flat_map(|(day, figures)| {
        let row = |(name, figure): (&'static str, u64)| {
            json!([day.policy.0, day.counted_on, day.recorded_on, name, figure])
        };
        figures.named().map(row)
    });
    json!(rows.collect::<Vec<_>>()).to_string()
}

/// A figure that is not summed: the day, its name, and its value.
pub(super) type FigureRow = (PolicyDay, String, u64);

/// A row of [`FIGURES`].
pub(super) fn decode_figure(row: &StoredRow<'_>) -> Result<FigureRow, LedgerError> {
    let day = PolicyDay {
        policy: row.get("policy")?,
        policy_name: row.get("policy_name")?,
        date: row.get("counted_on")?,
        figures: DayFigures::default(),
    };
    Ok((day, row.get("figure")?, row.get("value")?))
}

impl FigureTables {
    /// The position up to which the figures are made.
    #[boxed]
    pub async fn figures_position(&self) -> Result<u64, LedgerError> {
        self.ledger.reads().await?.lend().one(query(POSITION)).await
    }

    /// How far the figures are made, for the follower.
    #[boxed]
    pub async fn figures_to_follow(&self) -> Result<FiguresMark, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            Ok(FiguresMark {
                position: row.get("position")?,
                kept_to: row.get("kept_to")?,
            })
        };
        let mut held = self.ledger.own().await?;
        let mark = held.lend().first(query(FIGURES_MARK), decode).await?;
        Ok(mark.ok_or(sqlx::Error::RowNotFound)?)
    }

    /// What the figures need of the entries after a place and up to another, by transaction and number.
    #[boxed]
    pub async fn tallied_entries(
        &self,
        after: RecordPlace,
        up_to: RecordPlace,
    ) -> Result<Vec<TalliedEntry>, LedgerError> {
        let tallied = query(TALLIED)
            .bind(after.xact)
            .bind(after.id)
            .bind(up_to.xact)
            .bind(up_to.id);
        let mut held = self.ledger.own().await?;
        let mut entries = held.lend().many(tallied, decode_tallied).await?;
        // The store would sort whole rows.
        entries.sort_unstable_by_key(|entry| (entry.place.xact, entry.number));
        Ok(entries)
    }

    /// For each account, the entries before a number that were appended at an instant or later;
    /// newest first, at most `limit` of each account.
    #[boxed]
    pub async fn earlier_entries(
        &self,
        accounts: &[(AccountId, u64)],
        since: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<EarlierEntry>, LedgerError> {
        let wanted = accounts
            .iter()
            .map(|(account, number)| json!({ "account": account.0, "number": number }));
        let wanted: Vec<serde_json::Value> = wanted.collect();
        let earlier = query(EARLIER)
            .bind(json!(wanted).to_string())
            .bind(limit)
            .bind(since);
        let mut held = self.ledger.own().await?;
        held.lend().many(earlier, decode_earlier).await
    }

    /// Adds the positions above `after` and up to `position` to the figures, and opens their days.
    /// Returns false and adds nothing if another instance did so.
    #[boxed]
    pub async fn add_figures(
        &self,
        after: u64,
        position: u64,
        figures: &TalliedFigures,
        now: DateTime<Utc>,
    ) -> Result<bool, LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                let moved = query(MOVE_POSITION).bind(after).bind(position);
                if session.first(moved, only::<i64>).await?.is_none() {
                    return Ok(Ending::Rollback(false));
                }
                // Figures change only on open days.
                open(&mut session, figures.open_days.iter().copied(), now).await?;
                if !figures.days.0.is_empty() {
                    let add = query(ADD_FIGURES).bind(encode_figures(&figures.days));
                    session.execute(add).await?;
                }
                add_quarters(&mut session, &figures.quarters).await?;
                Ok(Ending::Commit(true))
            })
            .await
    }

    /// The figures of days, oldest first, at most `limit` days.
    #[boxed]
    pub async fn figures(
        &self,
        filter: &FigureFilter,
        limit: u32,
    ) -> Result<Vec<PolicyDay>, LedgerError> {
        figures_in(&mut self.ledger.reads().await?.lend(), filter, limit).await
    }
}

/// As [`FigureTables::figures`], on a connection.
pub(super) async fn figures_in(
    session: &mut Session<'_>,
    filter: &FigureFilter,
    limit: u32,
) -> Result<Vec<PolicyDay>, LedgerError> {
    let first = FIRST_DATE;
    let last = LAST_DATE;
    let (date, policy) = filter.after.unwrap_or((first, PolicyId(0)));
    let list = query(FIGURES)
        .bind(filter.from.unwrap_or(first).max(date))
        .bind(filter.to.unwrap_or(last))
        .bind(filter.policy)
        .bind(date)
        .bind(policy)
        .bind(limit)
        .bind(filter.recorded_from.unwrap_or(first))
        .bind(filter.recorded_to.unwrap_or(last));
    let rows = session.all(list, decode_figure).await?;
    days_of(rows)
}

/// The days of rows in which the figures of a day follow each other.
pub(super) fn days_of(rows: Vec<FigureRow>) -> Result<Vec<PolicyDay>, LedgerError> {
    let mut days: Vec<PolicyDay> = Vec::new();
    for (day, name, figure) in rows {
        let is_same = |last: &PolicyDay| (last.date, last.policy) == (day.date, day.policy);
        if !days.last().is_some_and(is_same) {
            days.push(day);
        }
        let figures = days.last_mut().map(|day| &mut day.figures);
        let unknown = || LedgerError::Corrupt(format!("the figure {name:?}"));
        let found = figures.and_then(|figures| figures.named_mut(&name));
        let found = found.ok_or_else(unknown)?;
        *found = sum(*found, figure);
    }
    Ok(days)
}
