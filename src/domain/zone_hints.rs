//! What a text that names no zone means: an offset without its sign, a name of Windows, an abbreviation.
//! And what a name that people take for something else means.

use super::zone::Zone;

/// Windows' names of time zones.
const WINDOWS: &str = include_str!("windows_zones.txt");

/// Offsets that are one zone's all year, in minutes east of Greenwich.
const CITIES: [(i32, &str); 18] = [
    (-7 * 60, "America/Phoenix"),
    (-6 * 60, "America/Costa_Rica"),
    (-5 * 60, "America/Bogota"),
    (-4 * 60, "America/Puerto_Rico"),
    (-3 * 60, "America/Sao_Paulo"),
    (60, "Africa/Lagos"),
    (2 * 60, "Africa/Johannesburg"),
    (3 * 60, "Asia/Riyadh"),
    (3 * 60 + 30, "Asia/Tehran"),
    (4 * 60, "Asia/Dubai"),
    (5 * 60, "Asia/Karachi"),
    (5 * 60 + 30, "Asia/Kolkata"),
    (5 * 60 + 45, "Asia/Kathmandu"),
    (6 * 60, "Asia/Dhaka"),
    (7 * 60, "Asia/Bangkok"),
    (8 * 60, "Asia/Shanghai"),
    (9 * 60, "Asia/Tokyo"),
    (10 * 60, "Australia/Brisbane"),
];

/// Abbreviations, and the zones that use each. IANA has none of these names.
const ABBREVIATIONS: [(&str, &[&str]); 56] = [
    ("Z", &["UTC"]),
    ("ACDT", &["Australia/Adelaide"]),
    ("ACST", &["Australia/Adelaide", "Australia/Darwin"]),
    ("ADT", &["America/Halifax"]),
    ("AEDT", &["Australia/Sydney"]),
    ("AEST", &["Australia/Sydney", "Australia/Brisbane"]),
    ("AKDT", &["America/Anchorage"]),
    ("AKST", &["America/Anchorage"]),
    ("ART", &["America/Argentina/Buenos_Aires"]),
    (
        "AST",
        &["America/Halifax", "America/Puerto_Rico", "Asia/Riyadh"],
    ),
    ("AWST", &["Australia/Perth"]),
    ("BDT", &["Asia/Dhaka"]),
    ("BRT", &["America/Sao_Paulo"]),
    ("BST", &["Europe/London", "Asia/Dhaka"]),
    ("CAT", &["Africa/Maputo"]),
    ("CDT", &["America/Chicago", "America/Havana"]),
    ("CEST", &["Europe/Berlin", "Europe/Paris"]),
    ("CLT", &["America/Santiago"]),
    ("COT", &["America/Bogota"]),
    (
        "CST",
        &["America/Chicago", "Asia/Shanghai", "America/Havana"],
    ),
    ("EAT", &["Africa/Nairobi"]),
    ("ECT", &["America/Guayaquil"]),
    ("EDT", &["America/New_York"]),
    ("EEST", &["Europe/Athens", "Europe/Kyiv"]),
    ("GST", &["Asia/Dubai"]),
    ("HDT", &["America/Adak"]),
    ("HKT", &["Asia/Hong_Kong"]),
    ("ICT", &["Asia/Bangkok", "Asia/Ho_Chi_Minh"]),
    ("IDT", &["Asia/Jerusalem"]),
    ("IST", &["Asia/Kolkata", "Asia/Jerusalem", "Europe/Dublin"]),
    ("JST", &["Asia/Tokyo"]),
    ("KST", &["Asia/Seoul"]),
    ("MDT", &["America/Denver"]),
    ("MMT", &["Asia/Yangon"]),
    ("MSK", &["Europe/Moscow"]),
    ("MYT", &["Asia/Kuala_Lumpur"]),
    ("NDT", &["America/St_Johns"]),
    ("NPT", &["Asia/Kathmandu"]),
    ("NST", &["America/St_Johns"]),
    ("NZDT", &["Pacific/Auckland"]),
    ("NZST", &["Pacific/Auckland"]),
    ("PDT", &["America/Los_Angeles"]),
    ("PET", &["America/Lima"]),
    ("PHT", &["Asia/Manila"]),
    ("PKT", &["Asia/Karachi"]),
    ("PST", &["America/Los_Angeles", "Asia/Manila"]),
    ("SAST", &["Africa/Johannesburg"]),
    ("SGT", &["Asia/Singapore"]),
    ("TRT", &["Europe/Istanbul"]),
    ("UAE", &["Asia/Dubai"]),
    ("VET", &["America/Caracas"]),
    ("WAT", &["Africa/Lagos"]),
    ("WEST", &["Europe/Lisbon"]),
    ("WIB", &["Asia/Jakarta"]),
    ("WIT", &["Asia/Jayapura"]),
    ("WITA", &["Asia/Makassar"]),
];

/// The names that a text means, the best first; none if it means nothing.
pub fn meant(text: &str) -> Vec<String> {
    let text = text.trim();
    let is_it = |name: &str| name.eq_ignore_ascii_case(text);
    if let Some(minutes) = offset(text) {
        let mut meant = vec![written(minutes)];
        let city = CITIES.iter().find(|(east, _)| *east == minutes);
        meant.extend(city.map(|(_, city)| (*city).to_owned()));
        return meant;
    }
    let abbreviation = ABBREVIATIONS.iter().find(|(name, _)| is_it(name));
    if let Some((_, zones)) = abbreviation {
        return zones.iter().map(|zone| (*zone).to_owned()).collect();
    }
    let windows = WINDOWS.lines().filter_map(|line| line.split_once('\t'));
    let mut windows = windows.filter(|(name, _)| is_it(name));
    windows
        .next()
        .map(|(_, zone)| zone.to_owned())
        .into_iter()
        .collect()
}

