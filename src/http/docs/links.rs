//! Links of the specification: which part of an answer names what another operation takes.

use utoipa::Modify;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, RefOr, link::Link};

use super::completion::operations;

/// An operation, its answer's status, the operation that it leads to, and where each of that
/// one's parameters comes from (OpenAPI 3.1, "Runtime Expressions").
type LinkRow = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const POLICY: &[(&str, &str)] = &[("policy", "$response.body#/name")];
const ID: &[(&str, &str)] = &[("id", "$response.body#/id")];
const GRANT: &[(&str, &str)] = &[("id", "$response.body#/grant/id")];
const OVERRIDE: &[(&str, &str)] = &[
    ("policy", "$response.body#/policy"),
    ("subject", "$response.body#/subject"),
];
const ACCOUNT: &[(&str, &str)] = &[
    ("policy", "$response.body#/grant/policy"),
    ("subject", "$response.body#/grant/subject"),
];

const LINKS: &[LinkRow] = &[
    ("put_policy", "201", "get_policy", POLICY),
    ("put_policy", "201", "archive_policy", POLICY),
    ("put_policy", "201", "list_policy_versions", POLICY),
    ("put_policy", "201", "list_windows", POLICY),
    ("put_policy", "201", "backtest_policy", POLICY),
    ("put_policy", "201", "list_overrides", POLICY),
    ("put_policy", "201", "claim", POLICY),
    ("put_policy", "201", "list_blocks", POLICY),
    ("put_policy", "201", "pause_policy", POLICY),
    ("pause_policy", "200", "resume_policy", POLICY),
    ("put_block", "201", "get_block", OVERRIDE),
    ("put_block", "201", "remove_block", OVERRIDE),
    ("put_block", "201", "list_blocks", &[OVERRIDE[0]]),
    ("put_block", "201", "get_usage", OVERRIDE),
    ("put_override", "201", "get_override", OVERRIDE),
    ("put_override", "201", "delete_override", OVERRIDE),
    ("put_override", "201", "list_overrides", &[OVERRIDE[0]]),
    ("put_override", "201", "get_usage", OVERRIDE),
    ("claim", "201", "get_grant", GRANT),
    ("claim", "201", "explain_grant", GRANT),
    ("claim", "201", "reverse_grant", GRANT),
    ("claim", "201", "confirm_grant", GRANT),
    ("claim", "201", "get_usage", ACCOUNT),
    ("claim", "201", "list_entries", ACCOUNT),
    ("claim", "201", "adjust", ACCOUNT),
    ("create_key", "201", "get_key", ID),
    ("create_key", "201", "end_key", ID),
    ("create_key", "201", "revoke_key", ID),
    ("reconcile", "201", "get_reconciliation", ID),
];

/// Writes the links into the specification.
pub struct Links;

impl Modify for Links {
    fn modify(&self, openapi: &mut OpenApi) {
        let items = openapi.paths.paths.values_mut();
        let mut operations: Vec<&mut Operation> =
            items.flat_map(operations).map(|(_, it)| it).collect();
        for (source, status, target, parameters) in LINKS {
            let response = operations
                .iter_mut()
                .find(|operation| operation.operation_id.as_deref() == Some(*source))
                .and_then(|operation| operation.responses.responses.get_mut(*status));
            let Some(RefOr::T(response)) = response else {
                panic!("{source} has no answer {status} to lead to {target}");
            };
            let link = Link::builder().operation_id(*target);
            let link = parameters
                .iter()
                .fold(link, |link, (name, from)| link.parameter(*name, *from));
            response
                .links
                .insert((*target).to_owned(), link.build().into());
        }
    }
}
