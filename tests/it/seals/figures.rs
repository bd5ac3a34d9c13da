//! `perdiem verify` makes the figures of days again, and names a figure that somebody changed.

use chrono::TimeDelta;
use perdiem::engine::{CheckedFigures, VerifyFailure};

use super::{all_is_sealed, sealing_at_noon, verified};
use crate::http::items;
use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::record::all_is_recorded;
use crate::support::app::{Ground, Stack, eventually};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(a_changed_figure_is_named);

async fn a_changed_figure_is_named(stack: Stack) {
    // 1. A day with grants, a reversal and denials, which has closed, and a day that goes on.
    let ground = Ground::new(stack);
    let (app, clock) = sealing_at_noon(&ground).await;
    app.benefit(2, "UTC").await;
    let grant = app.claim("a", None).await.grant_id();
    app.claim("a", None).await;
    app.claim("b", None).await;
    assert_eq!(app.claim("a", None).await.status, 429);
    assert_eq!(app.reverse(&grant, "a mistake").await.status, 201);
    all_is_recorded(&app, &ground).await;
    eventually("the denial is counted", || async {
        let days = items(&app.get("/v1/stats").await);
        days.iter().any(|day| day["denied_claims"] == 1)
    })
    .await;
    are_sums_of_the_entries(&app).await;
    clock.advance(TimeDelta::days(1));
    eventually("the figures of the day are in the record", || async {
        items(&app.get("/v1/changes?kind=day").await).len() == 1
    })
    .await;
    app.claim("a", None).await;
    all_is_recorded(&app, &ground).await;
    are_sums_of_the_entries(&app).await;
    all_is_sealed(&app, &ground).await;
    drop(app);
    let figures = verified(&ground, None).await.expect("nothing differs");
    assert_eq!(
        figures.figures,
        CheckedFigures {
            days: 2,
            recorded: 1
        }
    );
    // 2. Each change by hand is found, and taken back.
    ground.open_the_figures().await;
    let mut database = Direct::to(&ground).await;
    let of = |figure: &str| format!("counted_on = '2026-11-21' AND figure = '{figure}'");
    let set = |figure: &str, value: u64| {
        format!(
            "UPDATE day_figures SET value = {value} WHERE {}",
            of(figure)
        )
    };
    let add = |figure: &str, value: u64| {
        format!(
            "INSERT INTO day_figures (policy, counted_on, recorded_on, figure, value)
             SELECT policy, counted_on, recorded_on, '{figure}', {value} FROM day_figures
             WHERE {}",
            of("grants")
        )
    };
    let delete = |figure: &str| format!("DELETE FROM day_figures WHERE {}", of(figure));
    let deny = |claims: u64| format!("UPDATE denied_claims SET denied = {claims}");
    for (what, change, back) in [
        ("units", set("units", 2), set("units", 3)),
        (
            "reversed_units",
            delete("reversed_units"),
            add("reversed_units", 1),
        ),
        (
            "lapsed_units",
            add("lapsed_units", 7),
            delete("lapsed_units"),
        ),
        ("denied_claims", deny(0), deny(1)),
    ] {
        assert_eq!(database.execute(&change, &change).await, 1, "{change}");
        match verified(&ground, None).await {
            Err(VerifyFailure::Differs(told)) => {
                let place = format!("the figure {what} of benefit on 2026-11-21");
                assert!(told.contains(&place), "{told}");
            }
            other => panic!("{change}: {other:?}"),
        }
        assert_eq!(database.execute(&back, &back).await, 1, "{back}");
        verified(&ground, None).await.expect("nothing differs");
    }
}
