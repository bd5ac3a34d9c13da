//! Figures as the ledger has them, to compare them with the entries and with the record.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use serde::Deserialize;

use super::statistics::{FiguresMark, decode_tallied};
use crate::boxed;
use crate::query::{Statement, Texts, query};
use crate::row::StoredRow;
use crate::{FigureTables, LedgerError};
use domain::identity::EntryId;
use domain::policy::{PolicyId, PolicyName};
use domain::statistics::{DenialCount, FigureDay, TalliedEntry, sum};

/// Figures of one moment, and how far all are made.
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

/// A local day of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedDay {
    pub policy: PolicyId,
    pub date: NaiveDate,
}

/// What an act tells of a day.
#[derive(Debug, Deserialize)]
pub struct RecordedDay {
    pub policy: String,
    pub date: NaiveDate,
    pub figures: BTreeMap<String, u64>,
}

/// A local day of a policy by its name.
pub type NamedDay = (String, NaiveDate);

/// The figures. The mark comes with every figure, so that both are of one moment.
const STORED: &str = "SELECT m.position, m.kept_to, f.policy, p.name AS policy_name, f.counted_on,
        f.recorded_on, f.figure, f.value
    FROM day_figures_mark AS m
    LEFT JOIN day_figures AS f ON 1 = 1
    LEFT JOIN policies AS p ON p.id = f.policy";
/// As [`STORED`], of the policy $1 and the day $2.
const STORED_ON: &str =
    "SELECT m.position, m.kept_to, f.policy, p.name AS policy_name, f.counted_on,
        f.recorded_on, f.figure, f.value
    FROM day_figures_mark AS m
    LEFT JOIN day_figures AS f ON f.policy = $1 AND f.counted_on = $2
    LEFT JOIN policies AS p ON p.id = f.policy";
const DENIED: &str = "SELECT p.name, d.counted_on, d.denied, d.not_kept
    FROM denied_claims AS d JOIN policies AS p ON p.id = d.policy";
const RECORDED: &str = "SELECT revision, about FROM acts WHERE kind = 'day' ORDER BY revision";
const OPEN: &str = "SELECT p.name, d.counted_on
    FROM open_days AS d JOIN policies AS p ON p.id = d.policy";

/// The day with a wrong figure in the newest report that has ended.
const WRONG_DAY: &str = "SELECT policy, counted_on FROM differences
    WHERE figure IS NOT NULL AND reconciliation = (
        SELECT id FROM reconciliations WHERE finished_at <= $1 ORDER BY finished_at DESC LIMIT 1
    )
    ORDER BY position LIMIT 1";
const TOLD_SPAN: &str =
    "SELECT MIN(revision) AS first, MAX(revision) AS last FROM acts WHERE kind = 'day'";

/// The first day that an act tells from the revision $1 on.
const RECORDED_FROM: Texts = Texts {
    postgres: "SELECT p.id AS policy, a.about::json ->> 'date' AS counted_on
        FROM (
            SELECT about FROM acts WHERE kind = 'day' AND revision >= $1 ORDER BY revision LIMIT 1
        ) AS a JOIN policies AS p ON p.name = a.about::json ->> 'policy'",
    sqlite: "SELECT p.id AS policy, a.about ->> 'date' AS counted_on
        FROM (
            SELECT about FROM acts WHERE kind = 'day' AND revision >= $1 ORDER BY revision LIMIT 1
        ) AS a JOIN policies AS p ON p.name = a.about ->> 'policy'",
};

/// What the figures need of the entries of the policy $1 with ids above $2 and below $3, at most $4.
const TALLIED_IDS: Texts = Texts {
    postgres:
        "SELECT e.xact, e.account, e.number, e.policy_id AS policy, e.kind, e.units, e.flags, e.id,
            e.totals, e.of_grant
        FROM counted_entries AS e
        WHERE e.policy_id = $1 AND e.id > $2 AND e.id < $3
            AND substring(uuid_send(e.id), 1, 5)
                BETWEEN substring(uuid_send($2), 1, 5) AND substring(uuid_send($3), 1, 5)
        ORDER BY e.policy_id, substring(uuid_send(e.id), 1, 5), e.id LIMIT $4",
    sqlite:
        "SELECT e.xact, e.account, e.number, e.policy_id AS policy, e.kind, e.units, e.flags, e.id,
            e.totals, e.of_grant
        FROM counted_entries AS e
        WHERE e.policy_id = $1 AND e.id > $2 AND e.id < $3
            AND substr(e.id, 1, 5) BETWEEN substr($2, 1, 5) AND substr($3, 1, 5)
        ORDER BY e.policy_id, substr(e.id, 1, 5), e.id LIMIT $4",
};

