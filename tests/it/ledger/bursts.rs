//! Bursts: the unique index and the fence are their guard.

use std::collections::HashSet;

use chrono::TimeDelta;
use perdiem::domain::grant::{EntryKind, Line};
use perdiem::ledger::{Burst, Draft, Fence, Ledger, LedgerError, LedgerPlace, Look};
use tokio::task::JoinSet;

use crate::support::app::{Ground, Stack};
use crate::support::books::Books;
use crate::support::desk::{Desk, another_ledger, borrowed, on_every_store};
use crate::support::servers::{Postgres, postgres};

on_every_store!(
    a_burst_writes_what_the_guarded_statement_writes,
    a_burst_that_meets_another_writer_writes_nothing,
    a_burst_opens_no_account_twice,
    a_burst_needs_the_server_that_told_the_lines,
);

/// The fence at the moment when an account's last line is read.
async fn fence(desk: &Desk, subject: &str) -> Fence {
    let view = desk.look(&[subject], &[]).await;
    view.fence.expect("a fence")
}

async fn burst(desk: &Desk, drafts: &[Draft], fence: &Fence) -> Burst {
    let burst = desk.ledger.claims().burst(&borrowed(drafts), fence).await;
    burst.expect("an answer")
}

/// Appends drafts that must be accepted. Returns the fence afterwards.
async fn commit(desk: &Desk, drafts: &[Draft], fence: &Fence) -> Fence {
    match burst(desk, drafts, fence).await {
        Burst::Committed(fence) => fence,
        other => panic!("{other:?}"),
    }
}

fn last(draft: &Draft) -> Option<&Line> {
    draft.entries.last().map(|entry| &entry.line)
}

async fn a_burst_writes_what_the_guarded_statement_writes(stack: Stack) {
    let desk = Desk::open(stack).await;
    let before = fence(&desk, "a").await;
    let keyed = desk.draft_of("a", None, &[(2, Some("order-1")), (1, None)]);
    let plain = desk.draft("b", None, 3);
    let mut held = desk.draft("c", None, 1);
    let until = held.entries[0].line.at + TimeDelta::minutes(5);
    held.entries[0].kind = EntryKind::Grant {
        held_until: Some(until),
    };
    held.entries[0].line.lapses_at = Some(until);
    let after = commit(
        &desk,
        &[keyed.clone(), plain.clone(), held.clone()],
        &before,
    )
    .await;
    assert_eq!(after.place, before.place);
    assert!(after.horizon > before.horizon);
    let next = desk.draft("b", last(&plain), 2);
    let newer = commit(&desk, std::slice::from_ref(&next), &after).await;
    assert!(newer.horizon > after.horizon);
    let many = desk.draft("d", None, 150);
    let newest = commit(&desk, std::slice::from_ref(&many), &newer).await;
    assert!(newest.horizon > newer.horizon);
    let books = Books::open(&desk.ground).await;
    let found = books.entries().await;
    let written = [keyed, plain, held, next, many].map(|draft| draft.entries);
    let [a, b, c, more, d] = written;
    assert_eq!(found[&desk.account("a")], a);
    assert_eq!(found[&desk.account("b")], [b, more].concat());
    assert_eq!(found[&desk.account("c")], c);
    assert_eq!(found[&desk.account("d")], d);
    let subjects = books.audit().await;
    assert_eq!(
        subjects[&desk.account("a")][0].subject.as_deref(),
        Some("a")
    );
    assert!(fence(&desk, "d").await.horizon >= newest.horizon);
}

/// A burst is written completely or not at all, whichever of its accounts another writer has
/// continued.
async fn a_burst_that_meets_another_writer_writes_nothing(stack: Stack) {
    let desk = Desk::open(stack).await;
    let first = desk
        .append(desk.draft_of("b", None, &[(1, Some("order-1"))]))
        .await;
    desk.append(desk.draft("b", Some(&first), 1)).await;
    let fence = fence(&desk, "a").await;
    let taken = [
        desk.draft("b", Some(&first), 1),
        desk.draft("b", Some(&first), 3),
        desk.draft_of("e", None, &[(1, Some("order-1"))]),
        desk.draft_of("e", None, &[(1, None), (1, Some("order-1"))]),
    ];
    for taken in taken {
        for others in [["a0", "a1"], ["a0", "z"], ["x", "z"]] {
            let [one, other] = others.map(|subject| desk.draft(subject, None, 2));
            let drafts = [one, taken.clone(), other];
            assert_eq!(burst(&desk, &drafts, &fence).await, Burst::Conflict);
        }
    }
    let accounts = Books::open(&desk.ground).await.audit().await;
    assert_eq!(
        accounts.keys().copied().collect::<Vec<_>>(),
        [desk.account("b")]
    );
    assert_eq!(desk.entries("b").await, 2);
    commit(&desk, &[desk.draft("e", None, 1)], &fence).await;
}

