//! Four eyes: changes of some policies wait for a second admin.

use chrono::TimeDelta;
use perdiem::domain::four_eyes::FourEyes;
use perdiem::host::clock::{Clock, ManualClock};
use reqwest::header;
use serde_json::{Value, json};

use super::keys::{Made, end, make, make_role, revoke};
use crate::http::problem;
use crate::support::app::{Answer, App, Ground, KEY, NOON, Stack, instant};
use crate::support::desk::on_every_store;

on_every_store!(
    each_change_of_a_rule_waits_and_the_others_do_not,
    a_second_admin_makes_exactly_the_proposed_change,
    a_proposal_is_for_one_version_and_seven_days,
    a_proposal_needs_two_valid_admins,
);

const POLICY: &str = "/v1/policies/benefit";

/// An application where changes of `benefit` need four eyes, whose clock stands at [`NOON`], and two admins.
struct Scene {
    app: App,
    clock: ManualClock,
    ops: Made,
    boss: Made,
}

async fn start(ground: &Ground, clock: &ManualClock, four_eyes: &str) -> App {
    App::start_with(ground, |options| {
        options.clock = Clock::Manual(clock.clone());
        options.four_eyes = FourEyes::parse(four_eyes).expect("a setting");
    })
    .await
}

async fn admin(app: &App, name: &str) -> Made {
    make(app, json!({ "name": name, "role": "admin" })).await
}

impl Scene {
    /// With a policy `benefit`, which one admin proposed and another one approved.
    async fn on(ground: &Ground) -> Self {
        let clock = ManualClock::at(instant(NOON));
        let app = start(ground, &clock, "benefit").await;
        let ops = admin(&app, "ops").await;
        let boss = admin(&app, "boss").await;
        let scene = Self {
            app,
            clock,
            ops,
            boss,
        };
        let created = scene.proposed(&format!("PUT {POLICY}"), body(3)).await;
        assert_eq!(
            scene.approve(&created).await.is(200)["result"]["version"],
            1
        );
        scene
    }

    /// What `ops` sends.
    async fn ask(&self, line: &str, body: Value) -> Answer {
        self.app.ask_as(&self.ops.secret, line, body).await
    }

    /// The proposal of a change that waits.
    async fn proposed(&self, line: &str, body: Value) -> String {
        proposal_in(&self.ask(line, body).await)
    }

    async fn approve(&self, proposal: &str) -> Answer {
        approve_by(&self.app, &self.boss.secret, proposal).await
    }

    async fn dry(&self, proposal: &str) -> Answer {
        let body = json!({ "proposal": proposal });
        let line = "POST /v1/approvals?dry_run=true";
        self.app.ask_as(&self.boss.secret, line, body).await
    }

    async fn version(&self) -> Value {
        self.app.get(POLICY).await.is(200)["version"].clone()
    }
}

fn body(max: u64) -> Value {
    json!({ "time_zone": "UTC", "limits": [{ "max": max, "per": "day" }], "reason": "fewer" })
}

#[track_caller]
fn proposal_in(answer: &Answer) -> String {
    let waiting = problem(answer, 409, "needs-approval");
    let proposal = waiting["proposal"].as_str().expect("a text");
    assert!(proposal.starts_with("proposal_"), "{proposal}");
    proposal.to_owned()
}

async fn approve_by(app: &App, secret: &str, proposal: &str) -> Answer {
    let body = json!({ "proposal": proposal });
    app.ask_as(secret, "POST /v1/approvals", body).await
}

