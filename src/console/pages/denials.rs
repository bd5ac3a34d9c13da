//! Denials: who was refused?

use maud::html;

use crate::asking::{path, with};
use crate::parts::{Heading, cell, empty, figure, next_page, policy, subject, table};
use crate::visit::{Replied, Shown, Visit};
use crate::words::{number, usage};
use api::policies::PolicyAnswer;
use api::statistics::{DenialItem, DenialItemList};

pub async fn show(visit: &Visit<'_>) -> Replied {
    let name = visit.query.get("policy");
    let on = visit.query.get("on");
    let of: Option<PolicyAnswer> = match name {
        "" => None,
        name => visit.asker.find(path(&["v1", "policies", name])).await?,
    };
    let local = of.map_or_else(|| visit.utc(), |of| visit.local(&of.time_zone));
    let target = with(
        "/v1/denials",
        &[
            ("policy", name),
            ("on", if name.is_empty() { "" } else { on }),
            ("limit", "50"),
            ("cursor", visit.query.get("cursor")),
        ],
    );
    let list: DenialItemList = visit.asker.get(target).await?;
    let columns = [
        Heading::Text("At"),
        Heading::Text("Policy"),
        Heading::Text("Subject"),
        Heading::Figure("Units"),
        Heading::Text("Used then"),
    ];
    let row = |item: &DenialItem| {
        let used: Vec<String> = item.denial.limits.iter().map(usage).collect();
        html! {
            tr {
                (cell("At", local.show(item.denial.denied_at)))
                (cell("Policy", policy(&item.policy)))
                (cell("Subject", subject(item.subject.as_deref())))
                (figure("Units", number(item.denial.units)))
                (cell("Used then", used.join(", ")))
            }
        }
    };
    Ok(Shown::new("Refused claims", local.clone())
        .lead(html! {
            "The first refusal of each subject in each window of the last 30 days, newest first. Later ones are only \
             counted."
        })
        .body(html! {
            form.filters action="/console/denials" {
                div.field {
                    label for="policy" { "Policy" }
                    input id="policy" name="policy" value=(name);
                }
                div.field {
                    label for="on" { "On the local day of the policy" }
                    input id="on" name="on" type="date" value=(on);
                }
                button { "Show" }
            }
            @if list.items.is_empty() {
                (empty("Nobody was refused."))
            } @else {
                (table(&columns, list.items.iter().map(row)))
            }
            (next_page(visit, list.next_cursor.as_deref()))
        })
        .command("perdiem denials")
        .into())
}
