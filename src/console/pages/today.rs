//! Today: is anything wrong, and how much was given?

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::makers::Makers;
use super::policies::{ListedPolicy, next_window, rule};
use super::version::sentence;
use crate::asking::{PageFailure, path, with};
use crate::chart::spark;
use crate::local::Local;
use crate::parts::{Heading, button_to, cell, empty, figure, policy, table, unknown};
use crate::visit::{Replied, Shown, Visit};
use crate::words::{count, number};
use api::changes::ChangeList;
use api::health::Readiness;
use api::policies::{PolicyAnswer, PolicyList};
use api::reconciliations::ReconciliationList;
use api::seals::LatestSeal;
use api::statistics::{DayStatistics, StatisticsList};

/// The most policies in the table.
const POLICIES_MOST: usize = 20;
const DAYS: u64 = 14;

/// The days of each policy, by its name; `None` if they are not known now.
pub type Days = Option<BTreeMap<String, Vec<DayStatistics>>>;

pub async fn show(visit: &Visit<'_>) -> Replied {
    let local = visit.utc();
    let listed = format!("/v1/policies?limit={POLICIES_MOST}");
    let policies: Result<PolicyList, PageFailure> = visit.asker.get(listed).await;
    let lead = health(visit).await;
    let table = match policies {
        Ok(policies) if policies.items.is_empty() => no_policy(visit),
        Ok(policies) => {
            let days = days_of(visit, &policies.items, DAYS).await;
            policy_table(visit, policies, &days).await
        }
        Err(refusal) => empty(html! { "The policies are unknown now: " (refusal.to_string()) }),
    };
    let live = visit.query.get("live") == "10";
    let acts = html! {
        @if visit.may_change() { (button_to("/console/new-policy", "New policy")) }
        @if live {
            (button_to("/console", "Stop reloading"))
        } @else {
            (button_to("/console?live=10", "Reload every 10 s"))
        }
    };
    let title = format!("Today, {}", local.today().format("%A %-d %B"));
    Ok(Shown::new(title, local)
        .lead(lead)
        .acts(acts)
        .body(html! {
            (table)
            h2 { "Last changes" }
            (last_changes(visit).await)
        })
        .command("perdiem status")
        .reloads(live)
        .into())
}

fn no_policy(visit: &Visit<'_>) -> Markup {
    empty(html! {
        "No policy yet. "
        @if visit.may_change() {
            a href="/console/new-policy" { "Create one" } ", or apply a file with "
            code { "perdiem policy apply" } "."
        } @else {
            "An admin creates the first one."
        }
    })
}

/// Whether anything is wrong: a sentence if nothing is.
async fn health(visit: &Visit<'_>) -> Markup {
    let Some(ready) = visit.asker.whatever::<Readiness>("/readyz").await else {
        return html! { strong.bad { "The instance does not say whether it is ready." } };
    };
    let reconciled = visit
        .asker
        .get::<ReconciliationList>("/v1/reconciliations?limit=1".into());
    let reconciled = reconciled
        .await
        .ok()
        .and_then(|list| list.items.into_iter().next());
    let sealed = visit
        .asker
        .get::<LatestSeal>("/v1/seals/latest".into())
        .await
        .ok();
    let local = visit.utc();
    let reconciled = reconciled.map(|report| {
        let when = report.finished_at.unwrap_or(report.started_at);
        (when, report.difference_count, report.alarm_count)
    });
    let is_good = &*ready.status == "ready" && ready.troubles.is_empty();
    let has_alarm = reconciled.is_some_and(|(_, _, alarms)| alarms > 0);
    let is_known = reconciled.is_some();
    html! {
        @if is_good && !has_alarm {
            @if is_known { "All is well. " } @else { "This instance is ready. " }
        } @else {
            strong.bad {
                @if !is_good { "This instance is " (ready.status) ": " (ready.troubles.join("; ")) ". " }
                @if has_alarm { "The last reconciliation found what should not be. " }
            }
            a href="/docs" { "What to do" } ". "
        }
        "The ledger decides (" (ready.ledger) ")"
        @if ready.counters { "; Redis answers denials" }
        ". "
        @if let Some((when, differences, _)) = reconciled {
            a href="/console/reconciliations" { "Reconciled" } " " (local.distance(when)) ", "
            (count(differences, "difference")) ". "
        }
        @if let Some(sealed) = &sealed {
            a href="/console/seals" { "Sealed" } " " (local.distance(sealed.seal.sealed_at)) ". "
        } @else {
            "Seals: " (ready.seals) ". "
        }
        "Zone rules: " (ready.zone_rules) "."
    }
}

