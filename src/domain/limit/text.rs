//! The one text form of totals, which entries and counters share.

use std::fmt::Write;

use chrono::DateTime;

use super::first_claim::OpenedWindow;
use super::per::Elapsed;
use super::rate::{Bucket, OWED_MAX};
use super::shape::PAIRS_MOST;
use super::sliding::{SlidingLog, TakenUnits};
use super::total::{LimitState, TOTAL_MAX, Total, WindowUse};
use crate::domain::window::{Length, Window};

/// A text that [`encode_totals`] did not write.
#[derive(Debug, thiserror::Error)]
#[error("unreadable totals {0:?}")]
pub struct TotalsError(String);

const EVER: char = 'e';
const FROM_FIRST_CLAIM: char = 'f';
const SLIDING: char = 's';
const RATE: char = 'r';

/// The text of an entry's totals; a semicolon between limits. Equal totals are equal texts: the
/// guard of an append compares them. Each entry keeps one, so it is short.
///
/// ```text
/// d3,1,1763654400+86400         1 of 3 units used in a day: the window's start in seconds since
///                               1970, and its length in seconds
/// e1,1                          1 of 1 used for ever
/// f5,86400,2@1763654400000000   2 of 5 used in the window that was opened at this microsecond;
/// f5,86400,0                    none is open
/// s5,86400,1763654400000000*2+60000000    2 of 5 taken at this microsecond, 1 a minute later
/// s500,86400/3600,…             with a step
/// r10,1,20,1763654400000000+300000,1      10 a second, at most 20 at once: full 0.3 s after this
///                               microsecond, kept since line 1; and what was given back since,
///                               in microseconds
/// ```
pub fn encode_totals(totals: &[Total]) -> String {
    let mut text = String::with_capacity(24 * totals.len());
    for total in totals {
        if !text.is_empty() {
            text.push(';');
        }
        encode_total(&mut text, total);
    }
    text
}

fn encode_total(text: &mut String, total: &Total) {
    let mut number = itoa::Buffer::new();
    let mut begin = |letter: char| {
        text.push(letter);
        text.push_str(number.format(total.max));
        text.push(',');
    };
    match &total.state {
        LimitState::Calendar(WindowUse {
            length,
            window,
            used,
        }) => {
            begin(length.map_or(EVER, letter));
            text.push_str(number.format(*used));
            if length.is_some() {
                let (start, end) = (window.start.timestamp(), window.end.timestamp());
                text.push(',');
                text.push_str(number.format(start));
                text.push('+');
                text.push_str(number.format(end - start));
            }
        }
        LimitState::FromFirstClaim(OpenedWindow { per, opened, used }) => {
            begin(FROM_FIRST_CLAIM);
            text.push_str(number.format(per.seconds()));
            text.push(',');
            text.push_str(number.format(*used));
            if let Some(opened) = opened {
                text.push('@');
                text.push_str(number.format(opened.timestamp_micros()));
            }
        }
        LimitState::Sliding(SlidingLog { per, step, pairs }) => {
            begin(SLIDING);
            text.push_str(number.format(per.seconds()));
            if let Some(step) = step {
                text.push('/');
                text.push_str(number.format(step.seconds()));
            }
            let mut before = 0;
            for (index, pair) in pairs.iter().enumerate() {
                text.push(if index == 0 { ',' } else { '+' });
                text.push_str(number.format(pair.at - before));
                before = pair.at;
                if pair.units > 1 {
                    text.push('*');
                    text.push_str(number.format(pair.units));
                }
            }
        }
        LimitState::Rate(bucket) => {
            begin(RATE);
            let Bucket {
                per,
                burst,
                at,
                owed,
                since,
                given_back,
            } = bucket;
            // A text takes what is written to it.
            let _ = write!(text, "{},{burst},{at}+{owed},{since}", per.seconds());
            if *given_back > 0 {
                text.push(',');
                text.push_str(number.format(*given_back));
            }
        }
    }
}

/// The totals of a text that [`encode_totals`] wrote.
///
/// # Errors
/// [`TotalsError`] for any other text.
pub fn decode_totals(text: &str) -> Result<Vec<Total>, TotalsError> {
    let totals = text.split(';').map(decode_total);
    let totals: Option<_> = totals.collect();
    totals.ok_or_else(|| TotalsError(text.to_owned()))
}

