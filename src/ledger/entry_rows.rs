//! An entry, its line and its details, read from rows.

use super::encoding::{decode_crossed, decode_flags, decode_kind, decode_note, is_erased};
use super::fence::Fence;
use super::row::StoredRow;
use super::{LedgerError, LedgerView};
use domain::claim::Metadata;
use domain::grant::{Entry, Line};
use domain::line_text::{LineState, decode_state};
use domain::shared::SharedUse;

pub fn decode_line(row: &StoredRow<'_>) -> Result<Line, LedgerError> {
    let LineState {
        top_ups,
        calendar,
        totals,
    } = decode_state(&row.get::<String>("totals")?)?;
    Ok(Line {
        number: row.get("number")?,
        at: row.get("at")?,
        policy_version: row.get("policy_version")?,
        lapses_at: row.get("lapses_at")?,
        calendar,
        top_ups,
        totals,
    })
}

/// Reads an entry from a row of the view `entry_rows`, or of one with the same columns and more.
pub fn decode_entry(row: &StoredRow<'_>) -> Result<Entry, LedgerError> {
    let (provisional, would_deny) = decode_flags(row.get("flags")?)?;
    Ok(Entry {
        account: row.get("account")?,
        id: row.get("id")?,
        kind: decode_kind(
            row.get("kind")?,
            row.get("of_grant")?,
            row.get("held_until")?,
            row.get("per")?,
        )?,
        units: row.get("units")?,
        key: row.get("key")?,
        bundle: row.get("bundle")?,
        metadata: row
            .get::<Option<String>>("metadata")?
            .map(Metadata::from_stored),
        provisional,
        would_deny,
        crossed: decode_crossed(row.get("flags")?),
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
    shared: SharedUse,
) -> Result<LedgerView, LedgerError> {
    let mut view = LedgerView {
        fence,
        shared: shared.into(),
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
