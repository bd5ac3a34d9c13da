//! Reports of reconciliations.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::access::Ending;
use crate::boxed;
use crate::encoding::signed;
use crate::query::{Session, Texts, query};
use crate::row::StoredRow;
use crate::{AuditTables, LedgerError};
use domain::identity::AccountId;
use domain::policy::PolicyName;
use domain::reconciliation::{
    CheckedUpTo, CountersCompared, DayFigure, Difference, DifferenceKind, Figures, Finished,
    KeptDifference, LedgerChecked, Reconciliation, Started, Tally,
};
use domain::window::Window;

fn decode_report(row: &StoredRow<'_>) -> Result<Reconciliation, LedgerError> {
    let finished = match row.get("finished_at")? {
        None => None,
        Some(finished_at) => Some(Finished {
            finished_at,
            counters: decode_counters(&row.get::<String>("counters_compared")?)?,
            checked: decode_checked(row)?,
            tally: Tally {
                accounts: row.get("accounts")?,
                entries: row.get("entries")?,
                counters: row.get("counters")?,
                differences: row.get("differences")?,
                healed: row.get("healed")?,
                alarms: row.get("alarms")?,
            },
        }),
    };
    Ok(Reconciliation {
        started: Started {
            id: row.get("id")?,
            started_at: row.get("started_at")?,
            requested_by: row.get("requested_by")?,
            apply: row.get("apply")?,
            ledger: decode_ledger(&row.get::<String>("ledger")?)?,
        },
        finished,
    })
}

fn decode_checked(row: &StoredRow<'_>) -> Result<CheckedUpTo, LedgerError> {
    Ok(CheckedUpTo {
        at: row.get("started_at")?,
        position: row.get("checked_to")?,
        next: row.get("next_account")?,
    })
}

fn decode_difference(row: &StoredRow<'_>) -> Result<KeptDifference, LedgerError> {
    let policy: Option<String> = row.get("policy")?;
    let name: Option<String> = row.get("figure")?;
    let figure = match name {
        None => None,
        Some(name) => Some(DayFigure {
            policy: row.get("of_policy")?,
            counted_on: row.get("counted_on")?,
            name,
        }),
    };
    Ok(KeptDifference {
        difference: Difference {
            figure,
            kind: decode_difference_kind(&row.get::<String>("kind")?)?,
            account: row.get("account")?,
            found: row.get("found")?,
            expected: row.get("expected")?,
            windows: decode_figures(&row.get::<String>("windows")?)?,
            is_healed: row.get("healed")?,
        },
        policy: policy.and_then(|name| PolicyName::new(&name).ok()),
        subject: row.get("subject")?,
    })
}

const LISTED: &str = "SELECT id, started_at, requested_by, apply, finished_at, counters_compared,
        accounts, entries, counters, differences, healed, alarms, ledger, checked_to, next_account
    FROM reconciliations WHERE id < $1 ORDER BY id DESC LIMIT $2";
const ONE: &str = "SELECT id, started_at, requested_by, apply, finished_at, counters_compared,
        accounts, entries, counters, differences, healed, alarms, ledger, checked_to, next_account
    FROM reconciliations WHERE id = $1";

// The latest reports at $1: the one that ended last, and those that ended while it ran. A wrong clock can put a report
// into the future: it does not count yet.

const CHECKED: &str = "SELECT started_at, checked_to, next_account FROM reconciliations
    WHERE finished_at <= $1 ORDER BY finished_at DESC LIMIT 1";
const MOST_ALARMS: &str = "SELECT id, alarms FROM reconciliations
    WHERE finished_at <= $1 AND finished_at >= (
        SELECT started_at FROM reconciliations
        WHERE finished_at <= $1 ORDER BY finished_at DESC LIMIT 1
    )
    ORDER BY alarms DESC, id DESC LIMIT 1";
const LATEST_DIFFERENCES: &str = "SELECT DISTINCT d.kind, d.account
    FROM reconciliations AS r JOIN differences AS d ON d.reconciliation = r.id
    WHERE r.finished_at <= $1 AND r.finished_at >= (
        SELECT started_at FROM reconciliations
        WHERE finished_at <= $1 ORDER BY finished_at DESC LIMIT 1
    )";

const DIFFERENCES: &str = "
    SELECT d.kind, d.account, d.found, d.expected, d.windows, d.healed,
        d.policy AS of_policy, d.counted_on, d.figure, p.name AS policy, a.subject
    FROM differences AS d
    LEFT JOIN accounts AS a ON a.id = d.account
    LEFT JOIN policies AS p ON p.id = COALESCE(a.policy, d.policy)
    WHERE d.reconciliation = $1 ORDER BY d.position";

