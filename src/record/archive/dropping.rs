//! Drops archived entries. A cut records the drop, and the cut is sealed before any entry is
//! dropped.

use std::time::{Duration, Instant};

use chrono::{DateTime, Days, TimeDelta, Utc};
use tokio::time::sleep;

use super::writing::{ArchiveOrder, Archived, archive_ledger};
use super::{ArchiveFailure, compare_archive, not_yet, refused};
use crate::cut::drop_scopes;
use claims::instance::Pace;
use domain::identity::to_micros;
use domain::keeping::{KEPT_DAYS, needed_days};
use domain::record::RecordPlace;
use host::faults::reach;
use ledger::{Act, ActKind, Cut, CutText, DropCursor, DropScope, DropStep, Ledger, LedgerError};
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
    /// How many policies keep more of their entries, because they need them for more days.
    pub spared: usize,
}

/// A recorded cut, and what it drops.
struct DropPlan {
    cut: Cut,
    scopes: Vec<DropScope>,
    survey: Survey,
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
    let age_days = check_age(ledger, order.before, now).await?;
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
    // 3. Plan the drop: an interrupted run has recorded its cut already. The drop of an earlier cut is ended first, so
    //    that what the next one keeps does not change any more.
    let wanted = ledger.record().mark_before(order.before).await?.position;
    let last_cut = ledger.record().last_cut(RecordPlace::LAST).await?;
    let mut entries = 0;
    let plan = match last_cut {
        Some(cut) if wanted <= cut.text.last_position => {
            let last = cut.text.last_position;
            if last > checked.index.last {
                let place = order.folder.display();
                return refused(format!(
                    "an earlier cut goes up to position {last}, but {place} ends before it: name the \
                     folder of that cut"
                ));
            }
            DropPlan::of(ledger, cut).await?
        }
        earlier => {
            if let Some(cut) = earlier {
                let unfinished = DropPlan::of(ledger, cut).await?;
                entries += unfinished.run(ledger, &tell_dropped).await?;
            }
            check_figures(ledger, order.before).await?;
            let text = CutText {
                before: order.before,
                age_days,
                last_position: wanted,
                kept_entries: 0,
                origin: checked.index.origin,
                root: checked.index.root,
            };
            DropPlan::record(ledger, text, order, now).await?
        }
    };
    entries += plan.run(ledger, &tell_dropped).await?;
    Ok(Some(DroppedArchive {
        archived,
        entries,
        kept: plan.cut.text.kept_entries,
        last: plan.cut.text.last_position,
        spared: plan.spared(),
    }))
}
const ERASING: &str = "the account of an erased subject gets its random id at the moment: run the \
     same command again in a minute";

impl DropPlan {
    /// What a recorded cut still drops.
    async fn of(ledger: &Ledger, cut: Cut) -> Result<Self, ArchiveFailure> {
        let scopes = drop_scopes(ledger, &cut.text, cut.revision - 1).await?;
        let survey = survey(ledger, &scopes).await?;
        Ok(Self {
            cut,
            scopes,
            survey,
        })
    }

    /// Records a new cut.
    async fn record(
        ledger: &Ledger,
        mut text: CutText,
        order: &ArchiveOrder,
        now: DateTime<Utc>,
    ) -> Result<Self, ArchiveFailure> {
        let place = ledger.record().mark_to(text.last_position).await?.place;
        // If a policy is changed meanwhile, it may need other entries.
        loop {
            let known_to = ledger.admin().revision().await?;
            let scopes = drop_scopes(ledger, &text, known_to).await?;
            let survey = survey(ledger, &scopes).await?;
            // After the survey: another drop may go on, and `verify` must never miss an entry.
            let entries = ledger.record().count_entries(place).await?;
            text.kept_entries = entries.saturating_sub(survey.entries);
            if let Some(cut) = record(ledger, &text, known_to, order, now).await? {
                return Ok(Self {
                    cut,
                    scopes,
                    survey,
                });
            }
        }
    }

    /// How many policies keep more than the cut's own date says.
    fn spared(&self) -> usize {
        let before = self.cut.text.before;
        let later = self.scopes.iter().filter(|scope| scope.before < before);
        later.map(|scope| scope.policies.len()).sum()
    }

