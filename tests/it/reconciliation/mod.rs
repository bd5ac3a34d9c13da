//! Reconciliations. A planted difference in Redis is found and healed. A planted fault in the
//! ledger is an alarm. Nothing else is reported.

mod by_itself;
mod cluster;
mod counters;
mod crowd;
mod figures;
mod ledger;
mod parts;
mod reports;
mod terminal;

use perdiem::counter::{Counters, Reading, RedisAccess};
use perdiem::domain::identity::AccountId;
use perdiem::host::clock::{Clock, ManualClock};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::books::Books;
use crate::support::hand::Hand;

const PATH: &str = "/v1/reconciliations";

/// The stack with Redis on the same store.
fn with_redis(stack: Stack) -> Stack {
    match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => Stack::RedisAndSqlite,
        Stack::Postgres | Stack::RedisAndPostgres => Stack::RedisAndPostgres,
    }
}

async fn post(app: &App, apply: bool) -> Answer {
    let request = app.request(Method::POST, PATH);
    Answer::of(request.json(&json!({ "apply": apply }))).await
}

/// The report of a reconciliation that must succeed.
pub async fn reconcile(app: &App, apply: bool) -> Value {
    let answer = post(app, apply).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let report = answer.json();
    assert_eq!(report["apply"], apply);
    assert!(report["finished_at"].is_string(), "{report}");
    report
}

/// Reconciles, and asserts that nothing differs.
async fn nothing_differs(app: &App, apply: bool) -> Value {
    let report = reconcile(app, apply).await;
    assert_eq!(report["difference_count"], 0, "{report}");
    assert_eq!(report["alarm_count"], 0, "{report}");
    assert_eq!(report["healed_count"], 0, "{report}");
    assert_eq!(report["differences"], json!([]), "{report}");
    report
}

/// The kinds of a report's differences, in the order of their names.
pub fn kinds(report: &Value) -> Vec<&str> {
    let differences = report["differences"].as_array().expect("differences");
    let mut kinds: Vec<&str> = differences
        .iter()
        .map(|difference| difference["kind"].as_str().expect("a kind"))
        .collect();
    kinds.sort_unstable();
    kinds
}

/// An application on its own ground, and tools that change its stores.
struct Scene {
    ground: Ground,
    app: App,
    books: Books,
    hand: Option<Hand>,
}

impl Scene {
    /// A scene with a policy `benefit` of 5 a day in GMT+8. Its clock stands at [`NOON`].
    async fn new(stack: Stack) -> Self {
        Self::on(Ground::new(stack)).await
    }

    async fn on(ground: Ground) -> Self {
        let clock = Clock::Manual(ManualClock::at(instant(NOON)));
        Self::start(ground, clock).await
    }

    /// A scene with the machine's clock.
    async fn live(stack: Stack) -> Self {
        Self::start(Ground::new(stack), Clock::system()).await
    }

    async fn start(ground: Ground, clock: Clock) -> Self {
        let app = App::start_with(&ground, |options| options.clock = clock).await;
        app.benefit(5, "GMT+8").await;
        let books = Books::open(&ground).await;
        let hand = match ground.redis_url {
            Some(_) => Some(Hand::of(&ground).await),
            None => None,
        };
        Self {
            ground,
            app,
            books,
            hand,
        }
    }

    /// A member takes units, one claim each, until its counter has the last line. A denied claim
    /// makes the counter: an account with room may have none.
    async fn grants(&self, subject: &str, count: usize) {
        for _ in 0..count {
            let answer = self.app.claim(subject, None).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        }
        let too_much = json!({ "subject": subject, "units": 5 });
        let answer = self.app.claim_body(too_much, None).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
        if self.ground.redis_url.is_some() {
            eventually("the subject has a counter", || async {
                matches!(self.reading(subject).await, Reading::Present { .. })
            })
            .await;
        }
        self.books.counters_follow().await;
    }

    fn account(&self, subject: &str) -> AccountId {
        self.books.account_of(subject)
    }

    fn counter_of(&self, subject: &str) -> String {
        self.hand().counter(self.account(subject))
    }

    fn hand(&self) -> &Hand {
        self.hand.as_ref().expect("Redis")
    }

    /// Runs a command in Redis.
    async fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        self.hand().run(words).await
    }

    /// The content of a subject's counter.
    async fn reading(&self, subject: &str) -> Reading {
        let url = self.ground.redis_url.as_deref().expect("Redis");
        let ledger = self.books.ledger.identity().id;
        let timeout = std::time::Duration::from_secs(10);
        let counters = Counters::open(url, &RedisAccess::default(), ledger, timeout).await;
        let counters = counters.expect("counters");
        let readings = counters.read(&[self.account(subject)]).await;
        readings.expect("a reading").remove(0)
    }
}
