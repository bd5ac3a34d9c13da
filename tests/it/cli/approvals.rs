//! `perdiem approve`, and the commands whose changes wait for a second admin.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use perdiem::domain::four_eyes::FourEyes;
use serde_json::json;

use super::folder;
use crate::http::v1::keys::{Made, make};
use crate::support::app::{App, Ground, Stack};
use crate::support::command_line::command_with;
use crate::support::terminal::Said;

/// The exit code of a change that waits.
const WAITS: i32 = 6;

struct Admins {
    app: App,
    ops: Made,
    boss: Made,
}

impl Admins {
    async fn with(four_eyes: &str) -> Self {
        let app = App::start_with(&Ground::new(Stack::Sqlite), |options| {
            options.four_eyes = FourEyes::parse(four_eyes).expect("a setting");
        })
        .await;
        let ops = make(&app, json!({ "name": "ops", "role": "admin" })).await;
        let boss = make(&app, json!({ "name": "boss", "role": "admin" })).await;
        Self { app, ops, boss }
    }

    async fn ops(&self, line: &str) -> Said {
        command_with(&self.app.url, &self.ops.secret, line).await
    }

    async fn boss(&self, line: &str) -> Said {
        command_with(&self.app.url, &self.boss.secret, line).await
    }

    /// The command that a command which waits prints for the other admin, without the name of the program.
    async fn approval(&self, line: &str) -> String {
        let said = self.ops(line).await;
        let approval = said.stdout.strip_prefix("perdiem ").map(str::to_owned);
        let approval = approval.unwrap_or_else(|| panic!("{line}: {said:?}"));
        let fault = said.fault_of(WAITS);
        assert!(fault.contains("it waits for a second admin"), "{fault}");
        approval
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_waits_and_another_admin_approves_it() {
    let admins = Admins::with("benefit").await;
    let ops = &admins.ops.id;
    // 1. A new policy.
    let create = "policy create benefit --limit '3 per day' --time-zone GMT+8";
    let approval = admins.approval(create).await;
    let shown = admins.boss(&format!("{approval} --dry-run")).await.well(0);
    assert!(
        shown.starts_with(&format!("benefit: put, proposed by ops ({ops}) at ")),
        "{shown}"
    );
    assert!(shown.ends_with("dry run: nothing was changed\n"), "{shown}");
    let own = admins.ops(&approval).await.fault();
    assert_eq!(
        own,
        "your own key proposed this change: another admin must approve it"
    );
    let made = admins.boss(&approval).await.well(0);
    assert!(
        made.ends_with("version 1    +08:00                   3 per day\n"),
        "{made}"
    );
    // 2. A change of it, in JSON; and the same again, which is stale.
    let set = "policy set benefit --limit '2 per day' --reason fewer";
    let approval = admins.approval(set).await;
    let changed = admins.boss(&format!("{approval} --json")).await.json(0);
    assert_eq!(changed["result"]["version"], 2);
    assert_eq!(changed["reason"], "fewer");
    let again = admins.boss(&approval).await.fault();
    let stale = "the policy has changed since this was proposed: its version is 2: propose the change again";
    assert_eq!(again, stale);
    // 3. The differences, as those of any change.
    let set = "policy set benefit --limit '4 per day' --reason more";
    let approval = admins.approval(set).await;
    let made = admins.boss(&approval).await.well(0);
    assert!(
        made.contains("~ benefit: limits: 2 per day → 4 per day\n"),
        "{made}"
    );
    // 4. A pause does not wait; an end does, also of what is scheduled.
    admins.ops("policy pause benefit --reason x").await.well(0);
    admins.ops("policy resume benefit --reason x").await.well(0);
    let later = "policy set benefit --limit '9 per day' --effective tomorrow --reason x";
    let approval = admins.approval(later).await;
    admins.boss(&approval).await.well(0);
    admins.approval("policy cancel benefit --reason x").await;
    admins.approval("policy restore benefit 1 --reason x").await;
    let approval = admins.approval("policy archive benefit --reason x").await;
    let archived = admins.boss(&approval).await.well(0);
    assert!(archived.contains("(archived)"), "{archived}");
    // 5. What is no proposal.
    let wrong = admins.boss("approve proposal_x").await.fault();
    assert!(
        wrong.starts_with("PROPOSAL: this is no proposal of this ledger"),
        "{wrong}"
    );
}

/// The line that a command prints can be piped as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_is_read_from_standard_input() {
    let admins = Admins::with("*").await;
    let create = "policy create benefit --limit '3 per day' --time-zone GMT+8";
    let line = format!("perdiem {}", admins.approval(create).await);
    for (text, code) in [("", 1), (line.as_str(), 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perdiem"));
        command.args(["approve", "-"]).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("PERDIEM_URL", &admins.app.url);
        command.env("PERDIEM_KEY", &admins.boss.secret);
        let text = text.to_owned();
        let run = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().expect("the binary runs");
            let mut input = child.stdin.take().expect("a pipe");
            input.write_all(text.as_bytes()).expect("written");
            drop(input);
            child.wait_with_output().expect("it ends")
        });
        let output = run.await.expect("a thread");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}

/// A file with several policies: those that wait wait, and the others are changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_applied_but_for_what_waits() {
    let admins = Admins::with("benefit").await;
    let folder = folder();
    let file = folder.path().join("policies.yaml");
    let policies = "policies:\n  benefit: { time_zone: UTC, limits: [{ max: 3, per: day }] }\n  \
                    other: { time_zone: UTC, limits: [{ max: 3, per: day }] }\n";
    fs::write(&file, policies).expect("a file");
    let apply = format!("policy apply -f {}", file.display());
    let told = admins.ops(&apply).await.well(WAITS);
    let waits = "applied\nbenefit is not changed yet: it waits for a second admin, who types\nperdiem approve ";
    let (_, proposal) = told.split_once(waits).unwrap_or_else(|| panic!("{told}"));
    admins.app.get("/v1/policies/benefit").await.is(404);
    admins.app.get("/v1/policies/other").await.is(200);
    let steps = admins.ops(&format!("{apply} --json")).await.json(WAITS);
    assert!(steps[0]["approval"].is_string(), "{steps}");
    assert!(steps[1]["approval"].is_null(), "{steps}");
    admins.boss(&format!("approve {proposal}")).await.well(0);
    admins.ops(&apply).await.well(0);
}
