//! Pages about requests that were refused: what happened, and what to do.

use maud::{Markup, html};

use crate::asking::{PageFailure, with};
use crate::visit::{Shown, Visit};

/// The page about a refusal.
pub fn page(visit: &Visit<'_>, refusal: &PageFailure) -> Shown {
    let title = match refusal.status() {
        403 => "You may not see this",
        404 => "Nothing is here",
        409 | 412 => "It changed meanwhile",
        410 => "It is gone",
        429 => "Too many requests",
        503 => "This is not available now",
        _ => "This did not work",
    };
    let again = match refusal {
        PageFailure::Problem(_, Some(seconds)) => html! { p { "Try again in " (seconds) " s." } },
        _ => Markup::default(),
    };
    let errors = match refusal {
        PageFailure::Problem(problem, _) => problem.errors.as_slice(),
        _ => &[],
    };
    Shown::new(title, visit.utc())
        .status(refusal.status())
        .lead(html! { (visit.utc().within(&refusal.to_string())) })
        .body(html! {
            @if errors.len() > 1 {
                ul.faults { @for error in errors { li { (error.detail) } } }
            }
            (again)
            p { a.button href=(again_at(visit)) { "Back" } " " a href="/console" { "Today" } }
            p.muted { "If you ask somebody for help, give them the id of the request below." }
        })
}

/// Where the reader came from: the page itself, or the page of a form.
fn again_at(visit: &Visit<'_>) -> String {
    let is_form_alone = ["end", "replace", "revoke", "apply", "confirm"];
    let (above, last) = visit.path.rsplit_once('/').unwrap_or_default();
    let page = if is_form_alone.contains(&last) {
        above
    } else {
        visit.path.as_str()
    };
    with(page, &[("policy", visit.form.get("policy"))])
}

/// The page about an address or a form that the reader may not use.
pub fn forbidden(visit: &Visit<'_>, why: &str) -> Shown {
    Shown::new("You may not do this", visit.utc())
        .status(403)
        .lead(html! { (why) })
        .body(html! { p { a.button href="/console" { "Today" } } })
}
