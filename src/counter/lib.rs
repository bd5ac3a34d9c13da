//! The counters: copies of accounts' last lines and keys, in Redis. They are derived and never the
//! truth.
//!
//! Redis can say no; only the ledger can say yes. A loss of all counters costs speed and nothing
//! else. So every failure here has one error, `Unavailable`, and one remedy: ask the ledger.

mod address;
mod breaker;
mod checkup;
pub mod commands;
mod error;
mod link;
mod queue;
pub mod record;
mod scan;

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

// As in the ledger: what other crates await is compiled here (docs/decisions/0011).
use async_recursion::async_recursion as boxed;
use chrono::{DateTime, Utc};
use redis::{Cmd, RedisError, RedisResult, Script, Value};
use uuid::Uuid;

use domain::grant::Line;
use domain::identity::{AccountId, KeyId};

pub use address::RedisAccess;
use breaker::{Breaker, Connected};
pub use checkup::{CheckupError, RedisFacts};
pub use error::CounterError;
use link::{Link, first_failure};
pub use queue::{
    Count, Counted, CountedGrant, LedgerWord, Looked, Queued, QueuedGrant, RecordedGrants,
};
pub use scan::{Reading, Scan};

/// The most keys of a counter. An account that must remember more asks the ledger before it denies
/// a claim with a key.
pub const KEYS_MAX: u32 = 1000;

const SETTLE_LUA: &str = concat!(include_str!("lua/line.lua"), include_str!("lua/settle.lua"));

static SETTLE: LazyLock<Script> = LazyLock::new(|| Script::new(SETTLE_LUA));

/// Redis did not answer in time, or could not do it. The ledger decides.
#[derive(Debug, thiserror::Error)]
#[error("the counters cannot be reached")]
pub struct Unavailable;

/// A connection to the counters of one ledger. Clones are cheap.
#[derive(Clone)]
pub struct Counters {
    breaker: Arc<Breaker>,
    /// The ledger's id. It is in all names, so that the counters of another ledger are never read.
    ledger: Uuid,
}

/// A question about a claim's account.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    pub account: AccountId,
    /// Whether to ask if grants of the account wait for the ledger.
    pub looks_at_queue: bool,
}

/// The answer to an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The account's counter, if there is one and it can be read.
    pub counter: Option<Counter>,
    /// Whether grants of the account wait for the ledger. False if this was not asked.
    pub grants_wait: bool,
}

/// What Redis knows of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// The last line that was settled.
    pub line: Line,
    /// When the ledger last confirmed that the line is the account's last line.
    pub confirmed_at: DateTime<Utc>,
    /// Whether the counter has every key that the account must remember as of its line.
    pub holds_all_keys: bool,
}

/// The keys of a settlement.
#[derive(Debug, Clone)]
pub enum SettledKeys {
    /// All keys that the account must remember.
    All(Vec<KeyId>),
    /// The keys of the entries after this line.
    After(Line, Vec<KeyId>),
    /// No keys: Redis never decides this account's claims alone, so it need not know them.
    Unknown,
}

impl SettledKeys {
    /// The keys of the entries after a line; all keys of the account if there was no line.
    pub fn since(after: Option<&Line>, keys: Vec<KeyId>) -> Self {
        match after {
            None => Self::All(keys),
            Some(after) => Self::After(after.clone(), keys),
        }
    }
}

/// A last line to write to an account's counter.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub account: AccountId,
    pub line: Line,
    /// When the ledger confirmed it.
    pub confirmed_at: DateTime<Utc>,
    /// The number of the counter when it was asked. A counter that still has this number is
    /// overwritten even by a lower line, because the ledger is right.
    pub seen: Option<u64>,
    /// Whether to write only if the counter exists.
    pub only_existing: bool,
    pub keys: SettledKeys,
    /// The life of the counter.
    pub ttl: Duration,
}

impl Counters {
    /// Connects to the Redis of `url`, for the counters of the ledger with this id. If Redis does
    /// not answer, a task in the background tries again. `timeout` limits each call.
    ///
    /// # Errors
    /// [`CounterError`] for a URL that cannot be parsed, and for a Redis that may evict.
    #[boxed]
    pub async fn open(
        url: &str,
        access: &RedisAccess,
        ledger: Uuid,
        timeout: Duration,
    ) -> Result<Self, CounterError> {
        let probe = |bucket| format!("{}probe", commands::prefix(ledger, bucket as u8));
        let breaker = Breaker::open(url, access, timeout, std::array::from_fn(probe)).await?;
        Ok(Self { breaker, ledger })
    }

    /// Whether Redis answers, as far as this instance knows.
    pub fn is_available(&self) -> bool {
        self.breaker.connected().is_some()
    }

