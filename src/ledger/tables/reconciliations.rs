//! Reports of reconciliations.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::identity::AccountId;
use crate::domain::policy::PolicyName;
use crate::domain::reconciliation::{
    CountersCompared, Difference, DifferenceKind, Figures, Finished, KeptDifference,
    Reconciliation, Started, Tally,
};
use crate::domain::window::Window;
use crate::ledger::access::Ending;
use crate::ledger::query::{Session, query};
use crate::ledger::record::unsigned;
use crate::ledger::row::row;
use crate::ledger::values::Stamp;
use crate::ledger::{Ledger, LedgerError};

row! {
    struct ReportRow {
        ..tally: TallyRow,
        id: Uuid,
        started_at: Stamp,
        requested_by: Option<String>,
        apply: bool,
        finished_at: Option<Stamp>,
        counters_compared: Option<String>,
    }
}

row! {
    struct TallyRow {
        accounts: i64,
        entries: i64,
        counters: i64,
        differences: i64,
        healed: i64,
        alarms: i64,
    }
}

impl ReportRow {
    fn decode(self) -> Result<Reconciliation, LedgerError> {
        let finished = match self.finished_at {
            None => None,
            Some(finished_at) => Some(Finished {
                finished_at: finished_at.0,
                counters: decode_counters(self.counters_compared.as_deref().unwrap_or_default())?,
                tally: self.tally.decode()?,
            }),
        };
        Ok(Reconciliation {
            started: Started {
                id: self.id,
                started_at: self.started_at.0,
                requested_by: self.requested_by,
                apply: self.apply,
            },
            finished,
        })
    }
}

impl TallyRow {
    fn decode(self) -> Result<Tally, LedgerError> {
        Ok(Tally {
            accounts: unsigned(self.accounts)?,
            entries: unsigned(self.entries)?,
            counters: unsigned(self.counters)?,
            differences: unsigned(self.differences)?,
            healed: unsigned(self.healed)?,
            alarms: unsigned(self.alarms)?,
        })
    }
}

row! {
    /// A difference's row, and the names around it.
    struct DifferenceRow {
        kind: String,
        account: Option<Uuid>,
        found: Option<i64>,
        expected: Option<i64>,
        windows: String,
        healed: bool,
        policy: Option<String>,
        subject: Option<String>,
    }
}

impl DifferenceRow {
    fn decode(self) -> Result<KeptDifference, LedgerError> {
        let kind = DifferenceKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == self.kind)
            .ok_or_else(|| LedgerError::Corrupt(format!("a difference's kind {:?}", self.kind)))?;
        Ok(KeptDifference {
            difference: Difference {
                kind,
                account: self.account.map(AccountId),
                found: self.found.map(unsigned).transpose()?,
                expected: self.expected.map(unsigned).transpose()?,
                windows: decode_figures(&self.windows)?,
                is_healed: self.healed,
            },
            policy: self.policy.and_then(|name| PolicyName::new(&name).ok()),
            subject: self.subject,
        })
    }
}

/// A query for reports.
macro_rules! reports {
    ($condition:literal) => {
        concat!(
            "SELECT id, started_at, requested_by, apply, finished_at, counters_compared,
                accounts, entries, counters, differences, healed, alarms
             FROM reconciliations WHERE ",
            $condition
        )
    };
}

const DIFFERENCES: &str = "
    SELECT d.kind, d.account, d.found, d.expected, d.windows, d.healed,
        p.name AS policy, a.subject
    FROM differences AS d
    LEFT JOIN accounts AS a ON a.id = d.account
    LEFT JOIN policies AS p ON p.id = a.policy
    WHERE d.reconciliation = $1 ORDER BY d.position";

