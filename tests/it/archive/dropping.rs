//! Archived entries can be dropped, and everything else stays correct.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use chrono::TimeDelta;
use perdiem::domain::policy::PolicyId;
use perdiem::domain::record::RecordPlace;
use perdiem::engine::{
    ArchiveOrder, DroppedArchive, compare_archive, drop_archived, restart_seals,
};
use perdiem::ledger::{DropCursor, DropScope};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Archivist, serving};
use crate::http::{items, problem};
use crate::seals::{ledger, seal_key, verified, verifier};
use crate::support::app::{Answer, App, Stack, eventually, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;
use crate::support::operations::every_read_is_tried;

on_every_store!(
    what_is_dropped_is_told_and_all_else_goes_on,
    figures_and_lists_stay_right,
    every_read_knows_what_was_dropped,
    the_next_drop_goes_on,
    an_interrupted_drop_goes_on,
    a_bundle_without_its_entries_is_told,
    erasures_go_on_beside_cuts,
);

/// The instant of the oldest entries.
pub const YEAR_ONE: &str = "2023-01-05T10:00:00Z";
/// The instant of the later entries.
pub const YEAR_TWO: &str = "2024-06-01T10:00:00Z";
/// The instant of the first drop, which drops entries that were recorded before [`NEW_YEAR`].
pub const YEAR_THREE: &str = "2025-07-01T10:00:00Z";
pub const NEW_YEAR: &str = "2024-01-01T00:00:00Z";

/// Waits until the newest seal has all positions.
pub async fn is_sealed(archivist: &Archivist) {
    eventually("everything is sealed", || async {
        let count =
            "SELECT CAST((SELECT count(*) FROM entries) + (SELECT count(*) FROM dropped_entries)
            + (SELECT revision FROM ledger) AS text)";
        let all = Direct::to(&archivist.ground).await.texts(count).await;
        let latest = archivist.app.get("/v1/seals/latest").await;
        let all: u64 = all[0].parse().expect("a number");
        latest.status == 200 && latest.json()["size"] == all
    })
    .await;
}

pub async fn figures_are_made(archivist: &Archivist) {
    eventually("the figures are made", || async {
        let sql = "SELECT CAST((SELECT max(position) FROM record_marks)
            - (SELECT position FROM day_figures_mark) AS text)";
        Direct::to(&archivist.ground).await.texts(sql).await == ["0"]
    })
    .await;
}

/// How many rows a table has.
pub async fn rows(archivist: &Archivist, table: &str) -> u64 {
    let sql = format!("SELECT CAST(count(*) AS text) FROM {table}");
    let count = Direct::to(&archivist.ground).await.texts(&sql).await;
    count[0].parse().expect("a number")
}

/// A ledger with entries of three years, and the ids of member 1's grants.
pub async fn with_years(stack: Stack) -> (Archivist, Vec<String>) {
    let archivist = Archivist::at(stack, YEAR_ONE).await;
    let app = &archivist.app;
    let rule = json!({
        "time_zone": "UTC",
        "limits": [{ "max": 9, "per": "day" }, { "max": 100, "per": "year" }],
    });
    app.put_policy("benefit", rule).await.is(201);
    let mut grants = vec![app.claim("member-1", Some("old-key")).await.grant_id()];
    for _ in 0..2 {
        let body = json!({ "subject": "member-1", "metadata": { "order": "B" } });
        grants.push(app.claim_body(body, None).await.grant_id());
    }
    app.claim("member-2", None).await.is(201);
    let reversed = app.claim("member-3", None).await.grant_id();
    app.reverse(&reversed, "a mistake").await.is(201);
    let adjustment = json!({ "units": 2, "reason": "by hand" });
    app.adjust("member-3", adjustment, None).await.is(201);
    app.claim("member-4", None).await.is(201);
    let hold = json!({ "subject": "member-4", "hold_seconds": 600 });
    app.claim_body(hold, None).await.is(201);
    app.claim("member-4", None).await.is(201);
    is_sealed(&archivist).await;
    archivist.clock.set(instant(YEAR_TWO));
    grants.push(archivist.app.claim("member-1", None).await.grant_id());
    is_sealed(&archivist).await;
    archivist.clock.set(instant(YEAR_THREE));
    // The record's clock is its newest position.
    archivist.app.override_day("member-9", 9).await;
    is_sealed(&archivist).await;
    figures_are_made(&archivist).await;
    (archivist, grants)
}

