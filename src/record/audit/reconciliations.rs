//! Reconciliations that somebody asks for, and the reports of all.

use std::sync::Arc;

use tokio::time::timeout;
use uuid::Uuid;

use super::Audit;
use crate::ListFailure;
use crate::cursor::{self, cut_page};
use crate::reconcile::ReconcileFailure;
use claims::instance::Failure;
use domain::reconciliation::{KeptDifference, Reconciliation};
use ledger::LedgerError;

impl Audit {
    /// Reconciles, and returns the report with its differences. A report without an end is still in
    /// progress: the reconciliation continues whether or not the client waits.
    ///
    /// # Errors
    /// [`ReconcileFailure`].
    pub async fn reconcile(
        self: &Arc<Self>,
        apply: bool,
        requested_by: Arc<str>,
    ) -> Result<(Reconciliation, Vec<KeptDifference>), ReconcileFailure> {
        let reconciler = self.reconciler.clone();
        let by = requested_by.as_ref().to_owned();
        let beginning = self.instance.detached(reconciler.begin(apply, by));
        let begun = beginning.await??;
        let id = begun.id();
        let run = self.instance.detached(begun.run());
        if let Ok(ended) = timeout(self.instance.answer_time / 2, run).await {
            ended?.map_err(Failure::from)?;
        }
        let gone = || Failure::from(LedgerError::Corrupt("a report is gone".to_owned()));
        Ok(self.reconciliation(id).await?.ok_or_else(gone)?)
    }

    /// One report, with its differences.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn reconciliation(
        self: &Arc<Self>,
        id: Uuid,
    ) -> Result<Option<(Reconciliation, Vec<KeptDifference>)>, Failure> {
        let audit = self.clone();
        let work = async move { audit.ledger.audit().reconciliation(id).await };
        Ok(self.instance.detached(work).await??)
    }

    /// A page of at most `limit` reports, newest first, and the cursor of the next page.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn reconciliations(
        self: &Arc<Self>,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<Reconciliation>, Option<String>), ListFailure> {
        const LIST: &str = "reconciliations";
        let identity = self.ledger.identity();
        let before = match cursor {
            Some(cursor) => Uuid::from_bytes(cursor::decode(identity, LIST, cursor)?),
            None => Uuid::max(),
        };
        let audit = self.clone();
        let work = async move {
            audit
                .ledger
                .audit()
                .reconciliations(before, limit + 1)
                .await
        };
        let mut reports = self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut reports, limit)
            .map(|last| cursor::encode(identity, LIST, last.started.id.as_bytes()));
        Ok((reports, next))
    }
}
