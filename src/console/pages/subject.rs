//! A subject: why was it refused, and what can I do?

use chrono::{DateTime, NaiveDateTime, Utc};
use maud::{Markup, html};

use super::makers::Makers;
use super::version::sentence;
use crate::asking::{PageFailure, command, path, with};
use crate::local::Local;
use crate::parts::{
    Heading, button_to, cell, empty, form, kind, meter, policy, reason, reason_field, returns,
    state, table,
};
use crate::visit::{Replied, Shown, Visit};
use crate::words::{self, count};
use api::changes::ChangeList;
use api::claims::UsageBody;
use api::entries::{EntryBody, EntryList};
use api::explanation::ClaimExplanation;
use api::limits::LimitUsage;
use api::statistics::{DenialList, FirstDenialAnswer};
use api::subjects::{SubjectAnswer, SubjectList};

/// The most policies whose story the page tells at once.
const POLICIES_MOST: usize = 5;
const EVENTS_MOST: usize = 50;

/// Something that happened to a subject.
struct StoryEvent {
    at: DateTime<Utc>,
    policy: String,
    what: Happening,
}

impl StoryEvent {
    /// Who made the entry, if that is known.
    fn maker(&self) -> Option<&str> {
        match &self.what {
            Happening::Entry(entry) => entry.by.as_deref(),
            Happening::Denial(_) | Happening::Change(_) => None,
        }
    }
}

enum Happening {
    Entry(Box<EntryBody>),
    Denial(FirstDenialAnswer),
    Change(Markup),
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    let whose = visit.name(0);
    let known: SubjectAnswer = visit.asker.get(path(&["v1", "subjects", whose])).await?;
    let items = &known.items;
    let wanted = visit.query.get("policy");
    let chosen = items
        .iter()
        .find(|item| item.policy == wanted)
        .or_else(|| items.iter().find(|item| is_refused(item)))
        .or(items.first());
    let Some(chosen) = chosen else {
        return nobody(visit, whose).await;
    };
    let local = visit.local(&chosen.time_zone);
    let at = visit.query.some("at");
    let told = explained(visit, chosen, at, &local).await;
    let told_policies: Vec<&UsageBody> = match wanted {
        "" => items.iter().take(POLICIES_MOST).collect(),
        _ => vec![chosen],
    };
    let mut events = Vec::new();
    for item in &told_policies {
        events.extend(events_of(visit, item, whose, &local).await?);
    }
    events.sort_by_key(|event| std::cmp::Reverse(event.at));
    let is_cut = events.len() > EVENTS_MOST;
    events.truncate(EVENTS_MOST);
    let makers = Makers::of(visit, events.iter().filter_map(StoryEvent::maker)).await;
    let overrides = path(&["console", "policies", &chosen.policy, "overrides", whose]);
    let tiers = path(&["console", "policies", &chosen.policy, "tiers", whose]);
    let blocks = path(&["console", "policies", &chosen.policy, "blocks", whose]);
    let base = path(&["console", "subjects", whose]);
    let adjust = with(&format!("{base}/adjust"), &[("policy", &*chosen.policy)]);
    let reset = with(&format!("{base}/reset"), &[("policy", &*chosen.policy)]);
    let calendar = with(&format!("{base}/calendar"), &[("policy", &*chosen.policy)]);
    let top_up = with(&format!("{base}/top-up"), &[("policy", &*chosen.policy)]);
    Ok(Shown::new(format!("Subject {whose}"), local.clone())
        .lead(told)
        .acts(html! {
            (button_to(&overrides, if visit.may_help() { "Override" } else { "Its override" }))
            (button_to(&tiers, if visit.may_help() { "Tier" } else { "Its tier" }))
            (button_to(&blocks, if visit.may_help() { "Block" } else { "Its block" }))
            @if visit.may_change() {
                (button_to(&adjust, "Adjust"))
                (button_to(&reset, "Reset"))
                (button_to(&top_up, "Top up"))
                @if chosen.calendar.is_some() { (button_to(&calendar, "Calendar")) }
                (button_to(&format!("{base}/erase"), "Erase"))
            }
        })
        .body(html! {
            (at_form(visit, items, chosen, at))
            (usage_table(items, &local))
            (top_ups(visit, chosen, &local))
            @if !wanted.is_empty() && items.len() > 1 {
                p { a href=(base) { "The story under all policies" } }
            } @else if items.len() > told_policies.len() {
                p.muted { "The story has the first " (told_policies.len()) " policies. Choose one above for its own." }
            }
            h2 { "What happened" }
            (timeline(visit, &events, &local, &makers))
            @if is_cut {
                p {
                    a href=(with("/console/entries", &[("policy", &*chosen.policy), ("subject", whose)])) {
                        "All entries under " (chosen.policy)
                    }
                }
            }
        })
        .command(command(&["perdiem", "subject", "--", whose]))
        .into())
}

