//! The file of `adjust --file`: CSV with the columns subject, units and at. Spreadsheets write commas,
//! semicolons or tabs between cells, and a byte order mark.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use super::times::GivenTime;
use domain::claim::Subject;

/// The most faults that are told.
const FAULTS_MOST: usize = 20;
const COLUMNS: [&str; 3] = ["subject", "units", "at"];

/// An adjustment, with its line in the file.
#[derive(Debug, PartialEq, Eq)]
pub struct AdjustmentLine {
    pub line: u64,
    pub subject: String,
    pub units: i64,
    pub at: Option<GivenTime>,
    /// `at` as it is in the file.
    at_text: Option<String>,
}

impl AdjustmentLine {
    /// The idempotency key of the line: a second run of the file is safe, in any order of lines.
    pub fn key(&self, name: &str) -> String {
        let at = self.at_text.as_deref().unwrap_or_default();
        let mut hasher = blake3::Hasher::new();
        for part in [name, &self.subject, at] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        format!("adjustment-{}", &hasher.finalize().to_hex()[..32])
    }
}

/// Reads all lines. If one is wrong, nothing of the file is entered.
///
/// # Errors
/// Every fault, up to 20, with its line and column.
pub fn read(file: &Path) -> anyhow::Result<Vec<AdjustmentLine>> {
    let bytes = fs::read(file)?;
    let text = String::from_utf8(bytes).context("the file is not UTF-8; save it as UTF-8")?;
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
    let text = &text.replace("\r\n", "\n");
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .delimiter(delimiter_of(text))
        .flexible(true)
        .from_reader(text.as_bytes());
    let columns = columns(reader.headers()?)?;
    let mut faults = Vec::new();
    let mut lines = Vec::new();
    let mut seen: HashMap<(String, Option<String>), u64> = HashMap::new();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, |position| position.line());
        match read_line(line, &record, &columns) {
            Err(wrong) => faults.extend(wrong),
            Ok(row) => {
                let same = seen.insert((row.subject.clone(), row.at_text.clone()), line);
                faults.extend(same.map(|first| {
                    format!("line {line}: line {first} has the same subject and instant: add the two up in one line")
                }));
                lines.push(row);
            }
        }
    }
    match faults.len() {
        0 => Ok(lines),
        count => {
            faults.truncate(FAULTS_MOST);
            let more = count - faults.len();
            let more = (more > 0).then(|| format!("and {more} more"));
            faults.extend(more);
            bail!("nothing was entered: {}", faults.join("; "))
        }
    }
}

/// The character between the cells of the first line: the most frequent one.
fn delimiter_of(text: &str) -> u8 {
    let first = text.lines().next().unwrap_or_default();
    let count = |delimiter: &u8| first.bytes().filter(|byte| byte == delimiter).count();
    let mut delimiters = [b',', b';', b'\t'];
    delimiters.sort_by_key(|delimiter| std::cmp::Reverse(count(delimiter)));
    delimiters[0]
}

/// The places of the columns, in the order of [`COLUMNS`]. Their names may have any case.
fn columns(headers: &csv::StringRecord) -> anyhow::Result<[Option<usize>; 3]> {
    let mut places = [None; 3];
    for (place, header) in headers.iter().enumerate() {
        let name = header.to_lowercase();
        let Some(column) = COLUMNS.iter().position(|column| *column == name) else {
            bail!(
                "line 1, column {}: {header:?} is unknown: write subject, units and, if wanted, at",
                place + 1
            );
        };
        if places[column].replace(place).is_some() {
            bail!("line 1: the column {name} is there twice");
        }
    }
    for (column, place) in COLUMNS.iter().zip(places).take(2) {
        if place.is_none() {
            bail!(
                "line 1: the column {column} is missing: write subject, units and, if wanted, at"
            );
        }
    }
    Ok(places)
}

