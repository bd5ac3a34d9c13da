//! The command line.

// This module comes first: the commands print with its macros.
#[macro_use]
mod output;

mod adjustment_file;
mod age;
mod apply;
mod approve;
mod archive;
mod backtest;
mod blocks;
mod bulk;
mod bundles;
mod changes;
mod claims;
mod client;
mod completions;
mod condition;
mod config;
mod corrections;
mod csv_lines;
mod demo;
mod denials;
mod difference;
mod doctor;
mod erasure;
mod exception_file;
mod exceptions;
mod explanation;
mod export;
mod export_check;
mod gate_args;
mod history;
mod key_names;
mod keys;
mod limits;
mod local;
mod offline;
mod orphans;
mod overrides;
mod past_versions;
mod pause;
mod places;
mod policies;
mod policy_changes;
mod policy_command;
mod reconciliation;
mod refusal;
mod reversal_file;
mod rows;
mod sandbox;
mod scope;
mod seals;
mod serve;
mod setting;
mod sign_on_args;
mod statistics;
mod status;
mod subjects;
mod taking_back;
mod telemetry;
mod tiers;
mod times;
mod top_ups;
mod versions;
mod written;
mod xlsx;
mod yaml;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::runtime::Runtime;

use client::can_try_again;
use places::PlaceNames;
use policy_command::PolicyCommand;
use refusal::{Refused, at_places};

use crate::config::{MigrateArgs, ServeArgs};
use crate::setting::read_secret;
use host::chain::Chain;
use http::{rights, specification_yaml};

pub use written::read;

/// The exit code of a command that failed.
const FAILED: u8 = 1;
/// The exit code of a claim that is denied, and of a grant that has ended.
const DENIED: u8 = 3;
/// The exit code of a command with wrong arguments or settings. A supervisor need not try again.
const WRONG_SETTING: u8 = 2;
/// The exit code of a change that waits for a second admin.
const WAITS: u8 = 6;
/// The exit code of a command that can succeed the next time (`EX_TEMPFAIL`).
const TRY_AGAIN: u8 = 75;

const AFTER_HELP: &str = "First steps:
  perdiem serve                                   shows an admin key at the first start
  read -rs PERDIEM_KEY && export PERDIEM_KEY      in another terminal: paste the key
  perdiem policy put benefit --limit '3 per day' --time-zone GMT+8
  perdiem claim benefit member-42

Times of --at, --from, --until and others, in the policy's zone, or in UTC where no policy is named:
  14:03               today; also yesterday 14:03, and 2026-12-01T14:03
  today               the start of the local day; also yesterday, tomorrow, and 2026-12-01
  now, +2h, -30m      from now on: s, m, h, d (24 hours) or w
  2026-12-01T14:03:00Z, or with another offset such as +08:00

Exit codes:
  0   done
  1   broken: the message says what to change
  2   wrong arguments or settings
  3   no: the claim is denied, also by a block or a pause; or the grant has ended
  4   the reconciliation found differences that are not healed
  5   `policy apply --dry-run` would change something
  6   waiting: the change needs a second admin, who types the line on standard output
  75  later: try again, for example because the server does not answer
  141 the reader of standard output ended first, as `| head -1` does";

