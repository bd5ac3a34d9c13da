//! Seals: can anybody prove that the record was not changed?

use maud::html;

use crate::asking::with;
use crate::parts::{Heading, cell, empty, figure, next_page, table};
use crate::visit::{Replied, Shown, Visit};
use crate::words::number;
use api::seals::{LatestSeal, SealBody, SealList};

pub async fn show(visit: &Visit<'_>) -> Replied {
    let local = visit.utc();
    let target = with(
        "/v1/seals",
        &[("limit", "50"), ("cursor", visit.query.get("cursor"))],
    );
    let list: SealList = match visit.asker.get(target).await {
        Ok(list) => list,
        Err(refusal) if refusal.code() == "not-sealed" => {
            return Ok(Shown::new("Seals", local)
                .lead(html! { "Nothing is sealed yet." })
                .body(empty(html! {
                    "An operator names a key in PERDIEM_SEAL_KEY_FILE; perdiem then seals every few seconds."
                }))
                .into());
        }
        Err(refusal) => return Err(refusal),
    };
    let latest: Option<LatestSeal> = visit.asker.get("/v1/seals/latest".into()).await.ok();
    let columns = [
        Heading::Text("Sealed"),
        Heading::Figure("Entries and changes"),
        Heading::Text("Log"),
    ];
    let row = |seal: &SealBody| {
        html! {
            tr {
                (cell("Sealed", local.show(seal.sealed_at)))
                (figure("Entries and changes", number(seal.size)))
                (cell("Log", html! { span.id { (seal.origin) } }))
            }
        }
    };
    Ok(Shown::new("Seals", local.clone())
        .lead(html! {
            @if let Some(seal) = list.items.first() {
                "The newest seal, " (local.distance(seal.sealed_at)) ", covers " (number(seal.size))
                " entries and changes."
            } @else { "Nothing is sealed yet." }
        })
        .body(html! {
            @if let Some(latest) = &latest {
                h2 { "The newest checkpoint" }
                pre { code id="checkpoint" { (latest.seal.note) } }
                button.plain data-copy="checkpoint" hidden { "Copy the checkpoint" }
                @if let Some(key) = &latest.verifier_key {
                    p { "Check it with the key " code.id { (key) } " and " code { "perdiem verify" } "." }
                }
            }
            (table(&columns, list.items.iter().map(row)))
            (next_page(visit, list.next_cursor.as_deref()))
        })
        .into())
}
