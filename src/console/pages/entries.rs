//! Entries: who got what, and when?

use maud::{Markup, html};

use super::makers::Makers;
use crate::asking::with;
use crate::local::Local;
use crate::parts::{
    Heading, button_to, cell, empty, figure, grant, kind, maker, next_page, policy, policy_filter,
    reason, subject, table,
};
use crate::visit::{PageReply, Replied, Shown, Visit};
use crate::words::number;
use api::entries::{HistoryItem, HistoryList};
use api::policies::PolicyList;

/// The filters that `/v1/entries` and its export take.
const FILTERS: [&str; 8] = [
    "policy", "subject", "kind", "crossed", "on", "from", "to", "as_of",
];
const KINDS: [(&str, &str); 11] = [
    ("", "all"),
    ("grant", "grants"),
    ("confirmation", "confirmations"),
    ("reversal", "reversals"),
    ("partial_reversal", "partial reversals"),
    ("lapse", "lapses"),
    ("adjustment", "adjustments"),
    ("reset", "resets"),
    ("calendar", "moves of calendars"),
    ("top_up", "top-ups"),
    ("top_up_reversal", "reversals of top-ups"),
];

/// The address of a list with the filters of this page.
fn filtered(visit: &Visit<'_>, target: &str, more: &[(&str, &str)]) -> String {
    let of_page = FILTERS.map(|name| (name, visit.query.get(name)));
    with(target, &[&of_page[..], more].concat())
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    let cursor = [("limit", "50"), ("cursor", visit.query.get("cursor"))];
    let policies: PolicyList = visit.asker.get("/v1/policies?limit=100".into()).await?;
    let of = policies
        .items
        .iter()
        .find(|of| of.name == visit.query.get("policy"));
    let local = of.map_or_else(|| visit.utc(), |of| visit.local(&of.time_zone));
    let filters = filter_form(visit, &policies);
    // A local day, and a key that is confined, need a policy.
    let needs_policy = visit.query.get("policy").is_empty()
        && (visit.is_confined()
            || ["on", "from", "to"]
                .iter()
                .any(|name| !visit.query.get(name).is_empty()));
    if needs_policy {
        return Ok(Shown::new("Entries", local)
            .lead(html! { "Choose a policy: local days are those of its zone." })
            .body(filters)
            .into());
    }
    let list: HistoryList = visit
        .asker
        .get(filtered(visit, "/v1/entries", &cursor))
        .await?;
    let makers = list
        .items
        .iter()
        .filter_map(|item| item.entry.by.as_deref());
    let makers = Makers::of(visit, makers).await;
    let export = |format: &str| filtered(visit, "/console/entries/export", &[("format", format)]);
    Ok(Shown::new("Entries", local.clone())
        .lead(html! {
            "Every grant, and what became of it, in the order of the record, up to position " (number(list.as_of)) "."
        })
        .acts(html! {
            (button_to(&export("csv"), "Export as CSV"))
            (button_to(&export("ndjson"), "Export as NDJSON"))
        })
        .body(html! {
            (filters)
            @if list.items.is_empty() {
                (empty(html! {
                    "No entry matches. Refused claims are no entries: see "
                    a href="/console/subjects" { "Subjects" } "."
                }))
            } @else {
                (entry_table(&list.items, &makers, &local))
            }
            (next_page(visit, list.next_cursor.as_deref()))
        })
        .command("perdiem entries")
        .into())
}

fn filter_form(visit: &Visit<'_>, policies: &PolicyList) -> Markup {
    let line = |name: &'static str, label: &'static str, kind: &'static str| {
        html! {
            div.field {
                label for=(name) { (label) }
                input id=(name) name=(name) type=(kind) value=(visit.query.get(name));
            }
        }
    };
    html! {
        form.filters action="/console/entries" {
            (policy_filter(visit, policies))
            (line("subject", "Subject", "text"))
            div.field {
                label for="kind" { "Kind" }
                select id="kind" name="kind" {
                    @for (value, says) in KINDS {
                        option value=(value) selected[value == visit.query.get("kind")] { (says) }
                    }
                }
            }
            (line("crossed", "Reached percent", "text"))
            (line("on", "On the local day", "date"))
            (line("from", "From the day", "date"))
            (line("to", "Before the day", "date"))
            (line("as_of", "As of position", "text"))
            button { "Show" }
        }
    }
}

fn entry_table(items: &[HistoryItem], makers: &Makers, local: &Local) -> Markup {
    let columns = [
        Heading::Figure("Position"),
        Heading::Text("Counted at"),
        Heading::Text("Policy"),
        Heading::Text("Subject"),
        Heading::Text("Kind"),
        Heading::Figure("Units"),
        Heading::Text("By"),
        Heading::Text("Reason"),
        Heading::Text("Grant"),
    ];
    let row = |item: &HistoryItem| {
        let entry = &item.entry;
        let is_grant = &*entry.kind == "grant";
        let of = entry.grant.or(is_grant.then_some(entry.id));
        html! {
            tr {
                (figure("Position", number(item.position)))
                (cell("Counted at", local.show(entry.counted_at)))
                (cell("Policy", policy(&item.policy)))
                (cell("Subject", subject(item.subject.as_deref())))
                (cell("Kind", kind(entry)))
                (figure("Units", number(entry.units)))
                (cell("By", html! {
                    @if let Some(by) = &entry.by {
                        (makers.show(by))
                    } @else if let Some(key) = &item.key {
                        (maker(&key.id.to_string(), Some(&key.name)))
                    }
                }))
                (cell("Reason", html! { @if entry.reason.is_some() { (reason(entry.reason.as_deref())) } }))
                (cell("Grant", html! { @if let Some(of) = of { (grant(of)) } }))
            }
        }
    };
    table(&columns, items.iter().map(row))
}

pub async fn export(visit: &Visit<'_>) -> Replied {
    // Filters that are wrong have a page instead of a file.
    let one = filtered(visit, "/v1/entries", &[("limit", "1")]);
    visit.asker.check(&one).await?;
    let format = [("format", visit.query.some("format").unwrap_or("csv"))];
    let target = filtered(visit, "/v1/entries/export", &format);
    Ok(PageReply::File { target })
}
