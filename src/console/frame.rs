//! The frame around every page: menu, search, title and foot.

use maud::{DOCTYPE, Markup, html};

use super::asking::Asking;
use super::assets::{SCRIPT, STYLE};
use super::parts::here_with;
use super::visit::{Settings, Shown, Visit};

/// The entries of the menu.
const MENU: [(&str, &str); 5] = [
    ("/console", "Today"),
    ("/console/policies", "Policies"),
    ("/console/subjects", "Subjects"),
    ("/console/entries", "Entries"),
    ("/console/changes", "Changes"),
];
/// Those behind "More".
const MORE: [(&str, &str); 4] = [
    ("/console/keys", "Keys"),
    ("/console/reconciliations", "Reconciliations"),
    ("/console/seals", "Seals"),
    ("/console/exports", "Exports"),
];
/// The number of colours by which environments differ.
const HUES: u32 = 6;

/// A page for a reader who is signed in.
pub fn page(visit: &Visit<'_>, shown: &Shown) -> String {
    let content = html! {
        header.top {
            (brand(visit.settings))
            form.search action="/console/find" role="search" {
                label.hidden for="q" { "Find a subject, a policy or an id" }
                input id="q" name="q" type="search" placeholder="Find subject, policy, id" value=(visit.query.get("q"));
            }
            (menu(visit))
            (reader(visit))
        }
        main id="content" {
            div.title {
                h1 { (shown.title) }
                div.acts { (shown.acts) }
            }
            p.lead { (shown.lead) }
            (shown.body)
            (same_as(visit, shown))
        }
        footer { (foot(visit, shown)) }
    };
    document(
        &shown.title,
        visit.settings,
        shown.reloads.then_some("10"),
        content,
    )
}

/// A page without a reader, such as the sign-in.
pub fn bare(settings: &Settings, title: &str, leads_to: Option<&str>, content: Markup) -> String {
    let content = html! {
        header.top { (brand(settings)) }
        main.narrow id="content" {
            h1 { (title) }
            (content)
        }
    };
    let refresh = leads_to.map(|to| format!("0; url={to}"));
    document(title, settings, refresh.as_deref(), content)
}

fn document(title: &str, settings: &Settings, refresh: Option<&str>, content: Markup) -> String {
    let name = settings.environment.as_deref();
    let hue = name.map(|name| format!("hue-{}", hue(name)));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · " (name.unwrap_or("perdiem")) }
                @if let Some(refresh) = refresh { meta http-equiv="refresh" content=(refresh); }
                link rel="stylesheet" href=(STYLE.target());
                link rel="icon" href="data:,";
                script src=(SCRIPT.target()) defer {}
            }
            body class=[hue] {
                a.skip href="#content" { "Skip to content" }
                (content)
            }
        }
    };
    page.into_string()
}

fn brand(settings: &Settings) -> Markup {
    html! {
        a.brand href="/console" {
            "perdiem"
            @if let Some(name) = &settings.environment { span.environment { " · " (name) } }
        }
    }
}

/// The colour of an environment: always the same for a name.
fn hue(name: &str) -> u32 {
    let sum = |sum: u32, byte: u8| sum.wrapping_mul(31).wrapping_add(u32::from(byte));
    name.bytes().fold(7, sum) % HUES
}

fn menu(visit: &Visit<'_>) -> Markup {
    let item = |(target, name): &(&str, &str)| {
        let is_below = visit.path.starts_with(&format!("{target}/"));
        let is_here = visit.path == *target || (is_below && *target != "/console");
        html! { li { a href=(target) aria-current=[is_here.then_some("page")] { (name) } } }
    };
    html! {
        nav aria-label="Pages" {
            details.menu {
                summary { "Menu" }
                ul {
                    @for entry in MENU.iter().chain(&MORE) { (item(entry)) }
                }
            }
            ul.wide {
                @for entry in &MENU { (item(entry)) }
                li {
                    details {
                        summary { "More" }
                        ul {
                            @for entry in &MORE { (item(entry)) }
                        }
                    }
                }
            }
        }
    }
}

fn reader(visit: &Visit<'_>) -> Markup {
    html! {
        div.reader {
            span { bdi { (visit.reader.name) } " (" (visit.reader.role) ")" }
            form method="post" action="/console/sign-out" {
                input type="hidden" name="form" value=(visit.server.form_token("/console/sign-out"));
                button.plain { "Sign out" }
            }
        }
    }
}

/// The commands with which a reader gets the same from a shell.
fn same_as(visit: &Visit<'_>, shown: &Shown) -> Markup {
    let reads = visit.asker.reads();
    html! {
        details.same {
            summary { "The same by command, and by API" }
            @if let Some(command) = &shown.command { pre { code { (command) } } }
            @for target in &reads {
                pre { code { (Asking::get(target.clone()).as_curl()) } }
            }
        }
    }
}

fn foot(visit: &Visit<'_>, shown: &Shown) -> Markup {
    let took = visit.server.now() - visit.now;
    html! {
        "As of " (shown.local.show(visit.now)) " · times in " (shown.local.zone())
        @if visit.wants_utc() {
            " (" a href=(here_with(visit, "zone", "")) { "show local times" } ")"
        } @else if shown.local.zone() != "UTC" {
            " (" a href=(here_with(visit, "zone", "utc")) { "show UTC" } ")"
        }
        " · rendered in " (took.num_milliseconds().max(0)) " ms · request "
        code.id { (visit.server.request_id()) }
    }
}
