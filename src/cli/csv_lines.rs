//! CSV files with one change a line, as spreadsheets write them: commas, semicolons or tabs between cells, and a byte
//! order mark. All faults of a file are told at once, each with its line and column.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use super::times::GivenTime;
use domain::policy::check_reason;

/// The most faults that are told.
const FAULTS_MOST: usize = 20;

/// A column that a file may have.
#[derive(Debug, Clone, Copy)]
pub struct CsvColumn {
    name: &'static str,
    /// Whether each line needs a cell in it.
    is_needed: bool,
    /// The flag that says the same for all lines.
    flag: Option<&'static str>,
}

/// What a line says, with its number in the file.
#[derive(Debug)]
pub struct CsvLine<T> {
    pub number: u64,
    pub content: T,
}

/// The cells of a line, while it is read.
pub struct CsvCells<'f> {
    line: u64,
    record: &'f csv::StringRecord,
    /// The columns that the file may have, each with its place if the file has it.
    columns: &'f [(CsvColumn, Option<usize>)],
    /// The lines that were read before, by what no two lines may have.
    seen: &'f mut HashMap<String, u64>,
    faults: &'f mut Vec<String>,
}

impl CsvColumn {
    pub const fn needed(name: &'static str) -> Self {
        Self {
            name,
            is_needed: true,
            flag: None,
        }
    }

    pub const fn optional(name: &'static str) -> Self {
        Self {
            name,
            is_needed: false,
            flag: None,
        }
    }

    /// A column that is needed unless a flag says the same for all lines.
    pub const fn or_flag(name: &'static str, flag: &'static str, is_given: bool) -> Self {
        Self {
            name,
            is_needed: !is_given,
            flag: Some(flag),
        }
    }

    /// What to write instead of nothing.
    fn remedy(&self) -> String {
        self.flag.map_or_else(String::new, |flag| {
            format!(": write it, or {flag} for all lines")
        })
    }
}

