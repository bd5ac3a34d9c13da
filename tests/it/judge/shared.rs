//! The limits that all subjects of a policy share: their usage in the ledger is the sum of the entries, and
//! grants stay within it.

use std::collections::BTreeMap;

use super::Breach;
use super::stores::{Entry, Kind, Rule, Stores};
use super::totals::SharedRule;

/// A window: the policy, the first version that has the limit, its `per`, and the name of the window.
type Window = (String, i32, String, i64);

/// What counts in a window.
#[derive(Default)]
struct Counted {
    sum: i128,
    /// The units that may be over the limit: those of adjustments, and those that nobody asked the limit for.
    free: i128,
}

pub fn check(stores: &Stores) -> Vec<Breach> {
    // 1. What counts in each window.
    let mut windows: BTreeMap<Window, Counted> = BTreeMap::new();
    for entry in &stores.entries {
        let version = (entry.policy.clone(), entry.policy_version);
        let Some(rule) = stores.rules.get(&version) else {
            continue;
        };
        let grant = entry
            .of
            .and_then(|of| stores.entries.iter().find(|it| it.id == of));
        let granted_by = grant.unwrap_or(entry).policy_version;
        for total in rule.total.iter().filter(|total| granted_by >= total.since) {
            let counted = windows.entry(window(entry, rule, total)).or_default();
            counted.sum += entry.added();
            let is_asked = entry.kind == Kind::Grant && entry.provisional.is_none();
            if !is_asked || entry.would_deny {
                counted.free += entry.added().max(0);
            }
        }
    }
    // 2. What the ledger says. A limit that the newest version lacks is not kept any more.
    let mut breaches = Vec::new();
    for ((policy, since, per, start), told) in &stores.shared {
        let rules = stores
            .rules
            .range((policy.clone(), *since)..=(policy.clone(), i32::MAX));
        let rules: Vec<&Rule> = rules.map(|(_, rule)| rule).collect();
        let its = |rule: &&Rule| {
            let mut totals = rule.total.iter();
            totals
                .find(|total| total.since == *since && total.per_name() == *per)
                .cloned()
        };
        let Some((newest, total)) = rules.last().and_then(|rule| Some((*rule, its(rule)?))) else {
            continue;
        };
        let name = newest.calendar.name(&total.per, *start);
        let none = Counted::default();
        let key = (policy.clone(), *since, total.per.clone(), name);
        let counted = windows.get(&key).unwrap_or(&none);
        if i128::from(*told) != counted.sum {
            breaches.push(Breach::SharedDiffers {
                policy: policy.clone(),
                per: per.clone(),
                told: *told,
                sum: counted.sum,
            });
        }
        let most = rules.iter().filter_map(its).map(|total| total.max).max();
        let most = i128::from(most.unwrap_or_default());
        if counted.sum - counted.free > most {
            breaches.push(Breach::OverAll {
                policy: policy.clone(),
                per: per.clone(),
                used: counted.sum,
            });
        }
    }
    breaches
}

fn window(entry: &Entry, rule: &Rule, total: &SharedRule) -> Window {
    let name = rule.calendar.name(&total.per, entry.counted_at);
    (entry.policy.clone(), total.since, total.per.clone(), name)
}
