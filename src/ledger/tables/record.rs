//! The marks of the record, and the entries and changes that they give positions to.

use std::ops::Range;

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::access::Ending;
use crate::boxed;
use crate::query::{Session, Statement, Texts, query};
use crate::row::StoredRow;
use crate::{LedgerError, RecordTables};
use domain::identity::EntryId;
use domain::record::{Mark, RecordPlace, RecordRun};
use domain::seal::leaf::DroppedLeaf;

/// How far the store knows the order of committed transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon {
    /// Every transaction below this number has ended.
    pub ended: i64,
    /// No transaction at or above this number has ended.
    pub begun: i64,
}

impl Horizon {
    /// The horizon just above a transaction that has ended.
    pub fn above(xact: i64) -> Self {
        Self {
            ended: xact + 1,
            begun: xact + 1,
        }
    }
}

const HORIZON: Texts = Texts {
    postgres: "SELECT pg_snapshot_xmin(seen)::text::bigint + xact_offset AS ended,
            pg_snapshot_xmax(seen)::text::bigint + xact_offset AS begun
        FROM ledger CROSS JOIN pg_current_snapshot() AS seen",
    sqlite: "SELECT newest + 1 AS ended, newest + 1 AS begun
        FROM (SELECT COALESCE(MAX(xact), 0) AS newest FROM entries)",
};

const LAST_MARK: &str = "SELECT after, position, xact, id, revision, recorded_at FROM record_marks
    ORDER BY after DESC LIMIT 1";
const MARK_TO: &str = "SELECT after, position, xact, id, revision, recorded_at FROM record_marks
    WHERE position = $1";
const MARK_WITH_POSITION: &str =
    "SELECT after, position, xact, id, revision, recorded_at FROM record_marks
    WHERE position >= $1 ORDER BY position LIMIT 1";
/// The marks with the position $1 and the next ones that begin before the position $2.
const MARKS_FROM_POSITION: &str =
    "SELECT after, position, xact, id, revision, recorded_at FROM record_marks
    WHERE after >= COALESCE((SELECT MAX(after) FROM record_marks WHERE after < $1), 0)
        AND after + 1 < $2 AND position >= $1
    ORDER BY after";
const MARKS_FROM: &str = "SELECT after, position, xact, id, revision, recorded_at FROM record_marks
    WHERE (xact, id, revision) >= ($1, $2, $3) ORDER BY xact, id, revision LIMIT $4";
/// Invariant: a mark is never earlier than the mark before it.
const MARK_BEFORE: &str =
    "SELECT after, position, xact, id, revision, recorded_at FROM record_marks
    WHERE recorded_at < $1 ORDER BY recorded_at DESC, after DESC LIMIT 1";

/// The number of entries by transaction, after a place, of transactions that have ended. The changes
/// of a transaction come after its entries. On SQLite each entry has a transaction of its own.
const ENTRY_RUNS: Texts = Texts {
    postgres: "SELECT xact, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid AS id, count(*) AS count
        FROM entries
        WHERE xact >= $1 AND xact < $3
            AND (xact, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) > ($1, $2)
        GROUP BY xact ORDER BY xact LIMIT $4",
    sqlite: "SELECT xact, id, CAST(1 AS bigint) AS count FROM entries
        WHERE xact >= $1 AND (xact, id) > ($1, $2) AND xact < $3
        ORDER BY xact, id LIMIT $4",
};

/// The changes after a place, of transactions that have ended.
const CHANGES: &str = "SELECT xact, revision FROM change_rows
    WHERE (xact, revision) > ($1, $2) AND xact < $3
    ORDER BY xact, revision LIMIT $4";

/// The dropped entries after one place and up to another.
const DROPPED: &str = "SELECT xact, id, policy, revision FROM dropped_entries
    WHERE xact >= $1 AND (xact, id) > ($1, $2) AND xact <= $3 AND (xact, id) <= ($3, $4)
    ORDER BY xact, id LIMIT $5";

const PLACE_OF: Texts = Texts {
    postgres: "SELECT xact, id FROM entries WHERE id = $1
        AND substring(uuid_send(id), 1, 6) = substring(uuid_send($1), 1, 6)",
    sqlite: "SELECT xact, id FROM entries WHERE id = $1",
};

const PLACE_OF_CHANGE: &str = "SELECT xact, revision FROM change_rows WHERE revision = $1";

