//! A grant: how did it come about, and what became of it?

use maud::{Markup, html};
use serde_json::json;

use super::makers::Makers;
use crate::asking::{Asking, PageFailure, path};
use crate::local::Local;
use crate::parts::{
    Field, Heading, bundle, button_to, cell, facts, faulty, figure, form, maker, meter, policy,
    reason, reason_field, refused, state, subject, table,
};
use crate::visit::{PageReply, Replied, Shown, Visit};
use crate::words::{count, limits, number};
use api::explanation::{CountedEntryBody, GrantExplanation};
use api::grants::GrantBody;

pub async fn show(visit: &Visit<'_>) -> Replied {
    let id = visit.name(0);
    let told: GrantExplanation = visit
        .asker
        .get(path(&["v1", "grants", id, "explanation"]))
        .await?;
    let GrantExplanation { grant, terms, .. } = &told;
    let local = visit.local(&terms.version.time_zone);
    let followers = told.since.iter().filter_map(|entry| entry.by.as_deref());
    let makers = followers.chain([&*terms.version.changed_by]);
    let makers = Makers::of(visit, makers).await;
    let base = path(&["console", "grants", id]);
    Ok(Shown::new("Grant", local.clone())
        .lead(sentence(&told, &local))
        .acts(html! {
            @if visit.may_help() && grant.is_left() {
                (button_to(&format!("{base}/give-back"), "Give back"))
                @if &*grant.state == "held" {
                    (form(visit, &format!("{base}/confirm"), html! { button { "Confirm" } }))
                }
            }
            (button_to(&format!("{base}/proof"), "Proof"))
        })
        .body(html! {
            (details(&told, &makers, &local))
            h2 { "The limits before the grant" }
            (before(&told))
            @if !told.since.is_empty() {
                h2 { "Since then" }
                (since(&told.since, &makers, &local))
            }
            @for note in &told.notes { p.muted { (local.within(note)) } }
        })
        .command(format!("perdiem explain {id}"))
        .into())
}

fn sentence(told: &GrantExplanation, local: &Local) -> Markup {
    let grant = &told.grant;
    html! {
        (subject(grant.subject.as_deref())) " got " (count(grant.units, "unit")) " under " (policy(&grant.policy))
        " at " (local.show(grant.granted_at)) ", and it is " (state(&grant.state)) ". "
        @for took in &told.took {
            "It took unit "
            @if took.first == took.last { (number(took.first)) } @else { (number(took.first)) " to " (number(took.last)) }
            " of " (number(took.max)) " per " (took.per.to_string()) ". "
        }
        @if let Some(reversal) = &grant.reversal { "Given back: " (reason(Some(&reversal.reason))) "." }
        @if let Some(until) = grant.held_until.filter(|_| &*grant.state == "held") {
            " Held until " (local.show(until)) "."
        }
    }
}

fn details(told: &GrantExplanation, makers: &Makers, local: &Local) -> Markup {
    let GrantExplanation {
        grant,
        terms,
        entry,
        ..
    } = told;
    let key = entry.key.as_ref();
    let version = &terms.version;
    facts([
        ("Id", html! { code.id { (grant.id) } }),
        (
            "Claimed by",
            html! {
                @if let Some(key) = key { (maker(&key.id.to_string(), Some(&key.name))) } @else { "no key of the ledger" }
            },
        ),
        (
            "Rule",
            html! {
                "version " (version.version) ": " (limits(&version.limits)) ", made by "
                (makers.show(&version.changed_by)) " (" (reason(version.reason.as_deref())) ")"
            },
        ),
        (
            "Override",
            html! {
                @if let Some(found) = &terms.exception { (super::version::maxes(found)) } @else { "none" }
            },
        ),
        (
            "Position",
            html! {
                @if let Some(position) = entry.position { (number(position)) } @else { "not in the record yet" }
            },
        ),
        ("Counted at", local.show(entry.counted_at)),
        (
            "Bundle",
            html! {
                @if let Some(of) = &grant.bundle { (bundle(of)) } @else { "none" }
            },
        ),
        (
            "Metadata",
            html! {
                @if let Some(metadata) = &grant.metadata { code { bdi { (metadata.get()) } } } @else { "none" }
            },
        ),
    ])
}

