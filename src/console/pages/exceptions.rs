//! Exceptions: what overrides, tiers and blocks have in common. A policy has them for one subject each.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde_json::Value;

use crate::asking::{Asking, PageFailure, path, with};
use crate::local::Local;
use crate::parts::{Field, form, refused};
use crate::visit::{PageReply, Replied, Shown, Visit};
use api::instant::written;

/// A form that leads to the page of one subject.
pub fn open_form(title: &str, base: &str) -> Markup {
    html! {
        h2 { (title) }
        form action="/console/find" {
            input type="hidden" name="below" value=(base);
            div.field {
                label for="whose" { "Subject" }
                input id="whose" name="q" required;
            }
            button { "Open" }
        }
    }
}

/// When an exception ends, in words.
pub fn until(until: Option<DateTime<Utc>>, local: &Local) -> Markup {
    match until {
        Some(at) if at <= local.now() => html! { "ended " (local.show(at)) },
        Some(at) => html! { (local.show(at)) ", " (local.distance(at)) },
        None => html! { span.muted { "without an end" } },
    }
}

/// A link to the page of one subject's exception. An erased subject has none.
pub fn open_link(policy: &str, kind: &str, subject: Option<&str>) -> Markup {
    html! {
        @if let Some(subject) = subject {
            a href=(path(&["console", "policies", policy, kind, subject])) { "Open" }
        }
    }
}

/// The field for the end of an exception, with the end that it has.
pub fn until_field(visit: &Visit<'_>, known: Option<DateTime<Utc>>) -> Markup {
    let known = known.map(written).unwrap_or_default();
    let was_sent = visit.form.has("until");
    Field::of(&visit.form, "until", "Until")
        .value(if was_sent {
            visit.form.get("until")
        } else {
            &known
        })
        .hint("An instant such as 2026-12-01T00:00:00Z. Empty: without an end.")
        .line()
}

/// The form that ends an exception.
pub fn end_form(visit: &Visit<'_>, version: u32, noun: &str) -> Markup {
    let fields = html! {
        input type="hidden" name="version" value=(version);
        (Field { name: "why", ..Field::of(&visit.form, "reason", "Reason") }.required().line())
        button.plain { "End the " (noun) }
    };
    html! {
        h2 { "End it" }
        (form(visit, &format!("{}/end", visit.path), fields))
    }
}

/// What stands in place of the forms for readers who may not send them.
pub fn for_helpers() -> Markup {
    html! { p.muted { "A key of the role support or admin may change it." } }
}

/// Lets a request change what the form showed, and nothing newer. Version 0 means that there was none.
fn conditioned(asking: Asking, version: &str) -> Asking {
    match version {
        "" | "0" => asking.field("If-None-Match", "*"),
        version => asking.if_version(version),
    }
}

/// Puts the exception of the page's subject, and leads back to its page. What is wrong is told on the page with the
/// form.
pub async fn put_exception(
    visit: &Visit<'_>,
    kind: &str,
    body: Value,
    page: impl AsyncFnOnce(&Visit<'_>) -> Result<Shown, PageFailure>,
) -> Replied {
    let target = path(&["v1", "policies", visit.name(0), kind, visit.name(1)]);
    let asking = conditioned(
        Asking::of("PUT", target).body(body),
        visit.form.get("version"),
    );
    match visit.asker.value(asking).await {
        Ok(_) => Ok(PageReply::Redirect(visit.path.clone())),
        Err(failure) => {
            let problem = failure.of_form()?;
            Ok(refused(page(visit).await?, &problem).into())
        }
    }
}

/// Ends the exception of the page's subject, and leads back to its page.
pub async fn end_exception(visit: &Visit<'_>, kind: &str) -> Replied {
    let parts = ["policies", visit.name(0), kind, visit.name(1)];
    let target = path(&[&["v1"], &parts[..]].concat());
    let target = with(&target, &[("reason", visit.form.get("why"))]);
    let asking = conditioned(Asking::of("DELETE", target), visit.form.get("version"));
    visit.asker.value(asking).await?;
    Ok(PageReply::Redirect(path(
        &[&["console"], &parts[..]].concat(),
    )))
}
