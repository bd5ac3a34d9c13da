//! Reconciliations: does what perdiem derives agree with the ledger?

use maud::{Markup, html};
use serde_json::json;

use super::makers::Makers;
use crate::asking::{Asking, path, with};
use crate::local::Local;
use crate::parts::{Heading, cell, empty, facts, figure, form, next_page, subject, table};
use crate::visit::{PageReply, Replied, Shown, Visit};
use crate::words::{count, number};
use api::reconciliations::{
    DifferenceBody, ReconciliationAnswer, ReconciliationList, ReconciliationReport,
};

pub async fn list(visit: &Visit<'_>) -> Replied {
    let target = with(
        "/v1/reconciliations",
        &[("limit", "50"), ("cursor", visit.query.get("cursor"))],
    );
    let list: ReconciliationList = visit.asker.get(target).await?;
    let local = visit.utc();
    let columns = [
        Heading::Text("Began"),
        Heading::Text("Ended"),
        Heading::Figure("Entries"),
        Heading::Figure("Differences"),
        Heading::Figure("Healed"),
        Heading::Figure("Alarms"),
    ];
    let row = |report: &ReconciliationReport| {
        html! {
            tr {
                (cell("Began", html! {
                    a href=(path(&["console", "reconciliations", &report.id.to_string()])) {
                        (local.show(report.started_at))
                    }
                }))
                (cell("Ended", ended(report, &local)))
                (figure("Entries", number(report.entry_count)))
                (figure("Differences", number(report.difference_count)))
                (figure("Healed", number(report.healed_count)))
                (figure("Alarms", number(report.alarm_count)))
            }
        }
    };
    let last = list.items.first();
    Ok(Shown::new("Reconciliations", local.clone())
        .lead(html! {
            @if let Some(last) = last {
                "The last one began " (local.distance(last.started_at)) " and found "
                (count(last.difference_count, "difference")) ", of which " (number(last.alarm_count))
                " should not be there."
            } @else { "None has run yet." }
        })
        .acts(html! {
            @if visit.settings.is_read_only {} @else {
                (form(visit, "/console/reconciliations", html! { button { "Reconcile now" } }))
            }
        })
        .body(html! {
            @if list.items.is_empty() {
                (empty("perdiem reconciles by itself; you can also begin one now."))
            } @else {
                (table(&columns, list.items.iter().map(row)))
            }
            (next_page(visit, list.next_cursor.as_deref()))
        })
        .command("perdiem reconcile")
        .into())
}

fn ended(report: &ReconciliationReport, local: &Local) -> Markup {
    match report.finished_at {
        Some(at) => local.show(at),
        None => html! { span.muted { "in progress, or broken off" } },
    }
}

pub async fn run(visit: &Visit<'_>) -> Replied {
    let asking = Asking::of("POST", "/v1/reconciliations".to_owned()).body(json!({}));
    let report: ReconciliationReport = visit.asker.send(asking).await?;
    Ok(PageReply::Redirect(path(&[
        "console",
        "reconciliations",
        &report.id.to_string(),
    ])))
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    let target = path(&["v1", "reconciliations", visit.name(0)]);
    let ReconciliationAnswer {
        report,
        differences,
    } = visit.asker.get(target).await?;
    let local = visit.utc();
    let makers = Makers::of(visit, report.requested_by.as_deref()).await;
    let columns = [
        Heading::Text("Kind"),
        Heading::Text("Policy"),
        Heading::Text("Subject"),
        Heading::Text("Found"),
        Heading::Text("Expected"),
        Heading::Text("Healed"),
    ];
    let row = |difference: &DifferenceBody| {
        let shown = |value: Option<u64>| value.map_or_else(|| "none".to_owned(), number);
        html! {
            tr {
                (cell("Kind", html! {
                    (difference.kind) @if difference.alarm { " " span.flag.bad { "alarm" } }
                }))
                (cell("Policy", difference.policy.as_deref().unwrap_or("")))
                (cell("Subject", html! {
                    @if difference.subject.is_some() { (subject(difference.subject.as_deref())) }
                }))
                (cell("Found", shown(difference.found_number)))
                (cell("Expected", shown(difference.expected_number)))
                (cell("Healed", if difference.healed { "yes" } else { "no" }))
            }
        }
    };
    Ok(Shown::new("Reconciliation", local.clone())
        .lead(html! {
            "It looked at " (number(report.entry_count)) " entries of " (number(report.account_count))
            " accounts and found " (count(report.difference_count, "difference")) "."
        })
        .body(html! {
            (facts([
                ("Id", html! { code.id { (report.id) } }),
                ("Began", local.show(report.started_at)),
                ("Ended", ended(&report, &local)),
                ("Asked for by", html! {
                    @if let Some(by) = &report.requested_by { (makers.show(by)) } @else { "perdiem" }
                }),
                ("Heals", html! { @if report.apply { "yes" } @else { "no, it only looks" } }),
                ("Ledger", html! { (report.ledger) }),
            ]))
            @if differences.is_empty() {
                (empty("Everything agrees."))
            } @else {
                (table(&columns, differences.iter().map(row)))
            }
        })
        .into())
}
