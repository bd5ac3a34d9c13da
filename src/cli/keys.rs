//! The commands about API keys.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use uuid::Uuid;

use super::ServerArgs;
use super::client::{self, all_items, call, read, request, show_all};
use super::condition::ConditionArgs;
use super::local::{LocalTime, present};
use super::times::{GivenTime, Unplaced};
use api::keys::{
    BoundsAnswer, BoundsBody, CreatedKey, KeyAnswer, KeyBody, KeyEndBody, KeyReplacementAnswer,
    KeyReplacementBody, ListedKey, OwnKeyAnswer,
};
use api::strict::{Object, WholeNumber};
use domain::elapsed::Elapsed;

const KEYS: &str = "/v1/keys?limit=1000";

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
    /// Make a new key with the same rights, print its secret once, and end the old key
    Replace(KeyReplaceArgs),
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

    /// The largest max of an override that a support key may put, and of a tier
    #[arg(long, requires = "days")]
    max: Option<u64>,

    /// For how many days an override, a tier or a block of a support key may last
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

/// A key that exists.
#[derive(Debug, Args)]
struct NamedKey {
    /// The key's name, or its id
    #[arg(value_name = "NAME-OR-ID")]
    named: String,
}

#[derive(Debug, Args)]
pub struct KeyShowArgs {
    #[command(flatten)]
    key: NamedKey,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct KeyEndArgs {
    #[command(flatten)]
    key: NamedKey,

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
pub struct KeyReplaceArgs {
    #[command(flatten)]
    key: NamedKey,

    /// How long the old key still works, such as 1h or 7d; at most 365d, and not longer than before [default: 24h]
    #[arg(long, value_name = "DURATION")]
    keep: Option<Elapsed>,

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
    #[command(flatten)]
    key: NamedKey,

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
        KeyCommand::Replace(args) => replace(args).await,
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
    let keys = all_items(&args, KEYS).await?;
    show_all(&args, keys, print_listed_key)
}

async fn show(args: KeyShowArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.server, &args.key).await?;
    let key = call(request(&args.server, Method::GET, &path)?).await?;
    client::show(&args.server, &key, print_listed_key)
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
    let path = path(&args.server, &args.key).await?;
    let request = request(&args.server, Method::PATCH, &path)?.json(&body);
    let key = call(args.condition.on(request)).await?;
    let shown = client::show(&args.server, &key, print_key);
    args.condition.tell(&args.server);
    shown
}

/// Makes a new key in the place of another one. Its secret is printed here and nowhere else.
async fn replace(args: KeyReplaceArgs) -> anyhow::Result<ExitCode> {
    let body = KeyReplacementBody {
        keep_seconds: args.keep.map(|keep| WholeNumber(keep.seconds().into())),
        reason: args.reason,
    };
    let path = path(&args.server, &args.key).await? + "/replacement";
    let request = request(&args.server, Method::POST, &path)?.json(&body);
    let answer = call(args.condition.on(request)).await?;
    let shown = client::show(&args.server, &answer, |answer: &KeyReplacementAnswer| {
        let KeyReplacementAnswer {
            key,
            secret,
            replaced,
        } = answer;
        print_key(key);
        if let Some(secret) = secret {
            println!("secret, shown this once: {secret}");
        }
        println!("it replaces:");
        print_key(replaced);
    });
    args.condition.tell(&args.server);
    shown
}

async fn revoke(args: KeyRevokeArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.server, &args.key).await?;
    let request = request(&args.server, Method::DELETE, &path)?.query(&[("reason", &args.reason)]);
    let key = call(args.condition.on(request)).await?;
    let shown = client::show(&args.server, &key, print_key);
    args.condition.tell(&args.server);
    shown
}

/// All keys, newest first.
pub async fn all_keys(server: &ServerArgs) -> anyhow::Result<Vec<ListedKey>> {
    read(&Value::Array(all_items(server, KEYS).await?))
}

