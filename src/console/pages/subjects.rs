//! Subjects: find one, and see who is near a limit or was refused.

use maud::{Markup, html};

use crate::asking::{command, path, with};
use crate::parts::{Heading, cell, empty, next_page, policy, policy_filter, subject, table};
use crate::visit::{Replied, Shown, Visit};
use api::policies::PolicyList;
use api::subjects::{SubjectItem, SubjectList};

pub async fn show(visit: &Visit<'_>) -> Replied {
    let prefix = visit.query.get("prefix");
    let target = with(
        "/v1/subjects",
        &[
            ("prefix", prefix),
            ("policy", visit.query.get("policy")),
            ("limit", "50"),
            ("cursor", visit.query.get("cursor")),
        ],
    );
    let found: SubjectList = visit.asker.get(target).await?;
    let policies: PolicyList = visit.asker.get("/v1/policies?limit=20".into()).await?;
    let today = visit.utc().today().to_string();
    Ok(Shown::new("Subjects", visit.utc())
        .lead(html! {
            "Whom policies count: members, phone numbers, devices. Open one to see why it was refused."
        })
        .body(html! {
            form.filters action="/console/subjects" {
                div.field {
                    label for="prefix" { "Begins with" }
                    input id="prefix" name="prefix" value=(prefix);
                }
                (policy_filter(visit, &policies))
                button { "Show" }
            }
            @if found.items.is_empty() {
                (empty(html! {
                    @if prefix.is_empty() {
                        "No subject claimed yet."
                    } @else {
                        "No subject begins with “" bdi { (prefix) } "”. Upper and lower case differ."
                    }
                }))
            } @else {
                (subject_table(&found.items))
            }
            (next_page(visit, found.next_cursor.as_deref()))
            h2 { "Near a limit, and refused today" }
            ul.lines {
                @for of in &policies.items {
                    li {
                        (policy(&of.name)) ": "
                        a href=(path(&["console", "policies", &of.name])) { "near the limit" } " · "
                        a href=(with("/console/denials", &[("policy", &*of.name), ("on", &today)])) { "refused today" }
                    }
                }
            }
        })
        .command(if prefix.is_empty() { "perdiem subjects".to_owned() } else { command(&["perdiem", "subjects", "--", prefix]) })
        .into())
}

pub fn subject_table(items: &[SubjectItem]) -> Markup {
    let columns = [Heading::Text("Subject"), Heading::Text("Known under")];
    let row = |item: &SubjectItem| {
        html! {
            tr {
                (cell("Subject", subject(Some(&item.subject))))
                (cell("Known under", html! {
                    @for (index, name) in item.policies.iter().enumerate() {
                        @if index > 0 { ", " }
                        a href=(with(&path(&["console", "subjects", &item.subject]), &[("policy", &**name)])) { (name) }
                    }
                }))
            }
        }
    };
    table(&columns, items.iter().map(row))
}
