//! The commands about top-ups: units that a subject has beside its windows.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::ServerArgs;
use super::client::segment;
use super::corrections::enter_for;
use super::local::{LocalTime, present};
use super::times::GivenTime;
use api::strict::WholeNumber;
use api::top_ups::{TopUpRequest, TopUpReversalRequest};

#[derive(Debug, Subcommand)]
pub enum TopUpCommand {
    /// Give a subject units beside its windows, until a time
    Give(TopUpArgs),
    /// Take back what is left of a top-up; usage shows the ids
    Reverse(TopUpReversalArgs),
}

#[derive(Debug, Args)]
pub struct TopUpArgs {
    /// The policy's name
    policy: String,

    /// The subject
    subject: String,

    /// Units to give
    #[arg(long)]
    units: u64,

    /// The end: units that are left then are gone
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: GivenTime,

    /// A key that makes a retry safe: the same top-up with the same key is given once
    #[arg(long)]
    idempotency_key: Option<String>,

    /// Reason of the top-up
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct TopUpReversalArgs {
    /// The policy's name
    policy: String,

    /// The subject
    subject: String,

    /// The top-up's id
    top_up: String,

    /// Reason of the reversal
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn run(command: TopUpCommand) -> anyhow::Result<ExitCode> {
    match command {
        TopUpCommand::Give(args) => {
            let local = LocalTime::of_policy(&args.server, &args.policy).await?;
            let until = local.at(present()).instant_text(Some(args.until))?;
            let body = TopUpRequest {
                units: WholeNumber(args.units.into()),
                until: until.unwrap_or_default(),
                reason: args.reason,
            };
            let account = (&*args.policy, &*args.subject);
            let key = args.idempotency_key.as_ref();
            enter_for(&args.server, account, "top-ups", &body, key, "given").await
        }
        TopUpCommand::Reverse(args) => {
            let what = format!("top-ups/{}/reversal", segment(&args.top_up));
            let body = TopUpReversalRequest {
                reason: args.reason,
            };
            let account = (&*args.policy, &*args.subject);
            enter_for(&args.server, account, &what, &body, None, "taken back").await
        }
    }
}
