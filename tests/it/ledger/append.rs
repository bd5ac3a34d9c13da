//! The guard: an account's lines have no forks and no gaps.

use std::sync::Arc;

use chrono::TimeDelta;
use perdiem::domain::grant::Line;
use perdiem::domain::limit::total::{LimitState, Total};
use perdiem::ledger::{Draft, Ledger, LedgerError, Look};
use tokio::task::JoinSet;

use crate::support::app::Stack;
use crate::support::books::Books;
use crate::support::desk::{Desk, another_ledger, borrowed, on_every_store};
use crate::support::direct::Direct;

on_every_store!(
    lines_go_on_from_one_another,
    a_stale_line_is_refused,
    a_batch_may_win_some_and_lose_some,
    a_batch_may_be_of_any_width,
    a_taken_first_key_is_refused,
    a_taken_later_key_undoes_the_batch,
    a_subject_is_written_once,
    writers_never_fork_an_account,
    turns_come_one_by_one,
    a_component_is_appended_whole_or_not_at_all,
);

async fn lines_go_on_from_one_another(stack: Stack) {
    let mut desk = Desk::open(stack).await;
    let appended = desk.ledger.claims().append(&[]).await;
    assert_eq!(appended.expect("an empty append"), [].into());
    let first = desk.append(desk.draft("a", None, 1)).await;
    let fourth = desk.append(desk.draft("a", Some(&first), 3)).await;
    assert_eq!((first.number, fourth.number), (1, 4));
    assert_eq!(fourth.totals[0].used(), 4);
    desk.advance(TimeDelta::days(1));
    let fifth = desk.append(desk.draft("a", Some(&fourth), 1)).await;
    assert_eq!((fifth.totals[0].used(), fifth.totals[1].used()), (1, 5));
    assert_eq!(desk.last("a").await, Some(fifth));
    assert_eq!(desk.entries("a").await, 5);
}

/// A draft after any line but the account's last one is refused: another number, other totals,
/// another instant or version. A new account cannot begin with a number other than 1.
async fn a_stale_line_is_refused(stack: Stack) {
    let desk = Desk::open(stack).await;
    let ahead = desk.draft("a", None, 4).entries[3].line.clone();
    desk.refuses(desk.draft("a", Some(&ahead), 1)).await;
    assert_eq!(desk.entries("a").await, 0);
    let first = desk.append(desk.draft("a", None, 1)).await;
    desk.refuses(desk.draft("a", Some(&ahead), 1)).await;
    desk.refuses(desk.draft("a", None, 1)).await;
    desk.refuses(desk.draft("a", None, 3)).await;
    let second = desk.append(desk.draft("a", Some(&first), 1)).await;
    desk.refuses(desk.draft("a", None, 1)).await;
    desk.refuses(desk.draft("a", Some(&first), 1)).await;
    desk.refuses(desk.draft("a", Some(&first), 2)).await;

    fn totals(line: &mut Line) -> &mut [Total] {
        Arc::make_mut(&mut line.totals)
    }
    fn change_used(line: &mut Line, used: fn(u64) -> u64) {
        let total = &mut totals(line)[0];
        total.set_used(used(total.used()));
    }
    let with = |change: fn(&mut Line)| {
        let mut draft = desk.draft("a", Some(&second), 1);
        draft.after.as_mut().map(change);
        draft
    };
    let changes: [fn(&mut Line); 9] = [
        |line| change_used(line, |used| used - 1),
        |line| change_used(line, |used| used + 1),
        |line| totals(line)[1].max += 1,
        |line| match &mut totals(line)[0].state {
            LimitState::Calendar(calendar) => calendar.window.start += TimeDelta::hours(1),
            _ => panic!("no window of the calendar"),
        },
        |line| line.totals = line.totals[..1].into(),
        |line| totals(line).reverse(),
        |line| line.at -= TimeDelta::microseconds(1),
        |line| line.at += TimeDelta::days(40),
        |line| line.policy_version = 0,
    ];
    for change in changes {
        desk.refuses(with(change)).await;
    }
    assert_eq!(desk.entries("a").await, 2);
    desk.append(with(|_| {})).await;
}

async fn a_batch_may_win_some_and_lose_some(stack: Stack) {
    let desk = Desk::open(stack).await;
    let first = desk.append(desk.draft("b", None, 2)).await;
    let mut stale = first.clone();
    stale.number = 1;
    let batch = [
        desk.draft("a", None, 3),
        desk.draft("b", Some(&stale), 3),
        desk.draft("c", None, 1),
        desk.draft("d", Some(&first), 2),
        desk.draft("e", None, 2),
    ];
    let appended = desk.try_append(&batch).await.expect("an answer");
    let won = ["a", "c", "e"].map(|subject| desk.account(subject));
    assert_eq!(appended, won.into());
    for (subject, entries) in [("a", 3), ("b", 2), ("c", 1), ("d", 0), ("e", 2)] {
        assert_eq!(desk.entries(subject).await, entries, "{subject}");
    }
}

