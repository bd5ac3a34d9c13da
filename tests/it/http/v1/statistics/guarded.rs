//! Figures and denials by hand: the triggers let them grow with the record, and nothing else.

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;
use sqlx::Error;

use super::are_sums_of_the_entries;
use crate::http::items;
use crate::record::all_is_recorded;
use crate::support::app::{App, Ground, NOON, Stack, eventually, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(a_told_day_stays_as_it_is);

async fn a_told_day_stays_as_it_is(stack: Stack) {
    // 1. A day that has closed, and a day that goes on. Both have two grants and a denial.
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_at(&ground, &clock).await;
    app.benefit(1, "UTC").await;
    let denied = async |days: usize| {
        assert_eq!(app.claim("a", None).await.status, 201);
        assert_eq!(app.claim("b", None).await.status, 201);
        assert_eq!(app.claim("a", None).await.status, 429);
        all_is_recorded(&app, &ground).await;
        eventually("the denial is counted", || async {
            let found = items(&app.get("/v1/stats").await);
            found.iter().filter(|day| day["denied_claims"] == 1).count() == days
        })
        .await;
    };
    denied(1).await;
    clock.advance(TimeDelta::days(1));
    eventually("the figures of the day are in the record", || async {
        items(&app.get("/v1/changes?kind=day").await).len() == 1
    })
    .await;
    denied(2).await;
    let days = are_sums_of_the_entries(&app).await;
    // 2. The triggers refuse what the service never does.
    let mut database = Direct::to(&ground).await;
    let mut refused = async |sql: &str| match database.try_execute(sql, sql).await {
        Err(Error::Database(_)) => {}
        other => panic!("{sql}: {other:?}"),
    };
    for sql in [
        // The first day is told. The second one is open: its figures grow.
        "UPDATE day_figures SET value = value + 1 WHERE counted_on = '2026-11-21'",
        "INSERT INTO day_figures (policy, counted_on, recorded_on, figure, value)
         VALUES (1, '2026-11-21', '2026-11-22', 'lapsed_units', 7)",
        "UPDATE day_figures SET value = value - 1
         WHERE counted_on = '2026-11-22' AND figure = 'grants'",
        "UPDATE day_figures SET value = 0 WHERE counted_on = '2026-11-22'",
        "UPDATE day_figures SET counted_on = '2026-11-22' WHERE figure = 'units'",
        "DELETE FROM day_figures WHERE counted_on = '2026-11-22'",
        // The mark follows the record.
        "UPDATE day_figures_mark SET position = position - 1",
        "UPDATE day_figures_mark SET position = position + 1000",
        // A day closes with its act.
        "DELETE FROM open_days",
        "UPDATE denied_claims SET denied = denied + 1 WHERE counted_on = '2026-11-21'",
        "UPDATE denied_claims SET denied = denied - 1 WHERE counted_on = '2026-11-22'",
        "UPDATE denied_claims SET counted_on = '2026-11-22'",
        "DELETE FROM denied_claims",
        "UPDATE first_denials SET units = 2",
        "DELETE FROM first_denials",
    ] {
        refused(sql).await;
    }
    // 3. Figures that are made again are the same.
    ground.make_figures_again().await;
    assert_eq!(are_sums_of_the_entries(&app).await, days);
}
