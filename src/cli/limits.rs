//! Limits on the command line.

use serde::Serialize;
use serde_json::Value;

use super::client::text;
use super::local::LocalTime;

/// A limit as the API takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitArg {
    max: u64,
    per: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
}

/// Reads `3 per day`, `5 per 24h sliding`, `500 per 24h sliding step 1h` or
/// `10 per 1s rate burst 20`. The server checks the words.
///
/// # Errors
/// What to write instead.
pub fn parse_limit(text: &str) -> Result<LimitArg, String> {
    let read = || {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (max, per, kind, rest) = match words[..] {
            [max, "per", per] => (max, per, None, &words[3..]),
            [max, "per", per, kind, ..] => (max, per, Some(kind.to_owned()), &words[4..]),
            _ => return None,
        };
        let (step, burst) = match *rest {
            [] => (None, None),
            ["step", step] => (Some(step.to_owned()), None),
            ["burst", burst] => (None, Some(burst.parse().ok()?)),
            _ => return None,
        };
        Some(LimitArg {
            max: max.parse().ok()?,
            per: per.to_owned(),
            kind,
            step,
            burst,
        })
    };
    read().ok_or_else(|| {
        "write a limit like \"3 per day\", \"5 per 24h sliding\" or \"10 per 1s rate burst 20\""
            .to_owned()
    })
}

/// Reads another `max` for a limit, such as `10 per day`.
///
/// # Errors
/// What to write instead.
pub fn parse_max(text: &str) -> Result<LimitArg, String> {
    let limit = parse_limit(text).ok().filter(|limit| limit.kind.is_none());
    limit.ok_or_else(|| {
        "write a limit like \"10 per day\": an override changes the max alone, and names the limit \
         by its per"
            .to_owned()
    })
}

/// A limit as text that [`parse_limit`] reads.
pub fn describe_limit(limit: &Value) -> String {
    let mut words = format!("{} per {}", limit["max"], text(&limit["per"]));
    if let Some(kind) = limit["kind"].as_str() {
        words = format!("{words} {kind}");
    }
    for field in ["step", "burst"] {
        match &limit[field] {
            Value::Null => {}
            Value::String(value) => words = format!("{words} {field} {value}"),
            value => words = format!("{words} {field} {value}"),
        }
    }
    words
}

/// Limits in one line.
pub fn describe_limits(limits: &Value) -> String {
    let limits = limits.as_array().into_iter().flatten();
    limits.map(describe_limit).collect::<Vec<_>>().join(", ")
}

/// Shows the usage of each limit.
pub fn print_limits(limits: &Value, local: &LocalTime) {
    for limit in limits.as_array().into_iter().flatten() {
        println!("{}{}", describe_use(limit), describe_return(limit, local));
    }
}

/// Returns text such as `day     1 of 3 used, 2 left`. For a rate, the burst takes the place of the
/// max.
pub fn describe_use(limit: &Value) -> String {
    let most = match limit["kind"].as_str() {
        Some("rate") => limit["used"].as_u64().zip(limit["remaining"].as_u64()),
        _ => None,
    };
    let most = most.map_or(limit["max"].clone(), |(used, left)| (used + left).into());
    format!(
        "{:<7} {} of {} used, {} left",
        text(&limit["per"]),
        limit["used"],
        most,
        limit["remaining"],
    )
}

/// Says when units return, such as ` until …`.
fn describe_return(limit: &Value, local: &LocalTime) -> String {
    let [more_at, resets_at] = ["more_at", "resets_at"].map(|field| local.show(&limit[field]));
    match (&limit["more_at"], &limit["resets_at"]) {
        (_, Value::Null) => String::new(),
        (more, resets) if more == resets || more.is_null() => format!(" until {resets_at}"),
        _ => format!(", more at {more_at}, all of them at {resets_at}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_is_read_as_it_is_described() {
        for text in [
            "3 per day",
            "1 per ever",
            "5 per 24h from_first_claim",
            "5 per 24h sliding",
            "500 per 24h sliding step 1h",
            "10 per 1s rate",
            "10 per 1s rate burst 20",
        ] {
            let limit = json!(parse_limit(text).unwrap());
            assert_eq!(describe_limit(&limit), text);
        }
        for wrong in [
            "3",
            "per day",
            "three per day",
            "-1 per day",
            "3/day",
            "3 per",
            "3 per 1s rate burst",
            "3 per 1s rate burst x",
            "3 per 1s rate 20",
            "3 per 1s rate burst 20 step 1s",
        ] {
            assert!(parse_limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_override_names_a_limit_and_a_max() {
        assert_eq!(parse_max("10 per 24h"), parse_limit("10 per 24h"));
        assert!(
            parse_max("10 per 24h sliding")
                .unwrap_err()
                .contains("alone")
        );
    }
}
