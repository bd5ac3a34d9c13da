//! The judge: reads what clients were told and what stands, and says what cannot be.
//!
//! It trusts no code of perdiem's: sums, numbers and windows are worked out anew.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::history::{Attempt, History, Outcome, Told};
use super::stores::{Entry, Provisional, Rule, Stores, Total};

/// Something that no fault excuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breach {
    /// More units in a window than its limit.
    Over { entry: Uuid, total: Total },
    /// A total that the account's grants do not add up to.
    NotTheSum { entry: Uuid, total: Total, sum: u64 },
    /// A limit that the version of the policy does not have, or lacks.
    NotTheRule { entry: Uuid },
    /// A window that is not its zone's, or not the entry's.
    NotTheWindow { entry: Uuid, total: Total },
    /// A number missing or out of turn.
    Gap { entry: Uuid, number: i64 },
    /// An instant or a policy's version before its predecessor's.
    Backwards { entry: Uuid },
    /// A grant that a client was told, and that does not stand.
    Lost { wish: usize, id: Uuid },
    /// A claim with several entries.
    Doubled { wish: usize, ids: Vec<Uuid> },
    /// An entry that nobody asked for, or whose every attempt was denied.
    Foreign { entry: Uuid, wish: Option<usize> },
    /// A provisional entry marked as over that is not, or the other way round.
    Marked { entry: Uuid },
    /// An entry that is not as the claim was, or not as it was told.
    Altered { wish: usize, entry: Uuid },
    /// The same key was told different grants, or twice that it was new.
    TwoGrants { wish: usize, ids: Vec<Uuid> },
    /// A claim was denied after its grant was known, or stood.
    Forgotten { wish: usize },
    /// A claim that was never decided, with all servers up again.
    Undecided { wish: usize },
    /// A counter that is not its account's last line.
    Drift { account: Uuid, counter: String },
    /// Something left in Redis that is no counter.
    Left(String),
    /// An answer that is none of the contract's.
    Wrong { wish: usize, answer: String },
}

impl fmt::Display for Breach {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?}")
    }
}

/// Everything that is wrong.
pub fn check(history: &History, stores: &Stores) -> Vec<Breach> {
    let mut breaches = check_accounts(stores);
    breaches.extend(check_claims(history, stores));
    breaches.extend(stores.drifted().into_iter().map(|counter| Breach::Drift {
        account: counter.account,
        counter: format!("{} {}", counter.number, counter.line),
    }));
    breaches.extend(stores.others.iter().cloned().map(Breach::Left));
    breaches
}

/// (a), and what of (c) the ledger shows by itself.
fn check_accounts(stores: &Stores) -> Vec<Breach> {
    let mut accounts: BTreeMap<Uuid, Vec<&Entry>> = BTreeMap::new();
    for entry in &stores.entries {
        accounts.entry(entry.account).or_default().push(entry);
    }
    let mut breaches = Vec::new();
    for entries in accounts.values_mut() {
        entries.sort_by_key(|entry| entry.number);
        for (index, entry) in entries.iter().enumerate() {
            if entry.number != index as i64 + 1 {
                breaches.push(Breach::Gap {
                    entry: entry.id,
                    number: entry.number,
                });
            }
            let before = index.checked_sub(1).map(|before| entries[before]);
            if before.is_some_and(|before| {
                before.at > entry.at || before.policy_version > entry.policy_version
            }) {
                breaches.push(Breach::Backwards { entry: entry.id });
            }
            let key = (entry.policy.clone(), entry.policy_version);
            let rule = stores.rules.get(&key);
            check_entry(entry, rule, &entries[..=index], &mut breaches);
        }
    }
    breaches
}

