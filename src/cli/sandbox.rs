//! The clock of a sandbox.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;

use super::ServerArgs;
use super::client::{call, read, request, show};
use super::local::LocalTime;
use super::times::GivenTime;
use api::sandbox::{SandboxClockAnswer, SandboxClockBody};

const CLOCK: &str = "/v1/sandbox/clock";

#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    /// Show the time of a sandbox, or move it forward
    Clock(ClockArgs),
}

#[derive(Debug, Args)]
pub struct ClockArgs {
    /// Time to move to, such as +1d, +2h, 2026-12-01 or an instant; a date is one of UTC
    #[arg(allow_hyphen_values = true)]
    time: Option<GivenTime>,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn run(command: SandboxCommand) -> anyhow::Result<ExitCode> {
    match command {
        SandboxCommand::Clock(args) => clock(args).await,
    }
}

async fn clock(args: ClockArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let mut answer = call(request(server, Method::GET, CLOCK)?).await?;
    if args.time.is_some() {
        let SandboxClockAnswer { now } = read(&answer)?;
        let body = SandboxClockBody {
            at: LocalTime::utc().at(now).instant_text(args.time)?,
            advance_seconds: None,
        };
        answer = call(request(server, Method::POST, CLOCK)?.json(&body)).await?;
    }
    show(server, &answer, |clock: &SandboxClockAnswer| {
        println!("{}", LocalTime::utc().show(clock.now));
    })
}
