//! Limits on the command line.

use super::local::LocalTime;
use api::limits::LimitUsage;

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