fn check_entry(entry: &Entry, rule: Option<&Rule>, so_far: &[&Entry], breaches: &mut Vec<Breach>) {
    let limits: Vec<(String, u64)> = entry
        .totals
        .iter()
        .map(|total| (total.per.clone(), total.max))
        .collect();
    if rule.is_none_or(|rule| rule.limits != limits) {
        breaches.push(Breach::NotTheRule { entry: entry.id });
    }
    let offset = rule.and_then(|rule| rule.offset);
    for total in &entry.totals {
        if !contains(total, entry.at) || offset.is_some_and(|offset| !is_aligned(total, offset)) {
            breaches.push(Breach::NotTheWindow {
                entry: entry.id,
                total: total.clone(),
            });
        }
        let sum = units_in(total, so_far);
        if sum != total.used {
            breaches.push(Breach::NotTheSum {
                entry: entry.id,
                total: total.clone(),
                sum,
            });
        }
    }
    // The windows in which it counts: its own, or, for one that was appended late, perhaps
    // the window before.
    let windows = entry.totals.iter().map(|total| match offset {
        Some(offset) if !contains(total, entry.granted_at) => {
            aligned(total, entry.granted_at.timestamp(), offset)
        }
        Some(_) | None => total.clone(),
    });
    let over: Vec<Total> = windows
        .filter(|total| contains(total, entry.granted_at))
        .filter(|total| units_in(total, so_far) > total.max)
        .collect();
    match (entry.provisional, over.into_iter().next()) {
        (Some(Provisional::Over), Some(_)) | (None | Some(Provisional::Within), None) => {}
        (None, Some(total)) => breaches.push(Breach::Over {
            entry: entry.id,
            total,
        }),
        (Some(_), _) => breaches.push(Breach::Marked { entry: entry.id }),
    }
}

fn units_in(total: &Total, entries: &[&Entry]) -> u64 {
    let inside = entries
        .iter()
        .filter(|entry| contains(total, entry.granted_at));
    inside.map(|entry| entry.units).sum()
}

fn contains(total: &Total, at: DateTime<Utc>) -> bool {
    let at = at.timestamp_micros();
    total.start * 1_000_000 <= at && at < total.end * 1_000_000
}

fn seconds_of(per: &str) -> Option<i64> {
    match per {
        "minute" => Some(60),
        "hour" => Some(3600),
        "day" => Some(86_400),
        // Months and years are looked at by other tests.
        _ => None,
    }
}

/// A total's window moved to an instant, where its length is fixed.
fn aligned(total: &Total, at: i64, offset: i64) -> Total {
    let mut moved = total.clone();
    if let Some(seconds) = seconds_of(&total.per) {
        moved.start = at - (at + offset).rem_euclid(seconds);
        moved.end = moved.start + seconds;
    }
    moved
}

/// Whether a window is one of its zone's.
fn is_aligned(total: &Total, offset: i64) -> bool {
    *total == aligned(total, total.start, offset)
}

/// (b) and (d).
fn check_claims(history: &History, stores: &Stores) -> Vec<Breach> {
    let mut by_wish: HashMap<usize, Vec<&Entry>> = HashMap::new();
    let mut breaches = Vec::new();
    for entry in &stores.entries {
        let wish = entry.wish.filter(|wish| *wish < history.wishes.len());
        match wish {
            Some(wish) => by_wish.entry(wish).or_default().push(entry),
            None => breaches.push(Breach::Foreign {
                entry: entry.id,
                wish: entry.wish,
            }),
        }
    }
    for (number, attempts) in history.by_wish().into_iter().enumerate() {
        let entries = by_wish.remove(&number).unwrap_or_default();
        if entries.len() > 1 {
            breaches.push(Breach::Doubled {
                wish: number,
                ids: entries.iter().map(|entry| entry.id).collect(),
            });
        }
        let answers = answers(history, &attempts, &entries);
        for entry in &entries {
            check_claimed(number, entry, history, &attempts, &answers, &mut breaches);
        }
        check_answers(number, history, &answers, &entries, &mut breaches);
        let since = granted_since(history, &answers, &entries);
        let denied = |began| since.is_some_and(|since| began > since);
        let mut denials = attempts
            .iter()
            .filter(|attempt| attempt.outcome == Outcome::Denied);
        if denials.any(|attempt| denied(attempt.began)) {
            breaches.push(Breach::Forgotten { wish: number });
        }
        let has_key = history.wishes[number].has_key;
        if has_key && !attempts.iter().any(|attempt| attempt.outcome.is_known()) {
            breaches.push(Breach::Undecided { wish: number });
        }
        for attempt in attempts {
            if let Outcome::Wrong(answer) = &attempt.outcome {
                breaches.push(Breach::Wrong {
                    wish: number,
                    answer: answer.clone(),
                });
            }
        }
    }
    breaches
}

