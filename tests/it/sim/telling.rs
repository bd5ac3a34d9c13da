//! Prints a history in words, step by step.

use std::fmt::Write;

use perdiem::claims::protocol::InFlight;
use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::identity::{AccountId, EntryId};
use perdiem::domain::limit::per::Per;

use super::calls::{Call, Waiting};
use super::clients::{Adjustment, Wish, ZONES};
use super::events::Event;
use super::promises::nonce;
use super::world::World;
use super::{Scene, go_through};

/// Prints a history in which a promise is broken: the promise, each event with the entries that it
/// caused, and the claims.
pub fn tell(scene: Scene, choices: &[u16]) -> String {
    let mut told = String::new();
    let mut entries = 0;
    let note = |world: &World, event: &Event| {
        tell_entries(&mut told, &world.ledger.entries, &mut entries);
        let at = world.time.0.as_millis() - 60_000;
        let _ = writeln!(told, "{at:>6} ms  {}", event_in_words(world, event));
    };
    let (world, kept) = go_through(scene, choices, note);
    tell_entries(&mut told, &world.ledger.entries, &mut entries);
    let broken = kept.err().unwrap_or_default();
    let versions = world.course.iter().zip(1..);
    let versions = versions.map(|(version, number)| format!("{number}: {:?}\n", version.limits));
    format!("{broken}\n{}{told}", versions.collect::<String>())
}

fn tell_entries(told: &mut String, entries: &[Entry], before: &mut usize) {
    for entry in entries.iter().skip(*before) {
        let _ = writeln!(told, "           + {}", entry_in_words(entry));
    }
    *before = entries.len();
}

fn event_in_words(world: &World, event: &Event) -> String {
    let (call, what) = match event {
        Event::Send(instance, wish) => {
            let name = name(*instance);
            let number = world.sent.len();
            return format!("{name} gets claim {number}: {}", wish_in_words(wish));
        }
        Event::SendTogether(instance, wishes, is_doomed) => {
            let name = name(*instance);
            let number = world.sent.len();
            let wishes: Vec<String> = wishes.iter().map(wish_in_words).collect();
            let wishes = wishes.join(", and ");
            let doomed = if *is_doomed { " and a wrong one" } else { "" };
            return format!("{name} gets a batch from claim {number} on: {wishes}{doomed}");
        }
        Event::Effect(call) => (call, "has its effect"),
        Event::Repeat(call) => (call, "has its effect, and will again"),
        Event::Hear(call) => (call, "is answered"),
        Event::Lose(call) => (call, "gets no answer"),
        Event::Break(call) => (call, "breaks before its effect"),
        Event::Garble(call) => (call, "finds what cannot be read"),
        Event::Panic(call) => (call, "loses its lane"),
        other => return format!("{other:?}"),
    };
    let call = &world.calls[*call];
    format!("{}'s {} {what}", name(call.instance), call_in_words(call))
}

fn call_in_words(call: &Call) -> String {
    let claim = |claim: &InFlight| format!(" of claim {}", claim.work.nonce);
    let of = match &call.waiting {
        Some(Waiting::Counter(it) | Waiting::Key(it, _) | Waiting::GoBack(it)) => claim(it),
        Some(Waiting::Word(it, _) | Waiting::CountedKey(it, _) | Waiting::CountAgain(it)) => {
            claim(&it.claim)
        }
        Some(Waiting::Count(it)) => claim(&it.counted.claim),
        Some(Waiting::Look(groups, ..) | Waiting::Append(groups, ..)) => {
            let accounts = groups.iter().flat_map(|group| group.scope.accounts());
            let subjects = accounts.map(|account| subject(*account));
            format!(" of {}", subjects.collect::<Vec<_>>().join(", "))
        }
        Some(_) => String::new(),
        None => " that nobody waits for".to_owned(),
    };
    format!("{}{of}", call.what)
}

