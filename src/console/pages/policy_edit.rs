//! Changes of a policy: what will my change do? A form, a preview that changes nothing, and the change.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::approvals::waiting;
use super::known::Known;
use super::policy_form::PolicyDraft;
use super::version::{difference_table, differences};
use crate::asking::{Asking, PageFailure, path, with};
use crate::chart::{DayBar, as_table, day_bars};
use crate::local::Local;
use crate::parts::{Field, Heading, cell, empty, faulty, figure, form, refused, subject, table};
use crate::visit::{PageReply, Replied, Shown, Visit};
use crate::words::{count, number};
use api::backtests::BacktestAnswer;
use api::policies::{PolicyAnswer, PolicyList};
use api::problem::InvalidPart;

const BACKTEST_DAYS: u64 = 7;

pub async fn new(visit: &Visit<'_>) -> Replied {
    Ok(draft_page(visit, &PolicyDraft::new(), None, &[]).into())
}

pub async fn edit(visit: &Visit<'_>) -> Replied {
    let known = Known::ask(visit, visit.name(0)).await?;
    let newest = known.versions.first().unwrap_or(&known.in_force);
    let restored = match visit.query.some("restore") {
        Some(number) => Some(version_with(visit, number).await?),
        None => None,
    };
    let from = restored.as_ref().unwrap_or(newest);
    let draft = PolicyDraft::of(from, version_of(newest));
    Ok(draft_page(visit, &draft, Some(&known), &[]).into())
}

/// A version of the policy by its number.
async fn version_with(visit: &Visit<'_>, number: &str) -> Result<PolicyAnswer, PageFailure> {
    let name = visit.name(0);
    let base = path(&["v1", "policies", name, "versions"]);
    let mut cursor = String::new();
    loop {
        let target = with(&base, &[("limit", "1000"), ("cursor", &cursor)]);
        let list: PolicyList = visit.asker.get(target).await?;
        let mut found = list.items.into_iter();
        if let Some(version) = found.find(|it| it.version.to_string() == number) {
            return Ok(version);
        }
        let none = || PageFailure::NotFound(format!("There is no version {number} of {name}."));
        cursor = list.next_cursor.ok_or_else(none)?;
    }
}

/// What a change must be made to.
fn version_of(newest: &PolicyAnswer) -> String {
    if newest.archived {
        "archived".to_owned()
    } else {
        newest.version.to_string()
    }
}

/// The form, beside what is in force.
fn draft_page(
    visit: &Visit<'_>,
    draft: &PolicyDraft,
    known: Option<&Known>,
    faults: &[InvalidPart],
) -> Shown {
    let title = match known {
        Some(known) => format!("Edit policy {}", known.in_force.name),
        None => "New policy".to_owned(),
    };
    let local = known.map_or_else(|| visit.utc(), |known| known.local.clone());
    let target = visit.path.clone();
    let fields = html! {
        input type="hidden" name="version" value=(draft.version);
        @if known.is_none() {
            (Field {
                name: "name",
                label: "Name",
                hint: "Lower-case letters, digits and hyphens, such as benefit. It never changes.",
                value: &draft.name,
                fault: None,
                required: true,
            }.line())
        }
        (draft.fields(faults))
        button { "Preview the change" }
    };
    Shown::new(title, local.clone())
        .lead(html! { "The preview shows what the change does. Nothing changes before you apply it." })
        .body(html! {
            div.columns {
                section { (form(visit, &target, fields)) }
                @if let Some(known) = known {
                    section.panel {
                        h2 { "In force: version " (known.in_force.version) }
                        p { (super::policies::rule(&known.in_force)) }
                        p { bdi { (known.in_force.description) } }
                        @if let Some(next) = known.scheduled() {
                            p {
                                "Version " (next.version) " follows " (local.show(next.effective_at))
                                ". This form begins with it."
                            }
                        }
                    }
                }
            }
        })
}

