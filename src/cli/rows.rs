//! The unfinished file of an export.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use domain::seal::leaf::hex;
use verify::rows::{Row, RowCutter};

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
        hex(&self.hasher.clone().finalize())
    }
}