impl Ledger {
    /// Begins a report, unless one that heals began since `unless_since`. False when one did.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn begin_reconciliation(
        &self,
        started: &Started,
        unless_since: Option<DateTime<Utc>>,
    ) -> Result<bool, LedgerError> {
        let now = started.started_at;
        if let Some(since) = unless_since {
            // The first look costs nobody a lock. The second one is right.
            let mut session = self.own().await?;
            if began_since(&mut session.lend(), since, now).await? {
                return Ok(false);
            }
        }
        self.own_edit(async |mut session| {
            if let Some(since) = unless_since {
                // SQLite has one writer.
                if let Session::Postgres(_) = session {
                    let lock = "LOCK TABLE reconciliations IN SHARE ROW EXCLUSIVE MODE";
                    session.execute(query(lock)).await?;
                }
                if began_since(&mut session, since, now).await? {
                    return Ok(Ending::Rollback(false));
                }
            }
            let insert = query(
                "INSERT INTO reconciliations (id, started_at, requested_by, apply)
                 VALUES ($1, $2, $3, $4)",
            )
            .bind(started.id)
            .bind(started.started_at)
            .bind(started.requested_by.as_deref())
            .bind(started.apply);
            session.execute(insert).await?;
            Ok(Ending::Commit(true))
        })
        .await
    }

    /// Ends a report.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn finish_reconciliation(
        &self,
        id: Uuid,
        finished: &Finished,
        differences: &[Difference],
    ) -> Result<(), LedgerError> {
        let tally = &finished.tally;
        let update = query(
            "UPDATE reconciliations SET finished_at = $2, counters_compared = $3, accounts = $4,
                entries = $5, counters = $6, differences = $7, healed = $8, alarms = $9
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
        .bind(tally.alarms);
        self.own_edit(async |mut session| {
            session.execute(update).await?;
            for (difference, position) in differences.iter().zip(1u32..) {
                let insert = query(
                    "INSERT INTO differences
                         (reconciliation, position, kind, account, found, expected, windows, healed)
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                )
                .bind(id)
                .bind(position)
                .bind(difference.kind.as_str())
                .bind(difference.account)
                .bind(difference.found)
                .bind(difference.expected)
                .bind(encode_figures(&difference.windows))
                .bind(difference.is_healed);
                session.execute(insert).await?;
            }
            Ok(Ending::Commit(()))
        })
        .await
    }

    /// Reports below an id, newest first, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn reconciliations(
        &self,
        before: Uuid,
        limit: u32,
    ) -> Result<Vec<Reconciliation>, LedgerError> {
        let reports = query(reports!("id < $1 ORDER BY id DESC LIMIT $2"));
        let reports = reports.bind(before).bind(limit);
        let rows: Vec<ReportRow> = self.reads().await?.lend().all(reports).await?;
        rows.into_iter().map(ReportRow::decode).collect()
    }

    /// One report, with the differences that it keeps.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn reconciliation(
        &self,
        id: Uuid,
    ) -> Result<Option<(Reconciliation, Vec<KeptDifference>)>, LedgerError> {
        let mut held = self.reads().await?;
        let mut session = held.lend();
        let report = query(reports!("id = $1")).bind(id);
        let report: Option<ReportRow> = session.optional(report).await?;
        let Some(report) = report else {
            return Ok(None);
        };
        let rows: Vec<DifferenceRow> = session.all(query(DIFFERENCES).bind(id)).await?;
        let differences: Result<_, _> = rows.into_iter().map(DifferenceRow::decode).collect();
        Ok(Some((report.decode()?, differences?)))
    }

    /// The newest finished report's id and how many alarms it has.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn alarms(&self) -> Result<Option<(Uuid, u64)>, LedgerError> {
        let newest = query(
            "SELECT id, alarms FROM reconciliations WHERE finished_at IS NOT NULL
             ORDER BY id DESC LIMIT 1",
        );
        let newest: Option<(Uuid, i64)> = self.own().await?.lend().optional(newest).await?;
        let alarms = |(id, alarms)| Ok((id, unsigned(alarms)?));
        newest.map(alarms).transpose()
    }
}

/// Whether a report that heals began after an instant. One that lies in the future, since a
/// clock was wrong, does not count for longer than from that instant until `now`.
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

fn decode_counters(text: &str) -> Result<CountersCompared, LedgerError> {
    CountersCompared::ALL
        .into_iter()
        .find(|outcome| outcome.as_str() == text)
        .ok_or_else(|| LedgerError::Corrupt(format!("an outcome {text:?}")))
}

/// `["day", start, end, found, expected]`, instants in seconds since 1970.
#[derive(Serialize, Deserialize)]
struct FiguresRecord<'a>(&'a str, i64, i64, Option<u64>, Option<u64>);

fn encode_figures(figures: &[Figures]) -> String {
    let record = |figures: &Figures| {
        let Window { start, end } = figures.window;
        FiguresRecord(
            figures.per.as_str(),
            start.timestamp(),
            end.timestamp(),
            figures.found,
            figures.expected,
        )
    };
    let records: Vec<FiguresRecord<'_>> = figures.iter().map(record).collect();
    serde_json::to_string(&records).expect("arrays of texts and numbers are JSON")
}

fn decode_figures(text: &str) -> Result<Vec<Figures>, LedgerError> {
    let corrupt = || LedgerError::Corrupt(format!("a difference's windows {text:?}"));
    let records: Vec<FiguresRecord<'_>> = serde_json::from_str(text).map_err(|_| corrupt())?;
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
    use crate::domain::window::Per;

    #[test]
    fn figures_come_back_as_they_were() {
        let instant = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let figures = [Some(3), None].map(|found| Figures {
            per: Per::Week,
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
