//! A policy: what is the rule, and how is it used?

use maud::{Markup, html};

use super::known::Known;
use super::makers::Makers;
use super::policies::flags;
use super::policy_charts::{LastDays, charts};
use super::version::maxes;
use crate::asking::{path, with};
use crate::local::Local;
use crate::parts::{
    Heading, button_to, cell, empty, facts, figure, meter, reason, returns, subject, table, unknown,
};
use crate::visit::{Replied, Shown, Visit};
use crate::words;
use api::blocks::BlockList;
use api::claims::TotalBody;
use api::limit_text::limits_in_line;
use api::limits::in_percent;
use api::overrides::OverrideList;
use api::policies::PolicyAnswer;
use api::statistics::DenialItemList;
use api::subjects::NearList;
use api::tiers::tiers_in_line;
use domain::keeping::KEPT_DAYS;

pub async fn show(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let known = Known::ask(visit, name).await?;
    let Known {
        in_force,
        versions,
        local,
    } = &known;
    let newest = versions.first().unwrap_or(in_force);
    let is_archived = newest.archived;
    let makers = versions.iter().map(|version| &*version.changed_by);
    let pauser = newest.pause.iter().map(|pause| &*pause.by);
    let makers = Makers::of(visit, makers.chain(pauser)).await;
    let base = path(&["console", "policies", name]);
    let acts = html! {
        @if visit.may_change() {
            (button_to(&format!("{base}/edit"), if is_archived { "Restore" } else { "Edit" }))
            @if !is_archived {
                (button_to(&format!("{base}/pause"), if newest.pause.is_some() { "Resume" } else { "Pause" }))
                (button_to(&format!("{base}/archive"), "Archive"))
            }
        }
        (button_to(&format!("{base}/overrides"), "Overrides"))
        (button_to(&format!("{base}/tiers"), "Tiers"))
        (button_to(&format!("{base}/blocks"), "Blocks"))
        (button_to(&with("/console/entries", &[("policy", name)]), "Entries"))
    };
    let days = LastDays::ask(visit, &known).await;
    let body = html! {
        (banners(&known, &makers))
        (charts(visit, &known, &days).await)
        div.columns {
            @if !is_archived {
                section { h2 { "Near the limit (80 % and more)" } (near(visit, name, local).await) }
            }
            @if !in_force.total.is_empty() && !is_archived {
                section { h2 { "All subjects together" } (total(visit, name, local).await) }
            }
            section { h2 { "Refused today" } (denied(visit, name, local).await) }
            section { h2 { "Overrides" } (overrides(visit, name, local).await) }
            section { h2 { "Blocks" } (blocks(visit, name, local).await) }
            section { h2 { "Versions" } (version_list(&known, &makers)) }
            section { h2 { "Settings" } (settings(in_force, local)) }
        }
    };
    Ok(Shown::new(format!("Policy {name}"), local.clone())
        .lead(html! {
            (words::limits(&in_force.limits)) " for each subject. "
            (next_day(in_force, local))
            (days.today(local))
            (flags(in_force, visit.now))
        })
        .acts(acts)
        .body(body)
        .command(format!("perdiem policy show {name}"))
        .into())
}

/// When the next local day begins, in the policy's zone and in UTC.
fn next_day(of: &PolicyAnswer, local: &Local) -> Markup {
    let has_days = of.limits.iter().any(|limit| limit.division().is_some());
    let end = local.day(local.now()).end;
    html! {
        @if has_days {
            "Days begin at " (of.day_starts_at) " in " (of.time_zone) "; the next begins " (local.distance(end)) " ("
            (end.format("%H:%M UTC").to_string()) "). "
        }
    }
}

fn banners(known: &Known, makers: &Makers) -> Markup {
    let Known {
        in_force,
        versions,
        local,
    } = known;
    let name = &in_force.name;
    let newest = versions.first().unwrap_or(in_force);
    html! {
        @if newest.archived {
            p.banner {
                "Archived " (local.show(newest.changed_at)) " by " (makers.show(&newest.changed_by)) ": "
                (reason(newest.reason.as_deref()))
            }
        }
        @if let Some(pause) = &newest.pause {
            p.banner {
                "Paused since " (local.show(pause.since)) " by " (makers.show(&pause.by)) ": "
                (reason(pause.reason.as_deref()))
            }
        }
        @if let Some(next) = known.scheduled() {
            p.banner {
                "Version " (next.version) " takes effect " (local.show(next.effective_at)) ": "
                (words::limits(&next.limits)) " (" (reason(next.reason.as_deref())) ", by "
                (makers.show(&next.changed_by)) "). "
                a href=(with(
                    &path(&["console", "policies", name, "versions"]),
                    &[("left", &in_force.version.to_string()), ("right", &next.version.to_string())],
                )) { "Compare" }
            }
        }
    }
}

/// What is used of the limits that all subjects share.
async fn total(visit: &Visit<'_>, name: &str, local: &Local) -> Markup {
    let target = path(&["v1", "policies", name, "total"]);
    let found = match visit.asker.get::<TotalBody>(target).await {
        Ok(found) => found,
        Err(refusal) => return unknown(&refusal),
    };
    let columns = [Heading::Text("Limit"), Heading::Text("More")];
    let rows = found.total.iter().map(|limit| {
        html! {
            tr {
                (cell("Limit", meter(limit)))
                (cell("More", returns(limit, local)))
            }
        }
    });
    table(&columns, rows)
}

