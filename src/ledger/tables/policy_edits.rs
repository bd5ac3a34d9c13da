//! Changes of policies, and the overrides and tiers of subjects that they orphan.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::overrides::{StoredTerms, insert_version as insert_of_subject, listed};
use super::policies::{
    PolicyTerms, Standing, insert_policy, insert_version, pause_of, scheduled, standing,
};
use super::versions::{Accepted, Change, Edited, next_revision};
use crate::boxed;
use crate::query::Session;
use crate::{AdminTables, LedgerError};
use domain::identity::AccountId;
use domain::orphans::{
    OrphanedOverride, Orphans, dropped_tier, is_orphaned, may_orphan, may_orphan_tiers,
};
use domain::overrides::{OfSubject, Override, SubjectTier};
use domain::policy::{Policy, PolicyId, PolicyName, Rule};
use domain::shared::carried_on;

/// How many overrides or tiers are read at once.
const LISTED_AT_ONCE: u32 = 1000;

/// A change of a policy that was made, or was already made.
#[derive(Debug)]
pub struct EditedPolicy {
    pub edited: Edited<Standing>,
    /// The versions that it made.
    pub made: Vec<Policy>,
    /// What the change orphans.
    pub orphans: Orphans,
    /// The new versions of the orphans that it ended.
    pub dropped: DroppedOrphans,
}

/// The new versions of orphans that a change ended.
#[derive(Debug, Default)]
pub struct DroppedOrphans {
    pub overrides: Vec<Override>,
    pub tiers: Vec<SubjectTier>,
}

impl AdminTables {
    /// Changes a policy as `decide` says. `decide` gets the policy, what `draft` would orphan, and
    /// the instant, while no other change is possible. The outer error is the ledger's,
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
        decide: impl Fn(Option<&Standing>, &Orphans, DateTime<Utc>) -> Result<Change<PolicyTerms>, E>
        + Send
        + Sync,
    ) -> Result<Result<EditedPolicy, E>, LedgerError> {
        let mut orphans = Orphans::default();
        let mut dropped = DroppedOrphans::default();
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
                    _ => Orphans::default(),
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
                let version = last.map_or(1, |last| last.version + 1);
                let later = match before {
                    Some(before) => scheduled(session, before).await?,
                    None => Vec::new(),
                };
                // The version that will be in force when the new one takes effect.
                let is_earlier = |it: &&Policy| it.effective_at <= terms.effective_at;
                let preceding = before.map(|before| {
                    let mut earlier = later.iter().filter(is_earlier);
                    earlier.next_back().unwrap_or(&before.in_force)
                });
                let newest = Policy {
                    id,
                    name: name.clone(),
                    version,
                    rule: Rule {
                        shared: carried_on(&terms.rule, preceding, version),
                        ..terms.rule
                    },
                    archived: terms.archived,
                    effective_at: terms.effective_at,
                    changed_at,
                    changed_by: changed_by.to_owned(),
                    reason,
                    blocked: None,
                };
                insert_version(session, &newest, revision).await?;
                let orphaned = orphaned.lasting(newest.effective_at);
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
                let again = later.into_iter().filter(|_| terms.schedules_again);
                for again in again {
                    let version = newest.version + 1;
                    newest = Policy {
                        version,
                        rule: Rule {
                            paused,
                            shared: carried_on(&again.rule, Some(&newest), version),
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

    /// What a draft of a policy would orphan at an instant.
    #[boxed]
    pub async fn orphans_of(
        &self,
        name: &PolicyName,
        draft: &Rule,
        now: DateTime<Utc>,
    ) -> Result<Orphans, LedgerError> {
        let mut held = self.ledger.reads().await?;
        let mut session = held.lend();
        match standing(&mut session, name, now).await? {
            Some(before) => find_orphans(&mut session, &before, draft, now).await,
            None => Ok(Orphans::default()),
        }
    }
}

/// What a draft orphans. Only a change of the limits' kinds can orphan overrides, and only a tier less can
/// orphan tiers.
async fn find_orphans(
    session: &mut Session<'_>,
    before: &Standing,
    draft: &Rule,
    now: DateTime<Utc>,
) -> Result<Orphans, LedgerError> {
    let rules = [&before.in_force.rule, &before.newest.rule];
    let policy = before.newest.id;
    let mut orphans = Orphans::default();
    if rules.iter().any(|rule| may_orphan(draft, rule)) {
        let orphaned = |found| OrphanedOverride::of(found, draft, &rules, now);
        orphans.overrides = sift(session, policy, orphaned).await?;
    }
    if rules.iter().any(|rule| may_orphan_tiers(draft, rule)) {
        let orphaned = |found| is_orphaned(&found, draft, &rules, now).then_some(found);
        orphans.tiers = sift(session, policy, orphaned).await?;
    }
    Ok(orphans)
}

/// Reads all terms of a kind that a policy has, page after page, and keeps some.
async fn sift<T: StoredTerms, K>(
    session: &mut Session<'_>,
    policy: PolicyId,
    keep: impl Fn(OfSubject<T>) -> Option<K>,
) -> Result<Vec<K>, LedgerError> {
    let mut kept = Vec::new();
    let mut after = AccountId(Uuid::nil());
    loop {
        let page: Vec<OfSubject<T>> = listed(session, policy, after, LISTED_AT_ONCE).await?;
        let is_last = page.len() < LISTED_AT_ONCE as usize;
        after = page.last().map_or(after, |last| last.account);
        kept.extend(page.into_iter().filter_map(&keep));
        if is_last {
            return Ok(kept);
        }
    }
}

/// Ends orphans, as a version of their policy says. Returns their new versions.
async fn drop_orphans(
    session: &mut Session<'_>,
    orphans: &Orphans,
    policy: &Policy,
) -> Result<DroppedOrphans, LedgerError> {
    let mut dropped = DroppedOrphans::default();
    for orphan in &orphans.overrides {
        if let Some(terms) = orphan.dropped(policy.effective_at, policy.changed_at) {
            let ended = end(session, &orphan.found, terms, policy).await?;
            dropped.overrides.push(ended);
        }
    }
    for tier in &orphans.tiers {
        let terms = dropped_tier(tier, policy.effective_at, policy.changed_at);
        dropped.tiers.push(end(session, tier, terms, policy).await?);
    }
    Ok(dropped)
}

/// Gives an orphan other terms, for the reason of the policy's change.
async fn end<T: StoredTerms>(
    session: &mut Session<'_>,
    orphan: &OfSubject<T>,
    terms: Option<T>,
    policy: &Policy,
) -> Result<OfSubject<T>, LedgerError> {
    let revision = next_revision(session).await?;
    let reason = policy.reason.clone();
    let version = OfSubject {
        revision: revision.cast_unsigned(),
        terms,
        changed_at: policy.changed_at,
        changed_by: policy.changed_by.clone(),
        reason: reason.or_else(|| Some(format!("version {} of the policy", policy.version))),
        ..orphan.clone()
    };
    insert_of_subject(session, version).await
}
