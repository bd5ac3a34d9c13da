//! Lists of changes.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::cursor::{self, cut_page};
use crate::{Bound, ListFailure, Record};
use claims::instance::Failure;
use domain::claim::Subject;
use domain::identity::to_micros;
use domain::policy::PolicyName;
use ledger::{ChangeFilter, ChangeKind, PastChange};

/// Which changes to list. Filters combine.
#[derive(Debug, Clone, Default)]
pub struct ChangeQuery {
    /// Changes of this policy, archived or not, and of its overrides; reads under this policy.
    pub policy: Option<PolicyName>,
    /// Changes made at this instant or later.
    pub from: Option<Bound>,
    /// Changes made before this instant.
    pub to: Option<Bound>,
    /// Changes of this kind.
    pub kind: Option<ChangeKind>,
    /// Changes made by this author: a key's id, or another value of a change's author.
    pub by: Option<String>,
    /// Changes of this subject's overrides, and reads of this subject.
    pub subject: Option<Subject>,
}

impl Record {
    /// A page of at most `limit` changes, newest first, and the cursor of the next page. New
    /// changes do not disturb a cursor: they come before it.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn changes(
        self: &Arc<Self>,
        query: ChangeQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<PastChange>, Option<String>), ListFailure> {
        let subject = query.subject.as_ref().map(Subject::as_str);
        let list = format!("changes {subject:?} {query:?}");
        let identity = self.ledger.identity();
        let policy = match &query.policy {
            Some(name) => Some(self.listed_policy(name).await?.id),
            None => None,
        };
        let accounts = match &query.subject {
            Some(subject) => Some(self.listed_accounts(subject, query.policy.as_ref()).await?),
            None => None,
        };
        let from = ("from", query.from);
        let to = ("to", query.to);
        let [from, to] = self.instants(query.policy.as_ref(), from, to).await?;
        let filter = ChangeFilter {
            policy,
            from: from.map(first_micros_from),
            to: to.map(first_micros_from),
            below: match cursor {
                Some(cursor) => u64::from_be_bytes(cursor::decode(identity, &list, cursor)?),
                None => u64::MAX,
            },
            by: query.by,
            accounts,
            subject: query.subject.map(|subject| subject.as_str().to_owned()),
        };
        let record = self.clone();
        let work = async move {
            record
                .ledger
                .record()
                .changes(filter, query.kind, limit + 1)
                .await
        };
        let mut changes = self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut changes, limit)
            .map(|last| cursor::encode(identity, &list, &last.revision().to_be_bytes()));
        Ok((changes, next))
    }
}

/// The first microsecond at or after an instant. Every store has microseconds.
fn first_micros_from(instant: DateTime<Utc>) -> DateTime<Utc> {
    let rounded_up = instant.checked_add_signed(TimeDelta::nanoseconds(999));
    to_micros(rounded_up.unwrap_or(instant))
}
