//! Questions that cannot match anything, and texts that look right and mean something else: each gets an
//! answer that says what to write.

use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{encoded, problem, replace};
use crate::record::all_is_recorded;
use crate::support::app::{Answer, App, Ground, Stack};
use crate::support::command_line::command;
use crate::support::desk::on_every_store;
use crate::support::operations::specification;

on_every_store!(
    a_span_that_ends_before_it_begins_is_refused,
    a_number_that_is_not_kept_is_refused,
    a_subject_that_no_path_can_name_is_refused,
    every_csv_has_the_text_as_it_is,
);

/// The pairs of parameters that bound a span, of every route in the specification, with the form of their
/// values.
fn spans() -> Vec<(String, &'static str, &'static str, bool)> {
    let specification = specification();
    let mut spans = Vec::new();
    for (path, item) in specification["paths"].as_object().expect("paths") {
        let parameters = item["get"]["parameters"].as_array().into_iter().flatten();
        let parameters: Vec<&Value> = parameters.collect();
        for (from, to) in [("from", "to"), ("recorded_from", "recorded_to")] {
            let named = |name: &str| {
                parameters
                    .iter()
                    .find(|parameter| parameter["name"] == name)
            };
            if let (Some(parameter), Some(_)) = (named(from), named(to)) {
                let schema = parameter["schema"].to_string();
                let takes_instants = schema.contains("instant") || schema.contains("date-time");
                if !schema.contains("integer") {
                    spans.push((path.clone(), from, to, takes_instants));
                }
            }
        }
    }
    assert!(spans.len() >= 10, "{spans:?}");
    spans
}

async fn a_span_that_ends_before_it_begins_is_refused(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    app.claim("a", None).await;
    for (path, from, to, takes_instants) in spans() {
        let path = path
            .replace("{policy}", "benefit")
            .replace("{subject}", "a");
        let form = if path.ends_with("export") {
            "&format=csv"
        } else {
            ""
        };
        let policy = if path.contains("/policies/") {
            ""
        } else {
            "&policy=benefit"
        };
        let suffix = if takes_instants { "T16:00:00Z" } else { "" };
        for end in ["2026-11-05", "2026-11-03"] {
            let query =
                format!("{path}?{from}=2026-11-05{suffix}&{to}={end}{suffix}{form}{policy}");
            let told = problem(&app.get(&query).await, 422, "invalid");
            let errors = told["errors"].as_array().expect("errors");
            let names: Vec<&Value> = errors.iter().map(|error| &error["parameter"]).collect();
            assert_eq!(names, [to], "{query}: {told}");
            assert!(told.to_string().contains("write"), "{told}");
        }
        let query =
            format!("{path}?{from}=2026-11-05{suffix}&{to}=2026-11-06{suffix}{form}{policy}");
        let answer = app.get(&query).await;
        assert!(answer.status.is_success(), "{query}: {answer:?}");
    }
    // Days and instants, and a day with a bound outside of it.
    for query in [
        "/v1/entries?policy=benefit&from=2026-11-05&to=2026-11-04T16:00:00Z",
        "/v1/entries?policy=benefit&on=2026-11-05&to=2026-11-05",
        "/v1/grants?policy=benefit&on=2026-11-05&from=2026-11-06",
    ] {
        problem(&app.get(query).await, 422, "invalid");
    }
    let said = command(
        &app,
        "export --policy benefit --from 2026-11-03 --to 2026-11-03 --csv none.csv",
    )
    .await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.contains("write the day after the last day"),
        "{said:?}"
    );
}

async fn a_number_that_is_not_kept_is_refused(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(9, "UTC").await;
    let claim = async |metadata: &str, key: Option<&str>| {
        let body = format!(r#"{{"subject":"a","metadata":{{"order":{metadata}}}}}"#);
        let mut request = app
            .request(Method::POST, "/v1/policies/benefit/claims")
            .body(body);
        request = request.header("Content-Type", "application/json");
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        Answer::of(request).await
    };
    for lost in [
        "123456789012345678901234567890",
        "1e400",
        "[{\"a\":0.1000000000000000000001}]",
    ] {
        let told = problem(&claim(lost, None).await, 422, "invalid");
        assert_eq!(told["errors"][0]["pointer"], "#/metadata", "{told}");
        assert!(told.to_string().contains("write it as a string"), "{told}");
    }
    for kept in [
        "12345678901234567",
        "0.1",
        "1e2",
        "\"123456789012345678901234567890\"",
    ] {
        assert_eq!(claim(kept, None).await.status, 201, "{kept}");
    }
    // In a batch, and on the command line.
    let body = r#"{"claims":[{"policy":"benefit","subject":"a","metadata":{"order":123456789012345678901}}]}"#;
    let request = app.request(Method::POST, "/v1/claims").body(body);
    let answer = Answer::of(request.header("Content-Type", "application/json")).await;
    assert!(answer.text.contains("write it as a string"), "{answer:?}");
    let line = "claim benefit a --metadata '{\"order\":123456789012345678901}'";
    let said = command(&app, line).await;
    assert!(
        said.code == 1 && said.stderr.contains("write it as a string"),
        "{said:?}"
    );
}

async fn a_subject_that_no_path_can_name_is_refused(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "UTC").await;
    for dots in [".", ".."] {
        let told = problem(&app.claim(dots, None).await, 422, "invalid");
        assert_eq!(told["errors"][0]["pointer"], "#/subject", "{told}");
        assert!(told.to_string().contains("write another text"), "{told}");
    }
    // Every other text can be claimed for, viewed, overridden and adjusted.
    for subject in [
        "...", "a/b", "a?b=c&d", "#", "%2F", "a;b", "~", "a.", "+86 138", "*", "a//b", "\\", "张伟",
    ] {
        let claimed = app.claim(subject, None).await;
        assert_eq!(claimed.status, 201, "{subject}: {claimed:?}");
        let path = encoded(subject);
        let usage = app
            .get(&format!("/v1/policies/benefit/subjects/{path}"))
            .await
            .json();
        assert_eq!(
            (&usage["subject"], &usage["limits"][0]["used"]),
            (&json!(subject), &json!(1))
        );
        let body = json!({ "limits": [{ "max": 9, "per": "day" }], "reason": "a test" });
        let overridden = app.put_override(&path, body).await;
        assert!(overridden.status.is_success(), "{subject}: {overridden:?}");
        let adjusted = app
            .adjust(&path, json!({ "units": 1, "reason": "a test" }), None)
            .await;
        assert_eq!(adjusted.status, 201, "{subject}: {adjusted:?}");
    }
}

