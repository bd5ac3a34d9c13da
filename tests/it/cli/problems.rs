//! Every problem that a command can provoke is told in the words of the command line: by a flag, or by the place of a
//! word, and not by a JSON pointer, a header field or an escape.

use std::fs;

use crate::support::app::{App, KEY, Stack};
use crate::support::command_line::{command, words};
use crate::support::terminal::Said;

/// What only those know who speak HTTP.
const OF_HTTP: [&str; 9] = [
    "#/",
    "If-Match",
    "Idempotency-Key",
    "%2",
    "ETag",
    "listed in errors",
    "/readyz",
    "with policy=",
    "Authorization",
];

/// What is wrong with what a command said; `None` if nothing is.
fn fault(line: &str, said: &Said, code: i32, told: &str) -> Option<String> {
    let text = format!("{}{}", said.stdout, said.stderr);
    let is_of_http = OF_HTTP.iter().any(|word| text.contains(word));
    let is_right = said.code == code && text.contains(told) && !is_of_http;
    (!is_right).then(|| format!("{line}\n    {}: {text}    not {code}: {told}", said.code))
}

/// A policy with a grant, a hold, an override, a block and a key; and policies that are paused and archived.
async fn scene() -> (App, String, String) {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    for line in [
        "policy put paused --limit '3 per day' --time-zone GMT+8",
        "policy pause paused --reason x",
        "policy put gone --limit '3 per day' --time-zone GMT+8",
        "policy archive gone --reason x",
        "override put benefit vip --limit '9 per day' --reason x",
        "block put benefit cheat --reason x",
        "claim benefit member-42 --idempotency-key order-1",
    ] {
        command(&app, line).await.well(0);
    }
    let grant = app.claim("member-42", Some("order-2")).await.grant_id();
    let key = command(&app, "key create shop --role claim --policy benefit --json").await;
    let key = key.json(0)["id"].as_str().expect("an id").to_owned();
    (app, grant, key)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_problem_is_told_in_the_words_of_the_command_line() {
    let (app, grant, key) = scene().await;
    let unknown = "01980000-0000-7000-8000-000000000000";
    #[rustfmt::skip]
    let rows = [
        // Claims and usage.
        ("claim benefit a --units 0", 1, ": --units: "),
        ("claim benefit a --units 4", 1, ": --units: these units can never fit"),
        ("claim benefit a --hold-seconds 0", 1, ": --hold-seconds: "),
        ("claim benefit a --metadata '{\"a\":1e400}'", 1, "--metadata"),
        ("claim benefit a --idempotency-key ''", 1, ": --idempotency-key: "),
        ("claim benefit a --units 2 --idempotency-key order-1", 1, "this --idempotency-key belongs to"),
        ("claim benefit ''", 1, ": SUBJECT: "),
        ("claim Benefit a", 1, ": POLICY: "),
        ("claim nothing a", 1, "no policy nothing"),
        ("claim gone a", 1, "or it is archived"),
        ("claim paused a", 3, "denied: the policy paused is paused"),
        ("claim benefit cheat", 3, "denied: cheat is blocked under benefit, without an end"),
        ("claim benefit member-42 --units 2", 3, "denied: member-42 has used 2 of 3"),
        ("usage Benefit a", 1, ": POLICY: "),
        ("usage benefit 'a\u{7}'", 1, ": SUBJECT: "),
        ("denials nothing a", 1, "no policy nothing"),
        // Lists.
        ("entries benefit --kind x", 1, ": --kind: write one of the kinds"),
        ("entries --by x", 1, ": --by: "),
        ("entries --limit 0", 1, ": --limit: "),
        ("entries --on today", 1, ": --on: a local day needs a policy"),
        ("entries benefit --from today --until yesterday", 1, ": --until: this is not after"),
        ("entries benefit --recorded-from today --recorded-until -9d", 1, ": --recorded-until: "),
        ("entries --metadata order=1", 1, ": --metadata: "),
        ("entries benefit --as-of 999999", 1, ": --as-of: "),
        ("entries benefit --as-of +1d", 1, ": --as-of: "),
        ("entries benefit ''", 1, "a word is empty"),
        ("changes --kind x", 1, ": --kind: "),
        ("changes Benefit", 1, ": POLICY: "),
        ("changes --limit 0", 1, ": --limit: "),
        ("stats benefit --from 14:03", 1, ": --from: figures are of whole days"),
        ("stats --from today --until yesterday", 1, ": --until: "),
        ("stats nothing", 1, "no policy nothing"),
        ("export {folder}/rows --csv --kind x", 1, ": --kind: "),
        // Explanations and corrections.
        ("explain x", 1, ": GRANT: "),
        ("explain {grant} --as-of 999999", 1, ": --as-of: "),
        ("explain {unknown}", 1, "no grant with this id"),
        ("explain benefit a --units 0", 1, ": --units: "),
        ("explain benefit a --at tomorrow", 1, ": --at: "),
        ("confirm x", 1, ": GRANT: "),
        ("confirm {grant} --units 0", 1, ": --units: "),
        ("confirm {grant}", 1, "not a hold"),
        ("reverse {grant} --reason ' '", 1, ": --reason: "),
        ("reverse {grant} --units 2 --idempotency-key r --reason x", 1, ": --units: only 1"),
        ("reverse {grant} --units 1 --idempotency-key '' --reason x", 1, ": --idempotency-key: "),
        ("adjust benefit a --units 0 --reason x", 1, ": --units: "),
        ("adjust benefit a --units -1 --reason x", 1, ": --units: only 0 are used"),
        ("adjust benefit a --units 1 --at tomorrow --reason x", 1, ": --at: "),
        ("adjust benefit a --units 1 --reason ' '", 1, ": --reason: "),
        ("adjust benefit a --units 1 --reason x --idempotency-key order-1", 1, "this --idempotency-key "),
        ("adjust gone a --units 1 --reason x", 1, "or it is archived"),
        ("reset benefit a --per hour --reason x", 1, ": --per: the policy has no limit per hour"),
        ("reset benefit a --per daily --reason x", 1, ": --per: "),
        ("reset benefit a --reason ' '", 1, ": --reason: "),
        ("reset benefit b --reason x", 1, "nothing is used"),
        ("reset benefit a --reason x --idempotency-key order-1", 1, "this --idempotency-key "),
        ("reset gone a --reason x", 1, "or it is archived"),
        ("proof x", 1, ": GRANT: "),
        ("proof --change 999999", 1, "perdiem: "),
        ("erase ' ' --reason x --yes", 1, "perdiem: "),
        ("erase a --reason ' ' --yes", 1, ": --reason: "),
        // Policies.
        ("policy show Benefit", 1, ": POLICY: "),
        ("policy put new --limit '3 per day' --time-zone Asia/Shangai", 1, ": --time-zone: "),
        ("policy put new --limit '3 per day' --limit '0 per hour' --time-zone UTC", 1,
            ": --limit (the second one), max: "),
        ("policy put new --limit '3 per fortnight' --time-zone UTC", 1, ": --limit (the first one), per: "),
        ("policy put new --limit '3 per day' --time-zone UTC --day-starts-at 25:00", 1, ": --day-starts-at: "),
        ("policy put new --limit '3 per day' --time-zone UTC --week-starts-on x", 1, ": --week-starts-on: "),
        ("policy put new --limit '3 per day' --time-zone UTC --from today --until today", 1, ": --until: "),
        ("policy put new --limit '3 per day' --time-zone UTC --mode x", 1, ": --mode: "),
        ("policy put new --limit '3 per day' --time-zone UTC --effective next_window", 1,
            ": --effective: a new policy takes effect at once; set --from"),
        ("policy put new --limit '3 per day' --time-zone UTC --durability counted", 1, ": --durability: "),
        ("policy put new --limit '3 per day' --time-zone UTC --on-ledger-outage x", 1, ": --on-ledger-outage: "),
        ("policy put benefit --limit '3 per day' --time-zone UTC", 1, ": --reason: "),
        ("policy put benefit --limit '4 per day' --time-zone UTC --reason x --if-version 7", 1,
            "it has version 1 now: look at it again, and write --if-version 1"),
        ("policy put new --limit '3 per day' --time-zone UTC --if-version 7", 1, "leave out --if-version"),
        ("policy put benefit --limit '4 per hour' --time-zone GMT+8 --reason x", 1,
            "write --orphaned-overrides with drop or keep; overrides without their limit"),
        ("policy put benefit --limit '4 per hour' --time-zone GMT+8 --reason x --orphaned-overrides x", 1,
            ": --orphaned-overrides: "),
        ("policy set benefit --limit '4 per day' --effective 2020-01-01 --reason x", 1, ": --effective: "),
        ("policy set benefit --until yesterday --from today --reason x", 1, ": --until: "),
        ("policy restore benefit 7 --reason x", 1, "has no version 7"),
        ("policy create benefit --limit '3 per day' --time-zone UTC", 1, "`perdiem policy set`"),
        ("policy pause benefit --reason ' '", 1, ": --reason: "),
        ("policy resume benefit --reason x", 1, "not paused"),
        ("policy archive nothing --reason x", 1, "no policy nothing"),
        ("policy apply -f {folder}/policies.yaml --reason x", 1, "benefit: limits (the first one), max: "),
        ("policy backtest benefit -f {folder}/draft.yaml --from today --until tomorrow", 1,
            ": --file, limits (the first one), max: "),
        ("policy backtest benefit -f {folder}/right.yaml --from today --until yesterday", 1, ": --until: "),
        // Overrides, blocks and keys.
        ("override put benefit a --limit '5 per hour'", 1, ": --limit (the first one), per: "),
        ("override put benefit vip --limit '5 per day'", 1, ": --reason: "),
        ("override put benefit vip --limit '5 per day' --reason x --if-version 7", 1, "write --if-version 1"),
        ("override put benefit --file {folder}/overrides.csv", 1,
            "stopped at line 2; before it: put 0, already so 0; correct the line, and run the command again: nothing \
             is done twice: column limit or --limit (the first one), per: "),
        ("override put benefit --file {folder}/overrides.csv --keep-going", 1,
            "put 0, already so 0, refused 2\nperdiem: line 2: column limit or --limit (the first one), per: "),
        ("override put benefit --file {folder}/overrides.csv --keep-going", 1,
            "line 3: column reason or --reason: "),
        ("override put gone --file {folder}/overrides.csv", 1, "no policy gone"),
        ("block put benefit --file {folder}/grants.csv --reason x", 1, "line 1, column 1: \"grant\" is unknown"),
        ("block put benefit --file {folder}/past.csv --reason x", 1, ": column until or --until: "),
        ("reverse --file {folder}/grants.csv --reason x", 1, "stopped at line 2"),
        ("adjust gone --file {folder}/balances.csv --name a --reason x", 1, "or it is archived"),
        ("adjust benefit --file {folder}/balances.csv --name a --reason x", 1, ": column units: only 0 are used"),
        ("override show benefit a", 1, "no override"),
        ("override delete benefit vip --reason ' '", 1, ": --reason: "),
        ("override list nothing", 1, "no policy nothing"),
        ("block put benefit a --reason ' '", 1, ": --reason: "),
        ("block put benefit 'a\u{7}' --reason x", 1, ": SUBJECT: "),
        ("block remove benefit a --reason x", 1, "no block"),
        ("key create shop --role root", 1, ": --role: "),
        ("key create '' --role claim", 1, ": NAME: "),
        ("key create help --role support", 1, ": --max and --days: "),
        ("key create help --role support --max 0 --days 1000", 1, "; --days: "),
        ("subject 'a\u{7}'", 1, ": SUBJECT: "),
        ("key create shop --role claim --policy benefit --policy nothing", 1, ": --policy (the second one): "),
        ("key create shop --role claim --until yesterday", 1, "perdiem: "),
        ("key show x", 1, "no key has the name \"x\": write the name or the id of one of `perdiem key list`"),
        ("key show ''", 1, "no key has the name \"\": write"),
        ("key replace {key} --reason ' '", 1, ": --reason: "),
        ("key replace {key} --reason x --keep 366d", 1, ": --keep: "),
        ("key replace {key} --reason x --keep 0h", 2, "--keep"),
        ("key replace {unknown} --reason x", 1, "no key with this id"),
        ("key end {unknown} --never --reason x", 1, "no key with this id"),
        ("key end {key} --never --reason ' '", 1, ": --reason: "),
        ("key revoke {key} --reason x --if-version 7", 1, "write --if-version 1"),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("a path");
    let wrong = "time_zone: GMT+8\nlimits: [{ max: 0, per: day }]\n";
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    file("draft.yaml", wrong);
    file(
        "right.yaml",
        "time_zone: GMT+8\nlimits: [{ max: 1, per: day }]\n",
    );
    file(
        "overrides.csv",
        "subject,limit\na,5 per hour\nvip,5 per day\n",
    );
    file("past.csv", "subject,until\na,2020-01-01\n");
    file("grants.csv", &format!("grant\n{unknown}\n"));
    file("balances.csv", "subject,units\na,-1\n");
    let policies = "policies:\n  benefit: { time_zone: GMT+8, limits: [{ max: 0, per: day }] }\n";
    file("policies.yaml", policies);
    let mut faults = Vec::new();
    for (line, code, told) in rows {
        let line = line.replace("{grant}", &grant).replace("{key}", &key);
        let line = line.replace("{unknown}", unknown).replace("{folder}", path);
        faults.extend(fault(&line, &command(&app, &line).await, code, told));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A key that may not do it, or only for other policies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_key_may_not_do_is_told() {
    let (app, ..) = scene().await;
    let secret = async |line: &str| {
        let made = command(&app, line).await.json(0);
        made["secret"].as_str().expect("a secret").to_owned()
    };
    let shop = secret("key create shop --role claim --policy benefit --json").await;
    let audit = secret("key create books --role audit --policy benefit --json").await;
    #[rustfmt::skip]
    let rows = [
        (&shop, "policy list", "use a key with the role audit"),
        (&shop, "claim paused a", "this key is confined to other policies"),
        (&audit, "claim benefit a", "use a key with the role claim or admin"),
        (&audit, "entries", "name one of them"),
        (&audit, "reconcile", "use a key that is not confined"),
    ];
    for (key, line, told) in rows {
        let said = Said::with_key(&app.url, key, &words(line)).await;
        assert_eq!(fault(line, &said, 1, told), None);
    }
    let said = Said::with_key(
        &app.url,
        KEY,
        &["claim", "benefit", "a", "--idempotency-key", "a\nb"],
    );
    let told = "--idempotency-key cannot be sent";
    assert_eq!(fault("a line break", &said.await, 1, told), None);
}
