//! Reconciliations without a request check the ledger in parts: what is new, the accounts of alarms, and each
//! time another part of the accounts.

use std::time::Duration;

use chrono::TimeDelta;
use perdiem::domain::identity::AccountId;
use perdiem::domain::reconciliation::{
    CheckedUpTo, CountersCompared, Difference, DifferenceKind, Finished, LedgerChecked, Started,
    Tally,
};
use perdiem::host::clock::{Clock, ManualClock};
use serde_json::Value;
use uuid::Uuid;

use super::{PATH, Scene, kinds};
use crate::support::app::{App, Ground, NOON, Stack, eventually, instant};
use crate::support::desk::{Desk, on_every_store};

on_every_store!(
    a_week_of_parts_is_the_whole,
    an_alarm_stays_until_its_account_is_right,
    alarms_of_overtaken_reports_and_wrong_clocks,
);

const SUBJECTS: usize = 12;
const DAY: Duration = Duration::from_secs(24 * 3600);

struct Week {
    scene: Scene,
    clock: ManualClock,
    rounds: usize,
}

impl Week {
    /// A ledger with two entries of each subject, whose first reconciliation has ended.
    async fn begin(stack: Stack) -> Self {
        let clock = ManualClock::at(instant(NOON));
        let scene = Scene::start(Ground::new(stack), Clock::Manual(clock.clone())).await;
        let mut week = Self {
            scene,
            clock,
            rounds: 0,
        };
        for _ in 0..2 {
            for number in 0..SUBJECTS {
                week.claim(number).await;
            }
        }
        week.is_recorded(2 * SUBJECTS).await;
        let report = week.round().await;
        assert_eq!(report["ledger"], "whole");
        assert_eq!(report["entry_count"], 2 * SUBJECTS);
        week
    }