/// A burst that opens an existing account leaves out that account with all its drafts.
async fn a_burst_opens_no_account_twice(stack: Stack) {
    let desk = Desk::open(stack).await;
    let standing = ["b", "d"].map(|subject| desk.draft(subject, None, 1));
    for draft in standing.clone() {
        desk.append(draft).await;
    }
    let fence = fence(&desk, "a").await;
    let mut held = desk.draft_of("b", None, &[(1, None), (1, Some("order-1"))]);
    held.entries[0].kind = EntryKind::Grant {
        held_until: Some(held.entries[0].line.at + TimeDelta::minutes(5)),
    };
    let opening = [held, desk.draft("d", None, 1)];
    let exist = |burst: Option<Burst>| match burst {
        Some(Burst::Exist(accounts)) => accounts.into_iter().collect::<HashSet<_>>(),
        other => panic!("{other:?}"),
    };
    let existing: HashSet<_> = standing.iter().map(|draft| draft.account).collect();
    let appended = desk
        .ledger
        .claims()
        .append_in_burst(&borrowed(&opening), Some(&fence))
        .await;
    let appended = appended.expect("an answer");
    assert_eq!(appended.accounts, HashSet::new());
    assert_eq!(exist(appended.burst), existing);
    let [_, plain] = opening.clone();
    let told = burst(&desk, &[desk.draft("a", None, 1), plain], &fence).await;
    assert_eq!(told, Burst::Exist(vec![standing[1].account]));
    let many = (0..100).map(|place| desk.draft(&format!("new-{place}"), None, 2));
    let drafts: Vec<Draft> = many.chain(opening).collect();
    let told = burst(&desk, &drafts, &fence).await;
    assert_eq!(exist(Some(told)), existing);
    let found = Books::open(&desk.ground).await.entries().await;
    assert_eq!(found.len(), standing.len());
    let appended = desk
        .ledger
        .claims()
        .append_in_burst(&borrowed(&drafts), Some(&fence))
        .await;
    let appended = appended.expect("an answer");
    assert!(matches!(appended.burst, Some(Burst::Committed(_))));
    assert_eq!(appended.accounts.len(), 100);
    let found = Books::open(&desk.ground).await.entries().await;
    assert_eq!(found.len(), standing.len() + 100);
    for draft in standing {
        assert_eq!(found[&draft.account], draft.entries);
    }
}

async fn a_burst_needs_the_server_that_told_the_lines(stack: Stack) {
    let desk = Desk::open(stack).await;
    let shown = fence(&desk, "a").await;
    let place = shown.place;
    let other_starts = [-1, 1].map(|micros| LedgerPlace {
        started_at: place.started_at + TimeDelta::microseconds(micros),
        ..place
    });
    let other_file = LedgerPlace {
        file: place.file ^ 1,
        ..place
    };
    let other_erasures = [-1, 1].map(|erasures| LedgerPlace {
        erasures: place.erasures + erasures,
        ..place
    });
    let places = other_starts.into_iter().chain([other_file]);
    let places = places.chain(other_erasures);
    let elsewhere = places.map(|place| Fence { place, ..shown });
    for fence in elsewhere {
        let draft = desk.draft("a", None, 1);
        assert_eq!(burst(&desk, &[draft], &fence).await, Burst::Behind);
    }
    // The server lacks transactions that it had ended once. Other tests use this server too.
    let ahead = commit(&desk, &[desk.draft("b", None, 1)], &shown).await;
    let lost = Fence {
        horizon: ahead.horizon + 1_000_000_000,
        ..ahead
    };
    assert_eq!(
        burst(&desk, &[desk.draft("a", None, 1)], &lost).await,
        Burst::Behind
    );
    assert_eq!(desk.entries("a").await, 0);
    commit(&desk, &[desk.draft("a", None, 1)], &ahead).await;
    assert_eq!(desk.entries("a").await, 1);
}

/// A standby that lacks a commit is promoted. A restored copy from before that commit acts the
/// same. Number 3 is free there, and so is number 2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lacks_a_commit_takes_no_burst_after_it() {
    let mut primary = Postgres::start();
    let database_url = primary.create_database();
    let name = database_url.rsplit('/').next().expect("a name").to_owned();
    let desk = Desk::on(Ground::of_database(database_url)).await;
    let first = desk.append(desk.draft("a", None, 1)).await;
    let standby = primary.start_standby();
    standby.cut_off().await;
    let second = desk.draft("a", Some(&first), 1);
    let known = fence(&desk, "a").await;
    let known = commit(&desk, std::slice::from_ref(&second), &known).await;
    let third = [desk.draft("a", last(&second), 1)];
    primary.kill();
    standby.promote();
    let ledger = another_ledger(&Ground::of_database(standby.url(&name))).await;
    let copy = Desk { ledger, ..desk };
    assert_eq!(burst(&copy, &third, &known).await, Burst::Behind);
    assert_eq!(copy.try_append(&third).await.expect("an answer"), [].into());
    assert_eq!(copy.last("a").await, Some(first.clone()));
    // Only the fence prevents the gap.
    let own = fence(&copy, "a").await;
    commit(&copy, &third, &own).await;
    assert_eq!(copy.last("a").await.map(|line| line.number), Some(3));
}