fn entry_in_words(entry: &Entry) -> String {
    let what = match entry.kind {
        EntryKind::Grant { held_until: None } => "grant".to_owned(),
        EntryKind::Grant { .. } => "hold".to_owned(),
        EntryKind::Confirmation { of } => format!("confirmation of {}'s", of_claim(of)),
        EntryKind::PartialReversal { of } => format!("part of {}'s", of_claim(of)),
        EntryKind::Reversal { of } => format!("reversal of {}'s", of_claim(of)),
        EntryKind::Lapse { of } => format!("lapse of {}'s", of_claim(of)),
        EntryKind::Adjustment(direction) => format!("adjustment {direction:?}"),
        EntryKind::Reset { per } => format!("reset{}", per_in_words(per)),
        EntryKind::Calendar => "move of the calendar".to_owned(),
        EntryKind::TopUp => "top-up".to_owned(),
        EntryKind::TopUpReversal { of } => format!("end of {}'s", of_claim(of)),
    };
    let line = &entry.line;
    let account = subject(entry.account);
    let used: Vec<u64> = line.totals.iter().map(|total| total.used()).collect();
    let version = line.policy_version;
    let number = line.number;
    format!(
        "{account} #{number} {what} of claim {}, units {}, {} of top-ups, used {used:?} under {version}",
        nonce(entry),
        entry.units.get(),
        entry.topped_up_units()
    )
}

fn wish_in_words(wish: &Wish) -> String {
    match wish {
        Wish::Claim {
            subject,
            key,
            units,
            is_hold,
            is_refused,
            zone,
        } => {
            let zone = zone.map_or(String::new(), |zone| format!(" in {}", ZONES[zone].0));
            let what = if *is_hold { "a hold of " } else { "" };
            let key = key
                .map(|key| format!(" with key {key}"))
                .unwrap_or_default();
            let data = if *is_refused { ", with bad data" } else { "" };
            format!("{what}{units} for subject {subject}{zone}{key}{data}")
        }
        Wish::Reversal(grant) => format!("reverse the grant of claim {}", nonce(grant)),
        Wish::Part(grant, units, key) => {
            let claim = nonce(grant);
            format!("reverse {units} of the grant of claim {claim} with key {key}")
        }
        Wish::TopUp {
            subject,
            units,
            ends_after,
            key,
        } => {
            let key = key.map(|key| format!(" with key {key}"));
            let key = key.unwrap_or_default();
            let seconds = ends_after.num_seconds();
            format!("top subject {subject} up with {units} until second {seconds}{key}")
        }
        Wish::EndTopUp(top_up) => format!("end the top-up of claim {}", nonce(top_up)),
        Wish::Confirmation(grant, units) => {
            let units = units.map_or("all".to_owned(), |units| units.to_string());
            format!("confirm {units} of the hold of claim {}", nonce(grant))
        }
        Wish::Adjustment(adjustment) => {
            let Adjustment {
                subject,
                direction,
                units,
                is_past,
                key,
            } = adjustment;
            let when = if *is_past { " in the past" } else { "" };
            let key = key
                .map(|key| format!(" with key {key}"))
                .unwrap_or_default();
            format!("adjust subject {subject} {direction:?} by {units}{when}{key}")
        }
        Wish::Move { subject, zone, key } => {
            let key = key.map_or(String::new(), |key| format!(" with key {key}"));
            format!("move subject {subject} to {}{key}", ZONES[*zone].0)
        }
        Wish::Reset { subject, per, key } => {
            let key = key.map_or(String::new(), |key| format!(" with key {key}"));
            format!("reset subject {subject}{}{key}", per_in_words(*per))
        }
    }
}

fn per_in_words(per: Option<Per>) -> String {
    per.map_or(String::new(), |per| format!(" per {per}"))
}

/// The number of the claim in a grant's id.
fn of_claim(grant: EntryId) -> u64 {
    grant.0.as_u64_pair().1 & ((1 << 42) - 1)
}

fn subject(account: AccountId) -> String {
    format!("subject {}", account.0.as_u128() - 1)
}

fn name(instance: usize) -> char {
    char::from(b'A' + instance as u8)
}
