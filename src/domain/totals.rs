//! The one text form of totals, which entries and counters share.

use chrono::DateTime;

use super::grant::{TOTAL_MAX, Total};
use super::window::{Per, Window};

/// A text that [`encode_totals`] did not write.
#[derive(Debug, thiserror::Error)]
#[error("unreadable totals {0:?}")]
pub struct TotalsError(String);

/// The text of an entry's totals: `d3,1,1763654400+86400` for 1 of 3 units used in a day, with
/// the window's start in seconds since 1970 and its length in seconds; a semicolon between
/// limits. Equal totals are equal texts: the guard of an append compares them. Each entry keeps
/// one, so it is short.
pub fn encode_totals(totals: &[Total]) -> String {
    let mut text = String::with_capacity(24 * totals.len());
    let mut number = itoa::Buffer::new();
    for total in totals {
        let Window { start, end } = total.window;
        let (start, end) = (start.timestamp(), end.timestamp());
        if !text.is_empty() {
            text.push(';');
        }
        text.push(letter(total.per));
        text.push_str(number.format(total.max));
        text.push(',');
        text.push_str(number.format(total.used));
        text.push(',');
        text.push_str(number.format(start));
        text.push('+');
        text.push_str(number.format(end - start));
    }
    text
}

/// The totals of a text that [`encode_totals`] wrote.
///
/// # Errors
/// [`TotalsError`] for any other text.
pub fn decode_totals(text: &str) -> Result<Vec<Total>, TotalsError> {
    let totals = text.split(';').map(decode_total);
    let totals: Option<_> = totals.collect();
    totals.ok_or_else(|| TotalsError(text.to_owned()))
}

fn decode_total(text: &str) -> Option<Total> {
    let per = Per::ALL
        .into_iter()
        .find(|per| text.starts_with(letter(*per)))?;
    let mut parts = text[1..].splitn(3, ',');
    let (max, used) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    if used > TOTAL_MAX {
        return None;
    }
    let (start, length) = parts.next()?.split_once('+')?;
    let (start, length): (i64, u32) = (start.parse().ok()?, length.parse().ok()?);
    let instant = |seconds| DateTime::from_timestamp(seconds, 0);
    Some(Total {
        per,
        max,
        used,
        window: Window {
            start: instant(start)?,
            end: instant(start.checked_add(length.into())?)?,
        },
    })
}

/// The pattern by which Lua finds the units used in a total's window, in a text that
/// [`encode_totals`] wrote, with a semicolon before and after it.
pub fn used_pattern(total: &Total) -> String {
    let Window { start, end } = total.window;
    let (start, end) = (start.timestamp(), end.timestamp());
    let (letter, length) = (letter(total.per), end - start);
    // A minus has a meaning in patterns.
    let start = start.to_string().replace('-', "%-");
    format!(";{letter}%d+,(%d+),{start}%+{length};")
}

/// What stands for a window's length.
fn letter(per: Per) -> char {
    match per {
        Per::Minute => 'i',
        Per::Hour => 'h',
        Per::Day => 'd',
        Per::Week => 'w',
        Per::Month => 'm',
        Per::Year => 'y',
    }
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
        assert!(text.starts_with("i9007199254740991,2,-5+1763740805;h"));
        assert_eq!(decode_totals(&text).unwrap(), totals);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for text in [
            "",
            "d",
            "f1,1,0+1",
            "d1,-1,0+1",
            "d1,1,0",
            "d1,1,0+1;",
            "d1,1,9223372036854775807+1",
            "d1,9223372036854775808,0+1",
        ] {
            assert!(decode_totals(text).is_err(), "{text}");
        }
    }
}
