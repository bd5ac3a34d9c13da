//! What the forms change.

use perdiem::host::clock::Clock;
use serde_json::json;

use super::{Browser, Form, Got};
use crate::http::v1::keys::{make, make_role};
use crate::support::app::{App, KEY, Stack};
use crate::support::desk::on_every_store;

/// The form of a policy, filled.
pub fn draft(page: &Got, ends: &str, max: &str) -> Form {
    let form = page.form(ends);
    [
        ("description", "for the test"),
        ("max", max),
        ("per", "day"),
        ("kind", ""),
        ("more", ""),
        ("time_zone", "GMT+8"),
        ("week_starts_on", "monday"),
        ("mode", "enforce"),
        ("durability", "recorded"),
        ("on_ledger_outage", "refuse"),
        ("reason", "a test"),
    ]
    .into_iter()
    .fold(form, |form, (name, value)| form.with(name, value))
}

async fn version(app: &App) -> u64 {
    let policy = app.get("/v1/policies/benefit").await.is(200);
    policy["version"].as_u64().expect("a number")
}

on_every_store!(a_policy_is_created_changed_and_restored);

async fn a_policy_is_created_changed_and_restored(stack: Stack) {
    let app = App::on(stack).await;
    let browser = Browser::signed_in(&app, KEY).await;
    // 1. A new policy: the preview changes nothing.
    browser.page("/console").await.says("No policy yet.");
    let page = browser.page("/console/new-policy").await;
    let form = draft(&page, "/new-policy", "3").with("name", "benefit");
    let preview = browser.send(&form).await;
    assert_eq!(preview.status, 200, "{preview:?}");
    preview.says("A new policy: 3 per day, +08:00, at once.");
    app.get("/v1/policies/benefit").await.is(404);
    browser
        .act(&preview.form("/apply"))
        .await
        .says("3 per day for each subject");
    assert_eq!(version(&app).await, 1);
    // 2. A second sending of the same form creates nothing.
    let again = browser.send(&preview.form("/apply")).await;
    assert_eq!(again.status, 412, "{again:?}");
    assert_eq!(version(&app).await, 1);
    // 3. A change, with the grants of the last days.
    let page = browser.page("/console/policies/benefit/edit").await;
    let preview = browser.send(&draft(&page, "/edit", "5")).await;
    preview
        .says("1 setting would change")
        .says("3 per day 5 per day")
        .says("last 7 days");
    assert_eq!(version(&app).await, 1);
    browser
        .act(&preview.form("/apply"))
        .await
        .says("5 per day for each subject");
    // 4. The versions, and the first one again.
    let versions = browser.page("/console/policies/benefit/versions").await;
    versions
        .says("Version 1 and version 2")
        .says("limits 3 per day 5 per day");
    let page = browser
        .page("/console/policies/benefit/edit?restore=1")
        .await;
    assert!(
        page.html
            .contains("name=\"max\" inputmode=\"numeric\" size=\"8\" value=\"3\"")
    );
}

/// The form sends what each kind of limit needs beside its numbers, and shows it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_knows_parts_of_a_day_and_weeks() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let browser = Browser::signed_in(&app, KEY).await;
    for (per, kind, more, says) in [
        ("15m", "calendar", "", "5 per 15m of the day"),
        ("2 weeks", "", "2026-01-05", "5 per 2 weeks from 2026-01-05"),
        (
            "3 weeks",
            "calendar",
            "2026-01-06",
            "5 per 3 weeks from 2026-01-06",
        ),
        ("24h", "sliding", "1h", "5 in any 24h, in steps of 1h"),
    ] {
        let page = browser.page("/console/policies/benefit/edit").await;
        let form = draft(&page, "/edit", "5");
        let form = form.with("per", per).with("kind", kind).with("more", more);
        let preview = browser.send(&form).await;
        assert_eq!(preview.status, 200, "{preview:?}");
        browser.act(&preview.form("/apply")).await.says(says);
        let page = browser.page("/console/policies/benefit/edit").await;
        assert!(page.html.contains(&format!("value=\"{per}\"")), "{per}");
        assert!(
            page.html.contains(&format!("size=\"10\" value=\"{more}\"")),
            "{more}"
        );
        browser.page("/console").await.says(says);
    }
}