/// The path of a key.
async fn path(server: &ServerArgs, key: &NamedKey) -> anyhow::Result<String> {
    let id = match key.named.parse::<Uuid>() {
        Ok(id) => id,
        Err(_) => {
            let keys = all_keys(server).await?;
            find(&key.named, keys.into_iter().map(|listed| listed.key))?
        }
    };
    Ok(format!("/v1/keys/{id}"))
}

/// The id of the one key with a name. Names are not unique, and stay with keys that work no more. So a key that
/// works comes before all that do not.
fn find(name: &str, keys: impl Iterator<Item = KeyAnswer>) -> anyhow::Result<Uuid> {
    let now = present();
    let works = |key: &KeyAnswer| !key.revoked && key.ends_at.is_none_or(|end| now < end);
    let named = keys.filter(|key| key.name == name);
    let (working, over): (Vec<_>, Vec<_>) = named.partition(works);
    let found = if working.is_empty() { over } else { working };
    match &found[..] {
        [] => bail!(
            "no key has the name {name:?}: write the name or the id of one of `perdiem key list`"
        ),
        [key] => Ok(key.id),
        [newest, ..] => {
            let ids: Vec<String> = found.iter().map(|key| key.id.to_string()).collect();
            bail!(
                "{} keys have the name {name:?}, newest first: {}; write the id of the one that you mean, such as {}",
                found.len(),
                ids.join(", "),
                newest.id
            )
        }
    }
}

fn print_key(key: &KeyAnswer) {
    print_line_of(key, "");
}

fn print_listed_key(ListedKey { key, last_used_on }: &ListedKey) {
    let use_of_key = match last_used_on {
        Some(day) => format!("  (last used {day})"),
        None => "  (was never used)".to_owned(),
    };
    print_line_of(key, &use_of_key);
}

fn print_line_of(key: &KeyAnswer, use_of_key: &str) {
    let end = match key.ends_at {
        _ if key.revoked => "  (revoked)".to_owned(),
        end => LocalTime::utc().show_until(end),
    };
    let id = key.id.to_string();
    let rest = bounds(key.bounds.as_ref()) + &end + use_of_key;
    print_line(&id, &key.role, &key.name, key.policies.as_deref(), &rest);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128, name: &str, revoked: bool, ends_at: Option<&str>) -> KeyAnswer {
        KeyAnswer {
            id: Uuid::from_u128(number),
            name: name.to_owned(),
            role: "claim".into(),
            policies: None,
            bounds: None,
            ends_at: ends_at.map(|at| at.parse().unwrap()),
            revoked,
            version: 1,
            created_at: "2026-11-21T00:00:00Z".parse().unwrap(),
            changed_at: "2026-11-21T00:00:00Z".parse().unwrap(),
            changed_by: "perdiem".to_owned(),
            reason: None,
        }
    }

    #[test]
    fn a_key_that_works_comes_before_those_that_do_not() {
        let past = Some("2020-01-01T00:00:00Z");
        let future = Some("9000-01-01T00:00:00Z");
        let found = |keys: Vec<KeyAnswer>| {
            let found = find("shop", keys.into_iter());
            found
                .map(|id| id.as_u128())
                .map_err(|error| error.to_string())
        };
        let revoked = || key(1, "shop", true, None);
        let ended = || key(2, "shop", false, past);
        let working = || key(3, "shop", false, future);
        assert_eq!(found(vec![revoked(), working(), ended()]), Ok(3));
        assert_eq!(found(vec![ended()]), Ok(2));
        assert_eq!(found(vec![revoked(), key(4, "Shop", false, None)]), Ok(1));
        let both = found(vec![working(), key(4, "shop", false, None), ended()]).unwrap_err();
        let ids = [3, 4].map(|number| Uuid::from_u128(number).to_string());
        assert!(both.starts_with("2 keys have the name \"shop\""), "{both}");
        assert!(both.contains(&ids.join(", ")), "{both}");
        let none = found(vec![key(4, "Shop", false, None)]).unwrap_err();
        assert!(none.contains("perdiem key list"), "{none}");
    }
}
