//! The log of seals: its origins, the hashes of its tree, and its checkpoints.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::acts::{Act, add_act_in};
use crate::access::Ending;
use crate::boxed;
use crate::query::{Session, Texts, query};
use crate::row::StoredRow;
use crate::{AuditTables, LedgerError};
use domain::seal::leaf::{Hash, hex};
use domain::seal::tile::{TILE_WIDTH, TileRow};

/// The name of a log: the first line of its checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealOrigin {
    /// 1 for the first log; each restart begins the next.
    pub number: u64,
    pub name: String,
    pub begun_at: DateTime<Utc>,
}

/// The present log, as one statement reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedLog {
    pub origin: SealOrigin,
    /// The number of leaves of its tree.
    pub size: u64,
    /// Its newest checkpoint.
    pub last: Option<Seal>,
}

/// A checkpoint as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    pub origin: SealOrigin,
    pub size: u64,
    /// The signed checkpoint.
    pub note: String,
    pub sealed_at: DateTime<Utc>,
}

/// The last origin, with the last leaves of its tree and its last checkpoint.
const LOG: &str = "SELECT o.number, o.name, o.begun_at, h.first,
        CAST(length(h.hashes) AS bigint) AS bytes, s.size, s.note, s.sealed_at
    FROM (SELECT number, name, begun_at FROM seal_origins ORDER BY number DESC LIMIT 1) AS o
    LEFT JOIN seal_hashes AS h ON h.origin = o.number AND h.level = 0 AND h.first = (
        SELECT max(first) FROM seal_hashes WHERE origin = o.number AND level = 0
    )
    LEFT JOIN seals AS s ON s.origin = o.number AND s.size = (
        SELECT max(size) FROM seals WHERE origin = o.number
    )";
const ORIGINS: &str = "SELECT number, name, begun_at FROM seal_origins ORDER BY number";
const ADD_ORIGIN: &str = "INSERT INTO seal_origins (number, name, begun_at) VALUES ($1, $2, $3)";
const ROWS: &str = "SELECT level, first, hashes FROM seal_hashes
    WHERE origin = $1 AND level = $2 AND first >= $3 AND first < $4 ORDER BY first";
/// Adds the rows of a JSON array to the origin $1: one array for each row, with its columns.
const ADD_ROWS: Texts = Texts {
    postgres: "INSERT INTO seal_hashes (origin, level, first, hashes)
        SELECT CAST($1 AS bigint), (d ->> 0)::smallint, (d ->> 1)::bigint, decode(d ->> 2, 'hex')
        FROM json_array_elements($2::json) AS d",
    sqlite: "INSERT INTO seal_hashes (origin, level, first, hashes)
        SELECT CAST($1 AS bigint), value ->> 0, value ->> 1, unhex(value ->> 2) FROM json_each($2)",
};
const ADD_SEAL: &str = "INSERT INTO seals (origin, size, note, sealed_at) VALUES ($1, $2, $3, $4)";

const LISTED: &str = "SELECT o.number, o.name, o.begun_at, s.size, s.note, s.sealed_at
    FROM seals AS s JOIN seal_origins AS o ON o.number = s.origin
    WHERE (s.origin, s.size) < ($1, $2) ORDER BY s.origin DESC, s.size DESC LIMIT $3";
const FROM_SIZE: &str = "SELECT o.number, o.name, o.begun_at, s.size, s.note, s.sealed_at
    FROM seals AS s JOIN seal_origins AS o ON o.number = s.origin
    WHERE s.origin = $1 AND s.size >= $2 ORDER BY s.size LIMIT $3";

fn decode_origin(row: &StoredRow<'_>) -> Result<SealOrigin, LedgerError> {
    Ok(SealOrigin {
        number: row.get("number")?,
        name: row.get("name")?,
        begun_at: row.get("begun_at")?,
    })
}

fn decode_seal(row: &StoredRow<'_>) -> Result<Seal, LedgerError> {
    Ok(Seal {
        origin: decode_origin(row)?,
        size: row.get("size")?,
        note: row.get("note")?,
        sealed_at: row.get("sealed_at")?,
    })
}

fn decode_log(row: &StoredRow<'_>) -> Result<SealedLog, LedgerError> {
    let first: Option<u64> = row.get("first")?;
    let bytes: Option<u64> = row.get("bytes")?;
    let bytes = bytes.unwrap_or_default();
    if !bytes.is_multiple_of(32) {
        return Err(LedgerError::Corrupt("hashes of a tile".to_owned()));
    }
    let has_seal = row.get::<Option<u64>>("size")?.is_some();
    Ok(SealedLog {
        origin: decode_origin(row)?,
        size: first.unwrap_or_default() + bytes / 32,
        last: has_seal.then(|| decode_seal(row)).transpose()?,
    })
}

fn decode_row(row: &StoredRow<'_>) -> Result<TileRow, LedgerError> {
    let bytes: Vec<u8> = row.get("hashes")?;
    let (hashes, rest) = bytes.as_chunks::<32>();
    let level: i16 = row.get("level")?;
    let level = u8::try_from(level).ok().filter(|_| rest.is_empty());
    let damaged = || LedgerError::Corrupt("hashes of a tile".to_owned());
    Ok(TileRow {
        level: level.ok_or_else(damaged)?,
        first: row.get("first")?,
        hashes: hashes.to_vec(),
    })
}

const HAS_RESTART: Texts = Texts {
    postgres: "SELECT EXISTS (
        SELECT 1 FROM acts WHERE kind = 'seal-restart' AND strpos(about, $1) > 0)",
    sqlite: "SELECT EXISTS (
        SELECT 1 FROM acts WHERE kind = 'seal-restart' AND instr(about, $1) > 0)",
};

