//! Overrides: who is treated differently?

use maud::html;
use serde_json::json;

use super::exceptions::{
    end_exception, end_form, for_helpers, open_form, open_link, put_exception, until, until_field,
};
use super::known::Known;
use super::makers::Makers;
use super::version::maxes;
use crate::asking::{PageFailure, command, path, with};
use crate::local::Local;
use crate::parts::{
    Field, Heading, cell, empty, faulty, form, next_page, reason, reason_field, subject, table,
};
use crate::visit::{Replied, Shown, Visit};
use crate::words;
use api::overrides::{OverrideAnswer, OverrideList};
use api::policies::PolicyAnswer;

async fn policy_of(visit: &Visit<'_>) -> Result<(PolicyAnswer, Local), PageFailure> {
    let known = Known::ask(visit, visit.name(0)).await?;
    Ok((known.in_force, known.local))
}

pub async fn list(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let (policy, local) = policy_of(visit).await?;
    let target = with(
        &path(&["v1", "policies", name, "overrides"]),
        &[("limit", "50"), ("cursor", visit.query.get("cursor"))],
    );
    let list: OverrideList = visit.asker.get(target).await?;
    let makers = Makers::of(visit, list.items.iter().map(|it| &*it.changed_by)).await;
    let columns = [
        Heading::Text("Subject"),
        Heading::Text("Limits"),
        Heading::Text("Until"),
        Heading::Text("By"),
        Heading::Text("Reason"),
        Heading::Text("Change"),
    ];
    let row = |found: &OverrideAnswer| {
        html! {
            tr {
                (cell("Subject", subject(found.subject.as_deref())))
                (cell("Limits", maxes(found)))
                (cell("Until", until(found.until, &local)))
                (cell("By", makers.show(&found.changed_by)))
                (cell("Reason", reason(found.reason.as_deref())))
                (cell("Change", open_link(name, "overrides", found.subject.as_deref())))
            }
        }
    };
    let base = path(&["console", "policies", name, "overrides"]);
    Ok(
        Shown::new(format!("Overrides of policy {name}"), local.clone())
            .lead(html! {
                "Every subject has " (words::limits(&policy.limits)) ", except those below."
            })
            .body(html! {
                @if list.items.is_empty() {
                    (empty("No override: every subject has the limits of the policy."))
                } @else {
                    (table(&columns, list.items.iter().map(row)))
                }
                (next_page(visit, list.next_cursor.as_deref()))
                @if visit.may_help() { (open_form("Add an override", &base)) }
            })
            .command(command(&["perdiem", "override", "list", name]))
            .into(),
    )
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    Ok(override_page(visit).await?.into())
}

/// The page of one subject's override, with the form that changes it.
async fn override_page(visit: &Visit<'_>) -> Result<Shown, PageFailure> {
    let name = visit.name(0);
    let whose = visit.name(1);
    let (policy, local) = policy_of(visit).await?;
    let target = path(&["v1", "policies", name, "overrides", whose]);
    let found: Option<OverrideAnswer> = visit.asker.find(target).await?;
    let makers = Makers::of(visit, found.iter().map(|it| &*it.changed_by)).await;
    let is_there = found.as_ref().filter(|found| !found.limits.is_empty());
    let version = found.as_ref().map_or(0, |found| found.version);
    let was_sent = visit.form.has("until");
    let max = |per: &str| {
        let sent = visit.form.get(&format!("max-{per}")).to_owned();
        let limits = is_there.iter().flat_map(|found| &found.limits);
        let mut known = limits.filter(|limit| limit.per.to_string() == per);
        if was_sent {
            sent
        } else {
            known
                .next()
                .map_or_else(String::new, |limit| limit.max.to_string())
        }
    };
    let fields = html! {
        input type="hidden" name="version" value=(version);
        @for limit in &policy.limits {
            @let per = limit.per.to_string();
            (Field {
                name: &format!("max-{per}"),
                label: &format!("Units {}", match &*per { "ever" => "in all".to_owned(), per => format!("per {per}") }),
                hint: &format!("The policy's: {}. Empty: as the policy.", words::limit(limit)),
                value: &max(&per),
                fault: None,
                required: false,
            }.line())
        }
        (until_field(visit, is_there.and_then(|found| found.until)))
        (reason_field(visit))
        button { @if is_there.is_some() { "Change the override" } @else { "Add the override" } }
    };
    Ok(Shown::new(format!("Override of {whose} under {name}"), local.clone())
        .lead(html! {
            @if let Some(found) = is_there {
                (subject(Some(whose))) " has " (maxes(found)) ", " (until(found.until, &local)) ", by "
                (makers.show(&found.changed_by)) ": " (reason(found.reason.as_deref()))
            } @else {
                (subject(Some(whose))) " has the limits of the policy: " (words::limits(&policy.limits)) "."
            }
        })
        .body(html! {
            @if visit.may_help() {
                (form(visit, &visit.path, fields))
                @if is_there.is_some() {
                    (end_form(visit, version, "override"))
                }
            } @else {
                (for_helpers())
            }
        })
        .command(command(&["perdiem", "override", "show", "--", name, whose])))
}

pub async fn put(visit: &Visit<'_>) -> Replied {
    let mut limits = Vec::new();
    for (field, max) in visit.form.pairs() {
        let Some(per) = field.strip_prefix("max-") else {
            continue;
        };
        match max.trim() {
            "" => {}
            text => match text.parse::<u64>() {
                Ok(max) => limits.push(json!({ "max": max, "per": per })),
                Err(_) => {
                    let says = format!("Write a whole number of units per {per}, not {text:?}.");
                    return Ok(faulty(override_page(visit).await?, &says, &[]).into());
                }
            },
        }
    }
    let body = json!({
        "limits": limits,
        "until": visit.form.some("until"),
        "reason": visit.form.some("reason"),
    });
    put_exception(visit, "overrides", body, override_page).await
}

pub async fn end(visit: &Visit<'_>) -> Replied {
    end_exception(visit, "overrides").await
}
