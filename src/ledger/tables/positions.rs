//! Positions: the numbers of places in the order of the record. A mark says which positions its places
//! have together. Here they are counted, in one statement for all marks that a question needs.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::record::decode_mark;
use crate::boxed;
use crate::query::{Statement, Texts, query};
use crate::row::StoredRow;
use crate::{LedgerError, RecordTables};
use domain::record::{Mark, RecordPlace};

// `marks` are the marks that a question needs, `places` what is in them. `numbered` has each place with its number
// in its mark, and how many places are left of the mark. $1 is the first place's id, and $2 the id in the
// places of changes.

/// The statement `$select` about the marks whose positions are above `$after`.
macro_rules! numbering {
    ($wanted:literal, $after:literal, $select:literal) => {
        concat!(
            "WITH ",
            $wanted,
            "marks AS (
                SELECT own.after, own.position, own.recorded_at, own.xact, own.id, own.revision,
                    COALESCE(low.xact, 0) AS low_xact, COALESCE(low.id, $1) AS low_id,
                    COALESCE(low.revision, 0) AS low_revision
                FROM record_marks AS own LEFT JOIN record_marks AS low ON low.position = own.after
                WHERE own.after IN (",
            $after,
            ")
            ), places AS (
                SELECT m.after, t.xact, t.id, 0 AS revision
                FROM marks AS m JOIN entries AS t ON t.xact >= m.low_xact AND t.xact <= m.xact
                    AND (t.xact, t.id) > (m.low_xact, m.low_id) AND (t.xact, t.id) <= (m.xact, m.id)
                UNION ALL SELECT m.after, t.xact, t.id, 0 AS revision
                FROM marks AS m JOIN dropped_entries AS t ON t.xact >= m.low_xact
                    AND (t.xact, t.id) > (m.low_xact, m.low_id) AND (t.xact, t.id) <= (m.xact, m.id)
                UNION ALL SELECT m.after, t.xact, $2 AS id, t.revision
                FROM marks AS m JOIN policy_versions AS t ON t.xact >= m.low_xact AND t.xact <= m.xact
                    AND (t.xact, $2, t.revision) > (m.low_xact, m.low_id, m.low_revision)
                    AND (t.xact, $2, t.revision) <= (m.xact, m.id, m.revision)
                UNION ALL SELECT m.after, t.xact, $2 AS id, t.revision
                FROM marks AS m JOIN key_versions AS t ON t.xact >= m.low_xact AND t.xact <= m.xact
                    AND (t.xact, $2, t.revision) > (m.low_xact, m.low_id, m.low_revision)
                    AND (t.xact, $2, t.revision) <= (m.xact, m.id, m.revision)
                UNION ALL SELECT m.after, t.xact, $2 AS id, t.revision
                FROM marks AS m JOIN override_versions AS t ON t.xact >= m.low_xact AND t.xact <= m.xact
                    AND (t.xact, $2, t.revision) > (m.low_xact, m.low_id, m.low_revision)
                    AND (t.xact, $2, t.revision) <= (m.xact, m.id, m.revision)
                UNION ALL SELECT m.after, t.xact, $2 AS id, t.revision
                FROM marks AS m JOIN acts AS t ON t.xact >= m.low_xact AND t.xact <= m.xact
                    AND (t.xact, $2, t.revision) > (m.low_xact, m.low_id, m.low_revision)
                    AND (t.xact, $2, t.revision) <= (m.xact, m.id, m.revision)
            ), numbered AS (
                SELECT after, xact, id, revision, count(*) OVER (PARTITION BY after) AS found,
                    row_number() OVER (PARTITION BY after ORDER BY xact, id, revision) AS number
                FROM places
            )
            ",
            $select
        )
    };
}

/// The positions of the places `$wanted`.
macro_rules! positions {
    ($wanted:literal) => {
        numbering!(
            $wanted,
            "SELECT (
                SELECT after FROM record_marks
                WHERE (xact, id, revision) >= (wanted.xact, wanted.id, wanted.revision)
                ORDER BY xact, id, revision LIMIT 1
            ) FROM wanted",
            "SELECT m.after + n.number AS position, m.recorded_at, n.found,
                m.position - m.after AS given, m.after
            FROM wanted AS w
            JOIN numbered AS n ON n.xact = w.xact AND n.id = w.id AND n.revision = w.revision
            JOIN marks AS m ON m.after = n.after
            ORDER BY 1"
        )
    };
}

