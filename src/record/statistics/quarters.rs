//! Lists of quarter hours with their figures.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::cursor::{self, cut_page};
use crate::{Bound, InstantSpan, InvalidCursor, ListFailure, Record};
use claims::instance::Failure;
use domain::policy::{PolicyId, PolicyName};
use domain::quarters::PolicyQuarter;
use ledger::{LedgerError, ListedQuarter, QuarterFilter};

/// Which quarter hours to list. Filters combine.
#[derive(Debug, Clone, Default)]
pub struct QuarterQuery {
    pub policy: Option<PolicyName>,
    /// Those that begin from here on …
    pub from: Option<Bound>,
    /// … and before this bound.
    pub to: Option<Bound>,
}

/// A page of quarter hours, oldest first.
#[derive(Debug)]
pub struct QuarterPage {
    pub quarters: Vec<ListedQuarter>,
    pub next_cursor: Option<String>,
    /// The figures have the entries up to this position.
    pub as_of: u64,
}

impl Record {
    /// A page of at most `limit` quarter hours of policies, oldest first. A quarter hour without figures is
    /// not listed.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn quarters(
        self: &Arc<Self>,
        query: &QuarterQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<QuarterPage, ListFailure> {
        let identity = self.ledger.identity();
        let list = format!("quarters {query:?}");
        let after = match cursor {
            Some(cursor) => decode_place(cursor::decode(identity, &list, cursor)?)?,
            None => (DateTime::UNIX_EPOCH, PolicyId(0)),
        };
        let policy = match &query.policy {
            Some(name) => Some(self.listed_policy(name).await?.id),
            None => None,
        };
        let named = query.policy.as_ref();
        let [from, to] = self
            .instants(named, ("from", query.from), ("to", query.to))
            .await?;
        let filter = QuarterFilter {
            policy,
            // PostgreSQL has no instants as early as chrono.
            from: from.unwrap_or_default().max(DateTime::UNIX_EPOCH),
            to: to.unwrap_or(InstantSpan::ALL.to),
            after,
        };
        let record = self.clone();
        let work = async move {
            let figures = record.ledger.figures();
            // Read the position before the figures, which may grow in between.
            let as_of = figures.figures_position().await?;
            let found = figures.quarters(&filter, limit + 1).await?;
            Ok::<_, LedgerError>((as_of, found))
        };
        let found = self.instance.detached(work).await?;
        let (as_of, mut quarters) = found.map_err(Failure::from)?;
        let next_cursor = cut_page(&mut quarters, limit)
            .map(|last| cursor::encode(identity, &list, &encode_place(last.quarter)));
        Ok(QuarterPage {
            quarters,
            next_cursor,
            as_of,
        })
    }
}

fn encode_place(quarter: PolicyQuarter) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&quarter.starts_at().timestamp().to_be_bytes());
    bytes[8..].copy_from_slice(&quarter.policy().0.to_be_bytes());
    bytes
}

fn decode_place(
    [bytes @ .., a, b, c, d]: [u8; 12],
) -> Result<(DateTime<Utc>, PolicyId), InvalidCursor> {
    let seconds = i64::from_be_bytes(bytes);
    let starts_at = DateTime::from_timestamp(seconds, 0).ok_or(InvalidCursor)?;
    Ok((starts_at, PolicyId(i32::from_be_bytes([a, b, c, d]))))
}