/// Whether a claim of one unit would be refused now.
fn is_refused(item: &UsageBody) -> bool {
    item.block.is_some() || item.limits.iter().any(|limit| limit.remaining == 0)
}

/// A subject that no policy knows: the nearest names, in case of a slip.
async fn nobody(visit: &Visit<'_>, whose: &str) -> Replied {
    let mut start = whose.to_owned();
    let mut near = Vec::new();
    while near.is_empty() && start.pop().is_some() && !start.is_empty() {
        let target = with("/v1/subjects", &[("prefix", &*start), ("limit", "5")]);
        near = visit.asker.get::<SubjectList>(target).await?.items;
        // A few steps are enough: what begins otherwise is another name.
        if whose.len() - start.len() > 4 {
            break;
        }
    }
    Ok(Shown::new(format!("Subject {whose}"), visit.utc())
        .status(404)
        .lead(html! { "No policy that you may see knows “" bdi { (whose) } "”. It never claimed, or is spelt otherwise." })
        .body(html! {
            @if near.is_empty() {
                (empty("Subjects are found by their beginning, in the same letters."))
            } @else {
                p { "Names that begin alike:" }
                (super::subjects::subject_table(&near))
            }
        })
        .command(command(&["perdiem", "subject", "--", whose]))
        .into())
}

/// Reads the instant of a form: local time as a browser writes it, or an instant.
fn instant(text: &str, local: &Local) -> Option<DateTime<Utc>> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Some(at.to_utc());
    }
    let forms = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"];
    let mut read = forms
        .iter()
        .filter_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    read.next().map(|at| local.instant(at))
}

/// Whether a claim of one unit fits, now or at an instant, and why.
async fn explained(
    visit: &Visit<'_>,
    chosen: &UsageBody,
    at: Option<&str>,
    local: &Local,
) -> Markup {
    let target = path(&[
        "v1",
        "policies",
        &chosen.policy,
        "subjects",
        &chosen.subject,
    ]);
    let given = at.map(|text| instant(text, local));
    let Some(parameters) = (match given {
        None => Some(Vec::new()),
        Some(None) => None,
        // Claims of the future are not explained.
        Some(Some(at)) if at > visit.now => None,
        Some(Some(at)) => Some(vec![("at", api::instant::written(at))]),
    }) else {
        return html! {
            strong.bad { "Write a time that has passed, such as " (local.text(visit.now)) "." }
        };
    };
    let mut query = vec![("units", "1")];
    query.extend(parameters.iter().map(|(name, value)| (*name, &**value)));
    let told = visit
        .asker
        .get::<ClaimExplanation>(with(&target, &query))
        .await;
    match told {
        Ok(told) => html! {
            "At " (local.show(told.at)) " a claim of 1 under " (policy(&told.policy)) " is "
            (state(if &*told.outcome == "granted" { "granted" } else { "refused" })) ": "
            (local.within(&told.detail)) "."
            @if let Some(fits) = told.fits_at {
                " It fits at " (local.show(fits)) ", " (local.distance(fits)) ", if nothing else happens."
            }
        },
        Err(refusal) => html! { "Whether a claim fits is unknown now: " (refusal.to_string()) },
    }
}

