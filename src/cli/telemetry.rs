//! Logs: structured lines on standard error. Each place in the code writes a limited number of
//! lines.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, interval};
use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt};

use crate::config::{LogArgs, LogFormat};

/// The most lines that one place in the code writes in a second.
const LINES_A_SECOND: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);
/// The time between two lines that say what was left out.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Starts the log. Call it on a runtime: a task there reports the lines that were left out.
///
/// # Errors
/// The levels are wrong, or the process has a log already.
pub fn start(args: &LogArgs) -> anyhow::Result<()> {
    let filter = args.log.parse::<Targets>()?;
    let lines = fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match args.log_format {
        LogFormat::Human => Box::new(lines.with_target(false)),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).with_span_list(false)),
    };
    let sparing = Sparing::default();
    tokio::spawn(tell_left_out(sparing.clone()));
    tracing_subscriber::registry()
        .with(lines.with_filter(sparing))
        .with(filter)
        .try_init()?;
    Ok(())
}

/// Limits the lines that each place in the code writes in a second, so that no caller can flood the
/// log. Lines of the levels debug and trace are not limited.
#[derive(Debug, Clone, Default)]
struct Sparing(Arc<Mutex<HashMap<Identifier, Written>>>);

/// What one place in the code wrote.
#[derive(Debug)]
struct Written {
    place: &'static Metadata<'static>,
    second_began: Instant,
    lines: u32,
    left_out: u64,
}

impl Sparing {
    /// Whether this place may write one more line now.
    fn lets_through(&self, place: &'static Metadata<'static>, now: Instant) -> bool {
        if *place.level() > tracing::Level::INFO {
            return true;
        }
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = places.entry(place.callsite()).or_insert(Written {
            place,
            second_began: now,
            lines: 0,
            left_out: 0,
        });
        if now - written.second_began >= SECOND {
            written.second_began = now;
            written.lines = 0;
        }
        let is_written = written.lines < LINES_A_SECOND;
        if is_written {
            written.lines += 1
        } else {
            written.left_out += 1
        }
        is_written
    }

    /// The places whose lines were left out since the last call, with the number of lines.
    fn take_left_out(&self) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let suppressed = places
            .values_mut()
            .map(|written| (written.place, std::mem::take(&mut written.left_out)));
        suppressed.filter(|(_, left_out)| *left_out > 0).collect()
    }
}

impl<S: Subscriber> Filter<S> for Sparing {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.lets_through(event.metadata(), Instant::now())
    }
}

/// Reports from time to time how many lines were left out.
async fn tell_left_out(sparing: Sparing) {
    let mut ticks = interval(TELL_EVERY);
    loop {
        ticks.tick().await;
        for (place, lines) in sparing.take_left_out() {
            let module = place.target();
            let line = place.line();
            tracing::warn!(
                lines,
                module,
                line,
                "log lines were left out: one place in the code wrote too many"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines in memory.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let sparing = Sparing::default();
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().with_writer(move || writer.clone());
        let log = tracing_subscriber::registry().with(layer.with_filter(sparing.clone()));
        tracing::subscriber::with_default(log, || {
            for attempt in 0..10_000 {
                tracing::error!(attempt, "a flood");
            }
            tracing::error!("another matter");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let written = text.matches("a flood").count() as u64;
        let left_out: Vec<u64> = sparing
            .take_left_out()
            .iter()
            .map(|(_, lines)| *lines)
            .collect();
        assert_eq!(left_out, [10_000 - written]);
        assert!(written >= 10 && text.contains("another matter"), "{text}");
        assert!(sparing.take_left_out().is_empty());
    }
}