    /// Asks for the counters of many claims in one round trip. The answers are in order.
    ///
    /// A pipeline of plain reads costs Redis less than a script that compares. The domain's rule
    /// decides from the answers.
    ///
    /// # Errors
    /// [`Unavailable`].
    #[boxed]
    pub async fn ask(&self, asks: &[Ask]) -> Result<Vec<Answer>, Unavailable> {
        let commands = commands::ask(self.ledger, asks);
        let mut answers = self.query(&self.link()?, commands).await?.into_iter();
        let mut next = || answers.next().and_then(Result::ok);
        let answer = |ask: &Ask| Answer {
            grants_wait: ask.looks_at_queue && next() == Some(Value::Int(2)),
            counter: next().and_then(record::decode_counter),
        };
        Ok(asks.iter().map(answer).collect())
    }

    /// Writes last lines.
    ///
    /// # Errors
    /// [`Unavailable`]: some lines may have been written.
    #[boxed]
    pub async fn settle(&self, settlements: &[Settlement]) -> Result<(), Unavailable> {
        let absent = self.absent(settlements).await?;
        let is_wanted = |it: &&Settlement| !it.only_existing || !absent.contains(&it.account);
        let settlements: Vec<&Settlement> = settlements.iter().filter(is_wanted).collect();
        let call = |settlement: &&Settlement, call: &mut Cmd| {
            commands::settle(self.ledger, settlement, call);
        };
        self.run(&self.link()?, &SETTLE, SETTLE_LUA, &settlements, call)
            .await?;
        Ok(())
    }

    /// The accounts without a counter, among the settlements that write only if the counter exists.
    /// An account that gets a counter by another settlement of the list counts as having one.
    async fn absent(&self, settlements: &[Settlement]) -> Result<HashSet<AccountId>, Unavailable> {
        let (only_existing, made): (Vec<_>, Vec<_>) =
            settlements.iter().partition(|it| it.only_existing);
        let made: HashSet<AccountId> = made.iter().map(|it| it.account).collect();
        let accounts = only_existing.iter().map(|it| it.account);
        let accounts: Vec<AccountId> = accounts.filter(|it| !made.contains(it)).collect();
        let commands = commands::exist(self.ledger, &accounts);
        let answers = self.query(&self.link()?, commands).await?;
        let answered = accounts.into_iter().zip(answers);
        let absent = answered.filter(|(_, answer)| matches!(answer, Ok(Value::Int(0))));
        Ok(absent.map(|(account, _)| account).collect())
    }

    fn connected(&self) -> Result<Arc<Connected>, Unavailable> {
        self.breaker.connected().ok_or(Unavailable)
    }

    fn link(&self) -> Result<Link, Unavailable> {
        Ok(self.connected()?.link.clone())
    }

    /// Runs a script once for each item, in one round trip. `complete` adds the keys and arguments
    /// of a call.
    async fn run<T>(
        &self,
        link: &Link,
        script: &Script,
        text: &str,
        items: &[T],
        complete: impl Fn(&T, &mut Cmd),
    ) -> Result<Vec<RedisResult<Value>>, Unavailable> {
        let call = |verb: &str, code: &str, item: &T| {
            let mut call = commands::script(verb, code);
            complete(item, &mut call);
            call
        };
        let by_hash = items
            .iter()
            .map(|item| call("EVALSHA", script.get_hash(), item));
        let mut answers = self.query(link, by_hash.collect()).await?;
        // A restarted Redis has lost the scripts, and a replica never had them. Send the text of
        // those.
        let unknown: Vec<usize> = (0..answers.len())
            .filter(|index| lacks_script(&answers[*index]))
            .collect();
        if !unknown.is_empty() {
            let in_full = unknown
                .iter()
                .map(|index| call("EVAL", text, &items[*index]));
            let second = self.query(link, in_full.collect()).await?;
            for (index, answer) in unknown.into_iter().zip(second) {
                answers[index] = answer;
            }
        }
        Ok(answers)
    }

    /// Sends commands. An error that says something about Redis itself, not about one counter,
    /// opens the breaker.
    async fn query(
        &self,
        link: &Link,
        commands: Vec<Cmd>,
    ) -> Result<Vec<RedisResult<Value>>, Unavailable> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let answers = link.send(commands).await;
        if let Some(failure) = first_failure(&answers, is_about_a_counter) {
            self.breaker.trip(failure);
            return Err(Unavailable);
        }
        answers.map_err(|_| Unavailable)
    }
}

fn lacks_script(answer: &RedisResult<Value>) -> bool {
    matches!(answer, Err(error) if error.code() == Some("NOSCRIPT"))
}

/// Whether an error is about one counter or a script that is not loaded, and says nothing about
/// Redis itself.
fn is_about_a_counter(error: &RedisError) -> bool {
    matches!(error.code(), Some("WRONGTYPE" | "NOSCRIPT" | "ERR"))
}
