//! The table of rights, for people who review a change of them.

use std::fmt::Write;

use crate::operation::Reach;
use crate::request::PlacedOperation;
use crate::routes;

/// The text of docs/rights.md.
pub fn rights() -> String {
    let mut text = include_str!("rights.md").to_owned();
    let mut placed = routes().operations();
    placed.sort_by_key(|it| (it.pattern, it.method.to_string()));
    for placed in placed {
        let PlacedOperation {
            pattern,
            method,
            bounded,
            operation,
        } = placed;
        let roles = match operation.roles {
            Some(roles) => roles.iter().map(ToString::to_string).collect(),
            None => vec!["no key".to_owned()],
        };
        let confined = match operation.reach {
            Reach::Everything => "taken",
            Reach::InPath if pattern.contains("{policy}") => "path",
            Reach::InPath => "refused",
            Reach::InQuery => "query",
            Reach::ByHandler => "handler",
        };
        let is_read = method.is_safe() && operation.roles.is_some();
        let reads = match (is_read, operation.is_about_subject) {
            (true, true) => "recorded",
            (true, false) => "about nobody",
            (false, _) => "",
        };
        let operation = format!("`{method} {pattern}`");
        let roles = roles.join(", ");
        let bounds = format!("{bounded:?}");
        writeln!(
            text,
            "| {operation:65} | {roles:28} | {confined:13} | {reads:12} | {bounds:6} |"
        )
        .expect("a text takes all lines");
    }
    text
}
