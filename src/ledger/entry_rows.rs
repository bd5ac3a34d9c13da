//! An entry, its line and its details, read from rows.

use super::encoding::{decode_flags, decode_kind, decode_note, is_erased};
use super::fence::Fence;
use super::row::StoredRow;
use super::{LedgerError, LedgerView};
use crate::domain::claim::Metadata;
use crate::domain::grant::{Entry, Line};
use crate::domain::limit::text::decode_totals;

/// The columns of an entry `e` and its details `d`.
macro_rules! entry_columns {
    () => {
        "e.account, e.number, e.at, e.policy_version, e.lapses_at, e.totals, e.id, e.kind, e.units,
         e.key, e.metadata, e.flags, e.claimed_by, d.of_grant, d.held_until, d.made_by, d.reason"
    };
}
pub(super) use entry_columns;

/// Joins the details `d` of an entry `e`.
macro_rules! with_details {
    () => {
        " LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number "
    };
}
pub(super) use with_details;

/// The millisecond of an id. PostgreSQL's index of all entries begins with it.
macro_rules! millisecond {
    ($id:expr) => {
        concat!("substring(uuid_send(", $id, "), 1, 6)")
    };
}
pub(super) use millisecond;

/// A condition on the metadata of an entry: the member `$name` at the top level has the value
/// `$value`. If the name is NULL, every entry fits.
macro_rules! postgres_metadata {
    ($entry:literal, $name:literal, $value:literal) => {
        concat!(
            " AND (",
            $name,
            " IS NULL OR CASE
                 WHEN json_typeof(",
            $entry,
            ".metadata::json -> ",
            $name,
            ") IN ('string', 'number', 'boolean')
                 THEN ",
            $entry,
            ".metadata::json ->> ",
            $name,
            " = ",
            $value,
            " END)"
        )
    };
}
pub(super) use postgres_metadata;

macro_rules! sqlite_metadata {
    ($entry:literal, $name:literal, $value:literal) => {
        concat!(
            " AND (",
            $name,
            " IS NULL OR CASE json_type(",
            $entry,
            ".metadata, '$.\"' || ",
            $name,
            " || '\"')
                 WHEN 'text' THEN ",
            $entry,
            ".metadata ->> ('$.\"' || ",
            $name,
            " || '\"') = ",
            $value,
            " WHEN 'object' THEN false WHEN 'array' THEN false WHEN 'null' THEN false
                 ELSE ",
            $entry,
            ".metadata -> ('$.\"' || ",
            $name,
            " || '\"') = ",
            $value,
            " END)"
        )
    };
}
pub(super) use sqlite_metadata;

/// The grant that an entry `e` names; NULL if it names none. Most entries are grants, which name none.
macro_rules! named_grant {
    () => {
        concat!(
            "CASE WHEN e.kind <> ",
            grant_kind!(),
            " THEN (
                 SELECT of_grant FROM entry_details AS d
                 WHERE d.account = e.account AND d.number = e.number
             ) END"
        )
    };
}
pub(super) use named_grant;

pub fn decode_line(row: &StoredRow<'_>) -> Result<Line, LedgerError> {
    Ok(Line {
        number: row.get("number")?,
        at: row.get("at")?,
        policy_version: row.get("policy_version")?,
        lapses_at: row.get("lapses_at")?,
        totals: decode_totals(&row.get::<String>("totals")?)?.into(),
    })
}

/// Reads an entry from [`entry_columns!`].
pub fn decode_entry(row: &StoredRow<'_>) -> Result<Entry, LedgerError> {
    let (provisional, would_deny) = decode_flags(row.get("flags")?)?;
    Ok(Entry {
        account: row.get("account")?,
        id: row.get("id")?,
        kind: decode_kind(
            row.get("kind")?,
            row.get("of_grant")?,
            row.get("held_until")?,
        )?,
        units: row.get("units")?,
        key: row.get("key")?,
        metadata: row
            .get::<Option<String>>("metadata")?
            .map(Metadata::from_stored),
        provisional,
        would_deny,
        is_erased: is_erased(row.get("flags")?),
        claimed_by: row.get("claimed_by")?,
        note: decode_note(row.get("made_by")?, row.get("reason")?),
        line: decode_line(row)?,
    })
}

/// A view made of rows of last lines and rows of entries. A row of a line may have no account.
pub fn decode_view<'r>(
    fence: Option<Fence>,
    lines: impl Iterator<Item = StoredRow<'r>>,
    entries: impl Iterator<Item = StoredRow<'r>>,
) -> Result<LedgerView, LedgerError> {
    let mut view = LedgerView {
        fence,
        ..LedgerView::default()
    };
    for row in lines {
        if let Some(account) = row.get("account")? {
            view.lines.insert(account, decode_line(&row)?);
        }
    }
    for row in entries {
        view.entries.push(decode_entry(&row)?);
    }
    // A look may find the same entry by its key and by its id.
    view.entries.sort_unstable_by_key(|entry| entry.id);
    view.entries.dedup_by_key(|entry| entry.id);
    Ok(view)
}
