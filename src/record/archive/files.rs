//! The files of a folder. A file gets its name when it is complete.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{ArchiveFailure, refused, unusable};
use domain::seal::leaf::{Hash, hex};
use verify::files::LineFile;
use verify::index::{ArchivedFile, ArchivedSpan, PositionSpan};

/// The end of a file's name until the file is complete.
const PART: &str = ".part";

/// A folder that this process writes to.
pub struct ArchiveFolder {
    path: PathBuf,
    /// The folder itself, locked.
    lock: File,
}

impl ArchiveFolder {
    /// Makes the folder if it does not exist, and locks it.
    ///
    /// # Errors
    /// [`ArchiveFailure`], also while another process writes to the folder.
    pub fn open(path: &Path) -> Result<Self, ArchiveFailure> {
        fs::create_dir_all(path).map_err(unusable(path))?;
        let lock = File::open(path).map_err(unusable(path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                lock,
            }),
            Err(TryLockError::WouldBlock) => refused(format!(
                "another perdiem archive writes to {}: wait until it has ended",
                path.display()
            )),
            Err(TryLockError::Error(error)) => Err(unusable(path)(error)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file until it is complete.
    pub fn part(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{PART}"))
    }

    /// Writes a small file under its temporary name.
    pub fn write_part(&self, name: &str, text: &str) -> Result<(), ArchiveFailure> {
        let part = self.part(name);
        let written = File::create(&part).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(unusable(&part))
    }

    /// Gives a complete file its name.
    pub fn finish(&self, name: &str) -> Result<(), ArchiveFailure> {
        let path = self.path.join(name);
        let renamed = fs::rename(self.part(name), &path).and_then(|()| self.lock.sync_all());
        renamed.map_err(unusable(&path))
    }

    /// Removes the name of a file again, if the file exists.
    fn unfinish(&self, name: &str) -> Result<(), ArchiveFailure> {
        let path = self.path.join(name);
        match fs::rename(&path, self.part(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(unusable(&path)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes what an interrupted archive of another span left.
    pub fn remove_parts(&self) -> Result<(), ArchiveFailure> {
        for entry in fs::read_dir(&self.path).map_err(unusable(&self.path))? {
            let path = entry.map_err(unusable(&self.path))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_ours = ["leaves-", "hashes-", "checkpoint-"]
                .iter()
                .any(|start| name.starts_with(start));
            if is_ours && name.ends_with(PART) {
                fs::remove_file(&path).map_err(unusable(&path))?;
            }
        }
        Ok(())
    }
}

/// A file that is written and hashed at the same time.
struct DigestFile {
    path: PathBuf,
    writer: BufWriter<File>,
    digest: Sha256,
}

impl DigestFile {
    /// Opens a file and keeps its content.
    fn open(path: PathBuf) -> Result<Self, ArchiveFailure> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(unusable(&path))?;
        Ok(Self {
            path,
            writer: BufWriter::with_capacity(1 << 18, file),
            digest: Sha256::new(),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ArchiveFailure> {
        self.digest.update(bytes);
        let written = self.writer.write_all(bytes);
        written.map_err(unusable(&self.path))
    }

    /// Cuts the file at a length, and continues there.
    fn cut(&mut self, length: u64) -> Result<(), ArchiveFailure> {
        let file = self.writer.get_mut();
        let cut = file
            .set_len(length)
            .and_then(|()| file.seek(SeekFrom::Start(length)));
        cut.map(drop).map_err(unusable(&self.path))
    }

    /// Puts the file on disk, and returns its SHA-256.
    fn close(mut self) -> Result<String, ArchiveFailure> {
        let flushed = self.writer.flush();
        let saved = flushed.and_then(|()| self.writer.get_ref().sync_all());
        saved.map_err(unusable(&self.path))?;
        Ok(hex(&self.digest.finalize()))
    }
}

/// Writes the files of a span under their temporary names.
pub struct SpanWriter {
    pub span: PositionSpan,
    /// The position of the next leaf.
    pub next: u64,
    length: u64,
    leaves: DigestFile,
    hashes: DigestFile,
}

impl SpanWriter {
    /// Opens the files. Also returns the leaves that an interrupted archive left. The caller keeps
    /// the ones that are right.
    pub fn open(
        folder: &ArchiveFolder,
        span: PositionSpan,
    ) -> Result<(Self, LineFile), ArchiveFailure> {
        for name in [span.leaves_name(), span.hashes_name()] {
            folder.unfinish(&name)?;
        }
        let leaves = folder.part(&span.leaves_name());
        let mut writer = Self {
            span,
            next: span.first,
            length: 0,
            leaves: DigestFile::open(leaves.clone())?,
            hashes: DigestFile::open(folder.part(&span.hashes_name()))?,
        };
        writer.hashes.cut(0)?;
        Ok((writer, LineFile::open(leaves)?))
    }

    /// Keeps the next line that was left.
    pub fn keep(&mut self, line: &[u8], hash: &Hash) -> Result<(), ArchiveFailure> {
        self.leaves.digest.update(line);
        self.leaves.digest.update(b"\n");
        self.next += 1;
        self.length += line.len() as u64 + 1;
        self.hashes.write(hash)
    }

    /// Drops what was left after the kept lines.
    pub fn drop_rest(&mut self) -> Result<(), ArchiveFailure> {
        self.leaves.cut(self.length)
    }

    /// Adds the next leaf.
    pub fn add(&mut self, line: &str, hash: &Hash) -> Result<(), ArchiveFailure> {
        self.next += 1;
        self.leaves.write(line.as_bytes())?;
        self.leaves.write(b"\n")?;
        self.hashes.write(hash)
    }

    /// Puts the files on disk, and returns their digests.
    pub fn close(self) -> Result<ArchivedSpan, ArchiveFailure> {
        let PositionSpan { first, last } = self.span;
        Ok(ArchivedSpan {
            first,
            last,
            leaves: ArchivedFile {
                name: self.span.leaves_name(),
                sha256: self.leaves.close()?,
            },
            hashes: ArchivedFile {
                name: self.span.hashes_name(),
                sha256: self.hashes.close()?,
            },
        })
    }
}
