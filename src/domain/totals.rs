//! The one text form of totals, which entries and counters share.

use chrono::DateTime;
use serde::{Deserialize, Serialize};

use super::grant::Total;
use super::window::Window;

/// A text that [`encode_totals`] did not write.
#[derive(Debug, thiserror::Error)]
#[error("unreadable totals {0:?}")]
pub struct TotalsError(String);

/// `["day", max, used, start, end]`, instants in seconds since 1970.
#[derive(Serialize, Deserialize)]
struct TotalRecord<'a>(&'a str, u64, u64, i64, i64);

/// The text of an entry's totals. Equal totals are equal texts: the guard of an append
/// compares them.
pub fn encode_totals(totals: &[Total]) -> String {
    let records: Vec<TotalRecord<'_>> = totals
        .iter()
        .map(|total| {
            let Window { start, end } = total.window;
            TotalRecord(
                total.per.as_str(),
                total.max,
                total.used,
                start.timestamp(),
                end.timestamp(),
            )
        })
        .collect();
    serde_json::to_string(&records).expect("arrays of texts and numbers are JSON")
}

/// The totals of a text that [`encode_totals`] wrote.
///
/// # Errors
/// [`TotalsError`] for any other text.
pub fn decode_totals(text: &str) -> Result<Vec<Total>, TotalsError> {
    let corrupt = || TotalsError(text.to_owned());
    let records: Vec<TotalRecord<'_>> = serde_json::from_str(text).map_err(|_| corrupt())?;
    records
        .into_iter()
        .map(|TotalRecord(per, max, used, start, end)| {
            let instant = |seconds| DateTime::from_timestamp(seconds, 0).ok_or_else(corrupt);
            Ok(Total {
                per: per.parse().map_err(|_| corrupt())?,
                max,
                used,
                window: Window {
                    start: instant(start)?,
                    end: instant(end)?,
                },
            })
        })
        .collect()
}

/// The totals with other units used, in their order.
pub fn with_used(mut totals: Vec<Total>, used: Vec<u64>) -> Vec<Total> {
    for (total, used) in totals.iter_mut().zip(used) {
        total.used = used;
    }
    totals
}

/// Whether more is used than some limit has. In Redis' hands that is so only after a grant
/// that a policy would have denied but only observes.
pub fn are_over(totals: &[Total]) -> bool {
    totals.iter().any(|total| total.used > total.max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::window::Per;

    #[test]
    fn totals_come_back_as_they_were() {
        let instant = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let totals: Vec<Total> = Per::ALL
            .into_iter()
            .map(|per| Total {
                per,
                max: (1 << 53) - 1,
                used: 2,
                window: Window {
                    start: instant(-5),
                    end: instant(1_763_740_800),
                },
            })
            .collect();
        let text = encode_totals(&totals);
        assert!(text.starts_with(r#"[["minute",9007199254740991,2,-5,1763740800],"#));
        assert_eq!(decode_totals(&text).unwrap(), totals);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for text in [
            "",
            "[[1]]",
            r#"[["fortnight",1,1,0,1]]"#,
            r#"[["day",1,-1,0,1]]"#,
        ] {
            assert!(decode_totals(text).is_err(), "{text}");
        }
    }
}
