//! The instances that share the ledger, and its clock.

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use crate::ledger::query::{Texts, query};
use crate::ledger::row::only;
use crate::ledger::{Ledger, LedgerError};

/// SQLite has no clock of its own. The instant of its newest entry is the nearest thing to one.
const CLOCK: Texts = Texts {
    postgres: "SELECT clock_timestamp()",
    sqlite: "SELECT at FROM entries ORDER BY id DESC LIMIT 1",
};

/// The tables of entries, in which nothing is written: an insert of no row needs the same locks and
/// rights as an insert.
const PROBES: [&str; 3] = [
    "INSERT INTO accounts (id) SELECT id FROM accounts WHERE 1 = 0",
    "INSERT INTO entries (number) SELECT number FROM entries WHERE 1 = 0",
    "INSERT INTO entry_details (number) SELECT number FROM entry_details WHERE 1 = 0",
];
/// A probe waits for a lock for half the time of a statement, so that it can tell that it was a lock.
const WAIT_SHORTLY: Texts = Texts {
    postgres: "SELECT set_config('lock_timeout',
         round(extract(epoch FROM current_setting('statement_timeout')::interval) * 500)::text,
         false)",
    sqlite: "SELECT 1",
};
const WAIT_AS_USUAL: Texts = Texts {
    postgres: "RESET lock_timeout",
    sqlite: "SELECT 1",
};

const REPORT: &str = "INSERT INTO instances (id, zone_rules, seen_at) VALUES ($1, $2, $3)
     ON CONFLICT (id) DO UPDATE SET seen_at = EXCLUDED.seen_at";

impl Ledger {
    /// Whether the store has a clock that instances can compare theirs with.
    pub fn has_clock(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// How far this machine's clock is off the ledger's clock: positive if it is ahead. On SQLite:
    /// how far `now` is behind the newest entry.
    pub async fn clock_offset(&self, now: DateTime<Utc>) -> Result<TimeDelta, LedgerError> {
        let clock = query(CLOCK);
        let clock: Option<DateTime<Utc>> = self
            .polled(async |mut session| session.first(clock, only).await)
            .await?;
        let offset = clock.map_or(TimeDelta::zero(), |theirs| now - theirs);
        Ok(match self {
            Self::Postgres(_) => offset,
            Self::Sqlite(_) => offset.min(TimeDelta::zero()),
        })
    }

    /// Stores that an instance is alive, and its rules of time zones. Forgets instances not seen
    /// since `forget`. Returns the rules of the others.
    pub async fn report_instance(
        &self,
        id: Uuid,
        zone_rules: &str,
        now: DateTime<Utc>,
        forget: DateTime<Utc>,
    ) -> Result<Vec<String>, LedgerError> {
        let forget = query("DELETE FROM instances WHERE seen_at < $1").bind(forget);
        let note = query(REPORT).bind(id).bind(zone_rules).bind(now);
        let others = query("SELECT zone_rules FROM instances WHERE id <> $1").bind(id);
        self.noted(async |mut session| {
            session.execute(forget).await?;
            session.execute(note).await?;
            session.all(others, only).await
        })
        .await
    }

    /// Tries whether entries can be written: takes the locks that an append takes, and commits a
    /// report of the instance. The connection that fails in the middle is not used again.
    pub async fn probe_writes(
        &self,
        id: Uuid,
        zone_rules: &str,
        now: DateTime<Utc>,
    ) -> Result<(), LedgerError> {
        let note = query(REPORT).bind(id).bind(zone_rules).bind(now);
        self.noted(async |mut session| {
            session.execute(query(WAIT_SHORTLY)).await?;
            for probe in PROBES {
                session.execute(query(probe)).await?;
            }
            session.execute(query(WAIT_AS_USUAL)).await?;
            session.execute(note).await?;
            Ok(())
        })
        .await
    }
}
