//! Exports of the history. Positions never change, so an export as of a position needs no snapshot
//! of the ledger.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::day_span::InstantSpan;
use crate::exported::{EXPORT_PAGE, ExportPiece, ExportPieces, PieceSender, pieces};
use crate::history::HistoryQuery;
use crate::reader::{RecordReader, RecordedEntry};
use crate::{ListFailure, Record};
use claims::instance::{Failure, Place};
use domain::identity::to_micros;
use domain::policy::Policy;
use ledger::{Act, ActKind, LedgerError};

/// How long the end of an export waits for the seal over its positions, and how often it looks.
const SEAL_TIME: Duration = Duration::from_secs(20);
const SEAL_LOOK: Duration = Duration::from_millis(100);

/// An export that has begun.
pub struct EntryExport {
    /// The last position of the export.
    pub as_of: u64,
    /// The instants in which its entries count, if the query has a span.
    pub span: Option<InstantSpan>,
    pub pieces: ExportPieces<RecordedEntry, ExportEnd>,
}

/// What the end of an export has.
pub struct ExportEnd {
    /// All versions of each policy that has a row, oldest first.
    pub versions: Vec<Vec<Policy>>,
    /// The newest seal that covers all positions of the export. `None` if this instance seals nothing, or
    /// not in time.
    pub seal: Option<String>,
}

/// An export whose first page was read.
struct ReadyExport {
    /// The caller's place, which is occupied until the end.
    _place: Place,
    /// How long the end waits for the seal.
    seal_time: Duration,
    as_of: u64,
    span: Option<InstantSpan>,
    reader: RecordReader,
    first: Vec<RecordedEntry>,
}

impl Record {
    /// All entries of a query, in the order of the record. An act records the export first. `about`
    /// makes the JSON of the act from the export's last position.
    ///
    /// # Errors
    /// [`ListFailure`]; also as a piece, which is then the last one.
    pub async fn export_entries(
        self: &Arc<Self>,
        caller: &Arc<str>,
        query: HistoryQuery,
        about: impl FnOnce(u64) -> String,
    ) -> Result<(Act, EntryExport), ListFailure> {
        let ready = self.ready_export(caller, query).await?;
        let mut act = Act {
            revision: 0,
            kind: ActKind::Export,
            about: about(ready.as_of),
            at: to_micros(self.instance.clock.now()),
            by: caller.to_string(),
            reason: None,
        };
        let record = self.clone();
        let adding = async move {
            act.revision = record.ledger.record().add_act(&act).await?;
            Ok::<_, LedgerError>(act)
        };
        let act = self
            .instance
            .detached(adding)
            .await?
            .map_err(Failure::from)?;
        Ok((act, ready.begin(&self.instance.runtime)))
    }

    /// Reads the entries of an earlier export again.
    ///
    /// # Errors
    /// As [`Record::export_entries`].
    pub async fn repeat_export(
        self: &Arc<Self>,
        caller: &Arc<str>,
        query: HistoryQuery,
    ) -> Result<EntryExport, ListFailure> {
        Ok(self
            .ready_export(caller, query)
            .await?
            .begin(&self.instance.runtime))
    }

    /// The act that recorded an export.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn export_act(self: &Arc<Self>, revision: u64) -> Result<Option<Act>, Failure> {
        let record = self.clone();
        let act = self
            .instance
            .detached(async move { record.ledger.record().act(revision).await });
        let act = act.await??;
        if act.is_none()
            && self.instance.is_read_only()
            && self.ledger.admin().revision().await? < revision
        {
            return Err(Failure::NotFollowed);
        }
        Ok(act.filter(|act| act.kind == ActKind::Export))
    }

    /// Whether somebody seals the ledger: this instance, or those of the primary.
    async fn awaits_seals(&self) -> Result<bool, LedgerError> {
        if self.instance.is_read_only() {
            Ok(self.ledger.audit().last_seal().await?.is_some())
        } else {
            Ok(self.seals)
        }
    }

    /// Reads the first page before the answer begins, so that an export that cannot begin gets an
    /// error status.
    async fn ready_export(
        self: &Arc<Self>,
        caller: &Arc<str>,
        query: HistoryQuery,
    ) -> Result<ReadyExport, ListFailure> {
        let place = self.long_place(caller).await?;
        let record = self.clone();
        let reading = async move {
            let seal_time = if record.awaits_seals().await? {
                SEAL_TIME
            } else {
                Duration::ZERO
            };
            let after = query.after.unwrap_or(0);
            let span = record.span(&query, after, query.as_of).await?;
            let as_of = span.up_to.position;
            let (mut reader, span) = record.reader(&query, &span).await?;
            let first = reader.next_of_all(EXPORT_PAGE).await?;
            Ok(ReadyExport {
                _place: place,
                seal_time,
                as_of,
                span,
                reader,
                first,
            })
        };
        self.instance.detached(reading).await?
    }
}

impl ReadyExport {
    fn begin(self, runtime: &Handle) -> EntryExport {
        let (sender, pieces) = pieces();
        let as_of = self.as_of;
        let span = self.span;
        runtime.spawn(self.send(sender));
        EntryExport {
            as_of,
            span,
            pieces,
        }
    }

    /// Sends all pages.
    async fn send(mut self, sender: PieceSender<RecordedEntry, ExportEnd>) {
        let mut page = Ok(std::mem::take(&mut self.first));
        loop {
            let is_end = page.as_ref().is_ok_and(Vec::is_empty);
            if is_end {
                let seal = self.seal().await;
                let versions = self.reader.into_versions();
                let end = seal.map(|seal| ExportPiece::End(ExportEnd { versions, seal }));
                sender.send(end).await;
                return;
            }
            if !sender.send(page.map(ExportPiece::Rows)).await {
                return;
            }
            page = self.reader.next_of_all(EXPORT_PAGE).await;
        }
    }

    /// The newest seal, as soon as it covers the positions of the export.
    async fn seal(&self) -> Result<Option<String>, LedgerError> {
        let until = Instant::now() + self.seal_time;
        loop {
            let seal = self.reader.seal_over(self.as_of).await?;
            if seal.is_some() || Instant::now() >= until {
                return Ok(seal);
            }
            sleep(SEAL_LOOK).await;
        }
    }
}
