//! The belt: an append refuses an instant that is too far from the clock of its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use perdiem::domain::grant::{EntryKind, Provisional};
use perdiem::domain::identity::EntryId;
use perdiem::host::clock::{Clock, ManualClock};
use perdiem::ledger::{Burst, Draft, LedgerError, TimeBounds, Untimely};
use reqwest::StatusCode;
use tokio::time::sleep;

use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::desk::{Desk, borrowed, on_every_store};

on_every_store!(
    an_append_refuses_an_instant_that_is_far_from_the_stores_clock,
    an_append_takes_what_is_rightly_old,
    an_append_leaves_out_what_it_refuses,
);

const TOLERANCE: TimeDelta = TimeDelta::seconds(10);
const DELAY: TimeDelta = TimeDelta::seconds(5);

/// A desk whose ledger keeps the bounds, and the right time.
async fn desk(stack: Stack) -> (Desk, DateTime<Utc>) {
    let mut desk = Desk::open(stack).await;
    let clock = Clock::system();
    let now = clock.now();
    desk.ledger = desk.ledger.within(TimeBounds {
        tolerance: TOLERANCE,
        delay: DELAY,
        clock,
    });
    (desk, now)
}

fn at(desk: &mut Desk, instant: DateTime<Utc>, subject: &str) -> Draft {
    desk.now = instant;
    desk.draft(subject, None, 2)
}

async fn an_append_refuses_an_instant_that_is_far_from_the_stores_clock(stack: Stack) {
    let (mut desk, now) = desk(stack).await;
    for seconds in [15, 3600, 86_400, 365 * 86_400, -20, -3600, -86_400] {
        let draft = at(&mut desk, now + TimeDelta::seconds(seconds), "off");
        let right = at(&mut desk, now, "right");
        let both = [draft.clone(), right.clone()];
        let is_it = |error: &LedgerError| match error {
            LedgerError::Untimely(Untimely::Clock(off)) => (off.num_seconds() - seconds).abs() <= 5,
            _ => false,
        };
        // 1. The burst writes nothing, plain grants or not.
        let fence = desk.look(&["off"], &[]).await.fence.expect("a fence");
        let mut keyed = draft.clone();
        keyed.entries[1].metadata = Some(perdiem::domain::claim::Metadata::from_stored(
            r#"{"a":1}"#.to_owned(),
        ));
        for drafts in [[draft.clone(), right.clone()], [keyed, right.clone()]] {
            let burst = desk
                .ledger
                .claims()
                .burst(&borrowed(&drafts), &fence)
                .await
                .expect("an answer");
            assert!(matches!(burst, Burst::Untimely(_)), "{seconds}: {burst:?}");
        }
        // 2. So does the guarded statement, alone and in a transaction.
        let joined = both.clone().map(|draft| Draft {
            component: both[0].account,
            ..draft
        });
        for drafts in [&both, &joined] {
            let appended = desk.try_append(drafts).await;
            assert!(
                appended.as_ref().is_err_and(is_it),
                "{seconds}: {appended:?}"
            );
        }
        assert_eq!(desk.last("off").await, None);
        assert_eq!(desk.last("right").await, None);
    }
    // 3. The same connections go on.
    let right = at(&mut desk, now, "right");
    desk.append(right).await;
}

/// A lapse is at the end of its hold, and a grant that Redis decided is at its own instant.
async fn an_append_takes_what_is_rightly_old(stack: Stack) {
    let (mut desk, now) = desk(stack).await;
    let days_ago = now - TimeDelta::days(9);
    for (subject, is_lapse) in [("lapse", true), ("counted", false)] {
        let make = |draft: &mut Draft| {
            if is_lapse {
                let number = draft.entries[0].line.number;
                let of = EntryId::new(days_ago, number, 7);
                draft.entries[0].kind = EntryKind::Lapse { of };
            } else {
                draft.entries[0].provisional = Some(Provisional::Within)
            }
        };
        desk.now = days_ago;
        let mut old = desk.draft(subject, None, 1);
        make(&mut old);
        let old = desk.append(old).await;
        // A burst takes it too, with a grant of now behind it.
        let fence = desk.look(&[subject], &[]).await.fence.expect("a fence");
        let mut draft = desk.draft(subject, Some(&old), 1);
        make(&mut draft);
        desk.now = now;
        let next = desk.draft(subject, draft.entries.last().map(|entry| &entry.line), 1);
        draft.entries.extend(next.entries);
        let burst = desk
            .ledger
            .claims()
            .burst(&[&draft], &fence)
            .await
            .expect("an answer");
        assert!(matches!(burst, Burst::Committed(_)), "{burst:?}");
        // From the future it is refused.
        desk.now = now + TimeDelta::hours(1);
        let mut ahead = desk.draft(&format!("{subject}-ahead"), None, 1);
        make(&mut ahead);
        let refused = desk.ledger.claims().append(&[&ahead]).await;
        assert!(
            matches!(refused, Err(LedgerError::Untimely(_))),
            "{refused:?}"
        );
    }
}