/// The last position that was recorded in the first year.
async fn last_of_year_one(archivist: &Archivist) -> u64 {
    let ledger = ledger(&archivist.ground).await;
    let mark = ledger
        .record()
        .mark_before(instant(NEW_YEAR))
        .await
        .expect("a mark");
    ledger.close().await;
    mark.position
}

pub async fn reconciled(app: &App) -> Value {
    let request = app.request(Method::POST, "/v1/reconciliations");
    let report = Answer::of(request.json(&json!({ "apply": false }))).await;
    report.is(201)
}

async fn is_archived(answer: Answer) {
    problem(&answer, 410, "archived");
}

async fn what_is_dropped_is_told_and_all_else_goes_on(stack: Stack) {
    let (archivist, grants) = with_years(stack).await;
    let app = &archivist.app;
    let last = last_of_year_one(&archivist).await;
    let dropped = archivist
        .drop_before(NEW_YEAR)
        .await
        .expect("the drop succeeds");
    // Three kinds of entries are kept: the last of member 1's three, the last of member 3's three,
    // and member 4's open hold with the entries after it.
    assert_eq!((dropped.entries, dropped.kept, dropped.last), (5, 5, last));
    assert_eq!(rows(&archivist, "dropped_entries").await, 5);
    assert_eq!(rows(&archivist, "cuts").await, 3);
    is_sealed(&archivist).await;
    verified(&archivist.ground, None).await.expect("valid");
    let report = reconciled(app).await;
    assert_eq!(report["alarm_count"], 0, "{report}");
    // The archive is correct alone, and with the ledger.
    let checked = archivist.check().await.expect("valid");
    let beside = ledger(&archivist.ground).await;
    let compared = compare_archive(&beside, &archivist.folder, &checked, |_, _| ()).await;
    compared.expect("the same");
    beside.close().await;
    // A request for a dropped grant, or for anything that needs it, says that the grant was
    // dropped.
    let gone = &grants[0];
    for path in ["", "/explanation", "/proof"] {
        is_archived(app.get(&format!("/v1/grants/{gone}{path}")).await).await;
    }
    is_archived(app.reverse(gone, "too late").await).await;
    is_archived(app.confirm(gone).await).await;
    is_archived(
        app.get(&format!("/v1/grants/{}/explanation", grants[2]))
            .await,
    )
    .await;
    let at = "/v1/policies/benefit/subjects/member-1?at=2023-01-05T10:00:00Z";
    is_archived(app.get(at).await).await;
    let late = json!({ "units": 1, "reason": "by hand", "at": "2023-01-05T10:00:00Z" });
    is_archived(app.adjust("member-1", late.clone(), None).await).await;
    app.adjust("member-2", late, None).await.is(201);
    // The kept grants are found.
    for id in &grants[2..] {
        app.get(&format!("/v1/grants/{id}")).await.is(200);
        app.get(&format!("/v1/grants/{id}/proof")).await;
    }
    app.get(&format!("/v1/grants/{}/explanation", grants[3]))
        .await
        .is(200);
    app.reverse(&grants[2], "late, and right").await.is(201);
    // Claims continue, also under another calendar. A key of a dropped grant has no effect any
    // more.
    let zone = json!({
        "time_zone": "Asia/Shanghai",
        "limits": [{ "max": 2, "per": "day" }, { "max": 100, "per": "year" }],
        "reason": "a move",
    });
    app.put_policy("benefit", zone).await;
    let again = app.claim("member-1", Some("old-key")).await;
    assert_ne!(&again.grant_id(), gone);
    app.claim("member-1", None).await.is(201);
    app.claim("member-1", None).await.is(429);
    app.claim("member-4", None).await.is(201);
    let report = reconciled(app).await;
    assert_eq!(report["alarm_count"], 0, "{report}");
    is_sealed(&archivist).await;
    verified(&archivist.ground, None).await.expect("valid");
    // A new limit that needs the dropped entries decides only accounts that lost none.
    let ever = json!({
        "time_zone": "Asia/Shanghai",
        "limits": [{ "max": 100, "per": "ever" }],
        "orphaned_overrides": "drop",
        "reason": "once only",
    });
    app.put_policy("benefit", ever).await.is(200);
    is_archived(app.claim("member-1", None).await).await;
    let atomic =
        json!({ "atomic": true, "claims": [{ "policy": "benefit", "subject": "member-1" }] });
    is_archived(app.ask("POST /v1/claims", atomic).await).await;
    app.claim("member-9", None).await.is(201);
    // The act of the cut is among the changes.
    let changes = items(&app.get("/v1/changes?kind=cut").await);
    let [cut] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(cut["after"]["last_position"], last);
    assert_eq!(cut["after"]["kept_entries"], 5);
}

