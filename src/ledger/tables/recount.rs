//! All figures as the ledger has them, to compare them with the entries and with the record.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use serde::Deserialize;

use super::statistics::FiguresMark;
use crate::domain::policy::{PolicyId, PolicyName};
use crate::domain::statistics::{DenialCount, FigureDay, sum};
use crate::ledger::query::query;
use crate::ledger::row::StoredRow;
use crate::ledger::{Ledger, LedgerError};

/// All figures of one moment, and how far they are made.
#[derive(Debug)]
pub struct StoredFigures {
    pub mark: FiguresMark,
    pub figures: Vec<StoredFigure>,
    pub policies: BTreeMap<PolicyId, PolicyName>,
}

#[derive(Debug)]
pub struct StoredFigure {
    pub day: FigureDay,
    pub name: String,
    pub value: u64,
}

/// What an act tells of a day.
#[derive(Debug, Deserialize)]
pub struct ToldDay {
    pub policy: String,
    pub date: NaiveDate,
    pub figures: BTreeMap<String, u64>,
}

/// A local day of a policy by its name.
pub type NamedDay = (String, NaiveDate);

/// The mark comes with every figure, so that both are of one moment.
const STORED: &str = "SELECT m.position, m.kept_to, f.policy, p.name AS policy_name, f.counted_on,
        f.recorded_on, f.figure, f.value
    FROM day_figures_mark AS m LEFT JOIN day_figures AS f ON 1 = 1
        LEFT JOIN policies AS p ON p.id = f.policy";
const DENIED: &str = "SELECT p.name, d.counted_on, d.denied, d.not_kept
    FROM denied_claims AS d JOIN policies AS p ON p.id = d.policy";
const TOLD: &str = "SELECT revision, about FROM acts WHERE kind = 'day' ORDER BY revision";
const OPEN: &str = "SELECT p.name, d.counted_on
    FROM open_days AS d JOIN policies AS p ON p.id = d.policy";

/// A row of [`STORED`]: the mark, and a figure with the name of its policy, if there is one.
type MarkedFigure = (FiguresMark, Option<(StoredFigure, PolicyName)>);

fn decode_stored(row: &StoredRow<'_>) -> Result<MarkedFigure, LedgerError> {
    let mark = FiguresMark {
        position: row.get("position")?,
        kept_to: row.get("kept_to")?,
    };
    let policy: Option<PolicyId> = row.get("policy")?;
    let Some(policy) = policy else {
        return Ok((mark, None));
    };
    let figure = StoredFigure {
        day: FigureDay {
            policy,
            counted_on: row.get("counted_on")?,
            recorded_on: row.get("recorded_on")?,
        },
        name: row.get("figure")?,
        value: row.get("value")?,
    };
    Ok((mark, Some((figure, row.get("policy_name")?))))
}

fn decode_day(row: &StoredRow<'_>) -> Result<NamedDay, LedgerError> {
    Ok((row.get("name")?, row.get("counted_on")?))
}

impl Ledger {
    /// All stored figures of entries.
    pub async fn stored_figures(&self) -> Result<StoredFigures, LedgerError> {
        let rows = self
            .own()
            .await?
            .lend()
            .all(query(STORED), decode_stored)
            .await?;
        let (mark, _) = rows
            .first()
            .ok_or_else(|| LedgerError::Corrupt("day_figures_mark has no row".to_owned()))?;
        let mut stored = StoredFigures {
            mark: *mark,
            figures: Vec::with_capacity(rows.len()),
            policies: BTreeMap::new(),
        };
        for (figure, policy) in rows.into_iter().filter_map(|(_, figure)| figure) {
            stored.policies.insert(figure.day.policy, policy);
            stored.figures.push(figure);
        }
        Ok(stored)
    }

    /// The denied claims of each day, and those that were not kept as the first of their window.
    pub async fn denied_on_days(&self) -> Result<BTreeMap<NamedDay, DenialCount>, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            let counts = DenialCount {
                denied: row.get("denied")?,
                not_kept: row.get("not_kept")?,
            };
            Ok((decode_day(row)?, counts))
        };
        let rows = self.own().await?.lend().all(query(DENIED), decode).await?;
        let mut days: BTreeMap<NamedDay, DenialCount> = BTreeMap::new();
        for (day, counts) in rows {
            let all = days.entry(day).or_default();
            all.denied = sum(all.denied, counts.denied);
            all.not_kept = sum(all.not_kept, counts.not_kept);
        }
        Ok(days)
    }

    /// What the newest act of each day tells, with its revision. Days whose figures have changed since
    /// are left out.
    pub async fn told_days(&self) -> Result<BTreeMap<NamedDay, (u64, ToldDay)>, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            let (revision, about): (u64, String) = (row.get("revision")?, row.get("about")?);
            let told: Result<ToldDay, _> = serde_json::from_str(&about);
            let told = told.map_err(|error| LedgerError::Corrupt(error.to_string()))?;
            Ok((revision, told))
        };
        let mut held = self.own().await?;
        let mut session = held.lend();
        let told = session.all(query(TOLD), decode).await?;
        let open = session.all(query(OPEN), decode_day).await?;
        let mut days = BTreeMap::new();
        for (revision, told) in told {
            days.insert((told.policy.clone(), told.date), (revision, told));
        }
        for day in open {
            days.remove(&day);
        }
        Ok(days)
    }
}
