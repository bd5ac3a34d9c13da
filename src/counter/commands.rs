//! The commands that Redis gets for asks and settlements, and the names of its keys.

use redis::{Cmd, cmd};
use uuid::Uuid;

use super::record::{encode_line, key_field};
use super::{Ask, KEYS_MAX, SettledKeys, Settlement};
use domain::identity::AccountId;

/// The prefix of the names of a bucket's keys. It has one hash tag, the bucket, so a Redis Cluster
/// keeps all of them in one slot.
pub fn prefix(ledger: Uuid, bucket: u8) -> String {
    format!("perdiem:{{{}:{bucket:02x}}}:", ledger.simple())
}

/// The name of an account's counter.
pub fn counter_name(ledger: Uuid, account: AccountId) -> String {
    let mut name = prefix(ledger, account.bucket());
    name.push_str(account.0.simple().encode_lower(&mut Uuid::encode_buffer()));
    name
}

/// The name of the hash with what waits for the ledger, made from the counter's name.
pub fn waiting_name(counter: &str) -> String {
    format!("{counter}:waiting")
}

/// The name of a bucket's queue.
pub fn queue_name(ledger: Uuid, bucket: u8) -> String {
    format!("{}queue", prefix(ledger, bucket))
}

/// The commands that ask for the counters of claims: one for each claim, or two if it also looks at
/// the queue.
pub fn ask(ledger: Uuid, asks: &[Ask]) -> Vec<Cmd> {
    let mut commands = Vec::with_capacity(asks.len());
    for ask in asks {
        let name = counter_name(ledger, ask.account);
        if ask.looks_at_queue {
            let mut command = cmd("EXISTS");
            let queue = queue_name(ledger, ask.account.bucket());
            command.arg(waiting_name(&name)).arg(queue);
            commands.push(command);
        }
        let mut command = Cmd::with_capacity(ASK_PARTS, ASK_BYTES);
        command.arg("HMGET").arg(name);
        command
            .arg("number")
            .arg("line")
            .arg("confirmed")
            .arg("keys");
        commands.push(command);
    }
    commands
}

const ASK_PARTS: usize = 6;
const ASK_BYTES: usize = 144;

/// Asks whether accounts have counters.
pub fn exist(ledger: Uuid, accounts: &[AccountId]) -> Vec<Cmd> {
    let exists = |account: &AccountId| {
        let mut command = cmd("EXISTS");
        command.arg(counter_name(ledger, *account));
        command
    };
    accounts.iter().map(exists).collect()
}

/// A call of a script by its hash or its text, without keys and arguments yet.
pub fn script(verb: &str, script: &str) -> Cmd {
    let mut command = Cmd::with_capacity(SCRIPT_PARTS, SCRIPT_BYTES);
    command.arg(verb).arg(script);
    command
}

const SCRIPT_PARTS: usize = 16;
const SCRIPT_BYTES: usize = 512;

/// Adds keys and arguments to a call of settle.lua.
pub fn settle(ledger: Uuid, settlement: &Settlement, call: &mut Cmd) {
    call.arg(1).arg(counter_name(ledger, settlement.account));
    settle_arguments(settlement, call);
}

/// Adds the arguments that `settle` in line.lua takes.
pub fn settle_arguments(settlement: &Settlement, call: &mut Cmd) {
    call.arg(settlement.line.number)
        .arg(encode_line(&settlement.line))
        .arg(settlement.confirmed_at.timestamp_millis())
        .arg(settlement.ttl.as_millis().max(1) as u64);
    match settlement.seen {
        Some(number) => call.arg(number),
        None => call.arg(""),
    };
    let keys = match &settlement.keys {
        SettledKeys::All(keys) => {
            call.arg("all");
            &keys[..]
        }
        SettledKeys::After(line, keys) => {
            call.arg(format!("{} {}", line.number, encode_line(line)));
            &keys[..]
        }
        SettledKeys::Unknown => {
            call.arg("");
            &[]
        }
    };
    call.arg(KEYS_MAX);
    for key in keys {
        call.arg(key_field(*key).as_slice());
    }
}