/// A policy gets tiers, a subject is moved, and a change that removes its tier asks what becomes of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiers_are_written_in_lines_and_subjects_are_moved() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let browser = Browser::signed_in(&app, KEY).await;
    let with_tiers = async |tiers: &str| {
        let page = browser.page("/console/policies/benefit/edit").await;
        let form = draft(&page, "/edit", "3").with("tiers", tiers);
        browser.send(&form).await
    };
    let wrong = with_tiers("gold: 10 per week").await;
    assert_eq!(wrong.status, 422, "{wrong:?}");
    wrong.says("this policy has no limit per week");
    with_tiers("gold").await.says("write a tier like");
    let preview = with_tiers("gold: 10 per day\r\nslow: 1 per day\r\n").await;
    preview.says("gold: 10 per day; slow: 1 per day");
    browser.act(&preview.form("/apply")).await;
    let path = "/console/policies/benefit/tiers/ann";
    let page = browser.page(path).await;
    let form = page
        .form("/ann")
        .with("tier", "gold")
        .with("reason", "order 1");
    browser.act(&form).await.says("ann is in the tier gold");
    // The removal of the tier asks what becomes of its subjects.
    let preview = with_tiers("slow: 1 per day").await;
    preview.says("1 exception would be left without the limit or the tier, such as ann");
    preview.says("Apply, and keep them without an effect");
    let keep = preview.form("/apply").with("orphaned_overrides", "keep");
    browser.act(&keep).await;
    // A form about the end does not move the subject into another tier.
    let page = browser.page(path).await;
    assert!(
        page.html.contains("<option value=\"gold\" selected>"),
        "{}",
        page.html
    );
    browser
        .page("/console/policies/benefit/tiers")
        .await
        .says("ann gold");
    with_tiers("")
        .await
        .is_silent_about("would be left without");
    let end = browser.page(path).await.form("/end").with("why", "over");
    browser.act(&end).await.says("ann is in no tier");
}

/// A week of a policy begins on its own weekday, and a list of ids has no blanks within them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_and_fields_are_those_of_the_policy() {
    // Saturday 21 November, 03:04:05.
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    let limits =
        json!([{ "max": 9, "per": "week" }, { "max": 9, "per": "2 weeks", "from": "2026-11-16" }]);
    let rule = json!({ "time_zone": "UTC", "limits": limits, "week_starts_on": "sunday" });
    app.put_policy("benefit", rule).await.is(201);
    let browser = Browser::signed_in(&app, KEY).await;
    browser
        .page("/console/policies")
        .await
        .says("in 20 h 55 min");
    let page = browser
        .page("/console/policies/benefit/overrides/member-42")
        .await;
    for part in [
        "id=\"max-2-weeks\"",
        "name=\"max-2 weeks\"",
        "aria-describedby=\"max-2-weeks-hint\"",
    ] {
        assert!(page.html.contains(part), "{part}: {}", page.html);
    }
}

/// Wrong values stand at their fields, and nothing changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_values_of_a_policy_are_told_at_their_fields() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let browser = Browser::signed_in(&app, KEY).await;
    let page = browser.page("/console/policies/benefit/edit").await;
    let right = draft(&page, "/edit", "5");
    for (field, value, says) in [
        ("max", "three", "write a whole number instead of \"three\""),
        ("per", "fortnight", "fortnight"),
        ("time_zone", "Asia/Shangai", "did you mean Asia/Shanghai?"),
        ("time_zone", "", "time zone"),
        ("reason", "", "reason"),
        ("active_from", "tomorrow", "write an instant"),
        ("effective", "soon", "write now, next_window"),
    ] {
        let got = browser.send(&right.clone().with(field, value)).await;
        assert_eq!(got.status, 422, "{field}: {got:?}");
        got.says(says).says("Preview the change");
        assert!(got.html.contains("role=\"alert\""), "{field}");
    }
    // A row more, without JavaScript.
    let got = browser.send(&right.clone().with("add", "limit")).await;
    assert_eq!(
        (
            got.status.as_u16(),
            got.html.matches("name=\"max\"").count()
        ),
        (200, 2)
    );
    assert_eq!(version(&app).await, 1);
}

