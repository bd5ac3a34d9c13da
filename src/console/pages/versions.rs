//! The versions of a policy: what changed, who changed it, and why?

use maud::{Markup, html};
use serde_json::json;

use super::makers::Makers;
use super::version::{difference_table, differences};
use crate::asking::{path, with};
use crate::local::Local;
use crate::parts::{Heading, button_to, cell, empty, next_page, reason, table};
use crate::visit::{Replied, Shown, Visit};
use crate::words;
use api::policies::{PolicyAnswer, PolicyList};

pub async fn show(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let target = with(
        &path(&["v1", "policies", name, "versions"]),
        &[("limit", "50"), ("cursor", visit.query.get("cursor"))],
    );
    let list: PolicyList = visit.asker.get(target).await?;
    let versions = &list.items;
    let zone = versions.first().map_or("UTC", |newest| &newest.time_zone);
    let local = visit.local(zone);
    let makers = Makers::of(visit, versions.iter().map(|version| &*version.changed_by)).await;
    let with_number = |text: &str| versions.iter().find(|it| it.version.to_string() == text);
    let right = with_number(visit.query.get("right")).or(versions.first());
    let before = right.and_then(|right| versions.iter().find(|it| it.version < right.version));
    let left = with_number(visit.query.get("left")).or(before);
    let columns = [
        Heading::Text("Version"),
        Heading::Text("Made"),
        Heading::Text("By"),
        Heading::Text("In force from"),
        Heading::Text("Limits"),
        Heading::Text("Reason"),
        Heading::Text("Compare"),
    ];
    let row = |version: &PolicyAnswer| {
        let number = version.version.to_string();
        let edit = path(&["console", "policies", name, "edit"]);
        let compare = with(&visit.path, &[("right", &*number)]);
        html! {
            tr {
                (cell("Version", &number))
                (cell("Made", local.show(version.changed_at)))
                (cell("By", makers.show(&version.changed_by)))
                (cell("In force from", local.show(version.effective_at)))
                (cell("Limits", words::limits(&version.limits)))
                (cell("Reason", reason(version.reason.as_deref())))
                (cell("Compare", html! {
                    @if version.version > 1 { a href=(compare) { "with the one before" } " " }
                    @if visit.may_change() && Some(version.version) != versions.first().map(|it| it.version) {
                        a href=(with(&edit, &[("restore", &*number)])) { "restore" }
                    }
                }))
            }
        }
    };
    let newest = versions.first();
    Ok(Shown::new(format!("Versions of policy {name}"), local.clone())
        .lead(html! {
            @if let Some(newest) = newest {
                "Version " (newest.version) " was made " (local.distance(newest.changed_at)) " by "
                (makers.show(&newest.changed_by)) ": " (reason(newest.reason.as_deref()))
            }
        })
        .acts(button_to(&path(&["console", "policies", name]), "The policy"))
        .body(html! {
            @if let Some(right) = right { (compared(left, right, &local)) }
            h2 { "All versions" }
            (table(&columns, versions.iter().map(row)))
            (next_page(visit, list.next_cursor.as_deref()))
        })
        .command(format!("perdiem policy versions {name}"))
        .into())
}

fn compared(left: Option<&PolicyAnswer>, right: &PolicyAnswer, local: &Local) -> Markup {
    let Some(left) = left else {
        return Markup::default();
    };
    let both = [left, right].map(|version| json!(version));
    let found = differences(Some(&both[0]), Some(&both[1]), local);
    let [before, after] = [left, right].map(|version| format!("version {}", version.version));
    html! {
        h2 { "Version " (left.version) " and version " (right.version) }
        @if found.is_empty() {
            (empty("They have the same settings."))
        } @else {
            (difference_table(&found, &before, &after))
        }
    }
}
