//! A counter's hash: how a line and keys are written in it.

use std::fmt::Write;

use chrono::DateTime;
use redis::{FromRedisValue, Value};
use uuid::Uuid;

use super::Counter;
use domain::grant::Line;
use domain::identity::{EntryId, KeyId};
use domain::line_text::{LineState, decode_state, encode_state};

/// A line without its number, separated by spaces: the instant in microseconds since 1970, the
/// policy version, when the first hold may lapse in microseconds (`-` without holds), and the
/// totals.
pub fn encode_line(line: &Line) -> String {
    let state = encode_state(line);
    let mut text = String::with_capacity(HEAD_LENGTH + state.len());
    // Writing to a text does not fail.
    let _ = write!(
        text,
        "{} {} ",
        line.at.timestamp_micros(),
        line.policy_version
    );
    let _ = match line.lapses_at {
        Some(at) => write!(text, "{} ", at.timestamp_micros()),
        None => write!(text, "{NO_HOLDS} "),
    };
    text.push_str(&state);
    text
}

/// The most bytes before the totals: two instants and a version.
const HEAD_LENGTH: usize = 56;

const NO_HOLDS: &str = "-";

fn decode_line(number: u64, text: &str) -> Option<Line> {
    let mut parts = text.splitn(4, ' ');
    let instant = |text: &str| DateTime::from_timestamp_micros(text.parse().ok()?);
    let at = instant(parts.next()?)?;
    let policy_version = parts.next()?.parse().ok()?;
    let lapses_at = match parts.next()? {
        NO_HOLDS => None,
        lapses_at => Some(instant(lapses_at)?),
    };
    let LineState {
        top_ups,
        calendar,
        totals,
    } = decode_state(parts.next()?).ok()?;
    Some(Line {
        number,
        at,
        policy_version,
        lapses_at,
        calendar,
        top_ups,
        totals,
    })
}

/// The field of a key: `k` and 16 bytes.
pub fn key_field(key: KeyId) -> [u8; 17] {
    field(b'k', key.0)
}

/// The field of an entry: `i` and the 16 bytes of its id.
pub fn entry_field(entry: EntryId) -> [u8; 17] {
    field(b'i', entry.0)
}

fn field(kind: u8, id: Uuid) -> [u8; 17] {
    let mut field = [kind; 17];
    field[1..].copy_from_slice(id.as_bytes());
    field
}

/// Reads the answer to an ask: the fields number, line, confirmed and keys. `None` if there is no
/// counter, or perdiem did not write it.
pub fn decode_counter(answer: Value) -> Option<Counter> {
    let fields: Vec<Option<String>> = Vec::from_redis_value(answer).ok()?;
    let field = |index: usize| fields.get(index)?.as_deref();
    let number = field(0)?.parse().ok()?;
    Some(Counter {
        line: decode_line(number, field(1)?)?,
        confirmed_at: DateTime::from_timestamp_millis(field(2)?.parse().ok()?)?,
        holds_all_keys: field(3)? == "1",
    })
}
