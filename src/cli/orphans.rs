//! The limits of overrides, and the overrides that a change of a policy orphans, as text.

use api::limits::OverriddenMax;
use api::orphans::OrphansBody;

/// The limits of an override in one line.
pub fn describe_maxes(limits: &[OverriddenMax]) -> String {
    let limits = limits.iter();
    let limits = limits.map(|OverriddenMax { max, per }| format!("{max} per {per}"));
    limits.collect::<Vec<_>>().join(", ")
}

/// The overrides that a change of a policy orphans, in one line.
pub fn describe_orphans(orphans: &OrphansBody) -> String {
    let OrphansBody { count, first } = orphans;
    let named = first.iter().map(|orphan| {
        let subject = orphan.subject.as_deref().unwrap_or("(erased)");
        format!("{subject} ({})", describe_maxes(&orphan.limits))
    });
    let named: Vec<String> = named.collect();
    let more = if *count > named.len() { ", …" } else { "" };
    let named = named.join(", ");
    format!("overrides without their limit, or beyond its bounds ({count}): {named}{more}")
}
