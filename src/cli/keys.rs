//! The commands about API keys.

use std::process::ExitCode;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::client::{all_items, call, request, segment, text};
use super::{KeyCreateArgs, KeyEndArgs, KeyRevokeArgs, KeyShowArgs, ServerArgs};

/// Creates a key. Its secret is printed here and nowhere else.
pub async fn create(args: KeyCreateArgs) -> anyhow::Result<ExitCode> {
    let policies = (!args.policies.is_empty()).then_some(args.policies);
    let body = json!({
        "name": args.name,
        "role": args.role,
        "policies": policies,
        "ends_at": args.ends_at,
        "reason": args.reason,
    });
    let key = call(request(&args.server, Method::POST, "/v1/keys")?.json(&body)).await?;
    print(&args.server, &key);
    if !args.server.json {
        println!("secret, shown this once: {}", text(&key["secret"]));
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn list(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let keys = all_items(&args, "/v1/keys?limit=1000").await?;
    if args.json {
        println!("{:#}", Value::Array(keys));
    } else {
        keys.iter().for_each(print_key);
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn show(args: KeyShowArgs) -> anyhow::Result<ExitCode> {
    let key = call(request(&args.server, Method::GET, &path(&args.id))?).await?;
    print(&args.server, &key);
    Ok(ExitCode::SUCCESS)
}

/// Sets or removes a key's end.
pub async fn end(args: KeyEndArgs) -> anyhow::Result<ExitCode> {
    let body = json!({ "ends_at": args.at, "reason": args.reason });
    let request = request(&args.server, Method::PATCH, &path(&args.id))?.json(&body);
    let key = call(if_version(request, args.if_version)).await?;
    print(&args.server, &key);
    Ok(ExitCode::SUCCESS)
}

pub async fn revoke(args: KeyRevokeArgs) -> anyhow::Result<ExitCode> {
    let request =
        request(&args.server, Method::DELETE, &path(&args.id))?.query(&[("reason", &args.reason)]);
    let key = call(if_version(request, args.if_version)).await?;
    print(&args.server, &key);
    Ok(ExitCode::SUCCESS)
}

fn path(id: &str) -> String {
    format!("/v1/keys/{}", segment(id))
}

fn if_version(request: RequestBuilder, version: Option<u32>) -> RequestBuilder {
    match version {
        Some(version) => request.header("If-Match", format!("\"{version}\"")),
        None => request,
    }
}

fn print(server: &ServerArgs, key: &Value) {
    if server.json {
        println!("{key:#}");
    } else {
        print_key(key);
    }
}

fn print_key(key: &Value) {
    let policies = key["policies"].as_array();
    let policies = policies.map_or("all policies".to_owned(), |policies| {
        policies.iter().map(text).collect::<Vec<_>>().join(", ")
    });
    let end = match (&key["revoked"], key["ends_at"].as_str()) {
        (Value::Bool(true), _) => "  (revoked)".to_owned(),
        (_, Some(end)) => format!("  (until {end})"),
        (_, None) => String::new(),
    };
    println!(
        "{} {:<6} {:<24} {policies}{end}",
        text(&key["id"]),
        text(&key["role"]),
        text(&key["name"]),
    );
}
