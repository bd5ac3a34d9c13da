//! Blocks: whom does a policy refuse, whatever its limits are?

use maud::html;
use serde_json::json;

use super::makers::Makers;
use super::overrides::{conditioned, open_form, until};
use crate::asking::{Asking, PageFailure, command, path, problem_text, with};
use crate::parts::{Field, Heading, cell, empty, form, next_page, reason, subject, table};
use crate::visit::{PageReply, Replied, Shown, Visit};
use api::blocks::{BlockAnswer, BlockList};

pub async fn list(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let target = with(
        &path(&["v1", "policies", name, "blocks"]),
        &[("limit", "50"), ("cursor", visit.query.get("cursor"))],
    );
    let list: BlockList = visit.asker.get(target).await?;
    let makers = Makers::of(visit, list.items.iter().map(|it| &*it.changed_by)).await;
    let local = visit.utc();
    let columns = [
        Heading::Text("Subject"),
        Heading::Text("Until"),
        Heading::Text("By"),
        Heading::Text("Reason"),
        Heading::Text("Change"),
    ];
    let row = |found: &BlockAnswer| {
        html! {
            tr {
                (cell("Subject", subject(found.subject.as_deref())))
                (cell("Until", until(found.until, &local)))
                (cell("By", makers.show(&found.changed_by)))
                (cell("Reason", reason(found.reason.as_deref())))
                (cell("Change", html! {
                    @if let Some(subject) = &found.subject {
                        a href=(path(&["console", "policies", name, "blocks", subject])) { "Open" }
                    }
                }))
            }
        }
    };
    let base = path(&["console", "policies", name, "blocks"]);
    Ok(Shown::new(format!("Blocks of policy {name}"), local.clone())
        .lead(html! {
            @if list.items.is_empty() { "Nobody is blocked." } @else {
                "These subjects are refused, whatever their limits are."
            }
        })
        .body(html! {
            @if list.items.is_empty() {
                (empty("A block refuses every claim of a subject, with a reason and, if you like, an end."))
            } @else {
                (table(&columns, list.items.iter().map(row)))
            }
            (next_page(visit, list.next_cursor.as_deref()))
            @if visit.may_help() { (open_form("Block a subject", &base)) }
        })
        .command(command(&["perdiem", "block", "list", name]))
        .into())
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    Ok(block_page(visit, "").await?.into())
}

async fn block_page(visit: &Visit<'_>, problem: &str) -> Result<Shown, PageFailure> {
    let name = visit.name(0);
    let whose = visit.name(1);
    let target = path(&["v1", "policies", name, "blocks", whose]);
    let found: Option<BlockAnswer> = visit.asker.find(target).await?;
    let makers = Makers::of(visit, found.iter().map(|it| &*it.changed_by)).await;
    let local = visit.utc();
    let version = found.as_ref().map_or(0, |found| found.version);
    let ends = format!("{}/end", visit.path);
    let written = found
        .as_ref()
        .and_then(|found| found.until)
        .map(api::instant::written);
    let until_text = if visit.form.has("until") {
        visit.form.get("until")
    } else {
        written.as_deref().unwrap_or_default()
    };
    let fields = html! {
        input type="hidden" name="version" value=(version);
        (Field::of(&visit.form, "until", "Until")
            .value(until_text)
            .hint("An instant such as 2026-12-01T00:00:00Z. Empty: without an end.")
            .line())
        (Field::of(&visit.form, "reason", "Reason").hint("It stays in the record.").required().line())
        button { @if found.is_some() { "Change the block" } @else { "Block the subject" } }
    };
    Ok(Shown::new(format!("Block of {whose} under {name}"), local.clone())
        .status(if problem.is_empty() { 200 } else { 422 })
        .lead(html! {
            @if let Some(found) = &found {
                (subject(Some(whose))) " is blocked, " (until(found.until, &local)) ", by "
                (makers.show(&found.changed_by)) ": " (reason(found.reason.as_deref()))
            } @else {
                (subject(Some(whose))) " is not blocked."
            }
        })
        .body(html! {
            @if !problem.is_empty() { p.banner.bad role="alert" { (problem) } }
            @if visit.may_help() {
                (form(visit, &visit.path, fields))
                @if found.is_some() {
                    h2 { "End it" }
                    (form(visit, &ends, html! {
                        input type="hidden" name="version" value=(version);
                        (Field { name: "why", ..Field::of(&visit.form, "reason", "Reason") }.required().line())
                        button.plain { "End the block" }
                    }))
                }
            } @else {
                p.muted { "A key of the role support or admin may change it." }
            }
        })
        .command(command(&["perdiem", "block", "show", "--", name, whose])))
}

pub async fn put(visit: &Visit<'_>) -> Replied {
    let target = path(&["v1", "policies", visit.name(0), "blocks", visit.name(1)]);
    let body = json!({ "until": visit.form.some("until"), "reason": visit.form.some("reason") });
    let asking = conditioned(
        Asking::of("PUT", target).body(body),
        visit.form.get("version"),
    );
    match visit.asker.value(asking).await {
        Ok(_) => Ok(PageReply::Redirect(visit.path.clone())),
        Err(PageFailure::Problem(problem, _))
            if [400, 403, 409, 412, 422].contains(&problem.status) =>
        {
            Ok(block_page(visit, &problem_text(&problem)).await?.into())
        }
        Err(refusal) => Err(refusal),
    }
}

pub async fn end(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let whose = visit.name(1);
    let target = with(
        &path(&["v1", "policies", name, "blocks", whose]),
        &[("reason", visit.form.get("why"))],
    );
    let asking = conditioned(Asking::of("DELETE", target), visit.form.get("version"));
    visit.asker.value(asking).await?;
    Ok(PageReply::Redirect(path(&[
        "console", "policies", name, "blocks", whose,
    ])))
}
