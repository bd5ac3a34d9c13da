//! Instants in frequent answers.

use chrono::{DateTime, Datelike, SecondsFormat, Timelike, Utc};
use serde::Serializer;
use serde::ser::Error;

/// The most bytes of an instant.
const LENGTH_MOST: usize = 35;

/// An instant in a sentence.
pub fn written(instant: DateTime<Utc>) -> String {
    let mut text = Vec::with_capacity(LENGTH_MOST);
    write(&mut text, instant);
    String::from_utf8(text).expect("ASCII")
}

/// Writes an instant in RFC 3339, with the same text as chrono, but in one piece. The JSON writer
/// searches each piece of a text for characters to escape, and chrono writes twenty pieces.
pub fn serialize<S: Serializer>(instant: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut text = Vec::with_capacity(LENGTH_MOST);
    write(&mut text, *instant);
    serializer.serialize_str(str::from_utf8(&text).map_err(S::Error::custom)?)
}

/// Like [`serialize`], with null for `None`.
pub fn serialize_some<S: Serializer>(
    instant: &Option<DateTime<Utc>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match instant {
        Some(instant) => serialize(instant, serializer),
        None => serializer.serialize_none(),
    }
}

/// Writes an instant in RFC 3339 like chrono: with 0, 3, 6 or 9 digits after the second.
pub fn write(out: &mut Vec<u8>, instant: DateTime<Utc>) {
    let utc = instant.naive_utc();
    let year = utc.year();
    let nanos = utc.nanosecond();
    let has_four_digits = (0..=9999).contains(&year);
    let is_leap_second = nanos >= 1_000_000_000;
    if !has_four_digits || is_leap_second {
        let text = instant.to_rfc3339_opts(SecondsFormat::AutoSi, true);
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut text = *b"0000-00-00T00:00:00";
    for (place, number) in [
        (0, year as u32 / 100),
        (2, year as u32 % 100),
        (5, utc.month()),
        (8, utc.day()),
        (11, utc.hour()),
        (14, utc.minute()),
        (17, utc.second()),
    ] {
        text[place] += (number / 10) as u8;
        text[place + 1] += (number % 10) as u8;
    }
    out.extend_from_slice(&text);
    if nanos > 0 {
        let mut fraction = *b".000000000";
        let mut rest = nanos;
        for digit in fraction[1..].iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        let digits = match nanos {
            _ if nanos.is_multiple_of(1_000_000) => 3,
            _ if nanos.is_multiple_of(1000) => 6,
            _ => 9,
        };
        out.extend_from_slice(&fraction[..=digits]);
    }
    out.push(b'Z');
}

/// A text of an answer, in which each instant is shown in another way.
pub fn shown_within(text: &str, show: impl Fn(DateTime<Utc>) -> String) -> String {
    let word = |word: &str| {
        let end = word.trim_end_matches([',', ';', ':', '.', ')']);
        match DateTime::parse_from_rfc3339(end) {
            Ok(instant) => format!("{}{}", show(instant.to_utc()), &word[end.len()..]),
            Err(_) => word.to_owned(),
        }
    };
    let words: Vec<String> = text.split(' ').map(word).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(serde::Serialize)]
    struct InOnePiece(#[serde(serialize_with = "serialize")] DateTime<Utc>);

    proptest! {
        /// Over all the time that chrono knows, leap seconds too.
        #[test]
        fn instants_are_written_as_chrono_writes_them(
            seconds in prop_oneof![
                -62_167_219_200_i64..=253_402_300_799,
                DateTime::<Utc>::MIN_UTC.timestamp()..=DateTime::<Utc>::MAX_UTC.timestamp(),
            ],
            nanos in prop_oneof![
                Just(0),
                0..2_000_000_000_u32,
                (0..1_000_000_u32).prop_map(|micros| micros * 1000),
                (0..1000_u32).prop_map(|millis| millis * 1_000_000),
            ],
        ) {
            // A leap second is the last one of a minute.
            let nanos = if seconds.rem_euclid(60) == 59 { nanos } else { nanos % 1_000_000_000 };
            let instant = DateTime::from_timestamp(seconds, nanos).unwrap();
            let text = serde_json::to_string(&InOnePiece(instant)).unwrap();
            prop_assert!(text.len() <= LENGTH_MOST + 2);
            prop_assert_eq!(text, serde_json::to_string(&instant).unwrap());
        }
    }

    /// Every day of the years with four digits, and every second of one.
    #[test]
    fn every_day_is_written_as_chrono_writes_it() {
        let days = (0..3_652_425).map(|day| -62_167_219_200 + day * 86_400);
        let seconds = (0..86_400).map(|second| 1_795_219_200 + second);
        for second in days.chain(seconds) {
            let instant = DateTime::from_timestamp(second, 0).unwrap();
            let mut text = Vec::new();
            write(&mut text, instant);
            let expected = instant.to_rfc3339_opts(SecondsFormat::AutoSi, true);
            assert_eq!(str::from_utf8(&text).unwrap(), expected);
        }
    }
}
