//! The counters: Redis' copies of accounts' last lines and keys. Derived, never the truth.
//!
//! Redis says no, fast; only the ledger says yes. Losing every counter costs speed and
//! nothing else. So whatever goes wrong here has one error, `Unavailable`, and one remedy:
//! to ask the ledger.

mod breaker;
mod record;
mod scan;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use redis::{Pipeline, RedisError, RedisResult, Script, Value};
use uuid::Uuid;

use crate::domain::grant::Line;
use crate::domain::identity::{AccountId, KeyId};

use breaker::Breaker;
pub use breaker::CounterError;
pub use scan::{Place, Reading};

/// How many keys a counter holds at most. An account that must remember more asks the ledger
/// before it denies a claim that has a key.
pub const KEYS_MAX: u32 = 1000;

const SETTLE_LUA: &str = include_str!("lua/settle.lua");

static SETTLE: LazyLock<Script> = LazyLock::new(|| Script::new(SETTLE_LUA));

/// Redis did not answer in time, or could not do what was asked. The ledger decides.
#[derive(Debug, thiserror::Error)]
#[error("the counters cannot be reached")]
pub struct Unavailable;

/// A connection to the counters of one ledger. Cheap to clone.
#[derive(Clone)]
pub struct Counters {
    breaker: Arc<Breaker>,
    /// Tells this ledger's counters from another's.
    ledger: Uuid,
}

/// What a claim wants to know.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// The claim's account.
    pub account: AccountId,
    /// Its key.
    pub key: Option<KeyId>,
}

/// What Redis knows of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// The last line that was settled.
    pub line: Line,
    /// When the ledger last confirmed that this is the account's last line.
    pub confirmed_at: DateTime<Utc>,
    /// Whether it holds every key that the account must remember as of its line.
    pub holds_all_keys: bool,
    /// Whether it holds the key that was asked for.
    pub knows_key: bool,
}

/// Which keys a settlement brings.
#[derive(Debug, Clone)]
pub enum SettledKeys {
    /// All that the account must remember.
    All(Vec<KeyId>),
    /// Those of the entries after this line.
    After(Line, Vec<KeyId>),
}

/// A last line, to be written to an account's counter.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The account.
    pub account: AccountId,
    /// Its last line.
    pub line: Line,
    /// When the ledger confirmed it.
    pub confirmed_at: DateTime<Utc>,
    /// The number that the counter bore when it was asked. A counter that still bears it is
    /// overwritten even by a lower line: the ledger is right.
    pub seen: Option<u64>,
    /// Its keys.
    pub keys: SettledKeys,
    /// For how long the counter is of use.
    pub ttl: Duration,
}

impl Counters {
    /// Connects to `url`'s Redis, for the counters of the ledger with this id. A Redis that
    /// does not answer is tried again in the background; `timeout` bounds each call.
    ///
    /// # Errors
    /// [`CounterError`] for a URL that cannot be read and for a Redis that may evict.
    pub async fn open(url: &str, ledger: Uuid, timeout: Duration) -> Result<Self, CounterError> {
        let breaker = Breaker::open(url, timeout).await?;
        Ok(Self { breaker, ledger })
    }

    /// Whether Redis answers, as far as is known.
    pub fn is_available(&self) -> bool {
        self.breaker.connection().is_some()
    }

    /// Asks for the counters of many claims in one round trip; the answers are in order, and
    /// `None` where there is no counter that can be read.
    ///
    /// A pipeline of plain reads, for which the domain's rule decides, costs Redis less than
    /// a script that compares.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn ask(&self, asks: &[Ask]) -> Result<Vec<Option<Counter>>, Unavailable> {
        let mut pipeline = Pipeline::with_capacity(asks.len());
        for ask in asks {
            let command = pipeline.cmd("HMGET").arg(self.name(ask.account));
            command.arg(&["number", "line", "confirmed", "keys"]);
            if let Some(key) = ask.key {
                command.arg(record::key_field(key).as_slice());
            }
        }
        let answers = self.query(&mut pipeline).await?;
        let decode = |answer: RedisResult<Value>| record::decode_counter(answer.ok()?);
        Ok(answers.into_iter().map(decode).collect())
    }

    /// Writes last lines in one round trip.
    ///
    /// # Errors
    /// [`Unavailable`]: some may have been written.
    pub async fn settle(&self, settlements: &[Settlement]) -> Result<(), Unavailable> {
        let answers = self.query(&mut self.settle_pipeline(settlements)).await?;
        if answers.iter().any(lacks_script) {
            // Redis forgets scripts when it restarts. Settling twice is harmless.
            let mut load = Pipeline::new();
            load.cmd("SCRIPT").arg("LOAD").arg(SETTLE_LUA);
            self.query(&mut load).await?;
            self.query(&mut self.settle_pipeline(settlements)).await?;
        }
        Ok(())
    }

    fn settle_pipeline(&self, settlements: &[Settlement]) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(settlements.len());
        for settlement in settlements {
            let (after, keys) = match &settlement.keys {
                SettledKeys::All(keys) => ("all".to_owned(), keys),
                SettledKeys::After(line, keys) => (record::encode_line(line), keys),
            };
            let seen = settlement.seen.map(|number| number.to_string());
            let command = pipeline
                .cmd("EVALSHA")
                .arg(SETTLE.get_hash())
                .arg(1)
                .arg(self.name(settlement.account))
                .arg(settlement.line.number)
                .arg(record::encode_line(&settlement.line))
                .arg(settlement.confirmed_at.timestamp_millis())
                .arg(settlement.ttl.as_millis().max(1) as u64)
                .arg(seen.unwrap_or_default())
                .arg(after)
                .arg(KEYS_MAX);
            for key in keys {
                command.arg(record::key_field(*key).as_slice());
            }
        }
        pipeline
    }

    /// Sends a pipeline. Errors that say something of Redis, and not of one counter, open
    /// the breaker.
    async fn query(&self, pipeline: &mut Pipeline) -> Result<Vec<RedisResult<Value>>, Unavailable> {
        let mut connection = self.breaker.connection().ok_or(Unavailable)?;
        let answers: RedisResult<Vec<RedisResult<Value>>> =
            pipeline.ignore_errors().query_async(&mut connection).await;
        let failure = match answers {
            Err(error) => error,
            Ok(answers) => {
                let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
                match errors.find(|error| !is_about_a_counter(error)) {
                    None => return Ok(answers),
                    Some(error) => error.clone(),
                }
            }
        };
        self.breaker.trip(&failure);
        Err(Unavailable)
    }

    /// An account's counter. All keys of one account carry one hash tag, its bucket, so that
    /// a Redis Cluster keeps them in one slot.
    fn name(&self, account: AccountId) -> String {
        let bucket = account.0.as_bytes()[0];
        format!(
            "perdiem:{{{}:{bucket:02x}}}:{}",
            self.ledger.simple(),
            account.0.simple()
        )
    }
}

fn lacks_script(answer: &RedisResult<Value>) -> bool {
    matches!(answer, Err(error) if error.code() == Some("NOSCRIPT"))
}

/// Whether an error is about what one counter holds, or a script not yet loaded, and says
/// nothing against Redis.
fn is_about_a_counter(error: &RedisError) -> bool {
    matches!(error.code(), Some("WRONGTYPE" | "NOSCRIPT" | "ERR"))
}
