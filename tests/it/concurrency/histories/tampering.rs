//! Tampers with Redis: counters are lost, too high, rolled back, or overwritten with junk. None of
//! these changes may alter an answer.

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::limit::text::encode_totals;
use perdiem::domain::limit::total::Total;
use perdiem::domain::line_text::totals_of;

use super::steps::draw_subject;
use super::subject_text;
use crate::support::books::Books;
use crate::support::crowd::Fleet;
use crate::support::dice::Dice;
use crate::support::hand::{Dump, Hand};

/// How long a counter may deny after the ledger confirmed it.
const CONFIRMED: TimeDelta = TimeDelta::seconds(3);

/// The state of the tampering.
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

    /// The name of a subject's counter, if there is one.
    async fn name_of(&self, subject: usize) -> Option<String> {
        let account = self.books.account_of(&subject_text(subject));
        let name = self.hand.counter(account);
        let exists: bool = self.hand.run(&["EXISTS", &name]).await;
        exists.then_some(name)
    }

    /// Changes something in Redis. Returns the instant until which a counter may deny units that
    /// were given back. A counter that was rolled back may do so while it counts as confirmed.
    pub async fn tamper(&mut self, dice: &mut Dice, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let subject = draw_subject(dice);
        let long_ago = DateTime::UNIX_EPOCH;
        let other = TimeDelta::seconds(dice.between(0, 200_000).cast_signed() - 100_000);
        match dice.below(16) {
            // Every counter of the ledger is deleted.
            0 => {
                for name in self.hand.names().await {
                    self.hand.run::<()>(&["DEL", &name]).await;
                }
            }
            1..3 => {
                let account = self.books.account_of(&subject_text(subject));
                self.hand.forget(account).await;
            }
            // The counter has too many entries and units, and was not confirmed recently.
            3..5 => {
                let change = |line: &mut CounterLine| {
                    for total in &mut line.totals {
                        let more = (total.max + 1).saturating_sub(total.used());
                        total.add(more, now, now);
                    }
                    line.number += 7;
                };
                self.change(subject, now - TimeDelta::seconds(4), change)
                    .await;
            }
            5..8 => {
                self.remembered = self.hand.dump().await;
                self.remembered_at = now;
            }
            // The counters return to an earlier state, as after a fail-over.
            8..11 => {
                self.hand.restore(&self.remembered).await;
                return (!self.remembered.is_empty()).then_some(self.remembered_at + CONFIRMED);
            }
            // A line with another instant: an older or a future one.
            11..13 => {
                let change =
                    |line: &mut CounterLine| line.at += other.num_microseconds().expect("few");
                self.change(subject, long_ago, change).await;
            }
            // A line whose first hold lapses at another instant, or that has no hold.
            13..15 => {
                let lapses_at = if dice.percent(50) {
                    (now + other).timestamp_micros().to_string()
                } else {
                    "-".to_owned()
                };
                self.change(subject, long_ago, |line| line.lapses_at = lapses_at)
                    .await;
            }
            _ => {
                if let Some(name) = self.name_of(subject).await {
                    let field = ["number", "line", "confirmed", "keys"][dice.below(4)];
                    self.hand.run::<()>(&["HSET", &name, field, "junk"]).await;
                }
            }
        }
        None
    }

    /// Changes a subject's counter, if there is one that can be read.
    async fn change(
        &self,
        subject: usize,
        confirmed_at: DateTime<Utc>,
        change: impl FnOnce(&mut CounterLine),
    ) {
        if let Some(mut line) = self.read(subject).await {
            change(&mut line);
            self.write(line, confirmed_at).await;
        }
    }

    /// Reads a counter, if it can be read.
    async fn read(&self, subject: usize) -> Option<CounterLine> {
        let name = self.name_of(subject).await?;
        let words = ["HMGET", &name, "number", "line"];
        let (number, line): (String, String) = self.hand.run(&words).await;
        let mut parts = line.splitn(4, ' ');
        let words = [parts.next()?, parts.next()?, parts.next()?];
        let text = parts.next()?;
        // A calendar of its own comes first.
        let own = text.strip_prefix('@').and_then(|own| own.split_once(';'));
        let (own, totals) = match own {
            Some((own, totals)) => (format!("@{own};"), totals),
            None => (String::new(), text),
        };
        Some(CounterLine {
            name,
            number: number.parse().ok()?,
            at: words[0].parse().ok()?,
            version: words[1].parse().ok()?,
            lapses_at: words[2].to_owned(),
            own,
            totals: totals_of(totals).ok()?,
        })
    }

    async fn write(&self, line: CounterLine, confirmed_at: DateTime<Utc>) {
        let CounterLine {
            name,
            number,
            at,
            version,
            lapses_at,
            own,
            totals,
        } = line;
        let number = number.to_string();
        let line = format!("{at} {version} {lapses_at} {own}{}", encode_totals(&totals));
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
    /// The zone and the anchor that the account has of its own.
    own: String,
    totals: Vec<Total>,
}
