//! Lists of days with their figures.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDate, Utc};

use crate::cursor::{self, cut_page};
use crate::{Bound, InvalidCursor, ListFailure, Misfit, Record};
use domain::local_days::LocalDays;
use domain::policy::{Policy, PolicyId, PolicyName};
use domain::record::RecordPlace;
use ledger::{FigureFilter, PolicyDay};

/// Which days to list. Filters combine.
#[derive(Debug, Clone, Default)]
pub struct FigureQuery {
    pub policy: Option<PolicyName>,
    /// Local days from this one on …
    pub from: Option<Bound>,
    /// … and before this one.
    pub to: Option<Bound>,
    /// What got its position on a local day from this one on …
    pub recorded_from: Option<Bound>,
    /// … and before this one.
    pub recorded_to: Option<Bound>,
}

/// A local day with its figures.
#[derive(Debug)]
pub struct FigureOfDay {
    pub day: PolicyDay,
    pub starts_at: DateTime<Utc>,
    pub ends_at: DateTime<Utc>,
}

/// A page of days, oldest first.
#[derive(Debug)]
pub struct FigurePage {
    pub days: Vec<FigureOfDay>,
    pub next_cursor: Option<String>,
    /// The figures have the entries up to this position.
    pub as_of: u64,
}

impl Record {
    /// A page of at most `limit` days of policies, oldest first. A day without figures is not
    /// listed.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn statistics(
        self: &Arc<Self>,
        query: &FigureQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<FigurePage, ListFailure> {
        let record = self.clone();
        let query = query.clone();
        let cursor = cursor.map(str::to_owned);
        let work = async move { record.read_days(&query, limit, cursor.as_deref()).await };
        self.instance.detached(work).await?
    }

    async fn read_days(
        &self,
        query: &FigureQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<FigurePage, ListFailure> {
        let identity = self.ledger.identity();
        let list = format!("statistics {query:?}");
        let after = match cursor {
            Some(cursor) => Some(decode_day(cursor::decode(identity, &list, cursor)?)?),
            None => None,
        };
        let policy = match &query.policy {
            Some(name) => Some(self.listed_policy(name).await?.id),
            None => None,
        };
        let day = |name, bound| self.local_day(query.policy.as_ref(), name, bound);
        let filter = FigureFilter {
            policy,
            from: day("from", query.from).await?,
            to: day("to", query.to).await?,
            recorded_from: day("recorded_from", query.recorded_from).await?,
            recorded_to: day("recorded_to", query.recorded_to).await?,
            after,
        };
        for (name, from, to) in [
            ("to", filter.from, filter.to),
            ("recorded_to", filter.recorded_from, filter.recorded_to),
        ] {
            if from.zip(to).is_some_and(|(from, to)| to <= from) {
                return Err(ListFailure::Misfit(name, Misfit::EmptySpan));
            }
        }
        // Read the position before the figures, which may grow in between.
        let as_of = self.ledger.figures().figures_position().await?;
        let mut found = self.ledger.figures().figures(&filter, limit + 1).await?;
        let next_cursor = cut_page(&mut found, limit)
            .map(|last| cursor::encode(identity, &list, &encode_day(last.date, last.policy)));
        let mut days = Vec::with_capacity(found.len());
        let mut versions: HashMap<PolicyId, Vec<Policy>> = HashMap::new();
        for day in found {
            let versions = match versions.entry(day.policy) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(
                    self.ledger
                        .record()
                        .known_versions(&day.policy_name, RecordPlace::LAST)
                        .await?,
                ),
            };
            let local_days = LocalDays::of(versions);
            days.push(FigureOfDay {
                starts_at: local_days.start(day.date),
                ends_at: local_days.end(day.date),
                day,
            });
        }
        Ok(FigurePage {
            days,
            next_cursor,
            as_of,
        })
    }
}

fn encode_day(date: NaiveDate, policy: PolicyId) -> [u8; 8] {
    let both = i64::from(date.num_days_from_ce()) << 32 | i64::from(policy.0);
    both.to_be_bytes()
}

fn decode_day(bytes: [u8; 8]) -> Result<(NaiveDate, PolicyId), InvalidCursor> {
    let both = i64::from_be_bytes(bytes);
    let date = NaiveDate::from_num_days_from_ce_opt((both >> 32) as i32);
    Ok((date.ok_or(InvalidCursor)?, PolicyId(both as i32)))
}
