//! The command line.

// Before the commands, which print by it.
#[macro_use]
mod output;

mod apply;
mod archive;
mod backtest;
mod changes;
mod claims;
mod client;
mod corrections;
mod difference;
mod erasure;
mod explanation;
mod export;
mod export_check;
mod history;
mod keys;
mod limits;
mod local;
mod offline;
mod overrides;
mod pause;
mod policies;
mod reconciliation;
mod rows;
mod seals;
mod statistics;
mod xlsx;
mod yaml;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use client::TryAgain;

use crate::chain::Chain;
use crate::clock::Clock;
use crate::config::{MigrateArgs, ServeArgs, read_secret};
use crate::http::{Application, specification_yaml};
use crate::ledger::{Ledger, LedgerOptions, ServiceRoleError};
use crate::telemetry;

/// What a command that has failed exits with.
const FAILED: u8 = 1;
/// What a command exits with that may succeed the next time (`EX_TEMPFAIL`).
const TRY_AGAIN: u8 = 75;

const EXIT_CODES: &str = "Exit codes:
  0   done
  1   failed
  2   wrong arguments or settings
  3   a claim is denied
  4   a reconciliation leaves something wrong
  5   `policy apply --dry-run` would change something
  75  try again: the server does not answer, or cannot answer now
  141 the reader of standard output went away, as `| head -1` does";

/// A daily-quota service with a persistent ledger.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Migrate the database, then serve
    Serve(ServeArgs),
    /// Make the database, or bring it up to date, set up the service's role, and exit
    Migrate(MigrateArgs),
    /// Print openapi.yaml
    Openapi,
    /// Claim units for a subject; exits with 3 when denied
    Claim(ClaimArgs),
    /// Show a subject's limits now
    Usage(UsageArgs),
    /// Show entries: grants, and what corrected them
    Entries(history::EntriesArgs),
    /// Tell why a grant was granted, or what a claim of a subject meets
    Explain(explanation::ExplainArgs),
    /// Export entries into a file, with a manifest; goes on where it was interrupted
    Export(export::ExportArgs),
    /// Give a grant's units back
    Reverse(corrections::ReverseArgs),
    /// Confirm a hold before it lapses
    Confirm(corrections::ConfirmArgs),
    /// Enter units by hand, for one subject or from a file
    Adjust(corrections::AdjustArgs),
    /// Compare counters with the ledger and check the ledger; exits with 4 when something stays
    /// wrong
    Reconcile(ReconcileArgs),
    /// Show what was changed, by whom, when and why, newest first
    Changes(changes::ChangesArgs),
    /// Show the figures of local days: grants, corrections, denials
    Stats(statistics::StatsArgs),
    /// Show why a subject's claims were denied: the first denial of each window
    Denials(statistics::DenialsArgs),
    /// Print what proves that a grant stands, or a change: a .tlog-proof
    Proof(seals::ProofArgs),
    /// Check the ledger in DATABASE_URL by its seals, or a proof, or an export
    Verify(seals::VerifyArgs),
    /// Write what was recorded before a date into files that prove themselves
    Archive(archive::ArchiveArgs),
    /// Make a key for seals, or begin the next log of seals
    #[command(subcommand)]
    Seal(seals::SealCommand),
    /// Erase a subject: its name finds nothing any more
    Erase(erasure::EraseArgs),
    /// List, show, put, pause, archive, apply or backtest policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Give one subject of a policy other limits
    #[command(subcommand)]
    Override(overrides::OverrideCommand),
    /// Make, list, show, end or revoke API keys
    #[command(subcommand)]
    Key(KeyCommand),
}

/// A running server, and a key for it.
#[derive(Debug, Args)]
struct ServerArgs {
    /// Where the server is
    #[arg(long, env = "PERDIEM_URL", default_value = "http://127.0.0.1:8080")]
    url: String,

