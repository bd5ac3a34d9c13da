//! A bundle: what was granted together, and what became of it?

use maud::{Markup, html};
use serde_json::json;

use crate::asking::{Asking, PageFailure, path};
use crate::parts::{
    Heading, cell, figure, form, grant, policy, reason_field, refused, state, subject, table,
};
use crate::visit::{PageReply, Replied, Shown, Visit};
use crate::words::{count, number};
use api::bundles::BundleBody;
use api::grants::GrantBody;

pub async fn show(visit: &Visit<'_>) -> Replied {
    Ok(bundle_page(visit).await?.into())
}

async fn bundle_page(visit: &Visit<'_>) -> Result<Shown, PageFailure> {
    let id = visit.name(0);
    let bundle: BundleBody = visit.asker.get(path(&["v1", "bundles", id])).await?;
    let grants = &bundle.grants;
    let left = grants.iter().filter(|grant| grant.is_left()).count() as u64;
    let is_held = grants.iter().any(|grant| &*grant.state == "held");
    let base = path(&["console", "bundles", id]);
    let granted_at = grants.iter().map(|grant| grant.granted_at).min();
    Ok(Shown::new("Bundle", visit.utc())
        .lead(html! {
            (count(grants.len() as u64, "claim")) " of one batch got their units together"
            @if let Some(at) = granted_at { " at " (visit.utc().show(at)) }
            ". Units are left of " (count(left, "grant")) "."
        })
        .acts(html! {
            @if visit.may_help() && is_held {
                (form(visit, &format!("{base}/confirm"), html! { button { "Confirm all holds" } }))
            }
        })
        .body(html! {
            (grant_table(visit, grants))
            @if visit.may_help() && left > 0 {
                h2 { "Give all of it back" }
                (form(visit, &format!("{base}/give-back"), html! {
                    (reason_field(visit))
                    button { "Give the units back" }
                }))
            }
        })
        .command(format!("perdiem bundle show {id}")))
}

fn grant_table(visit: &Visit<'_>, grants: &[GrantBody]) -> Markup {
    let columns = [
        Heading::Text("At"),
        Heading::Text("Policy"),
        Heading::Text("Subject"),
        Heading::Figure("Units"),
        Heading::Text("State"),
        Heading::Text("Grant"),
    ];
    let local = visit.utc();
    let row = |found: &GrantBody| {
        html! {
            tr {
                (cell("At", local.show(found.granted_at)))
                (cell("Policy", policy(&found.policy)))
                (cell("Subject", subject(found.subject.as_deref())))
                (figure("Units", number(found.units)))
                (cell("State", state(&found.state)))
                (cell("Grant", grant(found.id)))
            }
        }
    };
    table(&columns, grants.iter().map(row))
}

pub async fn give_back(visit: &Visit<'_>) -> Replied {
    let target = path(&["v1", "bundles", visit.name(0), "reversal"]);
    let body = json!({ "reason": visit.form.get("reason") });
    corrected(visit, Asking::of("POST", target).body(body)).await
}

pub async fn confirm(visit: &Visit<'_>) -> Replied {
    let target = path(&["v1", "bundles", visit.name(0), "confirmation"]);
    corrected(visit, Asking::of("POST", target).body(json!({}))).await
}

async fn corrected(visit: &Visit<'_>, asking: Asking) -> Replied {
    match visit.asker.value(asking).await {
        Ok(_) => Ok(PageReply::Redirect(path(&[
            "console",
            "bundles",
            visit.name(0),
        ]))),
        Err(failure) => {
            let problem = failure.of_form()?;
            Ok(refused(bundle_page(visit).await?, &problem).into())
        }
    }
}