async fn each_change_of_a_rule_waits_and_the_others_do_not(stack: Stack) {
    let scene = Scene::on(&Ground::new(stack)).await;
    let none = Value::Null;
    // 1. Every change of the rule waits, and changes nothing.
    let later = json!({ "limits": [{ "max": 9, "per": "day" }], "effective": "next_window", "reason": "x" });
    for (line, body) in [
        (format!("PUT {POLICY}"), body(2)),
        (
            format!("PATCH {POLICY}"),
            json!({ "mode": "observe", "reason": "x" }),
        ),
        (format!("PATCH {POLICY}"), later.clone()),
        (format!("DELETE {POLICY}?reason=x"), none.clone()),
    ] {
        scene.proposed(&line, body).await;
    }
    assert_eq!(scene.version().await, 1);
    // 2. Nothing else waits: dry runs, what changes nothing, the brake, subjects, and other policies.
    for (line, body, status) in [
        (format!("PUT {POLICY}?dry_run=true"), body(2), 200),
        (
            format!("DELETE {POLICY}?dry_run=true&reason=x"),
            none.clone(),
            200,
        ),
        (format!("PUT {POLICY}"), body(3), 200),
        (format!("PUT {POLICY}/pause"), json!({ "reason": "x" }), 200),
        (format!("DELETE {POLICY}/pause?reason=x"), none.clone(), 200),
        (
            format!("PUT {POLICY}/overrides/a"),
            json!({ "limits": [{ "max": 9, "per": "day" }] }),
            201,
        ),
        (
            format!("PUT {POLICY}/blocks/b"),
            json!({ "reason": "x" }),
            201,
        ),
        (
            format!("DELETE {POLICY}/blocks/b?reason=x"),
            none.clone(),
            200,
        ),
        (
            format!("POST {POLICY}/subjects/c/adjustments"),
            json!({ "units": 1, "reason": "x" }),
            201,
        ),
        ("PUT /v1/policies/other".to_owned(), body(2), 201),
        ("PUT /v1/policies/other".to_owned(), body(3), 200),
        (
            "DELETE /v1/policies/other?reason=x".to_owned(),
            none.clone(),
            200,
        ),
    ] {
        scene.ask(&line, body).await.is(status);
    }
    // 3. What is wrong with the change is told first.
    let wrong = json!({ "time_zone": "UTC", "limits": [] });
    problem(
        &scene.ask(&format!("PUT {POLICY}"), wrong).await,
        422,
        "invalid",
    );
    let without_reason = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    problem(
        &scene.ask(&format!("PUT {POLICY}"), without_reason).await,
        422,
        "invalid",
    );
    let orphans =
        json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "week" }], "reason": "x" });
    problem(
        &scene.ask(&format!("PUT {POLICY}"), orphans).await,
        409,
        "orphaned-overrides",
    );
    let request = scene
        .app
        .line(&scene.ops.secret, &format!("PUT {POLICY}"), &body(2));
    let stale = Answer::of(request.header(header::IF_MATCH, "\"1\"")).await;
    problem(&stale, 412, "precondition-failed");
    // 4. A scheduled version is cancelled, and an archived policy restored, by four eyes too.
    let scheduled = scene.proposed(&format!("PATCH {POLICY}"), later).await;
    scene.approve(&scheduled).await.is(200);
    scene.proposed(&format!("PUT {POLICY}"), body(3)).await;
    let archive = scene
        .proposed(&format!("DELETE {POLICY}?reason=x"), none)
        .await;
    let archived = scene.approve(&archive).await.is(200);
    assert_eq!(archived["operation"], "archive");
    assert_eq!(archived["result"]["archived"], true);
    let restored = scene.proposed(&format!("PUT {POLICY}"), body(3)).await;
    scene.app.get(POLICY).await.is(404);
    scene.approve(&restored).await.is(200);
    scene.app.get(POLICY).await.is(200);
}

async fn a_second_admin_makes_exactly_the_proposed_change(stack: Stack) {
    let scene = Scene::on(&Ground::new(stack)).await;
    let Scene { app, ops, boss, .. } = &scene;
    let line = format!("PATCH {POLICY}");
    let patch = json!({ "limits": [{ "max": 1, "per": "day" }], "reason": "fewer" });
    let proposal = scene.proposed(&line, patch).await;
    // 1. Claims go on under the rule that is in force.
    app.claim("a", None).await.is(201);
    app.claim("a", None).await.is(201);
    // 2. A dry run shows the proposal, and changes nothing.
    let shown = scene.dry(&proposal).await.is(200);
    assert_eq!(shown["policy"], "benefit");
    assert_eq!(shown["operation"], "put");
    assert_eq!(shown["version"], 1);
    assert_eq!(shown["proposed_by"], ops.id.as_str());
    assert_eq!(shown["proposer"], "ops");
    assert_eq!(shown["proposed_at"], "2026-11-21T03:04:05Z");
    assert_eq!(shown["expires_at"], "2026-11-28T03:04:05Z");
    assert_eq!(shown["reason"], "fewer");
    assert_eq!(shown["result"]["limits"][0]["max"], 1);
    assert_eq!(scene.version().await, 1);
    // 3. The approval makes the change. Its maker is who approved it, and the reason names who proposed it.
    let approved = scene.approve(&proposal).await;
    assert_eq!(approved.header("etag"), Some("\"2\""));
    let made = app.get(POLICY).await.is(200);
    assert_eq!(approved.is(200)["result"], made);
    assert_eq!(made["changed_by"], boss.id.as_str());
    assert_eq!(
        made["reason"],
        format!("fewer; proposed by ops ({})", ops.id)
    );
    assert_eq!(made["limits"][0]["max"], 1);
    app.claim("a", None).await.is(429);
    // 4. A change that takes effect later is approved now.
    let later = json!({ "limits": [{ "max": 9, "per": "day" }], "effective": "2026-11-25", "reason": "more" });
    let later = scene.proposed(&line, later).await;
    let scheduled = scene.approve(&later).await.is(200);
    assert_eq!(scheduled["result"]["effective_at"], "2026-11-25T00:00:00Z");
    assert_eq!(scheduled["result"]["in_force_version"], 2);
    // 5. A day that passed before the approval is no day for a change.
    let too_late = json!({ "limits": [{ "max": 8, "per": "day" }], "effective": "2026-11-26", "reason": "more" });
    let too_late = scene.proposed(&line, too_late).await;
    scene.clock.advance(TimeDelta::days(6));
    problem(&scene.approve(&too_late).await, 422, "invalid");
}

