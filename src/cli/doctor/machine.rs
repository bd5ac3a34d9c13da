//! What is on this machine: the rules of time zones, a backup, files with secrets, and the disk of SQLite.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};

use super::findings::Diagnosis;
use crate::age::describe_age;
use crate::written::secret_files;
use domain::zones;
use engine::Trouble;
use host::clock::Clock;
use host::disk::DiskRoom;

/// The rights of all other users, in a file's mode.
const OTHERS: u32 = 0o007;
/// Below this, perdiem may stop soon.
const ROOM_LOW: u64 = 1 << 30;
/// Below this, it stops at any moment.
const ROOM_LEAST: u64 = 64 << 20;
/// The part of a disk that should stay free: one in this many.
const ROOM_PART: u64 = 20;

pub fn look_at_zone_rules(found: &mut Diagnosis, clock: &Clock) {
    match Trouble::of_zone_rules(clock.now()) {
        Some(trouble) => found.look("time zone rules", trouble),
        None => found.ok("time zone rules", zones::rules()),
    }
}

/// Looks whether every user of the machine may use a file that has a secret.
pub fn look_at_secrets(found: &mut Diagnosis) {
    let files = secret_files();
    let is_open = |path: &Path| fs::metadata(path).is_ok_and(|about| about.mode() & OTHERS != 0);
    let open: Vec<_> = files.iter().filter(|(_, path)| is_open(path)).collect();
    for (variable, path) in &open {
        let path = path.display();
        found.look(
            "files with secrets",
            format!("every user of this machine may use {path} ({variable}): run chmod o= {path}"),
        );
    }
    if open.is_empty() && !files.is_empty() {
        let count = files.len();
        found.ok(
            "files with secrets",
            format!("{count}, none open to every user"),
        );
    }
}

/// Looks whether the disk of a file or folder is nearly full.
pub fn look_at_disk(found: &mut Diagnosis, path: &Path) {
    const ABOUT: &str = "disk";
    let room = match DiskRoom::at(path) {
        Ok(room) => room,
        Err(error) => {
            found.look(
                ABOUT,
                format!("the disk of {} cannot be asked: {error}", path.display()),
            );
            return;
        }
    };
    let free = room.free_bytes;
    let text = format!(
        "{} MB free of {} MB at {}",
        free >> 20,
        room.size_bytes >> 20,
        path.display()
    );
    if free < ROOM_LEAST {
        found.wrong(ABOUT, format!("{text}: make room, or nothing is granted"));
    } else if free < ROOM_LOW || free < room.size_bytes / ROOM_PART {
        found.look(ABOUT, format!("{text}: make room soon"));
    } else {
        found.ok(ABOUT, text);
    }
}

/// Looks at the age of the backup, if there is one to look at.
pub fn look_at_backup(found: &mut Diagnosis, file: Option<&Path>, hours: u32, now: DateTime<Utc>) {
    const ABOUT: &str = "backup";
    let Some(path) = file else {
        found.ok(ABOUT, "not looked at: name the newest one with --backup");
        return;
    };
    let place = path.display();
    let about = fs::metadata(path).and_then(|about| {
        if !about.is_file() {
            return Err(io::Error::other(
                "it is no file: name the newest file in it",
            ));
        }
        Ok((about.modified()?, about.len()))
    });
    let (written_at, bytes) = match about {
        Ok((written_at, bytes)) => (DateTime::<Utc>::from(written_at), bytes),
        Err(error) => {
            found.look(
                ABOUT,
                format!("{place} cannot be read: {error}; make a backup"),
            );
            return;
        }
    };
    let age = now - written_at;
    let text = format!("{place} is {} old and has {bytes} bytes", describe_age(age));
    if bytes == 0 {
        found.look(
            ABOUT,
            format!("{text}: it is empty; make a backup, and see why it failed"),
        );
    } else if age > TimeDelta::hours(hours.into()) {
        let text = format!("{text}, more than {hours} h: see why there is no newer one");
        found.look(ABOUT, text);
    } else {
        found.ok(ABOUT, text);
    }
}
