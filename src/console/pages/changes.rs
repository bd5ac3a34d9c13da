//! Changes: who changed what, when and why?

use maud::html;

use super::makers::Makers;
use super::version::sentence;
use crate::asking::with;
use crate::parts::{Heading, cell, empty, figure, next_page, reason, table};
use crate::visit::{Replied, Shown, Visit};
use crate::words::number;
use api::changes::{ChangeAnswer, ChangeList};

const KINDS: [(&str, &str); 10] = [
    ("", "all but reads and days"),
    ("policy", "policies"),
    ("override", "overrides"),
    ("tier", "tiers of subjects"),
    ("block", "blocks"),
    ("key", "keys"),
    ("export", "exports"),
    ("erasure", "erasures"),
    ("read", "reads of subjects"),
    ("day", "figures of days"),
];

pub async fn show(visit: &Visit<'_>) -> Replied {
    let names = ["policy", "kind", "by", "subject", "from", "to", "cursor"];
    let filters = names.map(|name| (name, visit.query.get(name)));
    let target = with("/v1/changes", &[&filters[..], &[("limit", "50")]].concat());
    let local = visit.utc();
    let form = html! {
        form.filters action="/console/changes" {
            div.field {
                label for="policy" { "Policy" }
                input id="policy" name="policy" value=(visit.query.get("policy"));
            }
            div.field {
                label for="kind" { "Kind" }
                select id="kind" name="kind" {
                    @for (value, says) in KINDS {
                        option value=(value) selected[value == visit.query.get("kind")] { (says) }
                    }
                }
            }
            div.field {
                label for="by" { "By the key with the id" }
                input id="by" name="by" value=(visit.query.get("by"));
            }
            button { "Show" }
        }
    };
    if visit.is_confined() && visit.query.get("policy").is_empty() {
        return Ok(Shown::new("Changes", local)
            .lead(html! { "Your key is confined to policies: choose one." })
            .body(form)
            .into());
    }
    let list: ChangeList = visit.asker.get(target).await?;
    let makers = Makers::of(visit, list.items.iter().map(|change| &*change.by)).await;
    let columns = [
        Heading::Figure("Revision"),
        Heading::Text("At"),
        Heading::Text("By"),
        Heading::Text("What"),
        Heading::Text("Reason"),
    ];
    let row = |change: &ChangeAnswer| {
        html! {
            tr {
                (figure("Revision", number(change.revision)))
                (cell("At", local.show(change.at)))
                (cell("By", makers.show(&change.by)))
                (cell("What", sentence(change, &local)))
                (cell("Reason", reason(change.reason.as_deref())))
            }
        }
    };
    Ok(Shown::new("Changes", local.clone())
        .lead(html! { "Changes of policies, overrides, tiers, blocks and keys, and acts of auditors, newest first." })
        .body(html! {
            (form)
            @if list.items.is_empty() {
                (empty("Nothing matches."))
            } @else {
                (table(&columns, list.items.iter().map(row)))
            }
            (next_page(visit, list.next_cursor.as_deref()))
        })
        .command("perdiem changes")
        .into())
}
