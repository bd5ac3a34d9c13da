//! The next migration, which is made up here: a ledger of this version is then an older one.

use std::time::Duration;

use perdiem::domain::identity::AccountId;
use perdiem::domain::reconciliation::LedgerPart;
use perdiem::ledger::{Ledger, LedgerError, LedgerOptions, OpenError, Opening};
use tokio::task::JoinSet;

use crate::support::app::{Ground, NOON, Stack, instant};
use crate::support::desk::{Desk, on_every_store};
use crate::support::direct::Direct;

on_every_store!(
    the_next_migration_runs_once,
    an_older_ledger_is_migrated_by_several_at_once,
    a_migration_that_fails_leaves_the_older_ledger,
    an_older_ledger_is_not_migrated_by_who_only_finds_it,
);

const NEXT: &str = "CREATE TABLE next (id integer); INSERT INTO next VALUES (1)";
const FAILING: &str = "CREATE TABLE next (id integer); DROP TABLE entries; SELECT nonsense";

fn options(ground: &Ground) -> LedgerOptions {
    LedgerOptions {
        url: ground.database_url.clone(),
        claim_timeout: Duration::from_secs(30),
        query_timeout: Duration::from_secs(30),
    }
}

async fn open_as_next(
    ground: &Ground,
    opening: Opening,
    next: &'static str,
) -> Result<Ledger, OpenError> {
    Ledger::open_with_next(&options(ground), opening, next, instant(NOON)).await
}

/// A ledger of this version with three entries.
async fn older(stack: Stack) -> Ground {
    let desk = Desk::open(stack).await;
    desk.append(desk.draft("a", None, 3)).await;
    desk.ledger.close().await;
    desk.ground
}

async fn entries(ledger: &Ledger) -> usize {
    ledger
        .audit()
        .audited((AccountId::FIRST, 0), LedgerPart::WHOLE.last, 10)
        .await
        .expect("entries")
        .len()
}

async fn the_next_migration_runs_once(stack: Stack) {
    let ground = older(stack).await;
    for _ in 0..2 {
        let ledger = open_as_next(&ground, Opening::Make, NEXT).await;
        let ledger = ledger.expect("the ledger is migrated");
        assert_eq!(entries(&ledger).await, 3);
        ledger.close().await;
    }
    let mut direct = Direct::to(&ground).await;
    let rows = direct.texts("SELECT CAST(id AS text) FROM next").await;
    assert_eq!(rows, ["1"]);
    // This version is now the older one.
    let opened = Ledger::open(&options(&ground), instant(NOON)).await;
    let Err(OpenError::Newer { found, known, .. }) = opened.map(drop) else {
        panic!("a newer ledger was opened")
    };
    assert_eq!(found, known + 1);
}

async fn an_older_ledger_is_migrated_by_several_at_once(stack: Stack) {
    let ground = older(stack).await;
    let mut openings = JoinSet::new();
    for _ in 0..6 {
        let ground = ground.clone();
        openings.spawn(async move { open_as_next(&ground, Opening::Make, NEXT).await });
    }
    for opened in openings.join_all().await {
        let ledger = opened.unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(entries(&ledger).await, 3);
        ledger.close().await;
    }
    let mut direct = Direct::to(&ground).await;
    let rows = direct.texts("SELECT CAST(id AS text) FROM next").await;
    assert_eq!(rows, ["1"]);
}

async fn a_migration_that_fails_leaves_the_older_ledger(stack: Stack) {
    let ground = older(stack).await;
    let failed = open_as_next(&ground, Opening::Make, FAILING).await;
    let Err(OpenError::Failed {
        source: LedgerError::Unavailable(_),
        ..
    }) = failed.map(drop)
    else {
        panic!("the migration did not fail")
    };
    let ledger = Ledger::open(&options(&ground), instant(NOON)).await;
    let ledger = ledger.expect("the ledger is as it was");
    assert_eq!(entries(&ledger).await, 3);
    ledger.close().await;
    let ledger = open_as_next(&ground, Opening::Make, NEXT).await;
    ledger.expect("nothing is left of the failure");
}

async fn an_older_ledger_is_not_migrated_by_who_only_finds_it(stack: Stack) {
    let ground = older(stack).await;
    for opening in [Opening::Find, Opening::Read] {
        let opened = open_as_next(&ground, opening, NEXT).await;
        let Err(OpenError::Older { found, known, .. }) = opened.map(drop) else {
            panic!("an older ledger was opened")
        };
        assert_eq!(known, found + 1);
    }
    let ledger = Ledger::open(&options(&ground), instant(NOON)).await;
    ledger.expect("the ledger is as it was");
}
