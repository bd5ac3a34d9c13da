//! What an admin enters for a subject: adjustments, resets, moves of its calendar, and top-ups.

use maud::html;
use serde_json::{Value, json};

use super::known::Known;
use crate::asking::{Asking, PageFailure, command, path, with};
use crate::parts::{Field, faulty, form, policy, reason_field, refused};
use crate::visit::{PageReply, Replied, Shown, Visit};

pub async fn ask_adjust(visit: &Visit<'_>) -> Replied {
    Ok(adjust_page(visit, visit.query.get("policy")).into())
}

fn adjust_page(visit: &Visit<'_>, name: &str) -> Shown {
    let whose = visit.name(0);
    let fields = html! {
        input type="hidden" name="policy" value=(name);
        input type="hidden" name="once" value=(visit.once());
        (Field::of(&visit.form, "units", "Units")
            .hint("How many units more are used; with a minus, how many fewer.")
            .required()
            .line())
        (Field::of(&visit.form, "at", "At")
            .hint("An instant that has passed, if the units do not count now.")
            .line())
        (reason_field(visit))
        button { "Adjust the usage" }
    };
    Shown::new(format!("Adjust {whose}"), visit.utc())
        .lead(html! {
            "An adjustment changes the units that " (crate::parts::subject(Some(whose))) " has used under "
            (policy(name)) ". It is an entry of the ledger."
        })
        .body(html! {
            (form(visit, &visit.path, fields))
        })
        .command(command(&["perdiem", "adjust", "--units", "…", "--reason", "…", "--", name, whose]))
}

pub async fn adjust(visit: &Visit<'_>) -> Replied {
    let name = visit.form.get("policy");
    let Ok(units) = visit.form.get("units").replace('−', "-").parse::<i64>() else {
        let says = "Write a whole number of units, such as 2 or -1.";
        return Ok(faulty(adjust_page(visit, name), says, &[]).into());
    };
    let body = json!({
        "units": units,
        "at": visit.form.some("at"),
        "reason": visit.form.get("reason"),
    });
    match enter(visit, "adjustments", body).await {
        Ok(entered) => Ok(entered),
        Err(failure) => Ok(refused(adjust_page(visit, name), &failure.of_form()?).into()),
    }
}

/// Enters something for the subject, once, and leads to its page.
async fn enter(visit: &Visit<'_>, what: &str, body: Value) -> Replied {
    let name = visit.form.get("policy");
    let whose = visit.name(0);
    let asking = Asking::of(
        "POST",
        path(&["v1", "policies", name, "subjects", whose, what]),
    )
    .body(body)
    .field("Idempotency-Key", visit.form.get("once"));
    visit.asker.value(asking).await?;
    let base = path(&["console", "subjects", whose]);
    Ok(PageReply::Redirect(with(&base, &[("policy", name)])))
}

pub async fn ask_reset(visit: &Visit<'_>) -> Replied {
    Ok(reset_page(visit, visit.query.get("policy")).await?.into())
}

async fn reset_page(visit: &Visit<'_>, name: &str) -> Result<Shown, PageFailure> {
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
    let fields = html! {
        input type="hidden" name="policy" value=(name);
        input type="hidden" name="once" value=(visit.once());
        (Field::of(&visit.form, "per", "Limit").choice(&choices))
        (reason_field(visit))
        button { "Reset the usage" }
    };
    Ok(Shown::new(format!("Reset {whose}"), visit.utc())
        .lead(html! {
            "A reset lets " (crate::parts::subject(Some(whose))) " begin again with nothing used under "
            (policy(name)) ". What was granted stays granted, and the reset is an entry of the ledger."
        })
        .body(html! {
            (form(visit, &visit.path, fields))
        })
        .command(command(&["perdiem", "reset", "--reason", "…", "--", name, whose])))
}

pub async fn reset(visit: &Visit<'_>) -> Replied {
    let body = json!({ "per": visit.form.some("per"), "reason": visit.form.get("reason") });
    match enter(visit, "resets", body).await {
        Ok(entered) => Ok(entered),
        Err(failure) => {
            let problem = failure.of_form()?;
            let page = reset_page(visit, visit.form.get("policy")).await?;
            Ok(refused(page, &problem).into())
        }
    }
}

