//! The history: entries by position.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::cursor::{self, cut_page};
use crate::cut::CLOCKS_DIFFER;
use crate::day_span::{Bound, DaySpan, InstantSpan, check_metadata};
use crate::listed::{MadeBy, Misfit};
use crate::reader::{RecordPage, RecordReader, RecordedEntry};
use crate::{ListFailure, Record};
use claims::instance::{Place, Share};
use domain::claim::{MetadataFilter, Subject};
use domain::grant::KindWord;
use domain::policy::PolicyName;
use domain::record::Mark;
use domain::warning::Levels;
use ledger::EntryFilter;

/// The point up to which a list shows the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsOf {
    Position(u64),
    Instant(DateTime<Utc>),
}

/// Which entries to list. Filters combine.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Entries of this policy, archived or not. Local days need a policy.
    pub policy: Option<PolicyName>,
    pub subject: Option<Subject>,
    pub kind: Option<KindWord>,
    /// Entries that this key claimed or corrected.
    pub by: Option<MadeBy>,
    /// Entries that count in this span.
    pub span: DaySpan,
    /// Entries that reached one of these levels of use; none for all entries.
    pub crossed: Levels,
    /// Entries whose own metadata has this member: grants. Needs a policy and a span.
    pub metadata: Option<MetadataFilter>,
    /// Entries that got their positions at this instant or later.
    pub recorded_from: Option<Bound>,
    /// Entries that got their positions before this instant.
    pub recorded_to: Option<Bound>,
    /// The list as it was known then.
    pub as_of: Option<AsOf>,
    /// Entries above this position.
    pub after: Option<u64>,
}

impl HistoryQuery {
    /// The identity of this list, for its cursors.
    fn describe(&self) -> String {
        let subject = self.subject.as_ref().map(Subject::as_str);
        format!("history {subject:?} {self:?}")
    }
}

/// A page of entries, oldest first.
#[derive(Debug)]
pub struct HistoryPage {
    pub entries: Vec<RecordedEntry>,
    pub next_cursor: Option<String>,
    /// The list has the entries up to this position.
    pub as_of: u64,
    /// The newest position at the time of the read.
    pub newest: u64,
}

/// A question of a caller about the history: requests with the same question share their reads.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct HistoryQuestion {
    caller: Arc<str>,
    list: String,
    limit: u32,
    cursor: Option<String>,
}

/// A page of entries as the text of an answer, for all requests with the same question.
pub struct SharedPage {
    /// Whether the list has no entry, here and on a next page.
    pub is_empty: bool,
    /// See [`HistoryPage::as_of`].
    pub as_of: u64,
    /// See [`HistoryPage::newest`].
    pub newest: u64,
    pub text: String,
    /// The place of the read, until the last of these answers is written. So slow readers cost
    /// little memory.
    _place: Option<Place>,
}

/// A span of places: after one place and up to another, which has a position.
pub struct RecordSpan {
    after: Mark,
    pub up_to: Mark,
    /// The newest position.
    newest: u64,
}

