//! What a member of the role may write into the figures and the denials.

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;

use super::{Cast, Trier};
use crate::http::items;
use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::record::all_is_recorded;
use crate::support::app::{App, NOON, eventually, instant};

/// The service makes figures, closes days, and forgets denials. Nothing that was told changes
/// without an act.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_member_counts_only_grows() {
    let cast = Cast::migrated().await;
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_at(&cast.service, &clock).await;
    app.benefit(1, "UTC").await;
    app.claim("a", None).await.is(201);
    app.claim("a", None).await.is(429);
    all_is_recorded(&app, &cast.ground).await;
    are_sums_of_the_entries(&app).await;
    eventually("the denial is counted", || async {
        cast.execute("SELECT sum(denied) FROM denied_claims") == "1"
    })
    .await;
    clock.advance(TimeDelta::days(1));
    eventually("the figures of the day are in the record", || async {
        items(&app.get("/v1/changes?kind=day").await).len() == 1
    })
    .await;
    let mut trier = Trier::of(&cast.service).await;
    let day = "1, '2026-11-21', '2026-11-21'";
    let open = "INSERT INTO open_days VALUES (1, '2026-11-21', now(), now())";
    for (sql, code) in [
        ("DELETE FROM day_figures", "42501"),
        ("DELETE FROM denied_claims", "42501"),
        ("UPDATE first_denials SET units = 2", "42501"),
        ("UPDATE day_figures_mark SET position = 0", "P0001"),
        (
            "UPDATE day_figures_mark SET position = position + 1000",
            "P0001",
        ),
        ("UPDATE day_figures SET value = value + 1", "P0001"),
        ("UPDATE denied_claims SET denied = denied + 1", "P0001"),
        ("DELETE FROM first_denials", "P0001"),
        (
            &format!("INSERT INTO day_figures VALUES ({day}, 'lapsed_units', 1)"),
            "P0001",
        ),
        // A day that is opened for a change closes only with an act.
        (&format!("{open}; DELETE FROM open_days"), "P0001"),
        (
            &format!(
                "{open}; UPDATE day_figures SET value = 1 WHERE value > 1; DELETE FROM open_days"
            ),
            "P0001",
        ),
    ] {
        assert_eq!(trier.fault(sql).await.as_deref(), Some(code), "{sql}");
    }
    // Denials are forgotten after 30 days, and with their subject.
    clock.advance(TimeDelta::days(31));
    eventually("the first denial is forgotten", || async {
        cast.execute("SELECT count(*) FROM first_denials") == "0"
    })
    .await;
}
