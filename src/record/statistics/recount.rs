//! The check of the figures: they are made again from the entries, and compared with the stored ones
//! and with those that the record has.

use std::collections::{BTreeMap, BTreeSet};

use super::tally::{FigureTally, POSITIONS_MOST};
use domain::record::Mark;
use domain::statistics::{
    DayFigures, FIGURES_OF_DENIALS, FIGURES_OF_SUBJECTS, FigureDay, FigureSums, sum,
};
use ledger::{FiguresMark, Ledger, LedgerError, NamedDay, RecordedDay, StoredFigures};

/// Figures that agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedFigures {
    /// How many days of policies have figures.
    pub days: u64,
    /// How many of them the record tells.
    pub recorded: u64,
}

/// Why the figures cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum FigureFailure {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A figure, and what it should be.
    #[error("{0}")]
    Differs(String),
}

/// The figures by their days and names.
type NamedFigures<D> = BTreeMap<(D, String), u64>;

/// Makes the figures of all entries again, and compares them with the stored figures, and these with the
/// acts of days that have closed.
///
/// # Errors
/// [`FigureFailure`].
pub async fn check_figures(
    ledger: &Ledger,
    tell: impl Fn(u64, u64),
) -> Result<CheckedFigures, FigureFailure> {
    // 1. The stored figures, before anything else: a day whose figures change from now on is open.
    let stored = ledger.figures().stored_figures().await?;
    let denied = ledger.figures().denied_on_days().await?;
    // 2. They are what the entries make them.
    let made = make_again(ledger, &stored.mark, tell).await?;
    compare(&stored, &made)?;
    // 3. They are what the record tells of closed days.
    let mut by_day: NamedFigures<NamedDay> = BTreeMap::new();
    for figure in &stored.figures {
        let policy = stored.policies[&figure.day.policy].to_string();
        let of = ((policy, figure.day.counted_on), figure.name.clone());
        let value = by_day.entry(of).or_default();
        *value = sum(*value, figure.value);
    }
    for (day, counts) in denied {
        for (name, value) in FIGURES_OF_DENIALS
            .into_iter()
            .zip([counts.denied, counts.not_kept])
        {
            by_day.insert((day.clone(), name.to_owned()), value);
        }
    }
    let recorded = ledger.figures().recorded_days().await?;
    for (day, (revision, recorded)) in &recorded {
        check_recorded(day, *revision, recorded, &by_day)?;
    }
    let days = by_day.keys().map(|(day, _)| day);
    Ok(CheckedFigures {
        days: BTreeSet::from_iter(days).len() as u64,
        recorded: recorded.len() as u64,
    })
}

/// Makes the figures of the entries up to a position. Entries that may be dropped are left out.
async fn make_again(
    ledger: &Ledger,
    mark: &FiguresMark,
    tell: impl Fn(u64, u64),
) -> Result<FigureSums, LedgerError> {
    let mut tally = FigureTally::without_subjects(ledger.clone());
    let mut all = FigureSums::default();
    let mut before = Mark::FIRST;
    loop {
        tell(before.position, mark.position);
        let marks = ledger
            .record()
            .marks_to_follow(before.position + 1..before.position + POSITIONS_MOST + 1)
            .await?;
        let marks: Vec<Mark> = marks
            .into_iter()
            .take_while(|next| next.position <= mark.position)
            .collect();
        let Some(last) = marks.last() else {
            return Ok(all);
        };
        let figures = tally.figures(before, &marks, last, mark.kept_to).await?;
        all.extend(figures.days);
        before = *last;
    }
}

/// Compares stored figures with those of the entries. Figures of entries that may be dropped cannot be
/// made again. Neither can the numbers of subjects.
fn compare(stored: &StoredFigures, made: &FigureSums) -> Result<(), FigureFailure> {
    let kept_to = stored.mark.kept_to;
    let is_kept = |day: &FigureDay, name: &str| {
        FIGURES_OF_SUBJECTS.contains(&name)
            || kept_to.is_some_and(|kept_to| day.recorded_on <= kept_to)
    };
    let named = |(day, figures): (&FigureDay, &DayFigures)| {
        let day = *day;
        let named: Vec<_> = figures.named().collect();
        named
            .into_iter()
            .map(move |(name, value)| ((day, name.to_owned()), value))
    };
    let made: NamedFigures<FigureDay> = made.0.iter().flat_map(named).collect();
    let found = stored.figures.iter();
    let found = found.map(|figure| ((figure.day, figure.name.clone()), figure.value));
    let found: NamedFigures<FigureDay> = found.collect();
    for of in BTreeSet::from_iter(found.keys().chain(made.keys())) {
        let value =
            |figures: &NamedFigures<FigureDay>| figures.get(of).copied().unwrap_or_default();
        let (day, name) = of;
        if value(&found) != value(&made) && !is_kept(day, name) {
            return Err(differs(stored, day, name, value(&found), value(&made)));
        }
    }
    Ok(())
}

fn differs(
    stored: &StoredFigures,
    day: &FigureDay,
    name: &str,
    found: u64,
    made: u64,
) -> FigureFailure {
    let policy = stored.policies.get(&day.policy);
    let policy = policy.map_or_else(|| format!("policy {}", day.policy.0), ToString::to_string);
    let FigureDay {
        counted_on,
        recorded_on,
        ..
    } = day;
    FigureFailure::Differs(format!(
        "the figure {name} of {policy} on {counted_on}, recorded on {recorded_on}, is {found}, but the \
         entries make it {made}: somebody changed the table day_figures"
    ))
}

/// Compares a closed day with what the record tells of it.
fn check_recorded(
    (policy, date): &NamedDay,
    revision: u64,
    recorded: &RecordedDay,
    found: &NamedFigures<NamedDay>,
) -> Result<(), FigureFailure> {
    let day = (policy.clone(), *date);
    let of_day = found.range((day.clone(), String::new())..);
    let of_day = of_day.take_while(|((of, _), _)| *of == day);
    let names = of_day
        .map(|((_, name), _)| name)
        .chain(recorded.figures.keys());
    for name in names {
        let value = |figure: Option<&u64>| figure.copied().unwrap_or_default();
        let is = value(found.get(&(day.clone(), name.clone())));
        let was = value(recorded.figures.get(name));
        if is != was {
            let table = if FIGURES_OF_DENIALS.contains(&name.as_str()) {
                "denied_claims"
            } else {
                "day_figures"
            };
            return Err(FigureFailure::Differs(format!(
                "the figure {name} of {policy} on {date} is {is}, but the record tells {was} (change \
                 {revision}): somebody changed the table {table}"
            )));
        }
    }
    Ok(())
}
