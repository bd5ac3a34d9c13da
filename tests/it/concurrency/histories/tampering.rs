//! A hand in Redis: counters are lost, set too high, set back to what they were, or overwritten
//! with junk. None of that may change an answer.

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::claim::Subject;
use perdiem::domain::grant::Total;
use perdiem::domain::identity::Identity;
use perdiem::domain::policy::PolicyName;
use perdiem::domain::totals::{decode_totals, encode_totals};

use super::steps::Tampering;
use super::subject_text;
use crate::support::books::Books;
use crate::support::crowd::Fleet;
use crate::support::servers;

/// A counter may deny for so long after the ledger confirmed it.
const CONFIRMED: TimeDelta = TimeDelta::seconds(3);

/// A hand in Redis.
pub struct Tamperer {
    connection: redis::aio::MultiplexedConnection,
    identity: Identity,
    remembered: Vec<(String, Vec<u8>)>,
    remembered_at: DateTime<Utc>,
}

impl Tamperer {
    pub async fn new(fleet: &Fleet, books: &Books) -> Option<Self> {
        let url = fleet.ground.redis_url.as_deref()?;
        Some(Self {
            connection: servers::redis_at(url).await,
            identity: books.ledger.identity().clone(),
            remembered: Vec::new(),
            remembered_at: fleet.clock.now(),
        })
    }

    async fn run<T: redis::FromRedisValue>(&mut self, words: &[&[u8]]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command
            .query_async(&mut self.connection)
            .await
            .expect("an answer")
    }

    async fn names(&mut self) -> Vec<String> {
        let pattern = format!("perdiem:{{{}:*", self.identity.id.simple());
        self.run(&[b"KEYS", pattern.as_bytes()]).await
    }

    async fn name_of(&mut self, subject: usize) -> Option<String> {
        let policy = PolicyName::new("benefit").expect("a name");
        let subject = Subject::new(&subject_text(subject));
        let account = self.identity.account(&policy, &subject.expect("a subject"));
        let end = format!(":{}", account.0.simple());
        self.names()
            .await
            .into_iter()
            .find(|name| name.ends_with(&end))
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
                for name in self.names().await {
                    self.run::<()>(&[b"DEL", name.as_bytes()]).await;
                }
            }
            Tampering::Forget(subject) => {
                if let Some(name) = self.name_of(subject).await {
                    self.run::<()>(&[b"DEL", name.as_bytes()]).await;
                }
            }
            Tampering::Remember => {
                self.remembered.clear();
                self.remembered_at = now;
                for name in self.names().await {
                    if let Some(dump) = self.run(&[b"DUMP", name.as_bytes()]).await {
                        self.remembered.push((name, dump));
                    }
                }
            }
            Tampering::RollBack => {
                for (name, dump) in self.remembered.clone() {
                    let words: [&[u8]; 5] = [b"RESTORE", name.as_bytes(), b"0", &dump, b"REPLACE"];
                    self.run::<()>(&words).await;
                }
            }
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
                let field: &[u8] = [&b"number"[..], b"line", b"confirmed", b"keys"][field];
                self.run::<()>(&[b"HSET", name.as_bytes(), field, b"junk"])
                    .await;
            }
        }
    }

    /// What a counter says, if it can be read.
    async fn read(&mut self, subject: usize) -> Option<CounterLine> {
        let name = self.name_of(subject).await?;
        let words: [&[u8]; 4] = [b"HMGET", name.as_bytes(), b"number", b"line"];
        let (number, line): (String, String) = self.run(&words).await;
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

    async fn write(&mut self, line: CounterLine, confirmed_at: DateTime<Utc>) {
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
        let words: [&[u8]; 8] = [
            b"HSET",
            name.as_bytes(),
            b"number",
            number.as_bytes(),
            b"line",
            line.as_bytes(),
            b"confirmed",
            confirmed_at.as_bytes(),
        ];
        self.run::<()>(&words).await;
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
