//! A hand in Redis: counters are lost, set too high, set back to what they were, or overwritten
//! with junk. None of that may change an answer.

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::grant::Total;
use perdiem::domain::totals::{decode_totals, encode_totals};

use super::steps::Tampering;
use super::subject_text;
use crate::support::books::Books;
use crate::support::crowd::Fleet;
use crate::support::hand::{Dump, Hand};

/// A counter may deny for so long after the ledger confirmed it.
const CONFIRMED: TimeDelta = TimeDelta::seconds(3);

/// A hand that tampers.
pub struct Tamperer {
    hand: Hand,
    books: Books,
    remembered: Dump,
    remembered_at: DateTime<Utc>,
}

impl Tamperer {
    pub async fn new(fleet: &Fleet) -> Option<Self> {
        fleet.ground.redis_url.as_ref()?;
        Some(Self {
            hand: Hand::of(&fleet.ground).await,
            books: Books::open(&fleet.ground).await,
            remembered: Dump::new(),
            remembered_at: fleet.clock.now(),
        })
    }

    /// The name of a subject's counter, if it has one.
    async fn name_of(&self, subject: usize) -> Option<String> {
        let account = self.books.account_of(&subject_text(subject));
        let name = self.hand.counter(account);
        let exists: bool = self.hand.run(&["EXISTS", &name]).await;
        exists.then_some(name)
    }

    /// Until when the counters may deny what was given back since they were settled: those that
    /// come back from an earlier moment, for as long as they count as confirmed.
    pub fn doubtful_until(&self, tampering: Tampering) -> Option<DateTime<Utc>> {
        let comes_back = matches!(tampering, Tampering::RollBack) && !self.remembered.is_empty();
        comes_back.then_some(self.remembered_at + CONFIRMED)
    }

    pub async fn tamper(&mut self, tampering: Tampering, now: DateTime<Utc>) {
        match tampering {
            Tampering::Flush => {
                for name in self.hand.names().await {
                    self.hand.run::<()>(&["DEL", &name]).await;
                }
            }
            Tampering::Forget(subject) => {
                let account = self.books.account_of(&subject_text(subject));
                self.hand.forget(account).await;
            }
            Tampering::Remember => {
                self.remembered = self.hand.dump().await;
                self.remembered_at = now;
            }
            Tampering::RollBack => self.hand.restore(&self.remembered).await,
            Tampering::TooHigh(subject) => {
                let Some(mut line) = self.read(subject).await else {
                    return;
                };
                for total in &mut line.totals {
                    total.used = total.max + 1;
                }
                line.number += 7;
                self.write(line, now - TimeDelta::seconds(4)).await;
            }
            Tampering::OtherInstant(subject, seconds) => {
                let Some(mut line) = self.read(subject).await else {
                    return;
                };
                line.at += seconds * 1_000_000;
                self.write(line, DateTime::UNIX_EPOCH).await;
            }
            Tampering::OtherLapse(subject, seconds) => {
                let Some(mut line) = self.read(subject).await else {
                    return;
                };
                let other = seconds.map(|seconds| now + TimeDelta::seconds(seconds));
                line.lapses_at = match other {
                    Some(at) => at.timestamp_micros().to_string(),
                    None => "-".to_owned(),
                };
                self.write(line, DateTime::UNIX_EPOCH).await;
            }
            Tampering::Junk(subject, field) => {
                let Some(name) = self.name_of(subject).await else {
                    return;
                };
                let field = ["number", "line", "confirmed", "keys"][field];
                let words = ["HSET", &name, field, "junk"];
                self.hand.run::<()>(&words).await;
            }
        }
    }

    /// What a counter says, if it can be read.
    async fn read(&self, subject: usize) -> Option<CounterLine> {
        let name = self.name_of(subject).await?;
        let words = ["HMGET", &name, "number", "line"];
        let (number, line): (String, String) = self.hand.run(&words).await;
        let mut parts = line.splitn(4, ' ');
        Some(CounterLine {
            name,
            number: number.parse().ok()?,
            at: parts.next()?.parse().ok()?,
            version: parts.next()?.parse().ok()?,
            lapses_at: parts.next()?.to_owned(),
            totals: decode_totals(parts.next()?).ok()?,
        })
    }

    async fn write(&self, line: CounterLine, confirmed_at: DateTime<Utc>) {
        let CounterLine {
            name,
            number,
            at,
            version,
            lapses_at,
            totals,
        } = line;
        let number = number.to_string();
        let line = format!("{at} {version} {lapses_at} {}", encode_totals(&totals));
        let confirmed_at = confirmed_at.timestamp_millis().to_string();
        let fields = ["number", &number, "line", &line, "confirmed", &confirmed_at];
        let words = [&["HSET", &name][..], &fields].concat();
        self.hand.run::<()>(&words).await;
    }
}

/// A counter's name and line.
struct CounterLine {
    name: String,
    number: u64,
    /// In microseconds since 1970.
    at: i64,
    version: u32,
    lapses_at: String,
    totals: Vec<Total>,
}