async fn figures_and_lists_stay_right(stack: Stack) {
    let (archivist, _) = with_years(stack).await;
    let app = &archivist.app;
    let last = last_of_year_one(&archivist).await;
    let stats = "/v1/stats?policy=benefit&from=2023-01-01&to=2024-12-31";
    let before = app.get(stats).await.json()["items"].clone();
    assert_ne!(before, json!([]));
    archivist
        .drop_before(NEW_YEAR)
        .await
        .expect("the drop succeeds");
    assert_eq!(app.get(stats).await.json()["items"], before);
    // Figures whose entries are dropped cannot be deleted. Other figures can be made again.
    let mut direct = Direct::to(&archivist.ground).await;
    let all = "DELETE FROM day_figures";
    direct
        .try_execute(all, all)
        .await
        .expect_err("the figures cannot be deleted");
    archivist.ground.make_figures_again().await;
    figures_are_made(&archivist).await;
    eventually("the figures are those from before", || async {
        app.get(stats).await.json()["items"] == before
    })
    .await;
    // A list that may lack entries says so. Positions stay.
    for list in [
        "/v1/entries".to_owned(),
        "/v1/entries?subject=member-1&policy=benefit".to_owned(),
        format!("/v1/entries?after={}", last - 1),
        format!("/v1/entries?as_of={}", last - 1),
        "/v1/entries?policy=benefit&on=2023-01-05".to_owned(),
        "/v1/entries/export?format=ndjson".to_owned(),
        "/v1/grants/export?format=ndjson".to_owned(),
    ] {
        let answer = app.get(&list).await;
        assert_eq!(answer.status, 410, "{list}: {answer:?}");
        assert!(answer.text.contains(&format!("after={last}")), "{answer:?}");
    }
    for list in [
        "/v1/entries?subject=member-2&policy=benefit".to_owned(),
        format!("/v1/entries?after={last}"),
        "/v1/entries?policy=benefit&from=2024-01-03".to_owned(),
        "/v1/grants?policy=benefit&from=2024-01-03".to_owned(),
    ] {
        let listed = items(&app.get(&list).await);
        assert_eq!(listed.len(), 1, "{list}: {listed:?}");
    }
    let feed = items(&app.get(&format!("/v1/entries?after={last}")).await);
    assert!(feed[0]["position"].as_u64() > Some(last));
    let draft = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    let body = json!({ "policy": draft, "from": "2023-01-01", "to": "2023-02-01" });
    is_archived(app.ask("POST /v1/policies/benefit/backtest", body).await).await;
}

