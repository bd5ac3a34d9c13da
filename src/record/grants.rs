//! Lists and exports of grants.

use std::sync::Arc;

use uuid::Uuid;

use crate::cursor::{self, cut_page};
use crate::cut::{NeededEntries, check_cut};
use crate::exported::{EXPORT_PAGE, ExportPiece, ExportPieces, pieces};
use crate::listed::MadeBy;
use crate::{DaySpan, InstantSpan, ListFailure, Record, check_metadata};
use claims::instance::Failure;
use domain::claim::{IdempotencyKey, MetadataFilter, Subject};
use domain::grant::{Grant, GrantState};
use domain::identity::EntryId;
use domain::policy::{Policy, PolicyName};
use domain::record::RecordPlace;
use ledger::{CountedSpan, FoundGrants, GrantFilter, GrantScope, LedgerError, ProvisionalScope};

/// Which grants to list. Filters combine.
#[derive(Debug, Clone, Default)]
pub struct GrantQuery {
    /// Grants of this policy, archived or not.
    pub policy: Option<PolicyName>,
    /// Grants of this subject.
    pub subject: Option<Subject>,
    /// Grants in this span.
    pub span: DaySpan,
    /// Grants whose metadata has this member. Needs a policy and a span.
    pub metadata: Option<MetadataFilter>,
    /// Grants that this key claimed.
    pub by: Option<MadeBy>,
    /// Grants in this state.
    pub state: Option<GrantState>,
    /// The grant with this idempotency key.
    pub key: Option<IdempotencyKey>,
    /// Grants that Redis alone decided: all, or those that went over a limit.
    pub provisional: Option<ProvisionalScope>,
    /// Grants that an observing policy would have denied.
    pub would_deny: bool,
}

/// A page of grants, newest first.
#[derive(Debug)]
pub struct GrantPage {
    pub grants: Vec<Grant>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

impl Record {
    /// A page of at most `limit` grants. New grants do not disturb a cursor: they come before it.
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
        let record = self.clone();
        let work = async move { record.ledger.record().grants(&filter, limit + 1).await };
        let found = self.instance.detached(work).await?.map_err(Failure::from)?;
        let FoundGrants { mut grants, below } = found;
        let cut_at = cut_page(&mut grants, limit).map(|last| last.entry.id);
        let next_cursor = cut_at
            .or(below)
            .map(|below| cursor::encode(identity, &list, below.0.as_bytes()));
        grants.retain(|grant| query.matches(grant));
        Ok(GrantPage {
            grants,
            next_cursor,
        })
    }

    /// All grants of the query, newest first, page by page, as they are at one instant.
    ///
    /// # Errors
    /// [`ListFailure`]; also as a piece, which is then the last one.
    pub async fn export(
        self: &Arc<Self>,
        caller: &Arc<str>,
        query: GrantQuery,
    ) -> Result<ExportPieces<Grant, ()>, ListFailure> {
        let mut filter = self.filter(&query).await?;
        let place = self.long_place(caller).await?;
        // The states are those of the time at which the export begins.
        filter.now = self.instance.clock.now();
        let record = self.clone();
        // Read the first page before the answer begins, so that an export that cannot begin gets an
        // error status.
        let begin = async move {
            let needed = match &filter.scope {
                GrantScope::Accounts(accounts) => NeededEntries::OfAccounts(accounts),
                // No two grants have the same key, so one page has all.
                GrantScope::Keys(_) => NeededEntries::OfAccounts(&[]),
                GrantScope::Policy(policy) => NeededEntries::OfPolicy(*policy),
                GrantScope::All => NeededEntries::All,
            };
            let from = Some(filter.from.at());
            let mut snapshot = record.ledger.snapshot().await?;
            // After the view began: what is dropped later is still in it.
            check_cut(&record.ledger, RecordPlace::FIRST, from, needed).await?;
            let first = snapshot.grants(&filter, EXPORT_PAGE).await?;
            Ok::<_, LedgerError>((snapshot, filter, first))
        };
        let begun = self.instance.detached(begin).await?;
        let (mut snapshot, mut filter, first) = begun.map_err(Failure::from)?;
        let (sender, received) = pieces();
        self.instance.runtime.spawn(async move {
            let _place = place;
            let mut page = Ok(first);
            let mut is_end = false;
            loop {
                let rows = page.map(|FoundGrants { mut grants, below }| {
                    is_end = below.is_none();
                    filter.to = below.unwrap_or(filter.to);
                    grants.retain(|grant| query.matches(grant));
                    ExportPiece::Rows(grants)
                });
                if !sender.send(rows).await {
                    return;
                }
                if is_end {
                    sender.send(Ok(ExportPiece::End(()))).await;
                    return;
                }
                page = snapshot.grants(&filter, EXPORT_PAGE).await;
            }
        });
        Ok(received)
    }

    async fn filter(&self, query: &GrantQuery) -> Result<GrantFilter, ListFailure> {
        let named = query.policy.as_ref();
        let policy = match named {
            Some(name) => Some(self.listed_policy(name).await?),
            None => None,
        };
        let span = self
            .counted_span(&query.span, policy.as_deref(), RecordPlace::LAST)
            .await?;
        let metadata = query.metadata.as_ref();
        check_metadata(metadata, policy.as_deref(), span)?;
        let CountedSpan(from, to) = span.map_or(CountedSpan::ALL, InstantSpan::ids);
        let by = match query.by {
            Some(by) => Some(self.listed_key(by).await?),
            None => None,
        };
        let scope = match (&query.key, &query.subject) {
            (Some(key), _) => {
                let policies = self.listed_policies(named).await?;
                let identity = self.ledger.identity();
                let key = |policy: &Arc<Policy>| identity.key(&policy.name, key);
                GrantScope::Keys(policies.iter().map(key).collect())
            }
            (None, Some(subject)) => {
                GrantScope::Accounts(self.listed_accounts(subject, named).await?)
            }
            (None, None) => match &policy {
                Some(policy) => GrantScope::Policy(policy.id),
                None => GrantScope::All,
            },
        };
        Ok(GrantFilter {
            scope,
            from,
            to,
            state: query.state,
            now: self.instance.clock.now(),
            provisional: query.provisional,
            would_deny: query.would_deny,
            by,
            metadata: metadata.cloned(),
        })
    }
}

impl GrantQuery {
    /// The identity of this list, for its cursors.
    fn describe(&self) -> String {
        format!(
            "grants {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            self.policy,
            self.subject.as_ref().map(Subject::as_str),
            self.span,
            self.metadata,
            self.by,
            self.state,
            self.key.as_ref().map(IdempotencyKey::as_str),
            self.provisional,
            self.would_deny,
        )
    }

    /// The filters that the ledger's query does not check.
    fn matches(&self, grant: &Grant) -> bool {
        let subject = self.subject.as_ref().map(Subject::as_str);
        subject.is_none_or(|subject| grant.subject.as_deref() == Some(subject))
    }
}