/// Adds the differences of the report $1. $2 has them as JSON: see [`encode_differences`].
const KEEP: Texts = Texts {
    postgres: "INSERT INTO differences (reconciliation, position, kind, account, found, expected,
            windows, healed, policy, counted_on, figure)
        SELECT $1, (d ->> 0)::integer, d ->> 1, (d ->> 2)::uuid, (d ->> 3)::bigint,
            (d ->> 4)::bigint, d ->> 5, (d ->> 6)::boolean, (d ->> 7)::integer, d ->> 8, d ->> 9
        FROM json_array_elements($2::json) AS d",
    sqlite: "INSERT INTO differences (reconciliation, position, kind, account, found, expected,
            windows, healed, policy, counted_on, figure)
        SELECT $1, value ->> 0, value ->> 1, unhex(value ->> 2), value ->> 3, value ->> 4,
            value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9
        FROM json_each($2)",
};

/// Differences as JSON, so that one statement adds all: one array for each difference, with its
/// position from 1 on and its columns.
fn encode_differences(differences: &[Difference]) -> String {
    let row = |(difference, position): (&Difference, u32)| {
        let figure = difference.figure.as_ref();
        json!([
            position,
            difference.kind.as_str(),
            difference
                .account
                .map(|account| account.0.simple().to_string()),
            difference.found.map(signed),
            difference.expected.map(signed),
            encode_figures(&difference.windows),
            difference.is_healed,
            figure.map(|figure| figure.policy.0),
            figure.map(|figure| figure.counted_on),
            figure.map(|figure| &figure.name),
        ])
    };
    let rows: Value = differences.iter().zip(1..).map(row).collect();
    rows.to_string()
}

impl AuditTables {
    /// Whether a report that heals began since an instant, as far as is known without a lock.
    #[boxed]
    pub async fn began_since(
        &self,
        since: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<bool, LedgerError> {
        let mut held = self.ledger.own().await?;
        began_since(&mut held.lend(), since, now).await
    }

    /// Begins a report. Returns false if a report that heals began since `unless_since`.
    #[boxed]
    pub async fn begin_reconciliation(
        &self,
        started: &Started,
        unless_since: Option<DateTime<Utc>>,
    ) -> Result<bool, LedgerError> {
        let now = started.started_at;
        self.ledger
            .own_edit(async |mut session| {
                if let Some(since) = unless_since {
                    // SQLite has one writer and needs no lock.
                    if let Session::Postgres(..) = session {
                        let lock = "LOCK TABLE reconciliations IN SHARE ROW EXCLUSIVE MODE";
                        session.execute(query(lock)).await?;
                    }
                    if began_since(&mut session, since, now).await? {
                        return Ok(Ending::Rollback(false));
                    }
                }
                let insert = query(
                    "INSERT INTO reconciliations (id, started_at, requested_by, apply, ledger)
                 VALUES ($1, $2, $3, $4, $5)",
                )
                .bind(started.id)
                .bind(started.started_at)
                .bind(started.requested_by.as_deref())
                .bind(started.apply)
                .bind(started.ledger.as_str());
                session.execute(insert).await?;
                Ok(Ending::Commit(true))
            })
            .await
    }

    /// Ends a report.
    #[boxed]
    pub async fn finish_reconciliation(
        &self,
        id: Uuid,
        finished: &Finished,
        differences: &[Difference],
    ) -> Result<(), LedgerError> {
        let tally = &finished.tally;
        let update = query(
            "UPDATE reconciliations SET finished_at = $2, counters_compared = $3, accounts = $4,
                entries = $5, counters = $6, differences = $7, healed = $8, alarms = $9,
                checked_to = $10, next_account = $11
             WHERE id = $1",
        )
        .bind(id)
        .bind(finished.finished_at)
        .bind(finished.counters.as_str())
        .bind(tally.accounts)
        .bind(tally.entries)
        .bind(tally.counters)
        .bind(tally.differences)
        .bind(tally.healed)
        .bind(tally.alarms)
        .bind(finished.checked.position)
        .bind(finished.checked.next);
        self.ledger
            .own_edit(async |mut session| {
                session.execute(update).await?;
                let insert = query(KEEP).bind(id).bind(encode_differences(differences));
                session.execute(insert).await?;
                Ok(Ending::Commit(()))
            })
            .await
    }

    /// Reports below an id, newest first, at most `limit`.
    #[boxed]
    pub async fn reconciliations(
        &self,
        before: Uuid,
        limit: u32,
    ) -> Result<Vec<Reconciliation>, LedgerError> {
        let reports = query(LISTED).bind(before).bind(limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(reports, decode_report)
            .await
    }

    /// One report, with its stored differences.
    #[boxed]
    pub async fn reconciliation(
        &self,
        id: Uuid,
    ) -> Result<Option<(Reconciliation, Vec<KeptDifference>)>, LedgerError> {
        let mut held = self.ledger.reads().await?;
        let mut session = held.lend();
        let report = query(ONE).bind(id);
        let Some(report) = session.first(report, decode_report).await? else {
            return Ok(None);
        };
        let differences = query(DIFFERENCES).bind(id);
        let differences = session.all(differences, decode_difference).await?;
        Ok(Some((report, differences)))
    }

    /// How far the latest report checked the ledger.
    #[boxed]
    pub async fn checked(&self, now: DateTime<Utc>) -> Result<Option<CheckedUpTo>, LedgerError> {
        let mut held = self.ledger.own().await?;
        let checked = query(CHECKED).bind(now);
        held.lend().first(checked, decode_checked).await
    }

    /// The accounts of the alarms of the latest reports; `None` for a row whose account cannot be read.
    #[boxed]
    pub async fn alarmed(&self, now: DateTime<Utc>) -> Result<Vec<Option<AccountId>>, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            let kind = decode_difference_kind(&row.get::<String>("kind")?)?;
            let account: Option<AccountId> = row.get("account")?;
            let is_of_account = kind.is_alarm() && kind != DifferenceKind::WrongFigure;
            Ok(is_of_account.then_some(account))
        };
        let mut held = self.ledger.own().await?;
        let latest = query(LATEST_DIFFERENCES).bind(now);
        let found = held.lend().all(latest, decode).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The one of the latest reports with the most alarms, and how many it has.
    #[boxed]
    pub async fn alarms(&self, now: DateTime<Utc>) -> Result<Option<(Uuid, u64)>, LedgerError> {
        let most = query(MOST_ALARMS).bind(now);
        let alarms = |row: &StoredRow<'_>| Ok((row.get("id")?, row.get("alarms")?));
        self.ledger.own().await?.lend().first(most, alarms).await
    }
}

/// Whether a report that heals began after an instant. A wrong clock can put the begin of a report
/// into the future. Such a report counts only for as long as the time from the instant until `now`.
async fn began_since(
    session: &mut Session<'_>,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<bool, LedgerError> {
    let began = query(
        "SELECT EXISTS (
             SELECT 1 FROM reconciliations WHERE apply AND started_at > $1 AND started_at <= $2
         )",
    );
    session
        .one(began.bind(since).bind(now + (now - since)))
        .await
}