async fn every_read_knows_what_was_dropped(stack: Stack) {
    let (archivist, grants) = with_years(stack).await;
    let app = &archivist.app;
    let export = app.get("/v1/entries/export?format=csv").await;
    let manifest = export.header("link").expect("a link");
    let manifest = manifest.split(['<', '>']).nth(1).expect("a URL");
    archivist
        .drop_before(NEW_YEAR)
        .await
        .expect("the drop succeeds");
    is_sealed(&archivist).await;
    let subject = "/v1/policies/benefit/subjects/member-1";
    let grant = format!("/v1/grants/{}", grants[0]);
    let change = items(&app.get("/v1/changes?kind=override").await)[0]["revision"].clone();
    let tried = [
        (subject.to_owned(), 200),
        (format!("{subject}?at=2023-01-05T10:00:00Z"), 410),
        // The numbers of the entries show what is missing.
        (format!("{subject}/entries"), 200),
        (format!("{subject}/denials"), 200),
        ("/v1/policies/benefit/overrides/member-9".to_owned(), 200),
        ("/v1/policies/benefit/blocks/member-9".to_owned(), 404),
        ("/v1/policies/benefit/tiers/member-9".to_owned(), 404),
        (
            "/v1/entries?policy=benefit&subject=member-1".to_owned(),
            410,
        ),
        ("/v1/entries/export?format=csv".to_owned(), 410),
        (manifest.to_owned(), 410),
        ("/v1/grants?policy=benefit&subject=member-1".to_owned(), 200),
        ("/v1/grants/export?format=csv".to_owned(), 410),
        (grant.clone(), 410),
        // Of bundles there is a test of their own.
        (grant.replace("grants", "bundles"), 404),
        (format!("{grant}/explanation"), 410),
        (format!("{grant}/proof"), 410),
        ("/v1/subjects/member-1".to_owned(), 200),
        ("/v1/changes?subject=member-9".to_owned(), 200),
        (format!("/v1/changes/{change}/proof"), 200),
    ];
    for (path, status) in &tried {
        let answer = app.get(path).await;
        assert_eq!(answer.status, *status, "{path}: {answer:?}");
    }
    every_read_is_tried(&tried.map(|(path, _)| path), |_| true);
}

async fn a_bundle_without_its_entries_is_told(stack: Stack) {
    let archivist = Archivist::at(stack, YEAR_ONE).await;
    let app = &archivist.app;
    app.benefit(9, "GMT+8").await;
    let together = async |subjects: [&str; 2]| {
        let claim = |subject| json!({ "policy": "benefit", "subject": subject });
        let body = json!({ "claims": subjects.map(claim), "atomic": true });
        let answer = app.ask("POST /v1/claims", body).await;
        answer.at("/bundle").as_str().expect("an id").to_owned()
    };
    let gone = together(["member-1", "member-2"]).await;
    archivist.clock.advance(TimeDelta::minutes(5));
    let half = together(["member-1", "member-3"]).await;
    together(["member-1", "member-2"]).await;
    is_sealed(&archivist).await;
    archivist.clock.set(instant(YEAR_TWO));
    let whole = together(["member-1", "member-2"]).await;
    is_sealed(&archivist).await;
    archivist.clock.set(instant(YEAR_THREE));
    app.override_day("member-9", 9).await;
    is_sealed(&archivist).await;
    figures_are_made(&archivist).await;
    let dropped = archivist.drop_before(NEW_YEAR).await;
    let dropped = dropped.expect("the drop succeeds");
    assert_eq!((dropped.entries, dropped.kept), (3, 3));
    for id in [&gone, &half] {
        is_archived(app.get(&format!("/v1/bundles/{id}")).await).await;
        let line = format!("POST /v1/bundles/{id}/reversal");
        is_archived(app.ask(&line, json!({ "reason": "too late" })).await).await;
    }
    let line = format!("POST /v1/bundles/{whole}/reversal");
    app.ask(&line, json!({ "reason": "late, and right" }))
        .await
        .is(201);
}