/// The offset that a text means, in minutes: `GMT8`, `GMT +8`, `UTC 08:00`, `8`.
fn offset(text: &str) -> Option<i32> {
    let upper = text.to_ascii_uppercase();
    let rest = ["UTC", "GMT"]
        .iter()
        .find_map(|prefix| upper.strip_prefix(prefix));
    let rest = rest.unwrap_or(&upper).trim();
    let (sign, digits) = match rest.strip_prefix(['+', '-', '−']) {
        Some(digits) if rest.starts_with('+') => (1, digits.trim()),
        Some(digits) => (-1, digits.trim()),
        None => (1, rest),
    };
    let (hours, minutes) = match digits.split_once([':', '.']) {
        Some(parts) => parts,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "00"),
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if hours.len() > 2 || minutes.len() != 2 || !is_number(hours) || !is_number(minutes) {
        return None;
    }
    let hours: i32 = hours.parse().ok()?;
    let minutes: i32 = minutes.parse().ok()?;
    let east = 60 * hours + minutes;
    (minutes < 60 && east <= 18 * 60).then_some(sign * east)
}

fn written(minutes: i32) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

/// What people should know of a name that the tz database has, and that they may take for another one.
pub fn warning(zone: &Zone) -> Option<String> {
    let name = zone.name();
    let all_year = |hours: u32, changing: &str| {
        format!(
            "{name} is {hours} hours behind UTC all year; write {changing} if clocks are to change there"
        )
    };
    match name {
        "EST" => Some(all_year(5, "America/New_York")),
        "MST" => Some(all_year(7, "America/Denver")),
        "HST" => Some(
            "HST is 10 hours behind UTC all year; write Pacific/Honolulu, which says so".to_owned(),
        ),
        _ => {
            let hours = name.strip_prefix("Etc/GMT")?;
            let number = hours
                .strip_prefix(['+', '-'])
                .filter(|hours| *hours != "0")?;
            let (side, sign) = if hours.starts_with('+') {
                ("behind", '-')
            } else {
                ("ahead of", '+')
            };
            Some(format!(
                "{name} is {number} hours {side} UTC: its sign is the opposite of the usual one; write \
                 {sign}{number:0>2}:00 if you mean that"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Offset, TimeDelta, Utc};

    use super::*;

    fn minutes_of(name: &str, at: DateTime<Utc>) -> i32 {
        Zone::parse(name)
            .unwrap()
            .offset(at)
            .fix()
            .local_minus_utc()
            / 60
    }

    #[test]
    fn offsets_are_meant_with_their_sign() {
        for (text, meant_first) in [
            ("GMT8", "+08:00"),
            ("GMT +8", "+08:00"),
            (" GMT+8", "+08:00"),
            ("utc8", "+08:00"),
            ("UTC 08:00", "+08:00"),
            ("8", "+08:00"),
            ("GMT -3:30", "-03:30"),
            ("UTC 0530", "+05:30"),
        ] {
            assert_eq!(meant(text)[0], meant_first, "{text}");
        }
        assert_eq!(meant("GMT8"), ["+08:00", "Asia/Shanghai"]);
        for nothing in ["", "GMT", "GMT+", "+99", "12345", "8:60", "+1:2:3", "GMT+é"] {
            assert!(meant(nothing).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn names_mean_zones_that_exist() {
        assert_eq!(meant("China Standard Time"), ["Asia/Shanghai"]);
        assert_eq!(meant("w. europe standard time"), ["Europe/Berlin"]);
        assert_eq!(
            meant("ist"),
            ["Asia/Kolkata", "Asia/Jerusalem", "Europe/Dublin"]
        );
        assert_eq!(meant("Z"), ["UTC"]);
        let windows = WINDOWS.lines().filter_map(|line| line.split_once('\t'));
        let windows: Vec<&str> = windows.map(|(_, zone)| zone).collect();
        assert!(windows.len() > 130);
        let abbreviated = ABBREVIATIONS
            .iter()
            .flat_map(|(_, zones)| zones.iter().copied());
        for zone in windows.into_iter().chain(abbreviated) {
            assert!(Zone::parse(zone).is_ok(), "{zone}");
        }
    }

    /// The city of an offset has it all year.
    #[test]
    fn cities_have_their_offsets() {
        let start: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
        for (minutes, city) in CITIES {
            for month in 0..12 {
                assert_eq!(
                    minutes_of(city, start + TimeDelta::days(30 * month)),
                    minutes,
                    "{city}"
                );
            }
        }
    }

    #[test]
    fn names_that_are_taken_for_others_are_told() {
        let told = |name: &str| warning(&Zone::parse(name).unwrap());
        for (name, hours) in [("EST", 5), ("MST", 7), ("HST", 10)] {
            assert!(
                told(name)
                    .unwrap()
                    .contains(&format!("{hours} hours behind"))
            );
            for at in ["2026-01-01T00:00:00Z", "2026-07-01T00:00:00Z"] {
                assert_eq!(minutes_of(name, at.parse().unwrap()), -60 * hours, "{name}");
            }
        }
        assert!(told("Etc/GMT+8").unwrap().contains("8 hours behind UTC"));
        assert!(told("Etc/GMT-8").unwrap().contains("write +08:00"));
        for good in [
            "UTC",
            "GMT+8",
            "Asia/Shanghai",
            "Etc/GMT",
            "Etc/GMT0",
            "America/New_York",
        ] {
            assert_eq!(told(good), None, "{good}");
        }
    }
}
