//! Drops archived entries. A cut records the drop, and the cut is sealed before any entry is
//! dropped.

use std::time::{Duration, Instant};

use chrono::{DateTime, Days, TimeDelta, Utc};
use tokio::time::sleep;

use super::writing::{ArchiveOrder, Archived, archive_ledger};
use super::{ArchiveFailure, compare_archive, not_yet, refused};
use claims::instance::Pace;
use domain::identity::to_micros;
use domain::record::RecordPlace;
use host::faults::reach;
use ledger::{Act, ActKind, Cut, CutText, DropCursor, Ledger, LedgerError};
use verify::archive::check_archive;

/// The longest time between the begin or end of a day in UTC and in any zone, including wrong
/// clocks.
const ZONES_DIFFER: TimeDelta = TimeDelta::days(4);
/// The longest wait for the seal of a cut.
const SEAL_TIME: Duration = Duration::from_secs(60);
const SEAL_LOOK: Duration = Duration::from_millis(200);
/// The author of the act.
const BY: &str = "perdiem";

/// What was dropped.
#[derive(Debug)]
pub struct DroppedArchive {
    pub archived: Archived,
    /// How many entries this run dropped.
    pub entries: u64,
    /// How many entries up to the last position are kept.
    pub kept: u64,
    pub last: u64,
}

/// The entries that a drop will drop, and how often accounts had got random ids before they were
/// counted.
struct Survey {
    entries: u64,
    moves: u64,
}

/// Archives what was recorded before an instant, and drops the archived entries that nothing needs
/// any more. After an interruption the same call continues. `tell` gets the progress of the
/// archive in positions, and `tell_dropped` that of the drop in entries.
///
/// Invariant: an entry is dropped only after a cut that names it was sealed.
///
/// # Errors
/// [`ArchiveFailure`].
pub async fn drop_archived(
    ledger: &Ledger,
    order: &ArchiveOrder,
    now: DateTime<Utc>,
    tell: impl Fn(u64, u64),
    tell_dropped: impl Fn(u64, u64),
) -> Result<Option<DroppedArchive>, ArchiveFailure> {
    // 1. Check the date, and that this user may drop entries.
    check_age(ledger, order.before, now).await?;
    if !ledger.record().may_drop().await? {
        return refused(
            "only the owner of the ledger's tables may drop entries: run this as the user that runs \
             `perdiem migrate`"
                .to_owned(),
        );
    }
    // 2. Archive, read the archive back, and compare it with the ledger and the seals over it.
    let Some(archived) = archive_ledger(ledger, order, now, &tell).await? else {
        return Ok(None);
    };
    let checked = check_archive(&order.folder, order.key.as_ref(), &tell).await?;
    compare_archive(ledger, &order.folder, &checked, &tell).await?;
    // 3. Record a cut: up to which position entries will be dropped. An interrupted run has
    //    recorded it already.
    let wanted = ledger.record().mark_before(order.before).await?.position;
    let last_cut = ledger.record().last_cut(RecordPlace::LAST).await?;
    let (cut, survey) = match last_cut.filter(|cut| wanted <= cut.text.last_position) {
        Some(cut) if cut.text.last_position <= checked.index.last => {
            let survey = survey(ledger, cut.place).await?;
            (cut, survey)
        }
        Some(cut) => {
            let last = cut.text.last_position;
            let place = order.folder.display();
            return refused(format!(
                "an earlier cut goes up to position {last}, but {place} ends before it: name the \
                 folder of that cut"
            ));
        }
        None => {
            let place = ledger.record().mark_to(wanted).await?.place;
            check_figures(ledger, order.before).await?;
            let survey = survey(ledger, place).await?;
            // After the survey: another drop may go on, and `verify` must never miss an entry.
            let entries = ledger.record().count_entries(place).await?;
            let text = CutText {
                before: order.before,
                last_position: wanted,
                kept_entries: entries.saturating_sub(survey.entries),
                origin: checked.index.origin,
                root: checked.index.root,
            };
            (record(ledger, text, order, now).await?, survey)
        }
    };
    // 4. Wait until the cut is sealed. Dropped entries without a sealed cut would look like a
    //    deletion by hand.
    wait_for_seal(ledger, &cut).await?;
    // 5. Drop the entries, a few in each transaction. What a transaction drops is found before it, and
    //    it pauses after it, so that it holds its locks briefly.
    let mut entries = 0;
    let mut next = Some(DropCursor::FIRST);
    while let Some(from) = next {
        let pace = Pace::begin();
        let step = ledger.record().drop_step(cut.place, from).await?;
        reach("drop.found");
        let Some(dropped) = ledger.record().drop_entries(&cut, &step).await? else {
            return not_yet(ERASING.to_owned());
        };
        reach("drop.committed");
        entries += dropped;
        tell_dropped(entries, survey.entries);
        next = step.next;
        pace.rest().await;
    }
    // 6. An account that got its random id meanwhile may have moved to an id that was passed before.
    if ledger.record().account_moves().await? != Some(survey.moves) {
        return not_yet(ERASING.to_owned());
    }
    Ok(Some(DroppedArchive {
        archived,
        entries,
        kept: cut.text.kept_entries,
        last: cut.text.last_position,
    }))
}

