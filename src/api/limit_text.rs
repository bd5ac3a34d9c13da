//! Limits as people write and read them, such as `3 per day`.

use std::fmt;
use std::str::FromStr;

use super::limits::LimitAnswer;
use super::policies::LimitBody;
use super::strict::WholeNumber;

const WRITE: &str = "write a limit like \"3 per day\", \"5 per 24h sliding\", \"10 per 1s rate burst 20\", \
                     \"5 per 15m calendar\" or \"80 per 2 weeks from 2026-01-05\"";

impl FromStr for LimitBody {
    type Err = &'static str;

    /// Reads `3 per day`, `5 per 24h sliding`, `500 per 24h sliding step 1h`, `10 per 1s rate burst 20`,
    /// `5 per 15m calendar` or `80 per 2 weeks from 2026-01-05`. The server checks the words.
    ///
    /// # Errors
    /// What to write instead.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let words: Vec<&str> = text.split_whitespace().collect();
        read(&words).ok_or(WRITE)
    }
}

fn read(words: &[&str]) -> Option<LimitBody> {
    let (max, per, rest) = split_per(words)?;
    let mut limit = LimitBody {
        max,
        per,
        kind: None,
        step: None,
        burst: None,
        from: None,
    };
    let (kind, settings) = match rest {
        [] | ["from", ..] => (None, rest),
        [kind, settings @ ..] => (Some((*kind).to_owned()), settings),
    };
    limit.kind = kind;
    match *settings {
        [] => {}
        ["step", step] => limit.step = Some(step.to_owned()),
        ["burst", burst] => limit.burst = Some(whole(burst)?),
        ["from", from] => limit.from = Some(from.to_owned()),
        _ => return None,
    }
    Some(limit)
}

/// The max and the per of a limit, and what follows them.
fn split_per<'w>(words: &'w [&'w str]) -> Option<(WholeNumber, String, &'w [&'w str])> {
    let (per, rest) = match words {
        [_, "per", weeks, "weeks", rest @ ..] => (format!("{weeks} weeks"), rest),
        [_, "per", _, week, ..] if week.to_lowercase().starts_with("week") => return None,
        [_, "per", per, rest @ ..] => ((*per).to_owned(), rest),
        _ => return None,
    };
    Some((whole(words[0])?, per, rest))
}

fn whole(text: &str) -> Option<WholeNumber> {
    let number: u64 = text.parse().ok()?;
    Some(WholeNumber(number.into()))
}

/// The text that [`LimitBody`] is read from.
impl fmt::Display for LimitAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            max,
            per,
            kind,
            step,
            burst,
            from,
        } = self;
        let kind = kind.as_ref().map(|kind| format!(" {kind}"));
        let step = step.map(|step| format!(" step {step}"));
        let burst = burst.map(|burst| format!(" burst {burst}"));
        let from = from.map(|from| format!(" from {from}"));
        let more = [kind, step, burst, from].into_iter().flatten();
        write!(formatter, "{max} per {per}{}", more.collect::<String>())
    }
}

/// Limits in one line; `none` without one.
pub fn limits_in_line(limits: &[LimitAnswer]) -> String {
    let texts: Vec<String> = limits.iter().map(LimitAnswer::to_string).collect();
    if texts.is_empty() {
        "none".to_owned()
    } else {
        texts.join(", ")
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
            "5 per 15m calendar",
            "80 per 2 weeks from 2026-01-05",
        ] {
            let limit: LimitBody = text.parse().unwrap();
            let limit: LimitAnswer = serde_json::from_value(json!(limit)).unwrap();
            assert_eq!(limit.to_string(), text);
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
            "3 per 2 weeks from",
            "3 per 2 week from 2026-01-05",
            "3 per 2 Weeks from 2026-01-05",
            "3 per 2 weeks from 2026-01-05 sliding",
            "3 per weeks from 2026-01-05 step 1h",
            "3 per 1s rate burst 20 step 1s",
        ] {
            assert!(wrong.parse::<LimitBody>().is_err(), "{wrong}");
        }
    }
}
