//! Answers of a server of another version: a command whose answer lacks a field fails and names the field.

use std::sync::Arc;

use perdiem::domain::four_eyes::FourEyes;
use reqwest::Method;
use reqwest::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::folder;
use crate::http::v1::keys::make_role;
use crate::http::{all_items, items};
use crate::support::app::{App, Ground, KEY, Stack, client, eventually};
use crate::support::command_line::{command, words};
use crate::support::terminal::Said;

/// Changes an answer.
type Edit = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// The URL of a server that passes each request on to another one, and changes its answers.
async fn another_version(app: &App, edit: Edit) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let server = app.url.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(pass(stream, server.clone(), edit.clone()));
        }
    });
    url
}

/// Passes a request on. The connection ends with the answer.
async fn pass(stream: TcpStream, server: String, edit: Edit) {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("a line");
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let mut request_line = head[0].split(' ');
    let method = request_line.next().expect("a method").parse::<Method>();
    let path = request_line.next().expect("a path");
    let mut request = client().request(method.expect("a method"), format!("{server}{path}"));
    let mut length = 0;
    for (name, value) in head[1..].iter().filter_map(|line| line.split_once(": ")) {
        match name.to_lowercase().parse() {
            Ok(HOST | CONNECTION) => {}
            Ok(CONTENT_LENGTH) => length = value.parse().expect("a length"),
            name => request = request.header(name.expect("a name"), value),
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.expect("a body");
    let answer = request.body(body).send().await.expect("an answer");
    let mut head = format!("HTTP/1.1 {}\r\nconnection: close\r\n", answer.status());
    for (name, value) in answer.headers() {
        if ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
            let value = value.to_str().expect("a text");
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    let bytes = answer.bytes().await.expect("a body");
    let bytes = match serde_json::from_slice::<Value>(&bytes) {
        Ok(mut json) => {
            edit(&mut json);
            json.to_string().into_bytes()
        }
        Err(_) => bytes.to_vec(),
    };
    head.push_str(&format!("content-length: {}\r\n\r\n", bytes.len()));
    let answer = [head.into_bytes(), bytes].concat();
    let _ = stream.get_mut().write_all(&answer).await;
}

/// Takes the field at a JSON pointer out of an answer, or gives it a value.
fn at(pointer: &str, value: Option<Value>) -> Edit {
    let (place, name) = pointer.rsplit_once('/').expect("a pointer");
    let place = place.to_owned();
    let name = name.to_owned();
    Arc::new(move |answer| {
        let object = answer.pointer_mut(&place).and_then(Value::as_object_mut);
        let Some(field) = object.filter(|object| object.contains_key(&name)) else {
            return;
        };
        match &value {
            Some(value) => field.insert(name.clone(), value.clone()),
            None => field.remove(&name),
        };
    })
}

/// Runs a command with the server of another version.
async fn told(app: &App, line: &str, edit: Edit) -> Said {
    let url = another_version(app, edit).await;
    Said::with_key(&url, KEY, &words(line)).await
}

/// A ledger with something for each table: a grant, a denial, figures, an override, a block and a key.
async fn scene() -> (App, String) {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(2, "GMT+8").await;
    let grant = app.claim("member-42", None).await.grant_id();
    app.claim("member-42", None).await.grant_id();
    assert_eq!(app.claim("member-42", None).await.status, 429);
    for line in [
        "override put benefit vip --limit '9 per day' --reason test",
        "block put benefit cheat --reason test",
    ] {
        command(&app, line).await.well(0);
    }
    let denials = "/v1/policies/benefit/subjects/member-42/denials";
    for path in ["/v1/entries", "/v1/stats/quarters", denials] {
        eventually(path, || async { !items(&app.get(path).await).is_empty() }).await;
    }
    (app, grant)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_answer_lacks_a_field_fails() {
    let (app, grant) = scene().await;
    let folder = folder();
    let draft = folder.path().join("draft.yaml");
    let limits = "time_zone: GMT+8\nlimits: [{ max: 1, per: day }]\n";
    std::fs::write(&draft, limits).expect("a file");
    let policies = folder.path().join("policies.yaml");
    let named = "policies:\n  benefit: { time_zone: GMT+8, limits: [{ max: 3, per: day }] }\n";
    std::fs::write(&policies, named).expect("a file");
    let export = folder.path().join("entries");
    let key = all_items(&app, "/v1/keys").await;
    assert!(key.is_empty(), "{key:?}");
    command(&app, "key create shop --role claim").await.well(0);
    let key = all_items(&app, "/v1/keys").await[0]["id"].clone();
    let key = key.as_str().expect("an id");
    let claim = json!({ "policy": "benefit", "subject": "phone", "hold_seconds": 600 });
    let claims = json!({ "atomic": true, "claims": [claim] });
    let bundle = app.ask("POST /v1/claims", claims).await.at("/bundle");
    let bundle = bundle.as_str().expect("an id");
    let lines = [
        format!("bundle show {bundle}"),
        format!("bundle confirm {bundle}"),
        format!("bundle reverse {bundle} --reason test"),
        format!("explain {grant}"),
        format!("reverse {grant} --reason test"),
        format!("key show {key}"),
        format!("key end {key} --until 2100-01-01 --reason test"),
        format!(
            "policy backtest benefit --from 2026-01-01 --until 2026-12-01 -f {}",
            draft.display()
        ),
        format!("policy apply --dry-run -f {}", policies.display()),
        format!("export {} --csv", export.display()),
    ];
    let [
        bundle_show,
        bundle_confirm,
        bundle_reverse,
        explain,
        reverse,
        key_show,
        key_end,
        backtest,
        apply,
        export,
    ] = &lines;
    #[rustfmt::skip]
    let rows = [
        ("claim benefit someone", "/outcome"),
        ("claim benefit someone", "/limits/0/used"),
        ("claim benefit member-42", "/limits/0/kind"),
        ("claim benefit member-42", "/detail"),
        ("claim nothing member-42", "/detail"),
        ("usage benefit member-42", "/time_zone"),
        ("usage benefit member-42", "/limits/0/resets_at"),
        ("usage benefit cheat", "/block/until"),
        ("usage benefit vip", "/override/until"),
        ("entries", "/items/0/position"),
        ("entries", "/items/0/units"),
        ("entries", "/items/0/subject"),
        ("entries", "/next_cursor"),
        ("entries benefit member-42", "/items/0/limits/0/max"),
        (bundle_show, "/grants/0/units"),
        (bundle_confirm, "/grants/0/state"),
        (bundle_reverse, "/id"),
        (explain, "/took/0/max"),
        (explain, "/limits/0/entries_cut"),
        (explain, "/terms/override"),
        ("explain benefit member-42", "/fits_at"),
        ("explain benefit member-42", "/limits/0/used"),
        ("explain benefit member-42", "/limits/0/entries/0/position"),
        (reverse, "/grant/policy"),
        ("adjust benefit member-42 --units 1 --reason test", "/limits/0/per"),
        ("reset benefit member-42 --reason test", "/limits/0/used"),
        ("reconcile", "/account_count"),
        ("reconcile", "/finished_at"),
        ("changes", "/items/0/by"),
        ("changes --kind override", "/items/0/subject"),
        ("stats", "/items/0/net_units"),
        ("stats --wait", "/as_of"),
        ("stats --by quarter-hour", "/items/0/given_back_units"),
        ("denials benefit member-42", "/items/0/denied_at"),
        ("policy list", "/items/0/time_zone"),
        ("policy show benefit", "/limits/0/max"),
        ("policy show benefit", "/active_from"),
        ("policy put new --limit '1 per day' --time-zone GMT+8", "/version"),
        ("policy pause benefit --reason test", "/effective_at"),
        ("policy resume benefit --reason test", "/paused"),
        (backtest, "/total/denied_subjects"),
        (backtest, "/days/0/denied_units"),
        (apply, "/items/0/name"),
        (apply, "/version"),
        ("override list benefit", "/items/0/limits"),
        ("override show benefit vip", "/until"),
        ("override put benefit vip --limit '8 per day' --reason test", "/version"),
        ("block list benefit", "/items/0/subject"),
        ("block show benefit cheat", "/reason"),
        ("block put benefit cheat --reason other", "/version"),
        ("key list", "/items/0/role"),
        (key_show, "/policies"),
        ("whoami", "/role"),
        ("status", "/troubles"),
        ("subject member-42", "/items/0/has_entries"),
        (key_end, "/revoked"),
        ("key create other --role audit", "/secret"),
        (export, "/sha256"),
        ("erase member-42 --yes --reason test", "/accounts"),
    ];
    for (line, pointer) in rows {
        let fault = told(&app, line, at(pointer, None)).await.fault();
        let (_, field) = pointer.rsplit_once('/').expect("a pointer");
        assert!(fault.contains("different versions"), "{line}: {fault}");
        assert!(fault.contains(field), "{line}: {fault}");
    }
}

/// Also where the field is of a type that is flattened into another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_answer_has_another_type_fails() {
    let (app, _) = scene().await;
    #[rustfmt::skip]
    let rows = [
        ("usage benefit member-42", "/limits/0/used", json!("1"), "limits[0].used: "),
        ("entries", "/items/0/units", json!("1"), "units: "),
        ("reconcile", "/entry_count", json!(null), "entry_count: "),
        ("policy list", "/items", json!({}), "items: "),
    ];
    for (line, pointer, value, field) in rows {
        let fault = told(&app, line, at(pointer, Some(value))).await.fault();
        assert!(fault.contains("different versions"), "{line}: {fault}");
        assert!(fault.contains(field), "{line}: {fault}");
    }
}

fn add_to_each_object(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.values_mut().for_each(add_to_each_object);
            fields.insert("newer".to_owned(), json!({ "field": 1 }));
        }
        Value::Array(values) => values.iter_mut().for_each(add_to_each_object),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_newer_server_says_more_is_left_out() {
    let (app, grant) = scene().await;
    let explain = format!("explain {grant}");
    for line in [
        "usage benefit member-42",
        "entries",
        "entries benefit member-42",
        &explain,
        "stats",
        "stats benefit --by quarter-hour",
        "denials benefit member-42",
        "policy list",
        "override list benefit",
        "block list benefit",
        "whoami",
    ] {
        let said = command(&app, line).await.well(0);
        let newer = told(&app, line, Arc::new(add_to_each_object)).await;
        assert_eq!(newer.well(0), said, "{line}");
    }
    // As JSON it is shown as it came.
    let line = "policy show benefit --json";
    let json = told(&app, line, Arc::new(add_to_each_object)).await.json(0);
    assert_eq!(json["limits"][0]["newer"]["field"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_that_lacks_a_field_fails() {
    let app = App::start_with(&Ground::new(Stack::Sqlite), |options| {
        options.four_eyes = FourEyes::OfAllPolicies;
    })
    .await;
    let other = make_role(&app, "admin", None).await;
    let body = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    let line = "PUT /v1/policies/benefit";
    let waits = app.ask_as(&other.secret, line, body).await;
    let proposal = waits.at("/proposal");
    let line = format!("approve {}", proposal.as_str().expect("a text"));
    for field in ["/proposer", "/result"] {
        let fault = told(&app, &line, at(field, None)).await.fault();
        assert!(fault.contains("different versions"), "{field}: {fault}");
    }
}
