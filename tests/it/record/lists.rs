//! Lists of a ledger that is too long for one page's reading. An index finds the entries of some filters;
//! for others a page reads some positions, whatever they have.

use perdiem::domain::kind::KindWord;
use perdiem::host::clock::ManualClock;
use serde_json::{Value, json};

use super::all_is_recorded;
use crate::http::all_items;
use crate::support::app::{App, Ground, Stack, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(pages_go_on_until_the_list_ends);

/// More than a page reads, and more than an index may find.
const MANY: usize = 18_000;
const A_TRANSACTION: usize = 1000;

/// A filter, and which items it fits.
type ListCase<'a> = (&'a str, &'a dyn Fn(&Value) -> bool);

/// Appends grants like the first one of `member`, to its account.
async fn append_many(ground: &Ground) {
    let mut direct = Direct::to(ground).await;
    let columns = "at, units, policy, policy_version, claimed_by, kind, flags, account, key, lapses_at, totals";
    for first in (1..=MANY).step_by(A_TRANSACTION) {
        let last = first + A_TRANSACTION - 1;
        let of = "e.number = 1 AND e.account = (SELECT id FROM accounts WHERE subject = 'member')";
        let postgres = format!(
            "INSERT INTO entries (number, id, {columns})
             SELECT i + 1, (left(e.id::text, 24) || lpad(to_hex(i), 12, '0'))::uuid, {columns}
             FROM (SELECT * FROM entries AS e WHERE {of}) AS e
             CROSS JOIN generate_series({first}, {last}) AS i"
        );
        let sqlite = format!(
            "WITH RECURSIVE s (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM s WHERE i < {last})
             INSERT INTO entries (number, id, {columns})
             SELECT i + 1, CAST(substr(e.id, 1, 10) || unhex(printf('%012x', i)) AS blob), {columns}
             FROM s CROSS JOIN (SELECT * FROM entries AS e WHERE {of}) AS e"
        );
        direct.execute(&postgres, &sqlite).await;
    }
}

/// Compares lists with the items of the whole list that fit.
async fn lists_fit(app: &App, list: &str, all: &[Value], cases: &[ListCase<'_>]) {
    for (filter, fits) in cases {
        let expected: Vec<&Value> = all.iter().filter(|item| fits(item)).collect();
        let found = all_items(app, &format!("/v1/{list}?{filter}&limit=1000")).await;
        let found: Vec<&Value> = found.iter().collect();
        assert!(
            found == expected,
            "{list} {filter}: {} of {}",
            found.len(),
            expected.len()
        );
    }
}

async fn pages_go_on_until_the_list_ends(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant("2026-11-20T12:00:00Z"));
    let app = App::start_with(&ground, |options| {
        options.clock = perdiem::host::clock::Clock::Manual(clock.clone());
    })
    .await;
    app.benefit(1_000_000, "UTC").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
    app.put_policy("rare", rule).await;
    let claim_both = async |key: &str| {
        let body = json!({ "subject": "few", "units": 2, "metadata": { "order": key } });
        let grant = app.claim_body(body.clone(), None).await.grant_id();
        app.claim_under("rare", body, None).await.is(201);
        grant
    };
    let first = claim_both("A-1").await;
    app.claim("member", None).await.is(201);
    append_many(&ground).await;
    clock.advance(chrono::TimeDelta::days(1));
    let second = claim_both("A-2").await;
    app.reverse(&first, "a test").await.is(201);
    app.reverse_units(&second, 1, "a test", "once").await;
    app.adjust("few", json!({ "units": 2, "reason": "a test" }), None)
        .await;
    all_is_recorded(&app, &ground).await;

    let all = all_items(&app, "/v1/entries?limit=1000").await;
    assert_eq!(all.len(), MANY + 8);
    let positions = all.iter().map(|entry| entry["position"].as_u64());
    assert!(
        positions.is_sorted(),
        "the list is in the order of the record"
    );
    let filters: &[ListCase] = &[
        ("policy=rare", &|it| it["policy"] == "rare"),
        ("policy=rare&on=2026-11-21", &|it| {
            it["policy"] == "rare" && it["counted_on"] == "2026-11-21"
        }),
        ("subject=few", &|it| it["subject"] == "few"),
        ("subject=member", &|it| it["subject"] == "member"),
        ("subject=few&kind=grant", &|it| {
            it["subject"] == "few" && it["kind"] == "grant"
        }),
        ("kind=confirmation", &|it| it["kind"] == "confirmation"),
        ("kind=reversal", &|it| it["kind"] == "reversal"),
        ("kind=partial_reversal", &|it| {
            it["kind"] == "partial_reversal"
        }),
        ("kind=adjustment", &|it| it["kind"] == "adjustment"),
        ("kind=lapse", &|_| false),
        ("kind=reset", &|it| it["kind"] == "reset"),
        ("kind=calendar", &|_| false),
        ("kind=top_up", &|_| false),
        ("kind=top_up_reversal", &|_| false),
        ("policy=benefit&on=2026-11-20", &|it| {
            it["policy"] == "benefit" && it["counted_on"] == "2026-11-20"
        }),
        ("policy=benefit&on=2026-11-20&metadata.order=A-1", &|it| {
            it["policy"] == "benefit" && it["metadata"]["order"] == "A-1"
        }),
        ("policy=benefit&on=2026-11-21", &|it| {
            it["policy"] == "benefit" && it["counted_on"] == "2026-11-21"
        }),
        ("from=2026-11-21T00:00:00Z", &|it| {
            it["counted_on"] == "2026-11-21"
        }),
    ];
    for word in KindWord::ALL {
        let ending = format!("kind={}", word.as_str());
        let is_tried = filters.iter().any(|(query, _)| query.ends_with(&ending));
        assert!(is_tried, "no filter has {ending}");
    }
    lists_fit(&app, "entries", &all, filters).await;

    let grants: Vec<Value> = all_items(&app, "/v1/grants?limit=1000").await;
    assert_eq!(grants.len(), MANY + 5);
    let filters: &[ListCase] = &[
        ("policy=rare", &|it| it["policy"] == "rare"),
        ("subject=few", &|it| it["subject"] == "few"),
        ("state=reversed", &|it| it["state"] == "reversed"),
        ("policy=benefit&state=granted", &|it| {
            it["policy"] == "benefit" && it["state"] == "granted"
        }),
        ("policy=benefit&on=2026-11-20&metadata.order=A-1", &|it| {
            it["policy"] == "benefit" && it["metadata"]["order"] == "A-1"
        }),
        ("state=held", &|_| false),
        ("would_deny=true", &|_| false),
    ];
    lists_fit(&app, "grants", &grants, filters).await;
    // The export has the same entries.
    let export = app
        .get("/v1/entries/export?format=ndjson&policy=benefit&on=2026-11-20")
        .await;
    let day = all
        .iter()
        .filter(|it| it["policy"] == "benefit" && it["counted_on"] == "2026-11-20");
    let rows = export
        .text
        .lines()
        .filter(|line| line.contains("\"position\""));
    assert_eq!(rows.count(), day.count());
}
