//! The erasure of a subject: its name leaves the record, and its entries stay.

use maud::html;
use serde_json::json;

use crate::asking::{Asking, PageFailure, command, path, problem_text};
use crate::parts::{Field, form};
use crate::visit::{PageReply, Replied, Shown, Visit};
use api::erasures::ErasureAnswer;

pub async fn ask(visit: &Visit<'_>) -> Replied {
    Ok(page(visit, "").into())
}

fn page(visit: &Visit<'_>, problem: &str) -> Shown {
    let whose = visit.name(0);
    let fields = html! {
        (Field::of(&visit.form, "subject", "Subject")
            .hint("Type the subject, so that you erase the right one.")
            .required()
            .line())
        (Field::of(&visit.form, "reason", "Reason").hint("It stays in the record, so it must not name the person.").required().line())
        button.danger { "Erase the subject" }
    };
    Shown::new(format!("Erase {whose}"), visit.utc())
        .status(if problem.is_empty() { 200 } else { 422 })
        .lead(html! {
            "The name of " bdi { (whose) } " leaves the record for good, with its metadata. Its entries stay, \
            without a name, so all sums stay right. Nobody can undo it."
        })
        .body(html! {
            @if !problem.is_empty() { p.banner.bad role="alert" { (problem) } }
            (form(visit, &visit.path, fields))
        })
        .command(command(&["perdiem", "erase", "--reason", "…", "--", whose]))
}

pub async fn erase(visit: &Visit<'_>) -> Replied {
    let whose = visit.name(0);
    if visit.form.get("subject") != whose {
        return Ok(page(visit, "The subject that you typed is another one.").into());
    }
    let asking = Asking::of("POST", path(&["v1", "subjects", whose, "erasure"]))
        .body(json!({ "reason": visit.form.get("reason") }));
    match visit.asker.send::<ErasureAnswer>(asking).await {
        // A page here would erase again when it is loaded again.
        Ok(_) => Ok(PageReply::Redirect(
            "/console/changes?kind=erasure".to_owned(),
        )),
        Err(PageFailure::Problem(problem, _)) if [400, 409, 422].contains(&problem.status) => {
            Ok(page(visit, &problem_text(&problem)).into())
        }
        Err(refusal) => Err(refusal),
    }
}
