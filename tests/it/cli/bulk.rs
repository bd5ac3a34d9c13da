//! Commands that take a file of lines: overrides, blocks, reversals and adjustments from CSV.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::all_items;
use crate::support::app::{App, Stack};
use crate::support::command_line::command;
use crate::support::proxy::{Mode, Proxy};
use crate::support::terminal::Said;

/// A folder with a file, and the application that gets its lines.
struct Import {
    app: App,
    folder: TempDir,
}

/// The commands that take a file, each with a flag for all lines.
const PUT: &str = "override put benefit";
const BLOCK: &str = "block put benefit";
const TIER: &str = "tier put benefit";
const REVERSE: &str = "reverse --reason test";
const ADJUST: &str = "adjust benefit --reason test --name first";

impl Import {
    async fn new() -> Self {
        let (app, _clock) = App::with_clock(Stack::Sqlite).await;
        app.benefit(9, "GMT+8").await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { app, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("lines.csv")
    }

    /// Runs a command with a file of this content.
    async fn run(&self, line: &str, content: impl AsRef<[u8]>) -> Said {
        fs::write(self.file(), content).expect("a file");
        let line = format!("{line} --file {}", self.file().display());
        command(&self.app, &line).await
    }

    /// The overrides or the blocks, as a subject, its version and its end.
    async fn known(&self, list: &str) -> Vec<[Value; 3]> {
        let items = all_items(&self.app, &format!("/v1/policies/benefit/{list}")).await;
        let known = items
            .into_iter()
            .map(|mut item| ["subject", "version", "until"].map(|field| item[field].take()));
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|[subject, ..]| subject.to_string());
        known
    }

    /// The reasons of a subject's entries.
    async fn reasons(&self, subject: &str) -> Vec<String> {
        let path = format!("/v1/policies/benefit/subjects/{subject}/entries");
        let entries = all_items(&self.app, &path).await;
        let reasons = entries.iter().filter_map(|it| it["reason"].as_str());
        reasons.map(str::to_owned).collect()
    }