/// The drafts of other accounts in the batch are appended, with a fence and without.
async fn an_append_leaves_out_what_it_refuses(stack: Stack) {
    let (mut desk, now) = desk(stack).await;
    let year = now + TimeDelta::days(365);
    for (round, has_fence) in [("1", true), ("2", false)] {
        let name = |subject: &str| format!("{subject}-{round}");
        let off = at(&mut desk, now + TimeDelta::hours(1), &name("off"));
        let right = at(&mut desk, now, &name("right"));
        // The last line of an account is a year ahead, so no line of it can be right.
        let mut ahead = at(&mut desk, year, &name("ahead"));
        ahead.after = Some(ahead.entries.remove(0).line);
        let fence = desk.look(&[&name("off")], &[]).await.fence;
        let fence = fence.filter(|_| has_fence);
        let drafts = [off.clone(), ahead.clone(), right.clone()];
        let appended = desk
            .ledger
            .claims()
            .append_in_burst(&borrowed(&drafts), fence.as_ref())
            .await;
        let appended = appended.expect("an answer");
        assert_eq!(appended.accounts, [right.account].into());
        let why = |draft: &Draft| {
            let mut untimely = appended.untimely.iter();
            untimely.find_map(|(account, why)| (*account == draft.account).then_some(*why))
        };
        assert!(matches!(why(&off), Some(Untimely::Clock(_))));
        assert_eq!(why(&ahead), Some(Untimely::LastLine(year)));
        assert_eq!(why(&right), None);
        assert!(desk.last(&name("right")).await.is_some());
        assert_eq!(desk.last(&name("off")).await, None);
    }
}

/// The clock of an instance steps between two of its looks at the ledger's clock. The append alone
/// notices it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_between_two_looks_stamps_nothing() {
    let ground = Ground::new(Stack::Postgres);
    let clock = ManualClock::at(Clock::system().now());
    let app = App::start_with(&ground, |options| {
        options.clock = Clock::Manual(clock.clone());
        options.clock_tolerance = Some(TOLERANCE);
    })
    .await;
    app.benefit(100_000, "GMT+8").await;
    let is_over = Arc::new(AtomicBool::new(false));
    let right = Clock::system();
    // 1. The clock is right for most of the time, and an hour off for 30 ms: longer than a claim
    //    takes, and shorter than the pause between two looks.
    let hand = async {
        for round in 0..150 {
            let off = match round % 10 {
                3 => TimeDelta::hours(1),
                7 => TimeDelta::days(365),
                _ => TimeDelta::zero(),
            };
            clock.set(right.now() + off);
            sleep(Duration::from_millis(30)).await;
        }
        clock.set(right.now());
        is_over.store(true, Ordering::SeqCst);
    };
    let client = async |client: usize| {
        let mut undecided = 0;
        while !is_over.load(Ordering::SeqCst) {
            let answer = app.claim(&format!("member-{client}"), None).await;
            match answer.status {
                StatusCode::CREATED => {}
                StatusCode::SERVICE_UNAVAILABLE => {
                    assert!(answer.text.contains("clock"), "{answer:?}");
                    undecided += 1;
                }
                _ => panic!("{answer:?}"),
            }
        }
        undecided
    };
    let began = right.now();
    let (undecided, ()) = tokio::join!(join_all((0..8).map(client)), hand);
    // 2. Claims met the belt, and no instant is wrong.
    let metrics = app.get("/metrics").await.text;
    let refused = metrics.lines().find_map(|line| {
        let count = line.strip_prefix("perdiem_untimely_drafts_total ")?;
        count.parse::<u64>().ok()
    });
    assert!(refused > Some(0), "{metrics}");
    assert!(undecided.iter().sum::<u32>() > 0);
    let span = began - TOLERANCE..=right.now() + TOLERANCE;
    let stores = ground.stores().await;
    assert!(!stores.entries.is_empty());
    for entry in &stores.entries {
        assert!(span.contains(&entry.at), "{entry:?}");
    }
    // 3. The instance goes on.
    eventually("the instance decides again", || async {
        clock.set(right.now());
        app.claim("member-1", None).await.status == StatusCode::CREATED
    })
    .await;
}
