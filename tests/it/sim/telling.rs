//! A history in words, step by step.

use std::fmt::Write;

use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::identity::{AccountId, EntryId};
use perdiem::engine::claim::way::Lane;
use perdiem::ledger::Draft;

use super::clients::Wish;
use super::events::Event;
use super::instance::{Request, Waiting};
use super::promises::nonce;
use super::world::{Call, World};
use super::{Scene, go_through};

/// Tells a history in which a promise is broken: the promise, each event with the entries that came
/// of it, and the claims.
pub fn tell(scene: Scene, choices: &[u16]) -> String {
    let (mut told, mut entries) = (String::new(), 0);
    let note = |world: &World, event: &Event| {
        tell_entries(&mut told, &world.ledger.entries, &mut entries);
        let at = world.time.0.as_millis() - 60_000;
        let _ = writeln!(told, "{at:>6} ms  {}", event_in_words(world, event));
    };
    let (world, kept) = go_through(scene, choices, note);
    tell_entries(&mut told, &world.ledger.entries, &mut entries);
    let broken = kept.err().unwrap_or_default();
    format!("{broken}\n{told}")
}

fn tell_entries(told: &mut String, entries: &[Entry], before: &mut usize) {
    for entry in entries.iter().skip(*before) {
        let _ = writeln!(told, "           + {}", entry_in_words(entry));
    }
    *before = entries.len();
}

fn event_in_words(world: &World, event: &Event) -> String {
    let call = |index: &usize| call_in_words(&world.calls[*index]);
    match event {
        Event::Send(instance, wish) => {
            let number = world.sent.len();
            format!(
                "{} gets claim {number}: {}",
                name(*instance),
                wish_in_words(wish)
            )
        }
        Event::Begin(instance, Lane::Append) => {
            format!("{}: the append lane begins", name(*instance))
        }
        Event::Begin(instance, Lane::Look) => format!("{}: the look lane begins", name(*instance)),
        Event::Begin(instance, Lane::Contend) => {
            format!("{}: the contend lane begins", name(*instance))
        }
        Event::Effect(index) => format!("{} has its effect", call(index)),
        Event::Repeat(index) => format!("{} has its effect, and will again", call(index)),
        Event::Hear(index) => format!("{} is answered", call(index)),
        Event::Lose(index) => format!("{} gets no answer", call(index)),
        Event::Break(index) => format!("{} breaks before its effect", call(index)),
        Event::Garble(index) => format!("{} finds what cannot be read", call(index)),
        Event::Panic(index) => format!("{} loses its lane", call(index)),
        Event::Crash(instance) => format!("{} crashes and starts again", name(*instance)),
        Event::FlushRedis => "Redis is flushed".to_owned(),
        Event::CopyRedis => "Redis is copied".to_owned(),
        Event::RollBackRedis => "Redis is rolled back to its copy".to_owned(),
        Event::Breaker(instance) => format!("{} opens or closes its breaker", name(*instance)),
        Event::CopyLedger => "the ledger is copied".to_owned(),
        Event::RestoreLedger(true) => "the ledger's copy takes over on another server".to_owned(),
        Event::RestoreLedger(false) => "the ledger's server is set back to the copy".to_owned(),
        Event::Pass(by, None) => format!("{by:?} pass"),
        Event::Pass(by, Some(paused)) => format!("{by:?} pass; {} is paused", name(*paused)),
        Event::Change => format!("version {} is made", world.ledger.policies.len() + 1),
    }
}

fn call_in_words(call: &Call) -> String {
    let what = match (&call.request, &call.waiting) {
        (_, Some(Waiting::Counter(claim))) => format!("ask for claim {}", claim.work.nonce),
        (_, Some(Waiting::Key(claim, _))) => format!("probe for claim {}", claim.work.nonce),
        (_, Some(Waiting::Look(groups, _))) => {
            let accounts = groups.iter().map(|group| subject(group.account));
            format!("look for {}", accounts.collect::<Vec<_>>().join(", "))
        }
        (Some(Request::Burst(drafts, _)), _) => format!("burst {}", drafts_in_words(drafts)),
        (Some(Request::Append(drafts)), _) => format!("guarded append {}", drafts_in_words(drafts)),
        (Some(Request::Settle(settlement)), _) => {
            let line = &settlement.line;
            format!(
                "settlement of {} #{}",
                subject(settlement.account),
                line.number
            )
        }
        (_, Some(Waiting::Append(groups, _, burst))) => {
            let drafts: Vec<&Draft> = groups.iter().filter_map(|group| group.draft()).collect();
            let drafts: Vec<Draft> = drafts.into_iter().cloned().collect();
            let kind = if burst.is_some() {
                "append"
            } else {
                "burst or append"
            };
            format!("{kind} {}", drafts_in_words(&drafts))
        }
        (_, Some(Waiting::Settlement(_))) => "settlement".to_owned(),
        (Some(Request::Ask(_)), None) => "forgotten ask".to_owned(),
        (Some(Request::Look(_)), None) => "forgotten look".to_owned(),
        (None, None) => "nothing".to_owned(),
    };
    format!("{}'s {what}", name(call.instance))
}

fn drafts_in_words(drafts: &[Draft]) -> String {
    let entries = drafts.iter().flat_map(|draft| &draft.entries);
    let entries: Vec<String> = entries.map(entry_in_words).collect();
    format!("[{}]", entries.join("; "))
}

fn entry_in_words(entry: &Entry) -> String {
    let what = match entry.kind {
        EntryKind::Grant { held_until: None } => "grant".to_owned(),
        EntryKind::Grant { .. } => "hold".to_owned(),
        EntryKind::Confirmation { of } => format!("confirmation of {}'s", of_claim(of)),
        EntryKind::Reversal { of } => format!("reversal of {}'s", of_claim(of)),
        EntryKind::Lapse { of } => format!("lapse of {}'s", of_claim(of)),
        EntryKind::Adjustment(_) => "adjustment".to_owned(),
    };
    let (line, account) = (&entry.line, subject(entry.account));
    let used: Vec<u64> = line.totals.iter().map(|total| total.used).collect();
    let version = line.policy_version;
    let number = line.number;
    format!(
        "{account} #{number} {what} of claim {}, used {used:?} under {version}",
        nonce(entry)
    )
}

fn wish_in_words(wish: &Wish) -> String {
    match wish {
        Wish::Claim {
            subject,
            key,
            is_hold,
            is_refused,
        } => {
            let what = if *is_hold { "a hold" } else { "a unit" };
            let key = key
                .map(|key| format!(" with key {key}"))
                .unwrap_or_default();
            let data = if *is_refused { ", with bad data" } else { "" };
            format!("{what} for subject {subject}{key}{data}")
        }
        Wish::Reversal(grant) => format!("reverse the grant of claim {}", nonce(grant)),
        Wish::Confirmation(grant) => format!("confirm the hold of claim {}", nonce(grant)),
    }
}

/// The claim that a grant's id tells.
fn of_claim(grant: EntryId) -> u64 {
    grant.0.as_u64_pair().1 & ((1 << 42) - 1)
}

fn subject(account: AccountId) -> String {
    format!("subject {}", account.0.as_u128() - 1)
}

fn name(instance: usize) -> char {
    char::from(b'A' + instance as u8)
}
