//! The commands about API keys.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;

use super::ServerArgs;
use super::client::{self, all_items, call, request, segment, show_all};
use super::condition::ConditionArgs;
use super::local::{LocalTime, present};
use super::times::{GivenTime, Unplaced};
use api::keys::{
    BoundsAnswer, BoundsBody, CreatedKey, KeyAnswer, KeyBody, KeyEndBody, OwnKeyAnswer,
};
use api::strict::{Object, WholeNumber};

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key; its secret is printed once
    Create(KeyCreateArgs),
    /// List the keys, newest first
    List(ServerArgs),
    /// Show a key
    Show(KeyShowArgs),
    /// Set or remove the end of a key
    End(KeyEndArgs),
    /// Revoke a key: it never works again
    Revoke(KeyRevokeArgs),
}

#[derive(Debug, Args)]
pub struct KeyCreateArgs {
    /// A name that says who uses the key
    name: String,

    /// The role of the key: claim, audit, support or admin
    #[arg(long)]
    role: String,

    /// The largest max of an override that a support key may put
    #[arg(long, requires = "days")]
    max: Option<u64>,

    /// For how many days an override or a block of a support key may last
    #[arg(long, requires = "max")]
    days: Option<u64>,

    /// Confine the key to this policy. Repeat the option for more policies [default: all policies]
    #[arg(long = "policy")]
    policies: Vec<String>,

    /// Time from which on the key is not accepted; a date is one of UTC [default: no end]
    #[arg(
        long,
        alias = "ends-at",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    until: Option<GivenTime>,

    /// Reason of the change
    #[arg(long)]
    reason: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct KeyShowArgs {
    /// The key's id
    id: String,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct KeyEndArgs {
    /// The key's id
    id: String,

    /// Time from which on the key is not accepted; a date is one of UTC
    #[arg(
        long,
        alias = "at",
        value_name = "TIME",
        allow_hyphen_values = true,
        required_unless_present = "never"
    )]
    until: Option<GivenTime>,

    /// Remove the end
    #[arg(long, conflicts_with = "until")]
    never: bool,

    /// Reason of the change
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct KeyRevokeArgs {
    /// The key's id
    id: String,

    /// Reason of the change
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn run(command: KeyCommand) -> anyhow::Result<ExitCode> {
    match command {
        KeyCommand::Create(args) => create(args).await,
        KeyCommand::List(args) => list(args).await,
        KeyCommand::Show(args) => show(args).await,
        KeyCommand::End(args) => end(args).await,
        KeyCommand::Revoke(args) => revoke(args).await,
    }
}

/// A key can be for many policies, so its end is read in UTC.
fn end_of(until: Option<GivenTime>) -> Result<Option<String>, Unplaced> {
    LocalTime::utc().at(present()).instant_text(until)
}

/// Creates a key. Its secret is printed here and nowhere else.
async fn create(args: KeyCreateArgs) -> anyhow::Result<ExitCode> {
    let policies = (!args.policies.is_empty()).then_some(args.policies);
    let body = KeyBody {
        name: args.name,
        role: args.role,
        policies,
        bounds: args.max.zip(args.days).map(|(max, days)| {
            Object(BoundsBody {
                max: WholeNumber(max.into()),
                days: WholeNumber(days.into()),
            })
        }),
        ends_at: end_of(args.until)?,
        reason: args.reason,
    };
    let key = call(request(&args.server, Method::POST, "/v1/keys")?.json(&body)).await?;
    client::show(&args.server, &key, |CreatedKey { key, secret }| {
        print_key(key);
        println!("secret, shown this once: {secret}");
    })
}

async fn list(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let keys = all_items(&args, "/v1/keys?limit=1000").await?;
    show_all(&args, keys, print_key)
}

async fn show(args: KeyShowArgs) -> anyhow::Result<ExitCode> {
    let key = call(request(&args.server, Method::GET, &path(&args.id))?).await?;
    client::show(&args.server, &key, print_key)
}

/// Shows the key that the command itself uses.
pub async fn whoami(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let key = call(request(&args, Method::GET, "/v1/keys/me")?).await?;
    client::show(&args, &key, print_own_key)
}

/// Sets or removes a key's end.
async fn end(args: KeyEndArgs) -> anyhow::Result<ExitCode> {
    let body = KeyEndBody {
        ends_at: end_of(args.until)?,
        reason: Some(args.reason),
    };
    let request = request(&args.server, Method::PATCH, &path(&args.id))?.json(&body);
    let key = call(args.condition.on(request)).await?;
    let shown = client::show(&args.server, &key, print_key);
    args.condition.tell(&args.server);
    shown
}

async fn revoke(args: KeyRevokeArgs) -> anyhow::Result<ExitCode> {
    let request =
        request(&args.server, Method::DELETE, &path(&args.id))?.query(&[("reason", &args.reason)]);
    let key = call(args.condition.on(request)).await?;
    let shown = client::show(&args.server, &key, print_key);
    args.condition.tell(&args.server);
    shown
}

fn path(id: &str) -> String {
    format!("/v1/keys/{}", segment(id))
}

fn print_key(key: &KeyAnswer) {
    let end = match key.ends_at {
        _ if key.revoked => "  (revoked)".to_owned(),
        end => LocalTime::utc().show_until(end),
    };
    let id = key.id.to_string();
    let end = bounds(key.bounds.as_ref()) + &end;
    print_line(&id, &key.role, &key.name, key.policies.as_deref(), &end);
}

/// The key of the settings has no id.
fn print_own_key(key: &OwnKeyAnswer) {
    let id = key.id.map_or("-".to_owned(), |id| id.to_string());
    let end = LocalTime::utc().show_until(key.ends_at);
    let end = bounds(key.bounds.as_ref()) + &end;
    print_line(&id, &key.role, &key.name, key.policies.as_deref(), &end);
}

fn bounds(bounds: Option<&BoundsAnswer>) -> String {
    bounds.map_or_else(String::new, |BoundsAnswer { max, days }| {
        format!("  (overrides up to {max}, for up to {days} days)")
    })
}

fn print_line(id: &str, role: &str, name: &str, policies: Option<&[String]>, end: &str) {
    let policies = policies.map_or("all policies".to_owned(), |policies| policies.join(", "));
    println!("{id} {role:<6} {name:<24} {policies}{end}");
}