/// A store may send rows in portions. A search finds an entry in any portion, once. A batch that is
/// sent twice, as after a commit with an unknown outcome, is committed once.
async fn a_batch_may_be_of_any_width(stack: Stack) {
    let desk = Desk::open(stack).await;
    for width in [1, 8, 9, 64, 65, 130] {
        let subjects: Vec<String> = (0..width).map(|place| format!("{width}-{place}")).collect();
        let of = |subject: &String| {
            desk.draft_of(subject, None, &[(1, Some(subject.as_str())), (2, None)])
        };
        let mut batch: Vec<Draft> = subjects.iter().map(of).collect();
        let appended = desk.try_append(&batch).await.expect("an answer");
        assert_eq!(appended.len(), width);
        let look = Look {
            accounts: batch.iter().map(|draft| draft.account).collect(),
            keys: batch
                .iter()
                .filter_map(|draft| draft.entries[0].key)
                .collect(),
            entries: batch.iter().map(|draft| draft.entries[0].id).collect(),
            ..Look::default()
        };
        let seen = desk.ledger.claims().look(&look).await.expect("a look");
        assert_eq!((seen.lines.len(), seen.entries.len()), (width, width));
        for draft in &batch {
            assert_eq!(seen.lines[&draft.account], draft.entries[1].line);
        }
        // All drafts but one are committed already.
        batch.push(desk.draft(&format!("{width} and one"), None, 1));
        let appended = desk.try_append(&batch).await.expect("an answer");
        assert_eq!(appended, [batch[width].account].into());
        assert_eq!(desk.entries(&subjects[0]).await, 2);
    }
}

/// That account's draft is refused, and the others are committed.
async fn a_taken_first_key_is_refused(stack: Stack) {
    let desk = Desk::open(stack).await;
    let last = desk
        .append(desk.draft_of("a", None, &[(1, Some("order-1"))]))
        .await;
    let batch = [
        desk.draft_of("a", Some(&last), &[(1, Some("order-1")), (1, None)]),
        desk.draft_of("b", None, &[(1, Some("order-1"))]),
        desk.draft_of("c", None, &[(1, Some("order-2")), (1, Some("order-3"))]),
    ];
    let appended = desk.try_append(&batch).await.expect("an answer");
    assert_eq!(appended, [desk.account("c")].into());
    assert_eq!(desk.entries("a").await, 1);
    assert_eq!(desk.entries("b").await, 0);
    assert_eq!(desk.entries("c").await, 2);
}

/// A batch never inserts the third entry without the second: nothing is written.
async fn a_taken_later_key_undoes_the_batch(stack: Stack) {
    let desk = Desk::open(stack).await;
    desk.append(desk.draft_of("a", None, &[(1, Some("order-1"))]))
        .await;
    let conflicts = async |batch: &[Draft]| {
        let result = desk.try_append(batch).await;
        assert!(matches!(result, Err(LedgerError::Conflict)), "{result:?}");
    };
    let key = Some("order-1");
    conflicts(&[
        desk.draft("b", None, 2),
        desk.draft_of("c", None, &[(1, None), (1, key), (1, None)]),
        desk.draft("d", None, 1),
    ])
    .await;
    // The same key twice in one batch.
    let key = Some("order-2");
    conflicts(&[desk.draft_of("c", None, &[(1, key), (1, key)])]).await;
    for subject in ["b", "c", "d"] {
        assert_eq!(desk.entries(subject).await, 0, "{subject}");
        assert_eq!(desk.last(subject).await, None);
    }
    desk.append(desk.draft("c", None, 2)).await;
}

/// The subject is written with entry 1, and never again.
async fn a_subject_is_written_once(stack: Stack) {
    let desk = Desk::open(stack).await;
    let first = desk.append(desk.draft("a/é 😀'\"", None, 2)).await;
    let mut draft = desk.draft("a/é 😀'\"", Some(&first), 1);
    draft.subject = Some(perdiem::domain::claim::Subject::new("another").expect("a subject"));
    desk.append(draft).await;
    desk.refuses(desk.draft("b", Some(&first), 1)).await;
    let sql = "SELECT subject FROM accounts";
    let subjects = Direct::to(&desk.ground).await.texts(sql).await;
    assert_eq!(subjects, ["a/é 😀'\""]);
}

