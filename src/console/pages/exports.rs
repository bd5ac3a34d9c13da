//! Exports: what left the ledger as a file, and is a file whole?

use maud::html;

use super::makers::Makers;
use crate::asking::{path, with};
use crate::parts::{Heading, button_to, cell, empty, facts, figure, next_page, table};
use crate::visit::{Replied, Shown, Visit};
use crate::words::number;
use api::changes::{ChangeAnswer, ChangeList};
use api::exports::Manifest;

pub async fn list(visit: &Visit<'_>) -> Replied {
    let local = visit.utc();
    if visit.is_confined() {
        return Ok(Shown::new("Exports", local)
            .lead(html! { "Your key is confined to policies, and exports are about all of them." })
            .acts(button_to("/console/entries", "Entries"))
            .into());
    }
    let target = with(
        "/v1/changes",
        &[
            ("kind", "export"),
            ("limit", "50"),
            ("cursor", visit.query.get("cursor")),
        ],
    );
    let list: ChangeList = visit.asker.get(target).await?;
    let makers = Makers::of(visit, list.items.iter().map(|change| &*change.by)).await;
    let columns = [
        Heading::Figure("Number"),
        Heading::Text("At"),
        Heading::Text("By"),
        Heading::Text("Manifest"),
    ];
    let row = |change: &ChangeAnswer| {
        let revision = change.revision.to_string();
        html! {
            tr {
                (figure("Number", number(change.revision)))
                (cell("At", local.show(change.at)))
                (cell("By", makers.show(&change.by)))
                (cell("Manifest", html! { a href=(path(&["console", "exports", &revision])) { "Make it" } }))
            }
        }
    };
    Ok(Shown::new("Exports", local.clone())
        .lead(html! { "Every export is recorded. Its manifest says what the file must contain." })
        .acts(button_to("/console/entries", "Export entries"))
        .body(html! {
            @if list.items.is_empty() {
                (empty("Nothing was exported yet. Filter the entries, and export what you see."))
            } @else {
                (table(&columns, list.items.iter().map(row)))
            }
            (next_page(visit, list.next_cursor.as_deref()))
        })
        .command("perdiem changes --kind export")
        .into())
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    let manifest: Manifest = visit
        .asker
        .get(path(&["v1", "exports", visit.name(0)]))
        .await?;
    let local = visit.utc();
    let makers = Makers::of(visit, [&*manifest.exported_by]).await;
    let rows: u64 = manifest.rows.values().sum();
    Ok(Shown::new(format!("Export {}", manifest.revision), local.clone())
        .lead(html! {
            "The file must have " (number(rows)) " rows, and the SHA-256 below. Otherwise it is incomplete, or was \
             changed."
        })
        .body(facts([
            ("SHA-256", html! { code.id { (manifest.sha256) } }),
            ("Format", html! { (manifest.act.format) }),
            ("As of position", html! { (number(manifest.act.as_of)) }),
            ("Filters", html! {
                @if manifest.act.filters.is_empty() { "none" }
                @for (name, value) in &manifest.act.filters { code { (name) "=" (value) } " " }
            }),
            ("Units taken", html! { (manifest.units_taken) }),
            ("Units given back", html! { (manifest.units_given_back) }),
            ("Rows of erased subjects", html! { (number(manifest.rows_erased)) }),
            ("Exported", html! { (local.show(manifest.exported_at)) " by " (makers.show(&manifest.exported_by)) }),
        ]))
        .into())
}