/// A daily-quota service with a persistent ledger.
#[derive(Debug, Parser)]
#[command(name = "perdiem", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Migrate the database, then start the service
    Serve(Box<ServeArgs>),
    /// Start a sandbox with two weeks of claims, to look around in
    Demo(demo::DemoArgs),
    /// Create or migrate the database, set up the service's role, then exit
    Migrate(MigrateArgs),
    /// Print the specification of the HTTP API (openapi.yaml)
    Openapi,
    /// Print who may call each operation of the HTTP API (docs/rights.md)
    Rights,
    /// Print a script that lets a shell complete commands: bash, zsh or fish
    Completions(completions::CompletionsArgs),
    /// Check settings, database, Redis, clocks and files without a change, before the first start or
    /// when something is wrong; exits with 1 when somebody has to look, and with 2 when something is wrong
    Doctor(Box<doctor::DoctorArgs>),
    /// Show the state of an instance: health, reconciliation, seals, queue, rules and version
    Status(ServerArgs),
    /// Claim units for a subject; exits with 3 when the claim is denied
    Claim(claims::ClaimArgs),
    /// Show a subject's limits and usage now
    Usage(claims::UsageArgs),
    /// Show a subject under all policies: its usage, its overrides, its tiers and its blocks
    Subject(subjects::SubjectCommandArgs),
    /// List the subjects that policies know, or those that begin with a text
    Subjects(subjects::SubjectsArgs),
    /// List the subjects that are at or near a limit of a policy
    Near(subjects::NearArgs),
    /// Show entries of the ledger: grants and their corrections; those of one subject newest first
    Entries(history::EntriesArgs),
    /// Explain a grant, or how a claim at an instant is decided
    Explain(explanation::ExplainArgs),
    /// Export entries to a file with a manifest; continues an interrupted export
    Export(export::ExportArgs),
    /// Reverse a grant, or all grants that filters or a file name: give their units back
    Reverse(corrections::ReverseArgs),
    /// Confirm a hold before it lapses
    Confirm(corrections::ConfirmArgs),
    /// Show, reverse or confirm a bundle: the grants of an atomic batch
    #[command(subcommand)]
    Bundle(bundles::BundleCommand),
    /// Adjust usage by hand, for one subject or from a file
    Adjust(corrections::AdjustArgs),
    /// Reset a limit of a subject, or all limits: they begin again with nothing used
    Reset(corrections::ResetArgs),
    /// Move the calendar of a subject: its time zone, and the day from which its months are counted
    MoveCalendar(corrections::MoveCalendarArgs),
    /// Give a subject units beside its windows, or take back what is left of them
    #[command(subcommand)]
    TopUp(top_ups::TopUpCommand),
    /// Compare counters with the ledger, and check the ledger; exits with 4 when differences remain
    Reconcile(reconciliation::ReconcileArgs),
    /// Show changes, newest first: what, by whom, when and why
    Changes(changes::ChangesArgs),
    /// Show figures for each local day: grants, corrections, denials
    Stats(statistics::StatsArgs),
    /// Show why claims were denied: the first denial of each subject in each window
    Denials(denials::DenialsArgs),
    /// Print the proof of a grant or of a change: a .tlog-proof
    Proof(seals::ProofArgs),
    /// Check the ledger, a proof, an export or an archive
    Verify(seals::VerifyArgs),
    /// Archive the record before a date into files that anyone can check
    Archive(archive::ArchiveArgs),
    /// Create a key for seals, or begin the next log of seals
    #[command(subcommand)]
    Seal(seals::SealCommand),
    /// Erase a subject: its name, metadata and reasons
    Erase(erasure::EraseArgs),
    /// Manage policies: create, set, show, list, schedule, restore, pause, archive, apply, backtest
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Approve a change of a policy that another admin proposed
    Approve(approve::ApproveArgs),
    /// Manage overrides: another max for one subject of a policy
    #[command(subcommand)]
    Override(overrides::OverrideCommand),
    /// Manage the tiers of subjects: named maxima of a policy, such as gold
    #[command(subcommand)]
    Tier(tiers::TierCommand),
    /// Manage blocks: subjects that a policy denies, whatever its limits are
    #[command(subcommand)]
    Block(blocks::BlockCommand),
    /// Manage API keys: create, list, show, end, revoke
    #[command(subcommand)]
    Key(keys::KeyCommand),
    /// Move the clock of a sandbox, which `perdiem serve --sandbox` starts
    #[command(subcommand)]
    Sandbox(sandbox::SandboxCommand),
    /// Show your own key: its id, role, name, policies and end
    Whoami(ServerArgs),
}

impl Command {
    /// Where the parts of its requests are on the command line.
    fn places(&self) -> PlaceNames {
        match self {
            Command::Claim(_) => places::CLAIM,
            Command::Usage(_) | Command::Subject(_) => places::SUBJECT_OF_POLICY,
            Command::Subjects(_) => places::SUBJECTS,
            Command::Near(_) => places::NEAR,
            Command::Denials(_) => places::DENIALS,
            Command::Entries(_) | Command::Export(_) | Command::Changes(_) | Command::Stats(_) => {
                places::LIST
            }
            Command::Explain(_) => places::EXPLAIN,
            Command::Confirm(_) => places::CONFIRM,
            Command::Reverse(_) => places::REVERSE,
            Command::Bundle(_) => places::BUNDLE,
            Command::Adjust(_) => places::ADJUST,
            Command::Reset(_) => places::RESET,
            Command::MoveCalendar(_) => places::MOVE_CALENDAR,
            Command::TopUp(top_ups::TopUpCommand::Give(_)) => places::TOP_UP,
            Command::TopUp(top_ups::TopUpCommand::Reverse(_)) => places::TOP_UP_REVERSAL,
            Command::Proof(_) => places::PROOF,
            Command::Erase(_) => places::ERASE,
            Command::Policy(PolicyCommand::Apply(_)) => places::NOWHERE,
            Command::Policy(PolicyCommand::Backtest(_)) => places::BACKTEST,
            Command::Policy(
                PolicyCommand::Create(_)
                | PolicyCommand::Set(_)
                | PolicyCommand::Put(_)
                | PolicyCommand::Restore(_),
            ) => places::POLICY_PUT,
            Command::Policy(_) => places::POLICY_STOP,
            Command::Approve(_) => places::APPROVE,
            Command::Override(_) | Command::Tier(_) | Command::Block(_) => places::EXCEPTION,
            Command::Key(keys::KeyCommand::Replace(_)) => places::KEY_REPLACE,
            Command::Key(_) => places::KEY,
            _ => places::NOWHERE,
        }
    }
}

