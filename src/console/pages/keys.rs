//! Keys: who may call, and with which rights?

use maud::{Markup, html};
use serde_json::json;
use uuid::Uuid;

use super::makers::Makers;
use crate::asking::{Asking, PageFailure, command, path, with};
use crate::parts::{
    Field, Heading, button_to, cell, empty, facts, form, next_page, reason, refused, table,
};
use crate::visit::{PageReply, Replied, Shown, Visit};
use crate::words::count;
use api::keys::{CreatedKey, KeyAnswer, KeyList, KeyReplacementAnswer, ListedKey};

const ROLES: [(&str, &str); 4] = [
    ("claim", "claim: a backend that claims"),
    (
        "support",
        "support: reads, gives back, puts overrides, tiers and blocks within bounds",
    ),
    ("audit", "audit: reads"),
    ("admin", "admin: everything"),
];

pub async fn list(visit: &Visit<'_>) -> Replied {
    let target = with(
        "/v1/keys",
        &[("limit", "50"), ("cursor", visit.query.get("cursor"))],
    );
    let list: KeyList = visit.asker.get(target).await?;
    let local = visit.utc();
    let columns = [
        Heading::Text("Name"),
        Heading::Text("Role"),
        Heading::Text("Policies"),
        Heading::Text("Last used"),
        Heading::Text("State"),
    ];
    let row = |listed: &ListedKey| {
        let key = &listed.key;
        html! {
            tr {
                (cell("Name", html! {
                    a href=(path(&["console", "keys", &key.id.to_string()])) { bdi { (key.name) } }
                }))
                (cell("Role", &key.role))
                (cell("Policies", policies(key)))
                (cell("Last used", last_used(listed)))
                (cell("State", state(key, visit)))
            }
        }
    };
    let in_use = list
        .items
        .iter()
        .filter(|listed| !listed.key.revoked)
        .count();
    Ok(Shown::new("Keys", local)
        .lead(html! { (count(in_use as u64, "key")) " on this page can be used. Secrets are never shown again." })
        .acts(html! { @if visit.may_change() { (button_to("/console/keys/new", "Create a key")) } })
        .body(html! {
            @if list.items.is_empty() {
                (empty("The ledger has no key. The key of the settings serves until you create one."))
            } @else {
                (table(&columns, list.items.iter().map(row)))
            }
            (next_page(visit, list.next_cursor.as_deref()))
        })
        .command("perdiem key list")
        .into())
}

fn policies(key: &KeyAnswer) -> String {
    match &key.policies {
        Some(policies) => policies.join(", "),
        None => "all".to_owned(),
    }
}

fn last_used(listed: &ListedKey) -> String {
    match listed.last_used_on {
        Some(day) => day.to_string(),
        None => "never".to_owned(),
    }
}

fn state(key: &KeyAnswer, visit: &Visit<'_>) -> Markup {
    let local = visit.utc();
    html! {
        @if key.revoked {
            span.flag.bad { "revoked" }
        } @else if let Some(ends) = key.ends_at {
            @if ends <= visit.now { span.flag.bad { "ended" } } @else { "ends " (local.show(ends)) }
        } @else {
            "valid"
        }
    }
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    let id = visit.name(0);
    if Uuid::try_parse(id).is_err() {
        return Err(PageFailure::NotFound(format!("There is no key {id}.")));
    }
    let listed: ListedKey = visit.asker.get(path(&["v1", "keys", id])).await?;
    let key = &listed.key;
    let local = visit.utc();
    let makers = Makers::of(visit, [&*key.changed_by]).await;
    let bounds = key.bounds.as_ref();
    let acts_on = |act: &str| path(&["console", "keys", id, act]);
    let version = html! { input type="hidden" name="version" value=(key.version); };
    Ok(Shown::new(format!("Key {}", key.name), local.clone())
        .lead(html! {
            "A key of the role " (key.role) " for " (policies(key).replace("all", "all policies")) ", "
            (state(key, visit)) "."
        })
        .body(html! {
            (facts([
                ("Id", html! { code.id { (key.id) } }),
                ("Last used", html! { (last_used(&listed)) }),
                ("Created", local.show(key.created_at)),
                ("Changed", html! {
                    (local.show(key.changed_at)) " by " (makers.show(&key.changed_by)) ": "
                    (reason(key.reason.as_deref()))
                }),
                ("Bounds", html! {
                    @if let Some(bounds) = bounds {
                        "overrides up to " (bounds.max) " units, for at most " (count(bounds.days.into(), "day"))
                    } @else { "none" }
                }),
            ]))
            p { a href=(with("/console/changes", &[("by", id)])) { "What this key changed" } }
            @if visit.may_change() && !key.revoked {
                h2 { "Replace it" }
                p { "A new secret works at once; the present one ends in 24 hours." }
                (form(visit, &acts_on("replace"), html! {
                    (version)
                    (Field { name: "replaced", ..Field::of(&visit.form, "reason", "Reason") }.required().line())
                    button { "Replace the key" }
                }))
                h2 { "End it at an instant" }
                (form(visit, &acts_on("end"), html! {
                    (version)
                    (Field::of(&visit.form, "ends_at", "Ends at")
                        .hint("An instant such as 2026-12-01T00:00:00Z. Empty: without an end.").line())
                    (Field { name: "ended", ..Field::of(&visit.form, "reason", "Reason") }.required().line())
                    button.plain { "Set its end" }
                }))
                h2 { "Revoke it" }
                p { "It stops at once, everywhere, and nobody can undo it." }
                (form(visit, &acts_on("revoke"), html! {
                    (version)
                    (Field::of(&visit.form, "name", "Name of the key")
                        .hint("Type the name, so that you revoke the right one.").required().line())
                    (Field { name: "revoked", ..Field::of(&visit.form, "reason", "Reason") }.required().line())
                    button.danger { "Revoke the key" }
                }))
            }
        })
        .command(command(&["perdiem", "key", "show", id]))
        .into())
}