fn at_form(visit: &Visit<'_>, items: &[UsageBody], chosen: &UsageBody, at: Option<&str>) -> Markup {
    html! {
        form.filters action=(visit.path) {
            div.field {
                label for="policy" { "Policy" }
                select id="policy" name="policy" {
                    @for item in items {
                        option value=(item.policy) selected[item.policy == chosen.policy] { (item.policy) }
                    }
                }
            }
            div.field {
                label for="at" { "At, in " (chosen.time_zone) }
                input id="at" name="at" type="datetime-local" value=(at.unwrap_or_default());
            }
            button { "Explain" }
        }
    }
}

fn usage_table(items: &[UsageBody], local: &Local) -> Markup {
    let columns = [
        Heading::Text("Policy"),
        Heading::Text("Used"),
        Heading::Text("More"),
        Heading::Text("Special"),
    ];
    let row = |item: &UsageBody, limit: &LimitUsage| {
        html! {
            tr {
                (cell("Policy", html! {
                    a href=(with(&path(&["console", "subjects", &item.subject]), &[("policy", &*item.policy)])) {
                        (item.policy)
                    }
                }))
                (cell("Used", html! {
                    @if item.has_entries { (meter(limit)) } @else { span.muted { "never used" } }
                }))
                (cell("More", returns(limit, local)))
                (cell("Special", special(item, local)))
            }
        }
    };
    let rows = items
        .iter()
        .flat_map(|item| item.limits.iter().map(move |limit| row(item, limit)));
    table(&columns, rows)
}

/// The units that the subject has beside its windows.
fn top_ups(visit: &Visit<'_>, chosen: &UsageBody, local: &Local) -> Markup {
    let base = path(&["console", "subjects", &chosen.subject, "top-up"]);
    html! {
        @for top_up in &chosen.top_ups {
            p {
                "A top-up has " strong { (count(top_up.units_left, "unit")) } " more under "
                (policy(&chosen.policy)) " until " (local.show(top_up.until)) "."
            }
            @if visit.may_change() && top_up.units_left > 0 {
                details {
                    summary { "Take it back" }
                    (form(visit, &format!("{base}/{}", top_up.id), html! {
                        input type="hidden" name="policy" value=(chosen.policy);
                        (reason_field(visit))
                        button { "Take back what is left" }
                    }))
                }
            }
        }
    }
}

fn special(item: &UsageBody, local: &Local) -> Markup {
    let until = |until: Option<DateTime<Utc>>| match until {
        Some(at) => html! { " until " (local.show(at)) },
        None => Markup::default(),
    };
    html! {
        @if let Some(block) = &item.block {
            a href=(path(&["console", "policies", &item.policy, "blocks", &item.subject])) { (state("blocked")) }
            (until(block.until)) " "
        }
        @if let Some(tier) = &item.tier {
            a href=(path(&["console", "policies", &item.policy, "tiers", &item.subject])) { (tier.name) }
            (until(tier.until)) " "
        }
        @if let Some(note) = &item.override_note {
            a href=(path(&["console", "policies", &item.policy, "overrides", &item.subject])) { "override" }
            (until(note.until))
        }
    }
}