async fn every_csv_has_the_text_as_it_is(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(9, "UTC").await;
    let subjects = [
        "+8613800000001",
        "=1+1",
        "@a",
        "-1",
        "0012345",
        "a \"b\", c",
    ];
    for subject in subjects {
        let grant = app.claim(subject, None).await.grant_id();
        app.reverse(&grant, "=reason").await;
    }
    all_is_recorded(&app, &ground).await;
    for path in [
        "/v1/grants/export?format=csv",
        "/v1/entries/export?format=csv&kind=grant",
    ] {
        let csv = app.get(path).await.text;
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let headers = reader.headers().expect("headers").clone();
        let column = headers
            .iter()
            .position(|name| name == "subject")
            .expect("a column");
        let mut found: Vec<String> = reader
            .records()
            .map(|record| record.expect("a row")[column].to_owned())
            .collect();
        found.sort_unstable();
        let mut expected = subjects.map(str::to_owned);
        expected.sort_unstable();
        assert_eq!(found, expected, "{path}");
    }
}

/// A parameter of one name takes the same values in every route.
#[test]
fn parameters_of_one_name_have_one_notation() {
    let specification = specification();
    let mut forms: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    let mut count = 0;
    for (path, item) in specification["paths"].as_object().expect("paths") {
        let operations = item.as_object().expect("operations").values();
        let parameters = operations.filter_map(|operation| operation["parameters"].as_array());
        for parameter in parameters.flatten() {
            let name = parameter["name"].as_str().expect("a name");
            let is_time =
                ["from", "to", "recorded_from", "recorded_to", "on", "at"].contains(&name);
            // The sizes of trees are no times.
            if !is_time || path == "/v1/seals/consistency" {
                continue;
            }
            count += 1;
            let form = parameter["schema"]["format"].to_string();
            let known = forms.entry(name.to_owned()).or_insert_with(|| form.clone());
            assert_eq!(*known, form, "{path}: {name}");
        }
    }
    assert!(count > 20, "{count}");
}

/// The hint is what the text means, and not what looks like it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_is_suggested_by_its_meaning() {
    let app = App::on(Stack::Sqlite).await;
    let put = async |zone: &str| {
        let limits = json!([{ "max": 3, "per": "day" }]);
        let body = json!({ "time_zone": zone, "limits": limits, "reason": "a test" });
        app.put_policy("benefit", body).await
    };
    for (zone, hint) in [
        ("GMT8", "did you mean +08:00 or Asia/Shanghai?"),
        (" GMT+8", "did you mean +08:00"),
        ("GMT +8", "did you mean +08:00"),
        ("China Standard Time", "did you mean Asia/Shanghai?"),
        ("Tokyo Standard Time", "did you mean Asia/Tokyo?"),
        (
            "IST",
            "did you mean Asia/Kolkata, Asia/Jerusalem or Europe/Dublin?",
        ),
        (
            "CST",
            "did you mean America/Chicago, Asia/Shanghai or America/Havana?",
        ),
        ("Z", "did you mean UTC?"),
        ("Asia/Shangai", "did you mean Asia/Shanghai?"),
    ] {
        let told = problem(&put(zone).await, 422, "invalid");
        assert!(told.to_string().contains(hint), "{zone}: {told}");
    }
    for (zone, warning) in [
        ("EST", "write America/New_York"),
        ("Etc/GMT+8", "8 hours behind UTC"),
    ] {
        let told = put(zone).await.json();
        assert!(
            told["warnings"][0]
                .as_str()
                .is_some_and(|it| it.contains(warning)),
            "{told}"
        );
    }
    replace(&app, json!({ "time_zone": "America/New_York" })).await;
    assert_eq!(
        app.get("/v1/policies/benefit").await.json().get("warnings"),
        None
    );
    let said = command(
        &app,
        "policy put benefit --limit '3 per day' --time-zone HST --reason x",
    )
    .await;
    assert!(
        said.code == 0 && said.stderr.contains("warning: HST is 10 hours behind"),
        "{said:?}"
    );
}