/// The same of the entries that name a grant, after the number $2 of the grant $1, with grants below $3; at
/// most $4, of all policies.
const TALLIED_FOLLOWERS: &str =
    "SELECT e.xact, e.account, e.number, e.policy_id AS policy, e.kind, e.units, e.flags, e.id,
        e.totals, e.of_grant
    FROM counted_entries AS e
    WHERE (e.account, e.number) IN (
        SELECT account, number FROM entry_details
        WHERE of_grant >= $1 AND (of_grant, number) > ($1, $2) AND of_grant < $3
        ORDER BY of_grant, number LIMIT $4
    )
    ORDER BY e.of_grant, e.number";

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

fn decode_counted(row: &StoredRow<'_>) -> Result<CountedDay, LedgerError> {
    Ok(CountedDay {
        policy: row.get("policy")?,
        date: row.get("counted_on")?,
    })
}

fn decode_day(row: &StoredRow<'_>) -> Result<NamedDay, LedgerError> {
    Ok((row.get("name")?, row.get("counted_on")?))
}

impl FigureTables {
    /// All stored figures of entries.
    #[boxed]
    pub async fn stored_figures(&self) -> Result<StoredFigures, LedgerError> {
        self.stored(query(STORED)).await
    }

    /// The stored figures of entries that count on a local day.
    #[boxed]
    pub async fn stored_figures_on(&self, day: CountedDay) -> Result<StoredFigures, LedgerError> {
        self.stored(query(STORED_ON).bind(day.policy).bind(day.date))
            .await
    }

    async fn stored(&self, statement: Statement) -> Result<StoredFigures, LedgerError> {
        let mut held = self.ledger.own().await?;
        let rows = held.lend().all(statement, decode_stored).await?;
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
    #[boxed]
    pub async fn denied_on_days(&self) -> Result<BTreeMap<NamedDay, DenialCount>, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            let counts = DenialCount {
                denied: row.get("denied")?,
                not_kept: row.get("not_kept")?,
            };
            Ok((decode_day(row)?, counts))
        };
        let rows = self
            .ledger
            .own()
            .await?
            .lend()
            .all(query(DENIED), decode)
            .await?;
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
    #[boxed]
    pub async fn recorded_days(
        &self,
    ) -> Result<BTreeMap<NamedDay, (u64, RecordedDay)>, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            let revision: u64 = row.get("revision")?;
            let about: String = row.get("about")?;
            let recorded: Result<RecordedDay, _> = serde_json::from_str(&about);
            let recorded = recorded.map_err(|error| LedgerError::Corrupt(error.to_string()))?;
            Ok((revision, recorded))
        };
        let mut held = self.ledger.own().await?;
        let mut session = held.lend();
        let recorded = session.all(query(RECORDED), decode).await?;
        let open = session.all(query(OPEN), decode_day).await?;
        let mut days = BTreeMap::new();
        for (revision, recorded) in recorded {
            days.insert(
                (recorded.policy.clone(), recorded.date),
                (revision, recorded),
            );
        }
        for day in open {
            days.remove(&day);
        }
        Ok(days)
    }

    /// A day whose figures are to be counted again: the one that had a wrong figure in the newest
    /// report; otherwise one that the record tells, chosen by a random number.
    #[boxed]
    pub async fn day_to_recount(
        &self,
        random: u64,
        now: DateTime<Utc>,
    ) -> Result<Option<CountedDay>, LedgerError> {
        let mut held = self.ledger.own().await?;
        let mut session = held.lend();
        let wrong = session
            .first(query(WRONG_DAY).bind(now), decode_counted)
            .await?;
        if wrong.is_some() {
            return Ok(wrong);
        }
        let span = |row: &StoredRow<'_>| {
            let first: Option<u64> = row.get("first")?;
            let last: Option<u64> = row.get("last")?;
            Ok(first.zip(last))
        };
        let span = session.first(query(TOLD_SPAN), span).await?.flatten();
        let Some((first, last)) = span else {
            return Ok(None);
        };
        let from = first + random % (last - first + 1);
        let recorded = query(RECORDED_FROM).bind(from);
        session.first(recorded, decode_counted).await
    }

    /// The entries of a policy with ids above one and below another, in the order of their ids, at
    /// most `limit`.
    #[boxed]
    pub async fn tallied_ids(
        &self,
        policy: PolicyId,
        above: EntryId,
        below: EntryId,
        limit: u32,
    ) -> Result<Vec<TalliedEntry>, LedgerError> {
        let entries = query(TALLIED_IDS)
            .bind(policy)
            .bind(above)
            .bind(below)
            .bind(limit);
        self.ledger
            .own()
            .await?
            .lend()
            .all(entries, decode_tallied)
            .await
    }

    /// The entries that name a grant, of all policies, in the order of their grants: those after an
    /// entry number of a grant, with grants below an id; at most `limit`.
    #[boxed]
    pub async fn tallied_followers(
        &self,
        (grant, number): (EntryId, u64),
        below: EntryId,
        limit: u32,
    ) -> Result<Vec<TalliedEntry>, LedgerError> {
        let entries = query(TALLIED_FOLLOWERS)
            .bind(grant)
            .bind(number)
            .bind(below)
            .bind(limit);
        self.ledger
            .own()
            .await?
            .lend()
            .all(entries, decode_tallied)
            .await
    }
}