/// Reads all lines. Lines whose cells are all empty are left out. If one line is wrong, none is returned.
///
/// # Errors
/// Every fault, up to 20, with its line and column.
pub fn read<T>(
    file: &Path,
    columns: &[CsvColumn],
    read_line: impl Fn(&mut CsvCells<'_>) -> Option<T>,
) -> anyhow::Result<Vec<CsvLine<T>>> {
    let found = fs::read(file).map_err(anyhow::Error::from);
    let found = found.and_then(|bytes| parse(bytes, columns, read_line));
    found.with_context(|| format!("{} cannot be read", file.display()))
}

fn parse<T>(
    bytes: Vec<u8>,
    columns: &[CsvColumn],
    read_line: impl Fn(&mut CsvCells<'_>) -> Option<T>,
) -> anyhow::Result<Vec<CsvLine<T>>> {
    // 1. The text. UTF-16 is no UTF-8, or has a zero in each letter.
    let text = String::from_utf8(bytes).ok();
    let text = text.filter(|text| !text.contains('\0'));
    let text = text.context("the file is not UTF-8; save it as UTF-8")?;
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
    let text = &text.replace("\r\n", "\n");
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .delimiter(delimiter_of(text))
        .flexible(true)
        .from_reader(text.as_bytes());
    // 2. The columns.
    let mut faults = Vec::new();
    let columns = places(columns, reader.headers()?, &mut faults);
    check(faults)?;
    // 3. The lines.
    let mut faults = Vec::new();
    let mut seen = HashMap::new();
    let mut lines = Vec::new();
    for record in reader.records() {
        let record = record?;
        if record.iter().all(str::is_empty) {
            continue;
        }
        let line = record
            .position()
            .map_or(0, |position| line_at(text, position));
        let fault_count = faults.len();
        let mut cells = CsvCells {
            line,
            record: &record,
            columns: &columns,
            seen: &mut seen,
            faults: &mut faults,
        };
        cells.check_count();
        cells.check_quotes();
        let content = read_line(&mut cells);
        let content = content.filter(|_| faults.len() == fault_count);
        lines.extend(content.map(|content| CsvLine {
            number: line,
            content,
        }));
    }
    check(faults)?;
    Ok(lines)
}

fn check(mut faults: Vec<String>) -> anyhow::Result<()> {
    let count = faults.len();
    if count == 0 {
        return Ok(());
    }
    faults.truncate(FAULTS_MOST);
    if count > FAULTS_MOST {
        faults.push(format!("and {} more", count - FAULTS_MOST));
    }
    bail!("nothing was sent: {}", faults.join("; "))
}

/// The line of a record: its position is before the empty lines above it.
fn line_at(text: &str, position: &csv::Position) -> u64 {
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let rest = text.as_bytes().get(start..).unwrap_or_default();
    let empty = rest.iter().take_while(|byte| **byte == b'\n');
    position.line() + empty.count() as u64
}

/// The character between the cells of the first line: the most frequent one.
fn delimiter_of(text: &str) -> u8 {
    let first = text.lines().next().unwrap_or_default();
    let count = |delimiter: &u8| first.bytes().filter(|byte| byte == delimiter).count();
    let mut delimiters = [b',', b';', b'\t'];
    delimiters.sort_by_key(|delimiter| std::cmp::Reverse(count(delimiter)));
    delimiters[0]
}

/// The places of the columns. Their names may have any case.
fn places(
    columns: &[CsvColumn],
    headers: &csv::StringRecord,
    faults: &mut Vec<String>,
) -> Vec<(CsvColumn, Option<usize>)> {
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    let names = names.join(", ");
    let mut places: Vec<(CsvColumn, Option<usize>)> =
        columns.iter().map(|column| (*column, None)).collect();
    for (place, header) in headers.iter().enumerate() {
        let name = header.to_lowercase();
        let found = places.iter_mut().find(|(column, _)| column.name == name);
        let nth = place + 1;
        match found {
            None => faults.push(format!(
                "line 1, column {nth}: {header:?} is unknown: the columns are {names}"
            )),
            Some((_, Some(_))) => {
                faults.push(format!("line 1, column {nth}: {name} is there twice"));
            }
            Some((_, found)) => *found = Some(place),
        }
    }
    // A name that is spelled wrongly is not told a second time.
    let missing = places
        .iter()
        .filter(|(column, place)| column.is_needed && place.is_none());
    let missing = missing.map(|(column, _)| {
        let remedy = column.remedy();
        let name = column.name;
        format!("line 1: the column {name} is missing{remedy}; the columns are {names}")
    });
    if faults.is_empty() {
        faults.extend(missing);
    }
    places
}

impl<'f> CsvCells<'f> {
    /// Says what is wrong with a cell.
    pub fn fault(&mut self, column: &str, why: impl Display) {
        let line = self.line;
        self.faults
            .push(format!("line {line}, column {column}: {why}"));
    }

    /// The text of a cell; `None` if it is empty, which is a fault where it is needed.
    pub fn text(&mut self, name: &str) -> Option<&'f str> {
        let (column, place) = self.columns.iter().find(|(it, _)| it.name == name)?;
        let text = place.and_then(|place| self.record.get(place));
        let text = text.filter(|text| !text.is_empty());
        if text.is_none() && column.is_needed {
            self.fault(name, format!("the cell is empty{}", column.remedy()));
        }
        text
    }

    /// What a cell says, unless it is empty or wrong.
    pub fn parsed<T, E: Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match parse(self.text(name)?) {
            Ok(value) => Some(value),
            Err(why) => {
                self.fault(name, why);
                None
            }
        }
    }

    /// A time that means the same in a second run of the file.
    pub fn time(&mut self, name: &str) -> Option<GivenTime> {
        self.parsed(name, |text| {
            let time = text.parse().ok();
            time.filter(|time: &GivenTime| !time.is_of_now())
                .ok_or_else(|| {
                    format!(
                        "{text:?} is no time of a file: write one such as 2026-11-03, \
                         2026-11-03T14:03 or 2026-11-03T00:00:00Z"
                    )
                })
        })
    }

    /// The reason of the line, or that of all lines.
    pub fn reason(&mut self, of_all: Option<&String>) -> Option<String> {
        let check = |text: &str| check_reason(text).map(|()| text.to_owned());
        self.parsed("reason", check).or_else(|| of_all.cloned())
    }

    /// No two lines may have the same of this.
    pub fn once(&mut self, identity: String, what: &str, remedy: &str) {
        let line = self.line;
        let first = self.seen.insert(identity, line);
        self.faults.extend(
            first.map(|first| format!("line {line}: line {first} has the same {what}: {remedy}")),
        );
    }

    fn check_count(&mut self) {
        let count = self.record.len();
        let expected = self.columns.iter().filter(|(_, place)| place.is_some());
        let expected = expected.count();
        if count > expected {
            let why = format!(
                "there are {count} cells, and {expected} columns: put a cell in quotes if it has the \
                 character that separates cells"
            );
            self.fault("?", why);
        }
    }

    /// A quote that is not closed takes the lines below it into its cell.
    fn check_quotes(&mut self) {
        if self.record.iter().any(|cell| cell.contains('\n')) {
            let why = "a cell has more than one line: close its quotes, or write it in one line";
            self.fault("?", why);
        }
    }
}