pub async fn new(visit: &Visit<'_>) -> Replied {
    Ok(new_page(visit).into())
}

fn new_page(visit: &Visit<'_>) -> Shown {
    let fields = html! {
        (Field::of(&visit.form, "name", "Name").hint("Who uses it, such as shop.").required().line())
        (Field::of(&visit.form, "role", "Role").choice(&ROLES))
        (Field::of(&visit.form, "policies", "Policies").hint("Names with blanks between them. Empty: all policies.").line())
        (Field::of(&visit.form, "max", "Most units of an override or a tier")
            .hint("For a support key. Empty: it puts no overrides.").line())
        (Field::of(&visit.form, "days", "Most days of an override, a tier or a block").hint("For a support key.").line())
        (Field::of(&visit.form, "ends_at", "Ends at").hint("An instant. Empty: without an end.").line())
        (Field::of(&visit.form, "reason", "Reason").hint("It stays in the record.").line())
        button { "Create the key" }
    };
    Shown::new("Create a key", visit.utc())
        .lead(html! { "The secret is shown once, on the next page." })
        .body(html! {
            (form(visit, "/console/keys/new", fields))
        })
        .command("perdiem key create NAME --role ROLE")
}

/// A number of a form, or the text as it is, which `/v1` then refuses with its words.
fn whole(text: &str) -> serde_json::Value {
    text.parse::<u64>()
        .map_or_else(|_| json!(text), |number| json!(number))
}

pub async fn create(visit: &Visit<'_>) -> Replied {
    let policies: Vec<&str> = visit.form.get("policies").split_whitespace().collect();
    let bounds = visit
        .form
        .some("max")
        .map(|max| json!({ "max": whole(max), "days": whole(visit.form.get("days")) }));
    let body = json!({
        "name": visit.form.get("name"),
        "role": visit.form.get("role"),
        "policies": (!policies.is_empty()).then_some(policies),
        "bounds": bounds,
        "ends_at": visit.form.some("ends_at"),
        "reason": visit.form.some("reason"),
    });
    let asking = Asking::of("POST", "/v1/keys".to_owned()).body(body);
    match visit.asker.send::<CreatedKey>(asking).await {
        Ok(created) => Ok(secret_page(visit, &created.key, Some(&created.secret)).into()),
        Err(failure) => Ok(refused(new_page(visit), &failure.of_form()?).into()),
    }
}

/// The one page that shows a secret.
fn secret_page(visit: &Visit<'_>, key: &KeyAnswer, secret: Option<&str>) -> Shown {
    Shown::new(format!("Key {}", key.name), visit.utc())
        .lead(html! { "The key is ready. Copy its secret now: it is shown once." })
        .body(html! {
            @if let Some(secret) = secret {
                p.secret { code id="secret" { (secret) } " " button.plain data-copy="secret" hidden { "Copy the secret" } }
            }
            p { a.button href=(path(&["console", "keys", &key.id.to_string()])) { "The key" } }
        })
}

pub async fn replace(visit: &Visit<'_>) -> Replied {
    let target = path(&["v1", "keys", visit.name(0), "replacement"]);
    let body = json!({ "reason": visit.form.get("replaced") });
    let asking = Asking::of("POST", target)
        .body(body)
        .if_version(visit.form.get("version"));
    let replaced: KeyReplacementAnswer = visit.asker.send(asking).await?;
    Ok(secret_page(visit, &replaced.key, replaced.secret.as_deref()).into())
}

pub async fn end(visit: &Visit<'_>) -> Replied {
    let target = path(&["v1", "keys", visit.name(0)]);
    let body = json!({ "ends_at": visit.form.some("ends_at"), "reason": visit.form.some("ended") });
    let asking = Asking::of("PATCH", target).body(body);
    let asking = asking.if_version(visit.form.get("version"));
    visit.asker.value(asking).await?;
    Ok(PageReply::Redirect(path(&[
        "console",
        "keys",
        visit.name(0),
    ])))
}

pub async fn revoke(visit: &Visit<'_>) -> Replied {
    let id = visit.name(0);
    let listed: ListedKey = visit.asker.get(path(&["v1", "keys", id])).await?;
    if visit.form.get("name") != listed.key.name.trim() {
        return Err(PageFailure::NotFound(
            "The name that you typed is not the name of this key. Nothing was revoked.".to_owned(),
        ));
    }
    let target = with(
        &path(&["v1", "keys", id]),
        &[("reason", visit.form.get("revoked"))],
    );
    let asking = Asking::of("DELETE", target).if_version(visit.form.get("version"));
    visit.asker.value(asking).await?;
    Ok(PageReply::Redirect(path(&["console", "keys", id])))
}
