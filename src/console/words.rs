//! Numbers and rules in words.

use api::limits::{LimitAnswer, LimitUsage};
use domain::limit::per::Per;

/// A number with thin spaces between groups of three digits.
pub fn number(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    if number < 0 {
        format!("−{text}")
    } else {
        text
    }
}

/// A number and its noun, such as `1 unit` or `2 units`.
pub fn count(of: u64, noun: &str) -> String {
    match of {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", number(of)),
    }
}

/// A limit, such as `3 per day` or `5 in any 24h`.
pub fn limit(limit: &LimitAnswer) -> String {
    let LimitAnswer {
        max,
        per,
        kind,
        step,
        burst,
        from,
    } = limit;
    let max = number(*max);
    match kind.as_deref() {
        Some("sliding") => {
            let step = step.map(|step| format!(", in steps of {step}"));
            format!("{max} in any {per}{}", step.unwrap_or_default())
        }
        Some("from_first_claim") => format!("{max} in {per} from the first claim"),
        Some("rate") => {
            let burst = burst.map(|burst| format!(", at most {} at once", number(burst)));
            format!("{max} every {per}{}", burst.unwrap_or_default())
        }
        Some("calendar") => format!("{max} per {per} of the day"),
        Some(other) => format!("{max} per {per} {other}"),
        None if *per == Per::Ever => format!("{max} in all"),
        None => {
            let from = from.map(|from| format!(" from {from}"));
            format!("{max} per {per}{}", from.unwrap_or_default())
        }
    }
}

pub fn limits(limits: &[LimitAnswer]) -> String {
    let words: Vec<String> = limits.iter().map(limit).collect();
    words.join(", ")
}

/// A usage, such as `2 of 3 per day`.
pub fn usage(usage: &LimitUsage) -> String {
    let most = number(usage.most_at_once());
    let used = number(usage.used);
    match usage.per {
        Per::Ever => format!("{used} of {most} in all"),
        per => format!("{used} of {most} per {per}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(41_208), "41\u{2009}208");
        assert_eq!(number(-1_234_567), "−1\u{2009}234\u{2009}567");
        assert_eq!(
            (count(1, "unit"), count(0, "unit")),
            ("1 unit".to_owned(), "0 units".to_owned())
        );
    }

    #[test]
    fn each_kind_of_limit_has_words() {
        let rows = [
            (json!({ "max": 3, "per": "day" }), "3 per day"),
            (json!({ "max": 1, "per": "ever" }), "1 in all"),
            (
                json!({ "max": 5, "per": "24h", "kind": "sliding" }),
                "5 in any 24h",
            ),
            (
                json!({ "max": 500, "per": "24h", "kind": "sliding", "step": "1h" }),
                "500 in any 24h, in steps of 1h",
            ),
            (
                json!({ "max": 5, "per": "24h", "kind": "from_first_claim" }),
                "5 in 24h from the first claim",
            ),
            (
                json!({ "max": 5, "per": "15m", "kind": "calendar" }),
                "5 per 15m of the day",
            ),
            (
                json!({ "max": 80, "per": "2 weeks", "from": "2026-01-05" }),
                "80 per 2 weeks from 2026-01-05",
            ),
            (
                json!({ "max": 10, "per": "1s", "kind": "rate" }),
                "10 every 1s",
            ),
            (
                json!({ "max": 10, "per": "1s", "kind": "rate", "burst": 20 }),
                "10 every 1s, at most 20 at once",
            ),
        ];
        for (body, expected) in rows {
            assert_eq!(limit(&serde_json::from_value(body).unwrap()), expected);
        }
    }
}
