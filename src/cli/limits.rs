//! Limits on the command line.

use super::local::LocalTime;
use api::limits::{LimitAnswer, LimitUsage};
use api::policies::LimitBody;
use api::strict::WholeNumber;

/// Reads `3 per day`, `5 per 24h sliding`, `500 per 24h sliding step 1h`, `10 per 1s rate burst 20`,
/// `5 per 15m calendar` or `80 per 2 weeks from 2026-01-05`. The server checks the words.
///
/// # Errors
/// What to write instead.
pub fn parse_limit(text: &str) -> Result<LimitBody, String> {
    let read = || {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (max, per, rest) = split_per(&words)?;
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
    };
    read().ok_or_else(|| {
        "write a limit like \"3 per day\", \"5 per 24h sliding\", \"10 per 1s rate burst 20\", \"5 per 15m calendar\" \
         or \"80 per 2 weeks from 2026-01-05\""
            .to_owned()
    })
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

/// A limit as text that [`parse_limit`] reads.
pub fn describe_limit(limit: &LimitAnswer) -> String {
    let LimitAnswer {
        max,
        per,
        kind,
        step,
        burst,
        from,
    } = limit;
    let kind = kind.as_ref().map(|kind| format!(" {kind}"));
    let step = step.map(|step| format!(" step {step}"));
    let burst = burst.map(|burst| format!(" burst {burst}"));
    let from = from.map(|from| format!(" from {from}"));
    let more = [kind, step, burst, from].into_iter().flatten();
    format!("{max} per {per}{}", more.collect::<String>())
}

/// Limits in one line.
pub fn describe_limits(limits: &[LimitAnswer]) -> String {
    let limits = limits.iter().map(describe_limit);
    limits.collect::<Vec<_>>().join(", ")
}

/// Shows the usage of each limit.
pub fn print_limits(limits: &[LimitUsage], local: &LocalTime) {
    for limit in limits {
        println!("{}{}", describe_use(limit), describe_return(limit, local));
    }
}

/// Returns text such as `day     1 of 3 used, 2 left`. For a rate, the burst takes the place of the
/// max.
pub fn describe_use(limit: &LimitUsage) -> String {
    let LimitUsage {
        per,
        used,
        remaining,
        ..
    } = limit;
    let most = limit.most_at_once();
    format!("{per:<7} {used} of {most} used, {remaining} left")
}

/// Says when units return, such as ` until …`.
fn describe_return(limit: &LimitUsage, local: &LocalTime) -> String {
    let Some(resets_at) = limit.resets_at else {
        return String::new();
    };
    let all = local.show(resets_at);
    match limit.more_at.filter(|more_at| *more_at != resets_at) {
        None => format!(" until {all}"),
        Some(more_at) => format!(", more at {}, all of them at {all}", local.show(more_at)),
    }
}

/// All limits with their usage, in one line.
pub fn describe_usages(limits: &[LimitUsage], local: &LocalTime) -> String {
    let describe = |limit: &LimitUsage| {
        let LimitUsage { used, per, .. } = limit;
        let max = limit.most_at_once();
        let until = limit.resets_at.map(|until| local.show(until));
        let until = until.map_or_else(String::new, |until| format!(", until {until}"));
        format!("{used} of {max} used per {per}{until}")
    };
    let described: Vec<String> = limits.iter().map(describe).collect();
    described.join("; ")
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
            let limit = json!(parse_limit(text).unwrap());
            let limit = serde_json::from_value(limit).unwrap();
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
            "3 per 2 weeks from",
            "3 per 2 week from 2026-01-05",
            "3 per 2 Weeks from 2026-01-05",
            "3 per 2 weeks from 2026-01-05 sliding",
            "3 per weeks from 2026-01-05 step 1h",
            "3 per 1s rate burst 20 step 1s",
        ] {
            assert!(parse_limit(wrong).is_err(), "{wrong}");
        }
    }
}