/// Appends one batch of grants to several accounts repeatedly, each time after the line that it
/// read, until it has succeeded so often at each account.
async fn write(ledger: Ledger, desk: &Desk, subjects: &[String], wins: usize) {
    let mut open: Vec<(&String, usize)> = subjects.iter().map(|text| (text, wins)).collect();
    while !open.is_empty() {
        let accounts = open.iter().map(|(text, _)| desk.account(text));
        let look = Look {
            accounts: accounts.collect(),
            ..Look::default()
        };
        let seen = ledger.claims().look(&look).await.expect("a look");
        let drafts: Vec<Draft> = open
            .iter()
            .map(|(text, left)| {
                let after = seen.lines.get(&desk.account(text));
                desk.draft(text, after, 1 + left % 3)
            })
            .collect();
        // No error, not even a deadlock that the server resolves.
        let appended = ledger
            .claims()
            .append(&borrowed(&drafts))
            .await
            .expect("an answer");
        for (text, left) in &mut open {
            *left -= usize::from(appended.contains(&desk.account(text)));
        }
        open.retain(|(_, left)| *left > 0);
    }
}

/// Batches in opposite orders do not deadlock.
async fn writers_never_fork_an_account(stack: Stack) {
    const WRITERS: usize = 8;
    const WINS: usize = 6;
    let desk = Arc::new(Desk::open(stack).await);
    let ledgers = [desk.ledger.clone(), another_ledger(&desk.ground).await];
    let subjects: Vec<String> = (0..20).map(|number| format!("member-{number}")).collect();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let desk = desk.clone();
        let mut subjects = subjects.clone();
        if writer / 2 % 2 == 1 {
            subjects.reverse();
        }
        let ledger = ledgers[writer % 2].clone();
        writers.spawn(async move { write(ledger, &desk, &subjects, WINS).await });
    }
    writers.join_all().await;
    let accounts = Books::open(&desk.ground).await.audit().await;
    assert_eq!(accounts.len(), subjects.len());
    // With 6, 5, 4, 3, 2, 1 successes left, a batch has 1 + left % 3 entries.
    let entries = WRITERS * (1..=WINS).map(|left| 1 + left % 3).sum::<usize>();
    for grants in accounts.values() {
        assert_eq!(grants.len(), entries);
        let last = &grants[entries - 1].entry.line;
        assert_eq!(last.totals[0].used(), entries as u64);
    }
}

/// A writer that waits for its turn gets it when the other's turn ends. SQLite has one writer, and
/// no turns.
async fn turns_come_one_by_one(stack: Stack) {
    let desk = Desk::open(stack).await;
    let other = another_ledger(&desk.ground).await;
    let accounts = ["a", "b", "c"].map(|subject| desk.account(subject));
    let turn = desk.ledger.claims().turn(&accounts).await.expect("a turn");
    let unrelated = other
        .claims()
        .turn(&[desk.account("d")])
        .await
        .expect("a turn");
    drop(unrelated);
    let waits = tokio::spawn(async move {
        other
            .claims()
            .turn(&[accounts[2], accounts[0]])
            .await
            .is_ok()
    });
    if stack == Stack::Postgres {
        let pool = sqlx::PgPool::connect(&desk.ground.database_url)
            .await
            .expect("a pool");
        crate::support::app::eventually("the other writer waits", || async {
            let waiting: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
                 WHERE locktype = 'advisory' AND NOT granted
                     AND datname = current_database()",
            )
            .fetch_one(&pool)
            .await
            .expect("a count");
            waiting == 1
        })
        .await;
        assert!(!waits.is_finished());
    }
    // A turn does not stop others from appending. The guard keeps the account correct.
    desk.append(desk.draft("a", None, 1)).await;
    drop(turn);
    assert!(waits.await.expect("the task ends"));
}

/// Drafts that are appended together do not stop at each account's guard.
async fn a_component_is_appended_whole_or_not_at_all(stack: Stack) {
    let desk = Desk::open(stack).await;
    desk.append(desk.draft("taken", None, 1)).await;
    let component = |subjects: [&str; 2]| {
        let component = desk.account(subjects[0]);
        subjects.map(|subject| Draft {
            component,
            ..desk.draft(subject, None, 2)
        })
    };
    let lost = component(["a", "taken"]);
    let whole = component(["b", "c"]);
    let alone = desk.draft("d", None, 1);
    // 1. What is not whole is left out, whatever comes before or after it.
    let drafts: Vec<Draft> = [&lost[..], &whole, &[alone]].concat();
    let appended = desk.try_append(&drafts).await;
    let accounts = ["b", "c", "d"].map(|subject| desk.account(subject));
    assert_eq!(appended.expect("an append"), accounts.into());
    for (subject, entries) in [("a", 0), ("taken", 1), ("b", 2), ("c", 2), ("d", 1)] {
        assert_eq!(desk.entries(subject).await, entries, "{subject}");
    }
    // 2. A burst leaves out the component of an account that exists.
    let fence = desk.look(&["b"], &[]).await.fence.expect("a fence");
    let drafts = [&lost[..], &component(["e", "f"])].concat();
    let claims = desk.ledger.claims();
    let appended = claims
        .append_in_burst(&borrowed(&drafts), Some(&fence))
        .await;
    let accounts = ["e", "f"].map(|subject| desk.account(subject));
    assert_eq!(appended.expect("a burst").accounts, accounts.into());
    assert_eq!(desk.entries("a").await, 0);
}
