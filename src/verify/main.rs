//! `perdiem-verify`: checks archives, exports and proofs by their files alone.

use std::process::ExitCode;

use clap::Parser;
use perdiem_verify::program::{Verify, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Verify::parse().check).await {
        Ok(told) => {
            told.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("perdiem-verify: {error:#}");
            ExitCode::FAILURE
        }
    }
}
