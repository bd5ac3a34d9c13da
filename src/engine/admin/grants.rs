//! Lists and exports of grants.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::domain::claim::{IdempotencyKey, Subject};
use crate::domain::grant::{Grant, GrantState};
use crate::domain::identity::EntryId;
use crate::domain::policy::{Policy, PolicyName};
use crate::engine::cursor::{self, cut_page};
use crate::engine::{Engine, Failure, ListFailure};
use crate::ledger::{GrantFilter, GrantScope, LedgerError, ProvisionalScope};

/// How many grants an export reads at a time.
const EXPORT_PAGE: u32 = 1000;
/// How many of those pages wait for a slow reader …
const EXPORT_PAGES_AHEAD: usize = 2;
/// … and for how long, before the export breaks off: it holds a snapshot of the ledger.
const EXPORT_PAGE_TIME: Duration = Duration::from_secs(60);

/// Which grants to list. Filters combine.
#[derive(Debug, Clone, Default)]
pub struct GrantQuery {
    /// Those of a policy, archived or not.
    pub policy: Option<PolicyName>,
    /// Those of a subject.
    pub subject: Option<Subject>,
    /// Those granted at this instant or later.
    pub from: Option<DateTime<Utc>>,
    /// Those granted before this instant.
    pub to: Option<DateTime<Utc>>,
    /// Those in a state.
    pub state: Option<GrantState>,
    /// The one that bears a key.
    pub key: Option<IdempotencyKey>,
    /// Those that Redis alone decided, all of them or those that went over.
    pub provisional: Option<ProvisionalScope>,
    /// Those that an observing policy would have denied.
    pub would_deny: bool,
}

/// A page of grants, newest first.
#[derive(Debug)]
pub struct GrantPage {
    /// The grants.
    pub grants: Vec<Grant>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

impl Engine {
    /// One grant.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn grant(self: &Arc<Self>, id: Uuid) -> Result<Option<Grant>, Failure> {
        let deadline = Instant::now() + self.claim_deadline;
        let engine = self.clone();
        let work = async move { engine.find_grant(EntryId(id), deadline).await };
        self.detached(work).await?
    }

    /// A page of at most `limit` grants. A cursor stays right while new grants come in: they
    /// stand before it.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn grants(
        self: &Arc<Self>,
        query: GrantQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<GrantPage, ListFailure> {
        let list = query.describe();
        let identity = self.ledger.identity();
        let mut filter = self.filter(&query).await?;
        if let Some(cursor) = cursor {
            let position: [u8; 16] = cursor::decode(identity, &list, cursor)?;
            filter.to = filter.to.min(EntryId(Uuid::from_bytes(position)));
        }
        let engine = self.clone();
        let work = async move { engine.ledger.grants(&filter, limit + 1).await };
        let mut grants = self.detached(work).await?.map_err(Failure::from)?;
        let next_cursor = cut_page(&mut grants, limit)
            .map(|last| cursor::encode(identity, &list, last.entry.id.0.as_bytes()));
        grants.retain(|grant| query.matches(grant));
        Ok(GrantPage {
            grants,
            next_cursor,
        })
    }

