//! The wall clock of a process, which a test steps while the process runs. It is libfaketime, from
//! Debian's package of that name: it changes what the process reads as CLOCK_REALTIME, and leaves
//! CLOCK_MONOTONIC and CLOCK_BOOTTIME alone, as NTP and people do.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// The places of the library on Debian and Ubuntu.
const FOLDERS: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// A wall clock. The processes that got its settings share it.
pub struct WallClock {
    folder: TempDir,
    settings: Vec<(String, String)>,
}

impl WallClock {
    /// A wall clock that is right.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("wall-clock");
        let settings = [
            ("LD_PRELOAD", library().display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        let clock = Self {
            folder,
            settings: settings.into(),
        };
        clock.put(0);
        clock
    }

    /// The environment of a process that reads this clock.
    pub fn settings(&self) -> Vec<(&str, &str)> {
        let settings = self.settings.iter();
        settings.map(|(name, value)| (&**name, &**value)).collect()
    }

    /// Sets the clock this many seconds ahead of the right time. The file is never read half.
    pub fn put(&self, seconds: i64) {
        let file = "wall-clock";
        let new = "new-wall-clock";
        let [file, new] = [file, new].map(|name| self.folder.path().join(name));
        fs::write(&new, format!("{seconds:+}\n")).expect("a file");
        fs::rename(&new, &file).expect("a file");
    }
}

fn library() -> PathBuf {
    let folders = fs::read_dir(FOLDERS).into_iter().flatten().flatten();
    let mut places = folders.map(|folder| folder.path().join(LIBRARY));
    let found = places.find(|place| place.exists());
    found.expect("libfaketime: run scripts/install-test-tools")
}
