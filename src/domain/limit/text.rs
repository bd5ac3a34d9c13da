//! The text form of totals. Entries and counters use the same form.

use std::fmt::Write;

use chrono::{DateTime, NaiveDate};

use super::first_claim::OpenedWindow;
use super::rate::Bucket;
use super::shape::{PAIRS_MOST, TOTAL_MAX};
use super::sliding::{SlidingLog, TakenUnits};
use super::total::{LimitState, Total, WindowUse};
use crate::elapsed::Elapsed;
use crate::window::{Division, Length, PartOfDay, WeekRun, Weeks, Window};

/// The text was not written by [`encode_totals`].
#[derive(Debug, thiserror::Error)]
#[error("unreadable totals {0:?}")]
pub struct TotalsError(pub(crate) String);

const EVER: char = 'e';
const PART_OF_DAY: char = 'p';
const WEEKS: char = 'k';
const FROM_FIRST_CLAIM: char = 'f';
const SLIDING: char = 's';
const RATE: char = 'r';
/// Before the instant of a reset.
const RESET: char = '~';

/// Writes the totals of an entry, with a semicolon between limits. Each entry keeps this text, so the
/// text is short.
///
/// Invariant: equal totals have equal texts. The guard of an append compares texts.
///
/// ```text
/// d3,1,1763654400+86400         1 of 3 units used in a day: the window's start in seconds since
///                               1970, and its length in seconds
/// p3,21600,1,1763654400+21600   the same in a part of a day, with the seconds of a part
/// k80,2/20458,1,1763654400+1209600        the same in a run of 2 weeks that begins on this day after
///                               1970-01-01, or on one that is runs away
/// e1,1                          1 of 1 used for ever
/// f5,86400,2@1763654400000000   2 of 5 used in the window that was opened at this microsecond;
/// f5,86400,0                    none is open
/// s5,86400,1763654400000000*2+60000000    2 of 5 taken at this microsecond, 1 a minute later
/// s500,86400/3600,…             with a step
/// r10,1,20,1763654400000000+3000000,1     10 a second, at most 20 at once: at this microsecond it
///                               lacks 3 units, in parts of which a unit has 1000000; under this
///                               max since line 1
/// d3,0,1763654400+86400~1763690000000000   what counted before this microsecond was reset; so for each kind
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
            division: None,
            used,
            ..
        }) => {
            begin(EVER);
            text.push_str(number.format(*used));
        }
        LimitState::Calendar(WindowUse {
            division: Some(division),
            window,
            used,
        }) => {
            begin(letter(*division));
            push_parameters(text, *division);
            text.push_str(number.format(*used));
            let start = window.start.timestamp();
            text.push(',');
            text.push_str(number.format(start));
            text.push('+');
            text.push_str(number.format(window.end.timestamp() - start));
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
            } = bucket.as_ref();
            // Writing into a `String` cannot fail.
            let _ = write!(text, "{},{burst},{at}+{owed},{since}", per.seconds());
        }
    }
    if let Some(reset_at) = total.reset_at {
        text.push(RESET);
        text.push_str(number.format(reset_at.timestamp_micros()));
    }
}

/// Reads a text that [`encode_totals`] wrote.
///
/// # Errors
/// [`TotalsError`] for any other text.
pub(crate) fn decode_totals(text: &str) -> Result<Vec<Total>, TotalsError> {
    let totals = text.split(';').map(decode_total);
    let totals: Option<_> = totals.collect();
    totals.ok_or_else(|| TotalsError(text.to_owned()))
}

