//! The binary: reads the command line and runs it.

use std::process::ExitCode;

use clap::Parser;
use perdiem::cli::{self, Cli};

#[tokio::main]
async fn main() -> ExitCode {
    #[cfg(feature = "faults")]
    perdiem::faults::arm();
    cli::run(Cli::parse()).await
}
