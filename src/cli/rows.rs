//! The rows of an export, in a stream of bytes or in an unfinished file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

#[derive(Debug, PartialEq, Eq)]
pub enum Row {
    /// The column names of CSV.
    Header,
    /// An entry, with its position.
    Entry(u64),
    /// The last line of NDJSON.
    Manifest,
}

impl Row {
    /// Every row begins with its position.
    fn of(bytes: &[u8]) -> Self {
        if bytes.starts_with(b"{\"manifest\"") {
            return Self::Manifest;
        }
        let digits = bytes.iter().skip_while(|byte| !byte.is_ascii_digit());
        let digits = digits.take_while(|byte| byte.is_ascii_digit());
        let digits: String = digits.map(|byte| char::from(*byte)).collect();
        digits.parse().map_or(Self::Header, Self::Entry)
    }
}

/// Cuts bytes into whole rows. A row ends with its line. In CSV, a quoted cell may contain line
/// breaks.
#[derive(Default)]
pub struct RowCutter {
    is_csv: bool,
    is_quoted: bool,
    /// The beginning of the next row.
    begun: Vec<u8>,
}

impl RowCutter {
    pub fn new(is_csv: bool) -> Self {
        Self {
            is_csv,
            ..Self::default()
        }
    }

    /// Passes on each row that ends in these bytes.
    pub fn cut(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(Row, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for byte in bytes {
            self.begun.push(*byte);
            // A quote inside a cell is written twice: the cell continues.
            self.is_quoted ^= self.is_csv && *byte == b'"';
            if *byte == b'\n' && !self.is_quoted {
                take(Row::of(&self.begun), &self.begun)?;
                self.begun.clear();
            }
        }
        Ok(())
    }
}

/// The file of an export in progress. It has whole rows up to the interruption.
pub struct PartFile {
    file: io::BufWriter<File>,
    hasher: Sha256,
    /// The number of entries in the file.
    pub count: u64,
    /// The position of the last entry.
    pub last: Option<u64>,
    is_empty: bool,
}

impl PartFile {
    /// Opens or creates the file. An incomplete row at the end is cut off.
    pub fn open(path: &Path, is_csv: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).open(path)?;
        let mut part = Self {
            file: io::BufWriter::new(file.try_clone()?),
            hasher: Sha256::new(),
            count: 0,
            last: None,
            is_empty: true,
        };
        let mut length = 0;
        let mut cutter = RowCutter::new(is_csv);
        let mut bytes = vec![0; 1 << 16];
        let mut reader = BufReader::new(&file);
        loop {
            let count = reader.read(&mut bytes)?;
            if count == 0 {
                break;
            }
            cutter.cut(&bytes[..count], |row, bytes| {
                length += bytes.len() as u64;
                part.note(&row, bytes);
                Ok(())
            })?;
        }
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        Ok(part)
    }

    fn note(&mut self, row: &Row, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.is_empty = false;
        if let Row::Entry(position) = row {
            self.count += 1;
            self.last = Some(*position);
        }
    }

    /// Adds a row. A header is added only at the beginning.
    pub fn add(&mut self, row: &Row, bytes: &[u8]) -> io::Result<()> {
        if *row == Row::Header && !self.is_empty {
            return Ok(());
        }
        self.note(row, bytes);
        self.file.write_all(bytes)
    }

    /// Writes all added rows to disk.
    pub fn save(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }

    /// The SHA-256 of all its bytes, in hexadecimal digits.
    pub fn sha256(&self) -> String {
        let hash = self.hasher.clone().finalize();
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows come out the same however the bytes come in.
    #[test]
    fn rows_are_cut_anywhere() {
        let csv = b"\"position\",\"reason\"\r\n\"12\",\"a \"\"b\"\"\r\nc\"\r\n\"13\",\"\"\r\n\"14";
        let ndjson = b"{\"position\":12,\"reason\":\"a \\\"b\"}\n{\"manifest\":{}}\n{\"posi";
        for size in 1..csv.len() {
            let cut = |is_csv: bool, text: &[u8]| {
                let mut cutter = RowCutter::new(is_csv);
                let mut rows = Vec::new();
                for bytes in text.chunks(size) {
                    let took = cutter.cut(bytes, |row, bytes| {
                        rows.push((row, bytes.len()));
                        Ok(())
                    });
                    took.expect("memory takes all");
                }
                rows
            };
            let expected = [(Row::Header, 21), (Row::Entry(12), 19), (Row::Entry(13), 9)];
            assert_eq!(cut(true, csv), expected, "{size}");
            assert_eq!(
                cut(false, ndjson),
                [(Row::Entry(12), 33), (Row::Manifest, 16)]
            );
        }
    }
}