async fn a_proposal_is_for_one_version_and_seven_days(stack: Stack) {
    let scene = Scene::on(&Ground::new(stack)).await;
    let line = format!("PUT {POLICY}");
    // 1. Of two proposals one is made. The other one, and the same one again, are stale.
    let first = scene.proposed(&line, body(1)).await;
    let second = scene.proposed(&line, body(2)).await;
    scene.approve(&second).await.is(200);
    for stale in [&first, &second] {
        let answer = scene.approve(stale).await;
        let told = problem(&answer, 412, "precondition-failed");
        let detail = told["detail"].as_str().expect("a text");
        assert!(
            detail.ends_with("its version is 2: propose the change again"),
            "{detail}"
        );
        problem(&scene.dry(stale).await, 412, "precondition-failed");
    }
    // 2. So it is with a pause, and with the end of the policy.
    let before_pause = scene.proposed(&line, body(1)).await;
    let pause = format!("PUT {POLICY}/pause");
    scene.ask(&pause, json!({ "reason": "x" })).await.is(200);
    problem(
        &scene.approve(&before_pause).await,
        412,
        "precondition-failed",
    );
    let kept = scene.proposed(&line, body(1)).await;
    assert_eq!(scene.dry(&kept).await.is(200)["result"]["paused"], true);
    let archive = format!("DELETE {POLICY}?reason=x");
    let archive = scene.proposed(&archive, Value::Null).await;
    scene.approve(&archive).await.is(200);
    for stale in [&kept, &archive] {
        problem(&scene.approve(stale).await, 412, "precondition-failed");
    }
    // 3. A policy is created once.
    let new = scene.proposed("PUT /v1/policies/benefit", body(1)).await;
    scene
        .clock
        .advance(TimeDelta::days(7) - TimeDelta::seconds(1));
    scene.dry(&new).await.is(200);
    // 4. After seven days it is over.
    scene.clock.advance(TimeDelta::seconds(1));
    let over = problem(&scene.approve(&new).await, 422, "invalid");
    assert_eq!(over["errors"][0]["pointer"], "#/proposal");
    let detail = over["errors"][0]["detail"].as_str().expect("a text");
    assert!(
        detail.ends_with("until 2026-11-28T03:04:05Z: propose the change again"),
        "{detail}"
    );
}