const ERASING: &str = "the account of an erased subject gets its random id at the moment: run the \
     same command again in a minute";

/// Finds all entries that a cut up to a place drops.
async fn survey(ledger: &Ledger, up_to: RecordPlace) -> Result<Survey, ArchiveFailure> {
    let Some(moves) = ledger.record().account_moves().await? else {
        return not_yet(ERASING.to_owned());
    };
    let mut entries = 0;
    let mut next = Some(DropCursor::FIRST);
    while let Some(from) = next {
        let pace = Pace::begin();
        let step = ledger.record().drop_step(up_to, from).await?;
        entries += step.entries;
        next = step.next;
        pace.rest().await;
    }
    if ledger.record().account_moves().await? == Some(moves) {
        Ok(Survey { entries, moves })
    } else {
        not_yet(ERASING.to_owned())
    }
}

/// The date must be old enough by the record's clock and by this machine's clock: the earlier one
/// counts.
async fn check_age(
    ledger: &Ledger,
    before: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), ArchiveFailure> {
    let newest = ledger.record().last_mark().await?;
    let (end, of) = if newest.position > 0 && newest.recorded_at < now {
        (
            newest.recorded_at,
            "before the newest position of the record",
        )
    } else {
        (now, "before now")
    };
    let latest = end - Cut::KEPT_TIME;
    if before <= latest {
        Ok(())
    } else {
        refused(format!(
            "entries of the last {} days {of} cannot be dropped, since windows and reports may \
             need them: the latest date for --before with --drop is {}; nothing was done",
            Cut::KEPT_TIME.num_days(),
            latest.date_naive()
        ))
    }
}

/// Refuses a cut whose entries the statistics still need.
async fn check_figures(ledger: &Ledger, before: DateTime<Utc>) -> Result<(), ArchiveFailure> {
    let counted = ledger
        .record()
        .mark_before(before + ZONES_DIFFER)
        .await?
        .position;
    if ledger.figures().figures_position().await? < counted {
        not_yet(
            "the statistics do not have these entries yet: let an instance make them, and run the \
             same command again"
                .to_owned(),
        )
    } else {
        Ok(())
    }
}

/// Adds the act of a cut.
async fn record(
    ledger: &Ledger,
    text: CutText,
    order: &ArchiveOrder,
    now: DateTime<Utc>,
) -> Result<Cut, ArchiveFailure> {
    let about = serde_json::to_string(&text);
    let about = about.map_err(|error| LedgerError::Corrupt(error.to_string()))?;
    let act = Act {
        revision: 0,
        kind: ActKind::Cut,
        about,
        at: to_micros(now),
        by: BY.to_owned(),
        reason: order.reason.clone(),
    };
    let kept_to = order.before.date_naive() + Days::new(1);
    let revision = ledger.record().add_cut(&act, kept_to).await?;
    Ok(Cut {
        revision,
        place: ledger.record().mark_to(text.last_position).await?.place,
        text,
    })
}

async fn wait_for_seal(ledger: &Ledger, cut: &Cut) -> Result<(), ArchiveFailure> {
    let begun = Instant::now();
    while !is_sealed(ledger, cut).await? {
        if begun.elapsed() >= SEAL_TIME {
            return not_yet(format!(
                "the cut is recorded (change {}), but not sealed yet: nothing was dropped. Let an \
                 instance with PERDIEM_SEAL_KEY_FILE seal it, and run the same command again",
                cut.revision
            ));
        }
        sleep(SEAL_LOOK).await;
    }
    Ok(())
}

async fn is_sealed(ledger: &Ledger, cut: &Cut) -> Result<bool, LedgerError> {
    let Some(place) = ledger.record().place_of_change(cut.revision).await? else {
        return Ok(false);
    };
    let position = ledger.record().position_of(place).await?;
    let seal = ledger.audit().last_seal().await?;
    Ok(position
        .zip(seal)
        .is_some_and(|(position, seal)| position <= seal.size))
}
