//! Blocks: whom does a policy refuse, whatever its limits are?

use maud::html;
use serde_json::json;

use super::exceptions::{
    end_exception, end_form, for_helpers, open_form, open_link, put_exception, until, until_field,
};
use super::makers::Makers;
use crate::asking::{PageFailure, command, path, with};
use crate::parts::{Heading, cell, empty, form, next_page, reason, reason_field, subject, table};
use crate::visit::{Replied, Shown, Visit};
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
                (cell("Change", open_link(name, "blocks", found.subject.as_deref())))
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
    Ok(block_page(visit).await?.into())
}

async fn block_page(visit: &Visit<'_>) -> Result<Shown, PageFailure> {
    let name = visit.name(0);
    let whose = visit.name(1);
    let target = path(&["v1", "policies", name, "blocks", whose]);
    let found: Option<BlockAnswer> = visit.asker.find(target).await?;
    let makers = Makers::of(visit, found.iter().map(|it| &*it.changed_by)).await;
    let local = visit.utc();
    let version = found.as_ref().map_or(0, |found| found.version);
    let fields = html! {
        input type="hidden" name="version" value=(version);
        (until_field(visit, found.as_ref().and_then(|found| found.until)))
        (reason_field(visit))
        button { @if found.is_some() { "Change the block" } @else { "Block the subject" } }
    };
    Ok(
        Shown::new(format!("Block of {whose} under {name}"), local.clone())
            .lead(html! {
                @if let Some(found) = &found {
                    (subject(Some(whose))) " is blocked, " (until(found.until, &local)) ", by "
                    (makers.show(&found.changed_by)) ": " (reason(found.reason.as_deref()))
                } @else {
                    (subject(Some(whose))) " is not blocked."
                }
            })
            .body(html! {
                @if visit.may_help() {
                    (form(visit, &visit.path, fields))
                    @if found.is_some() {
                        (end_form(visit, version, "block"))
                    }
                } @else {
                    (for_helpers())
                }
            })
            .command(command(&["perdiem", "block", "show", "--", name, whose])),
    )
}

pub async fn put(visit: &Visit<'_>) -> Replied {
    let body = json!({ "until": visit.form.some("until"), "reason": visit.form.some("reason") });
    put_exception(visit, "blocks", body, block_page).await
}

pub async fn end(visit: &Visit<'_>) -> Replied {
    end_exception(visit, "blocks").await
}