/// A backup is written over the file while a process has it open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_lacks_a_commit_takes_no_burst_after_it() {
    let desk = Desk::open(Stack::Sqlite).await;
    let first = desk.append(desk.draft("a", None, 1)).await;
    let second = desk.draft("a", Some(&first), 1);
    let known = fence(&desk, "a").await;
    let known = commit(&desk, std::slice::from_ref(&second), &known).await;
    let third = [desk.draft("a", last(&second), 1)];
    let file = sqlx::SqlitePool::connect(&desk.ground.database_url)
        .await
        .expect("a pool");
    for sql in [
        "DROP TRIGGER entries_are_append_only_delete",
        "DELETE FROM entries WHERE number = 2",
    ] {
        sqlx::query(sql).execute(&file).await.expect("the SQL runs");
    }
    assert_eq!(burst(&desk, &third, &known).await, Burst::Behind);
    let appended = desk.try_append(&third).await;
    assert_eq!(appended.expect("an answer"), [].into());
    assert_eq!(desk.last("a").await, Some(first));
}

/// A copy of the database replaces it on the same server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_beside_the_database_takes_no_burst_after_what_it_lacks() {
    let desk = Desk::open(Stack::Postgres).await;
    let url = desk.ground.database_url.clone();
    let (_, name) = url.rsplit_once('/').expect("a name");
    let first = desk.append(desk.draft("a", None, 1)).await;
    let copy = format!("{name}_copy");
    let end_all = format!(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    postgres().execute("postgres", &end_all);
    postgres().execute(
        "postgres",
        &format!("CREATE DATABASE {copy} TEMPLATE {name}"),
    );
    let second = desk.draft("a", Some(&first), 1);
    let known = loop {
        let look = Look {
            accounts: vec![second.account],
            ..Look::default()
        };
        match desk.ledger.claims().look(&look).await {
            Ok(view) => break view.fence.expect("a fence"),
            // The copy's connections were ended.
            Err(error) => assert!(matches!(error, LedgerError::Unavailable(_)), "{error:?}"),
        }
    };
    let known = commit(&desk, std::slice::from_ref(&second), &known).await;
    let third = [desk.draft("a", last(&second), 1)];
    let ledger = another_ledger(&Ground::of_database(postgres().url(&copy))).await;
    let copy = Desk { ledger, ..desk };
    assert_eq!(burst(&copy, &third, &known).await, Burst::Behind);
    assert_eq!(copy.last("a").await, Some(first));
}

/// Some managed servers do not permit the functions of the fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_shows_no_fence_is_looked_at_all_the_same() {
    let desk = Desk::open(Stack::Postgres).await;
    let pool = sqlx::PgPool::connect(&desk.ground.database_url)
        .await
        .expect("a pool");
    let role = format!("reader_{}", uuid::Uuid::new_v4().simple());
    for sql in [
        format!("CREATE ROLE {role} LOGIN"),
        format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"),
        "REVOKE EXECUTE ON FUNCTION pg_current_snapshot() FROM PUBLIC".to_owned(),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(&pool)
            .await
            .expect("the SQL runs");
    }
    let first = desk.append(desk.draft("a", None, 1)).await;
    let mut ground = desk.ground.clone();
    ground.database_url = ground
        .database_url
        .replace("//postgres@", &format!("//{role}@"));
    let ledger: Ledger = another_ledger(&ground).await;
    let other = Desk { ledger, ..desk };
    let view = other.look(&["a", "b"], &[]).await;
    assert_eq!(view.fence, None);
    assert_eq!(view.lines.get(&other.account("a")), Some(&first));
    assert_eq!(view.lines.len(), 1);
}

/// Two batches whose keys cross wait for each other. PostgreSQL ends one of them, and it leaves no
/// entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_whose_keys_cross_end() {
    const ROUNDS: usize = 20;
    const WIDTH: usize = 100;
    let desk = std::sync::Arc::new(Desk::open(Stack::Postgres).await);
    let fence = fence(&desk, "a").await;
    for round in 0..ROUNDS {
        let mut writers = JoinSet::new();
        for writer in 0..2 {
            let ledger = another_ledger(&desk.ground).await;
            let desk = desk.clone();
            let drafts: Vec<Draft> = (0..WIDTH)
                .map(|place| {
                    let key = format!("order-{round}-{place}");
                    desk.draft_of(
                        &format!("{round}-{writer}-{place}"),
                        None,
                        &[(1, Some(&key))],
                    )
                })
                .collect();
            writers.spawn(async move {
                ledger
                    .claims()
                    .burst(&borrowed(&drafts), &fence)
                    .await
                    .expect("an answer")
            });
        }
        let ended = writers.join_all().await;
        let committed = ended
            .iter()
            .filter(|burst| matches!(burst, Burst::Committed(_)));
        assert_eq!(committed.count(), 1, "{ended:?}");
        assert!(ended.contains(&Burst::Conflict), "{ended:?}");
    }
    let accounts = Books::open(&desk.ground).await.audit().await;
    assert_eq!(accounts.len(), ROUNDS * WIDTH);
}
