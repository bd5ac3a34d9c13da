//! The instances that share the ledger, and its clock.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgPool;
use uuid::Uuid;

use crate::boxed;
use crate::query::{Texts, query};
use crate::row::only;
use crate::{Ledger, LedgerError};

/// What the ledger says about the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// How far the clock is ahead of the ledger's clock; negative if it is behind. On SQLite at most
    /// zero: how far it is behind the newest entries.
    pub offset: TimeDelta,
    /// On SQLite: an instant that only one of the things appended last has reached.
    pub outlier: Option<DateTime<Utc>>,
}

impl ClockReading {
    /// The smallest offset that explains the reading, which took so long.
    pub fn offset_least(&self, took: TimeDelta) -> TimeDelta {
        if self.offset < TimeDelta::zero() {
            (self.offset + took).min(TimeDelta::zero())
        } else {
            self.offset
        }
    }
}

/// The time of PostgreSQL, for a comparison before the ledger is opened.
pub async fn time_of(pool: &PgPool) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar(CLOCK).fetch_one(pool).await
}

const CLOCK: &str = "SELECT clock_timestamp()";

/// SQLite has no clock. The witnesses of its time are the three things that were appended last:
/// newest entries of accounts, and changes by people. An account counts once, so that one wrong
/// instant is one witness, and it takes two to show a wrong clock. Lapses, and grants that Redis
/// decided, are rightly old, so they are no witnesses. A change has the `xact` of the entry before
/// it.
const WITNESSES: &str = "WITH newest AS (
        SELECT at, MAX(xact) AS xact, 0 AS revision FROM (
            SELECT account, at, xact, kind, flags FROM entries ORDER BY xact DESC LIMIT 64
        ) WHERE kind IN (SELECT kind FROM entry_kinds WHERE of_clock) AND (flags & 1) = 0
        GROUP BY account
    ), witnesses AS (
        SELECT at, xact, revision FROM newest
        UNION ALL SELECT * FROM (
            SELECT changed_at, xact, revision FROM policy_versions
            ORDER BY xact DESC, revision DESC LIMIT 3
        )
        UNION ALL SELECT * FROM (
            SELECT changed_at, xact, revision FROM override_versions
            ORDER BY xact DESC, revision DESC LIMIT 3
        )
        UNION ALL SELECT * FROM (
            SELECT changed_at, xact, revision FROM key_versions
            ORDER BY xact DESC, revision DESC LIMIT 3
        )
        ORDER BY 2 DESC, 3 DESC LIMIT 3
    )
    SELECT at FROM witnesses ORDER BY at DESC LIMIT 2";

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

    /// Compares a clock that shows `now` with the ledger's.
    #[boxed]
    pub async fn read_clock(&self, now: DateTime<Utc>) -> Result<ClockReading, LedgerError> {
        let clock = if self.has_clock() {
            query(CLOCK)
        } else {
            query(WITNESSES)
        };
        let instants: Vec<DateTime<Utc>> = self
            .polled(async |mut session| session.all(clock, only).await)
            .await?;
        Ok(match (self, &instants[..]) {
            (Self::Postgres(_), instants) => ClockReading {
                offset: instants
                    .first()
                    .map_or(TimeDelta::zero(), |theirs| now - *theirs),
                outlier: None,
            },
            (Self::Sqlite(_), [latest, second, ..]) => ClockReading {
                offset: (now - *second).min(TimeDelta::zero()),
                outlier: Some(*latest),
            },
            // Less than two witnesses show nothing.
            (Self::Sqlite(_), instants) => ClockReading {
                offset: TimeDelta::zero(),
                outlier: instants.first().copied(),
            },
        })
    }

    /// Stores that an instance is alive, and its rules of time zones. Forgets instances not seen
    /// since `forget`. Returns the rules of the others.
    #[boxed]
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
    #[boxed]
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
