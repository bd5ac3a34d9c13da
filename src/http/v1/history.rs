//! The entries of all accounts, in the order of the record.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::ContentType;
use actix_web::web::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;

use crate::answer::{ApiError, HttpAnswer};
use crate::operation::describe;
use crate::request::{
    Auditor, Caller, Faults, InQuery, MetadataQuery, PageQuery, Query, RecordData, SpanQuery,
    WAIT_MOST, parse_instant, parse_position,
};
use api::entries::{EntryBody, HistoryItem, HistoryList};
use api::keys::KeyName;
use api::problem::InvalidPart;
use api::words;
use domain::claim::Subject;
use domain::grant::KindWord;
use domain::policy::PolicyName;
use domain::reads::ReadKind;
use domain::warning::Levels;
use engine::{AsOf, HistoryPage, HistoryQuery, RecordedEntry, Share, SharedPage};

pub fn history_item(recorded: RecordedEntry) -> HistoryItem {
    let listed = recorded.listed;
    let metadata = listed.entry.metadata.as_ref();
    HistoryItem {
        position: recorded.position,
        recorded_at: recorded.recorded_at,
        policy: listed.policy.to_string(),
        subject: listed.subject,
        counted_on: recorded.counted_on,
        entry: EntryBody::from(&listed.entry),
        key: listed.key.map(KeyName::from),
        metadata: metadata.and_then(|json| RawValue::from_string(json.as_str().to_owned()).ok()),
    }
}

/// The item of a list: its rows have the time zone, too.
fn listed(mut recorded: RecordedEntry) -> HistoryItem {
    let zone = recorded.zone.take();
    let item = history_item(recorded);
    let entry = item.entry.in_zone(zone);
    HistoryItem { entry, ..item }
}

fn history_list(page: HistoryPage) -> HistoryList {
    HistoryList {
        items: page.entries.into_iter().map(listed).collect(),
        next_cursor: page.next_cursor,
        as_of: page.as_of,
    }
}

/// Filters for entries. They combine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryFilterQuery {
    /// Only of this policy, archived or not. Required for local days.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// Only of this subject.
    #[param(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    subject: Option<String>,
    #[param(value_type = Option<words::EntryKind>)]
    kind: Option<String>,
    /// Only entries that reached this level.
    #[param(value_type = Option<words::WarningLevel>, example = 80)]
    crossed: Option<String>,
    /// Only entries that got their positions at this instant or later. A date means the start of that local day
    /// of the policy.
    #[param(format = "day-or-instant", example = "2026-11-03T00:00:00Z")]
    recorded_from: Option<String>,
    /// Only entries that got their positions before this instant. A date means the start of that local day of
    /// the policy.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    recorded_to: Option<String>,
    /// Only entries up to this position, or to the last position of this time. Only a list as of a position
    /// never changes.
    #[param(format = "position-or-instant", example = "1842")]
    as_of: Option<String>,
    /// Only entries above this position.
    #[param(value_type = Option<u64>, minimum = 0)]
    after: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Seconds to wait for an entry while the list is empty. Default: 0.
    #[param(value_type = Option<u64>, minimum = 0, maximum = 30)]
    wait: Option<String>,
}

impl HistoryFilterQuery {
    pub fn check(
        &self,
        span: &SpanQuery,
        metadata: &MetadataQuery,
        faults: &mut Faults,
    ) -> HistoryQuery {
        let (span, by) = span.check(faults);
        HistoryQuery {
            policy: faults.parameter("policy", self.policy.as_ref(), PolicyName::new),
            subject: faults.parameter("subject", self.subject.as_ref(), Subject::existing),
            kind: faults.parameter("kind", self.kind.as_ref(), parse_kind),
            crossed: faults
                .parameter("crossed", self.crossed.as_ref(), parse_level)
                .unwrap_or_default(),
            by,
            span,
            metadata: metadata.check(faults),
            recorded_from: faults.bound("recorded_from", self.recorded_from.as_ref()),
            recorded_to: faults.bound("recorded_to", self.recorded_to.as_ref()),
            as_of: faults.parameter("as_of", self.as_of.as_ref(), parse_as_of),
            after: faults.parameter("after", self.after.as_ref(), parse_position),
        }
    }
}