/// A lock: while it is held, nothing gets a position, and so nothing is sealed. SQLite has one
/// writer.
pub(super) const HOLD_POSITIONS: Texts = Texts {
    postgres: "SELECT pg_advisory_xact_lock(112, 2)",
    sqlite: "SELECT 1",
};

/// Adds the marks of a JSON array: one array for each mark, with its columns. All are made at $2.
const ADD_MARKS: Texts = Texts {
    postgres: "INSERT INTO record_marks (after, position, xact, id, revision, recorded_at)
        SELECT (d ->> 0)::bigint, (d ->> 1)::bigint, (d ->> 2)::bigint, (d ->> 3)::uuid,
            (d ->> 4)::bigint, $2
        FROM json_array_elements($1::json) AS d",
    sqlite: "INSERT INTO record_marks (after, position, xact, id, revision, recorded_at)
        SELECT value ->> 0, value ->> 1, value ->> 2, unhex(value ->> 3), value ->> 4, $2
        FROM json_each($1)",
};

pub(super) fn decode_mark(row: &StoredRow<'_>) -> Result<Mark, LedgerError> {
    Ok(Mark {
        after: row.get("after")?,
        position: row.get("position")?,
        place: RecordPlace {
            revision: row.get("revision")?,
            ..decode_entry_place(row)?
        },
        recorded_at: row.get("recorded_at")?,
    })
}

fn decode_entry_place(row: &StoredRow<'_>) -> Result<RecordPlace, LedgerError> {
    Ok(RecordPlace {
        xact: row.get("xact")?,
        id: row.get("id")?,
        revision: 0,
    })
}

fn decode_entries(row: &StoredRow<'_>) -> Result<RecordRun, LedgerError> {
    Ok(RecordRun {
        end: decode_entry_place(row)?,
        count: row.get("count")?,
    })
}

fn decode_change(row: &StoredRow<'_>) -> Result<RecordRun, LedgerError> {
    let end = RecordPlace {
        xact: row.get("xact")?,
        id: RecordPlace::OF_CHANGES,
        revision: row.get("revision")?,
    };
    Ok(RecordRun { end, count: 1 })
}

