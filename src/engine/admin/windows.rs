//! Lists of a policy's windows.

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::policy::Policy;
use crate::domain::window::{Per, Window};
use crate::engine::cursor::{self, cut_page};
use crate::engine::{Engine, InvalidCursor};

/// Which windows to list.
#[derive(Debug, Clone)]
pub struct WindowQuery {
    /// Of which kind.
    pub per: Per,
    /// From the one that contains this instant on; the present one when absent.
    pub from: Option<DateTime<Utc>>,
    /// Those that begin before this instant; one when absent.
    pub to: Option<DateTime<Utc>>,
}

impl Engine {
    /// A page of at most `limit` windows that touch a span, oldest first, and the cursor of
    /// the next.
    ///
    /// # Errors
    /// [`InvalidCursor`].
    pub fn windows(
        &self,
        policy: &Policy,
        query: &WindowQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<Window>, Option<String>), InvalidCursor> {
        let list = format!("windows of {} {query:?}", policy.name);
        let identity = self.ledger.identity();
        let first = query.from.unwrap_or_else(|| self.clock.now());
        let from = match cursor {
            Some(cursor) => {
                let seconds = i64::from_be_bytes(cursor::decode(identity, &list, cursor)?);
                DateTime::from_timestamp(seconds, 0).ok_or(InvalidCursor)?
            }
            None => first,
        };
        let to = match query.to {
            Some(to) => to,
            None => first
                .checked_add_signed(TimeDelta::microseconds(1))
                .unwrap_or(first),
        };
        let calendar = &policy.rule.calendar;
        let windows = calendar.windows(query.per, from, to);
        let mut windows: Vec<Window> = windows.take(limit as usize + 1).collect();
        let next = cut_page(&mut windows, limit)
            .map(|last| cursor::encode(identity, &list, &last.end.timestamp().to_be_bytes()));
        Ok((windows, next))
    }
}
