//! `perdiem-verify`: checks archives, exports and proofs by their files alone.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use perdiem_verify::program::{Verify, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Verify::parse().given).await {
        Ok(told) => {
            // A reader may close the pipe when it has seen enough.
            let _ = writeln!(io::stdout(), "{}", told.join("\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("perdiem-verify: {error:#}");
            ExitCode::FAILURE
        }
    }
}