fn read_line(
    line: u64,
    record: &csv::StringRecord,
    columns: &[Option<usize>; 3],
) -> Result<AdjustmentLine, Vec<String>> {
    let cell = |column: usize| columns[column].and_then(|place| record.get(place));
    let mut faults = Vec::new();
    let mut fault = |column: &str, why: String| {
        faults.push(format!("line {line}, column {column}: {why}"));
    };
    let expected = columns.iter().flatten().count();
    if record.len() > expected {
        fault(
            "?",
            format!("there are {} cells, and {expected} columns", record.len()),
        );
    }
    let subject = cell(0).unwrap_or_default();
    if let Err(error) = Subject::existing(subject) {
        fault("subject", error.to_string());
    }
    let units = cell(1).unwrap_or_default();
    let units = match units.parse::<i64>() {
        Ok(0) => {
            fault(
                "units",
                "0 changes nothing: write another number".to_owned(),
            );
            0
        }
        Ok(units) => units,
        Err(_) => {
            fault(
                "units",
                format!("{units:?} is no whole number: write one, such as 5 or -5"),
            );
            0
        }
    };
    // A second run of the file must mean the same times.
    let at_text = cell(2).filter(|at| !at.is_empty());
    let at = at_text.and_then(|at| at.parse().ok().filter(|at: &GivenTime| !at.is_of_now()));
    if let (Some(text), None) = (at_text, at) {
        fault(
            "at",
            format!(
                "{text:?} is no time of a file: write one such as 2026-11-03, 2026-11-03T14:03 or \
                 2026-11-03T00:00:00Z"
            ),
        );
    }
    if faults.is_empty() {
        Ok(AdjustmentLine {
            line,
            subject: subject.to_owned(),
            units,
            at,
            at_text: at_text.map(str::to_owned),
        })
    } else {
        Err(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> anyhow::Result<Vec<AdjustmentLine>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("adjustments.csv");
        fs::write(&file, text).unwrap();
        read(&file)
    }

    #[test]
    fn what_spreadsheets_write_is_read() {
        let expected = [
            (2, "a", 5, None),
            (3, "+86 138", -2, Some("2026-11-03T00:00:00Z")),
        ];
        for text in [
            "subject,units,at\na,5,\n+86 138,-2,2026-11-03T00:00:00Z\n",
            "\u{FEFF}Subject;UNITS;At\r\na;5;\r\n+86 138;-2;2026-11-03T00:00:00Z\r\n",
            "units\tsubject\tat\n5\ta\t\n-2\t\"+86 138\"\t2026-11-03T00:00:00Z",
            " At , Subject , Units \n,a,5\n2026-11-03T00:00:00Z, +86 138 ,-2\n",
        ] {
            let lines = read_text(text).unwrap();
            let lines = lines.iter();
            let lines =
                lines.map(|row| (row.line, &*row.subject, row.units, row.at_text.as_deref()));
            assert!(lines.eq(expected), "{text:?}");
        }
    }

    #[test]
    fn every_fault_is_told_with_its_line_and_column() {
        let told = |text: &str| format!("{:#}", read_text(text).unwrap_err());
        let text = "subject,units\na,1\n,2\nb,x\nc,0\na,3\nd,1,9\n";
        let all = told(text);
        for part in [
            "line 3, column subject",
            "line 4, column units: \"x\" is no whole number",
            "line 5, column units: 0",
            "line 6: line 2 has the same subject",
            "line 7, column ?: there are 3 cells",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        assert!(told("subject,amount\n").contains("column 2: \"amount\" is unknown"));
        assert!(told("subject\n").contains("units is missing"));
        assert!(told("subject,units,Units\n").contains("twice"));
        let many = format!("subject,units\n{}", "a,x\n".repeat(30));
        assert!(told(&many).ends_with("and 10 more"));
        let at = told("subject,units,at\na,1,yesterday\n");
        assert!(at.contains("line 2, column at: \"yesterday\""), "{at}");
    }
}
