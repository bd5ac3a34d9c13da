//! A server whose answers are lost: its host died, or the path to it did.

use std::time::Duration;

use perdiem::domain::policy::PolicyName;
use perdiem::ledger::{Ledger, LedgerOptions, READS_MOST};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::app::{Ground, NOON, Stack, instant};
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::postgres;

/// Longer than any wait, so that a test ends that would wait for ever.
const FOR_EVER: Duration = Duration::from_secs(60);

/// More reads than there are connections for them. Each ends, and its connection with it: sqlx's
/// pool would otherwise wait for the lost answer too, before it gives the place to another read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_whose_answers_are_lost_end_and_free_their_places() {
    let ground = Ground::new(Stack::Postgres);
    let proxy = Proxy::before(postgres().port()).await;
    let options = LedgerOptions {
        url: proxy.url(&ground.database_url),
        claim_timeout: Duration::from_secs(1),
        query_timeout: Duration::from_secs(1),
    };
    let ledger = Ledger::open(&options, instant(NOON)).await;
    let ledger = ledger.unwrap_or_else(|error| panic!("{error:?}"));
    let read = |ledger: Ledger| async move {
        let name = PolicyName::new("benefit").expect("a name");
        ledger.admin().policy(&name, instant(NOON)).await
    };
    proxy.set(Mode::Swallow);
    let mut reads = JoinSet::new();
    for _ in 0..2 * READS_MOST {
        reads.spawn(read(ledger.clone()));
    }
    let answers = timeout(FOR_EVER, reads.join_all()).await;
    for answer in answers.expect("every read ends") {
        answer.expect_err("no answer came");
    }
    proxy.set(Mode::Pass);
    let closing = async {
        while read(ledger.clone()).await.is_err() {}
        ledger.close().await;
    };
    timeout(FOR_EVER, closing)
        .await
        .expect("the ledger answers, and closes");
}
