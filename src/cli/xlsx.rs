//! Entries as an Excel workbook for people. Ids and subjects are always text cells.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use chrono::{DateTime, Utc};
use rust_xlsxwriter::{ExcelDateTime, Format, Workbook, Worksheet, XlsxError};
use serde_json::Value;

/// The most entries of a worksheet. Its first row has the column names.
pub const ENTRIES_MOST: u64 = 1_048_575;
/// The largest whole number of which a workbook shows all digits.
const NUMBER_MOST: i64 = 999_999_999_999_999;

/// How the cells of a column are typed.
#[derive(Clone, Copy)]
enum Cells {
    Text,
    Number,
    /// An instant, shown in UTC.
    Instant,
    Date,
}

/// Each column: its name, its value in an entry, and its type.
const COLUMNS: [(&str, &str, Cells); 19] = [
    ("position", "/position", Cells::Number),
    ("recorded_at (UTC)", "/recorded_at", Cells::Instant),
    ("policy", "/policy", Cells::Text),
    ("subject", "/subject", Cells::Text),
    ("counted_on", "/counted_on", Cells::Date),
    ("number", "/number", Cells::Number),
    ("id", "/id", Cells::Text),
    ("kind", "/kind", Cells::Text),
    ("units", "/units", Cells::Number),
    ("at (UTC)", "/at", Cells::Instant),
    ("counted_at (UTC)", "/counted_at", Cells::Instant),
    ("grant", "/grant", Cells::Text),
    ("by", "/by", Cells::Text),
    ("reason", "/reason", Cells::Text),
    ("policy_version", "/policy_version", Cells::Number),
    ("limits", "/limits", Cells::Text),
    ("key_id", "/key/id", Cells::Text),
    ("key_name", "/key/name", Cells::Text),
    ("metadata", "/metadata", Cells::Text),
];

/// Writes a workbook from an NDJSON file. It keeps only one row in memory.
pub fn write(ndjson: &Path, workbook: &Path) -> anyhow::Result<()> {
    let mut book = Workbook::new();
    let sheet = book.add_worksheet_with_constant_memory()?;
    let instants = Format::new().set_num_format("yyyy-mm-dd hh:mm:ss.000");
    let dates = Format::new().set_num_format("yyyy-mm-dd");
    for (column, (name, ..)) in (0..).zip(COLUMNS) {
        sheet.write_string(0, column, name)?;
    }
    for (row, line) in (1..).zip(BufReader::new(File::open(ndjson)?).lines()) {
        let entry: Value = serde_json::from_str(&line?)?;
        for (column, (_, pointer, cells)) in (0..).zip(COLUMNS) {
            let format = match cells {
                Cells::Date => &dates,
                Cells::Text | Cells::Number | Cells::Instant => &instants,
            };
            if let Some(value) = entry.pointer(pointer) {
                write_cell(sheet, (row, column), value, cells, format)?;
            }
        }
    }
    book.save(workbook)?;
    Ok(())
}

/// Writes a cell. A value that does not fit the column's type becomes text; a list becomes JSON.
fn write_cell(
    sheet: &mut Worksheet,
    (row, column): (u32, u16),
    value: &Value,
    cells: Cells,
    format: &Format,
) -> Result<(), XlsxError> {
    let instant = match cells {
        Cells::Instant => value.as_str().and_then(parse_instant),
        Cells::Date => value.as_str().and_then(parse_date),
        Cells::Text | Cells::Number => None,
    };
    let number = value.as_i64().filter(|number| number.abs() <= NUMBER_MOST);
    match (instant, number, cells) {
        (Some(instant), ..) => sheet.write_datetime_with_format(row, column, instant, format)?,
        (None, Some(number), Cells::Number) => sheet.write_number(row, column, number as f64)?,
        _ => match value {
            Value::Null => return Ok(()),
            Value::String(text) => sheet.write_string(row, column, text)?,
            other => sheet.write_string(row, column, other.to_string())?,
        },
    };
    Ok(())
}

/// `None` for a year before 1900, which workbooks do not have.
fn parse_instant(text: &str) -> Option<ExcelDateTime> {
    let at = text.parse::<DateTime<Utc>>().ok()?;
    let at = at.format("%Y-%m-%dT%H:%M:%S%.3f").to_string();
    ExcelDateTime::parse_from_str(&at).ok()
}

fn parse_date(text: &str) -> Option<ExcelDateTime> {
    ExcelDateTime::parse_from_str(text).ok()
}