    /// Every grant that the query means, newest first, page by page, as they stood at one
    /// instant. The pages wait for whoever reads them, so that memory does not grow with
    /// their number; an export ends when nobody does.
    ///
    /// # Errors
    /// [`ListFailure`]; also in the stream, which then ends.
    pub async fn export(
        self: &Arc<Self>,
        caller: &Arc<str>,
        query: GrantQuery,
    ) -> Result<mpsc::Receiver<Result<Vec<Grant>, LedgerError>>, ListFailure> {
        let filter = self.filter(&query).await?;
        let place = self.snapshots.try_take(caller);
        let place = place.ok_or(ListFailure::Overloaded)?;
        let engine = self.clone();
        // The first page comes before the answer: an export that cannot begin is told so.
        let begin = async move {
            let mut snapshot = engine.ledger.snapshot().await?;
            let first = snapshot.grants(&filter, EXPORT_PAGE).await?;
            Ok::<_, LedgerError>((snapshot, filter, first))
        };
        let begun = self.detached(begin).await?;
        let (mut snapshot, mut filter, first) = begun.map_err(Failure::from)?;
        let (pages, received) = mpsc::channel(EXPORT_PAGES_AHEAD);
        self.runtime.spawn(async move {
            let _place = place;
            let mut page = Ok(first);
            loop {
                let last = page.as_ref().ok().and_then(|page: &Vec<Grant>| page.last());
                let next = last.map(|grant| grant.entry.id);
                let matching = page.map(|mut grants| {
                    grants.retain(|grant| query.matches(grant));
                    grants
                });
                match timeout(EXPORT_PAGE_TIME, pages.send(matching)).await {
                    Ok(Ok(())) => {}
                    // Nobody reads any more, or too slowly.
                    Ok(Err(_)) | Err(_) => return,
                }
                let Some(next) = next else { return };
                filter.to = next;
                page = snapshot.grants(&filter, EXPORT_PAGE).await;
            }
        });
        Ok(received)
    }

    /// The policy of a list, archived or not.
    pub(in crate::engine) async fn listed_policy(
        &self,
        name: &PolicyName,
    ) -> Result<Arc<Policy>, ListFailure> {
        let policy = self.known_policy(name, Instant::now()).await?;
        policy.ok_or_else(|| ListFailure::UnknownPolicy(name.clone()))
    }

    async fn filter(&self, query: &GrantQuery) -> Result<GrantFilter, ListFailure> {
        let policies = match &query.policy {
            Some(name) => vec![self.listed_policy(name).await?],
            None if query.key.is_none() && query.subject.is_none() => Vec::new(),
            None => {
                // Of all policies: also of one that another instance made a moment ago.
                self.learn_unknown(Instant::now()).await?;
                self.policies.terms.all(self.clock.now())
            }
        };
        let identity = self.ledger.identity();
        let names = || policies.iter().map(|policy: &Arc<Policy>| &policy.name);
        let scope = match (&query.key, &query.subject) {
            (Some(key), _) => {
                GrantScope::Keys(names().map(|name| identity.key(name, key)).collect())
            }
            (None, Some(subject)) => GrantScope::Accounts(
                names()
                    .map(|name| identity.account(name, subject))
                    .collect(),
            ),
            (None, None) => match (&query.policy, policies.first()) {
                (Some(_), Some(policy)) => GrantScope::Policy(policy.id),
                _ => GrantScope::All,
            },
        };
        Ok(GrantFilter {
            scope,
            from: query.from.map_or(EntryId(Uuid::nil()), first_id_from),
            to: query.to.map_or(EntryId(Uuid::max()), first_id_from),
            state: query.state,
            now: self.clock.now(),
            provisional: query.provisional,
            would_deny: query.would_deny,
        })
    }
}

impl GrantQuery {
    /// What tells this list from others, for its cursors.
    fn describe(&self) -> String {
        format!(
            "grants {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            self.policy,
            self.subject.as_ref().map(Subject::as_str),
            self.from,
            self.to,
            self.state,
            self.key.as_ref().map(IdempotencyKey::as_str),
            self.provisional,
            self.would_deny,
        )
    }

    /// What the ledger's choice leaves to be checked.
    fn matches(&self, grant: &Grant) -> bool {
        let subject = self.subject.as_ref().map(Subject::as_str);
        subject.is_none_or(|subject| grant.subject.as_deref() == Some(subject))
    }
}

/// The lowest id of the first microsecond that is not before an instant.
fn first_id_from(instant: DateTime<Utc>) -> EntryId {
    let rounded_up = instant.checked_add_signed(TimeDelta::nanoseconds(999));
    EntryId::first_at(rounded_up.unwrap_or(instant))
}