/// The request that makes the change, or tries it.
fn request(draft: &PolicyDraft, is_dry_run: bool) -> Result<Asking, Vec<InvalidPart>> {
    let target = path(&["v1", "policies", &draft.name]);
    let target = with(
        &target,
        &[("dry_run", if is_dry_run { "true" } else { "" })],
    );
    let asking = Asking::of("PUT", target).body(draft.body()?);
    Ok(match &*draft.version {
        "new" => asking.field("If-None-Match", "*"),
        "archived" => asking,
        version => asking.if_version(version),
    })
}

/// The draft that the form sends, and the policy as it is.
async fn read_draft(visit: &Visit<'_>) -> Result<(PolicyDraft, Option<Known>), PageFailure> {
    let name = match visit.names.first() {
        Some(name) => name.clone(),
        None => visit.form.get("name").to_owned(),
    };
    let draft = PolicyDraft::read(&name, &visit.form);
    let known = match &*draft.version {
        "new" => None,
        _ => Some(Known::ask(visit, &name).await?),
    };
    Ok((draft, known))
}

pub async fn preview(visit: &Visit<'_>) -> Replied {
    let (draft, known) = read_draft(visit).await?;
    let known = known.as_ref();
    if visit.form.has("add") {
        return Ok(draft_page(visit, &draft, known, &[]).into());
    }
    let asking = match request(&draft, true) {
        Ok(asking) => asking,
        Err(faults) => {
            let page = draft_page(visit, &draft, known, &faults);
            return Ok(faulty(page, "Some values are wrong.", &faults).into());
        }
    };
    match visit.asker.value(asking).await {
        Ok(after) => Ok(preview_page(visit, &draft, known, &after).await?.into()),
        Err(failure) if failure.code() == "precondition-failed" => {
            changed_meanwhile(visit, draft).await
        }
        Err(failure) => {
            let problem = failure.of_form()?;
            let page = draft_page(visit, &draft, known, &problem.errors);
            Ok(refused(page, &problem).into())
        }
    }
}

pub async fn apply(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0).to_owned();
    let draft = PolicyDraft::read(&name, &visit.form);
    let asking = request(&draft, false);
    let asking =
        asking.map_err(|_| PageFailure::NotFound("This form is not complete.".to_owned()))?;
    match visit.asker.value(asking).await {
        Ok(_) => Ok(PageReply::Redirect(path(&["console", "policies", &name]))),
        Err(refusal) if refusal.code() == "precondition-failed" => {
            changed_meanwhile(visit, draft).await
        }
        Err(refusal) => waiting(refusal),
    }
}

/// The preview: what differs, who is concerned, and the form that makes the change.
async fn preview_page(
    visit: &Visit<'_>,
    draft: &PolicyDraft,
    known: Option<&Known>,
    after: &Value,
) -> Result<Shown, PageFailure> {
    let version: PolicyAnswer = api::read(after)?;
    let local = visit.local(&version.time_zone);
    let before = known.map(|known| json!(known.versions.first().unwrap_or(&known.in_force)));
    let found = differences(before.as_ref(), Some(after), &local);
    let name = &draft.name;
    let apply = path(&["console", "policies", name, "apply"]);
    let from = if draft.is_at_once() {
        html! { "at once" }
    } else {
        html! { "from " (local.show(version.effective_at)) " on" }
    };
    let change = Asking::of("PUT", path(&["v1", "policies", name]));
    let change = change.body(draft.body().unwrap_or_default());
    let tried = match known {
        Some(_) => backtest(visit, draft, &local).await,
        None => html! {},
    };
    Ok(Shown::new(format!("Preview of policy {name}"), local)
        .lead(html! {
            @if known.is_none() {
                "A new policy: " (super::policies::rule(&version)) ", " (from) "."
            } @else if found.is_empty() {
                "Nothing differs from the newest version."
            } @else {
                (count(found.len() as u64, "setting")) " would change, " (from)
                ". No grant is lost: what was granted stays granted."
            }
        })
        .body(html! {
            @if !found.is_empty() && known.is_some() { (difference_table(&found, "now", "after the change")) }
            @for warning in &version.warnings { p.banner { (warning) } }
            @if let Some(orphans) = &version.orphaned_overrides {
                p.banner {
                    (count(orphans.count as u64, "exception")) " would be left without the limit or the tier, such as "
                    @for orphan in &orphans.first { (subject(orphan.subject.as_deref())) " " }
                }
            }
            (tried)
            (form(visit, &apply, html! {
                (draft.hidden())
                @if version.orphaned_overrides.is_some() && !draft.decides_on_orphans() {
                    button name="orphaned_overrides" value="keep" { "Apply, and keep them without an effect" }
                    button name="orphaned_overrides" value="drop" { "Apply, and end them" }
                } @else {
                    button { "Apply the change" }
                }
            }))
            (form(visit, &edit_target(draft), html! {
                (draft.hidden())
                input type="hidden" name="name" value=(name);
                button.plain name="add" value="limit" { "Go on editing" }
            }))
            details.same {
                summary { "The same change by API" }
                pre { code { (change.as_curl()) } }
            }
        }))
}