async fn events_of(
    visit: &Visit<'_>,
    item: &UsageBody,
    whose: &str,
    local: &Local,
) -> Result<Vec<StoryEvent>, PageFailure> {
    let base = path(&["v1", "policies", &item.policy, "subjects", whose]);
    let limit = EVENTS_MOST.to_string();
    let event = |at, what| StoryEvent {
        at,
        policy: item.policy.clone(),
        what,
    };
    let target = with(&format!("{base}/entries"), &[("limit", &*limit)]);
    let entries: EntryList = visit.asker.get(target).await?;
    let target = with(&format!("{base}/denials"), &[("limit", &*limit)]);
    let denials: DenialList = visit.asker.get(target).await?;
    let target = with(
        "/v1/changes",
        &[
            ("policy", &*item.policy),
            ("subject", whose),
            ("limit", "20"),
        ],
    );
    let of_subject: ChangeList = visit.asker.get(target).await?;
    let target = with(
        "/v1/changes",
        &[
            ("policy", &*item.policy),
            ("kind", "policy"),
            ("limit", "20"),
        ],
    );
    let of_policy: ChangeList = visit.asker.get(target).await?;
    let oldest = entries.items.last().map(|entry| entry.at);
    let mut events = Vec::new();
    for change in of_subject.items.iter().chain(&of_policy.items) {
        // Changes before all that is shown are no part of the story.
        if oldest.is_some_and(|oldest| change.at >= oldest) || change.subject.is_some() {
            events.push(event(change.at, Happening::Change(sentence(change, local))));
        }
    }
    let entries = entries.items.into_iter();
    events.extend(entries.map(|entry| event(entry.at, Happening::Entry(Box::new(entry)))));
    let denials = denials.items.into_iter();
    events.extend(denials.map(|denial| event(denial.denied_at, Happening::Denial(denial))));
    Ok(events)
}

fn timeline(visit: &Visit<'_>, events: &[StoryEvent], local: &Local, makers: &Makers) -> Markup {
    let mut day = None;
    html! {
        @if events.is_empty() { (empty("Nothing happened yet.")) }
        ul.timeline {
            @for event in events {
                @let date = local.date_of(event.at);
                @if day.replace(date) != Some(date) {
                    li.day { (date.format("%A %-d %B %Y").to_string()) }
                }
                li {
                    (local.show_time(event.at)) " "
                    (told(visit, event, local, makers))
                    " " span.muted { (event.policy) }
                }
            }
        }
    }
}

fn usages(limits: &[LimitUsage]) -> String {
    let words: Vec<String> = limits.iter().map(words::usage).collect();
    words.join(", ")
}

fn told(visit: &Visit<'_>, event: &StoryEvent, local: &Local, makers: &Makers) -> Markup {
    match &event.what {
        Happening::Change(sentence) => html! { span.state.changed { "✎ " } (sentence) },
        Happening::Denial(denial) => html! {
            (state("refused")) " " (count(denial.units, "unit")) ": " (usages(&denial.limits)) " used "
            span.muted { "(the first refusal in this window; later ones are not kept)" }
        },
        Happening::Entry(entry) => {
            let units = entry.units.unsigned_abs();
            let of = entry.grant.unwrap_or(entry.id);
            let is_of_grant = entry.top_up.is_none()
                && !["adjustment", "reset", "calendar"].contains(&&*entry.kind);
            let is_grant = entry.grant.is_none() && is_of_grant;
            html! {
                (kind(entry)) " "
                @if &*entry.kind == "adjustment" {
                    @if entry.units < 0 { "−" } @else { "+" } (count(units, "unit"))
                } @else if let Some(top_up) = &entry.top_up {
                    (count(top_up.units, "unit"))
                    @if let Some(until) = top_up.until { " until " (local.show(until)) } @else { " taken back" }
                } @else if is_of_grant {
                    (count(units, "unit"))
                    @if entry.topped_up_units > 0 { " (" (entry.topped_up_units) " of top-ups)" }
                } @else if let Some(calendar) = entry.calendar.as_ref().filter(|_| &*entry.kind == "calendar") {
                    "moved: " (calendar.in_words().unwrap_or_default())
                } @else if let Some(per) = &entry.per {
                    "of the limit per " (per)
                } @else {
                    "of all limits"
                }
                ": " (usages(&entry.limits)) " used"
                @if let Some(by) = &entry.by { ", by " (makers.show(by)) }
                @if entry.reason.is_some() { ", " (reason(entry.reason.as_deref())) }
                @if is_of_grant {
                    " · " a href=(path(&["console", "grants", &of.to_string()])) { "Why" }
                }
                @if is_grant && visit.may_help() {
                    " · " a href=(path(&["console", "grants", &of.to_string(), "give-back"])) { "Give back" }
                }
            }
        }
    }
}
