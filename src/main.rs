//! The binary: reads the command line and runs it.

use std::process::ExitCode;

use clap::Parser;
use perdiem::cli::{self, Cli};

/// A claim allocates some hundred times, on one thread, and frees on another: glibc's allocator
/// took a seventh of the service's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    #[cfg(feature = "faults")]
    perdiem::faults::arm();
    cli::run(Cli::parse()).await
}
