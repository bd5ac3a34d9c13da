//! How both stores write overrides and blocks. Both are in the column `limits`.
//!
//! | content | text |
//! |---|---|
//! | an override | `[{"max":10,"per":"day"}]`; NULL where it was deleted |
//! | a block | `{"blocked":true}`; `{"blocked":false}` where it was removed |
//!
//! SQL tells them apart by `is_block` of the view `term_versions`.

use serde::{Deserialize, Serialize};

use domain::limit::per::Per;
use domain::limit::shape::OtherMax;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MaxRecord {
    max: u64,
    per: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockRecord {
    blocked: bool,
}

/// An override's limits, or `None` for a deletion.
pub fn encode_override(limits: Option<&[OtherMax]>) -> Option<String> {
    let record = |other: &OtherMax| MaxRecord {
        max: other.max,
        per: other.per.to_string(),
    };
    let limits: Vec<MaxRecord> = limits?.iter().map(record).collect();
    Some(serde_json::to_string(&limits).expect("texts and numbers are JSON"))
}

/// An override's limits from the value that [`encode_override`] wrote.
///
/// # Errors
/// The reason why a text cannot be read.
pub fn decode_override(text: Option<&str>) -> Result<Option<Vec<OtherMax>>, String> {
    let Some(text) = text else {
        return Ok(None);
    };
    let records: Vec<MaxRecord> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let maxima: Result<_, String> = records.into_iter().map(decode_max).collect();
    maxima.map(Some)
}

fn decode_max(record: MaxRecord) -> Result<OtherMax, String> {
    let per = record.per.parse::<Per>();
    let max = record.max;
    per.map(|per| OtherMax { max, per })
        .map_err(|error| error.to_string())
}

/// Whether a version blocks the subject.
pub fn encode_blocked(blocked: bool) -> String {
    serde_json::to_string(&BlockRecord { blocked }).expect("a boolean is JSON")
}

/// Whether a version blocks the subject, from the text that [`encode_blocked`] wrote.
///
/// # Errors
/// The reason why a text cannot be read.
pub fn decode_blocked(text: Option<&str>) -> Result<bool, String> {
    let record: Result<BlockRecord, _> = serde_json::from_str(text.unwrap_or_default());
    record
        .map(|record| record.blocked)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_and_blocks_can_be_read_again() {
        let other = |max, per: &str| OtherMax {
            max,
            per: per.parse().unwrap(),
        };
        let limits = [other(0, "day"), other(7, "24h"), other(1, "ever")];
        for limits in [None, Some(&limits[..])] {
            let text = encode_override(limits);
            let read = decode_override(text.as_deref()).unwrap();
            assert_eq!(read.as_deref(), limits, "{text:?}");
        }
        for blocked in [false, true] {
            let text = encode_blocked(blocked);
            assert!(text.starts_with("{\"blocked\":"));
            assert_eq!(decode_blocked(Some(&text)), Ok(blocked));
            assert!(decode_override(Some(&text)).is_err());
        }
        for other in [None, Some("[]"), Some("{\"blocked\":true,\"more\":1}")] {
            assert!(decode_blocked(other).is_err(), "{other:?}");
        }
        for other in [
            "{\"limits\":null}",
            "[{\"max\":1,\"per\":\"day\",\"step\":\"1h\"}]",
            "[{\"max\":1,\"per\":\"eon\"}]",
            "[{\"max\":-1,\"per\":\"day\"}]",
        ] {
            assert!(decode_override(Some(other)).is_err(), "{other}");
        }
    }
}
