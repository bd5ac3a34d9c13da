//! The kinds of problems, as rows of the specification and as sections of the pages.

use std::sync::LazyLock;

use super::document::Document;
use super::template::Html;
use crate::answer::problem::{KINDS, ProblemKind};

/// The rows of the specification's table.
pub fn rows() -> String {
    let row = |kind: &ProblemKind| {
        let ProblemKind { name, when, .. } = kind;
        format!("| {} | `{name}` | {when} |\n", kind.status.as_u16())
    };
    KINDS.iter().map(row).collect()
}

pub static PAGE: LazyLock<Document> = LazyLock::new(|| Document::new(page()));

fn page() -> String {
    let parts = [("problems", sections(|_| true))];
    let page = Html::fill(include_str!("problems.html"), &parts);
    page.into_string()
}

/// The sections that explain some kinds.
pub fn sections(is_wanted: impl Fn(&ProblemKind) -> bool) -> Html {
    let wanted = KINDS.iter().filter(|kind| is_wanted(kind));
    wanted.filter_map(section).collect()
}

fn section(kind: &ProblemKind) -> Option<Html> {
    let of_name = KINDS.iter().filter(|other| other.name == kind.name);
    let statuses: Vec<String> = of_name
        .map(|kind| kind.status.as_u16().to_string())
        .collect();
    let [means, remedy, retry] = kind.texts?.map(Html::prose);
    let parts = [
        ("name", Html::text(kind.name)),
        ("title", Html::text(kind.title)),
        ("statuses", Html::text(&statuses.join(" or "))),
        ("means", means),
        ("do", remedy),
        ("retry", retry),
    ];
    Some(Html::fill(include_str!("problem.html"), &parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_section() {
        let page = page();
        for ProblemKind { name, title, .. } in KINDS {
            let head = format!("<section id=\"{name}\">\n<h3>{title}</h3>");
            assert_eq!(page.matches(&head).count(), 1, "{name}");
        }
    }
}
