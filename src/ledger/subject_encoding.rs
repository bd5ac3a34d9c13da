//! How both stores write what a policy has for one subject. All of it is in the column `limits`.
//!
//! | content | text |
//! |---|---|
//! | an override | `[{"max":10,"per":"day"}]`; NULL where it was deleted |
//! | a block | `{"blocked":true}`; `{"blocked":false}` where it was removed |
//! | a tier | `{"tier":"gold"}`; `{"tier":null}` where it was ended |
//!
//! SQL tells them apart by `kind` of `override_versions`.

use serde::{Deserialize, Serialize};

use domain::limit::per::Per;
use domain::limit::shape::OtherMax;
use domain::tiers::TierName;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxRecord {
    pub max: u64,
    pub per: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockRecord {
    blocked: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TierRecord {
    // Without `default`, an absent field is an error.
    #[serde(deserialize_with = "Option::deserialize")]
    tier: Option<String>,
}

/// Other maxima, as the column and a tier of a rule have them.
pub fn max_records(limits: &[OtherMax]) -> Vec<MaxRecord> {
    let record = |other: &OtherMax| MaxRecord {
        max: other.max,
        per: other.per.to_string(),
    };
    limits.iter().map(record).collect()
}

/// An override's limits, or `None` for a deletion.
pub fn encode_override(limits: Option<&[OtherMax]>) -> Option<String> {
    let limits = max_records(limits?);
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

/// The name of a subject's tier, or `None` where it ends.
pub fn encode_tier(tier: Option<&TierName>) -> String {
    let tier = tier.map(TierName::to_string);
    serde_json::to_string(&TierRecord { tier }).expect("a text is JSON")
}

/// The name of a subject's tier, from the text that [`encode_tier`] wrote.
///
/// # Errors
/// The reason why a text cannot be read.
pub fn decode_tier(text: Option<&str>) -> Result<Option<TierName>, String> {
    let record: Result<TierRecord, _> = serde_json::from_str(text.unwrap_or_default());
    let tier = record.map_err(|error| error.to_string())?.tier;
    let tier = tier.map(|tier| TierName::new(&tier));
    tier.transpose().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_can_be_read_again() {
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
        for tier in [None, Some(TierName::new("gold").unwrap())] {
            let text = encode_tier(tier.as_ref());
            assert!(text.starts_with("{\"tier\":"));
            assert_eq!(decode_tier(Some(&text)), Ok(tier));
            assert!(decode_override(Some(&text)).is_err());
            assert!(decode_blocked(Some(&text)).is_err());
        }
        for other in [None, Some("[]"), Some("{\"blocked\":true,\"more\":1}")] {
            assert!(decode_blocked(other).is_err(), "{other:?}");
            assert!(decode_tier(other).is_err(), "{other:?}");
        }
        for other in [
            "{}",
            "{\"tier\":\"Gold\"}",
            "{\"tier\":1}",
            "{\"tier\":\"a\",\"max\":1}",
        ] {
            assert!(decode_tier(Some(other)).is_err(), "{other}");
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
