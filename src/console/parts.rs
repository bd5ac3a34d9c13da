//! Parts that pages share: tables, states, forms and links.

use maud::{Markup, Render, html};

use super::asking::{PageFailure, path, problem_text, with};
use super::local::Local;
use super::visit::{FormFields, Shown, Visit};
use super::words;
use api::entries::EntryBody;
use api::limits::{LimitUsage, in_percent};
use api::policies::PolicyList;
use api::problem::{InvalidPart, Problem};

/// The head of a column. Figures stand at the right.
pub enum Heading {
    Text(&'static str),
    Figure(&'static str),
}

/// A table. A small screen shows each row as a card, so each cell names its column.
pub fn table(columns: &[Heading], rows: impl IntoIterator<Item = Markup>) -> Markup {
    let names = columns.iter().map(|column| match column {
        Heading::Text(name) | Heading::Figure(name) => *name,
    });
    let names: Vec<&str> = names.collect();
    let label = format!("Table of {}", names.join(", "));
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table {
                thead {
                    tr {
                        @for column in columns {
                            @match column {
                                Heading::Text(name) => th scope="col" { (name) },
                                Heading::Figure(name) => th.figure scope="col" { (name) },
                            }
                        }
                    }
                }
                tbody {
                    @for row in rows { (row) }
                }
            }
        }
    }
}

pub fn cell(column: &str, content: impl Render) -> Markup {
    html! { td data-label=(column) { span { (content) } } }
}

pub fn figure(column: &str, content: impl Render) -> Markup {
    html! { td.figure data-label=(column) { span { (content) } } }
}

/// What stands where a list is empty: the next step is part of it.
pub fn empty(says: impl Render) -> Markup {
    html! { p.empty { (says) } }
}

/// A state, with a mark, a word and a colour.
pub fn state(word: &str) -> Markup {
    let (mark, class) = match word {
        "granted" | "grant" | "confirmed" | "confirmation" => ("●", "granted"),
        "denied" | "refused" | "blocked" => ("✕", "denied"),
        "held" | "hold" => ("◐", "held"),
        "adjustment" => ("±", "changed"),
        "calendar" => ("▦", "changed"),
        "top_up" => ("✚", "changed"),
        "reset" => ("↺", "changed"),
        _ => ("↩", "returned"),
    };
    html! { span class={ "state " (class) } { span aria-hidden="true" { (mark) } " " (word.replace('_', " ")) } }
}

/// The kind of an entry.
pub fn kind(entry: &EntryBody) -> Markup {
    html! {
        (state(entry.told_kind()))
        @if let Some(levels) = in_percent(&entry.crossed) { " " span.muted { "reached " (levels) } }
    }
}

/// How much of a limit is used, as a bar and in words.
pub fn meter(usage: &LimitUsage) -> Markup {
    let most = usage.most_at_once().max(1);
    let width = u128::from(usage.used.min(most)) * 100 / u128::from(most);
    let is_full = usage.remaining == 0;
    html! {
        svg.meter viewBox="0 0 100 8" width="100" height="8" aria-hidden="true" preserveAspectRatio="none" {
            rect.ground x="0" y="0" width="100" height="8" {}
            rect class=(if is_full { "full" } else { "used" }) x="0" y="0" width=(width) height="8" {}
        }
        " " (words::usage(usage))
    }
}

/// A subject, with a link to its page. The text of an erased subject is gone.
pub fn subject(subject: Option<&str>) -> Markup {
    match subject {
        Some(subject) => {
            html! { a href=(path(&["console", "subjects", subject])) { bdi { (subject) } } }
        }
        None => html! { span.muted { "(erased)" } },
    }
}

pub fn policy(name: &str) -> Markup {
    html! { a href=(path(&["console", "policies", name])) { (name) } }
}

pub fn grant(id: impl ToString) -> Markup {
    let id = id.to_string();
    html! { a.id href=(path(&["console", "grants", &id])) { (id) } }
}

pub fn bundle(id: impl ToString) -> Markup {
    let id = id.to_string();
    html! { a.id href=(path(&["console", "bundles", &id])) { (id) } }
}

/// Who did something. A key of the ledger has a page.
pub fn maker(by: &str, name: Option<&str>) -> Markup {
    match name {
        Some(name) => {
            html! { a href=(path(&["console", "keys", by])) title=(by) { bdi { (name) } } }
        }
        None => html! { span.id { (by) } },
    }
}

/// A reason, which somebody wrote.
pub fn reason(text: Option<&str>) -> Markup {
    match text.filter(|text| !text.is_empty()) {
        Some(text) => html! { bdi.reason { (text) } },
        None => html! { span.muted { "no reason given" } },
    }
}

/// A link to the next page of a list.
pub fn next_page(visit: &Visit<'_>, cursor: Option<&str>) -> Markup {
    html! {
        @if let Some(cursor) = cursor {
            p.pager { a href=(here_with(visit, "cursor", cursor)) rel="next" { "Next page" } }
        }
    }
}

/// The address of this page with another parameter.
pub fn here_with(visit: &Visit<'_>, name: &str, value: &str) -> String {
    let others = visit.query.pairs().filter(|(known, _)| *known != name);
    let mut parameters: Vec<(&str, &str)> = others.collect();
    parameters.push((name, value));
    with(&visit.path, &parameters)
}