/// The figures of the last days of some policies.
pub async fn days_of(visit: &Visit<'_>, policies: &[PolicyAnswer], days: u64) -> Days {
    // A day of some zone may be a day ahead of UTC, or behind it.
    let from = visit.utc().last_days(days + 1)[0].to_string();
    let mut found: BTreeMap<String, Vec<DayStatistics>> = BTreeMap::new();
    let mut collect = |list: StatisticsList| {
        for day in list.items {
            found.entry(day.policy.clone()).or_default().push(day);
        }
    };
    let parameters = [("from", &*from), ("limit", "1000")];
    // All at once, if one page has them; otherwise each policy alone.
    if !visit.is_confined() {
        let all: StatisticsList = visit.asker.get(with("/v1/stats", &parameters)).await.ok()?;
        if all.next_cursor.is_none() {
            collect(all);
            return Some(found);
        }
    }
    for policy in policies {
        let of_policy = [("policy", &*policy.name), parameters[0], parameters[1]];
        collect(visit.asker.get(with("/v1/stats", &of_policy)).await.ok()?);
    }
    Some(found)
}

async fn policy_table(visit: &Visit<'_>, policies: PolicyList, days: &Days) -> Markup {
    let columns = [
        Heading::Text("Policy"),
        Heading::Text("Rule"),
        Heading::Figure("Granted today"),
        Heading::Figure("Refused today"),
        Heading::Text("14 days"),
        Heading::Text("Next window"),
        Heading::Text("State"),
    ];
    let known = match ListedPolicy::all(visit, policies.items).await {
        Ok(known) => known,
        Err(failure) => return unknown(&failure),
    };
    let row = |it: &ListedPolicy| {
        let of = it.in_force();
        let local = Local::of(&of.time_zone, visit.now).with_calendar_of(of);
        let figures = days
            .as_ref()
            .map(|days| days.get(&of.name).map_or(&[][..], Vec::as_slice));
        let on = |date| figures.map(|days| days.iter().find(|day| day.date == date));
        let today = on(local.today());
        let shown = |figure: fn(&DayStatistics) -> u64| match today {
            Some(day) => number(day.map_or(0, figure)),
            None => "unknown".to_owned(),
        };
        let values: Vec<u64> = local
            .last_days(DAYS)
            .into_iter()
            .map(|date| on(date).flatten().map_or(0, |day| day.units))
            .collect();
        let title = format!("granted units of {} in the last {DAYS} days", of.name);
        html! {
            tr {
                (cell("Policy", policy(&of.name)))
                (cell("Rule", rule(of)))
                (figure("Granted today", shown(|day| day.units)))
                (figure("Refused today", shown(|day| day.denied_claims)))
                (cell("14 days", html! {
                    @if days.is_some() { (spark(&title, &values)) } @else { "unknown" }
                }))
                (cell("Next window", next_window(of, &local)))
                (cell("State", it.states(visit.now)))
            }
        }
    };
    html! {
        (table(&columns, known.iter().map(row)))
        @if policies.next_cursor.is_some() {
            p { a href="/console/policies" { "All policies" } }
        }
    }
}

async fn last_changes(visit: &Visit<'_>) -> Markup {
    if visit.is_confined() {
        return empty("Your key is confined to policies: each policy shows its own changes.");
    }
    let changes = visit
        .asker
        .get::<ChangeList>("/v1/changes?limit=5".into())
        .await;
    let changes = match changes {
        Ok(changes) => changes.items,
        Err(refusal) => return empty(html! { "They are unknown now: " (refusal.to_string()) }),
    };
    let makers = Makers::of(visit, changes.iter().map(|change| &*change.by)).await;
    let local = visit.utc();
    html! {
        ul.lines {
            @for change in &changes {
                li { (local.show(change.at)) " " (makers.show(&change.by)) " " (sentence(change, &local)) }
            }
        }
        @if changes.is_empty() { (empty("Nothing was changed yet.")) }
        p { a href=(path(&["console", "changes"])) { "All changes" } }
    }
}
