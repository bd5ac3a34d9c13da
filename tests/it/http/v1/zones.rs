//! After a change of a policy's time zone, each row says the version and the zone that it was lived in.

use serde_json::{Value, json};

use crate::http::{all_items, items, replace};
use crate::support::app::{App, Stack, eventually};
use crate::support::desk::on_every_store;
use crate::support::terminal::Said;

on_every_store!(rows_say_the_zone_that_they_were_lived_in);

/// These members of some items.
fn members<const N: usize>(items: &[Value], names: [&str; N]) -> Vec<[Value; N]> {
    let member = |item: &Value| names.map(|name| item[name].clone());
    items.iter().map(member).collect()
}

/// 11:04 on the 21st in Shanghai, and 22:04 on the 20th in New York.
async fn rows_say_the_zone_that_they_were_lived_in(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await.is(201);
    let first = app.claim("a", None).await.grant_id();
    clock.advance(chrono::TimeDelta::seconds(1));
    replace(&app, json!({ "time_zone": "GMT-5" })).await;
    let second = app.claim("a", None).await.grant_id();
    app.reverse(&first, "a mistake").await.is(201);
    eventually("the entries have positions", || async {
        items(&app.get("/v1/entries").await).len() == 3
    })
    .await;
    let old = json!("+08:00");
    let new = json!("-05:00");
    let day = json!("2026-11-21");
    // The reversal was entered under the second version, and counts where its grant does.
    let rows = all_items(&app, "/v1/entries?limit=1").await;
    let told = members(&rows, ["policy_version", "time_zone", "counted_on"]);
    let expected = [
        [json!(1), old.clone(), day.clone()],
        [json!(2), new.clone(), day.clone()],
        [json!(2), old.clone(), day.clone()],
    ];
    assert_eq!(told, expected);
    let rows = all_items(&app, "/v1/policies/benefit/subjects/a/entries").await;
    let told = members(&rows, ["number", "time_zone"]);
    let expected = [(3, &old), (2, &new), (1, &old)];
    assert_eq!(
        told,
        expected.map(|(number, zone)| [json!(number), zone.clone()])
    );
    // The day of the change has 37 hours, and the windows of both calendars.
    let span = "from=2026-11-20T16:00:00Z&to=2026-11-22T05:00:00Z";
    let windows = all_items(&app, &format!("/v1/policies/benefit/windows?{span}")).await;
    let told = members(
        &windows,
        ["start", "local_date", "policy_version", "time_zone"],
    );
    let window = |start: &str, date: &str, version: u32, zone: &Value| {
        [json!(start), json!(date), json!(version), zone.clone()]
    };
    let expected = [
        window("2026-11-20T16:00:00Z", "2026-11-21", 1, &old),
        window("2026-11-20T05:00:00Z", "2026-11-20", 2, &new),
        window("2026-11-21T05:00:00Z", "2026-11-21", 2, &new),
    ];
    assert_eq!(told, expected);
    eventually("the figures are made", || async {
        let days = items(&app.get("/v1/stats?policy=benefit").await);
        let told = members(&days, ["date", "starts_at", "ends_at", "grants"]);
        let ends = ["2026-11-20T16:00:00Z", "2026-11-22T05:00:00Z"].map(Value::from);
        let [starts_at, ends_at] = ends;
        told == [[day.clone(), starts_at, ends_at, json!(2)]]
    })
    .await;
    // An explanation: the entries behind a limit, and the corrections since.
    let explained = app.get(&format!("/v1/grants/{second}/explanation")).await;
    let explained = explained.is(200);
    let names = ["policy_version", "time_zone"];
    let entry = members(&[explained["entry"].clone()], names);
    assert_eq!(entry, [[json!(2), new.clone()]]);
    let behind = explained["limits"][0]["entries"]
        .as_array()
        .expect("entries");
    assert_eq!(members(behind, names), [[json!(1), old.clone()]]);
    let explained = app.get(&format!("/v1/grants/{first}/explanation")).await;
    let since = explained.is(200)["since"].clone();
    let since = since.as_array().expect("entries");
    assert_eq!(members(since, names), [[json!(2), old.clone()]]);
    // The bytes of exports stay: they have the zones in the manifest alone.
    for path in ["/v1/entries/export", "/v1/grants/export"] {
        let export = app.get(&format!("{path}?format=ndjson")).await.text;
        let rows = export
            .lines()
            .filter(|line| !line.starts_with("{\"manifest\""));
        let rows: Vec<&str> = rows.collect();
        assert!(!rows.is_empty());
        assert!(
            rows.iter().all(|row| !row.contains("time_zone")),
            "{rows:?}"
        );
    }
    // The command line shows each entry in its own zone.
    let said = Said::by(&app, &["entries", "benefit"]).await.well(0);
    let offsets = said.lines().map(|line| line.contains("+08:00"));
    assert_eq!(
        offsets.collect::<Vec<bool>>(),
        [true, false, true],
        "{said}"
    );
}
