//! Archives: files of leaves that can be verified without the ledger.

mod alone;
mod dropping;
mod forged;
mod interrupted;
mod orders;
mod refused;
mod round_trip;
mod steps;
mod tampering;
mod young;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use perdiem::engine::{
    ArchiveFailure, ArchiveOrder, Archived, DroppedArchive, archive_ledger, drop_archived,
};
use perdiem::host::clock::{Clock, ManualClock};
use perdiem::ledger::{Act, ActKind, CutText};
use perdiem::verify::archive::{CheckedArchive, check_archive};
use perdiem::verify::failure::FileFailure;
use serde_json::json;
use tempfile::TempDir;

use crate::http::v1::keys::make_role;
use crate::seals::{all_is_sealed, ledger, sealing, verifier};
use crate::support::app::{App, Ground, Stack, instant};

/// The instant at which the first entries are recorded, and the ends of the archives.
const MORNING: &str = "2026-01-05T10:00:00Z";
const MIDDAY: &str = "2026-01-05T12:00:00Z";
const EVENING: &str = "2026-01-05T18:00:00Z";

/// The act of a cut that somebody records by hand.
fn act_of(text: &CutText, at: &str) -> Act {
    Act {
        revision: 0,
        kind: ActKind::Cut,
        about: serde_json::to_string(text).expect("JSON"),
        at: instant(at),
        by: "perdiem".to_owned(),
        reason: None,
    }
}

/// A ledger whose clock stands in the morning, and a folder for its archive.
struct Archivist {
    ground: Ground,
    clock: ManualClock,
    app: App,
    _outside: TempDir,
    folder: PathBuf,
}

impl Archivist {
    /// An empty ledger.
    async fn new(stack: Stack) -> Self {
        Self::at(stack, MORNING).await
    }

    /// An empty ledger, at an instant.
    async fn at(stack: Stack, now: &str) -> Self {
        let clock = ManualClock::at(instant(now));
        let ground = Ground::new(stack);
        let app = serving(&ground, &clock).await;
        let outside = tempfile::tempdir().expect("a temporary folder");
        Self {
            ground,
            clock,
            app,
            folder: outside.path().join("archive"),
            _outside: outside,
        }
    }

    /// A ledger with rows of every kind. Returns how many positions are sealed.
    async fn filled(stack: Stack) -> (Self, u64) {
        let archivist = Self::new(stack).await;
        let app = &archivist.app;
        app.benefit(5, "UTC").await;
        let body = |order: &str| json!({ "subject": "member-1", "metadata": { "order": order } });
        let first = app.claim_body(body("order-A"), Some("key-1")).await;
        app.claim_body(body("order-B"), None).await;
        app.claim("member-2", None).await;
        let reversal = app.reverse(&first.grant_id(), "a mistake").await;
        assert_eq!(reversal.status, 201);
        let adjustment = json!({ "units": 1, "reason": "by hand" });
        assert_eq!(app.adjust("member-3", adjustment, None).await.status, 201);
        app.override_day("member-1", 9).await;
        make_role(app, "audit", None).await;
        let sealed = all_is_sealed(app, &archivist.ground).await.size;
        // The rows that an archive adds are recorded after midday.
        archivist.clock.set(instant("2026-01-05T13:00:00Z"));
        (archivist, sealed)
    }

    /// Continues in the evening. Returns how many positions are sealed then.
    async fn more(&self) -> u64 {
        self.clock.set(instant("2026-01-05T15:00:00Z"));
        for subject in ["member-4", "member-5", "member-6"] {
            self.app.claim(subject, None).await;
        }
        all_is_sealed(&self.app, &self.ground).await.size
    }

    /// Archives the rows that were recorded before an instant.
    async fn archive(&self, before: &str) -> Result<Option<Archived>, ArchiveFailure> {
        let order = ArchiveOrder {
            folder: self.folder.clone(),
            before: instant(before),
            reason: Some("the year is over".to_owned()),
            key: Some(verifier()),
        };
        let ledger = ledger(&self.ground).await;
        let archived = archive_ledger(&ledger, &order, instant(EVENING), |_, _| ()).await;
        ledger.close().await;
        archived
    }

    /// Archives the rows that were recorded before an instant, and drops the entries among them.
    async fn drop_before(&self, before: &str) -> Result<DroppedArchive, ArchiveFailure> {
        self.drop_at(before, self.clock.now()).await
    }

    /// As [`Archivist::drop_before`], with another clock.
    async fn drop_at(
        &self,
        before: &str,
        now: DateTime<Utc>,
    ) -> Result<DroppedArchive, ArchiveFailure> {
        let order = ArchiveOrder {
            folder: self.folder.clone(),
            before: instant(before),
            reason: Some("the year is over".to_owned()),
            key: Some(verifier()),
        };
        let ledger = ledger(&self.ground).await;
        let dropped = drop_archived(&ledger, &order, now, |_, _| (), |_, _| ()).await;
        ledger.close().await;
        dropped.map(|dropped| dropped.expect("something to archive"))
    }

    /// As [`Archivist::archive`], and asserts that there is an archive.
    async fn archived(&self, before: &str) -> Archived {
        let archived = self.archive(before).await.expect("an archive");
        archived.expect("something to archive")
    }

    /// The reason why nothing is archived.
    async fn refusal(&self, before: &str) -> String {
        let refusal = self.archive(before).await;
        refusal.expect_err("a refusal").to_string()
    }

    async fn check(&self) -> Result<CheckedArchive, FileFailure> {
        check_archive(&self.folder, Some(&verifier()), |_, _| ()).await
    }

    /// The fault of the folder.
    async fn fault(&self) -> String {
        self.check().await.expect_err("a fault").to_string()
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        files(&self.folder)
    }
}

/// An instance that seals, with a clock.
async fn serving(ground: &Ground, clock: &ManualClock) -> App {
    App::start_with(ground, |options| {
        sealing(options);
        options.clock = Clock::Manual(clock.clone());
    })
    .await
}

/// The files of a folder by their names.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder");
    let file = |path: PathBuf| {
        let name = path.file_name().expect("a name").to_str().expect("a text");
        (name.to_owned(), fs::read(&path).expect("a file"))
    };
    entries
        .map(|entry| file(entry.expect("an entry").path()))
        .collect()
}
