//! Instants in answers that are given often.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serializer;

/// An instant in RFC 3339 as chrono writes it too, but in one piece: JSON's writer looks at each
/// piece of a text for what it must escape, and chrono writes twenty.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(instant: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&instant.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(serde::Serialize)]
    struct InOnePiece(#[serde(serialize_with = "serialize")] DateTime<Utc>);

    proptest! {
        #[test]
        fn instants_are_written_as_chrono_writes_them(
            seconds in -62_167_219_200_i64..=253_402_300_799,
            micros in prop_oneof![Just(0), 0..1_000_000_u32, (0..1000_u32).prop_map(|ms| ms * 1000)],
        ) {
            let instant = DateTime::from_timestamp(seconds, micros * 1000).unwrap();
            let text = serde_json::to_string(&InOnePiece(instant)).unwrap();
            prop_assert_eq!(text, serde_json::to_string(&instant).unwrap());
        }
    }
}