fn edit_target(draft: &PolicyDraft) -> String {
    match &*draft.version {
        "new" => "/console/new-policy".to_owned(),
        _ => path(&["console", "policies", &draft.name, "edit"]),
    }
}

/// What the draft would have done to the grants of the last days.
async fn backtest(visit: &Visit<'_>, draft: &PolicyDraft, local: &Local) -> Markup {
    let days = local.last_days(BACKTEST_DAYS + 1);
    let from = days[0].to_string();
    let to = local.today().to_string();
    let body = json!({ "policy": draft.settings().unwrap_or_default(), "from": from, "to": to });
    let target = path(&["v1", "policies", &draft.name, "backtest"]);
    let asking = Asking::of("POST", target).body(body);
    let tried = match visit.asker.send::<BacktestAnswer>(asking).await {
        Ok(tried) => tried,
        Err(refusal) => {
            return empty(html! { "It was not tried on past grants: " (refusal.to_string()) });
        }
    };
    let bar = |day: &api::backtests::BacktestDayAnswer| {
        let on = day.local_date.to_string();
        DayBar {
            label: day.local_date.format("%-d").to_string(),
            granted: day.units.saturating_sub(day.denied_units),
            refused: day.denied_units,
            target: with("/console/entries", &[("policy", &*draft.name), ("on", &on)]),
            date: on,
            note: None,
            is_over: day.end <= visit.now,
        }
    };
    let bars: Vec<DayBar> = tried.days.iter().map(bar).collect();
    let columns = [
        Heading::Text("Day"),
        Heading::Figure("Units granted then"),
        Heading::Figure("Units the draft would deny"),
    ];
    let row = |day: &api::backtests::BacktestDayAnswer| {
        html! {
            tr {
                (cell("Day", day.local_date.to_string()))
                (figure("Units granted then", number(day.units)))
                (figure("Units the draft would deny", number(day.denied_units)))
            }
        }
    };
    let denied = [
        Heading::Text("Subject"),
        Heading::Text("First denied"),
        Heading::Figure("Grants denied"),
    ];
    let denied_row = |found: &api::backtests::DeniedSubject| {
        html! {
            tr {
                (cell("Subject", subject(found.subject.as_deref())))
                (cell("First denied", local.show(found.first_denied_at)))
                (figure("Grants denied", number(found.denied_grants)))
            }
        }
    };
    html! {
        h2 { "On the grants of the last " (BACKTEST_DAYS) " days" }
        p {
            "Of " (count(tried.total.grants, "grant")) " the draft would have denied "
            (number(tried.total.denied_grants)) ", of " (count(tried.total.denied_subjects, "subject")) "."
        }
        (day_bars("backtest", "Units the draft would have granted and denied", &bars))
        (as_table(table(&columns, tried.days.iter().map(row))))
        @if !tried.first_denied.is_empty() {
            h3 { "Who would have been denied first" }
            (table(&denied, tried.first_denied.iter().map(denied_row)))
        }
    }
}