pub async fn ask_move(visit: &Visit<'_>) -> Replied {
    Ok(move_page(visit, visit.query.get("policy")).into())
}

fn move_page(visit: &Visit<'_>, name: &str) -> Shown {
    let whose = visit.name(0);
    let fields = html! {
        input type="hidden" name="policy" value=(name);
        input type="hidden" name="once" value=(visit.once());
        (Field::of(&visit.form, "time_zone", "Time zone")
            .hint("Such as Asia/Tokyo or +09:00. Empty: it stays.")
            .line())
        (Field::of(&visit.form, "anchor", "Counted from")
            .hint("A day such as 2026-01-31: weeks, months and years begin on it. Empty: it stays.")
            .line())
        (reason_field(visit))
        button { "Move the calendar" }
    };
    Shown::new(format!("Calendar of {whose}"), visit.utc())
        .lead(html! {
            "The windows of " (crate::parts::subject(Some(whose))) " under " (policy(name))
            " that have begun keep their ends. Then the new calendar divides time, and what was used in a new \
            window already counts in it. The move is an entry of the ledger."
        })
        .body(html! {
            (form(visit, &visit.path, fields))
        })
        .command(command(&[
            "perdiem", "move-calendar", "--time-zone", "…", "--anchor", "…", "--reason", "…", "--", name, whose,
        ]))
}

pub async fn move_calendar(visit: &Visit<'_>) -> Replied {
    let body = json!({
        "time_zone": visit.form.some("time_zone"),
        "anchor": visit.form.some("anchor"),
        "reason": visit.form.get("reason"),
    });
    match enter(visit, "calendar", body).await {
        Ok(entered) => Ok(entered),
        Err(failure) => {
            let page = move_page(visit, visit.form.get("policy"));
            Ok(refused(page, &failure.of_form()?).into())
        }
    }
}

pub async fn ask_top_up(visit: &Visit<'_>) -> Replied {
    Ok(top_up_page(visit, visit.query.get("policy")).into())
}

fn top_up_page(visit: &Visit<'_>, name: &str) -> Shown {
    let whose = visit.name(0);
    let fields = html! {
        input type="hidden" name="policy" value=(name);
        input type="hidden" name="once" value=(visit.once());
        (Field::of(&visit.form, "units", "Units")
            .hint("They are used when the limits have no room.")
            .required()
            .line())
        (Field::of(&visit.form, "until", "Until")
            .hint("An instant such as 2026-12-01T00:00:00Z: units that are left then are gone.")
            .required()
            .line())
        (reason_field(visit))
        button { "Give the units" }
    };
    Shown::new(format!("Top up {whose}"), visit.utc())
        .lead(html! {
            "A top-up gives " (crate::parts::subject(Some(whose))) " units under " (policy(name))
            " beside its limits. It is an entry of the ledger, and what is left of it can be taken back."
        })
        .body(html! {
            (form(visit, &visit.path, fields))
        })
        .command(command(&[
            "perdiem", "top-up", "give", "--units", "…", "--until", "…", "--reason", "…", "--", name, whose,
        ]))
}

pub async fn top_up(visit: &Visit<'_>) -> Replied {
    let name = visit.form.get("policy");
    let Ok(units) = visit.form.get("units").parse::<u64>() else {
        let says = "Write a whole number of units, such as 2.";
        return Ok(faulty(top_up_page(visit, name), says, &[]).into());
    };
    let body = json!({
        "units": units,
        "until": visit.form.get("until"),
        "reason": visit.form.get("reason"),
    });
    match enter(visit, "top-ups", body).await {
        Ok(entered) => Ok(entered),
        Err(failure) => Ok(refused(top_up_page(visit, name), &failure.of_form()?).into()),
    }
}

pub async fn end_top_up(visit: &Visit<'_>) -> Replied {
    let name = visit.form.get("policy");
    let whose = visit.name(0);
    let target = [
        "v1",
        "policies",
        name,
        "subjects",
        whose,
        "top-ups",
        visit.name(1),
        "reversal",
    ];
    let body = json!({ "reason": visit.form.get("reason") });
    visit
        .asker
        .value(Asking::of("POST", path(&target)).body(body))
        .await?;
    let base = path(&["console", "subjects", whose]);
    Ok(PageReply::Redirect(with(&base, &[("policy", name)])))
}