/// A button that leads to a page.
pub fn button_to(target: &str, says: &str) -> Markup {
    html! { a.button href=(target) { (says) } }
}

/// A form that acts: it proves where it comes from.
pub fn form(visit: &Visit<'_>, target: &str, content: Markup) -> Markup {
    html! {
        form method="post" action=(target) {
            input type="hidden" name="form" value=(visit.server.form_token(target));
            (content)
        }
    }
}

/// A field of a form with its label, what it means, and what is wrong with it.
pub struct Field<'f> {
    pub name: &'f str,
    pub label: &'f str,
    pub hint: &'f str,
    pub value: &'f str,
    pub fault: Option<&'f str>,
    pub required: bool,
}

impl<'f> Field<'f> {
    /// A field that keeps what the reader wrote.
    pub fn of(form: &'f FormFields, name: &'f str, label: &'f str) -> Self {
        Self {
            name,
            label,
            hint: "",
            value: form.get(name),
            fault: None,
            required: false,
        }
    }

    pub fn hint(self, hint: &'f str) -> Self {
        Self { hint, ..self }
    }

    pub fn value(self, value: &'f str) -> Self {
        Self { value, ..self }
    }

    pub fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    pub fn line(&self) -> Markup {
        self.typed("text")
    }

    pub fn typed(&self, kind: &str) -> Markup {
        self.around(html! {
            input type=(kind) id=(self.id()) name=(self.name) value=(self.value) required[self.required]
                aria-describedby=[self.described_by()] aria-invalid=[self.fault.map(|_| "true")];
        })
    }

    pub fn lines(&self) -> Markup {
        self.around(html! {
            textarea id=(self.id()) name=(self.name) rows="3" required[self.required]
                aria-describedby=[self.described_by()] aria-invalid=[self.fault.map(|_| "true")] { (self.value) }
        })
    }

    /// One of some values, each with its words.
    pub fn choice(&self, values: &[(&str, &str)]) -> Markup {
        self.around(html! {
            select id=(self.id()) name=(self.name) aria-describedby=[self.described_by()] {
                @for (value, says) in values {
                    option value=(value) selected[*value == self.value] { (says) }
                }
            }
        })
    }

    /// The name, without blanks: they divide lists of ids.
    fn id(&self) -> String {
        self.name.replace(' ', "-")
    }

    fn described_by(&self) -> Option<String> {
        let hint = (!self.hint.is_empty()).then(|| format!("{}-hint", self.id()));
        let fault = self.fault.map(|_| format!("{}-fault", self.id()));
        let both: Vec<String> = hint.into_iter().chain(fault).collect();
        (!both.is_empty()).then(|| both.join(" "))
    }

    fn around(&self, input: Markup) -> Markup {
        html! {
            div.field {
                label for=(self.id()) { (self.label) }
                @if !self.hint.is_empty() { p.hint id={ (self.id()) "-hint" } { (self.hint) } }
                (input)
                @if let Some(fault) = self.fault { p.fault id={ (self.id()) "-fault" } { (fault) } }
            }
        }
    }
}

/// The field that every change has.
pub fn reason_field(visit: &Visit<'_>) -> Markup {
    let field = Field::of(&visit.form, "reason", "Reason");
    field.hint("It stays in the record.").required().line()
}

/// The page of a form that `/v1` refused: what is wrong stands above it.
pub fn refused(page: Shown, problem: &Problem) -> Shown {
    faulty(page, &problem_text(problem), &problem.errors)
}

/// The page of a form in which something is wrong.
pub fn faulty(page: Shown, says: &str, faults: &[InvalidPart]) -> Shown {
    let body = html! {
        div.banner.bad role="alert" {
            p { (says) }
            @if faults.len() > 1 { ul { @for fault in faults { li { (fault.detail) } } } }
        }
        (page.body)
    };
    Shown {
        status: 422,
        body,
        ..page
    }
}

/// The filter of a list for one policy.
pub fn policy_filter(visit: &Visit<'_>, policies: &PolicyList) -> Markup {
    html! {
        div.field {
            label for="policy" { "Policy" }
            select id="policy" name="policy" {
                option value="" { "all" }
                @for of in &policies.items {
                    option value=(of.name) selected[of.name == visit.query.get("policy")] { (of.name) }
                }
            }
        }
    }
}

/// Names and values, such as the settings of a policy.
pub fn facts(facts: impl IntoIterator<Item = (&'static str, Markup)>) -> Markup {
    html! {
        dl {
            @for (name, value) in facts {
                dt { (name) }
                dd { (value) }
            }
        }
    }
}

/// When units of a limit return.
pub fn returns(usage: &LimitUsage, local: &Local) -> Markup {
    match usage.more_at.or(usage.resets_at) {
        Some(at) => html! { (local.show(at)) ", " (local.distance(at)) },
        None => html! { span.muted { "never" } },
    }
}

/// What stands where something could not be asked.
pub fn unknown(refusal: &PageFailure) -> Markup {
    empty(html! { "This is unknown now: " (refusal.to_string()) })
}
