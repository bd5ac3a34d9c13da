//! The commands about API keys.

use std::process::ExitCode;

use chrono::{DateTime, Utc};
use reqwest::Method;

use super::client::{self, all_items, call, request, segment, show_all};
use super::{KeyCreateArgs, KeyEndArgs, KeyRevokeArgs, KeyShowArgs, ServerArgs};
use api::instant::written;
use api::keys::{
    BoundsAnswer, BoundsBody, CreatedKey, KeyAnswer, KeyBody, KeyEndBody, OwnKeyAnswer,
};
use api::strict::{Object, WholeNumber};

/// Creates a key. Its secret is printed here and nowhere else.
pub async fn create(args: KeyCreateArgs) -> anyhow::Result<ExitCode> {
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
        ends_at: args.ends_at,
        reason: args.reason,
    };
    let key = call(request(&args.server, Method::POST, "/v1/keys")?.json(&body)).await?;
    client::show(&args.server, &key, |CreatedKey { key, secret }| {
        print_key(key);
        println!("secret, shown this once: {secret}");
    })
}

pub async fn list(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let keys = all_items(&args, "/v1/keys?limit=1000").await?;
    show_all(&args, keys, print_key)
}

pub async fn show(args: KeyShowArgs) -> anyhow::Result<ExitCode> {
    let key = call(request(&args.server, Method::GET, &path(&args.id))?).await?;
    client::show(&args.server, &key, print_key)
}

/// Shows the key that the command itself uses.
pub async fn whoami(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let key = call(request(&args, Method::GET, "/v1/keys/me")?).await?;
    client::show(&args, &key, print_own_key)
}

/// Sets or removes a key's end.
pub async fn end(args: KeyEndArgs) -> anyhow::Result<ExitCode> {
    let body = KeyEndBody {
        ends_at: args.at,
        reason: Some(args.reason),
    };
    let request = request(&args.server, Method::PATCH, &path(&args.id))?.json(&body);
    let key = call(args.condition.on(request)).await?;
    let shown = client::show(&args.server, &key, print_key);
    args.condition.tell(&args.server);
    shown
}

pub async fn revoke(args: KeyRevokeArgs) -> anyhow::Result<ExitCode> {
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
        end => until(end),
    };
    let id = key.id.to_string();
    let end = bounds(key.bounds.as_ref()) + &end;
    print_line(&id, &key.role, &key.name, key.policies.as_deref(), &end);
}

/// The key of the settings has no id.
fn print_own_key(key: &OwnKeyAnswer) {
    let id = key.id.map_or("-".to_owned(), |id| id.to_string());
    let end = bounds(key.bounds.as_ref()) + &until(key.ends_at);
    print_line(&id, &key.role, &key.name, key.policies.as_deref(), &end);
}

fn until(end: Option<DateTime<Utc>>) -> String {
    end.map_or_else(String::new, |end| format!("  (until {})", written(end)))
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
