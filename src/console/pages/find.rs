//! The search: an id, a policy, a policy and a subject, or a subject by its beginning.

use maud::html;
use uuid::Uuid;

use super::subjects::subject_table;
use crate::asking::{PageFailure, command, path, with};
use crate::parts::empty;
use crate::visit::{PageReply, Replied, Shown, Visit};
use api::bundles::BundleBody;
use api::grants::GrantBody;
use api::keys::ListedKey;
use api::policies::PolicyAnswer;
use api::reconciliations::ReconciliationAnswer;
use api::subjects::SubjectList;

pub async fn show(visit: &Visit<'_>) -> Replied {
    let wanted = visit.query.get("q");
    // 1. A list of exceptions leads to the page of one subject.
    let below = visit.query.get("below");
    let is_list =
        below.starts_with("/console/policies/") && below.bytes().all(|it| it.is_ascii_graphic());
    if is_list && !wanted.is_empty() {
        return Ok(PageReply::Redirect(format!("{below}{}", path(&[wanted]))));
    }
    if wanted.is_empty() {
        return Ok(PageReply::Redirect("/console/subjects".to_owned()));
    }
    // 2. An id is a grant, a bundle, a key or a reconciliation.
    if Uuid::try_parse(wanted).is_ok()
        && let Some(target) = by_id(visit, wanted).await?
    {
        return Ok(PageReply::Redirect(target));
    }
    // 3. The name of a policy, alone or with a subject.
    let (first, rest) = wanted.split_once(' ').unwrap_or((wanted, ""));
    if is_policy(visit, first).await? {
        return Ok(PageReply::Redirect(match rest.trim() {
            "" => path(&["console", "policies", first]),
            subject => with(
                &path(&["console", "subjects", subject]),
                &[("policy", first)],
            ),
        }));
    }
    // 4. A subject, by its beginning.
    let target = with("/v1/subjects", &[("prefix", wanted), ("limit", "20")]);
    let found: SubjectList = match visit.asker.get(target).await {
        Ok(found) => found,
        Err(refusal) if refusal.status() == 422 => SubjectList {
            items: Vec::new(),
            next_cursor: None,
        },
        Err(refusal) => return Err(refusal),
    };
    if let [one] = &found.items[..] {
        return Ok(PageReply::Redirect(path(&[
            "console",
            "subjects",
            &one.subject,
        ])));
    }
    Ok(Shown::new(format!("Search for {wanted}"), visit.utc())
        .lead(html! {
            @if found.items.is_empty() {
                "Nothing is named “" bdi { (wanted) } "”."
            } @else {
                (found.items.len()) " subjects begin with “" bdi { (wanted) } "”"
                @if found.next_cursor.is_some() { ", and there are more" } "."
            }
        })
        .body(html! {
            @if found.items.is_empty() {
                (empty("Subjects are found by their beginning, in the same letters. Policies and ids are found as a \
                        whole."))
            } @else {
                (subject_table(&found.items))
            }
        })
        .command(command(&["perdiem", "subjects", "--", wanted]))
        .into())
}

async fn by_id(visit: &Visit<'_>, id: &str) -> Result<Option<String>, PageFailure> {
    let asker = &visit.asker;
    let is_there = |found: Result<bool, PageFailure>| match found {
        // A confined key may not know.
        Err(refusal) if refusal.status() == 403 => Ok(false),
        found => found,
    };
    let grant = asker.find::<GrantBody>(path(&["v1", "grants", id])).await;
    if is_there(grant.map(|found| found.is_some()))? {
        return Ok(Some(path(&["console", "grants", id])));
    }
    let bundle = asker.find::<BundleBody>(path(&["v1", "bundles", id])).await;
    if is_there(bundle.map(|found| found.is_some()))? {
        return Ok(Some(path(&["console", "bundles", id])));
    }
    let key = asker.find::<ListedKey>(path(&["v1", "keys", id])).await;
    if is_there(key.map(|found| found.is_some()))? {
        return Ok(Some(path(&["console", "keys", id])));
    }
    let report = asker.find::<ReconciliationAnswer>(path(&["v1", "reconciliations", id]));
    if is_there(report.await.map(|found| found.is_some()))? {
        return Ok(Some(path(&["console", "reconciliations", id])));
    }
    Ok(None)
}

async fn is_policy(visit: &Visit<'_>, name: &str) -> Result<bool, PageFailure> {
    let target = path(&["v1", "policies", name]);
    match visit.asker.find::<PolicyAnswer>(target).await {
        Ok(found) => Ok(found.is_some()),
        Err(refusal) if [403, 422].contains(&refusal.status()) => Ok(false),
        Err(refusal) => Err(refusal),
    }
}