/// Somebody else changed the policy after the form was opened: both are shown.
async fn changed_meanwhile(visit: &Visit<'_>, mut draft: PolicyDraft) -> Replied {
    let known = Known::ask(visit, &draft.name).await?;
    let newest = known.versions.first().unwrap_or(&known.in_force);
    let before = draft.version.clone();
    draft.version = version_of(newest);
    let theirs = json!(newest);
    let mine = draft.body().unwrap_or_default();
    let found = differences(Some(&theirs), Some(&mine), &known.local);
    let target = edit_target(&draft);
    Ok(Shown::new("The policy changed meanwhile", known.local.clone())
        .status(412)
        .lead(html! {
            "Nothing was changed. You began with version " (before) ", and there is version " (newest.version)
            " by now."
        })
        .body(html! {
            (difference_table(&found, &format!("version {}", newest.version), "your draft"))
            (form(visit, &target, html! {
                (draft.hidden())
                button { "Preview it on version " (newest.version) }
            }))
            p { a.button.plain href=(path(&["console", "policies", &draft.name])) { "Drop my draft" } }
        })
        .into())
}

/// The form of an act that only needs a reason.
fn act_page(visit: &Visit<'_>, title: &str, lead: &str, act: (&str, String), says: &str) -> Shown {
    let (name, value) = act;
    let fields = html! {
        input type="hidden" name=(name) value=(value);
        (Field::of(&visit.form, "reason", "Reason").hint("It stays in the record.").required().line())
        button { (says) }
    };
    Shown::new(title, visit.utc())
        .lead(html! { (lead) })
        .body(form(visit, &visit.path, fields))
}

pub async fn ask_pause(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let newest: PolicyAnswer = visit.asker.get(path(&["v1", "policies", name])).await?;
    let (title, lead, act, says) = if newest.pause.is_some() {
        (
            format!("Resume policy {name}"),
            "Claims are decided again from now on.",
            "resume",
            "Resume the policy",
        )
    } else {
        (
            format!("Pause policy {name}"),
            "Every claim is refused until somebody resumes the policy. Usage stays as it is.",
            "pause",
            "Pause the policy",
        )
    };
    Ok(act_page(visit, &title, lead, ("act", act.to_owned()), says).into())
}

pub async fn pause(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let target = path(&["v1", "policies", name, "pause"]);
    let reason = visit.form.get("reason");
    let asking = match visit.form.get("act") {
        "resume" => Asking::of("DELETE", with(&target, &[("reason", reason)])),
        _ => Asking::of("PUT", target).body(json!({ "reason": reason })),
    };
    visit.asker.value(asking).await?;
    Ok(PageReply::Redirect(path(&["console", "policies", name])))
}

pub async fn ask_archive(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let newest: PolicyAnswer = visit.asker.get(path(&["v1", "policies", name])).await?;
    let lead = "Claims under it are refused from now on. Its entries, versions and figures stay, and it can be \
                restored.";
    let title = format!("Archive policy {name}");
    let version = ("version", newest.version.to_string());
    Ok(act_page(visit, &title, lead, version, "Archive the policy").into())
}

pub async fn archive(visit: &Visit<'_>) -> Replied {
    let name = visit.name(0);
    let target = with(
        &path(&["v1", "policies", name]),
        &[("reason", visit.form.get("reason"))],
    );
    let asking = Asking::of("DELETE", target).if_version(visit.form.get("version"));
    match visit.asker.value(asking).await {
        Ok(_) => Ok(PageReply::Redirect(path(&["console", "policies", name]))),
        Err(refusal) => waiting(refusal),
    }
}
