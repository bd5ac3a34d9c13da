//! Four eyes in the console: one admin proposes a change, another one approves it.

use perdiem::domain::four_eyes::FourEyes;
use serde_json::json;

use super::Browser;
use super::forms::draft;
use crate::http::v1::keys::{make, make_role};
use crate::support::app::{App, Ground, Stack};

struct Scene {
    app: App,
    ops: Browser,
    boss: Browser,
}

impl Scene {
    /// With a policy `benefit` of an earlier time.
    async fn new() -> Self {
        let ground = Ground::new(Stack::Sqlite);
        App::start(&ground).await.benefit(3, "GMT+8").await;
        let app = App::start_with(&ground, |options| {
            options.four_eyes = FourEyes::parse("benefit").expect("a setting");
        })
        .await;
        let ops = make(&app, json!({ "name": "ops", "role": "admin" })).await;
        let boss = make(&app, json!({ "name": "boss", "role": "admin" })).await;
        Self {
            ops: Browser::signed_in(&app, &ops.secret).await,
            boss: Browser::signed_in(&app, &boss.secret).await,
            app,
        }
    }

    async fn max(&self) -> serde_json::Value {
        self.app
            .get("/v1/policies/benefit")
            .await
            .at("/limits/0/max")
    }

    /// The address of the page to which the form of `ops` leads.
    async fn proposed(&self, max: &str) -> String {
        let page = self.ops.page("/console/policies/benefit/edit").await;
        let preview = self.ops.send(&draft(&page, "/edit", max)).await;
        let applied = self.ops.send(&preview.form("/apply")).await;
        assert_eq!(applied.status, 303, "{applied:?}");
        applied.location
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_admin_approves_what_a_first_one_proposed() {
    let scene = Scene::new().await;
    let address = scene.proposed("2").await;
    assert!(
        address.starts_with("/console/approve?proposal=proposal_"),
        "{address}"
    );
    // 1. The proposer sees what waits, and the address for a colleague.
    let own = scene.ops.page(&address).await;
    own.says("This change waits for a second admin.");
    own.says("limits 3 per day 2 per day");
    own.says("The address of this page");
    own.is_silent_about("<form method=\"post\" action=\"/console/approve\"");
    // 2. Another admin sees it with who wants it and why, and approves it by the name of the policy.
    let page = scene.boss.page(&address).await;
    page.says("ops proposes this change.")
        .says("limits 3 per day 2 per day")
        .says("a test");
    let form = page.form("/console/approve");
    let wrong = scene.boss.send(&form.clone().with("policy", "otp")).await;
    assert_eq!(wrong.status, 422);
    wrong.says("The policy that you typed is another one.");
    assert_eq!(scene.max().await, 3);
    let form = form.with("policy", "benefit");
    scene
        .boss
        .act(&form)
        .await
        .says("2 per day for each subject");
    assert_eq!(scene.max().await, 2);
    // 3. Once.
    let again = scene.boss.send(&form).await;
    assert_eq!(again.status, 422, "{again:?}");
    again.says("its version is 2: propose the change again");
    // 4. No other role.
    for role in ["audit", "support"] {
        let key = make_role(&scene.app, role, None).await;
        let browser = Browser::signed_in(&scene.app, &key.secret).await;
        assert_eq!(browser.open(&address).await.status, 403);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_waits_and_a_wrong_text_is_told() {
    let scene = Scene::new().await;
    let page = scene.ops.page("/console/policies/benefit/archive").await;
    let form = page.form("/archive").with("reason", "the campaign is over");
    let asked = scene.ops.send(&form).await;
    assert_eq!(asked.status, 303, "{asked:?}");
    let page = scene.boss.page(&asked.location).await;
    page.says("The policy is archived")
        .says("the campaign is over");
    let form = page.form("/console/approve").with("policy", "benefit");
    scene.boss.act(&form).await.says("Archived");
    // A text that somebody typed, and none.
    scene
        .boss
        .page("/console/approve")
        .await
        .says("A change of some policies needs two admins");
    let wrong = scene
        .boss
        .open("/console/approve?proposal=proposal_x")
        .await;
    assert_eq!(wrong.status, 422);
    wrong.says("this is no proposal of this ledger");
}
