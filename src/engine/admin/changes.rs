//! Lists of changes.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::claim::Subject;
use crate::domain::identity::to_micros;
use crate::domain::policy::PolicyName;
use crate::engine::cursor::{self, cut_page};
use crate::engine::{Engine, Failure, ListFailure};
use crate::ledger::{ChangeFilter, ChangeKind, PastChange};

/// Which changes to list. Filters combine.
#[derive(Debug, Clone, Default)]
pub struct ChangeQuery {
    /// Those of a policy, archived or not, and its overrides.
    pub policy: Option<PolicyName>,
    /// Those made at this instant or later.
    pub from: Option<DateTime<Utc>>,
    /// Those made before this instant.
    pub to: Option<DateTime<Utc>>,
    /// Those of one kind.
    pub kind: Option<ChangeKind>,
    /// Those that were made by this key's id, or by what else a change says.
    pub by: Option<String>,
    /// Those of a subject's overrides.
    pub subject: Option<Subject>,
}

impl Engine {
    /// A page of at most `limit` changes, newest first, and the
    /// cursor of the next. A cursor stays right while changes come in: they stand before it.
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
        let filter = ChangeFilter {
            policy,
            from: query.from.map(first_micros_from),
            to: query.to.map(first_micros_from),
            below: match cursor {
                Some(cursor) => u64::from_be_bytes(cursor::decode(identity, &list, cursor)?),
                None => u64::MAX,
            },
            by: query.by,
            accounts,
        };
        let engine = self.clone();
        let work = async move { engine.ledger.changes(filter, query.kind, limit + 1).await };
        let mut changes = self.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut changes, limit)
            .map(|last| cursor::encode(identity, &list, &last.revision().to_be_bytes()));
        Ok((changes, next))
    }
}

/// The first microsecond that is not before an instant: every store keeps microseconds.
fn first_micros_from(instant: DateTime<Utc>) -> DateTime<Utc> {
    let rounded_up = instant.checked_add_signed(TimeDelta::nanoseconds(999));
    to_micros(rounded_up.unwrap_or(instant))
}