impl RecordTables {
    /// Up to where the order of committed transactions is known. Invariant: a later read sees
    /// everything below [`Horizon::ended`].
    #[boxed]
    pub async fn horizon(&self) -> Result<Horizon, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            Ok(Horizon {
                ended: row.get("ended")?,
                begun: row.get("begun")?,
            })
        };
        let horizon = self
            .ledger
            .own()
            .await?
            .lend()
            .first(query(HORIZON), decode)
            .await?;
        Ok(horizon.ok_or(sqlx::Error::RowNotFound)?)
    }

    /// The last mark, for the follower; [`Mark::FIRST`] if there is none.
    #[boxed]
    pub async fn mark_to_follow(&self) -> Result<Mark, LedgerError> {
        let mut held = self.ledger.own().await?;
        let last = held.lend().first(query(LAST_MARK), decode_mark).await?;
        Ok(last.unwrap_or(Mark::FIRST))
    }

    /// The last mark; [`Mark::FIRST`] if there is none.
    #[boxed]
    pub async fn last_mark(&self) -> Result<Mark, LedgerError> {
        let last = self.mark(query(LAST_MARK)).await?;
        Ok(last.unwrap_or(Mark::FIRST))
    }

    /// The mark that ends at a position; [`Mark::FIRST`] for 0.
    #[boxed]
    pub async fn mark_to(&self, position: u64) -> Result<Mark, LedgerError> {
        let mark = self.mark(query(MARK_TO).bind(position)).await?;
        Ok(mark.unwrap_or(Mark::FIRST))
    }

    /// The mark that contains a position; `None` if the position is not given yet.
    #[boxed]
    pub async fn mark_with_position(&self, position: u64) -> Result<Option<Mark>, LedgerError> {
        self.mark(query(MARK_WITH_POSITION).bind(position)).await
    }

    /// The marks from the mark of a place on, in order, at most `limit`.
    #[boxed]
    pub async fn marks_from(
        &self,
        place: RecordPlace,
        limit: u32,
    ) -> Result<Vec<Mark>, LedgerError> {
        let marks = query(MARKS_FROM)
            .bind(place.xact)
            .bind(place.id)
            .bind(place.revision)
            .bind(limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(marks, decode_mark)
            .await
    }

    /// The marks with some positions, in order, from the first position on and before another. The
    /// last mark can go on behind them. For followers of the record.
    #[boxed]
    pub async fn marks_to_follow(&self, positions: Range<u64>) -> Result<Vec<Mark>, LedgerError> {
        let marks = query(MARKS_FROM_POSITION)
            .bind(positions.start)
            .bind(positions.end);
        self.ledger
            .own()
            .await?
            .lend()
            .all(marks, decode_mark)
            .await
    }

    /// The last mark that was made before an instant; [`Mark::FIRST`] if there is none.
    #[boxed]
    pub async fn mark_before(&self, instant: DateTime<Utc>) -> Result<Mark, LedgerError> {
        let mark = self.mark(query(MARK_BEFORE).bind(instant)).await?;
        Ok(mark.unwrap_or(Mark::FIRST))
    }

    async fn mark(&self, mark: Statement) -> Result<Option<Mark>, LedgerError> {
        self.ledger
            .reads()
            .await?
            .lend()
            .first(mark, decode_mark)
            .await
    }

    /// The place of an entry.
    #[boxed]
    pub async fn place_of(&self, entry: EntryId) -> Result<Option<RecordPlace>, LedgerError> {
        let place = query(PLACE_OF).bind(entry);
        let mut held = self.ledger.reads().await?;
        held.lend().first(place, decode_entry_place).await
    }

    /// The place of a change.
    #[boxed]
    pub async fn place_of_change(&self, revision: u64) -> Result<Option<RecordPlace>, LedgerError> {
        let change = query(PLACE_OF_CHANGE).bind(revision);
        let mut held = self.ledger.reads().await?;
        let run = held.lend().first(change, decode_change).await?;
        Ok(run.map(|run| run.end))
    }

    /// The entries and changes after a place and below a horizon, for the follower: at most `limit`
    /// runs.
    #[boxed]
    pub async fn runs_to_follow(
        &self,
        after: RecordPlace,
        horizon: Horizon,
        limit: u32,
    ) -> Result<Vec<RecordRun>, LedgerError> {
        let mut held = self.ledger.own().await?;
        let mut session = held.lend();
        let entries = query(ENTRY_RUNS)
            .bind(after.xact)
            .bind(after.id)
            .bind(horizon.ended)
            .bind(limit);
        let changes = query(CHANGES)
            .bind(after.xact)
            .bind(after.revision)
            .bind(horizon.ended)
            .bind(limit);
        let mut runs = session.all(entries, decode_entries).await?;
        runs.extend(session.all(changes, decode_change).await?);
        runs.sort_unstable_by_key(|run| run.end);
        runs.truncate(limit as usize);
        Ok(runs)
    }

    /// Adds marks that were made at one instant. Returns false and adds nothing if another follower
    /// has continued from the same mark.
    #[boxed]
    pub async fn add_marks(&self, marks: &[Mark]) -> Result<bool, LedgerError> {
        let Some(last) = marks.last() else {
            return Ok(true);
        };
        let added = self
            .ledger
            .own_edit(async |mut session| {
                session.execute(query(HOLD_POSITIONS)).await?;
                let add = query(ADD_MARKS).bind(encode_marks(marks));
                session.execute(add.bind(last.recorded_at)).await?;
                Ok(Ending::Commit(()))
            })
            .await;
        match added {
            Ok(()) => Ok(true),
            Err(LedgerError::Conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Marks as JSON, so that one statement adds all.
fn encode_marks(marks: &[Mark]) -> String {
    let row = |mark: &Mark| {
        let RecordPlace { xact, id, revision } = mark.place;
        json!([mark.after, mark.position, xact, id.0.simple(), revision])
    };
    json!(marks.iter().map(row).collect::<Vec<_>>()).to_string()
}

/// The dropped entries after one place and up to another, in order, at most `limit`.
pub(super) async fn dropped_leaves(
    session: &mut Session<'_>,
    after: RecordPlace,
    up_to: RecordPlace,
    limit: u32,
) -> Result<Vec<DroppedLeaf>, LedgerError> {
    let dropped = query(DROPPED)
        .bind(after.xact)
        .bind(after.id)
        .bind(up_to.xact)
        .bind(up_to.id)
        .bind(limit);
    let decode = |row: &StoredRow<'_>| {
        Ok(DroppedLeaf {
            place: decode_entry_place(row)?,
            policy: row.get("policy")?,
            cut: row.get("revision")?,
        })
    };
    session.all(dropped, decode).await
}