/// Two admins: who comes second sees both versions, and loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_meanwhile_is_shown_beside_the_draft() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let browser = Browser::signed_in(&app, KEY).await;
    let page = browser.page("/console/policies/benefit/edit").await;
    let preview = browser.send(&draft(&page, "/edit", "5")).await;
    app.benefit(4, "GMT+8").await;
    let got = browser.send(&preview.form("/apply")).await;
    assert_eq!(got.status, 412);
    got.says("You began with version 1, and there is version 2 by now.");
    got.says("limits 4 per day 5 per day");
    let preview = browser.send(&got.form("/edit")).await;
    browser
        .act(&preview.form("/apply"))
        .await
        .says("5 per day for each subject");
    assert_eq!(version(&app).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_paused_resumed_and_archived_with_a_reason() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let browser = Browser::signed_in(&app, KEY).await;
    let ask = browser.page("/console/policies/benefit/pause").await;
    let pause = ask.form("/pause");
    let got = browser.send(&pause.clone().with("reason", "")).await;
    assert_eq!(got.status, 422);
    got.says("the reason is empty");
    app.claim("member-1", None).await.is(201);
    browser
        .act(&pause.clone().with("reason", "stock is out"))
        .await
        .says("stock is out");
    app.claim("member-1", None).await.is(409);
    // An old page pauses again: it never resumes.
    browser.send(&pause.with("reason", "again")).await;
    app.claim("member-1", None).await.is(409);
    let ask = browser.page("/console/policies/benefit/pause").await;
    browser
        .act(&ask.form("/pause").with("reason", "stock is back"))
        .await
        .says("Pause");
    app.claim("member-1", None).await.is(201);
    let ask = browser.page("/console/policies/benefit/archive").await;
    browser
        .act(&ask.form("/archive").with("reason", "an app replaced it"))
        .await;
    browser
        .page("/console/policies/benefit")
        .await
        .says("Archived")
        .says("Restore");
    let page = browser.page("/console/policies/benefit/edit").await;
    let preview = browser.send(&draft(&page, "/edit", "3")).await;
    browser.act(&preview.form("/apply")).await;
    app.claim("member-1", None).await.is(201);
}

on_every_store!(support_puts_overrides_and_blocks_within_its_bounds);