/// The idempotency key of a line: a second run of the file is safe, in any order of lines.
pub fn key_of(kind: &str, parts: [&str; 3]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    format!("{kind}-{}", &hasher.finalize().to_hex()[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [CsvColumn; 3] = [
        CsvColumn::needed("subject"),
        CsvColumn::optional("until"),
        CsvColumn::or_flag("reason", "--reason", false),
    ];

    fn read_bytes(bytes: &[u8]) -> anyhow::Result<Vec<CsvLine<[String; 2]>>> {
        parse(bytes.to_owned(), &COLUMNS, |cells| {
            let subject = cells.text("subject")?.to_owned();
            cells.time("until");
            cells.once(subject.clone(), "subject", "leave one out");
            Some([subject, cells.reason(None)?])
        })
    }

    fn told(bytes: impl AsRef<[u8]>) -> String {
        format!("{:#}", read_bytes(bytes.as_ref()).unwrap_err())
    }

    #[test]
    fn what_spreadsheets_write_is_read() {
        for text in [
            "subject,until,reason\na,,x\n\n+86 138,2026-11-03,\"y, z\"\n",
            "\u{FEFF}Subject;UNTIL;Reason\r\na;;x\r\n;;\r\n+86 138;2026-11-03;y, z\r\n",
            "reason\tsubject\nx\ta\n\t\n\"y, z\"\t\"+86 138\"",
            " Reason , Subject , until \n x,a\n,\n\"y, z\", +86 138 ,2026-11-03T14:03",
        ] {
            let lines = read_bytes(text.as_bytes()).unwrap();
            let lines = lines.iter().map(|line| (line.number, &line.content));
            let expected = [["a", "x"], ["+86 138", "y, z"]].map(|row| row.map(str::to_owned));
            assert!(lines.eq([2, 4].into_iter().zip(&expected)), "{text:?}");
        }
        assert!(read_bytes(b"subject,reason\n").unwrap().is_empty());
    }

    #[test]
    fn every_fault_is_told_with_its_line_and_column() {
        let all = told("subject,until,reason\na,,x\n,,x\nb,tomorrow,\na,,x\nd,,x,9\ne,soon,x\n");
        for part in [
            "line 3, column subject: the cell is empty",
            "line 4, column until: \"tomorrow\" is no time of a file: write one such as",
            "line 4, column reason: the cell is empty: write it, or --reason for all lines",
            "line 5: line 2 has the same subject: leave one out",
            "line 6, column ?: there are 4 cells, and 3 columns",
            "line 7, column until: \"soon\"",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        let open = told("subject,reason\na,\"x\nb,y\nc,z\n");
        assert!(
            open.contains("line 2, column ?: a cell has more than one line"),
            "{open}"
        );
        let many = told(format!("subject,reason\n{}", ",x\n".repeat(30)));
        assert!(many.contains("line 21, column subject"), "{many}");
        assert!(!many.contains("line 22"), "{many}");
        assert!(many.ends_with("and 10 more"), "{many}");
    }

    #[test]
    fn the_first_line_has_the_names_of_the_columns() {
        let unknown = told("subjekt,reason,x\n");
        assert!(
            unknown.contains("column 1: \"subjekt\" is unknown"),
            "{unknown}"
        );
        assert!(unknown.contains("column 3: \"x\" is unknown"), "{unknown}");
        let missing = told("until\n");
        for part in [
            "subject is missing;",
            "reason is missing: write it, or --reason",
        ] {
            assert!(missing.contains(part), "{missing}");
        }
        assert!(told("subject,reason,Subject\n").contains("column 3: subject is there twice"));
        assert!(told("").contains("line 1: the column subject is missing"));
    }

    #[test]
    fn another_encoding_is_told() {
        let utf_16 = |order: fn(u16) -> [u8; 2], mark: &str| -> Vec<u8> {
            let text = format!("{mark}subject,reason\na,x\n");
            text.encode_utf16().flat_map(order).collect()
        };
        for bytes in [
            utf_16(u16::to_le_bytes, "\u{FEFF}"),
            utf_16(u16::to_le_bytes, ""),
            utf_16(u16::to_be_bytes, ""),
            b"subject,reason\nM\xFCller,x\n".to_vec(),
        ] {
            assert!(told(&bytes).contains("save it as UTF-8"), "{bytes:?}");
        }
    }
}