    async fn units_used(&self, subject: &str) -> Value {
        let path = format!("/v1/policies/benefit/subjects/{subject}");
        self.app.get(&path).await.at("/limits/0/used")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_a_wrong_line_sends_nothing() {
    let import = Import::new().await;
    let right = "a,5 per day,,\n";
    let put = |lines: &str| format!("subject,limit,until,reason\n{right}{lines}").into_bytes();
    let grant = "01980000-0000-7000-8000-000000000000";
    let twice = format!("grant\n{grant}\n{}\n", grant.to_uppercase());
    let utf_16 = "subject,limit\na,5 per day\n".encode_utf16();
    let utf_16: Vec<u8> = utf_16.flat_map(u16::to_le_bytes).collect();
    let relative = format!("{PUT} --until tomorrow");
    let parts = format!("grant,units\n{grant},1\n");
    #[rustfmt::skip]
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        // The file.
        (PUT, b"".into(), "line 1: the column subject is missing"),
        (PUT, utf_16, "save it as UTF-8"),
        (PUT, b"subject,limit\nM\xFCller,5 per day\n".into(), "save it as UTF-8"),
        (PUT, b"subject,limit,limits\na,5 per day\n".into(), "column 3: \"limits\" is unknown: the columns are"),
        (PUT, b"subject;Limit;LIMIT\na;5 per day\n".into(), "line 1, column 3: limit is there twice"),
        (PUT, b"subject,until\na,\n".into(), "the column limit is missing: write it, or --limit for all lines"),
        (BLOCK, b"subject\na\n".into(), "the column reason is missing: write it, or --reason for all lines"),
        (BLOCK, b"subject,limit\na\n".into(), "\"limit\" is unknown: the columns are subject, until, reason"),
        (TIER, b"subject\na\n".into(), "the column tier is missing: write it, or --tier for all lines"),
        (TIER, b"subject,limit\na\n".into(), "\"limit\" is unknown: the columns are subject, until, tier, reason"),
        (REVERSE, b"id\n".into(), "\"id\" is unknown: the columns are grant, units, reason"),
        (ADJUST, b"subject,units,when\n".into(), "\"when\" is unknown: the columns are subject, units, at, reason"),
        // The lines of overrides and blocks.
        (PUT, put("b,5 per day, 2 per week,x\n"), "line 3, column until: \"2 per week\" is no time"),
        (PUT, put("b,5 per day,,x,y\n"), "line 3, column ?: there are 5 cells, and 4 columns"),
        (PUT, put("b,5,,\n"), "line 3, column limit: write a limit like \"10 per day\""),
        (PUT, put("b,5 per day sliding,,\n"), "line 3, column limit: write a limit like \"10 per day\""),
        (PUT, put("b,,,\n"), "line 3, column limit: the cell is empty: write it, or --limit for all lines"),
        (PUT, put("b,5 per day,2026-13-01,\n"), "line 3, column until: \"2026-13-01\" is no time of a file"),
        (PUT, put("b,5 per day,2026-12-01T00:00:00+25:00,\n"), "line 3, column until: "),
        (PUT, put("b,5 per day,+2h,\n"), "line 3, column until: \"+2h\" is no time of a file: write one such as"),
        (PUT, put("b,5 per day,0000-01-01,\n"), "nothing was sent: line 3, column until: this time is not in"),
        (PUT, put("b,5 per day,,' '\n,6 per day,,\n"), "line 4, column subject: the cell is empty"),
        (PUT, put("b\u{200B},5 per day,,\n"), "line 3, column subject: "),
        (PUT, put("a,6 per day,,\n"), "line 3: line 2 has the same subject"),
        (&relative, b"subject,limit\na,5 per day\n".into(), "--until: with --file write a time such as"),
        (TIER, b"subject,tier\na,gold\na,slow\n".into(), "line 3: line 2 has the same subject"),
        (TIER, b"subject,tier\na,\n".into(), "line 2, column tier: the cell is empty: write it, or --tier for all lines"),
        (BLOCK, b"subject,reason\na,x\nb,\n".into(), "line 3, column reason: the cell is empty: write it, or --reason"),
        // Those of reversals and adjustments.
        (REVERSE, b"grant\nmember-1\n".into(), "line 2, column grant: \"member-1\" is no id of a grant"),
        (REVERSE, twice.into_bytes(), "line 3: line 2 has the same grant"),
        (REVERSE, parts.clone().into_bytes(), "line 2, column units: a part is given back once under a name"),
        (REVERSE, parts.replace(",1", ",0").into_bytes(), "line 2, column units: \"0\" is no number of units"),
        (ADJUST, b"subject,units\na,1\nb,1.5\n".into(), "line 3, column units: \"1.5\" is no whole number"),
        (ADJUST, b"subject,units,at\na,1,now\n".into(), "line 2, column at: \"now\" is no time of a file"),
        (ADJUST, b"subject,units,at\na,1,0000-01-01\n".into(), "nothing was sent: line 2, column at: "),
    ];
    for (line, content, told) in rows {
        for options in ["", " --dry-run", " --keep-going", " --json"] {
            let said = import.run(&format!("{line}{options}"), &content).await;
            assert_eq!(said.stdout, "", "{line}: {said:?}");
            let fault = said.fault();
            assert!(fault.contains(told), "{line}: {told}: {fault}");
        }
    }
    // 20 faults are told, and the others counted.
    let faults = (0..25).map(|number| format!("a{number},none,,\n"));
    let fault = import
        .run(PUT, put(&faults.collect::<String>()))
        .await
        .fault();
    assert!(fault.contains("line 22, column limit"), "{fault}");
    assert!(!fault.contains("line 23"), "{fault}");
    assert!(fault.ends_with("; and 5 more"), "{fault}");
    // No file, and a folder.
    for path in ["nowhere.csv", "."] {
        let fault = command(&import.app, &format!("{PUT} --file {path}")).await;
        let fault = fault.fault();
        assert!(
            fault.starts_with(&format!("{path} cannot be read: ")),
            "{fault}"
        );
    }
    for list in ["overrides", "blocks"] {
        let known = import.known(list).await;
        assert!(known.is_empty(), "{known:?}");
    }
    assert_eq!(import.reasons("a").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_that_do_not_fit_a_file_are_refused() {
    let app = App::on(Stack::Sqlite).await;
    for line in [
        "override put benefit a --file x",
        "override put benefit",
        "override put benefit --file x --if-version 1",
        "override put benefit a --limit '3 per day' --keep-going",
        "block put benefit a --file x",
        "block put benefit a",
        "block put benefit --file x --if-version 1",
        "reverse a --file x",
        "reverse --policy benefit --file x",
        "reverse --file x --units 1",
        "reverse --file x --idempotency-key y",
        "reverse a --reason x --name y",
        "reverse a --reason x --dry-run",
        "reverse --reason x",
        "adjust benefit --file x",
        "adjust benefit a --units 1 --reason x --dry-run",
        "adjust benefit a --units 1",
    ] {
        let said = command(&app, line).await;
        assert_eq!(said.code, 2, "{line}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_run_goes_on_where_the_first_one_stopped() {
    let import = Import::new().await;
    let wrong = "subject,limit,until\na,5 per day,2026-12-01\nb,5 per hour,\nc,\"7 per day\",\n";
    // The server refuses the second line.
    let fault = import.run(PUT, wrong).await.fault();
    let told = "stopped at line 3; before it: put 1, already so 0; correct the line, and run the command again";
    assert!(fault.starts_with(told), "{fault}");
    assert!(
        fault.contains("column limit or --limit (the first one), per: "),
        "{fault}"
    );
    let a = [json!("a"), json!(1), json!("2026-11-30T16:00:00Z")];
    let c = [json!("c"), json!(1), Value::Null];
    assert_eq!(import.known("overrides").await, std::slice::from_ref(&a));
    // As JSON, the summary has the line too.
    let said = import.run(&format!("{PUT} --json"), wrong).await;
    assert_eq!(said.code, 1);
    let mut summary: Value = serde_json::from_str(&said.stdout).expect("JSON");
    let detail = summary["refused"][0]["detail"].take();
    assert!(
        detail.as_str().expect("a text").contains("per: "),
        "{detail}"
    );
    assert_eq!(
        summary,
        json!({
            "dry_run": false, "lines": 3, "done": 0, "done_before": 1,
            "refused": [{ "line": 3, "detail": null }],
        })
    );
    // With --keep-going the third line is done too.
    let said = import.run(&format!("{PUT} --keep-going"), wrong).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(said.stdout, "put 1, already so 1, refused 1\n");
    assert!(
        said.stderr.starts_with("perdiem: line 3: column limit"),
        "{said:?}"
    );
    assert_eq!(import.known("overrides").await, [a.clone(), c.clone()]);
    // A change needs a reason, and what is already so stays.
    let changed = wrong
        .replace("5 per hour", "6 per day")
        .replace("7 per", "8 per");
    let fault = import.run(PUT, &changed).await.fault();
    let told = "stopped at line 4; before it: put 1, already so 1; ";
    assert!(fault.starts_with(told), "{fault}");
    assert!(fault.contains("column reason or --reason: "), "{fault}");
    let with_reason = format!("{PUT} --reason club");
    let dry = import
        .run(&format!("{with_reason} --dry-run"), &changed)
        .await;
    let told = "= benefit a\n= benefit b\n~ benefit c: limits: 7 per day → 8 per day\n\
                put 1, already so 2\ndry run: nothing was changed\n";
    assert_eq!(dry.well(0), told);
    let dry = import
        .run(&format!("{with_reason} --dry-run --json"), &changed)
        .await;
    let summary =
        json!({ "dry_run": true, "lines": 3, "done": 1, "done_before": 2, "refused": [] });
    assert_eq!(dry.json(0), summary);
    let done = import.run(&with_reason, &changed).await;
    assert_eq!(done.well(0), "put 1, already so 2\n");
    let b = [json!("b"), json!(1), Value::Null];
    let c = [json!("c"), json!(2), Value::Null];
    assert_eq!(import.known("overrides").await, [a, b, c]);
    // A file without a line below its first one has nothing to do.
    let none = import.run(PUT, "subject,limit\n").await;
    assert_eq!(none.well(0), "put 0, already so 0\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_is_there_for_the_second_run() {
    let import = Import::new().await;
    let port = import.app.url.rsplit(':').next().expect("a port");
    let port = port.parse().expect("a number");
    let proxy = Proxy::before(port).await;
    let lines: String = (0..40).map(|number| format!("member-{number}\n")).collect();
    let lines = format!("subject\n{lines}");
    proxy.set(Mode::HangUp { every: 11 });
    let line = format!("{PUT} --limit '5 per day' --keep-going");
    let through = format!("{line} --url http://127.0.0.1:{}", proxy.port);
    let mut stops = 0;
    loop {
        let said = import.run(&through, &lines).await;
        if said.code == 0 {
            break;
        }
        let fault = said.fault_of(75);
        // The answer that is lost can be one before the first line.
        if fault.starts_with("stopped at line ") {
            let told = "; run the command again: nothing is done twice: the server does not answer";
            assert!(fault.contains(told), "{fault}");
            stops += 1;
        }
        if stops == 3 {
            proxy.set(Mode::Pass);
        }
    }
    assert_eq!(stops, 3);
    let known = import.known("overrides").await;
    assert_eq!(known.len(), 40);
    assert!(
        known.iter().all(|[_, version, _]| *version == 1),
        "{known:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_come_from_a_file() {
    let import = Import::new().await;
    let lines = "Subject;Reason\r\na;case 12\r\nb;\r\n";
    let fault = import.run(BLOCK, lines).await.fault();
    assert!(fault.contains("line 3, column reason"), "{fault}");
    let line = format!("{BLOCK} --reason fraud --until 2026-12-01");
    let dry = import
        .run(&format!("{line} --dry-run"), lines)
        .await
        .well(0);
    assert!(
        dry.contains("+ benefit a: until: 2026-12-01T00:00:00+08:00\n"),
        "{dry}"
    );
    assert!(
        dry.ends_with("blocked 2, already blocked 0\ndry run: nothing was changed\n"),
        "{dry}"
    );
    assert!(import.known("blocks").await.is_empty());
    assert_eq!(
        import.run(&line, lines).await.well(0),
        "blocked 2, already blocked 0\n"
    );
    assert_eq!(
        import.run(&line, lines).await.well(0),
        "blocked 0, already blocked 2\n"
    );
    let until = json!("2026-11-30T16:00:00Z");
    let [a, b] = ["a", "b"].map(|subject| [json!(subject), json!(1), until.clone()]);
    assert_eq!(import.known("blocks").await, [a, b]);
    let reasons = all_items(&import.app, "/v1/policies/benefit/blocks").await;
    let mut reasons: Vec<&str> = reasons
        .iter()
        .filter_map(|it| it["reason"].as_str())
        .collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["case 12", "fraud"]);
    // Another reason is another version.
    let more = lines.replace("case 12", "case 13");
    assert_eq!(
        import.run(&line, more).await.well(0),
        "blocked 1, already blocked 1\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_of_a_file_are_reversed_once() {
    let import = Import::new().await;
    let claim = async |subject: &str, units: u64| {
        let body = json!({ "subject": subject, "units": units });
        import.app.claim_body(body, None).await.grant_id()
    };
    let a = claim("a", 3).await;
    let b = claim("b", 4).await;
    let c = claim("c", 5).await;
    let unknown = "01980000-0000-7000-8000-000000000000";
    let reason_of = async |grant: &str| {
        let grant = import.app.get(&format!("/v1/grants/{grant}")).await;
        grant.at("/reversal/reason")
    };
    // A grant that is not there stops the command.
    let file = format!("grant,units,reason\n{a},,twice\n{unknown},,\n{b},1,\n{c},,\n");
    let line = format!("{REVERSE} --name refunds");
    let fault = import.run(&line, &file).await.fault();
    let told = "stopped at line 3; before it: reversed 1, already reversed 0; ";
    assert!(
        fault.starts_with(told) && fault.contains("no grant with this id"),
        "{fault}"
    );
    let dry = import.run(&format!("{line} --dry-run"), &file).await;
    assert_eq!(dry.code, 1, "{dry:?}");
    let told = format!(
        "- {b}: 1 units of benefit b\n- {c}: 5 units of benefit c\n\
         reversed 2, already reversed 1, refused 1\ndry run: nothing was changed; the server tried no line\n"
    );
    assert_eq!(dry.stdout, told);
    assert_eq!(import.units_used("b").await, 4);
    // It goes on, and a second run gives nothing back twice.
    let line = format!("{line} --keep-going");
    for told in [
        "reversed 2, already reversed 1, refused 1\n",
        "reversed 0, already reversed 3, refused 1\n",
    ] {
        let said = import.run(&line, &file).await;
        assert_eq!(said.code, 1, "{said:?}");
        assert_eq!(said.stdout, told);
        for (subject, used) in [("a", 0), ("b", 3), ("c", 0)] {
            assert_eq!(import.units_used(subject).await, used, "{subject}");
        }
    }
    assert_eq!(reason_of(&a).await, "twice");
    assert_eq!(reason_of(&c).await, "test");
    // A part under another name is another part. More than is left is refused, in the dry run too.
    let parts = |units: u64| format!("grant,units\n{b},{units}\n");
    let other = format!("{REVERSE} --name refunds-2");
    let dry = import.run(&format!("{other} --dry-run"), parts(4)).await;
    assert!(
        dry.stderr.contains("line 2: column units: only 3 are left"),
        "{dry:?}"
    );
    let fault = import.run(&other, parts(4)).await.fault();
    assert!(fault.contains(": column units: only 3 "), "{fault}");
    let done = import.run(&other, parts(3)).await;
    assert_eq!(done.well(0), "reversed 1, already reversed 0\n");
    // No part is left: the answer is no.
    let said = import
        .run(
            &format!("{REVERSE} --name refunds-3 --keep-going"),
            parts(1),
        )
        .await;
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(said.stdout, "reversed 0, already reversed 0, refused 1\n");
    let whole = import.run(REVERSE, format!("grant\n{b}\n")).await;
    assert_eq!(whole.well(0), "reversed 0, already reversed 1\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adjustments_have_a_dry_run_and_reasons_of_their_own() {
    let import = Import::new().await;
    let lines = "subject,units,at,reason\na,2,,by phone\nb,-1,,\nc,1,2026-11-21,\n";
    let dry = import
        .run(&format!("{ADJUST} --dry-run"), lines)
        .await
        .well(0);
    let told = "+ benefit a: 2 units\n+ benefit b: -1 units\n\
                + benefit c: 1 units at 2026-11-20T16:00:00Z\n\
                entered 3, already entered 0\ndry run: nothing was changed; the server tried no line\n";
    assert_eq!(dry, told);
    assert_eq!(import.reasons("a").await, [""; 0]);
    let said = import
        .run(&format!("{ADJUST} --keep-going --json"), lines)
        .await;
    assert_eq!(said.code, 1, "{said:?}");
    let summary: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!(summary["done"], 2);
    assert_eq!(summary["refused"][0]["line"], 3);
    assert_eq!(import.reasons("a").await, ["by phone"]);
    assert_eq!(import.reasons("c").await, ["test"]);
    let again = import.run(&format!("{ADJUST} --keep-going"), lines).await;
    assert_eq!(again.stdout, "entered 0, already entered 2, refused 1\n");
}