    /// Drops the entries. Returns how many this run dropped.
    async fn run(
        &self,
        ledger: &Ledger,
        tell_dropped: impl Fn(u64, u64),
    ) -> Result<u64, ArchiveFailure> {
        // 1. Wait until the cut is sealed. Dropped entries without a sealed cut would look like a deletion by hand.
        wait_for_seal(ledger, &self.cut).await?;
        // 2. Drop a few entries in each transaction. What a transaction drops is found before it, and it pauses after it,
        //    so that it holds its locks briefly.
        let mut entries = 0;
        each_step(ledger, &self.scopes, async |step| {
            reach("drop.found");
            let Some(dropped) = ledger.record().drop_entries(&self.cut, step).await? else {
                return not_yet(ERASING.to_owned());
            };
            reach("drop.committed");
            entries += dropped;
            tell_dropped(entries, self.survey.entries);
            Ok(())
        })
        .await?;
        // 3. An account that got its random id meanwhile may have moved to an id that was passed before.
        if ledger.record().account_moves().await? != Some(self.survey.moves) {
            return not_yet(ERASING.to_owned());
        }
        Ok(entries)
    }
}

/// Finds the steps of a drop, and does something with each one. It pauses in between.
async fn each_step(
    ledger: &Ledger,
    scopes: &[DropScope],
    mut act: impl AsyncFnMut(&DropStep) -> Result<(), ArchiveFailure>,
) -> Result<(), ArchiveFailure> {
    for scope in scopes {
        let mut next = Some(DropCursor::FIRST);
        while let Some(from) = next {
            let pace = Pace::begin();
            let step = ledger.record().drop_step(scope, from).await?;
            act(&step).await?;
            next = step.next;
            pace.rest().await;
        }
    }
    Ok(())
}

/// Finds all entries that a cut drops.
async fn survey(ledger: &Ledger, scopes: &[DropScope]) -> Result<Survey, ArchiveFailure> {
    let Some(moves) = ledger.record().account_moves().await? else {
        return not_yet(ERASING.to_owned());
    };
    let mut entries = 0;
    each_step(ledger, scopes, async |step| {
        entries += step.entries;
        Ok(())
    })
    .await?;
    if ledger.record().account_moves().await? == Some(moves) {
        Ok(Survey { entries, moves })
    } else {
        not_yet(ERASING.to_owned())
    }
}

/// How many days ago the date was, by the record's clock and by this machine's clock: the earlier one counts. The date
/// must be old enough for one policy at least.
async fn check_age(
    ledger: &Ledger,
    before: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<u32, ArchiveFailure> {
    // 1. The days that have passed.
    let newest = ledger.record().last_mark().await?;
    let (end, of) = if newest.position > 0 && newest.recorded_at < now {
        (
            newest.recorded_at,
            "before the newest position of the record",
        )
    } else {
        (now, "before now")
    };
    let age_days = u32::try_from((end - before).num_days()).unwrap_or(0);
    // 2. The days that the policy needs which needs the fewest.
    let known_to = ledger.admin().revision().await?;
    let versions = ledger.record().older_versions(known_to + 1, None).await?;
    let policies = versions.chunk_by(|one, next| one.id == next.id);
    let needed = policies.map(|versions| (needed_days(versions, end), &versions[0].name));
    let least = needed.min_by_key(|(days, _)| *days);
    let days = least.map_or(KEPT_DAYS, |(days, _)| days);
    if age_days >= days {
        return Ok(age_days);
    }
    let whose = least.map_or_else(String::new, |(_, name)| format!(" of {name}"));
    let latest = end - TimeDelta::days(days.into());
    refused(format!(
        "entries{whose} of the last {days} days {of} cannot be dropped, since windows, repeated claims and reports \
         may need them, and other policies need theirs for as long or longer: the latest date for --until with --drop \
         is {}; nothing was done",
        latest.date_naive()
    ))
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

/// Adds the act of a cut, unless a policy has changed since a revision.
async fn record(
    ledger: &Ledger,
    text: &CutText,
    as_of: u64,
    order: &ArchiveOrder,
    now: DateTime<Utc>,
) -> Result<Option<Cut>, LedgerError> {
    let about = serde_json::to_string(text);
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
    ledger.record().add_cut(&act, kept_to, as_of).await
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
