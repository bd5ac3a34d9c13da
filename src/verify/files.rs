//! Files, read to be checked.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::failure::{FileFailure, unusable};
use domain::seal::leaf::{Hash, hex};

/// The longest line. Every leaf is shorter.
const LINE_MOST: u64 = 16 * 1024 * 1024;

/// Reads a file line by line, and computes the SHA-256 of what it read.
pub struct LineFile {
    pub path: PathBuf,
    reader: BufReader<File>,
    line: Vec<u8>,
    digest: Sha256,
}

impl LineFile {
    pub fn open(path: PathBuf) -> Result<Self, FileFailure> {
        let file = File::open(&path).map_err(unusable(&path))?;
        Ok(Self {
            path,
            reader: BufReader::with_capacity(1 << 18, file),
            line: Vec::new(),
            digest: Sha256::new(),
        })
    }

    /// The next line, without its end; `None` if there is no other complete line.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, FileFailure> {
        self.line.clear();
        let mut rest = (&mut self.reader).take(LINE_MOST);
        let read = rest.read_until(b'\n', &mut self.line);
        read.map_err(unusable(&self.path))?;
        self.digest.update(&self.line);
        Ok(self.line.strip_suffix(b"\n"))
    }

    /// The SHA-256 of the file. Call it after the last line.
    pub fn sha256(mut self) -> Result<String, FileFailure> {
        let mut rest = DigestWriter(&mut self.digest);
        io::copy(&mut self.reader, &mut rest).map_err(unusable(&self.path))?;
        Ok(hex(&self.digest.finalize()))
    }
}

/// The SHA-256 of a file.
pub fn sha256_of(path: &Path) -> Result<String, FileFailure> {
    let mut digest = Sha256::new();
    let mut file = File::open(path).map_err(unusable(path))?;
    io::copy(&mut file, &mut DigestWriter(&mut digest)).map_err(unusable(path))?;
    Ok(hex(&digest.finalize()))
}

struct DigestWriter<'a>(&'a mut Sha256);

impl Write for DigestWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a file of hashes.
pub struct HashFile {
    path: PathBuf,
    reader: BufReader<File>,
}

impl HashFile {
    pub fn open(path: PathBuf) -> Result<Self, FileFailure> {
        let file = File::open(&path).map_err(unusable(&path))?;
        let reader = BufReader::new(file);
        Ok(Self { path, reader })
    }

    /// The next hash.
    pub fn next_hash(&mut self) -> Result<Hash, FileFailure> {
        let mut hash = [0; 32];
        let read = self.reader.read_exact(&mut hash);
        read.map_err(unusable(&self.path))?;
        Ok(hash)
    }
}
