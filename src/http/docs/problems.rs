//! What the kinds of problems look like in the specification and in the page that explains them.

use std::sync::LazyLock;

use actix_web::web::Bytes;

use crate::http::answer::problem::{KINDS, ProblemKind};

/// The rows of the specification's table.
pub fn rows() -> String {
    let row = |kind: &ProblemKind| {
        let ProblemKind { name, when, .. } = kind;
        format!("| {} | `{name}` | {when} |\n", kind.status.as_u16())
    };
    KINDS.iter().map(row).collect()
}

pub static PAGE: LazyLock<Bytes> = LazyLock::new(|| {
    let sections: String = KINDS.iter().filter_map(section).collect();
    include_str!("problems.html")
        .replace("{sections}", &sections)
        .into()
});

fn section(kind: &ProblemKind) -> Option<String> {
    let of_name = KINDS.iter().filter(|other| other.name == kind.name);
    let statuses: Vec<String> = of_name
        .map(|kind| kind.status.as_u16().to_string())
        .collect();
    let [means, remedy, retry] = kind.texts?.map(html);
    let (name, title, statuses) = (html(kind.name), html(kind.title), statuses.join(" or "));
    Some(format!(
        "<section id=\"{name}\">\n<h2>{title}</h2>\n\
         <p><code>{name}</code>, status {statuses}</p>\n<dl>\n\
         <dt>Means</dt><dd>{means}</dd>\n<dt>Do</dt><dd>{remedy}</dd>\n\
         <dt>Retry</dt><dd>{retry}</dd>\n</dl>\n</section>\n\n"
    ))
}

/// A text as HTML: escaped, and `code` in its element.
fn html(text: &str) -> String {
    let escaped = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let parts = escaped.split('`').enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let text = html("Send `Bearer <key>` & wait");
        assert_eq!(text, "Send <code>Bearer &lt;key&gt;</code> &amp; wait");
    }

    #[test]
    fn every_kind_has_one_section() {
        let page = str::from_utf8(&PAGE).unwrap();
        for ProblemKind { name, title, .. } in KINDS {
            let head = format!("<section id=\"{name}\">\n<h2>{title}</h2>");
            assert_eq!(page.matches(&head).count(), 1, "{name}");
        }
    }
}