async fn support_puts_overrides_and_blocks_within_its_bounds(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    let support = make_role(&app, "support", None).await;
    let browser = Browser::signed_in(&app, &support.secret).await;
    let path = "/console/policies/benefit/overrides/member-1";
    let form = browser.page(path).await.form("/member-1");
    let until = Clock::system().now() + chrono::TimeDelta::days(2);
    let until = until.format("%Y-%m-%dT%H:%M:%SZ").to_string();
    let right = form
        .with("max-day", "5")
        .with("until", &until)
        .with("reason", "goodwill");
    for (field, value, says) in [
        ("max-day", "many", "Write a whole number of units per day"),
        ("max-day", "11", "10"),
        ("until", "", "7"),
    ] {
        let got = browser.send(&right.clone().with(field, value)).await;
        assert_eq!(got.status, 422, "{field} {value}: {got:?}");
        got.says(says);
    }
    app.get("/v1/policies/benefit/overrides/member-1")
        .await
        .is(404);
    browser.act(&right).await.says("member-1 has 5 per day");
    // The form of before is out of date.
    let got = browser.send(&right).await;
    assert_eq!(got.status, 422, "{got:?}");
    let end = browser.page(path).await.form("/end").with("why", "over");
    browser.act(&end).await.says("has the limits of the policy");
    // A block, and its end.
    let path = "/console/policies/benefit/blocks/member-2";
    let form = browser.page(path).await.form("/member-2");
    browser
        .act(&form.with("until", &until).with("reason", "chargebacks"))
        .await
        .says("member-2 is blocked");
    app.claim("member-2", None).await.is(403);
    let end = browser
        .page(path)
        .await
        .form("/end")
        .with("why", "a mistake");
    browser.act(&end).await.says("is not blocked");
    app.claim("member-2", None).await.is(201);
    // Settings are for admins.
    assert_eq!(
        browser.open("/console/policies/benefit/edit").await.status,
        403
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_adjusted_once_and_a_subject_is_erased_by_its_name() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    app.claim("member-1", None).await.is(201);
    let browser = Browser::signed_in(&app, KEY).await;
    let ask = browser
        .page("/console/subjects/member-1/adjust?policy=benefit")
        .await;
    let form = ask
        .form("/adjust")
        .with("units", "1")
        .with("reason", "a paper form");
    for (field, value) in [("units", "one"), ("units", "0"), ("reason", "")] {
        let got = browser.send(&form.clone().with(field, value)).await;
        assert_eq!(got.status, 422, "{field} {value}: {got:?}");
    }
    browser.act(&form).await.says("2 of 3 per day");
    browser.act(&form).await.says("2 of 3 per day");
    let ask = browser
        .page("/console/subjects/member-1/reset?policy=benefit")
        .await;
    let form = ask
        .form("/reset")
        .with("per", "day")
        .with("reason", "goodwill");
    for (field, value) in [("per", "fortnight"), ("reason", "")] {
        let got = browser.send(&form.clone().with(field, value)).await;
        assert_eq!(got.status, 422, "{field} {value}: {got:?}");
    }
    browser
        .act(&form)
        .await
        .says("of the limit per day: 0 of 3 per day used");
    // The same form once more is the same reset.
    browser.act(&form).await;
    let entries = app
        .get("/v1/policies/benefit/subjects/member-1/entries")
        .await
        .is(200);
    let kinds = entries["items"].as_array().expect("items").iter();
    assert_eq!(kinds.filter(|entry| entry["kind"] == "reset").count(), 1);
    let ask = browser
        .page("/console/subjects/member-1/top-up?policy=benefit")
        .await;
    let form = ask
        .form("/top-up")
        .with("units", "2")
        .with("until", "2099-12-31T00:00:00Z")
        .with("reason", "goodwill");
    for (field, value) in [
        ("units", "two"),
        ("units", "0"),
        ("until", "soon"),
        ("reason", ""),
    ] {
        let got = browser.send(&form.clone().with(field, value)).await;
        assert_eq!(got.status, 422, "{field} {value}: {got:?}");
    }
    browser.act(&form).await.says("2 units more under benefit");
    let page = browser.act(&form).await;
    let usage = app.get("/v1/policies/benefit/subjects/member-1").await;
    let id = usage.at("/top_ups/0/id");
    let id = id.as_str().expect("an id");
    let ends = format!("/top-up/{id}");
    let form = page.form(&ends).with("reason", "a mistake");
    browser.act(&form).await.says("2 units taken back");
    let ask = browser.page("/console/subjects/member-1/erase").await;
    let form = ask.form("/erase").with("reason", "request 7");
    let got = browser
        .send(&form.clone().with("subject", "member-2"))
        .await;
    assert_eq!(got.status, 422);
    got.says("The subject that you typed is another one.");
    browser
        .act(&form.with("subject", "member-1"))
        .await
        .says("Changes");
    assert_eq!(browser.open("/console/subjects/member-1").await.status, 404);
}

/// A secret is shown on one page, and never again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_created_replaced_and_revoked() {
    let app = App::on(Stack::Sqlite).await;
    let browser = Browser::signed_in(&app, KEY).await;
    let form = browser
        .page("/console/keys/new")
        .await
        .form("/new")
        .with("role", "support");
    let form = form.with("name", "desk").with("max", "5").with("days", "7");
    let got = browser.send(&form.clone().with("days", "many")).await;
    assert_eq!(got.status, 422, "{got:?}");
    let got = browser.send(&form).await;
    assert_eq!(got.status, 200, "{got:?}");
    let secret = |got: &Got| {
        let rest = got
            .html
            .split("<code id=\"secret\">")
            .nth(1)
            .expect("a secret");
        rest.split('<').next().unwrap_or_default().to_owned()
    };
    let first = secret(&got);
    Browser::signed_in(&app, &first).await;
    let id = got.ids("/console/keys/").pop().expect("an id");
    let path = format!("/console/keys/{id}");
    let page = browser.page(&path).await;
    page.says("A key of the role support")
        .is_silent_about(&first);
    let replaced = browser
        .send(&page.form("/replace").with("replaced", "a leak"))
        .await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    let second = secret(&replaced);
    assert_ne!(first, second);
    let next = replaced.ids("/console/keys/").pop().expect("an id");
    let path = format!("/console/keys/{next}");
    let revoke = browser
        .page(&path)
        .await
        .form("/revoke")
        .with("revoked", "it leaked");
    let got = browser.send(&revoke.clone().with("name", "another")).await;
    assert_eq!(got.status, 404);
    got.says("Nothing was revoked.");
    Browser::signed_in(&app, &second).await;
    browser
        .act(&revoke.with("name", "desk"))
        .await
        .says("revoked");
    let mut gone = Browser::of(&app);
    assert_eq!(gone.sign_in(&second, "").await.status, 401);
    // A key with a name that others may have is ended by its own page.
    let other = make(&app, json!({ "name": "desk", "role": "audit" })).await;
    let path = format!("/console/keys/{}", other.id);
    let end = browser.page(&path).await.form("/end");
    browser
        .act(
            &end.with("ends_at", "2099-01-01T00:00:00Z")
                .with("ended", "for a while"),
        )
        .await
        .says("ends 2099-01-01 00:00:00 +00:00");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_is_confirmed_and_given_back() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let claim =
        |subject: &str| json!({ "policy": "benefit", "subject": subject, "hold_seconds": 600 });
    let claims = json!({ "atomic": true, "claims": [claim("phone"), claim("device")] });
    let granted = app.ask("POST /v1/claims", claims).await.is(200);
    let id = granted["bundle"].as_str().expect("an id");
    let grant = granted["items"][0]["grant"]["id"].as_str().expect("an id");
    let browser = Browser::signed_in(&app, KEY).await;
    let page = browser.page(&format!("/console/grants/{grant}")).await;
    assert_eq!(page.ids("/console/bundles/"), [id]);
    let got = browser.open(&format!("/console/find?q={id}")).await;
    assert_eq!(got.location, format!("/console/bundles/{id}"));
    let page = browser.page(&got.location).await;
    page.says("2 claims of one batch").says("left of 2 grants");
    let without = browser.send(&page.form("/give-back")).await;
    assert_eq!(without.status, 422);
    let confirmed = browser.act(&page.form("/confirm")).await;
    confirmed.says("granted").is_silent_about("/confirm\"");
    let form = confirmed.form("/give-back").with("reason", "sent twice");
    let reversed = browser.act(&form).await;
    reversed
        .says("left of 0 grants")
        .is_silent_about("/give-back\"");
    // A second sending changes nothing.
    browser.act(&form).await.says("left of 0 grants");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_confirmed_and_a_reconciliation_begins() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({ "subject": "member-1", "hold_seconds": 600 });
    let granted = app.claim_body(body, None).await.is(201);
    let id = granted["grant"]["id"].as_str().expect("an id");
    let browser = Browser::signed_in(&app, KEY).await;
    let path = format!("/console/grants/{id}");
    let page = browser.page(&path).await;
    page.says("◐ held");
    let subject = browser.page("/console/subjects/member-1?policy=benefit");
    subject.await.says("◐ hold");
    browser
        .act(&page.form("/confirm"))
        .await
        .says("● confirmation");
    let list = browser.page("/console/reconciliations").await;
    browser
        .act(&list.form("/reconciliations"))
        .await
        .says("Everything agrees.");
}
