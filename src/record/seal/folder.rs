//! The folder that checkpoints are pushed to, and read back from.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use domain::seal::note::{Checkpoint, LogName, NoteError};

/// The file with the newest checkpoint of all logs.
pub const NEWEST: &str = "checkpoint";
const DAY_END: &str = ".note";
const LOG_END: &str = ".checkpoint";

/// A file with a checkpoint.
#[derive(Debug)]
pub struct PushedNote {
    pub path: PathBuf,
    pub checkpoint: Result<Checkpoint, NoteError>,
}

impl PushedNote {
    /// Reads a file; `None` if it does not exist.
    fn read(path: PathBuf) -> io::Result<Option<Self>> {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let checkpoint = Checkpoint::parse(&String::from_utf8_lossy(&bytes));
        Ok(Some(Self { path, checkpoint }))
    }
}

/// A missing folder may be on a disk that is not mounted. It is an error, and never made.
fn check(folder: &Path) -> io::Result<()> {
    if fs::metadata(folder)?.is_dir() {
        Ok(())
    } else {
        Err(io::Error::new(
            ErrorKind::NotADirectory,
            "this is not a folder",
        ))
    }
}

/// The file of a log. It stays when another log begins.
fn log_file(name: LogName) -> String {
    match name.begun {
        0 => format!("{}{LOG_END}", name.ledger),
        begun => format!("{}-{begun}{LOG_END}", name.ledger),
    }
}

/// What a folder has of a log.
#[derive(Debug, Default)]
pub struct PushedNotes {
    /// The newest checkpoint of all logs.
    pub newest: Option<PushedNote>,
    /// The last checkpoint of the log.
    pub of_log: Option<PushedNote>,
    /// The last valid checkpoint of the log among the daily files. It is read if one of the other
    /// two is damaged.
    pub of_days: Option<Checkpoint>,
}

/// Reads a folder.
pub fn read_pushed(
    folder: &Path,
    log: Option<LogName>,
    is_good: impl Fn(&Checkpoint) -> bool,
) -> io::Result<PushedNotes> {
    check(folder)?;
    let mut pushed = PushedNotes {
        newest: PushedNote::read(folder.join(NEWEST))?,
        ..PushedNotes::default()
    };
    let Some(log) = log else {
        return Ok(pushed);
    };
    pushed.of_log = PushedNote::read(folder.join(log_file(log)))?;
    let mut both = pushed.newest.iter().chain(&pushed.of_log);
    if both.any(|note| note.checkpoint.is_err()) {
        pushed.of_days = read_last_of_days(folder, log, is_good)?;
    }
    Ok(pushed)
}

/// The last valid checkpoint of a log among the daily files.
fn read_last_of_days(
    folder: &Path,
    log: LogName,
    is_good: impl Fn(&Checkpoint) -> bool,
) -> io::Result<Option<Checkpoint>> {
    let mut names = Vec::new();
    for file in fs::read_dir(folder)? {
        let name = file?.file_name();
        let name = name.to_str().filter(|name| name.ends_with(DAY_END));
        names.extend(name.map(str::to_owned));
    }
    names.sort_unstable();
    for name in names.into_iter().rev() {
        let note = PushedNote::read(folder.join(name))?;
        let checkpoint = note.and_then(|note| note.checkpoint.ok());
        if let Some(checkpoint) = checkpoint
            && LogName::parse(&checkpoint.origin) == Some(log)
            && is_good(&checkpoint)
        {
            return Ok(Some(checkpoint));
        }
    }
    Ok(None)
}

/// Writes a checkpoint into three files: the log's, the day's, and the newest one's. An older
/// checkpoint never replaces a newer one. `part` is in the names of incomplete files.
pub fn write_note(folder: &Path, note: &str, part: &str, now: DateTime<Utc>) -> io::Result<()> {
    check(folder)?;
    let given = Checkpoint::parse(note).map_err(io::Error::other)?;
    let log = LogName::parse(&given.origin);
    let names = [
        log.map(log_file),
        Some(format!("{}{DAY_END}", now.date_naive())),
        Some(NEWEST.to_owned()),
    ];
    for name in names.into_iter().flatten() {
        let path = folder.join(name);
        let there = PushedNote::read(path.clone())?;
        let there = there.and_then(|there| there.checkpoint.ok());
        if there.is_none_or(|there| !is_newer(&there, &given)) {
            replace(&path, note, part)?;
        }
    }
    File::open(folder)?.sync_all()
}

/// Whether a checkpoint of the same ledger is of a later log, or of a larger tree.
fn is_newer(checkpoint: &Checkpoint, than: &Checkpoint) -> bool {
    match (
        LogName::parse(&checkpoint.origin),
        LogName::parse(&than.origin),
    ) {
        (Some(one), Some(other)) if one.ledger == other.ledger => {
            (one.begun, checkpoint.size) > (other.begun, than.size)
        }
        _ => false,
    }
}

/// Replaces a file by a complete one that is on disk.
fn replace(path: &Path, note: &str, part: &str) -> io::Result<()> {
    let unready = path.with_added_extension(format!("{part}.part"));
    let written = (|| {
        let mut file = File::create(&unready)?;
        file.write_all(note.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unready, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&unready);
    }
    written
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use uuid::Uuid;

    use super::*;
    use domain::seal::note::SealKey;

    #[test]
    fn an_older_checkpoint_never_replaces_a_newer_one() {
        let folder = TempDir::new().unwrap();
        let key = SealKey::new("perdiem", [7; 32]).unwrap();
        let note = |begun, size| key.sign(&key.origin(Uuid::nil(), begun), size, &[1; 32]);
        let now = DateTime::UNIX_EPOCH;
        let write = |note: &str| write_note(folder.path(), note, "test", now).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let first = note(None, 9);
        let later = note(Some(5), 2);
        for it in [&first, &note(None, 8), &later, &note(None, 9)] {
            write(it);
        }
        let nil = Uuid::nil();
        assert_eq!(read(NEWEST), later);
        assert_eq!(read("1970-01-01.note"), later);
        assert_eq!(read(&format!("{nil}.checkpoint")), first);
        assert_eq!(read(&format!("{nil}-5.checkpoint")), later);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
        // A damaged file is written again.
        fs::write(folder.path().join(NEWEST), "").unwrap();
        write(&later);
        assert_eq!(read(NEWEST), later);
        // A missing folder is not made.
        let gone = folder.path().join("not mounted");
        let error = write_note(&gone, &later, "test", now).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
