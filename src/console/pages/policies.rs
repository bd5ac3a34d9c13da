//! Policies: which rules are there?

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::known::Known;
use crate::asking::{PageFailure, with};
use crate::local::Local;
use crate::parts::{Heading, button_to, cell, empty, next_page, policy, table};
use crate::visit::{Replied, Shown, Visit};
use crate::words;
use api::limits::LimitAnswer;
use api::policies::{PolicyAnswer, PolicyList};

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
    let known = ListedPolicy::all(visit, policies.items).await?;
    let row = |it: &ListedPolicy| {
        let of = it.in_force();
        let local = Local::of(&of.time_zone, visit.now).with_calendar_of(of);
        html! {
            tr {
                (cell("Policy", policy(&of.name)))
                (cell("Rule", rule(of)))
                (cell("For", html! { bdi { (of.description) } }))
                (cell("Next window", next_window(of, &local)))
                (cell("State", it.states(visit.now)))
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

/// A policy of a list. Lists tell the newest version of each policy.
pub struct ListedPolicy {
    pub newest: PolicyAnswer,
    /// The version that decides now, if the newest one is scheduled.
    in_force: Option<PolicyAnswer>,
}

impl ListedPolicy {
    /// Asks for the versions in force where lists do not tell them.
    pub async fn all(
        visit: &Visit<'_>,
        listed: Vec<PolicyAnswer>,
    ) -> Result<Vec<Self>, PageFailure> {
        let mut all = Vec::with_capacity(listed.len());
        for newest in listed {
            let in_force = if newest.effective_at > visit.now {
                Some(Known::ask(visit, &newest.name).await?.in_force)
            } else {
                None
            };
            all.push(Self { newest, in_force });
        }
        Ok(all)
    }

    /// The version that decides now.
    pub fn in_force(&self) -> &PolicyAnswer {
        self.in_force.as_ref().unwrap_or(&self.newest)
    }

    /// What is special about the policy, with what is scheduled.
    pub fn states(&self, now: DateTime<Utc>) -> Markup {
        let local = Local::of(&self.in_force().time_zone, now);
        html! {
            (flags(&self.newest, now))
            @if self.in_force.is_some() {
                span.flag { (rule(&self.newest)) " from " (local.text(self.newest.effective_at)) }
            }
        }
    }
}

/// When the first window of the calendar ends.
pub fn next_window(of: &PolicyAnswer, local: &Local) -> String {
    let divisions = of.limits.iter().filter_map(LimitAnswer::division);
    let ends = divisions.map(|division| local.window_end(division));
    ends.min()
        .map_or_else(String::new, |end| local.distance(end))
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
