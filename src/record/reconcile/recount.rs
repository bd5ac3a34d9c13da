//! Counts the figures of one closed day again, from its entries.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::findings::Findings;
use claims::instance::Pace;
use domain::identity::EntryId;
use domain::local_days::LocalDays;
use domain::reconciliation::{DayFigure, Difference, DifferenceKind};
use domain::record::RecordPlace;
use domain::statistics::{
    DayFigures, FIGURES_OF_SUBJECTS, FigureDay, FigureSums, SubjectDay, TalliedEntry, sum,
};
use ledger::{CountedDay, FiguresMark, Ledger, LedgerError};

/// The number of entries in one read.
const PAGE: u32 = 500;

/// Counts the figures of a day that the record tells, chosen by a random number. A day with a wrong
/// figure in the newest report is chosen again, until its figures are right.
///
/// # Errors
/// [`LedgerError::Unavailable`].
pub async fn recount_day(
    ledger: &Ledger,
    random: u64,
    now: DateTime<Utc>,
    findings: &mut Findings,
) -> Result<(), LedgerError> {
    match wrong_figures(ledger, random, now).await {
        Ok(wrong) => wrong.into_iter().for_each(|figure| findings.add(figure)),
        // The walk reports the entries that cannot be read.
        Err(LedgerError::Corrupt(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn wrong_figures(
    ledger: &Ledger,
    random: u64,
    now: DateTime<Utc>,
) -> Result<Vec<Difference>, LedgerError> {
    let Some(day) = ledger.figures().day_to_recount(random, now).await? else {
        return Ok(Vec::new());
    };
    let mut wrong = compare(ledger, day).await?;
    // A difference must be found twice: entries can be dropped during the count.
    if !wrong.is_empty() {
        let again = compare(ledger, day).await?;
        wrong.retain(|difference| again.contains(difference));
    }
    Ok(wrong)
}

/// Compares the figures of a day with those of its entries.
async fn compare(ledger: &Ledger, day: CountedDay) -> Result<Vec<Difference>, LedgerError> {
    // 1. Read the stored figures, and the end of the entries that are in them.
    let stored = ledger.figures().stored_figures_on(day).await?;
    let FiguresMark { position, kept_to } = stored.mark;
    let marks = ledger
        .record()
        .marks_to_follow(position..position + 1)
        .await?;
    let Some(mark) = marks.first().filter(|mark| mark.position == position) else {
        return Ok(Vec::new());
    };
    // 2. Entries that may be dropped cannot be counted again.
    let recorded_on = stored.figures.iter().map(|figure| figure.day.recorded_on);
    let first = recorded_on.chain([day.date]).min();
    if first <= kept_to {
        return Ok(Vec::new());
    }
    // 3. Count the entries, and compare. Numbers of subjects are left out.
    let made = count(ledger, day, mark.place).await?;
    let mut figures: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for figure in stored.figures {
        let (found, _) = figures.entry(figure.name).or_default();
        *found = sum(*found, figure.value);
    }
    for (name, value) in made.named() {
        figures.entry(name.to_owned()).or_default().1 = value;
    }
    let figures = figures.into_iter().filter(|(name, (found, made))| {
        found != made && !FIGURES_OF_SUBJECTS.contains(&name.as_str())
    });
    let wrong = figures.map(|(name, (found, made))| Difference {
        kind: DifferenceKind::WrongFigure,
        account: None,
        figure: Some(DayFigure {
            policy: day.policy,
            counted_on: day.date,
            name,
        }),
        found: Some(found),
        expected: Some(made),
        windows: Vec::new(),
        is_healed: false,
    });
    Ok(wrong.collect())
}

/// The figures of the entries that count on a day, up to a place of the record.
async fn count(
    ledger: &Ledger,
    day: CountedDay,
    up_to: RecordPlace,
) -> Result<DayFigures, LedgerError> {
    let versions = ledger.record().versions_to_follow(&[day.policy]).await?;
    let days = LocalDays::of(&versions);
    let first = EntryId::first_from(days.start(day.date));
    let end = EntryId::first_from(days.end(day.date));
    let before = EntryId(Uuid::from_u128(first.0.as_u128() - 1));
    let of = FigureDay {
        policy: day.policy,
        counted_on: day.date,
        recorded_on: day.date,
    };
    let mut sums = FigureSums::default();
    let mut add = |entry: &TalliedEntry| {
        if entry.policy == day.policy && entry.place <= up_to {
            sums.add(of, entry, &mut SubjectDay::default());
        }
    };
    // 1. Grants and adjustments count at the instants of their own ids.
    let mut above = before;
    loop {
        let pace = Pace::begin();
        let page = ledger
            .figures()
            .tallied_ids(day.policy, above, end, PAGE)
            .await?;
        let Some(last) = page.last() else {
            break;
        };
        above = last.place.id;
        let counted = page.iter().filter(|entry| entry.kind.of().is_none());
        counted.for_each(&mut add);
        pace.rest().await;
    }
    // 2. Entries that name a grant count at its instant.
    let mut after = (before, 0);
    loop {
        let pace = Pace::begin();
        let page = ledger.figures().tallied_followers(after, end, PAGE).await?;
        let last = page.last();
        let Some((grant, number)) = last.and_then(|last| Some((last.kind.of()?, last.number)))
        else {
            break;
        };
        after = (grant, number);
        page.iter().for_each(&mut add);
        pace.rest().await;
    }
    Ok(sums.0.remove(&of).unwrap_or_default())
}
