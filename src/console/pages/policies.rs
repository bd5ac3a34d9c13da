//! Policies: which rules are there?

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::known::Known;
use crate::asking::{PageFailure, with};
use crate::local::Local;
use crate::parts::{Heading, button_to, cell, empty, next_page, policy, table};
use crate::visit::{Replied, Shown, Visit};
use crate::words;
use api::policies::{PolicyAnswer, PolicyList};
use domain::limit::per::Per;

pub async fn show(visit: &Visit<'_>) -> Replied {
    let with_archived = visit.query.get("archived") == "true";
    let target = with(
        "/v1/policies",
        &[
            ("archived", if with_archived { "true" } else { "" }),
            ("limit", "50"),
            ("cursor", visit.query.get("cursor")),
        ],
    );
    let policies: PolicyList = visit.asker.get(target).await?;
    let columns = [
        Heading::Text("Policy"),
        Heading::Text("Rule"),
        Heading::Text("For"),
        Heading::Text("Next window"),
        Heading::Text("State"),
    ];
    let mut known = Vec::new();
    for listed in policies.items {
        known.push(in_force(visit, listed).await?);
    }
    let row = |it: &ListedPolicy| {
        let of = &it.of;
        let local = Local::of(&of.time_zone, visit.now).with_days_from(&of.day_starts_at);
        html! {
            tr {
                (cell("Policy", policy(&of.name)))
                (cell("Rule", &it.rule))
                (cell("For", html! { bdi { (of.description) } }))
                (cell("Next window", next_window(of, &local)))
                (cell("State", states(it, visit.now)))
            }
        }
    };
    let shown = known.len();
    Ok(Shown::new("Policies", visit.utc())
        .lead(html! {
            @if policies.next_cursor.is_some() { "The first " }
            (words::count(shown as u64, "rule"))
            @if with_archived { ", archived ones too." } @else { " in use." }
        })
        .acts(html! {
            @if visit.may_change() { (button_to("/console/new-policy", "New policy")) }
            @if with_archived {
                (button_to("/console/policies", "Hide archived policies"))
            } @else {
                (button_to("/console/policies?archived=true", "Show archived policies"))
            }
        })
        .body(html! {
            @if shown == 0 {
                (empty("No policy is here. An admin creates one, or applies a file with perdiem policy apply."))
            } @else {
                (table(&columns, known.iter().map(row)))
            }
            (next_page(visit, policies.next_cursor.as_deref()))
        })
        .command("perdiem policy list")
        .into())
}

/// The rule of a version in words, with its zone.
pub fn rule(of: &PolicyAnswer) -> String {
    format!("{}, {}", words::limits(&of.limits), of.time_zone)
}

/// Lists tell the newest version of a policy. Where it is not in force yet, the version that is takes its place, and
/// keeps what only the list tells.
pub async fn in_force(
    visit: &Visit<'_>,
    listed: PolicyAnswer,
) -> Result<ListedPolicy, PageFailure> {
    if listed.effective_at <= visit.now {
        return Ok(ListedPolicy {
            rule: rule(&listed),
            scheduled: None,
            of: listed,
        });
    }
    let known = Known::ask(visit, &listed.name).await?;
    let scheduled = format!(
        "{} from {}",
        rule(&listed),
        known.local.text(listed.effective_at)
    );
    Ok(ListedPolicy {
        rule: rule(&known.in_force),
        scheduled: Some(scheduled),
        of: listed,
    })
}

/// A policy of a list, with the rule that decides now.
pub struct ListedPolicy {
    pub of: PolicyAnswer,
    pub rule: String,
    /// The rule that follows, and when.
    pub scheduled: Option<String>,
}

/// When the shortest window of the calendar ends.
pub fn next_window(of: &PolicyAnswer, local: &Local) -> String {
    let lengths = of.limits.iter().filter_map(|limit| match limit.per {
        Per::Calendar(length) => Some(length),
        _ => None,
    });
    let shortest = lengths.min();
    shortest.map_or_else(String::new, |length| {
        local.distance(local.window_end(length))
    })
}

/// What is special about a policy of a list.
pub fn states(it: &ListedPolicy, now: DateTime<Utc>) -> Markup {
    html! {
        (flags(&it.of, now))
        @if let Some(next) = &it.scheduled { span.flag { (next) } }
    }
}

/// What is special about a policy now.
pub fn flags(of: &PolicyAnswer, now: DateTime<Utc>) -> Markup {
    html! {
        @if of.archived { span.flag { "archived" } " " }
        @if of.paused || of.pause.is_some() {
            span.flag.bad { "paused" }
            @if let Some(pause) = &of.pause { @if let Some(why) = &pause.reason { " " bdi { (why) } } }
            " "
        }
        @if &*of.mode == "observe" { span.flag { "observes only" } " " }
        @if &*of.durability == "counted" { span.flag { "counted" } " " }
        @if of.active_from.is_some_and(|from| from > now) { span.flag { "not active yet" } " " }
        @if of.active_until.is_some_and(|until| until <= now) { span.flag.bad { "no longer active" } }
    }
}
