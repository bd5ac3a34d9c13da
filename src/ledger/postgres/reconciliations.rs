//! Reports of reconciliations.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Postgres, QueryBuilder};
use uuid::Uuid;

use super::Store;
use crate::domain::reconciliation::{
    Difference, Finished, KeptDifference, Reconciliation, Started,
};
use crate::ledger::LedgerError;
use crate::ledger::record::{signed, unsigned};
use crate::ledger::report::{DifferenceRow, ReportRecord, TallyRow, encode_figures};
use crate::ledger::row::row;

row! {
    struct ReportRow {
        ..tally: TallyRow,
        id: Uuid,
        started_at: DateTime<Utc>,
        requested_by: Option<String>,
        apply: bool,
        finished_at: Option<DateTime<Utc>>,
        counters_compared: Option<String>,
    }
}

impl ReportRow {
    fn decode(self) -> Result<Reconciliation, LedgerError> {
        let record = ReportRecord {
            id: self.id,
            started_at: self.started_at,
            requested_by: self.requested_by,
            apply: self.apply,
            finished_at: self.finished_at,
            counters_compared: self.counters_compared,
            tally: self.tally,
        };
        record.decode()
    }
}

/// A query for reports.
macro_rules! reports_where {
    ($condition:literal) => {
        concat!(
            "SELECT id, started_at, requested_by, apply, finished_at, counters_compared,
                accounts, entries, counters, differences, healed, alarms
             FROM reconciliations WHERE ",
            $condition
        )
    };
}

impl Store {
    /// See [`crate::ledger::Ledger::begin_reconciliation`].
    pub async fn begin_reconciliation(
        &self,
        started: &Started,
        unless_since: Option<DateTime<Utc>>,
    ) -> Result<bool, LedgerError> {
        let mut transaction = self.own.begin().await?;
        if let Some(since) = unless_since {
            // The first look costs nobody a lock. The second one is right.
            if began_since(&mut transaction, since, started.started_at).await? {
                return Ok(false);
            }
            sqlx::query("LOCK TABLE reconciliations IN SHARE ROW EXCLUSIVE MODE")
                .execute(&mut *transaction)
                .await?;
            if began_since(&mut transaction, since, started.started_at).await? {
                return Ok(false);
            }
        }
        sqlx::query(
            "INSERT INTO reconciliations (id, started_at, requested_by, apply)
             VALUES ($1, $2, $3, $4)",
        )
        .bind(started.id)
        .bind(started.started_at)
        .bind(&started.requested_by)
        .bind(started.apply)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// See [`crate::ledger::Ledger::finish_reconciliation`].
    pub async fn finish_reconciliation(
        &self,
        id: Uuid,
        finished: &Finished,
        differences: &[Difference],
    ) -> Result<(), LedgerError> {
        let tally = &finished.tally;
        let mut transaction = self.own.begin().await?;
        sqlx::query(
            "UPDATE reconciliations SET finished_at = $2, counters_compared = $3, accounts = $4,
                entries = $5, counters = $6, differences = $7, healed = $8, alarms = $9
             WHERE id = $1",
        )
        .bind(id)
        .bind(finished.finished_at)
        .bind(finished.counters.as_str())
        .bind(signed(tally.accounts))
        .bind(signed(tally.entries))
        .bind(signed(tally.counters))
        .bind(signed(tally.differences))
        .bind(signed(tally.healed))
        .bind(signed(tally.alarms))
        .execute(&mut *transaction)
        .await?;
        if !differences.is_empty() {
            let mut insert: QueryBuilder<Postgres> = QueryBuilder::new(
                "INSERT INTO differences
                     (reconciliation, position, kind, account, found, expected, windows, healed) ",
            );
            insert.push_values(
                differences.iter().zip(1i32..),
                |mut row, (difference, position)| {
                    row.push_bind(id)
                        .push_bind(position)
                        .push_bind(difference.kind.as_str())
                        .push_bind(difference.account.map(|account| account.0))
                        .push_bind(difference.found.map(signed))
                        .push_bind(difference.expected.map(signed))
                        .push_bind(encode_figures(&difference.windows))
                        .push_bind(difference.is_healed);
                },
            );
            insert.build().execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// See [`crate::ledger::Ledger::reconciliations`].
    pub async fn reconciliations(
        &self,
        before: Uuid,
        limit: u32,
    ) -> Result<Vec<Reconciliation>, LedgerError> {
        let rows: Vec<ReportRow> =
            sqlx::query_as(reports_where!("id < $1 ORDER BY id DESC LIMIT $2"))
                .bind(before)
                .bind(i64::from(limit))
                .fetch_all(&self.reads)
                .await?;
        rows.into_iter().map(ReportRow::decode).collect()
    }

    /// See [`crate::ledger::Ledger::reconciliation`].
    pub async fn reconciliation(
        &self,
        id: Uuid,
    ) -> Result<Option<(Reconciliation, Vec<KeptDifference>)>, LedgerError> {
        let report: Option<ReportRow> = sqlx::query_as(reports_where!("id = $1"))
            .bind(id)
            .fetch_optional(&self.reads)
            .await?;
        let Some(report) = report else {
            return Ok(None);
        };
        let rows: Vec<DifferenceRow> = sqlx::query_as(
            "SELECT d.kind, d.account, d.found, d.expected, d.windows, d.healed,
                p.name AS policy, a.subject
             FROM differences AS d
             LEFT JOIN accounts AS a ON a.id = d.account
             LEFT JOIN policies AS p ON p.id = a.policy
             WHERE d.reconciliation = $1 ORDER BY d.position",
        )
        .bind(id)
        .fetch_all(&self.reads)
        .await?;
        let differences: Result<Vec<KeptDifference>, LedgerError> =
            rows.into_iter().map(DifferenceRow::decode).collect();
        Ok(Some((report.decode()?, differences?)))
    }

    /// See [`crate::ledger::Ledger::alarms`].
    pub async fn alarms(&self) -> Result<Option<(Uuid, u64)>, LedgerError> {
        let newest: Option<(Uuid, i64)> = sqlx::query_as(
            "SELECT id, alarms FROM reconciliations WHERE finished_at IS NOT NULL
             ORDER BY id DESC LIMIT 1",
        )
        .fetch_optional(&self.own)
        .await?;
        newest
            .map(|(id, alarms)| Ok((id, unsigned(alarms)?)))
            .transpose()
    }
}

/// Whether a report that heals began after an instant. One that lies in the future, since a
/// clock was wrong, does not count for longer than from that instant until `now`.
async fn began_since(
    connection: &mut PgConnection,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (
             SELECT FROM reconciliations WHERE apply AND started_at > $1 AND started_at <= $2
         )",
    )
    .bind(since)
    .bind(now + (now - since))
    .fetch_one(connection)
    .await
}