fn decode_total(text: &str) -> Option<Total> {
    let first = text.chars().next().filter(char::is_ascii)?;
    let (max, rest) = text[1..].split_once(',')?;
    let state = match first {
        EVER => LimitState::Calendar(WindowUse {
            length: None,
            window: Window::EVER,
            used: decode_used(rest)?,
        }),
        FROM_FIRST_CLAIM => LimitState::FromFirstClaim(decode_opened(rest)?),
        SLIDING => LimitState::Sliding(decode_log(rest)?),
        RATE => LimitState::Rate(decode_bucket(rest)?),
        _ => LimitState::Calendar(decode_window_use(first, rest)?),
    };
    Some(Total {
        max: max.parse().ok()?,
        state,
    })
}

fn decode_used(text: &str) -> Option<u64> {
    text.parse().ok().filter(|used| *used <= TOTAL_MAX)
}

fn decode_per(text: &str) -> Option<Elapsed> {
    Elapsed::from_seconds(text.parse().ok()?)
}

fn decode_window_use(first: char, text: &str) -> Option<WindowUse> {
    let mut lengths = Length::ALL.into_iter();
    let length = lengths.find(|length| letter(*length) == first)?;
    let (used, window) = text.split_once(',')?;
    let (start, lasts) = window.split_once('+')?;
    let (start, lasts): (i64, u32) = (start.parse().ok()?, lasts.parse().ok()?);
    let instant = |seconds| DateTime::from_timestamp(seconds, 0);
    Some(WindowUse {
        length: Some(length),
        used: decode_used(used)?,
        window: Window {
            start: instant(start)?,
            end: instant(start.checked_add(lasts.into())?)?,
        },
    })
}

fn decode_opened(text: &str) -> Option<OpenedWindow> {
    let (per, rest) = text.split_once(',')?;
    let per = decode_per(per)?;
    Some(match rest.split_once('@') {
        Some((used, opened)) => OpenedWindow {
            per,
            opened: Some(decode_instant(opened.parse().ok()?)?),
            used: decode_used(used)?,
        },
        None if rest == "0" => OpenedWindow::closed(per),
        None => return None,
    })
}

fn decode_log(text: &str) -> Option<SlidingLog> {
    let (parameters, log) = match text.split_once(',') {
        Some((parameters, log)) => (parameters, Some(log)),
        None => (text, None),
    };
    let (per, step) = match parameters.split_once('/') {
        Some((per, step)) => (decode_per(per)?, Some(decode_per(step)?)),
        None => (decode_per(parameters)?, None),
    };
    let mut pairs: Vec<TakenUnits> = Vec::new();
    for pair in log.into_iter().flat_map(|log| log.split('+')) {
        let (at, units) = match pair.split_once('*') {
            Some((at, units)) => (at, decode_used(units).filter(|units| *units > 1)?),
            None => (pair, 1),
        };
        let at: i64 = at.parse().ok()?;
        let at = match pairs.last() {
            Some(before) if at > 0 => before.at.checked_add(at)?,
            Some(_) => return None,
            None => at,
        };
        decode_instant(at)?;
        pairs.push(TakenUnits { at, units });
    }
    (pairs.len() <= PAIRS_MOST).then_some(SlidingLog { per, step, pairs })
}

fn decode_bucket(text: &str) -> Option<Bucket> {
    let mut parts = text.split(',');
    let per = decode_per(parts.next()?)?;
    let burst = parts.next()?.parse().ok()?;
    let (at, owed) = parts.next()?.split_once('+')?;
    let (at, owed): (i64, i64) = (at.parse().ok()?, owed.parse().ok()?);
    let since = parts.next()?.parse().ok()?;
    let given_back: i64 = match parts.next() {
        Some(given_back) => given_back.parse().ok().filter(|micros| *micros > 0)?,
        None => 0,
    };
    decode_instant(at)?;
    let is_whole = parts.next().is_none() && (0..=OWED_MAX).contains(&owed);
    is_whole.then_some(Bucket {
        per,
        burst,
        at,
        owed,
        since,
        given_back,
    })
}

fn decode_instant(micros: i64) -> Option<DateTime<chrono::Utc>> {
    DateTime::from_timestamp_micros(micros)
}

/// The pattern by which Lua finds the units used in a calendar window, in a text that
/// [`encode_totals`] wrote, with a semicolon before and after it.
pub fn used_pattern(length: Length, window: Window) -> String {
    let (start, end) = (window.start.timestamp(), window.end.timestamp());
    let (letter, lasts) = (letter(length), end - start);
    // A minus has a meaning in patterns.
    let start = start.to_string().replace('-', "%-");
    format!(";{letter}%d+,(%d+),{start}%+{lasts};")
}

/// What stands for a calendar window's length.
fn letter(length: Length) -> char {
    match length {
        Length::Minute => 'i',
        Length::Hour => 'h',
        Length::Day => 'd',
        Length::Week => 'w',
        Length::Month => 'm',
        Length::Year => 'y',
    }
}