async fn the_next_drop_goes_on(stack: Stack) {
    let (archivist, grants) = with_years(stack).await;
    archivist
        .drop_before(NEW_YEAR)
        .await
        .expect("the drop succeeds");
    // The same drop again has nothing to do.
    let again = archivist
        .drop_before(NEW_YEAR)
        .await
        .expect("nothing to do");
    assert_eq!((again.entries, again.archived.added), (0, 0));
    archivist.clock.set(instant("2025-09-01T10:00:00Z"));
    archivist.app.claim("member-1", None).await.is(201);
    is_sealed(&archivist).await;
    figures_are_made(&archivist).await;
    let dropped = archivist.drop_before("2024-07-01T00:00:00Z").await;
    // The drop takes member 1's third grant, because the fourth is the last one of that time.
    // Member 4's hold is still open.
    assert_eq!(dropped.expect("the drop succeeds").entries, 1);
    is_archived(
        archivist
            .app
            .get(&format!("/v1/grants/{}", grants[2]))
            .await,
    )
    .await;
    is_sealed(&archivist).await;
    verified(&archivist.ground, None).await.expect("valid");
    archivist.check().await.expect("valid");
    assert_eq!(rows(&archivist, "cuts").await, 3);
    let report = reconciled(&archivist.app).await;
    assert_eq!(report["alarm_count"], 0, "{report}");
    // Another folder would lack the dropped entries.
    let mut other = archivist;
    let first = other.folder.clone();
    other.folder = first.with_file_name("other");
    let refusal = other.refusal(NEW_YEAR).await;
    assert!(refusal.contains("in an earlier archive only"), "{refusal}");
    // When seals begin again, the hashes of the dropped entries are kept.
    other.folder = first;
    let elsewhere = App::on(Stack::Sqlite).await;
    let sealer = std::mem::replace(&mut other.app, elsewhere);
    drop(sealer);
    let restarting = ledger(&other.ground).await;
    let key = seal_key();
    let first = restarting.record().marks_to_follow(1..2).await;
    let first = first.expect("marks")[0].position;
    for _ in 0..2 {
        // The first of them has only the hashes of the first mark.
        other.clock.advance(TimeDelta::minutes(1));
        let restarted = restart_seals(&restarting, &key, "a test", other.clock.now()).await;
        restarted.expect("a restart").expect("a log before");
    }
    restarting.close().await;
    // That mark is the policy alone if the record was faster than the first claim. Then no position of the
    // log was dropped, and it is valid as it is.
    match verified(&other.ground, None).await {
        Ok(early) => assert_eq!((early.sealed, first), (1, 1)),
        Err(early) => {
            let early = early.to_string();
            assert!(early.contains("have not reached the last cut"), "{early}");
            assert!(first > 1, "{early}");
        }
    }
    other.app = serving(&other.ground, &other.clock).await;
    is_sealed(&other).await;
    verified(&other.ground, None).await.expect("valid");
}