/// A running server, and an API key for it.
#[derive(Debug, Args)]
struct ServerArgs {
    /// URL of the server
    #[arg(long, env = "PERDIEM_URL", default_value = "http://127.0.0.1:8080")]
    url: String,

    /// An API key
    #[arg(
        long,
        env = "PERDIEM_KEY",
        hide_env_values = true,
        conflicts_with = "key_file"
    )]
    key: Option<String>,

    /// File that contains an API key
    #[arg(long, env = "PERDIEM_KEY_FILE", value_name = "FILE", value_parser = read_secret)]
    key_file: Option<String>,

    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,

    /// Show instants in UTC, not in the policy's time zone
    #[arg(long)]
    utc: bool,
}

/// Runs a command. An error becomes one line on standard error and exit code 1, or 2 where a setting
/// is wrong, or 3 where the answer is no, or 75 where the command can succeed the next time.
///
/// This function is not async on purpose: an async function is compiled in the crate that awaits
/// it, so the binary would compile most of the library a second time.
pub fn run(cli: Cli, runtime: &Runtime) -> ExitCode {
    let places = cli.command.places();
    runtime.block_on(execute(cli)).unwrap_or_else(|error| {
        let error = at_places(error, places);
        let setting = written::wrong_setting(&error);
        let whence = setting.and_then(written::whence).unwrap_or_default();
        eprintln!("perdiem: {}{whence}", Chain(error.as_ref()));
        let refused = error.downcast_ref::<Refused>();
        if let Some(approval) = refused.and_then(Refused::approval) {
            println!("{approval}");
        }
        ExitCode::from(match (setting, refused) {
            (Some(_), _) => WRONG_SETTING,
            (None, Some(refused)) => refused.exit_code(),
            (None, None) if can_try_again(&error) => TRY_AGAIN,
            (None, None) => FAILED,
        })
    })
}

async fn execute(cli: Cli) -> anyhow::Result<ExitCode> {
    if !matches!(cli.command, Command::Serve(_)) {
        for unknown in written::unknown_variables() {
            eprintln!("perdiem: {unknown}");
        }
    }
    match cli.command {
        Command::Serve(args) => serve::serve(*args).await,
        Command::Demo(args) => demo::demo(args).await,
        Command::Migrate(args) => serve::migrate(args).await,
        Command::Openapi => {
            print!("{}", specification_yaml());
            Ok(ExitCode::SUCCESS)
        }
        Command::Rights => {
            print!("{}", rights());
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions(args) => Ok(completions::completions(&args)),
        Command::Doctor(args) => doctor::doctor(*args).await,
        Command::Status(args) => status::status(args).await,
        Command::Claim(args) => claims::claim(args).await,
        Command::Usage(args) => claims::usage(args).await,
        Command::Subject(args) => subjects::show(args).await,
        Command::Subjects(args) => subjects::list(args).await,
        Command::Near(args) => subjects::near(args).await,
        Command::Entries(args) => history::entries(args).await,
        Command::Explain(args) => explanation::explain(args).await,
        Command::Export(args) => export::export(args).await,
        Command::Reverse(args) => corrections::reverse(args).await,
        Command::Confirm(args) => corrections::confirm(args).await,
        Command::Bundle(command) => bundles::run(command).await,
        Command::Adjust(args) => corrections::adjust(args).await,
        Command::Reset(args) => corrections::reset(args).await,
        Command::MoveCalendar(args) => corrections::move_calendar(args).await,
        Command::TopUp(command) => top_ups::run(command).await,
        Command::Reconcile(args) => reconciliation::reconcile(args).await,
        Command::Changes(args) => changes::changes(args).await,
        Command::Stats(args) => statistics::stats(args).await,
        Command::Denials(args) => denials::denials(args).await,
        Command::Proof(args) => seals::proof(args).await,
        Command::Verify(args) => seals::verify(args).await,
        Command::Archive(args) => archive::archive(args).await,
        Command::Seal(command) => seals::run(command).await,
        Command::Erase(args) => erasure::erase(args).await,
        Command::Policy(command) => policy_command::run(command).await,
        Command::Approve(args) => approve::approve(args).await,
        Command::Override(command) => overrides::run(command).await,
        Command::Tier(command) => tiers::run(command).await,
        Command::Block(command) => blocks::run(command).await,
        Command::Key(command) => keys::run(command).await,
        Command::Sandbox(command) => sandbox::run(command).await,
        Command::Whoami(args) => keys::whoami(args).await,
    }
}
