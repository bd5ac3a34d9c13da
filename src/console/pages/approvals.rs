//! A change that waits for a second admin: what would it do? Its proposer finds here the address for a colleague, and
//! every other admin the form that approves it.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::makers::Makers;
use super::version::{difference_table, differences};
use crate::asking::{Asking, PageFailure, command, path, with};
use crate::local::Local;
use crate::parts::{Field, facts, faulty, form, reason, refused, subject};
use crate::visit::{PageReply, Replied, Shown, Visit};
use crate::words::count;
use api::approvals::ApprovalAnswer;
use api::policies::{PolicyAnswer, PolicyList};

/// Where the reader goes whose change waits; any other failure stays as it is.
pub fn waiting(failure: PageFailure) -> Replied {
    match &failure {
        PageFailure::Problem(problem, _) => match &problem.proposal {
            Some(proposal) => Ok(PageReply::Redirect(page_of(proposal))),
            None => Err(failure),
        },
        PageFailure::Foreign(_) | PageFailure::NoJson(_) | PageFailure::NotFound(_) => Err(failure),
    }
}

fn page_of(proposal: &str) -> String {
    with("/console/approve", &[("proposal", proposal)])
}

fn asking(proposal: &str, is_dry_run: bool) -> Asking {
    let dry_run = if is_dry_run { "true" } else { "" };
    let target = with("/v1/approvals", &[("dry_run", dry_run)]);
    Asking::of("POST", target).body(json!({ "proposal": proposal }))
}

pub async fn show(visit: &Visit<'_>) -> Replied {
    match visit.query.some("proposal") {
        Some(proposal) => shown(visit, proposal).await,
        None => Ok(entry_page(visit, "").into()),
    }
}

/// The page of a proposal, or what is wrong with the text.
async fn shown(visit: &Visit<'_>, proposal: &str) -> Replied {
    match visit.asker.send(asking(proposal, true)).await {
        Ok(proposed) => Ok(proposal_page(visit, proposal, &proposed).await?.into()),
        Err(failure) => {
            let problem = failure.of_form()?;
            Ok(refused(entry_page(visit, proposal), &problem).into())
        }
    }
}

/// The page for somebody who has a proposal as a text.
fn entry_page(visit: &Visit<'_>, proposal: &str) -> Shown {
    let field = Field::of(&visit.query, "proposal", "Proposal");
    let field = field.hint("As the command or the API gave it to your colleague.");
    Shown::new("Approve a change", visit.utc())
        .lead(html! {
            "A change of some policies needs two admins: one proposes it, and another one approves it here."
        })
        .body(html! {
            form method="get" action="/console/approve" {
                (field.value(proposal).required().lines())
                button { "Show the change" }
            }
        })
}

/// The newest version of a policy, archived or not.
async fn newest(visit: &Visit<'_>, name: &str) -> Result<Option<PolicyAnswer>, PageFailure> {
    let target = with(
        &path(&["v1", "policies", name, "versions"]),
        &[("limit", "1")],
    );
    let versions: Option<PolicyList> = visit.asker.find(target).await?;
    Ok(versions.and_then(|list| list.items.into_iter().next()))
}

async fn proposal_page(
    visit: &Visit<'_>,
    proposal: &str,
    proposed: &ApprovalAnswer,
) -> Result<Shown, PageFailure> {
    let ApprovalAnswer {
        policy: name,
        result,
        ..
    } = proposed;
    let before = newest(visit, name).await?.map(|newest| json!(newest));
    let after = json!(result);
    let local = visit.local(&result.time_zone);
    let makers = Makers::of(visit, [&*proposed.proposed_by]).await;
    // The key of the settings has no id.
    let id = visit.reader.id.map(|id| id.to_string());
    let is_own = *id.as_ref().unwrap_or(&visit.reader.name) == proposed.proposed_by;
    let page = Shown::new(format!("Proposed change of policy {name}"), local.clone());
    Ok(page
        .lead(html! {
            @if is_own {
                "This change waits for a second admin. Nothing is changed yet."
            } @else {
                (proposed.proposer) " proposes this change. Nothing is changed before you approve it."
            }
        })
        .body(html! {
            (what_changes(before.as_ref(), &after, result, &local))
            (facts([
                ("Proposed by", html! { (makers.show(&proposed.proposed_by)) }),
                ("Proposed at", local.show(proposed.proposed_at)),
                ("Can be approved until", local.show(proposed.expires_at)),
                ("Reason", reason(proposed.reason.as_deref())),
            ]))
            @if is_own {
                h2 { "Send it to another admin" }
                p {
                    a #address href=(page_of(proposal)) { "The address of this page" } " "
                    button.plain data-copy="address" hidden { "Copy the address" }
                }
                p { "Any other change of the policy makes it stale: then propose it again." }
            } @else if visit.may_change() {
                (approval_form(visit, proposal, name))
            }
        })
        .command(command(&["perdiem", "approve", proposal])))
}

/// What the change does to the policy.
fn what_changes(
    before: Option<&Value>,
    after: &Value,
    result: &PolicyAnswer,
    local: &Local,
) -> Markup {
    let found = differences(before, Some(after), local);
    html! {
        @if result.archived {
            p.banner { "The policy is archived: claims under it are refused from then on." }
        } @else if before.is_none() {
            p { "A new policy: " (super::policies::rule(result)) "." }
        } @else {
            p { (count(found.len() as u64, "setting")) " would change." }
            (difference_table(&found, "now", "after the change"))
        }
        @if result.in_force_version != Some(result.version) && !result.archived {
            p { "It takes effect " (local.show(result.effective_at)) "." }
        }
        @for warning in &result.warnings { p.banner { (warning) } }
        @if let Some(orphans) = &result.orphaned_overrides {
            p.banner {
                (count(orphans.count as u64, "exception")) " would be left without the limit or the tier, such as "
                @for orphan in &orphans.first { (subject(orphan.subject.as_deref())) " " }
            }
        }
    }
}

fn approval_form(visit: &Visit<'_>, proposal: &str, name: &str) -> Markup {
    let confirmation = Field::of(&visit.form, "policy", "Policy");
    let hint = format!("Type {name}, so that you approve the right change.");
    let fields = html! {
        input type="hidden" name="proposal" value=(proposal);
        (confirmation.hint(&hint).required().line())
        button { "Approve the change" }
    };
    form(visit, "/console/approve", fields)
}

pub async fn approve(visit: &Visit<'_>) -> Replied {
    let proposal = visit.form.get("proposal");
    let proposed: ApprovalAnswer = match visit.asker.send(asking(proposal, true)).await {
        Ok(proposed) => proposed,
        Err(failure) => {
            let problem = failure.of_form()?;
            return Ok(refused(entry_page(visit, proposal), &problem).into());
        }
    };
    if visit.form.get("policy") != proposed.policy {
        let page = proposal_page(visit, proposal, &proposed).await?;
        let says = "The policy that you typed is another one.";
        return Ok(faulty(page, says, &[]).into());
    }
    match visit.asker.value(asking(proposal, false)).await {
        Ok(_) => {
            let policy = path(&["console", "policies", &proposed.policy]);
            Ok(PageReply::Redirect(policy))
        }
        Err(failure) => {
            let problem = failure.of_form()?;
            let page = proposal_page(visit, proposal, &proposed).await?;
            Ok(refused(page, &problem).into())
        }
    }
}
