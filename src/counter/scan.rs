//! The counters one after the other, for who compares them all with the ledger.

use redis::{FromRedisValue, Pipeline, RedisResult, Value};
use uuid::Uuid;

use super::{Counters, Unavailable, record};
use crate::domain::grant::Line;
use crate::domain::identity::AccountId;

/// How many of Redis' keys a step of a scan looks at.
const STEP: u32 = 500;

const FORGET_LUA: &str = include_str!("lua/forget.lua");

/// Where a scan goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Which of the primaries.
    primary: usize,
    /// Redis' own mark.
    cursor: u64,
}

/// What is in the place of an account's counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Nothing.
    Absent,
    /// A counter, or something else under its name.
    Present {
        /// Its number as it stands there; empty when it has none.
        number: Vec<u8>,
        /// Its line; `None` for something that is no counter.
        line: Option<Line>,
    },
}

impl Counters {
    /// A step of a scan of all counters: the accounts of some, and where to go on. A counter
    /// that is there all the time is found at least once.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn scan(&self, place: Place) -> Result<(Vec<AccountId>, Option<Place>), Unavailable> {
        let mut step = Pipeline::with_capacity(1);
        step.cmd("SCAN")
            .arg(place.cursor)
            .arg("MATCH")
            .arg(format!("perdiem:{{{}:*}}:*", self.ledger.simple()))
            .arg("COUNT")
            .arg(STEP);
        let answer = self.on_primary(place.primary, &mut step).await?;
        let (cursor, names): (u64, Vec<Vec<u8>>) =
            FromRedisValue::from_redis_value(answer).map_err(|_| Unavailable)?;
        let accounts = names.iter().filter_map(|name| self.account(name)).collect();
        let next = match cursor {
            0 => Some(place.primary + 1)
                .filter(|primary| *primary < self.primaries())
                .map(|primary| Place { primary, cursor }),
            cursor => Some(Place { cursor, ..place }),
        };
        Ok((accounts, next))
    }

    /// Reads the counters of accounts, in order.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn read(&self, accounts: &[AccountId]) -> Result<Vec<Reading>, Unavailable> {
        let mut pipeline = Pipeline::with_capacity(accounts.len() * 2);
        for account in accounts {
            let name = self.name(*account);
            pipeline
                .cmd("HMGET")
                .arg(&name)
                .arg(&["number", "line", "confirmed", "keys"]);
            pipeline.cmd("EXISTS").arg(&name);
        }
        let mut answers = self.query(&mut pipeline).await?.into_iter();
        let mut readings = Vec::with_capacity(accounts.len());
        while let (Some(fields), Some(exists)) = (answers.next(), answers.next()) {
            readings.push(decode(fields, exists));
        }
        Ok(readings)
    }

    /// Deletes counters, each unless it bears another number than this one, which was read.
    ///
    /// # Errors
    /// [`Unavailable`]: some may have been deleted.
    pub async fn forget(&self, read: &[(AccountId, Vec<u8>)]) -> Result<(), Unavailable> {
        let mut pipeline = Pipeline::with_capacity(read.len());
        for (account, number) in read {
            pipeline
                .cmd("EVAL")
                .arg(FORGET_LUA)
                .arg(1)
                .arg(self.name(*account))
                .arg(number.as_slice());
        }
        self.query(&mut pipeline).await?;
        Ok(())
    }

    /// How many primaries hold counters.
    fn primaries(&self) -> usize {
        1
    }

    /// Sends one command to one of the primaries.
    async fn on_primary(
        &self,
        _primary: usize,
        command: &mut Pipeline,
    ) -> Result<Value, Unavailable> {
        let answers = self.query(command).await?;
        let answer = answers.into_iter().next().ok_or(Unavailable)?;
        answer.map_err(|_| Unavailable)
    }

    /// The account of a counter's name; `None` for whatever else bears the same tag.
    fn account(&self, name: &[u8]) -> Option<AccountId> {
        let name = std::str::from_utf8(name).ok()?;
        let (_, last) = name.rsplit_once(':')?;
        let account = AccountId(Uuid::try_parse(last).ok()?);
        (self.name(account) == name).then_some(account)
    }
}

fn decode(fields: RedisResult<Value>, exists: RedisResult<Value>) -> Reading {
    let fields = fields.ok();
    let number: Option<Vec<u8>> = fields.as_ref().and_then(|fields| {
        let fields: Vec<Option<Vec<u8>>> = FromRedisValue::from_redis_value_ref(fields).ok()?;
        fields.into_iter().next()?
    });
    let counter = fields.and_then(record::decode_counter);
    if counter.is_none() && exists.is_ok_and(|exists| exists == Value::Int(0)) {
        return Reading::Absent;
    }
    Reading::Present {
        number: number.unwrap_or_default(),
        line: counter.map(|counter| counter.line),
    }
}