/// The attempts that were told of a grant, without those that a lost part of the ledger
/// explains: the ledger has no such entry, and they may tell of that part.
fn answers<'a>(
    history: &History,
    attempts: &[&'a Attempt],
    entries: &[&Entry],
) -> Vec<(&'a Attempt, &'a Told)> {
    let told = attempts
        .iter()
        .filter_map(|attempt| Some((*attempt, attempt.outcome.told()?)));
    let is_there = |told: &Told| {
        let mut entries = entries.iter();
        entries.any(|entry| entry.id == told.id && tells(told, entry))
    };
    told.filter(|(attempt, told)| is_there(told) || !history.may_be_lost(attempt))
        .collect()
}

/// Checks that an entry is as it was claimed and told.
fn check_claimed(
    number: usize,
    entry: &Entry,
    history: &History,
    attempts: &[&Attempt],
    answers: &[(&Attempt, &Told)],
    breaches: &mut Vec<Breach>,
) {
    let wish = &history.wishes[number];
    let is_as_claimed =
        entry.policy == wish.policy && entry.subject == wish.subject && entry.units == wish.units;
    let mut told = answers.iter().map(|(_, told)| told);
    if !is_as_claimed || told.any(|told| told.id == entry.id && !tells(told, entry)) {
        breaches.push(Breach::Altered {
            wish: number,
            entry: entry.id,
        });
    }
    let excused = attempts.iter().any(|attempt| {
        attempt
            .outcome
            .told()
            .is_some_and(|told| told.id == entry.id || told.provisional)
            || !attempt.outcome.is_known()
    });
    if !excused {
        breaches.push(Breach::Foreign {
            entry: entry.id,
            wish: Some(number),
        });
    }
}

/// Checks that what was told is in the ledger, and is one grant.
fn check_answers(
    number: usize,
    history: &History,
    answers: &[(&Attempt, &Told)],
    entries: &[&Entry],
    breaches: &mut Vec<Breach>,
) {
    let mut ids: Vec<Uuid> = Vec::new();
    let (mut news, mut is_provisional) = (0, false);
    for (attempt, told) in answers {
        is_provisional |= told.provisional;
        news += usize::from(matches!(attempt.outcome, Outcome::Granted(_)));
        if !ids.contains(&told.id) {
            ids.push(told.id);
        }
        // What was counted twice under one key is recorded once, under one of the ids.
        let may_be_lost = told.provisional && (history.redis_lost_data || !entries.is_empty());
        if !may_be_lost && !entries.iter().any(|entry| entry.id == told.id) {
            breaches.push(Breach::Lost {
                wish: number,
                id: told.id,
            });
        }
    }
    // An instance that takes the ledger for silent does not know what another does there.
    if (ids.len() > 1 || news > 1) && !is_provisional {
        breaches.push(Breach::TwoGrants { wish: number, ids });
    }
}

/// The first moment at which a claim's grant was known, or was in the ledger for certain.
fn granted_since(
    history: &History,
    answers: &[(&Attempt, &Told)],
    entries: &[&Entry],
) -> Option<Duration> {
    // Where Redis lost it, the claim is a new one.
    let is_gone = |told: &Told| told.provisional && history.redis_lost_data && entries.is_empty();
    let known = answers
        .iter()
        .filter(|(_, told)| !is_gone(told))
        .map(|(attempt, _)| attempt.ended)
        .min();
    let quiet = history.quiet_since.filter(|_| !entries.is_empty());
    [known, quiet].into_iter().flatten().min()
}

/// Whether an answer tells an entry's totals. What Redis alone decided is told as such, before
/// the ledger knows of it.
fn tells(told: &Told, entry: &Entry) -> bool {
    let totals = entry.totals.iter();
    let totals: Vec<(String, u64, u64)> = totals
        .map(|total| (total.per.clone(), total.max, total.used))
        .collect();
    told.provisional || entry.provisional.is_none() && told.limits == totals
}
