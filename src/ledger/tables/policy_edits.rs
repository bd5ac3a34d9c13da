//! Changes of policies, and the overrides that they orphan.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::overrides::{insert_version as insert_override, listed};
use super::policies::{
    PolicyTerms, Standing, insert_policy, insert_version, pause_of, scheduled, standing,
};
use super::versions::{Accepted, Change, Edited, next_revision};
use crate::query::Session;
use crate::{AdminTables, LedgerError};
use domain::identity::AccountId;
use domain::orphans::{OrphanedOverride, may_orphan};
use domain::overrides::Override;
use domain::policy::{Policy, PolicyName, Rule};

/// How many overrides are read at once.
const OVERRIDES_PAGE: u32 = 1000;

/// A change of a policy that was made, or was already made.
#[derive(Debug)]
pub struct EditedPolicy {
    pub edited: Edited<Standing>,
    /// The versions that it made.
    pub made: Vec<Policy>,
    /// The overrides that the change orphans.
    pub orphans: Vec<OrphanedOverride>,
    /// The new versions of the orphans that it ended.
    pub dropped: Vec<Override>,
}

impl AdminTables {
    /// Changes a policy as `decide` says. `decide` gets the policy, the overrides that `draft` would
    /// orphan, and the instant, while no other change is possible. The outer error is the ledger's,
    /// the inner one is `decide`'s. On both, and in a dry run, nothing is changed.
    ///
    /// The instant is read when the change has its turn, and not before it waits. Entries that were
    /// decided during the wait are before the change, and stay on their local days.
    pub async fn edit_policy<E: Send>(
        &self,
        name: &PolicyName,
        changed_by: &str,
        clock: impl Fn() -> DateTime<Utc> + Send + Sync,
        dry_run: bool,
        draft: Option<&Rule>,
        decide: impl Fn(
            Option<&Standing>,
            &[OrphanedOverride],
            DateTime<Utc>,
        ) -> Result<Change<PolicyTerms>, E>
        + Send
        + Sync,
    ) -> Result<Result<EditedPolicy, E>, LedgerError> {
        let mut orphans = Vec::new();
        let mut dropped = Vec::new();
        let mut made = Vec::new();
        let edited = self.change(
            dry_run,
            async |session: &mut Session<'_>| {
                let changed_at = clock();
                let before = standing(session, name, changed_at).await?;
                let orphaned = match (&before, draft) {
                    (Some(before), Some(draft)) => {
                        find_orphans(session, before, draft, changed_at).await?
                    }
                    _ => Vec::new(),
                };
                Ok((before, (orphaned, changed_at)))
            },
            |before, (orphaned, changed_at)| decide(before, orphaned, *changed_at),
            async |session: &mut Session<'_>, before, (orphaned, changed_at), accepted| {
                let Accepted {
                    revision,
                    terms,
                    reason,
                } = accepted;
                let last = before.map(|before| &before.newest);
                let id = match last {
                    Some(last) => last.id,
                    None => insert_policy(session, name).await?,
                };
                let newest = Policy {
                    id,
                    name: name.clone(),
                    version: last.map_or(1, |last| last.version + 1),
                    rule: terms.rule,
                    archived: terms.archived,
                    effective_at: terms.effective_at,
                    changed_at,
                    changed_by: changed_by.to_owned(),
                    reason,
                    blocked: None,
                };
                let scheduled = match before {
                    Some(before) if terms.schedules_again => scheduled(session, before).await?,
                    Some(_) | None => Vec::new(),
                };
                insert_version(session, &newest, revision).await?;
                made = vec![newest.clone()];
                if terms.drops_orphans {
                    dropped = drop_orphans(session, &orphaned, &newest).await?;
                }
                orphans = orphaned;
                let in_force = match before {
                    Some(before) if !newest.has_effect(changed_at) => before.in_force.clone(),
                    Some(_) | None => newest.clone(),
                };
                let paused = newest.rule.paused;
                let mut newest = newest;
                for again in scheduled {
                    newest = Policy {
                        version: newest.version + 1,
                        rule: Rule {
                            paused,
                            ..again.rule
                        },
                        effective_at: again.effective_at,
                        ..newest
                    };
                    let revision = next_revision(session).await?;
                    insert_version(session, &newest, revision).await?;
                    made.push(newest.clone());
                }
                let pause = pause_of(session, &newest).await?;
                Ok(Standing {
                    newest,
                    in_force,
                    pause,
                })
            },
        );
        let edited = edited.await?;
        Ok(edited.map(|edited| EditedPolicy {
            edited,
            made,
            orphans,
            dropped,
        }))
    }

    /// The overrides that a draft of a policy would orphan at an instant.
    pub async fn orphans_of(
        &self,
        name: &PolicyName,
        draft: &Rule,
        now: DateTime<Utc>,
    ) -> Result<Vec<OrphanedOverride>, LedgerError> {
        let mut held = self.ledger.reads().await?;
        let mut session = held.lend();
        match standing(&mut session, name, now).await? {
            Some(before) => find_orphans(&mut session, &before, draft, now).await,
            None => Ok(Vec::new()),
        }
    }
}

/// The overrides that a draft orphans. Only a change of the limits' kinds can.
async fn find_orphans(
    session: &mut Session<'_>,
    before: &Standing,
    draft: &Rule,
    now: DateTime<Utc>,
) -> Result<Vec<OrphanedOverride>, LedgerError> {
    let rules = [&before.in_force.rule, &before.newest.rule];
    let mut orphans = Vec::new();
    if !rules.iter().any(|rule| may_orphan(draft, rule)) {
        return Ok(orphans);
    }
    let mut after = AccountId(Uuid::nil());
    loop {
        let page: Vec<Override> = listed(session, before.newest.id, after, OVERRIDES_PAGE).await?;
        let is_last = page.len() < OVERRIDES_PAGE as usize;
        after = page.last().map_or(after, |last| last.account);
        let orphaned = page.into_iter();
        orphans.extend(orphaned.filter_map(|it| OrphanedOverride::of(it, draft, &rules, now)));
        if is_last {
            return Ok(orphans);
        }
    }
}

/// Ends orphaned overrides, as a version of their policy says. Returns their new versions.
async fn drop_orphans(
    session: &mut Session<'_>,
    orphans: &[OrphanedOverride],
    policy: &Policy,
) -> Result<Vec<Override>, LedgerError> {
    let mut dropped = Vec::new();
    for orphan in orphans {
        let Some(terms) = orphan.dropped(policy.effective_at, policy.changed_at) else {
            continue;
        };
        let revision = next_revision(session).await?;
        let reason = policy.reason.clone();
        let version = Override {
            revision: revision.cast_unsigned(),
            terms,
            changed_at: policy.changed_at,
            changed_by: policy.changed_by.clone(),
            reason: reason.or_else(|| Some(format!("version {} of the policy", policy.version))),
            ..orphan.found.clone()
        };
        dropped.push(insert_override(session, version).await?);
    }
    Ok(dropped)
}
