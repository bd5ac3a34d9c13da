//! Overrides: who is treated differently?

use maud::{Markup, html};
use serde_json::json;

use super::known::Known;
use super::makers::Makers;
use super::version::maxes;
use crate::asking::{Asking, PageFailure, command, path, problem_text, with};
use crate::local::Local;
use crate::parts::{Field, Heading, cell, empty, form, next_page, reason, subject, table};
use crate::visit::{PageReply, Replied, Shown, Visit};
use crate::words;
use api::overrides::{OverrideAnswer, OverrideList};
use api::policies::PolicyAnswer;
use api::problem::InvalidPart;

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
                (cell("Change", html! {
                    @if let Some(subject) = &found.subject {
                        a href=(path(&["console", "policies", name, "overrides", subject])) { "Open" }
                    }
                }))
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

/// A form that leads to the page of one subject.
pub fn open_form(title: &str, base: &str) -> Markup {
    html! {
        h2 { (title) }
        form action="/console/find" {
            input type="hidden" name="below" value=(base);
            div.field {
                label for="whose" { "Subject" }
                input id="whose" name="q" required;
            }
            button { "Open" }
        }
    }
}

pub fn until(until: Option<chrono::DateTime<chrono::Utc>>, local: &Local) -> Markup {
    match until {
        Some(at) if at <= local.now() => html! { "ended " (local.show(at)) },
        Some(at) => html! { (local.show(at)) ", " (local.distance(at)) },
        None => html! { span.muted { "without an end" } },
    }
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    Ok(override_page(visit, "", &[]).await?.into())
}

/// The page of one subject's override, with the form that changes it.
async fn override_page(
    visit: &Visit<'_>,
    problem: &str,
    faults: &[InvalidPart],
) -> Result<Shown, PageFailure> {
    let name = visit.name(0);
    let whose = visit.name(1);
    let (policy, local) = policy_of(visit).await?;
    let target = path(&["v1", "policies", name, "overrides", whose]);
    let found: Option<OverrideAnswer> = visit.asker.find(target).await?;
    let makers = Makers::of(visit, found.iter().map(|it| &*it.changed_by)).await;
    let is_there = found.as_ref().filter(|found| !found.limits.is_empty());
    let ends = format!("{}/end", visit.path);
    let version = found.as_ref().map_or(0, |found| found.version);
    let until_text = is_there
        .and_then(|found| found.until)
        .map(api::instant::written);
    let was_sent = visit.form.has("until");
    let until_text = if was_sent {
        visit.form.get("until")
    } else {
        until_text.as_deref().unwrap_or_default()
    };
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
        (Field::of(&visit.form, "until", "Until")
            .value(until_text)
            .hint("An instant such as 2026-12-01T00:00:00Z. Empty: without an end.")
            .line())
        (Field::of(&visit.form, "reason", "Reason").hint("It stays in the record.").required().line())
        button { @if is_there.is_some() { "Change the override" } @else { "Add the override" } }
    };
    Ok(Shown::new(format!("Override of {whose} under {name}"), local.clone())
        .status(if problem.is_empty() { 200 } else { 422 })
        .lead(html! {
            @if let Some(found) = is_there {
                (subject(Some(whose))) " has " (maxes(found)) ", " (until(found.until, &local)) ", by "
                (makers.show(&found.changed_by)) ": " (reason(found.reason.as_deref()))
            } @else {
                (subject(Some(whose))) " has the limits of the policy: " (words::limits(&policy.limits)) "."
            }
        })
        .body(html! {
            @if !problem.is_empty() {
                div.banner.bad role="alert" { p { (problem) } @if faults.len() > 1 { ul { @for fault in faults { li { (fault.detail) } } } } }
            }
            @if visit.may_help() {
                (form(visit, &visit.path, fields))
                @if is_there.is_some() {
                    h2 { "End it" }
                    (form(visit, &ends, html! {
                        input type="hidden" name="version" value=(version);
                        (Field { name: "why", ..Field::of(&visit.form, "reason", "Reason") }.required().line())
                        button.plain { "End the override" }
                    }))
                }
            } @else {
                p.muted { "A key of the role support or admin may change it." }
            }
        })
        .command(command(&["perdiem", "override", "show", "--", name, whose])))
}

pub async fn put(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let whose = visit.name(1);
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
                    return Ok(override_page(visit, &says, &[]).await?.into());
                }
            },
        }
    }
    let body = json!({
        "limits": limits,
        "until": visit.form.some("until"),
        "reason": visit.form.some("reason"),
    });
    let target = path(&["v1", "policies", name, "overrides", whose]);
    let asking = conditioned(
        Asking::of("PUT", target).body(body),
        visit.form.get("version"),
    );
    match visit.asker.value(asking).await {
        Ok(_) => Ok(PageReply::Redirect(visit.path.clone())),
        Err(PageFailure::Problem(problem, _))
            if [400, 403, 409, 412, 422].contains(&problem.status) =>
        {
            Ok(
                override_page(visit, &problem_text(&problem), &problem.errors)
                    .await?
                    .into(),
            )
        }
        Err(refusal) => Err(refusal),
    }
}

/// Lets a request change what the form showed, and nothing newer. Version 0 means that there was none.
pub fn conditioned(asking: Asking, version: &str) -> Asking {
    match version {
        "" | "0" => asking.field("If-None-Match", "*"),
        version => asking.field("If-Match", format!("\"{version}\"")),
    }
}

pub async fn end(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let whose = visit.name(1);
    let target = with(
        &path(&["v1", "policies", name, "overrides", whose]),
        &[("reason", visit.form.get("why"))],
    );
    let asking = conditioned(Asking::of("DELETE", target), visit.form.get("version"));
    visit.asker.value(asking).await?;
    Ok(PageReply::Redirect(path(&[
        "console",
        "policies",
        name,
        "overrides",
        whose,
    ])))
}