    /// An API key
    #[arg(
        long,
        env = "PERDIEM_KEY",
        hide_env_values = true,
        required_unless_present = "key_file",
        conflicts_with = "key_file"
    )]
    key: Option<String>,

    /// A file with an API key
    #[arg(long, env = "PERDIEM_KEY_FILE", value_name = "FILE", value_parser = read_secret)]
    key_file: Option<String>,

    /// Print the server's JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ClaimArgs {
    /// The policy's name
    policy: String,

    /// Whom to count
    subject: String,

    /// How many units
    #[arg(long, default_value_t = 1)]
    units: u64,

    /// Make the grant a hold, which lapses after so many seconds unless it is confirmed
    #[arg(long)]
    hold_seconds: Option<u64>,

    /// What makes a retry safe
    #[arg(long)]
    idempotency_key: Option<String>,

    /// A JSON object to keep beside the grant
    #[arg(long)]
    metadata: Option<String>,

    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct UsageArgs {
    /// The policy's name
    policy: String,

    /// Whom it counts
    subject: String,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct ReconcileArgs {
    /// Heal the counters that differ: the ledger is right
    #[arg(long)]
    apply: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// List the policies
    List(ServerArgs),
    /// Show a policy
    Show(PolicyShowArgs),
    /// Create or replace a policy
    Put(Box<PolicyPutArgs>),
    /// Grant nothing under a policy until it is resumed
    Pause(pause::StopArgs),
    /// Let a paused policy grant again
    Resume(pause::StopArgs),
    /// Take no more claims under a policy; its history stays
    Archive(pause::StopArgs),
    /// Bring a file of policies into force
    ///
    /// The file is YAML or JSON: under `policies`, each policy by its name, with the fields that
    /// PUT /v1/policies/{policy} takes. What a policy leaves out has its default. The difference is
    /// shown first; if one policy is refused, nothing is changed; and what somebody else changes
    /// meanwhile is not overwritten. With --dry-run it exits with 0 when there is nothing to do
    /// and with 5 when something would change.
    Apply(apply::ApplyArgs),
    /// Tell what a draft of a policy would have denied
    Backtest(backtest::BacktestArgs),
}

#[derive(Debug, Args)]
struct PolicyShowArgs {
    /// The policy's name
    policy: String,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct PolicyPutArgs {
    /// The policy's name
    policy: String,

    /// A limit, such as "3 per day", "1 per ever", "5 per 24h sliding", "500 per 24h sliding step 1h",
    /// "5 per 24h from_first_claim" or "10 per 1s rate burst 20"; may be repeated
    #[arg(long = "limit", required = true, value_parser = limits::parse_limit)]
    limits: Vec<limits::LimitArg>,

    /// An IANA name or a fixed offset, such as Asia/Shanghai or GMT+8
    #[arg(long)]
    time_zone: String,

    /// What it is for
    #[arg(long)]
    description: Option<String>,

    /// When a day begins, as HH:MM
    #[arg(long)]
    day_starts_at: Option<String>,

    /// A weekday's English name
    #[arg(long)]
    week_starts_on: Option<String>,

    /// Grant nothing before this instant, such as 2026-12-01T00:00:00Z
    #[arg(long)]
    active_from: Option<String>,

    /// Grant nothing from this instant on
    #[arg(long)]
    active_until: Option<String>,

    /// Grant nothing for now
    #[arg(long)]
    paused: bool,

    /// enforce, or observe: grant all, and mark what would have been denied
    #[arg(long)]
    mode: Option<String>,

    /// now, or next_window: from the policy's next local day on
    #[arg(long)]
    effective: Option<String>,

    /// recorded, or counted: Redis decides, and the ledger records it afterwards
    #[arg(long)]
    durability: Option<String>,

    /// refuse, or count: Redis decides while the ledger does not answer
    #[arg(long)]
    on_ledger_outage: Option<String>,

    /// Why; needed to replace a policy
    #[arg(long)]
    reason: Option<String>,

    /// Replace only this version
    #[arg(long)]
    if_version: Option<u32>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Make a key; its secret is printed this once
    Create(KeyCreateArgs),
    /// List the keys, newest first
    List(ServerArgs),
    /// Show a key
    Show(KeyShowArgs),
    /// Give a key an end, or take it away
    End(KeyEndArgs),
    /// Revoke a key for good
    Revoke(KeyRevokeArgs),
}

#[derive(Debug, Args)]
struct KeyCreateArgs {
    /// What it is for
    name: String,

    /// claim, audit or admin
    #[arg(long)]
    role: String,

    /// A policy that it is confined to; may be repeated
    #[arg(long = "policy")]
    policies: Vec<String>,

    /// Accept it until this instant, such as 2026-12-01T00:00:00Z
    #[arg(long)]
    ends_at: Option<String>,

    /// Why
    #[arg(long)]
    reason: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct KeyShowArgs {
    /// The key's id
    id: String,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct KeyEndArgs {
    /// The key's id
    id: String,

    /// Accept it until this instant, such as 2026-12-01T00:00:00Z
    #[arg(long, required_unless_present = "never")]
    at: Option<String>,

    /// Take its end away
    #[arg(long, conflicts_with = "at")]
    never: bool,

    /// Why
    #[arg(long)]
    reason: String,

    /// Change only this version
    #[arg(long)]
    if_version: Option<u32>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct KeyRevokeArgs {
    /// The key's id
    id: String,

    /// Why
    #[arg(long)]
    reason: String,

    /// Revoke only this version
    #[arg(long)]
    if_version: Option<u32>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs a command. What goes wrong is one line on standard error and exit code 1, or 75 where it is worth
/// another try.
///
/// This is not async on purpose. An async function is compiled in the crate that awaits it: the
/// binary would compile most of the library a second time.
pub fn run(cli: Cli, runtime: &Runtime) -> ExitCode {
    runtime.block_on(execute(cli)).unwrap_or_else(|error| {
        eprintln!("perdiem: {}", Chain(error.as_ref()));
        ExitCode::from(match error.downcast_ref::<TryAgain>() {
            Some(_) => TRY_AGAIN,
            None => FAILED,
        })
    })
}

async fn execute(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => serve(args).await,
        Command::Migrate(args) => migrate(args).await,
        Command::Openapi => {
            print!("{}", specification_yaml());
            Ok(ExitCode::SUCCESS)
        }
        Command::Claim(args) => claims::claim(args).await,
        Command::Usage(args) => claims::usage(args).await,
        Command::Entries(args) => history::entries(args).await,
        Command::Explain(args) => explanation::explain(args).await,
        Command::Export(args) => export::export(args).await,
        Command::Reverse(args) => corrections::reverse(args).await,
        Command::Confirm(args) => corrections::confirm(args).await,
        Command::Adjust(args) => corrections::adjust(args).await,
        Command::Reconcile(args) => reconciliation::reconcile(args).await,
        Command::Changes(args) => changes::changes(args).await,
        Command::Stats(args) => statistics::stats(args).await,
        Command::Denials(args) => statistics::denials(args).await,
        Command::Proof(args) => seals::proof(args).await,
        Command::Verify(args) => seals::verify(args).await,
        Command::Archive(args) => archive::archive(args).await,
        Command::Seal(command) => seals::run(command).await,
        Command::Erase(args) => erasure::erase(args).await,
        Command::Policy(PolicyCommand::List(args)) => policies::list_policies(args).await,
        Command::Policy(PolicyCommand::Show(args)) => policies::show_policy(args).await,
        Command::Policy(PolicyCommand::Put(args)) => policies::put_policy(*args).await,
        Command::Policy(PolicyCommand::Pause(args)) => pause::pause(args, true).await,
        Command::Policy(PolicyCommand::Resume(args)) => pause::pause(args, false).await,
        Command::Policy(PolicyCommand::Archive(args)) => pause::archive(args).await,
        Command::Override(command) => overrides::run(command).await,
        Command::Policy(PolicyCommand::Apply(args)) => apply::apply(args).await,
        Command::Policy(PolicyCommand::Backtest(args)) => backtest::backtest(args).await,
        Command::Key(KeyCommand::Create(args)) => keys::create(args).await,
        Command::Key(KeyCommand::List(args)) => keys::list(args).await,
        Command::Key(KeyCommand::Show(args)) => keys::show(args).await,
        Command::Key(KeyCommand::End(args)) => keys::end(args).await,
        Command::Key(KeyCommand::Revoke(args)) => keys::revoke(args).await,
    }
}

async fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    telemetry::start(&args.log)?;
    // Before anything that a supervisor might want to end.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let engine = args.engine_options();
    let _lock = Ledger::lock(&engine.database_url)?;
    let application = Application::build(args.serve_options(), engine).await?;
    welcome(&application);
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("ending: finishing what is in flight");
    };
    application.run(stop).await?;
    tracing::info!("ended");
    Ok(ExitCode::SUCCESS)
}

/// Says where the server listens and what to try. A new key is shown here and nowhere else.
fn welcome(application: &Application) {
    let url = format!("http://{}", application.address());
    println!("perdiem listens on {url} (documentation: {url}/docs)");
    match application.new_secret() {
        Some(secret) => {
            println!("admin key, shown this once: {secret}");
            println!(
                "try, in another terminal, and paste the key when the first line waits for it:"
            );
            // What is read is in no shell's history.
            println!("  read -rs PERDIEM_KEY && export PERDIEM_KEY");
            println!(
                "  curl -X PUT {url}/v1/policies/benefit -H \"Authorization: Bearer $PERDIEM_KEY\" \
                 -d '{{\"time_zone\": \"GMT+8\", \"limits\": [{{\"max\": 3, \"per\": \"day\"}}]}}'"
            );
        }
        None => {
            println!("try:");
            println!("  curl {url}/readyz");
        }
    }
}

async fn migrate(args: MigrateArgs) -> anyhow::Result<ExitCode> {
    let options = LedgerOptions {
        url: args.database.url().to_owned(),
        claim_timeout: std::time::Duration::from_secs(30),
        query_timeout: std::time::Duration::from_secs(30),
    };
    let _lock = Ledger::lock(&options.url)?;
    let ledger = Ledger::open(&options, Clock::system().now()).await?;
    println!("the ledger on {} is up to date", ledger.store_name());
    let set_up = ledger.set_up_role(&args.service_role).await;
    ledger.close().await;
    match set_up {
        Ok(Some(role)) => println!("the role {role} has the rights that the service needs"),
        Ok(None) => {}
        // The owner can serve without it.
        Err(missing @ ServiceRoleError::Missing { .. }) => eprintln!("perdiem: {missing}"),
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}
