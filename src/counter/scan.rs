//! A walk over all counters, to compare them with the ledger.

use std::sync::LazyLock;

use redis::{Cmd, FromRedisValue, RedisResult, Script, Value, cmd};
use uuid::Uuid;

use super::commands::{counter_name, queue_name, waiting_name};
use super::{Counters, Unavailable, record};
use crate::boxed;
use domain::grant::Line;
use domain::identity::AccountId;

/// How many Redis keys one step of a scan looks at.
const STEP: u32 = 500;

const FORGET_LUA: &str = include_str!("lua/forget.lua");

static FORGET: LazyLock<Script> = LazyLock::new(|| Script::new(FORGET_LUA));

/// A scan of all counters, with its progress.
#[derive(Debug)]
pub struct Scan {
    /// The primaries that are not scanned yet; the last one is next.
    primaries: Vec<String>,
    /// The cursor of that primary.
    cursor: u64,
}

/// What Redis has under the name of an account's counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Nothing.
    Absent,
    /// A counter, or something else under its name.
    Present {
        /// The number as it is stored; empty if there is none.
        number: Vec<u8>,
        /// The line; `None` if it is no counter.
        line: Option<Line>,
        grants_wait: bool,
    },
}

impl Counters {
    /// Starts a scan.
    ///
    /// # Errors
    /// [`Unavailable`].
    #[boxed]
    pub async fn scan(&self) -> Result<Scan, Unavailable> {
        let link = self.link()?;
        let primaries = link.primaries().await.map_err(|error| {
            self.breaker.trip(&error);
            Unavailable
        })?;
        Ok(Scan {
            primaries,
            cursor: 0,
        })
    }

    /// One step of a scan: the accounts of some counters; `None` at the end. A counter that exists
    /// during the whole scan is found at least once.
    ///
    /// # Errors
    /// [`Unavailable`].
    #[boxed]
    pub async fn step(&self, scan: &mut Scan) -> Result<Option<Vec<AccountId>>, Unavailable> {
        let Some(primary) = scan.primaries.last() else {
            return Ok(None);
        };
        let link = self.link()?;
        let mut step = cmd("SCAN");
        step.arg(scan.cursor)
            .arg("MATCH")
            .arg(format!("perdiem:{{{}:*}}:*", self.ledger.simple()))
            .arg("COUNT")
            .arg(STEP);
        let answer = link.ask_primary(primary, step).await.map_err(|error| {
            self.breaker.trip(&error);
            Unavailable
        })?;
        let (cursor, names): (u64, Vec<Vec<u8>>) =
            FromRedisValue::from_redis_value(answer).map_err(|_| Unavailable)?;
        scan.cursor = cursor;
        if cursor == 0 {
            scan.primaries.pop();
        }
        let accounts = names.iter().filter_map(|name| self.account(name));
        Ok(Some(accounts.collect()))
    }

    /// Reads the counters of accounts, in order.
    ///
    /// # Errors
    /// [`Unavailable`].
    #[boxed]
    pub async fn read(&self, accounts: &[AccountId]) -> Result<Vec<Reading>, Unavailable> {
        let mut commands = Vec::with_capacity(accounts.len() * 3);
        for account in accounts {
            let name = counter_name(self.ledger, *account);
            let mut fields = cmd("HMGET");
            fields
                .arg(&name)
                .arg(&["number", "line", "confirmed", "keys"]);
            let mut exists = cmd("EXISTS");
            exists.arg(&name);
            let mut waits = cmd("EXISTS");
            waits
                .arg(waiting_name(&name))
                .arg(queue_name(self.ledger, account.bucket()));
            commands.extend([fields, exists, waits]);
        }
        let mut answers = self.query(&self.link()?, commands).await?.into_iter();
        let mut readings = Vec::with_capacity(accounts.len());
        while let (Some(fields), Some(exists), Some(waits)) =
            (answers.next(), answers.next(), answers.next())
        {
            readings.push(decode(fields, exists, waits));
        }
        Ok(readings)
    }

    /// Deletes counters. A counter stays if it has another number than the one that was read.
    ///
    /// # Errors
    /// [`Unavailable`]: some may have been deleted.
    #[boxed]
    pub async fn forget(&self, read: &[(AccountId, Vec<u8>)]) -> Result<(), Unavailable> {
        let call = |(account, number): &(AccountId, Vec<u8>), call: &mut Cmd| {
            call.arg(1).arg(counter_name(self.ledger, *account));
            call.arg(number.as_slice());
        };
        self.run(&self.link()?, &FORGET, FORGET_LUA, read, call)
            .await?;
        Ok(())
    }

    /// The account of a counter's name; `None` for other names with the same tag.
    fn account(&self, name: &[u8]) -> Option<AccountId> {
        let name = std::str::from_utf8(name).ok()?;
        let (_, last) = name.rsplit_once(':')?;
        let account = AccountId(Uuid::try_parse(last).ok()?);
        (counter_name(self.ledger, account) == name).then_some(account)
    }
}

fn decode(
    fields: RedisResult<Value>,
    exists: RedisResult<Value>,
    waits: RedisResult<Value>,
) -> Reading {
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
        grants_wait: waits.is_ok_and(|waits| waits == Value::Int(2)),
    }
}