    async fn claim(&self, number: usize) {
        let answer = self.scene.app.claim(&subject(number), None).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// Waits until so many entries have their positions.
    async fn is_recorded(&self, count: usize) {
        eventually("the entries are recorded", || async {
            let list = self.scene.app.get("/v1/entries?limit=1000").await.json();
            list["items"].as_array().expect("items").len() == count
        })
        .await;
    }

    /// The report of the next day's reconciliation.
    async fn round(&mut self) -> Value {
        self.clock.advance(TimeDelta::days(1));
        self.rounds += 1;
        // An instance looks at its start whether a reconciliation is due.
        let app = App::start_with(&self.scene.ground, |options| {
            options.clock = Clock::Manual(self.clock.clone());
            options.reconcile_every = Some(DAY);
        })
        .await;
        eventually("the reconciliation has ended", || async {
            let list = app.get(PATH).await.json();
            let items = list["items"].as_array().expect("items");
            items.len() == self.rounds && items[0]["finished_at"].is_string()
        })
        .await;
        let list = app.get(PATH).await.json();
        let id = list["items"][0]["id"].as_str().expect("an id");
        app.get(&format!("/v1/reconciliations/{id}")).await.is(200)
    }

    /// Replaces text in the totals of an entry.
    async fn forge(&self, number: usize, entry: u64, from: &str, to: &str) {
        let account = self.scene.account(&subject(number));
        let account = self.scene.ground.literal(account.0);
        let sql = format!(
            "UPDATE entries SET totals = replace(totals, '{from}', '{to}')
             WHERE number = {entry} AND account = {account}"
        );
        self.scene.ground.sql(&sql).await;
    }
}

fn subject(number: usize) -> String {
    format!("member-{number}")
}

async fn a_week_of_parts_is_the_whole(stack: Stack) {
    let mut week = Week::begin(stack).await;
    let mut sums = [0; 2];
    for _ in 0..7 {
        let report = week.round().await;
        assert_eq!(report["ledger"], "part");
        assert_eq!(report["difference_count"], 0, "{report}");
        for (sum, name) in sums.iter_mut().zip(["account_count", "entry_count"]) {
            *sum += report[name].as_u64().expect("a count");
        }
    }
    assert_eq!(sums, [SUBJECTS as u64, 2 * SUBJECTS as u64]);
    // What is new is checked once more than the parts. The entry before it is believed.
    week.scene.ground.open_the_ledger().await;
    for number in 0..SUBJECTS {
        week.claim(number).await;
    }
    week.is_recorded(3 * SUBJECTS).await;
    let report = week.round().await;
    let checked = report["entry_count"].as_u64().expect("a count");
    assert!(
        (SUBJECTS as u64..3 * SUBJECTS as u64).contains(&checked),
        "{report}"
    );
}

async fn an_alarm_stays_until_its_account_is_right(stack: Stack) {
    let mut week = Week::begin(stack).await;
    week.scene.ground.open_the_ledger().await;
    // 1. A new entry is checked at once, and its alarm stays, although nothing is new.
    week.claim(3).await;
    week.is_recorded(2 * SUBJECTS + 1).await;
    week.forge(3, 3, "d5,1,", "d5,2,").await;
    for _ in 0..2 {
        let report = week.round().await;
        assert_eq!(kinds(&report), ["wrong_total"], "{report}");
        assert_eq!(report["ledger"], "part");
    }
    // 2. An old entry is checked within a week, and its alarm stays too.
    week.forge(5, 2, "d5,2,", "d5,1,").await;
    let mut found = Vec::new();
    for _ in 0..8 {
        found.push(kinds(&week.round().await).len());
    }
    assert!(found.is_sorted(), "{found:?}");
    assert_eq!(found[6..], [2, 2], "{found:?}");
    // 3. Both are corrected by hand.
    week.forge(3, 3, "d5,2,", "d5,1,").await;
    week.forge(5, 2, "d5,1,", "d5,2,").await;
    let report = week.round().await;
    assert_eq!(report["difference_count"], 0, "{report}");
}

/// A reconciliation of the whole lasts three hours, and parts of another instance begin and end meanwhile. A report of
/// next year, from a wrong clock, does not count yet.
async fn alarms_of_overtaken_reports_and_wrong_clocks(stack: Stack) {
    let desk = Desk::open(stack).await;
    let audit = desk.ledger.audit();
    let hour = |hours: i64| instant(NOON) + TimeDelta::hours(hours);
    let alarm = |account: AccountId| Difference {
        kind: DifferenceKind::Gap,
        account: Some(account),
        figure: None,
        found: None,
        expected: Some(1),
        windows: Vec::new(),
        is_healed: false,
    };
    let report = async |from: i64, to: i64, position: u64, alarms: &[AccountId]| {
        let started = Started {
            id: Uuid::from_u128(position.into()),
            started_at: hour(from),
            requested_by: None,
            apply: true,
            ledger: LedgerChecked::Whole,
        };
        assert!(
            audit
                .begin_reconciliation(&started, None)
                .await
                .expect("it begins")
        );
        let differences: Vec<Difference> = alarms.iter().map(|it| alarm(*it)).collect();
        let finished = Finished {
            finished_at: hour(to),
            counters: CountersCompared::Absent,
            checked: CheckedUpTo {
                at: hour(from),
                position,
                next: AccountId::FIRST,
            },
            tally: Tally {
                alarms: alarms.len() as u64,
                ..Tally::default()
            },
        };
        let ended = audit.finish_reconciliation(started.id, &finished, &differences);
        ended.await.expect("it ends");
    };
    let one = desk.account("a");
    let two = desk.account("b");
    report(24 * 365, 24 * 365 + 1, 900, &[two]).await;
    assert_eq!(audit.checked(hour(0)).await.expect("a report"), None);
    // The whole from 0 to 3, and parts from 1 to 2, and from 2 to 4.
    report(0, 3, 10, &[one]).await;
    report(1, 2, 20, &[]).await;
    report(2, 4, 30, &[]).await;
    for (now, position) in [(2, 20), (3, 10), (4, 30)] {
        let checked = audit.checked(hour(now)).await.expect("a report");
        assert_eq!(checked.map(|it| it.position), Some(position), "{now}");
        let alarmed = audit.alarmed(hour(now)).await.expect("accounts");
        let most = audit.alarms(hour(now)).await.expect("alarms");
        let expected = if now == 2 { vec![] } else { vec![Some(one)] };
        assert_eq!(most.map(|(_, count)| count), Some(expected.len() as u64));
        assert_eq!(alarmed, expected, "{now}");
    }
    // The next one begins after all of them ended, and finds that the account is right.
    report(5, 6, 40, &[]).await;
    assert_eq!(audit.alarmed(hour(7)).await.expect("accounts"), []);
    let most = audit.alarms(hour(7)).await.expect("alarms");
    assert_eq!(most.map(|(_, count)| count), Some(0));
}
