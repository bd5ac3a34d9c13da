//! Compares the answers to claims with the ledger.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use uuid::Uuid;

use super::Breach;
use super::history::{Attempt, History, Outcome, Told};
use super::stores::{Entry, Kind, Stores};
use super::totals::told_name;

/// A history without wishes contains no facts about grants.
pub fn check(history: &History, stores: &Stores) -> Vec<Breach> {
    if history.wishes.is_empty() {
        return Vec::new();
    }
    // 1. Find the wish of each grant in the ledger.
    let mut by_wish: HashMap<usize, Vec<&Entry>> = HashMap::new();
    let mut breaches = Vec::new();
    for entry in stores.of_kind(Kind::Grant) {
        let wish = entry.wish.filter(|wish| *wish < history.wishes.len());
        match wish {
            Some(wish) => by_wish.entry(wish).or_default().push(entry),
            None => breaches.push(Breach::Foreign {
                entry: entry.id,
                wish: entry.wish,
            }),
        }
    }
    // 2. A bundle has all its grants, or none.
    breaches.extend(half_bundles(history, &by_wish));
    for (number, attempts) in history.by_wish().into_iter().enumerate() {
        // 3. A claim has one entry, which equals the claim and its answers.
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
        // 4. The ledger has the grant of each answer, and one grant for each key.
        check_answers(number, history, &answers, &entries, &mut breaches);
        // 5. No claim is denied after its grant was known.
        let since = granted_since(history, &answers, &entries);
        let denied = |began| since.is_some_and(|since| began > since);
        let is_denial =
            |attempt: &&&Attempt| [Outcome::Denied, Outcome::Skipped].contains(&attempt.outcome);
        let mut denials = attempts.iter().filter(is_denial);
        if denials.any(|attempt| denied(attempt.began)) {
            breaches.push(Breach::Forgotten { wish: number });
        }
        // 6. A retry is told that its grant has ended only if it has, or if its hold's end came while
        //    its confirmation was being committed.
        let mut ends = attempts
            .iter()
            .filter(|attempt| attempt.outcome == Outcome::Ended);
        let is_ended = |entry: &&Entry| stores.entries.iter().any(|other| may_end(other, entry));
        if ends.any(|attempt| !history.may_be_lost(attempt)) && !entries.iter().any(is_ended) {
            breaches.push(Breach::NotEnded { wish: number });
        }
        // 7. Every claim is decided.
        // A wish that nobody has sent is no claim.
        let is_claim = history.wishes[number].has_key && !attempts.is_empty();
        if is_claim && !attempts.iter().any(|attempt| attempt.outcome.is_known()) {
            breaches.push(Breach::Undecided { wish: number });
        }
        // 8. Every answer is in the contract.
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

fn half_bundles(history: &History, by_wish: &HashMap<usize, Vec<&Entry>>) -> Vec<Breach> {
    let mut bundles: BTreeMap<usize, Vec<bool>> = BTreeMap::new();
    for (number, wish) in history.wishes.iter().enumerate() {
        let is_granted = by_wish.contains_key(&number);
        let bundle = wish.bundle.map(|bundle| bundles.entry(bundle).or_default());
        bundle
            .into_iter()
            .for_each(|bundle| bundle.push(is_granted));
    }
    let is_half = |granted: &[bool]| granted.iter().any(|one| *one != granted[0]);
    let half = bundles.into_iter().filter(|(_, granted)| is_half(granted));
    half.map(|(wish, _)| Breach::HalfBundle { wish }).collect()
}

/// Whether an entry gave the units of a grant back, or confirmed it before its end.
fn may_end(entry: &Entry, grant: &Entry) -> bool {
    let ends = matches!(
        entry.kind,
        Kind::Reversal | Kind::Lapse | Kind::Confirmation
    );
    ends && entry.of == Some(grant.id)
}

/// The attempts whose answer is a grant. Answers that a lost part of the ledger explains are left
/// out: the ledger has no such entry, and the answer may come from that part.
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

/// Checks that an entry equals its claim and its answers.
fn check_claimed(
    number: usize,
    entry: &Entry,
    history: &History,
    attempts: &[&Attempt],
    answers: &[(&Attempt, &Told)],
    breaches: &mut Vec<Breach>,
) {
    let wish = &history.wishes[number];
    let is_as_claimed = entry.policy == wish.policy
        && entry.subject == wish.subject
        && entry.units == wish.units
        && entry.held_until.is_some() == wish.hold_seconds.is_some();
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
            || attempt.outcome == Outcome::Ended
            || !attempt.outcome.is_known()
    });
    if !excused {
        breaches.push(Breach::Foreign {
            entry: entry.id,
            wish: Some(number),
        });
    }
}

/// Checks that the answered grant is in the ledger, and is one grant.
fn check_answers(
    number: usize,
    history: &History,
    answers: &[(&Attempt, &Told)],
    entries: &[&Entry],
    breaches: &mut Vec<Breach>,
) {
    let mut ids: Vec<Uuid> = Vec::new();
    let mut news = 0;
    let mut is_provisional = false;
    for (attempt, told) in answers {
        is_provisional |= told.provisional;
        news += usize::from(matches!(attempt.outcome, Outcome::Granted(_)));
        if !ids.contains(&told.id) {
            ids.push(told.id);
        }
        // A claim that was counted twice under one key is recorded once, under one of its ids.
        let may_be_lost = told.provisional && (history.redis_lost_data || !entries.is_empty());
        if !may_be_lost && !entries.iter().any(|entry| entry.id == told.id) {
            breaches.push(Breach::Lost {
                wish: number,
                id: told.id,
            });
        }
    }
    // An instance that treats the ledger as silent does not know what another instance appends.
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
    // When Redis lost the grant, the claim is a new one.
    let is_gone = |told: &Told| told.provisional && history.redis_lost_data && entries.is_empty();
    let known = answers
        .iter()
        .filter(|(_, told)| !is_gone(told))
        .map(|(attempt, _)| attempt.ended)
        .min();
    let quiet = history.quiet_since.filter(|_| !entries.is_empty());
    [known, quiet].into_iter().flatten().min()
}

/// Whether an answer contains an entry's totals. A grant that Redis alone decided is marked so in
/// the answer, before the ledger has it.
fn tells(told: &Told, entry: &Entry) -> bool {
    let totals = entry.totals.iter();
    let totals: Vec<(String, u64, u64)> = totals
        .map(|total| (told_name(&total.per).to_owned(), total.max, total.used))
        .collect();
    told.provisional || entry.provisional.is_none() && told.limits == totals
}