async fn near(visit: &Visit<'_>, name: &str, local: &Local) -> Markup {
    let target = with(
        &path(&["v1", "policies", name, "near"]),
        &[("at_least", "0.8"), ("limit", "50")],
    );
    let near = match visit.asker.get::<NearList>(target).await {
        Ok(near) => near,
        Err(refusal) => return unknown(&refusal),
    };
    let columns = [
        Heading::Text("Subject"),
        Heading::Text("Limit"),
        Heading::Text("More"),
    ];
    let rows = near.items.iter().flat_map(|item| {
        item.limits.iter().map(|limit| {
            html! {
                tr {
                    (cell("Subject", subject(Some(&item.subject))))
                    (cell("Limit", meter(limit)))
                    (cell("More", returns(limit, local)))
                }
            }
        })
    });
    html! {
        @if near.items.is_empty() {
            (empty("Nobody among the entries that were looked at."))
        } @else {
            (table(&columns, rows))
        }
        @if near.next_cursor.is_some() {
            p.muted { "There may be more. The whole list: " code { "perdiem near " (name) } }
        }
    }
}

async fn denied(visit: &Visit<'_>, name: &str, local: &Local) -> Markup {
    let today = local.today().to_string();
    let target = with(
        "/v1/denials",
        &[("policy", name), ("on", &today), ("limit", "20")],
    );
    let denials = match visit.asker.get::<DenialItemList>(target).await {
        Ok(denials) => denials,
        Err(refusal) => return unknown(&refusal),
    };
    let columns = [
        Heading::Text("At"),
        Heading::Text("Subject"),
        Heading::Figure("Units"),
        Heading::Text("Limit"),
    ];
    let rows = denials.items.iter().map(|item| {
        html! {
            tr {
                (cell("At", local.show_time(item.denial.denied_at)))
                (cell("Subject", subject(item.subject.as_deref())))
                (figure("Units", words::number(item.denial.units)))
                (cell("Limit", item.denial.per.to_string()))
            }
        }
    });
    html! {
        @if denials.items.is_empty() {
            (empty("Nobody was refused today."))
        } @else {
            (table(&columns, rows))
            p { a href=(with("/console/denials", &[("policy", name), ("on", &today)])) { "All refusals" } }
        }
    }
}

async fn overrides(visit: &Visit<'_>, name: &str, local: &Local) -> Markup {
    let target = with(
        &path(&["v1", "policies", name, "overrides"]),
        &[("limit", "20")],
    );
    let overrides = match visit.asker.find::<OverrideList>(target).await {
        Ok(overrides) => overrides.map_or(Vec::new(), |list| list.items),
        Err(refusal) => return unknown(&refusal),
    };
    html! {
        ul.lines {
            @for found in &overrides {
                li {
                    (subject(found.subject.as_deref())) " " (maxes(found))
                    @if let Some(until) = found.until { " until " (local.show(until)) }
                    " (" (reason(found.reason.as_deref())) ")"
                }
            }
        }
        @if overrides.is_empty() { (empty("No override: every subject has the limits of the policy.")) }
        p { a href=(path(&["console", "policies", name, "overrides"])) { "All overrides" } }
    }
}

async fn blocks(visit: &Visit<'_>, name: &str, local: &Local) -> Markup {
    let target = with(
        &path(&["v1", "policies", name, "blocks"]),
        &[("limit", "20")],
    );
    let blocks = match visit.asker.find::<BlockList>(target).await {
        Ok(blocks) => blocks.map_or(Vec::new(), |list| list.items),
        Err(refusal) => return unknown(&refusal),
    };
    html! {
        ul.lines {
            @for found in &blocks {
                li {
                    (subject(found.subject.as_deref()))
                    @if let Some(until) = found.until { " until " (local.show(until)) }
                    " (" (reason(found.reason.as_deref())) ")"
                }
            }
        }
        @if blocks.is_empty() { (empty("Nobody is blocked.")) }
        p { a href=(path(&["console", "policies", name, "blocks"])) { "All blocks" } }
    }
}

fn version_list(known: &Known, makers: &Makers) -> Markup {
    let Known {
        in_force,
        versions,
        local,
    } = known;
    let base = path(&["console", "policies", &in_force.name, "versions"]);
    html! {
        ul.lines {
            @for version in versions {
                li {
                    a href=(with(&base, &[("right", &version.version.to_string())])) { "Version " (version.version) }
                    " " (local.show(version.changed_at)) " by " (makers.show(&version.changed_by)) ": "
                    (words::limits(&version.limits))
                    @if version.archived { ", archived" }
                    " (" (reason(version.reason.as_deref())) ")"
                }
            }
        }
        p { a href=(base) { "All versions, and how they differ" } }
    }
}

fn settings(of: &PolicyAnswer, local: &Local) -> Markup {
    let instant = |at: Option<_>| match at {
        Some(at) => local.show(at),
        None => html! { "always" },
    };
    facts([
        ("Description", html! { bdi { (of.description) } }),
        ("Version", html! { (of.version) }),
        ("Zone", html! { (of.time_zone) }),
        ("Days begin at", html! { (of.day_starts_at) }),
        ("Weeks begin on", html! { (of.week_starts_on) }),
        ("Calendar", html! { (of.calendar) }),
        ("Active from", instant(of.active_from)),
        ("Active until", instant(of.active_until)),
        ("Mode", html! { (of.mode) }),
        ("Durability", html! { (of.durability) }),
        ("Without the ledger", html! { (of.on_ledger_outage) }),
        (
            "Warn at",
            html! { (in_percent(&of.warn_at).unwrap_or_else(|| "no level".to_owned())) },
        ),
        (
            "Idempotency keys",
            html! { "kept for " (of.idempotency_days.unwrap_or(KEPT_DAYS)) " days or longer" },
        ),
        (
            "Tiers",
            html! { (tiers_in_line(&of.tiers).unwrap_or_else(|| "none".to_owned())) },
        ),
        (
            "Total of all subjects",
            html! { (limits_in_line(&of.total)) },
        ),
    ])
}
