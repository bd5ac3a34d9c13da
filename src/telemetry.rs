//! Logs: structured lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogArgs, LogFormat};

/// Begins to log.
///
/// # Errors
/// A filter that cannot be read.
pub fn start(args: &LogArgs) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&args.log)
        .map_err(|error| anyhow::anyhow!("PERDIEM_LOG cannot be read: {error}; write info"))?;
    let lines = fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Human => lines.with_target(false).finish().try_init()?,
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_span_list(false);
            lines.finish().try_init()?
        }
    }
    Ok(())
}
