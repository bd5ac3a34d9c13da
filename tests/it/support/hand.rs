//! Changes in Redis by hand: reads, copies and damages a ledger's counters.

use perdiem::domain::identity::AccountId;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, ToRedisArgs};
use uuid::Uuid;

use super::app::Ground;
use super::books::Books;
use super::servers::redis_at;

#[derive(Clone)]
pub struct Hand {
    connection: MultiplexedConnection,
    ledger: Uuid,
}

/// Keys with their content.
pub type Dump = Vec<(String, Vec<u8>)>;

impl Hand {
    pub async fn of(ground: &Ground) -> Self {
        let url = ground.redis_url.as_deref().expect("Redis");
        let books = Books::open(ground).await;
        Self::at(url, books.ledger.identity().id).await
    }

    /// A hand in a Redis, for the keys of a ledger.
    pub async fn at(url: &str, ledger: Uuid) -> Self {
        Self {
            connection: redis_at(url).await,
            ledger,
        }
    }

    /// Runs a command that must succeed.
    pub async fn run<T: FromRedisValue>(&self, words: &[impl ToRedisArgs]) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words);
        let answer = command.query_async(&mut self.connection.clone()).await;
        answer.expect("an answer")
    }

    /// Runs commands that must succeed.
    pub async fn pipe(&self, commands: &redis::Pipeline) {
        let answer: redis::RedisResult<redis::Value> =
            commands.query_async(&mut self.connection.clone()).await;
        answer.expect("answers");
    }

    /// The ledger's keys.
    pub async fn names(&self) -> Vec<String> {
        let pattern = format!("perdiem:{{{}:*", self.ledger.simple());
        self.run(&["KEYS", &pattern]).await
    }

    /// The name of an account's counter.
    pub fn counter(&self, account: AccountId) -> String {
        self.of_bucket(account, &account.0.simple().to_string())
    }

    /// The name of a key beside an account's counter, in the account's bucket.
    pub fn of_bucket(&self, account: AccountId, name: &str) -> String {
        let ledger = self.ledger.simple();
        let bucket = account.0.as_bytes()[0];
        format!("perdiem:{{{ledger}:{bucket:02x}}}:{name}")
    }

    /// Deletes an account's counter, if it has one. Queued grants stay.
    pub async fn forget(&self, account: AccountId) {
        self.run::<()>(&["DEL", &self.counter(account)]).await;
    }

    pub async fn dump(&self) -> Dump {
        let mut dump = Vec::new();
        for name in self.names().await {
            // The key can have expired.
            if let Some(bytes) = self.run(&["DUMP", &name]).await {
                dump.push((name, bytes));
            }
        }
        dump
    }

    pub async fn restore(&self, dump: &Dump) {
        for (name, bytes) in dump {
            let words: [&[u8]; 5] = [b"RESTORE", name.as_bytes(), b"0", bytes, b"REPLACE"];
            self.run::<()>(&words).await;
        }
    }
}