/// The positions of the places $3: a JSON array with one array for each place, with its columns.
const POSITIONS: Texts = Texts {
    postgres: positions!(
        "wanted AS (
            SELECT (d ->> 0)::bigint AS xact, (d ->> 1)::uuid AS id, (d ->> 2)::bigint AS revision
            FROM json_array_elements($3::json) AS d
        ), "
    ),
    sqlite: positions!(
        "wanted AS (
            SELECT value ->> 0 AS xact, unhex(value ->> 1) AS id, value ->> 2 AS revision
            FROM json_each($3)
        ), "
    ),
};

/// The mark that has its positions above $3, cut to end at the position $4.
const MARK_AT: &str = numbering!(
    "",
    "$3",
    "SELECT m.after, m.after + n.number AS position, n.xact, n.id, n.revision,
        m.recorded_at, n.found, m.position - m.after AS given
    FROM numbered AS n JOIN marks AS m ON m.after = n.after
    WHERE m.after + n.number = $4"
);

/// Every statement, by name.
#[cfg(feature = "faults")]
pub(super) fn texts() -> Vec<(String, Texts)> {
    let texts = [("positions", POSITIONS), ("mark at", MARK_AT.into())];
    texts.map(|(name, texts)| (name.to_owned(), texts)).to_vec()
}

/// A statement with the values of $1 and $2.
fn numbering(texts: impl Into<Texts>) -> Statement {
    query(texts)
        .bind(RecordPlace::FIRST.id)
        .bind(RecordPlace::OF_CHANGES)
}

/// Checks that all places of a mark are there.
fn check_whole(row: &StoredRow<'_>) -> Result<(), LedgerError> {
    let found: u64 = row.get("found")?;
    let given: u64 = row.get("given")?;
    if found == given {
        Ok(())
    } else {
        let after: u64 = row.get("after")?;
        Err(LedgerError::Corrupt(format!(
            "above the position {after} the ledger should have {given} entries and changes in the next \
                 mark, but has {found}"
        )))
    }
}

fn decode_position(row: &StoredRow<'_>) -> Result<(u64, DateTime<Utc>), LedgerError> {
    check_whole(row)?;
    Ok((row.get("position")?, row.get("recorded_at")?))
}

fn decode_mark_at(row: &StoredRow<'_>) -> Result<Mark, LedgerError> {
    check_whole(row)?;
    decode_mark(row)
}

impl RecordTables {
    /// The positions of places that have one, which must be in order; each with the instant when it was
    /// given.
    pub async fn positions(
        &self,
        places: impl Iterator<Item = RecordPlace>,
    ) -> Result<Vec<(u64, DateTime<Utc>)>, LedgerError> {
        let row = |place: RecordPlace| json!([place.xact, place.id.0.simple(), place.revision]);
        let rows: Vec<serde_json::Value> = places.map(row).collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let count = rows.len();
        let positions = numbering(POSITIONS).bind(json!(rows).to_string());
        let mut held = self.ledger.reads().await?;
        let found = held.lend().all(positions, decode_position).await?;
        if found.len() == count {
            Ok(found)
        } else {
            Err(LedgerError::Corrupt(
                "an entry in the record has no position".to_owned(),
            ))
        }
    }

    /// The position of a place; `None` if it has none yet.
    #[boxed]
    pub async fn position_of(&self, place: RecordPlace) -> Result<Option<u64>, LedgerError> {
        if self.last_mark().await?.place < place {
            return Ok(None);
        }
        let found = self.positions([place].into_iter()).await?;
        Ok(found.first().map(|(position, _)| *position))
    }

    /// The mark of a position, cut to end at the position; `None` if the position is not given yet.
    #[boxed]
    pub async fn mark_at(&self, position: u64) -> Result<Option<Mark>, LedgerError> {
        if position == 0 {
            return Ok(Some(Mark::FIRST));
        }
        let Some(mark) = self.mark_with_position(position).await? else {
            return Ok(None);
        };
        let at = numbering(MARK_AT).bind(mark.after).bind(position);
        let mut held = self.ledger.reads().await?;
        let found = held.lend().first(at, decode_mark_at).await?;
        match found {
            Some(mark) => Ok(Some(mark)),
            None => Err(LedgerError::Corrupt(format!(
                "the entry or change at position {position} is gone"
            ))),
        }
    }
}
