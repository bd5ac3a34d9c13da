//! What a change of a policy orphans, as text.

use api::limits::maxima;
use api::orphans::OrphansBody;

/// The overrides and tiers of subjects that a change of a policy orphans, in one line.
pub fn describe_orphans(orphans: &OrphansBody) -> String {
    let OrphansBody { count, first } = orphans;
    let named = first.iter().map(|orphan| {
        let subject = orphan.subject.as_deref().unwrap_or("(erased)");
        let lost = match &orphan.tier {
            Some(tier) => format!("in the tier {tier}"),
            None => maxima(&orphan.limits),
        };
        format!("{subject} ({lost})")
    });
    let named: Vec<String> = named.collect();
    let more = if *count > named.len() { ", …" } else { "" };
    let named = named.join(", ");
    format!(
        "overrides without their limit, or subjects without their tier ({count}): {named}{more}"
    )
}