impl AuditTables {
    /// The present log; `None` if nothing was ever sealed.
    #[boxed]
    pub async fn sealed_log(&self) -> Result<Option<SealedLog>, LedgerError> {
        let mut held = self.ledger.own().await?;
        held.lend().first(query(LOG), decode_log).await
    }

    /// All origins, the first one first.
    #[boxed]
    pub async fn seal_origins(&self) -> Result<Vec<SealOrigin>, LedgerError> {
        let mut held = self.ledger.reads().await?;
        held.lend().all(query(ORIGINS), decode_origin).await
    }

    /// Whether an act records the restart that began this origin.
    #[boxed]
    pub async fn has_restart(&self, origin: &str) -> Result<bool, LedgerError> {
        let named = format!("\"origin\":\"{origin}\"");
        let mut held = self.ledger.reads().await?;
        held.lend().one(query(HAS_RESTART).bind(named)).await
    }

    /// Begins an origin with the first hashes of its tree and their checkpoint. So an origin
    /// without a checkpoint did not begin here. An act records a restart. Returns false and adds
    /// nothing if another origin began.
    #[boxed]
    pub async fn begin_origin(
        &self,
        rows: &[TileRow],
        seal: &Seal,
        restart: Option<&Act>,
    ) -> Result<bool, LedgerError> {
        let added = self
            .ledger
            .own_edit(async |mut session| {
                if let Some(act) = restart {
                    add_act_in(&mut session, act).await?;
                }
                let origin = &seal.origin;
                let add = query(ADD_ORIGIN)
                    .bind(origin.number)
                    .bind(origin.name.as_str())
                    .bind(origin.begun_at);
                session.execute(add).await?;
                add_seal_in(&mut session, origin, rows, Some(seal)).await?;
                Ok(Ending::Commit(()))
            })
            .await;
        unless_conflict(added)
    }

    /// Adds hashes to the tree of an origin, and a checkpoint if there is one. Returns false and
    /// adds nothing if another sealer continued from the same leaf.
    #[boxed]
    pub async fn add_seal(
        &self,
        origin: &SealOrigin,
        rows: &[TileRow],
        seal: Option<&Seal>,
    ) -> Result<bool, LedgerError> {
        let added = self
            .ledger
            .own_edit(async |mut session| {
                add_seal_in(&mut session, origin, rows, seal).await?;
                Ok(Ending::Commit(()))
            })
            .await;
        unless_conflict(added)
    }

    /// The hashes of a level of an origin's tree, from an index on and below another, both of one
    /// tile. Fewer if the tree does not have all.
    #[boxed]
    pub async fn tile_hashes(
        &self,
        origin: u64,
        level: u8,
        from: u64,
        to: u64,
    ) -> Result<Vec<Hash>, LedgerError> {
        let start = from - from % TILE_WIDTH;
        let rows = self.tile_rows(origin, level, start, to).await?;
        let mut hashes = Vec::new();
        for row in rows {
            if row.first != start + hashes.len() as u64 {
                let what = format!("a hash at index {} of level {level}", row.first);
                return Err(LedgerError::Corrupt(what));
            }
            hashes.extend(row.hashes);
        }
        let index = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
        hashes.truncate(index(to));
        hashes.drain(..index(from).min(hashes.len()));
        Ok(hashes)
    }

    /// The rows of a level from an index on and below another, in order.
    #[boxed]
    pub async fn tile_rows(
        &self,
        origin: u64,
        level: u8,
        from: u64,
        to: u64,
    ) -> Result<Vec<TileRow>, LedgerError> {
        let rows = query(ROWS)
            .bind(origin)
            .bind(i16::from(level))
            .bind(from)
            .bind(to);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(rows, decode_row)
            .await
    }

    /// Seals of all origins, newest first, below the seal with this origin and size, at most
    /// `limit`.
    #[boxed]
    pub async fn seals(
        &self,
        (origin, size): (u64, u64),
        limit: u32,
    ) -> Result<Vec<Seal>, LedgerError> {
        let list = query(LISTED).bind(origin).bind(size).bind(limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(list, decode_seal)
            .await
    }

    /// The newest seal.
    #[boxed]
    pub async fn last_seal(&self) -> Result<Option<Seal>, LedgerError> {
        let seals = self.seals((u64::MAX, u64::MAX), 1).await?;
        Ok(seals.into_iter().next())
    }

    /// The seals of an origin from a size on, in order, at most `limit`.
    #[boxed]
    pub async fn seals_from(
        &self,
        origin: u64,
        size: u64,
        limit: u32,
    ) -> Result<Vec<Seal>, LedgerError> {
        let list = query(FROM_SIZE).bind(origin).bind(size).bind(limit);
        self.ledger
            .reads()
            .await?
            .lend()
            .all(list, decode_seal)
            .await
    }
}

fn unless_conflict(added: Result<(), LedgerError>) -> Result<bool, LedgerError> {
    match added {
        Ok(()) => Ok(true),
        Err(LedgerError::Conflict) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn add_seal_in(
    session: &mut Session<'_>,
    origin: &SealOrigin,
    rows: &[TileRow],
    seal: Option<&Seal>,
) -> Result<(), LedgerError> {
    if !rows.is_empty() {
        let row = |row: &TileRow| json!([row.level, row.first, hex(row.hashes.as_flattened())]);
        let rows = json!(rows.iter().map(row).collect::<Vec<_>>());
        let add = query(ADD_ROWS).bind(origin.number).bind(rows.to_string());
        session.execute(add).await?;
    }
    if let Some(seal) = seal {
        let add = query(ADD_SEAL)
            .bind(origin.number)
            .bind(seal.size)
            .bind(seal.note.as_str())
            .bind(seal.sealed_at);
        session.execute(add).await?;
    }
    Ok(())
}