fn before(told: &GrantExplanation) -> Markup {
    html! {
        ul.lines {
            @for limit in &told.limits {
                li {
                    (meter(&limit.usage)) ", by " (count(limit.entry_count, "entry").replace("entrys", "entries"))
                }
            }
        }
    }
}

fn since(entries: &[CountedEntryBody], makers: &Makers, local: &Local) -> Markup {
    let columns = [
        Heading::Text("At"),
        Heading::Text("What"),
        Heading::Figure("Units"),
        Heading::Text("By"),
        Heading::Text("Reason"),
    ];
    let row = |entry: &CountedEntryBody| {
        html! {
            tr {
                (cell("At", local.show(entry.at)))
                (cell("What", state(&entry.kind)))
                (figure("Units", number(entry.units)))
                (cell("By", html! { @if let Some(by) = &entry.by { (makers.show(by)) } @else { "perdiem" } }))
                (cell("Reason", reason(entry.reason.as_deref())))
            }
        }
    };
    table(&columns, entries.iter().map(row))
}

pub async fn proof(visit: &Visit<'_>) -> Replied {
    let target = path(&["v1", "grants", visit.name(0), "proof"]);
    // A grant that is not sealed has a page instead of a file.
    visit.asker.check(&target).await?;
    Ok(PageReply::File { target })
}

pub async fn ask_give_back(visit: &Visit<'_>) -> Replied {
    Ok(give_back_page(visit).await?.into())
}

/// The question before a reversal: what goes back, and where.
async fn give_back_page(visit: &Visit<'_>) -> Result<Shown, PageFailure> {
    let id = visit.name(0);
    let grant: GrantBody = visit.asker.get(path(&["v1", "grants", id])).await?;
    let local = visit.utc();
    let left = grant.units.saturating_sub(grant.returned_units);
    let all = left.to_string();
    let units = visit.form.some("units").unwrap_or(&all);
    let fields = html! {
        input type="hidden" name="once" value=(visit.once());
        input type="hidden" name="left" value=(left);
        (Field::of(&visit.form, "units", "Units")
            .value(units)
            .hint("All that is left of the grant, or a part of it.")
            .required()
            .line())
        (reason_field(visit))
        button { "Give the units back" }
    };
    Ok(Shown::new("Give back a grant", local.clone())
        .lead(html! {
            (subject(grant.subject.as_deref())) " got " (count(grant.units, "unit")) " under " (policy(&grant.policy))
            " at " (local.show(grant.granted_at)) ", and it is " (state(&grant.state))
            ". What you give back can be claimed again in every window that is still open and was not reset since."
        })
        .body(html! {
            (form(visit, &path(&["console", "grants", id, "give-back"]), fields))
        })
        .command(format!("perdiem reverse {id} --reason …")))
}

pub async fn give_back(visit: &Visit<'_>) -> Replied {
    let id = visit.name(0);
    let Ok(units) = visit.form.get("units").parse::<u64>() else {
        let says = "Write a whole number of units.";
        return Ok(faulty(give_back_page(visit).await?, says, &[]).into());
    };
    let mut body = json!({ "reason": visit.form.get("reason") });
    let mut asking = Asking::of("POST", path(&["v1", "grants", id, "reversal"]));
    // Without a number all that is left is given back, once for ever. A part has a key, so that a second sending gives
    // back no other part. Which of both it is, the form said when it was shown.
    if visit.form.get("left") != units.to_string() {
        body["units"] = json!(units);
        asking = asking.field("Idempotency-Key", visit.form.get("once"));
    }
    corrected(visit, asking.body(body)).await
}

pub async fn confirm(visit: &Visit<'_>) -> Replied {
    let target = path(&["v1", "grants", visit.name(0), "confirmation"]);
    corrected(visit, Asking::of("POST", target).body(json!({}))).await
}

async fn corrected(visit: &Visit<'_>, asking: Asking) -> Replied {
    match visit.asker.value(asking).await {
        Ok(_) => Ok(PageReply::Redirect(path(&[
            "console",
            "grants",
            visit.name(0),
        ]))),
        Err(failure) => {
            let problem = failure.of_form()?;
            Ok(refused(give_back_page(visit).await?, &problem).into())
        }
    }
}
