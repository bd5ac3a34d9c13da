//! The erasure of a subject: its name leaves the record, and its entries stay.

use maud::html;
use serde_json::json;

use crate::asking::{Asking, command, path};
use crate::parts::{Field, faulty, form, refused};
use crate::visit::{PageReply, Replied, Shown, Visit};
use api::erasures::ErasureAnswer;

pub async fn ask(visit: &Visit<'_>) -> Replied {
    Ok(page(visit).into())
}

fn page(visit: &Visit<'_>) -> Shown {
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
        .lead(html! {
            "The name of " bdi { (whose) } " leaves the record for good, with its metadata. Its entries stay, \
            without a name, so all sums stay right. Nobody can undo it."
        })
        .body(html! {
            (form(visit, &visit.path, fields))
        })
        .command(command(&["perdiem", "erase", "--reason", "…", "--", whose]))
}

pub async fn erase(visit: &Visit<'_>) -> Replied {
    let whose = visit.name(0);
    if visit.form.get("subject") != whose {
        let says = "The subject that you typed is another one.";
        return Ok(faulty(page(visit), says, &[]).into());
    }
    let asking = Asking::of("POST", path(&["v1", "subjects", whose, "erasure"]))
        .body(json!({ "reason": visit.form.get("reason") }));
    match visit.asker.send::<ErasureAnswer>(asking).await {
        // A page here would erase again when it is loaded again.
        Ok(_) => Ok(PageReply::Redirect(
            "/console/changes?kind=erasure".to_owned(),
        )),
        Err(failure) => Ok(refused(page(visit), &failure.of_form()?).into()),
    }
}
