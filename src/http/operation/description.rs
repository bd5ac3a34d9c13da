//! The description of an operation, beside its handler: what the handler's signature does not say.

use utoipa::openapi::path;

use super::Operation;

/// The part of an answer from which another operation takes a policy.
pub const POLICY: Values = &[("policy", "$response.body#/name")];
/// The part from which another operation takes an id.
pub const ID: Values = &[("id", "$response.body#/id")];
/// The part from which another operation takes the id of a grant.
pub const GRANT: Values = &[("id", "$response.body#/grant/id")];
/// The part from which another operation takes the id of a bundle.
pub const BUNDLE: Values = &[("id", "$response.body#/bundle")];
/// The part from which another operation takes a top-up. Its account is that of the request.
pub const TOP_UP: Values = &[
    ("policy", "$request.path.policy"),
    ("subject", "$request.path.subject"),
    ("id", "$response.body#/id"),
];
/// The parts from which another operation takes the account of a grant.
pub const ACCOUNT: Values = &[
    ("policy", "$response.body#/grant/policy"),
    ("subject", "$response.body#/grant/subject"),
];
/// The parts from which another operation takes the policy and the subject of an exception.
pub const SUBJECT: Values = &[
    ("policy", "$response.body#/policy"),
    ("subject", "$response.body#/subject"),
];
/// The part from which another operation takes the policy of an exception.
pub const POLICY_OF_SUBJECT: Values = &[("policy", "$response.body#/policy")];

/// Each parameter of an operation, and the part of another answer that is its value (OpenAPI 3.1, "Runtime
/// Expressions").
pub type Values = &'static [(&'static str, &'static str)];

/// The description of an operation.
pub struct Description {
    pub id: &'static str,
    pub tag: &'static str,
    /// The lines of the comment. Its first paragraph is the summary.
    pub comment: &'static [&'static str],
    /// Adds the answers.
    pub answers: fn(&mut Operation) -> &mut Operation,
}

/// Makes the description of an operation from a comment, the id, the tag and the answers.
macro_rules! describe {
    ($(#[doc = $line:literal])+ $name:ident: $id:literal of $tag:literal, $answers:expr) => {
        pub const $name: crate::operation::Description = crate::operation::Description {
            id: $id,
            tag: $tag,
            comment: &[$($line),+],
            answers: $answers,
        };
    };
}
pub(crate) use describe;

impl Description {
    /// The operation, before its arguments and its answers are known.
    pub(super) fn begin(&self) -> path::Operation {
        let lines: Vec<&str> = self.comment.iter().map(|line| line.trim()).collect();
        let text = lines.join("\n");
        let (summary, prose) = text.split_once("\n\n").unwrap_or((&text, ""));
        path::Operation::builder()
            .tag(self.tag)
            .operation_id(Some(self.id))
            .summary(Some(summary))
            .description(Some(prose).filter(|prose| !prose.is_empty()))
            .build()
    }
}