async fn an_interrupted_drop_goes_on(stack: Stack) {
    let (mut archivist, _) = with_years(stack).await;
    for member in 0..60 {
        // Only new members, so that the lines of the first year's members stay the last.
        archivist.app.claim(&format!("late-{member}"), None).await;
    }
    is_sealed(&archivist).await;
    figures_are_made(&archivist).await;
    // Nobody seals the cut: nothing is dropped.
    let elsewhere = App::on(Stack::Sqlite).await;
    drop(std::mem::replace(&mut archivist.app, elsewhere));
    let waiting = timeout(Duration::from_secs(5), archivist.drop_before(NEW_YEAR)).await;
    assert!(waiting.is_err(), "{waiting:?}");
    assert_eq!(rows(&archivist, "dropped_entries").await, 0);
    // A drop by hand is refused too.
    let revision = "(SELECT revision FROM acts WHERE kind = 'cut')";
    let note = format!(
        "INSERT INTO dropped_entries (xact, id, revision, policy) SELECT xact, id, {revision}, policy FROM entries"
    );
    let mut direct = Direct::to(&archivist.ground).await;
    direct
        .try_execute(&note, &note)
        .await
        .expect_err("the cut is not sealed");
    archivist.app = serving(&archivist.ground, &archivist.clock).await;
    is_sealed(&archivist).await;
    // The process is killed after some transactions.
    let killed = ledger(&archivist.ground).await;
    let cut = killed
        .record()
        .last_cut(RecordPlace::LAST)
        .await
        .expect("a read");
    let cut = cut.expect("a cut");
    let scope = DropScope {
        before: cut.text.before,
        end: killed
            .record()
            .mark_to(cut.text.last_position)
            .await
            .expect("a mark"),
        policies: HashSet::from([PolicyId(1)]),
    };
    let step = killed.record().drop_step(&scope, DropCursor::FIRST).await;
    let step = step.expect("a step");
    let dropped = killed
        .record()
        .drop_entries(&cut, &step)
        .await
        .expect("a drop");
    let dropped = dropped.expect("no erasure is open");
    killed.close().await;
    is_sealed(&archivist).await;
    verified(&archivist.ground, None).await.expect("valid");
    // Two drops at the same time, with two folders.
    let copy = archivist.folder.with_file_name("copy");
    fs::create_dir(&copy).expect("a folder");
    for (name, bytes) in archivist.files() {
        fs::write(copy.join(name), bytes).expect("a file");
    }
    let order = |folder| ArchiveOrder {
        folder,
        before: instant(NEW_YEAR),
        reason: None,
        key: Some(verifier()),
    };
    let one = ledger(&archivist.ground).await;
    let two = ledger(&archivist.ground).await;
    let first = order(archivist.folder.clone());
    let second = order(copy);
    let now = archivist.clock.now();
    let (first, second) = tokio::join!(
        drop_archived(&one, &first, now, |_, _| (), |_, _| ()),
        drop_archived(&two, &second, now, |_, _| (), |_, _| ()),
    );
    one.close().await;
    two.close().await;
    let entries = |dropped: Option<DroppedArchive>| dropped.expect("entries to drop").entries;
    let both =
        entries(first.expect("the drop succeeds")) + entries(second.expect("the drop succeeds"));
    assert_eq!(dropped + both, 5);
    assert_eq!(rows(&archivist, "acts WHERE kind = 'cut'").await, 1);
    is_sealed(&archivist).await;
    verified(&archivist.ground, None).await.expect("valid");
}

async fn erasures_go_on_beside_cuts(stack: Stack) {
    let (archivist, _) = with_years(stack).await;
    let app = &archivist.app;
    let erase = async |subject: &str| {
        let path = format!("/v1/subjects/{subject}/erasure");
        let body = json!({ "reason": "she asked" });
        let erased = Answer::of(app.request(Method::POST, &path).json(&body)).await;
        assert!(erased.status.is_success(), "{erased:?}");
    };
    let erasing = async || {
        eventually("the erasures have ended", || async {
            archivist.clock.advance(TimeDelta::hours(1));
            rows(&archivist, "erasing_accounts").await == 0
        })
        .await;
    };
    // One subject is erased before the archive, and one after the drop.
    erase("member-3").await;
    erasing().await;
    figures_are_made(&archivist).await;
    is_sealed(&archivist).await;
    let dropped = archivist
        .drop_before(NEW_YEAR)
        .await
        .expect("the drop succeeds");
    assert_eq!(dropped.entries, 5);
    erase("member-1").await;
    erase("member-4").await;
    erasing().await;
    is_sealed(&archivist).await;
    verified(&archivist.ground, None).await.expect("valid");
    let report = reconciled(app).await;
    assert_eq!(report["alarm_count"], 0, "{report}");
    app.claim("member-1", None).await.is(201);
}
