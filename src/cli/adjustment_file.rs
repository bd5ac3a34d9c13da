//! The file of `adjust --file`: CSV with the columns subject, units, at and reason.

use std::path::Path;

use super::csv_lines::{self, CsvCells, CsvColumn, CsvLine, key_of};
use super::times::GivenTime;
use domain::claim::Subject;

/// An adjustment.
#[derive(Debug, PartialEq, Eq)]
pub struct AdjustmentLine {
    pub subject: String,
    pub units: i64,
    pub at: Option<GivenTime>,
    /// `at` as it is in the file.
    at_text: String,
    pub reason: String,
}

impl AdjustmentLine {
    /// The idempotency key of the line in a file with this name.
    pub fn key(&self, name: &str) -> String {
        key_of("adjustment", [name, &self.subject, &self.at_text])
    }
}

/// Reads all lines.
///
/// # Errors
/// As [`csv_lines::read`].
pub fn read(file: &Path, reason: Option<&String>) -> anyhow::Result<Vec<CsvLine<AdjustmentLine>>> {
    let columns = [
        CsvColumn::needed("subject"),
        CsvColumn::needed("units"),
        CsvColumn::optional("at"),
        CsvColumn::or_flag("reason", "--reason", reason.is_some()),
    ];
    csv_lines::read(file, &columns, |cells| read_line(cells, reason))
}

fn read_line(cells: &mut CsvCells<'_>, reason: Option<&String>) -> Option<AdjustmentLine> {
    let subject = cells.parsed("subject", |text| {
        Subject::existing(text).map(|_| text.to_owned())
    });
    let units = cells.parsed("units", |text| match text.parse() {
        Ok(0) => Err("0 changes nothing: write another number".to_owned()),
        Ok(units) => Ok(units),
        Err(_) => Err(format!(
            "{text:?} is no whole number: write one, such as 5 or -5"
        )),
    });
    let at = cells.time("at");
    let at_text = cells.text("at").unwrap_or_default().to_owned();
    let reason = cells.reason(reason);
    Some(AdjustmentLine {
        subject: subject?,
        units: units?,
        at,
        at_text,
        reason: reason?,
    })
}
