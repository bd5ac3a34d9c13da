//! Closed days: days whose figures are in the record.

use chrono::{DateTime, Utc};

use super::acts::{Act, add_act_in};
use super::statistics::{FigureFilter, PolicyDay, figures_in};
use crate::access::Ending;
use crate::boxed;
use crate::query::query;
use crate::row::{StoredRow, only};
use crate::{FigureTables, LedgerError};
use domain::policy::PolicyName;
use domain::statistics::OpenDay;

const TO_CLOSE: &str = "SELECT d.policy, d.counted_on, d.ends_at, p.name
    FROM open_days AS d JOIN policies AS p ON p.id = d.policy
    WHERE d.ends_at < $1 AND d.changed_at < $1 ORDER BY d.ends_at LIMIT $2";
/// Locks the row of a day that has not changed since $3.
const TAKE: &str = "UPDATE open_days SET changed_at = changed_at
    WHERE policy = $1 AND counted_on = $2 AND changed_at < $3 RETURNING 1";
const CLOSE: &str = "DELETE FROM open_days WHERE policy = $1 AND counted_on = $2";

fn decode(row: &StoredRow<'_>) -> Result<(PolicyName, OpenDay), LedgerError> {
    let day = OpenDay {
        policy: row.get("policy")?,
        counted_on: row.get("counted_on")?,
        ends_at: row.get("ends_at")?,
    };
    Ok((row.get("name")?, day))
}

impl FigureTables {
    /// The days that ended, and last changed, before an instant; the earliest end first, at most
    /// `limit`.
    #[boxed]
    pub async fn days_to_close(
        &self,
        before: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<(PolicyName, OpenDay)>, LedgerError> {
        let days = query(TO_CLOSE).bind(before).bind(limit);
        self.ledger.own().await?.lend().all(days, decode).await
    }

    /// Adds the act that `tell` makes of a day's figures. Adds nothing if the figures changed since
    /// `before`, or another instance closed the day.
    pub async fn close_day(
        &self,
        day: OpenDay,
        before: DateTime<Utc>,
        tell: impl FnOnce(Option<&PolicyDay>) -> Act,
    ) -> Result<(), LedgerError> {
        self.ledger
            .own_edit(async |mut session| {
                let take = query(TAKE)
                    .bind(day.policy)
                    .bind(day.counted_on)
                    .bind(before);
                if session.first(take, only::<i32>).await?.is_none() {
                    return Ok(Ending::Rollback(()));
                }
                // Read the figures after the row of the day is taken: a later change of the figures
                // opens the day again.
                let filter = FigureFilter {
                    policy: Some(day.policy),
                    from: Some(day.counted_on),
                    to: day.counted_on.succ_opt(),
                    ..FigureFilter::default()
                };
                let figures = figures_in(&mut session, &filter, 1).await?;
                add_act_in(&mut session, &tell(figures.first())).await?;
                // The row goes only with the act.
                let close = query(CLOSE).bind(day.policy).bind(day.counted_on);
                session.execute(close).await?;
                Ok(Ending::Commit(()))
            })
            .await
    }
}
