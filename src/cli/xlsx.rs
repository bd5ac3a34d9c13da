//! Entries as an Excel workbook for people. Ids and subjects are always text cells.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use chrono::{DateTime, NaiveDate, Utc};
use rust_xlsxwriter::{ExcelDateTime, Format, Workbook, Worksheet, XlsxError};
use serde_json::json;

use super::client::read;
use api::calendars::CalendarAnswer;
use api::entries::HistoryItem;
use api::instant::written;
use api::limits::levels_cell;

/// The most entries of a worksheet. Its first row has the column names.
pub const ENTRIES_MOST: u64 = 1_048_575;
/// The largest whole number of which a workbook shows all digits.
const NUMBER_MOST: i64 = 999_999_999_999_999;

/// What a cell has.
enum Cell {
    Nothing,
    Text(String),
    Number(i64),
    /// An instant, shown in UTC.
    Instant(DateTime<Utc>),
    Date(NaiveDate),
}

impl Cell {
    fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    fn some(text: Option<impl ToString>) -> Self {
        text.map_or(Self::Nothing, Self::text)
    }

    fn number(number: impl Into<i128>) -> Self {
        let number = number.into();
        let small = i64::try_from(number).ok();
        let small = small.filter(|number| number.abs() <= NUMBER_MOST);
        small.map_or_else(|| Self::text(number), Self::Number)
    }
}

/// A column: its name, and its cell of an entry.
type EntryColumn = (&'static str, fn(&HistoryItem) -> Cell);

const COLUMNS: [EntryColumn; 28] = [
    ("position", |item| Cell::number(item.position)),
    ("recorded_at (UTC)", |item| Cell::Instant(item.recorded_at)),
    ("policy", |item| Cell::text(&item.policy)),
    ("subject", |item| Cell::some(item.subject.as_ref())),
    ("counted_on", |item| Cell::Date(item.counted_on)),
    ("number", |item| Cell::number(item.entry.number)),
    ("id", |item| Cell::text(item.entry.id)),
    ("kind", |item| Cell::text(&item.entry.kind)),
    ("units", |item| Cell::number(item.entry.units)),
    ("at (UTC)", |item| Cell::Instant(item.entry.at)),
    ("counted_at (UTC)", |item| {
        Cell::Instant(item.entry.counted_at)
    }),
    ("held_until (UTC)", |item| {
        item.entry.held_until.map_or(Cell::Nothing, Cell::Instant)
    }),
    ("grant", |item| Cell::some(item.entry.grant)),
    ("per", |item| Cell::some(item.entry.per.as_ref())),
    ("by", |item| Cell::some(item.entry.by.as_ref())),
    ("reason", |item| Cell::some(item.entry.reason.as_ref())),
    ("policy_version", |item| {
        Cell::number(item.entry.policy_version)
    }),
    ("crossed", |item| {
        Cell::text(levels_cell(&item.entry.crossed))
    }),
    ("limits", |item| Cell::text(json!(item.entry.limits))),
    ("key_id", |item| {
        Cell::some(item.key.as_ref().map(|key| key.id))
    }),
    ("key_name", |item| {
        Cell::some(item.key.as_ref().map(|key| &key.name))
    }),
    ("metadata", |item| Cell::some(item.metadata.as_ref())),
    ("bundle", |item| Cell::some(item.entry.bundle)),
    ("own_time_zone", |item| {
        Cell::some(own(item).and_then(|own| own.time_zone.as_ref()))
    }),
    ("anchor", |item| {
        Cell::some(own(item).and_then(|own| own.anchor))
    }),
    ("topped_up_units", |item| {
        let units = Some(item.entry.topped_up_units).filter(|units| *units > 0);
        units.map_or(Cell::Nothing, Cell::number)
    }),
    ("top_up", |item| {
        Cell::some(item.entry.top_up.as_ref().map(|top_up| top_up.id))
    }),
    ("top_up_until (UTC)", |item| {
        let top_up = item.entry.top_up.as_ref();
        let until = top_up.and_then(|top_up| top_up.until);
        until.map_or(Cell::Nothing, Cell::Instant)
    }),
];

fn own(item: &HistoryItem) -> Option<&CalendarAnswer> {
    item.entry.calendar.as_ref()
}

/// Writes a workbook from an NDJSON file. It keeps only one row in memory.
pub fn write(ndjson: &Path, workbook: &Path) -> anyhow::Result<()> {
    let mut book = Workbook::new();
    let sheet = book.add_worksheet_with_constant_memory()?;
    let instants = Format::new().set_num_format("yyyy-mm-dd hh:mm:ss.000");
    let dates = Format::new().set_num_format("yyyy-mm-dd");
    for (column, (name, _)) in (0..).zip(COLUMNS) {
        sheet.write_string(0, column, name)?;
    }
    for (row, line) in (1..).zip(BufReader::new(File::open(ndjson)?).lines()) {
        let item = read(&serde_json::from_str(&line?)?)?;
        for (column, (_, cell)) in (0..).zip(COLUMNS) {
            let cell = cell(&item);
            let format = match cell {
                Cell::Date(_) => &dates,
                _ => &instants,
            };
            write_cell(sheet, (row, column), cell, format)?;
        }
    }
    book.save(workbook)?;
    Ok(())
}

/// Writes a cell. A time before 1900, which workbooks do not have, becomes text.
fn write_cell(
    sheet: &mut Worksheet,
    (row, column): (u32, u16),
    cell: Cell,
    format: &Format,
) -> Result<(), XlsxError> {
    let (time, text) = match cell {
        Cell::Nothing => return Ok(()),
        Cell::Number(number) => {
            sheet.write_number(row, column, number as f64)?;
            return Ok(());
        }
        Cell::Text(text) => (None, text),
        Cell::Instant(at) => {
            let time = at.format("%Y-%m-%dT%H:%M:%S%.3f").to_string();
            (Some(time), written(at))
        }
        Cell::Date(date) => (Some(date.to_string()), date.to_string()),
    };
    match time.and_then(|time| ExcelDateTime::parse_from_str(&time).ok()) {
        Some(time) => sheet.write_datetime_with_format(row, column, time, format)?,
        None => sheet.write_string(row, column, text)?,
    };
    Ok(())
}
