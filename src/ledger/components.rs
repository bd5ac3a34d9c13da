//! Drafts that are appended all or none.

use std::collections::HashSet;

use super::Draft;
use domain::identity::AccountId;

/// Whether some drafts are appended all or none.
pub fn has_components(drafts: &[&Draft]) -> bool {
    drafts.iter().any(|draft| draft.is_joined())
}

/// The drafts of each component.
pub fn components<'s, 'd>(drafts: &'s [&'d Draft]) -> impl Iterator<Item = &'s [&'d Draft]> {
    drafts.chunk_by(|one, other| one.component == other.component)
}

/// The drafts of the components whose accounts are all among these.
pub fn whole<'d>(drafts: &[&'d Draft], accounts: &HashSet<AccountId>) -> Vec<&'d Draft> {
    let is_in = |draft: &&Draft| accounts.contains(&draft.account);
    let whole = components(drafts).filter(|component| component.iter().all(is_in));
    whole.flatten().copied().collect()
}

/// Leaves out some drafts, and with each the others of its component. Returns whether some were left out and some
/// are left.
pub fn leave_out(drafts: &mut Vec<&Draft>, mut is_out: impl FnMut(&Draft) -> bool) -> bool {
    let out = drafts.iter().filter(|draft| is_out(draft));
    let out: HashSet<AccountId> = out.map(|draft| draft.component).collect();
    drafts.retain(|draft| !out.contains(&draft.component));
    !out.is_empty() && !drafts.is_empty()
}
