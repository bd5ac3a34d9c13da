//! A policy as pages need it, in the version that is in force.

use crate::asking::{PageFailure, path, with};
use crate::local::Local;
use crate::visit::Visit;
use api::policies::{PolicyAnswer, PolicyList};

/// A policy with its newest versions.
pub struct Known {
    /// The version in force; the newest one if none is.
    pub in_force: PolicyAnswer,
    /// Newest first.
    pub versions: Vec<PolicyAnswer>,
    pub local: Local,
}

impl Known {
    /// Asks for a policy, archived or not.
    pub async fn ask(visit: &Visit<'_>, name: &str) -> Result<Self, PageFailure> {
        let target = with(
            &path(&["v1", "policies", name, "versions"]),
            &[("limit", "10")],
        );
        let versions: PolicyList = visit.asker.get(target).await?;
        let mut versions = versions.items;
        // Only the policy itself tells of its pause.
        let newest = path(&["v1", "policies", name]);
        if let Some(newest) = visit.asker.find::<PolicyAnswer>(newest).await?
            && let Some(first) = versions.first_mut()
            && first.version == newest.version
        {
            *first = newest;
        }
        let is_in_force = |version: &&PolicyAnswer| version.effective_at <= visit.now;
        let in_force = versions.iter().find(is_in_force).or(versions.last());
        let none = || PageFailure::NotFound(format!("There is no policy {name}."));
        let in_force = in_force.ok_or_else(none)?;
        let in_force: PolicyAnswer = copy(in_force)?;
        let local = visit.local(&in_force.time_zone).with_calendar_of(&in_force);
        Ok(Self {
            in_force,
            versions,
            local,
        })
    }

    /// The version that takes effect later.
    pub fn scheduled(&self) -> Option<&PolicyAnswer> {
        let newest = self.versions.first()?;
        (newest.version != self.in_force.version).then_some(newest)
    }
}

fn copy(version: &PolicyAnswer) -> Result<PolicyAnswer, PageFailure> {
    Ok(serde_json::from_value(serde_json::to_value(version)?)?)
}