impl Record {
    /// A page of at most `limit` entries of all accounts, in the order of the record, as `render`
    /// writes it. New entries do not disturb a cursor: they come after it. The page shows everything
    /// that was recorded at `known_at`; requests of a caller with the same question share it. A
    /// read takes a place, and waits for it until the deadline.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn history(
        self: &Arc<Self>,
        caller: &Arc<str>,
        query: &HistoryQuery,
        (limit, cursor): (u32, Option<&str>),
        (known_at, deadline): (Instant, Instant),
        render: impl FnOnce(HistoryPage) -> String,
    ) -> Result<Arc<SharedPage>, ListFailure> {
        let cursor = cursor.map(str::to_owned);
        let question = HistoryQuestion {
            caller: caller.clone(),
            list: query.describe(),
            limit,
            cursor: cursor.clone(),
        };
        let read = async {
            let place = self.callers.place(Share::Reads, caller, deadline).await;
            let place = place.ok_or(ListFailure::NoPlace)?;
            let record = self.clone();
            let query = query.clone();
            let work = async move { record.read_history(&query, limit, cursor.as_deref()).await };
            let page = self.instance.detached(work).await??;
            let is_empty = page.entries.is_empty();
            let has_all = page.next_cursor.is_none();
            let as_of = page.as_of;
            let newest = page.newest;
            Ok(SharedPage {
                is_empty: is_empty && has_all,
                as_of,
                newest,
                text: render(page),
                // An empty page can be kept for long, and costs nothing.
                _place: Some(place).filter(|_| !is_empty),
            })
        };
        self.history_reads.read(question, known_at, read).await
    }

    /// Waits until the record has a position above this one. Returns the instant at which the newest
    /// one was noted; `None` at the deadline, and when the instance ends.
    pub async fn recorded_above(&self, position: u64, deadline: Instant) -> Option<Instant> {
        self.progress.above(position, deadline).await
    }

    async fn read_history(
        &self,
        query: &HistoryQuery,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<HistoryPage, ListFailure> {
        let identity = self.ledger.identity();
        let list = query.describe();
        let after = match cursor {
            Some(cursor) => {
                let bytes: [u8; 16] = cursor::decode(identity, &list, cursor)?;
                Some(u128::from_be_bytes(bytes))
            }
            None => None,
        };
        // A cursor has two positions: the one before its page, and the one of `as_of`.
        let (after, as_of) = match after {
            Some(both) => ((both >> 64) as u64, Some(AsOf::Position(both as u64))),
            None => (query.after.unwrap_or(0), query.as_of),
        };
        let span = self.span(query, after, as_of).await?;
        let (mut reader, _) = self.reader(query, &span).await?;
        let RecordPage {
            mut entries,
            read_to,
        } = reader.next(limit + 1).await?;
        let as_of = span.up_to.position;
        let cut_at = cut_page(&mut entries, limit).map(|last| last.position);
        let next_cursor = cut_at.or(read_to).map(|after| {
            let both = u128::from(after) << 64 | u128::from(as_of);
            cursor::encode(identity, &list, &both.to_be_bytes())
        });
        Ok(HistoryPage {
            entries,
            next_cursor,
            as_of,
            newest: span.newest,
        })
    }

    /// The mark at which the record was known. `parameter` names the request's parameter, for
    /// errors.
    ///
    /// # Errors
    /// [`ListFailure::Misfit`] for an instant or position in the future; [`ListFailure::Failure`].
    pub(super) async fn mark_as_of(
        &self,
        name: &'static str,
        as_of: AsOf,
    ) -> Result<Mark, ListFailure> {
        match as_of {
            AsOf::Instant(instant) if instant > self.instance.clock.now() => {
                Err(ListFailure::Misfit(name, Misfit::InstantToCome))
            }
            AsOf::Instant(instant) => Ok(self.ledger.record().mark_before(instant).await?),
            AsOf::Position(position) => match self.ledger.record().mark_at(position).await? {
                Some(mark) => Ok(mark),
                None => {
                    let newest = self.ledger.record().last_mark().await?.position;
                    Err(ListFailure::Misfit(name, Misfit::PositionToCome(newest)))
                }
            },
        }
    }

    /// The part of the record that a query asks for.
    pub(super) async fn span(
        &self,
        query: &HistoryQuery,
        after: u64,
        as_of: Option<AsOf>,
    ) -> Result<RecordSpan, ListFailure> {
        let from = ("recorded_from", query.recorded_from);
        let to = ("recorded_to", query.recorded_to);
        let [recorded_from, recorded_to] = self.instants(query.policy.as_ref(), from, to).await?;
        let newest = self.ledger.record().last_mark().await?;
        let mut up_to = match as_of {
            None => newest,
            Some(as_of) => self.mark_as_of("as_of", as_of).await?,
        };
        if let Some(recorded_to) = recorded_to {
            let before = self.ledger.record().mark_before(recorded_to).await?;
            if before.position < up_to.position {
                up_to = before;
            }
        }
        let mut after = self.mark_as_of("after", AsOf::Position(after)).await?;
        if let Some(recorded_from) = recorded_from {
            let before = self.ledger.record().mark_before(recorded_from).await?;
            after = after.later(before);
        }
        Ok(RecordSpan {
            after,
            up_to,
            newest: newest.position,
        })
    }

    /// A reader of the entries of a query, and the instants in which they count.
    pub(super) async fn reader(
        &self,
        query: &HistoryQuery,
        span: &RecordSpan,
    ) -> Result<(RecordReader, Option<InstantSpan>), ListFailure> {
        let (mut filter, counted) = self.entry_filter(query, span).await?;
        let from = counted.map(|span| span.from);
        let mut after = span.after;
        if let Some(from) = from.and_then(|from| from.checked_sub_signed(CLOCKS_DIFFER)) {
            after = after.later(self.ledger.record().mark_before(from).await?);
            filter.after = after.place;
        }
        let positions = (after.position, span.up_to.position);
        let reader = RecordReader::new(self.ledger.clone(), filter, positions, from).await?;
        Ok((reader, counted))
    }

    /// The filter for the ledger, and the instants in which the entries count.
    async fn entry_filter(
        &self,
        query: &HistoryQuery,
        span: &RecordSpan,
    ) -> Result<(EntryFilter, Option<InstantSpan>), ListFailure> {
        let policy = match &query.policy {
            Some(name) => Some(self.listed_policy(name).await?),
            None => None,
        };
        let named = query.policy.as_ref();
        let accounts = match &query.subject {
            Some(subject) => Some(self.listed_accounts(subject, named).await?),
            None => None,
        };
        let by = match query.by {
            Some(by) => Some(self.listed_key(by).await?),
            None => None,
        };
        let up_to = span.up_to.place;
        let counted = self
            .counted_span(&query.span, policy.as_deref(), up_to)
            .await?;
        let metadata = query.metadata.as_ref();
        check_metadata(metadata, policy.as_deref(), counted)?;
        let filter = EntryFilter {
            after: span.after.place,
            up_to,
            accounts,
            policy: policy.as_ref().map(|policy| policy.id),
            kind: query.kind,
            by,
            counted: counted.map(InstantSpan::ids),
            crossed: query.crossed,
            metadata: metadata.cloned(),
        };
        Ok((filter, counted))
    }
}
