//! Tiers: who has the maxima of a tier, such as gold, in place of the policy's own?

use maud::html;
use serde_json::json;

use super::exceptions::{
    end_exception, end_form, for_helpers, open_form, open_link, put_exception, until, until_field,
};
use super::known::Known;
use super::makers::Makers;
use crate::asking::{PageFailure, command, path, with};
use crate::parts::{
    Field, Heading, cell, empty, form, next_page, reason, reason_field, subject, table,
};
use crate::visit::{Replied, Shown, Visit};
use crate::words;
use api::policies::PolicyAnswer;
use api::tiers::{SubjectTierAnswer, SubjectTierList, TierAnswer};

/// The tiers of the version in force, and of those to come.
fn tiers_of(known: &Known) -> Vec<&TierAnswer> {
    let newest = known.versions.first();
    let scheduled = newest.filter(|newest| newest.version > known.in_force.version);
    let versions = [Some(&known.in_force), scheduled].into_iter().flatten();
    let mut tiers: Vec<&TierAnswer> = Vec::new();
    for tier in versions.flat_map(|version: &PolicyAnswer| &version.tiers) {
        if tiers.iter().all(|known| known.name != tier.name) {
            tiers.push(tier);
        }
    }
    tiers
}

pub async fn list(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let known = Known::ask(visit, name).await?;
    let target = with(
        &path(&["v1", "policies", name, "tiers"]),
        &[("limit", "50"), ("cursor", visit.query.get("cursor"))],
    );
    let list: SubjectTierList = visit.asker.get(target).await?;
    let makers = Makers::of(visit, list.items.iter().map(|it| &*it.changed_by)).await;
    let local = &known.local;
    let tiers = tiers_of(&known);
    let columns = [
        Heading::Text("Subject"),
        Heading::Text("Tier"),
        Heading::Text("Until"),
        Heading::Text("By"),
        Heading::Text("Reason"),
        Heading::Text("Change"),
    ];
    let row = |found: &SubjectTierAnswer| {
        html! {
            tr {
                (cell("Subject", subject(found.subject.as_deref())))
                (cell("Tier", found.tier.as_deref().unwrap_or("ended")))
                (cell("Until", until(found.until, local)))
                (cell("By", makers.show(&found.changed_by)))
                (cell("Reason", reason(found.reason.as_deref())))
                (cell("Change", open_link(name, "tiers", found.subject.as_deref())))
            }
        }
    };
    let base = path(&["console", "policies", name, "tiers"]);
    Ok(Shown::new(format!("Tiers of policy {name}"), local.clone())
        .lead(html! {
            "Every subject has " (words::limits(&known.in_force.limits))
            ", except those that are in a tier."
        })
        .body(html! {
            ul.lines { @for tier in &tiers { li { (tier.to_string()) } } }
            @if tiers.is_empty() {
                (empty("The policy has no tiers. A tier is a name and other maxima: edit the policy to add one."))
            }
            @if !list.items.is_empty() {
                (table(&columns, list.items.iter().map(row)))
            } @else if !tiers.is_empty() {
                (empty("Nobody is in a tier."))
            }
            (next_page(visit, list.next_cursor.as_deref()))
            @if visit.may_help() && !tiers.is_empty() { (open_form("Put a subject into a tier", &base)) }
        })
        .command(command(&["perdiem", "tier", "list", name]))
        .into())
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    Ok(tier_page(visit).await?.into())
}

async fn tier_page(visit: &Visit<'_>) -> Result<Shown, PageFailure> {
    let name = visit.name(0);
    let whose = visit.name(1);
    let known = Known::ask(visit, name).await?;
    let target = path(&["v1", "policies", name, "tiers", whose]);
    let found: Option<SubjectTierAnswer> = visit.asker.find(target).await?;
    let makers = Makers::of(visit, found.iter().map(|it| &*it.changed_by)).await;
    let local = &known.local;
    let version = found.as_ref().map_or(0, |found| found.version);
    let present = found.as_ref().and_then(|found| found.tier.as_deref());
    let tiers = tiers_of(&known);
    let words: Vec<String> = tiers.iter().map(|tier| tier.to_string()).collect();
    let choices = tiers.iter().zip(&words);
    let mut choices: Vec<(&str, &str)> = choices
        .map(|(tier, words)| (&*tier.name, &**words))
        .collect();
    // The policy may have lost the tier: then the form must not choose another one.
    let is_lost = |tier: &&str| choices.iter().all(|(name, _)| name != tier);
    if let Some(lost) = present.filter(is_lost) {
        choices.insert(
            0,
            (
                lost,
                "the present one, which the policy does not have any more",
            ),
        );
    }
    let chosen = match visit.form.get("tier") {
        "" => present.unwrap_or_default(),
        sent => sent,
    };
    let fields = html! {
        input type="hidden" name="version" value=(version);
        (Field::of(&visit.form, "tier", "Tier").value(chosen).choice(&choices))
        (until_field(visit, found.as_ref().and_then(|found| found.until)))
        (reason_field(visit))
        button { @if found.is_some() { "Change the tier" } @else { "Put it into the tier" } }
    };
    Ok(Shown::new(format!("Tier of {whose} under {name}"), local.clone())
        .lead(html! {
            @if let (Some(found), Some(tier)) = (&found, present) {
                (subject(Some(whose))) " is in the tier " (tier) ", " (until(found.until, local)) ", by "
                (makers.show(&found.changed_by)) ": " (reason(found.reason.as_deref()))
            } @else {
                (subject(Some(whose))) " is in no tier: it has " (words::limits(&known.in_force.limits)) "."
            }
        })
        .body(html! {
            @if !visit.may_help() {
                (for_helpers())
            } @else {
                @if tiers.is_empty() {
                    (empty("The policy has no tiers. A tier is a name and other maxima: edit the policy to add one."))
                } @else {
                    (form(visit, &visit.path, fields))
                }
                @if found.is_some() { (end_form(visit, version, "tier")) }
            }
        })
        .command(command(&["perdiem", "tier", "show", "--", name, whose])))
}

pub async fn put(visit: &Visit<'_>) -> Replied {
    let body = json!({
        "tier": visit.form.get("tier"),
        "until": visit.form.some("until"),
        "reason": visit.form.some("reason"),
    });
    put_exception(visit, "tiers", body, tier_page).await
}

pub async fn end(visit: &Visit<'_>) -> Replied {
    end_exception(visit, "tiers").await
}
