//! Reads the rules of time zones: from the files of the operating system, or from the bundled copy if it is
//! newer.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use chrono::{DateTime, NaiveDate, Utc};
use jiff::tz::TimeZoneDatabase;

use domain::zones::{Rules, Zones, is_zone_name, read_with};

/// The folders in which operating systems keep the tz database.
const FOLDERS: [&str; 3] = [
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/etc/zoneinfo",
];

/// Lets the domain use the [`newest`] rules. They are read when a zone is first asked for.
pub fn install() {
    read_with(newest);
}

/// The tz database of the operating system, or the bundled one if its release is newer: rules
/// change several times a year, and old rules can be an hour wrong.
pub fn newest() -> Zones {
    let system = system();
    let bundled = Zones::bundled();
    if bundled.rules().is_newer_than(system.rules()) {
        bundled
    } else {
        system
    }
}

/// The tz database of the operating system, and the bundled one for names that it lacks. The
/// database is searched in the folder `TZDIR` and in the usual folders. If there is none, the
/// result is [`Zones::bundled`].
pub fn system() -> Zones {
    let folders = env::var_os("TZDIR").map(PathBuf::from).into_iter();
    let mut folders = folders.chain(FOLDERS.iter().map(PathBuf::from));
    let found = folders.find_map(|folder| in_folder(&folder));
    found.unwrap_or_else(Zones::bundled)
}

/// Reads all zones of a folder at once, so that they are of one release even if the files are replaced
/// later.
fn in_folder(folder: &Path) -> Option<Zones> {
    let database = TimeZoneDatabase::from_dir(folder).ok()?;
    database.available().next()?;
    let names = database.available();
    let names = names.filter(|name| is_zone_name(name.as_str()));
    let zones = names.filter_map(|name| {
        let rules = database.get(name.as_str()).ok()?;
        Some((name.to_string(), rules))
    });
    let rules = Rules::of_system(release_in_folder(folder));
    Some(Zones::bundled().with(rules, zones))
}

/// The release in a folder, from the first line of `tzdata.zi` (`# version 2026b`) or from the file
/// `+VERSION`, and the day on which that file was written.
fn release_in_folder(folder: &Path) -> Option<(String, NaiveDate)> {
    let read = |name: &str| {
        let mut file = File::open(folder.join(name)).ok()?;
        let written_at = file.metadata().and_then(|about| about.modified()).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        Some((text, DateTime::<Utc>::from(written_at).date_naive()))
    };
    let of_source = read("tzdata.zi").and_then(|(text, written_on)| {
        let version = text.lines().next()?.strip_prefix("# version ")?.to_owned();
        Some((version, written_on))
    });
    let (version, written_on) = of_source.or_else(|| read("+VERSION"))?;
    let version = version.trim();
    (!version.is_empty()).then(|| (version.to_owned(), written_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_system_names_its_zone() {
        let zones = system();
        assert!(zones.names().count() > 500);
        for name in zones.names() {
            assert_eq!(zones.get(name).unwrap().name(), name);
        }
    }

    #[test]
    fn the_newest_rules_are_older_than_no_others() {
        let newest = newest();
        for zones in [system(), Zones::bundled()] {
            assert!(!zones.rules().is_newer_than(newest.rules()));
        }
    }
}