impl WaitQuery {
    /// How long to wait for an entry of a list.
    fn check(&self, list: &HistoryFilterQuery, faults: &mut Faults) -> Duration {
        let parse = |text: &str| {
            let wait = text.parse().ok().map(Duration::from_secs);
            let wait = wait.filter(|wait| *wait <= WAIT_MOST);
            wait.ok_or_else(|| format!("write 0 to {} seconds", WAIT_MOST.as_secs()))
        };
        let wait = faults.parameter("wait", self.wait.as_ref(), parse);
        if wait.is_some() && (list.as_of.is_some() || list.recorded_to.is_some()) {
            let detail = "leave out wait: a list with as_of or recorded_to gets no new entries";
            faults.add(InvalidPart::parameter("wait", detail));
        }
        wait.unwrap_or_default()
    }
}

fn parse_kind(text: &str) -> Result<KindWord, String> {
    let mut kinds = KindWord::ALL.into_iter();
    let found = kinds.find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let names = KindWord::ALL.map(KindWord::as_str);
        format!("write one of the kinds {}", names.join(", "))
    })
}

fn parse_level(text: &str) -> Result<Levels, String> {
    let percent = text
        .parse()
        .map_err(|_| "write a percent, such as 80".to_owned())?;
    Levels::of(&[percent]).map_err(|error| error.to_string())
}

pub fn parse_as_of(text: &str) -> Result<AsOf, String> {
    match parse_position(text) {
        Ok(position) => Ok(AsOf::Position(position)),
        Err(position) => parse_instant(text)
            .map(AsOf::Instant)
            .map_err(|instant| format!("{position}; or {instant}")),
    }
}

describe! {
    /// List entries of all accounts, oldest first, in the order of the record.
    ///
    /// An entry gets its position soon after it was committed, and keeps it, so a list as of a position never
    /// changes. To follow the record, send the `as_of` of the last page as `after`: you miss no entry, and get
    /// none twice.
    LIST: "list_history" of "entries", |it| it
        .json::<HistoryList>(200, "A page.")
        .needs_entries()
}
pub async fn list(
    caller: Caller<Auditor, InQuery>,
    query: Query<HistoryFilterQuery>,
    span: Query<SpanQuery>,
    metadata: Query<MetadataQuery>,
    wait: Query<WaitQuery>,
    page: Query<PageQuery>,
    record: RecordData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let filter = query.0.check(&span.0, &metadata.0, &mut faults);
    let wait = wait.0.check(&query.0, &mut faults);
    let page = page.0.check(&mut faults);
    let filter = faults.or(Some(filter))?;
    let mut filter = filter;
    let key = caller.key();
    let mut known_at = Instant::now();
    let waits_until = known_at + wait;
    let mut waiting = None;
    loop {
        // 1. Read the list. All requests that ask the same share a read, and its place.
        let deadline = Instant::now() + record.instance.answer_time;
        let asked = (page.limit, page.cursor());
        let times = (known_at, deadline);
        let found = record.history(&key, &filter, asked, times, written);
        let found = timeout_at(deadline, found).await;
        let found = found.map_err(|_| ApiError::TooSlow)??;
        // 2. If the list is empty and there is time, wait until the record grows.
        let mut grown_at = None;
        if found.is_empty && Instant::now() < waits_until {
            if waiting.is_none() {
                let place = record.callers.place(Share::Waits, &key, waits_until).await;
                waiting = Some(place.ok_or(ApiError::TooManyAtOnce)?);
            }
            grown_at = record.recorded_above(found.newest, waits_until).await;
        }
        // 3. Then read again. The list is empty up to `as_of`, so the next read begins there.
        if let Some(grown_at) = grown_at {
            known_at = grown_at;
            if page.cursor().is_none() {
                filter.after = Some(found.as_of);
            }
            continue;
        }
        let kind = ReadKind::Entries;
        let policy = filter.policy.as_ref();
        let subject = filter.subject.as_ref().map(Subject::as_str);
        caller.record_read(&record, kind, policy, subject).await?;
        // 4. Answer. The read keeps its place until its answers are written.
        let text = Bytes::from_owner(Text(found));
        return Ok(HttpResponse::Ok()
            .content_type(ContentType::json())
            .body(text));
    }
}

/// The text of an answer that several requests get.
struct Text(Arc<SharedPage>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.text.as_bytes()
    }
}

fn written(page: HistoryPage) -> String {
    serde_json::to_string(&history_list(page)).expect("a list is JSON")
}