fn decode_difference_kind(text: &str) -> Result<DifferenceKind, LedgerError> {
    DifferenceKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == text)
        .ok_or_else(|| LedgerError::Corrupt(format!("a difference's kind {text:?}")))
}

fn decode_ledger(text: &str) -> Result<LedgerChecked, LedgerError> {
    LedgerChecked::ALL
        .into_iter()
        .find(|checked| checked.as_str() == text)
        .ok_or_else(|| LedgerError::Corrupt(format!("a part of the ledger {text:?}")))
}

fn decode_counters(text: &str) -> Result<CountersCompared, LedgerError> {
    CountersCompared::ALL
        .into_iter()
        .find(|outcome| outcome.as_str() == text)
        .ok_or_else(|| LedgerError::Corrupt(format!("an outcome {text:?}")))
}

/// `["day", start, end, found, expected]`, with instants in seconds since 1970.
#[derive(Serialize, Deserialize)]
struct FiguresRecord(String, i64, i64, Option<u64>, Option<u64>);

fn encode_figures(figures: &[Figures]) -> String {
    let record = |figures: &Figures| {
        let Window { start, end } = figures.window;
        FiguresRecord(
            figures.per.to_string(),
            start.timestamp(),
            end.timestamp(),
            figures.found,
            figures.expected,
        )
    };
    let records: Vec<FiguresRecord> = figures.iter().map(record).collect();
    serde_json::to_string(&records).expect("arrays of texts and numbers are JSON")
}

fn decode_figures(text: &str) -> Result<Vec<Figures>, LedgerError> {
    let corrupt = || LedgerError::Corrupt(format!("a difference's windows {text:?}"));
    let records: Vec<FiguresRecord> = serde_json::from_str(text).map_err(|_| corrupt())?;
    let figures = |FiguresRecord(per, start, end, found, expected)| {
        let instant = |seconds| DateTime::from_timestamp(seconds, 0).ok_or_else(corrupt);
        Ok(Figures {
            per: per.parse().map_err(|_| corrupt())?,
            window: Window {
                start: instant(start)?,
                end: instant(end)?,
            },
            found,
            expected,
        })
    };
    records.into_iter().map(figures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::window::Length;

    #[test]
    fn figures_come_back_as_they_were() {
        let instant = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let figures = [Some(3), None].map(|found| Figures {
            per: Length::Week.into(),
            window: Window {
                start: instant(-5),
                end: instant(604_795),
            },
            found,
            expected: Some(2),
        });
        let text = encode_figures(&figures);
        assert_eq!(
            text,
            r#"[["week",-5,604795,3,2],["week",-5,604795,null,2]]"#
        );
        assert_eq!(decode_figures(&text).unwrap(), figures);
        assert!(decode_figures("[[1]]").is_err());
        assert!(decode_counters("").is_err());
    }
}
