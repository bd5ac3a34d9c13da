//! Corrections of what a subject has used: adjustments and resets.

use maud::html;
use serde_json::json;

use super::known::Known;
use crate::asking::{Asking, PageFailure, command, path, problem_text, with};
use crate::parts::{Field, form, policy};
use crate::visit::{PageReply, Replied, Shown, Visit};

pub async fn ask_adjust(visit: &Visit<'_>) -> Replied {
    let name = visit.query.get("policy").to_owned();
    Ok(adjust_page(visit, &name, "").into())
}

fn adjust_page(visit: &Visit<'_>, name: &str, problem: &str) -> Shown {
    let whose = visit.name(0);
    let once = match visit.form.some("once") {
        Some(once) => once.to_owned(),
        None => visit.server.unique(),
    };
    let fields = html! {
        input type="hidden" name="policy" value=(name);
        input type="hidden" name="once" value=(once);
        (Field::of(&visit.form, "units", "Units")
            .hint("How many units more are used; with a minus, how many fewer.")
            .required()
            .line())
        (Field::of(&visit.form, "at", "At")
            .hint("An instant that has passed, if the units do not count now.")
            .line())
        (Field::of(&visit.form, "reason", "Reason").hint("It stays in the record.").required().line())
        button { "Adjust the usage" }
    };
    Shown::new(format!("Adjust {whose}"), visit.utc())
        .status(if problem.is_empty() { 200 } else { 422 })
        .lead(html! {
            "An adjustment changes the units that " (crate::parts::subject(Some(whose))) " has used under "
            (policy(name)) ". It is an entry of the ledger."
        })
        .body(html! {
            @if !problem.is_empty() { p.banner.bad role="alert" { (problem) } }
            (form(visit, &visit.path, fields))
        })
        .command(command(&["perdiem", "adjust", "--units", "…", "--reason", "…", "--", name, whose]))
}

pub async fn adjust(visit: &Visit<'_>) -> Replied {
    let whose = visit.name(0);
    let name = visit.form.get("policy").to_owned();
    let Ok(units) = visit.form.get("units").replace('−', "-").parse::<i64>() else {
        return Ok(adjust_page(
            visit,
            &name,
            "Write a whole number of units, such as 2 or -1.",
        )
        .into());
    };
    let body = json!({
        "units": units,
        "at": visit.form.some("at"),
        "reason": visit.form.get("reason"),
    });
    let target = path(&["v1", "policies", &name, "subjects", whose, "adjustments"]);
    let asking = Asking::of("POST", target)
        .body(body)
        .field("Idempotency-Key", visit.form.get("once"));
    match visit.asker.value(asking).await {
        Ok(_) => {
            let base = path(&["console", "subjects", whose]);
            Ok(PageReply::Redirect(with(&base, &[("policy", &*name)])))
        }
        Err(PageFailure::Problem(problem, _)) if [400, 409, 422].contains(&problem.status) => {
            Ok(adjust_page(visit, &name, &problem_text(&problem)).into())
        }
        Err(refusal) => Err(refusal),
    }
}

pub async fn ask_reset(visit: &Visit<'_>) -> Replied {
    let name = visit.query.get("policy").to_owned();
    Ok(reset_page(visit, &name, "").await?.into())
}

async fn reset_page(visit: &Visit<'_>, name: &str, problem: &str) -> Result<Shown, PageFailure> {
    let whose = visit.name(0);
    let of = Known::ask(visit, name).await?.in_force;
    let limits = of
        .limits
        .iter()
        .map(|limit| (limit.per.to_string(), crate::words::limit(limit)));
    let limits: Vec<(String, String)> = limits.collect();
    let mut choices = vec![("", "all limits")];
    choices.extend(
        limits
            .iter()
            .map(|(per, words)| (per.as_str(), words.as_str())),
    );
    let once = match visit.form.some("once") {
        Some(once) => once.to_owned(),
        None => visit.server.unique(),
    };
    let fields = html! {
        input type="hidden" name="policy" value=(name);
        input type="hidden" name="once" value=(once);
        (Field::of(&visit.form, "per", "Limit").choice(&choices))
        (Field::of(&visit.form, "reason", "Reason").hint("It stays in the record.").required().line())
        button { "Reset the usage" }
    };
    Ok(Shown::new(format!("Reset {whose}"), visit.utc())
        .status(if problem.is_empty() { 200 } else { 422 })
        .lead(html! {
            "A reset lets " (crate::parts::subject(Some(whose))) " begin again with nothing used under "
            (policy(name)) ". What was granted stays granted, and the reset is an entry of the ledger."
        })
        .body(html! {
            @if !problem.is_empty() { p.banner.bad role="alert" { (problem) } }
            (form(visit, &visit.path, fields))
        })
        .command(command(&["perdiem", "reset", "--reason", "…", "--", name, whose])))
}

pub async fn reset(visit: &Visit<'_>) -> Replied {
    let whose = visit.name(0);
    let name = visit.form.get("policy").to_owned();
    let body = json!({ "per": visit.form.some("per"), "reason": visit.form.get("reason") });
    let target = path(&["v1", "policies", &name, "subjects", whose, "resets"]);
    let asking = Asking::of("POST", target)
        .body(body)
        .field("Idempotency-Key", visit.form.get("once"));
    match visit.asker.value(asking).await {
        Ok(_) => {
            let base = path(&["console", "subjects", whose]);
            Ok(PageReply::Redirect(with(&base, &[("policy", &*name)])))
        }
        Err(PageFailure::Problem(problem, _)) if [400, 409, 422].contains(&problem.status) => {
            Ok(reset_page(visit, &name, &problem_text(&problem))
                .await?
                .into())
        }
        Err(refusal) => Err(refusal),
    }
}
