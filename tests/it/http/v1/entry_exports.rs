//! `/v1/entries/export`: files of entries that can be checked, and exported again byte for byte.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::http::v1::keys::{make_role, with};
use crate::http::{all_items, invalid_places, items, problem, replace};
use crate::support::app::{Answer, App, Stack, eventually};
use crate::support::desk::on_every_store;

on_every_store!(
    files_equal_the_list,
    the_same_position_gives_the_same_bytes,
    an_export_goes_on_after_a_row,
    each_export_is_recorded_first,
);

const COLUMNS: &str = "position,recorded_at,policy,subject,counted_on,number,id,kind,units,at,\
    counted_at,held_until,grant,per,by,reason,policy_version,crossed,limits,key_id,key_name,metadata,bundle,own_time_zone,\
    anchor,topped_up_units,top_up,top_up_until";

/// The rows of an export as bytes, and the manifest.
struct Exported {
    rows: String,
    manifest: Value,
}

async fn export(app: &App, format: &str, query: &str) -> Exported {
    let path = format!("/v1/entries/export?format={format}&{query}");
    let answer = app.get(&path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let link = answer.header("link").expect("a link");
    let url = link.split(['<', '>']).nth(1).expect("a URL").to_owned();
    let manifest = app.get(&url).await.is(200);
    let as_of = answer.header("perdiem-as-of").expect("a position");
    assert_eq!(as_of, manifest["as_of"].to_string());
    let mut rows = answer.text;
    if format == "ndjson" {
        let begin = rows.trim_end().rfind('\n').map_or(0, |end| end + 1);
        let last: Value = serde_json::from_str(&rows[begin..]).expect("JSON");
        assert_eq!(last, json!({ "manifest": manifest }));
        rows.truncate(begin);
    }
    assert_eq!(manifest["sha256"], sha256(&rows), "{query}");
    Exported { rows, manifest }
}

fn sha256(text: &str) -> String {
    let hash = Sha256::digest(text);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lines(ndjson: &str) -> Vec<Value> {
    let lines = ndjson.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// Waits until this number of entries has positions.
async fn recorded(app: &App, count: usize) {
    eventually("the entries have positions", || async {
        all_items(app, "/v1/entries?limit=1000").await.len() == count
    })
    .await;
}

/// Two policies, unusual subjects, and one entry or more of each kind except confirmations.
async fn history(stack: Stack) -> (App, chrono::DateTime<chrono::Utc>) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(9, "Asia/Shanghai").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
    app.put_policy("sms", rule).await;
    let shop = make_role(&app, "claim", None).await;
    for subject in [
        "0012345",
        "1e10",
        "+8613800138000",
        "=1+1",
        "a,\"b\"",
        "ä/😀",
    ] {
        let body = json!({ "subject": subject, "metadata": { "note": "a,\"b\"\r\nc" } });
        let claims = "/v1/policies/benefit/claims";
        let claim = with(&app, &shop.secret, Method::POST, claims).json(&body);
        assert_eq!(Answer::of(claim).await.status, 201);
    }
    let body = json!({ "subject": "h", "units": 2, "hold_seconds": 60 });
    assert_eq!(app.claim_body(body, None).await.status, 201);
    let claimed = app
        .claim_under("sms", json!({ "subject": "a" }), None)
        .await;
    app.reverse(&claimed.grant_id(), "no, \"no\"\r\nno")
        .await
        .is(201);
    let body = json!({ "units": 5, "at": "2020-02-29T16:30:00Z", "reason": "opening" });
    app.adjust("c", body, None).await.is(201);
    app.reset("h", Some("day"), None).await.is(201);
    clock.advance(TimeDelta::minutes(2));
    // The lapse of the hold is recorded before this claim.
    app.claim("h", None).await.is(201);
    recorded(&app, 13).await;
    (app, perdiem::host::clock::Clock::Manual(clock).now())
}

async fn files_equal_the_list(stack: Stack) {
    let (app, now) = history(stack).await;
    let all = all_items(&app, "/v1/entries").await;
    let held = all.iter().filter(|item| item.get("held_until").is_some());
    let held: Vec<_> = held.map(|item| (&item["subject"], &item["kind"])).collect();
    assert_eq!(held, [(&json!("h"), &json!("grant"))]);
    for query in [
        "",
        "policy=benefit",
        "subject=%2B8613800138000",
        "kind=lapse",
        "kind=reset",
        "policy=benefit&on=2020-03-01",
        "policy=sms&from=2026-11-21&to=2026-11-22",
        "by=PERDIEM_ADMIN_KEY&after=3",
        "subject=nobody",
    ] {
        let mut list = all_items(&app, &format!("/v1/entries?{query}")).await;
        // The manifest has the zones.
        for item in &mut list {
            let zone = if item["policy"] == "sms" {
                "UTC"
            } else {
                "Asia/Shanghai"
            };
            let told = item.as_object_mut().expect("an item").remove("time_zone");
            assert_eq!(told, Some(json!(zone)));
        }
        let Exported { rows, manifest } = export(&app, "ndjson", query).await;
        assert_eq!(lines(&rows), list, "{query}");
        is_of(&manifest, &list);
        assert_eq!(manifest["exported_by"], "PERDIEM_ADMIN_KEY");
        assert_eq!(manifest["exported_at"], json!(now));

        let Exported { rows, manifest } = export(&app, "csv", query).await;
        is_of(&manifest, &list);
        let header = COLUMNS.replace(',', "\",\"");
        assert!(rows.starts_with(&format!("\"{header}\"\r\n")), "{rows}");
        let mut reader = csv::Reader::from_reader(rows.as_bytes());
        let records: Vec<csv::StringRecord> =
            reader.records().map(|row| row.expect("a row")).collect();
        assert_eq!(records.len(), list.len());
        for (row, item) in records.iter().zip(&list) {
            for (name, cell) in COLUMNS.split(',').zip(row) {
                let value = match name {
                    "key_id" => &item["key"]["id"],
                    "key_name" => &item["key"]["name"],
                    "own_time_zone" => &item["calendar"]["time_zone"],
                    "anchor" => &item["calendar"]["anchor"],
                    "top_up" => &item["top_up"]["id"],
                    "top_up_until" => &item["top_up"]["until"],
                    _ => &item[name],
                };
                let written = match value {
                    Value::Null => "",
                    Value::String(text) => text,
                    other => {
                        let cell: Value = serde_json::from_str(cell).expect("JSON");
                        assert_eq!(cell, *other, "{name}");
                        continue;
                    }
                };
                assert_eq!(cell, written, "{name}");
            }
        }
    }
}

/// Checks that the manifest describes these entries.
fn is_of(manifest: &Value, list: &[Value]) {
    let units = |item: &Value| item["units"].as_i64().expect("units");
    let taken: i64 = list.iter().map(units).filter(|units| *units > 0).sum();
    let given_back: i64 = list.iter().map(units).filter(|units| *units < 0).sum();
    assert_eq!(manifest["units_taken"], taken);
    assert_eq!(manifest["units_given_back"], -given_back);
    let position = |item: Option<&Value>| item.map_or(Value::Null, |it| it["position"].clone());
    assert_eq!(manifest["first_position"], position(list.first()));
    assert_eq!(manifest["last_position"], position(list.last()));
    let count = |kind: &Value| list.iter().filter(|item| item["kind"] == *kind).count();
    let kinds = manifest["rows"].as_object().expect("kinds");
    for item in list {
        let kind = item["kind"].as_str().expect("a kind");
        assert_eq!(kinds[kind], count(&item["kind"]), "{kind}");
    }
    let policies = manifest["policies"].as_array().expect("policies");
    for item in list {
        let is_its = |policy: &&Value| policy["policy"] == item["policy"];
        assert!(policies.iter().any(|policy| is_its(&policy)), "{item}");
    }
}

/// Later reversals, lapses, adjustments and changes of the zone do not change the file.
async fn the_same_position_gives_the_same_bytes(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(9, "Asia/Shanghai").await;
    let grant = app.claim("a", None).await.grant_id();
    let body = json!({ "subject": "h", "hold_seconds": 60 });
    app.claim_body(body, None).await.is(201);
    recorded(&app, 2).await;
    let query = "policy=benefit&from=2026-11-01&to=2026-12-01";
    let first = export(&app, "csv", query).await;
    let then = format!("{query}&as_of={}", first.manifest["as_of"]);
    let ndjson = export(&app, "ndjson", &then).await;

    app.reverse(&grant, "a test").await.is(201);
    clock.advance(TimeDelta::minutes(2));
    app.claim("h", None).await.is(201);
    let body = json!({ "units": 5, "at": "2026-11-20T16:30:00Z", "reason": "opening" });
    app.adjust("a", body, None).await.is(201);
    replace(&app, json!({ "time_zone": "America/New_York" })).await;
    recorded(&app, 6).await;

    let again = export(&app, "csv", &then).await;
    assert_eq!(again.rows, first.rows);
    assert_eq!(again.manifest["sha256"], first.manifest["sha256"]);
    assert_eq!(again.manifest["policies"], first.manifest["policies"]);
    assert_eq!(export(&app, "ndjson", &then).await.rows, ndjson.rows);
    // The change of the zone has a position of its own, after those of the entries.
    eventually("the change has a position", || async {
        let now = export(&app, "csv", query).await;
        assert_ne!(now.manifest["sha256"], first.manifest["sha256"]);
        let policies = now.manifest["policies"]
            .as_array()
            .expect("policies")
            .iter();
        let zones: Vec<&Value> = policies.map(|policy| &policy["time_zone"]).collect();
        zones == ["Asia/Shanghai", "America/New_York"]
    })
    .await;
}

async fn an_export_goes_on_after_a_row(stack: Stack) {
    let (app, _) = history(stack).await;
    let whole = export(&app, "ndjson", "policy=benefit").await;
    let as_of = &whole.manifest["as_of"];
    let rows: Vec<&str> = whole.rows.split_inclusive('\n').collect();
    for (index, row) in lines(&whole.rows).iter().enumerate() {
        let query = format!("policy=benefit&as_of={as_of}&after={}", row["position"]);
        let rest = export(&app, "ndjson", &query).await;
        assert_eq!(rest.rows, rows[index + 1..].concat());
    }
}

async fn each_export_is_recorded_first(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(9, "UTC").await;
    let clerk = make_role(&app, "audit", Some("benefit")).await;
    app.claim("a", None).await;
    recorded(&app, 1).await;
    clock.advance(TimeDelta::hours(1));
    let path = "/v1/entries/export?format=ndjson&policy=benefit&subject=a";
    let exported = Answer::of(with(&app, &clerk.secret, Method::GET, path)).await;
    assert_eq!(exported.status, 200);
    let manifest = &lines(&exported.text)[1]["manifest"];
    assert_eq!(manifest["exported_by"], *clerk.id);
    assert_eq!(manifest["key"]["id"], *clerk.id);
    let changes = items(&app.get("/v1/changes?kind=export").await);
    assert_eq!(changes.len(), 1, "{changes:?}");
    let change = &changes[0];
    for (field, value) in [
        ("revision", &manifest["revision"]),
        ("at", &manifest["exported_at"]),
        ("by", &manifest["exported_by"]),
        ("before", &Value::Null),
        ("policy", &Value::Null),
    ] {
        assert_eq!(&change[field], value, "{field}");
    }
    let about = json!({
        "format": "ndjson",
        "as_of": manifest["as_of"],
        "filters": { "policy": "benefit", "subject": "a" },
    });
    assert_eq!(change["after"], about);
    // The act also has a position.
    let as_of = manifest["as_of"].as_u64().expect("a position");
    eventually("the act has a position", || async {
        let newest = app.get("/v1/entries").await.json();
        newest["as_of"].as_u64() > Some(as_of)
    })
    .await;
    // An export that is refused is not recorded.
    app.get("/v1/entries/export?format=csv&as_of=99").await;
    app.get("/v1/entries/export?format=csv&policy=nothing")
        .await;
    assert_eq!(items(&app.get("/v1/changes?kind=export").await), changes);

    let url = format!("/v1/exports/{}", manifest["revision"]);
    let by =
        async |secret: &str, path: &str| Answer::of(with(&app, secret, Method::GET, path)).await;
    assert_eq!(by(&clerk.secret, &url).await.is(200), *manifest);
    let body = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
    app.put_policy("other", body).await;
    for filter in ["", "&policy=other"] {
        let path = format!("/v1/entries/export?format=csv{filter}");
        let others = app.get(&path).await;
        assert_eq!(others.status, 200);
        let link = others.header("link").expect("a link");
        let url = link.split(['<', '>']).nth(1).expect("a URL");
        problem(&by(&clerk.secret, url).await, 403, "forbidden");
    }
    let claimer = make_role(&app, "claim", None).await;
    for path in [path, &url] {
        problem(&by(&claimer.secret, path).await, 403, "forbidden");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_told_with_its_place() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    for (query, place) in [
        ("", "format"),
        ("format=xlsx", "format"),
        ("format=csv&as_of=99", "as_of"),
        ("format=csv&after=99", "after"),
        ("format=csv&kind=gift", "kind"),
        ("format=csv&on=2026-11-03", "on"),
    ] {
        let told = app.get(&format!("/v1/entries/export?{query}")).await;
        assert_eq!(invalid_places(&told), [place], "{query}");
    }
    for query in ["format=csv&wait=1", "format=csv&limit=1"] {
        let told = app.get(&format!("/v1/entries/export?{query}")).await;
        problem(&told, 400, "malformed");
    }
    // Revision 1 is the change that created the policy.
    for revision in ["1", "99"] {
        let told = app.get(&format!("/v1/exports/{revision}")).await;
        problem(&told, 404, "not-found");
    }
    assert_eq!(
        invalid_places(&app.get("/v1/exports/x").await),
        ["revision"]
    );
}