async fn a_proposal_needs_two_valid_admins(stack: Stack) {
    let ground = Ground::new(stack);
    let scene = Scene::on(&ground).await;
    let Scene { app, ops, .. } = &scene;
    let proposal = scene.proposed(&format!("PUT {POLICY}"), body(1)).await;
    // 1. Not the same admin, who may look at it.
    let own = approve_by(app, &ops.secret, &proposal).await;
    problem(&own, 403, "own-proposal");
    let line = "POST /v1/approvals?dry_run=true";
    let asked = json!({ "proposal": proposal });
    app.ask_as(&ops.secret, line, asked.clone()).await.is(200);
    // Nor with the key that takes the place of the first one.
    let replace = format!("POST /v1/keys/{}/replacement", ops.id);
    let replaced = app
        .ask_as(&ops.secret, &replace, json!({ "reason": "x" }))
        .await;
    let secret = replaced.is(201)["secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    let own = approve_by(app, &secret, &proposal).await;
    problem(&own, 403, "own-proposal");
    let line_of_policy = format!("PUT {POLICY}");
    let by_new = proposal_in(&app.ask_as(&secret, &line_of_policy, body(1)).await);
    let own = approve_by(app, &ops.secret, &by_new).await;
    problem(&own, 403, "own-proposal");
    // 2. No other role.
    for role in ["claim", "audit", "support"] {
        let key = make_role(app, role, None).await;
        let answer = approve_by(app, &key.secret, &proposal).await;
        problem(&answer, 403, "forbidden");
        let dry = app.ask_as(&key.secret, line, asked.clone()).await;
        problem(&dry, 403, "forbidden");
    }
    let confined = make_role(app, "claim", Some("benefit")).await;
    problem(
        &approve_by(app, &confined.secret, &proposal).await,
        403,
        "forbidden",
    );
    // 3. Not another text.
    let mut changed = proposal.clone();
    changed.replace_range(30..31, if &proposal[30..31] == "A" { "B" } else { "A" });
    for text in [
        "",
        "proposal_",
        "x",
        &changed,
        &proposal[..40],
        &proposal["proposal_".len()..],
    ] {
        let told = problem(&scene.approve(text).await, 422, "invalid");
        assert_eq!(told["errors"][0]["pointer"], "#/proposal", "{text}");
    }
    // 4. Not after the key of the proposer was revoked, or has ended.
    for is_revoked in [true, false] {
        let leaver = admin(app, "leaver").await;
        let put = app
            .ask_as(&leaver.secret, &format!("PUT {POLICY}"), body(1))
            .await;
        let left = proposal_in(&put);
        scene.dry(&left).await.is(200);
        if is_revoked {
            revoke(app, KEY, &leaver.id).await.is(200);
        } else {
            let soon = "2026-11-21T03:05:00Z";
            end(app, KEY, &leaver.id, Some(soon)).await.is(200);
            scene.clock.advance(TimeDelta::minutes(1));
        }
        let told = problem(&scene.approve(&left).await, 422, "invalid");
        let detail = told["errors"][0]["detail"].as_str().expect("a text");
        assert!(
            detail.starts_with("the key that proposed this is"),
            "{detail}"
        );
    }
    // 5. The key of the settings is one of two admins.
    let of_settings = proposal_in(&app.ask(&format!("PUT {POLICY}"), body(2)).await);
    problem(
        &approve_by(app, KEY, &of_settings).await,
        403,
        "own-proposal",
    );
    scene.approve(&of_settings).await.is(200);
    let made = app.get(POLICY).await.is(200);
    assert_eq!(made["reason"], "fewer; proposed by PERDIEM_ADMIN_KEY");
}

/// What one instance proposed is approved at another one, and is of this ledger alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_instance_on_a_ledger_takes_a_proposal() {
    let ground = Ground::new(Stack::Postgres);
    let scene = Scene::on(&ground).await;
    let other = start(&ground, &scene.clock, "*").await;
    let proposal = scene.proposed(&format!("PUT {POLICY}"), body(1)).await;
    let all = other
        .ask_as(&scene.ops.secret, "PUT /v1/policies/new", body(1))
        .await;
    let new = proposal_in(&all);
    approve_by(&other, &scene.boss.secret, &proposal)
        .await
        .is(200);
    assert_eq!(scene.version().await, 2);
    problem(&scene.approve(&proposal).await, 412, "precondition-failed");
    // The key of the proposer is revoked at the other instance: this one asks the ledger.
    revoke(&other, KEY, &scene.ops.id).await.is(200);
    problem(&scene.approve(&new).await, 422, "invalid");
    let elsewhere = Scene::on(&Ground::new(Stack::Sqlite)).await;
    problem(&elsewhere.approve(&proposal).await, 422, "invalid");
}

/// The longest texts stay within the bounds of a request and of a reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_change_is_proposed_and_approved() {
    let scene = Scene::on(&Ground::new(Stack::Sqlite)).await;
    let longest = "\u{1F600}".repeat(1000);
    let change = json!({
        "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }],
        "description": longest, "reason": longest,
    });
    let proposal = scene.proposed(&format!("PUT {POLICY}"), change).await;
    assert!(proposal.len() < 16 * 1024, "{}", proposal.len());
    scene.approve(&proposal).await.is(200);
    let made = scene.app.get(POLICY).await.is(200);
    assert_eq!(made["description"], longest);
    let reason = made["reason"].as_str().expect("a text");
    assert_eq!(reason.chars().count(), 1000);
    assert!(
        reason.ends_with(&format!("…; proposed by ops ({})", scene.ops.id)),
        "{reason}"
    );
}