fn decode_total(text: &str) -> Option<Total> {
    let (text, reset_at) = match text.split_once(RESET) {
        Some((text, reset_at)) => (text, Some(decode_instant(reset_at.parse().ok()?)?)),
        None => (text, None),
    };
    let first = text.chars().next().filter(char::is_ascii)?;
    let (max, rest) = text[1..].split_once(',')?;
    let state = match first {
        EVER => LimitState::Calendar(WindowUse {
            division: None,
            window: Window::EVER,
            used: decode_used(rest)?,
        }),
        FROM_FIRST_CLAIM => LimitState::FromFirstClaim(decode_opened(rest)?),
        SLIDING => LimitState::Sliding(decode_log(rest)?),
        RATE => LimitState::Rate(Box::new(decode_bucket(rest)?)),
        _ => LimitState::Calendar(decode_window_use(first, rest)?),
    };
    Some(Total {
        max: max.parse().ok()?,
        reset_at,
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
    let (division, text) = match first {
        PART_OF_DAY => {
            let (seconds, rest) = text.split_once(',')?;
            let part = PartOfDay::new(decode_per(seconds)?).ok()?;
            (Division::PartOfDay(part), rest)
        }
        WEEKS => {
            let (run, rest) = text.split_once(',')?;
            let (weeks, from) = run.split_once('/')?;
            let weeks = Weeks::new(weeks.parse().ok()?)?;
            let from = NaiveDate::from_epoch_days(from.parse().ok()?)?;
            (Division::Weeks(WeekRun { weeks, from }), rest)
        }
        _ => {
            let place = LETTERS.iter().position(|letter| *letter == first)?;
            (Division::Length(Length::ALL[place]), text)
        }
    };
    let (used, window) = text.split_once(',')?;
    let (start, lasts) = window.split_once('+')?;
    let start: i64 = start.parse().ok()?;
    let lasts: u32 = lasts.parse().ok()?;
    let instant = |seconds| DateTime::from_timestamp(seconds, 0);
    Some(WindowUse {
        division: Some(division),
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
    let at: i64 = at.parse().ok()?;
    let owed: u128 = owed.parse().ok()?;
    let since = parts.next()?.parse().ok()?;
    decode_instant(at)?;
    let bucket = Bucket {
        per,
        burst,
        at,
        owed,
        since,
    };
    let is_whole = parts.next().is_none() && owed <= bucket.parts(TOTAL_MAX);
    is_whole.then_some(bucket)
}

fn decode_instant(micros: i64) -> Option<DateTime<chrono::Utc>> {
    DateTime::from_timestamp_micros(micros)
}

/// The pattern by which Lua finds the units used in a calendar window, in a text that
/// [`encode_totals`] wrote, with a semicolon before and after it.
pub fn used_pattern(division: Division, window: Window) -> String {
    let start = window.start.timestamp();
    let end = window.end.timestamp();
    let letter = letter(division);
    let lasts = end - start;
    let mut parameters = String::new();
    push_parameters(&mut parameters, division);
    // A minus has a meaning in patterns.
    let [parameters, start] = [parameters, start.to_string()].map(|it| it.replace('-', "%-"));
    format!(";{letter}%d+,{parameters}(%d+),{start}%+{lasts}[{RESET};]")
}

/// The letter of a division of the calendar.
fn letter(division: Division) -> char {
    match division {
        Division::Length(length) => LETTERS[length as usize],
        Division::PartOfDay(_) => PART_OF_DAY,
        Division::Weeks(_) => WEEKS,
    }
}

/// The letters of [`Length::ALL`].
const LETTERS: [char; Length::ALL.len()] = ['i', 'h', 'd', 'w', 'm', 'q', 'y'];

/// Writes what a letter does not say, with a comma after it.
fn push_parameters(text: &mut String, division: Division) {
    let mut number = itoa::Buffer::new();
    match division {
        Division::Length(_) => {}
        Division::PartOfDay(part) => {
            text.push_str(number.format(part.elapsed().seconds()));
            text.push(',');
        }
        Division::Weeks(WeekRun { weeks, from }) => {
            text.push_str(number.format(weeks.get()));
            text.push('/');
            text.push_str(number.format(from.to_epoch_days()));
            text.push(',');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::claim::UNITS_MAX;

    fn instant(seconds: i64) -> DateTime<chrono::Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    #[test]
    fn texts_of_the_calendar_are_those_of_older_ledgers() {
        let day = Total {
            max: 3,
            reset_at: None,
            state: LimitState::Calendar(WindowUse {
                division: Some(Length::Day.into()),
                window: Window {
                    start: instant(1_763_654_400),
                    end: instant(1_763_740_800),
                },
                used: 1,
            }),
        };
        assert_eq!(encode_totals(&[day]), "d3,1,1763654400+86400");
        let totals = Length::ALL.map(|length| Total {
            max: UNITS_MAX,
            reset_at: None,
            state: LimitState::Calendar(WindowUse {
                division: Some(length.into()),
                window: Window {
                    start: instant(-5),
                    end: instant(1_763_740_800),
                },
                used: TOTAL_MAX,
            }),
        });
        let text = encode_totals(&totals);
        let each = "ihdwmqy".chars();
        let each = each
            .map(|letter| format!("{letter}9007199254740991,9223372036854775807,-5+1763740805"));
        assert_eq!(text, each.collect::<Vec<_>>().join(";"));
        assert_eq!(decode_totals(&text).unwrap(), totals);
    }

    #[test]
    fn texts_of_other_kinds_are_written_in_one_way() {
        for text in [
            "e1,1",
            "p3,21600,1,1763654400+21600",
            "p3,1,0,-5+1~1763654400000001",
            "k80,2/20458,1,1763654400+1209600",
            "k80,52/-719162,1,1763654400+31449600",
            "e9007199254740991,0",
            "f5,86400,2@1763654400000000",
            "f5,86400,0@-1",
            "f5,86400,0",
            "s5,86400",
            "s5,86400,1763654400000000*2+60000000",
            "s500,86400/3600,1763654400000000+3600000000*499",
            "r10,1,20,1763654400000000+0,1",
            "d3,1,1763654400+86400;e1,1;r10,1,20,-7+3000000,1;s5,86400",
            "d3,1,1763654400+86400~1763654400000001;e1,1~-1;f5,86400,0~1;f5,86400,1@2~1",
            "r10,1,20,-7+3000000,1~1763654400000001;s5,86400~3;s5,86400,4*2+60000000~3",
        ] {
            let totals = decode_totals(text).unwrap();
            assert_eq!(encode_totals(&totals), text);
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let over_total = "9223372036854775808";
        for text in [
            "",
            ";",
            "d",
            "é1,1",
            "x1,1,0+1",
            "d1",
            "d1,-1,0+1",
            "d-1,1,0+1",
            "d1,1,0",
            "d1,1,0+1,",
            "d1,1,0+1;",
            ";d1,1,0+1",
            "d1,1,0+-1",
            "d1,1,9223372036854775807+1",
            &format!("d1,{over_total},0+1"),
            "p3,7,1,0+7",
            "k3,1/0,1,0+604800",
            "k3,2/0/0,1,0+604800",
            "k3,2/99999999999,1,0+604800",
            "e1",
            "e1,",
            "e1,-1",
            "e1,1~",
            "e1,1~1~1",
            "e1,~1",
            "~1",
            "e1,1~9223372036854775807",
            "e1,1,0+1",
            &format!("e1,{over_total}"),
            "f1,1,0+1",
            "f5,86400",
            "f5,86400,1",
            "f5,0,0",
            "f5,34560001,0",
            "f5,86400,@0",
            "f5,86400,1@",
            "f5,86400,1@0@0",
            "f5,86400,1@9223372036854775807",
            &format!("f5,86400,{over_total}@0"),
            "s5,",
            "s5,0",
            "s5,86400,",
            "s5,86400/,0",
            "s5,86400/0,0",
            "s5,86400,0+",
            "s5,86400,+0",
            "s5,86400,0+0",
            "s5,86400,0+-1",
            "s5,86400,0*0",
            "s5,86400,0*1",
            "s5,86400,0*2*2",
            "s5,86400,9223372036854775807",
            "s5,86400,1+9223372036854775807",
            &format!("s5,86400,0*{over_total}"),
            &format!("s5,86400,0{}", "+1".repeat(PAIRS_MOST)),
            "r10,1,20,0+0",
            "r10,1,20,0,1",
            "r10,1,20,0+-1,1",
            "r10,1,20,0+0,-1",
            "r10,1,-20,0+0,1",
            "r10,0,20,0+0,1",
            "r10,1,20,0+0,1,0",
            "r10,1,20,0+0,1,",
            "r10,1,20,0+0,1,1,1",
            "r10,1,20,9223372036854775807+0,1",
            &format!("r10,1,20,0+{over_total}000000,1"),
        ] {
            assert!(decode_totals(text).is_err(), "{text}");
        }
    }

    fn elapsed() -> impl Strategy<Value = Elapsed> {
        (1u64..=400 * 86_400).prop_map(|seconds| Elapsed::from_seconds(seconds).unwrap())
    }

    fn micros() -> impl Strategy<Value = i64> {
        -1_000_000i64..4_000_000_000_000_000
    }

    fn any_division() -> impl Strategy<Value = Division> {
        let parts = ["1s", "15m", "6h"].map(|text| PartOfDay::new(text.parse().unwrap()));
        let parts = parts.map(|part| Division::PartOfDay(part.unwrap()));
        let run = |weeks, days| WeekRun {
            weeks: Weeks::new(weeks).unwrap(),
            from: NaiveDate::from_epoch_days(days).unwrap(),
        };
        prop_oneof![
            proptest::sample::select(Length::ALL.map(Division::Length).to_vec()),
            proptest::sample::select(parts.to_vec()),
            (2u8..=52, -40_000i32..40_000).prop_map(move |(n, day)| Division::Weeks(run(n, day))),
        ]
    }

    fn any_window_use() -> impl Strategy<Value = WindowUse> {
        let division = proptest::option::of(any_division());
        let window = (-100_000i64..4_000_000_000, 1u32..40_000_000);
        (division, window, 0..=TOTAL_MAX).prop_map(|(division, (start, lasts), used)| WindowUse {
            division,
            window: match division {
                Some(_) => Window {
                    start: instant(start),
                    end: instant(start + i64::from(lasts)),
                },
                None => Window::EVER,
            },
            used,
        })
    }

    fn any_opened() -> impl Strategy<Value = OpenedWindow> {
        let opened = proptest::option::of((micros(), 0..=TOTAL_MAX));
        (elapsed(), opened).prop_map(|(per, opened)| match opened {
            Some((at, used)) => OpenedWindow {
                per,
                opened: decode_instant(at),
                used,
            },
            None => OpenedWindow::closed(per),
        })
    }

    fn any_log() -> impl Strategy<Value = SlidingLog> {
        let pairs = (1i64..1_000_000_000, prop_oneof![Just(1), 1..=TOTAL_MAX]);
        let pairs = proptest::collection::vec(pairs, 0..=PAIRS_MOST);
        let step = proptest::option::of(elapsed());
        (elapsed(), step, micros(), pairs).prop_map(|(per, step, mut at, pairs)| {
            let pairs = pairs.into_iter().map(|(later, units)| {
                at += later;
                TakenUnits { at, units }
            });
            let pairs = pairs.collect();
            SlidingLog { per, step, pairs }
        })
    }

    fn any_bucket() -> impl Strategy<Value = Bucket> {
        let numbers = (0..=TOTAL_MAX, 1..=TOTAL_MAX);
        let owed = prop_oneof![Just((0, 0)), (0..TOTAL_MAX, 0u128..1_000_000)];
        (elapsed(), micros(), numbers, owed).prop_map(
            |(per, at, (burst, since), (units, parts))| {
                let bucket = Bucket {
                    per,
                    burst,
                    at,
                    owed: 0,
                    since,
                };
                let owed = bucket.parts(units) + parts;
                Bucket { owed, ..bucket }
            },
        )
    }

    fn any_total() -> impl Strategy<Value = Total> {
        let state = prop_oneof![
            any_window_use().prop_map(LimitState::Calendar),
            any_opened().prop_map(LimitState::FromFirstClaim),
            any_log().prop_map(LimitState::Sliding),
            any_bucket().prop_map(|bucket| LimitState::Rate(Box::new(bucket))),
        ];
        let reset_at = proptest::option::weighted(0.2, micros());
        (0..=UNITS_MAX, reset_at, state).prop_map(|(max, reset_at, state)| Total {
            max,
            reset_at: reset_at.and_then(decode_instant),
            state,
        })
    }

    proptest! {
        #[test]
        fn totals_come_back_as_they_were(
            totals in proptest::collection::vec(any_total(), 1..5),
        ) {
            let text = encode_totals(&totals);
            prop_assert_eq!(decode_totals(&text).unwrap(), totals);
        }

        /// A text is what is written, or nothing that is read: also with a character more or less.
        #[test]
        fn what_is_read_is_a_total(
            totals in proptest::collection::vec(any_total(), 1..3),
            place: proptest::sample::Index,
            other in "[0-9a-z+*@/,;~-]",
        ) {
            let text = encode_totals(&totals);
            let place = place.index(text.len());
            for changed in [
                format!("{}{}", &text[..place], &text[place + 1..]),
                format!("{}{other}{}", &text[..place], &text[place..]),
            ] {
                if let Ok(read) = decode_totals(&changed) {
                    let again = decode_totals(&encode_totals(&read));
                    prop_assert_eq!(again.unwrap(), read);
                }
            }
        }
    }
}
