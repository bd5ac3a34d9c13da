//! Prints the measurements of a trial on one line.

use std::fmt::Write;
use std::time::Duration;

use crate::judge::{Attempt, History, Outcome, Why};

/// The line of a trial with more marks contains none of them.
const MARKS_MOST: usize = 16;

/// The actions on the servers, with their times.
pub fn course(history: &History) -> String {
    let lines = history.marks.iter();
    let lines = lines.map(|mark| format!("{:9.3} s  {}\n", mark.at.as_secs_f64(), mark.what));
    lines.collect()
}

/// One line. For each mark, it has the time until the first later grant (at any instance, and at
/// the slowest instance) and the share of 5xx until the next mark. Then it has the totals.
pub fn line(name: &str, history: &History, instances: usize, healed: usize, seed: u64) -> String {
    let mut line = format!("faults: {name}");
    let shown = if history.marks.len() <= MARKS_MOST {
        &history.marks[..]
    } else {
        &[]
    };
    for (index, mark) in shown.iter().enumerate() {
        let end = history.marks.get(index + 1).map(|next| next.at);
        let first = |instance: Option<usize>| {
            let grants = history.attempts.iter().filter(|attempt| {
                attempt.began >= mark.at
                    && instance.is_none_or(|instance| attempt.instance == instance)
                    && matches!(attempt.outcome, Outcome::Granted(_))
            });
            let ended = grants.map(|attempt| attempt.ended).min()?;
            Some(ended - mark.at)
        };
        let slowest = (0..instances).map(|instance| first(Some(instance)));
        let slowest: Option<Vec<Duration>> = slowest.collect();
        let slowest = slowest.and_then(|firsts| firsts.into_iter().max());
        let during: Vec<&Attempt> = history
            .attempts
            .iter()
            .filter(|attempt| attempt.began >= mark.at && end.is_none_or(|end| attempt.began < end))
            .collect();
        let _ = write!(
            line,
            " | {}: first grant {} (slowest instance {}), 5xx {}, cut {}",
            mark.what,
            millis(first(None)),
            millis(slowest),
            share(&during, |outcome| outcome
                == &Outcome::Unknown(Why::Undecided)),
            share(&during, |outcome| matches!(
                outcome,
                Outcome::Unknown(Why::Silence | Why::Broken)
            )),
        );
    }
    let count = |is: fn(&Outcome) -> bool| {
        let attempts = history.attempts.iter();
        attempts.filter(|attempt| is(&attempt.outcome)).count()
    };
    let _ = write!(
        line,
        " | {} attempts: {} granted, {} repeated, {} denied, {} unknown; longest wait for a \
         grant {}; {healed} counters healed; seed {seed}",
        history.attempts.len(),
        count(|outcome| matches!(outcome, Outcome::Granted(_))),
        count(|outcome| matches!(outcome, Outcome::Repeated(_))),
        count(|outcome| matches!(outcome, Outcome::Denied)),
        count(|outcome| !outcome.is_known()),
        millis(longest_wait(history)),
    );
    line
}

/// The longest time without a grant under load.
fn longest_wait(history: &History) -> Option<Duration> {
    let mut ends: Vec<Duration> = history
        .attempts
        .iter()
        .filter(|attempt| matches!(attempt.outcome, Outcome::Granted(_)))
        .map(|attempt| attempt.ended)
        .filter(|ended| history.quiet_since.is_none_or(|quiet| *ended < quiet))
        .collect();
    ends.sort_unstable();
    ends.windows(2).map(|pair| pair[1] - pair[0]).max()
}

fn millis(time: Option<Duration>) -> String {
    time.map_or("none".to_owned(), |time| format!("{} ms", time.as_millis()))
}

fn share(attempts: &[&Attempt], is: impl Fn(&Outcome) -> bool) -> String {
    let count = attempts
        .iter()
        .filter(|attempt| is(&attempt.outcome))
        .count();
    let share = 100.0 * count as f64 / attempts.len().max(1) as f64;
    format!("{share:.1} %")
}
