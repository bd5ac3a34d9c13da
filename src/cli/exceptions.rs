//! What the commands about overrides, tiers of subjects and blocks have in common.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ServerArgs;
use super::client::{self, all_items, call, request, segment, show_all};
use super::condition::ConditionArgs;
use super::difference::{before_change, print_changes};
use super::local::{LocalTime, present};
use super::times::GivenTime;

#[derive(Debug, Args)]
pub struct SubjectArgs {
    /// The policy's name
    pub policy: String,

    /// The subject
    pub subject: String,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// The policy's name
    pub policy: String,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The policy's name
    pub policy: String,

    /// The subject
    pub subject: String,

    /// Reason of the change
    #[arg(long)]
    pub reason: String,

    #[command(flatten)]
    pub condition: ConditionArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

/// A kind of exceptions that a policy has for its subjects.
pub struct ExceptionKind<A> {
    /// The last part of the URL of their list.
    pub list: &'static str,
    /// Prints one of them in a line.
    pub print: fn(&A, &LocalTime),
}

/// What a new exception is for, and how it is sent.
pub struct ExceptionTarget<'a> {
    pub server: &'a ServerArgs,
    pub condition: &'a ConditionArgs,
    pub policy: &'a str,
    pub subject: &'a str,
    pub until: Option<GivenTime>,
}

impl<A: DeserializeOwned + Serialize> ExceptionKind<A> {
    pub fn list_of(&self, policy: &str) -> String {
        format!("/v1/policies/{}/{}", segment(policy), self.list)
    }

    fn path(&self, policy: &str, subject: &str) -> String {
        format!("{}/{}", self.list_of(policy), segment(subject))
    }

    /// Puts an exception, and prints what it changes. `body` gets its end as the server takes it.
    pub async fn put<B: Serialize>(
        &self,
        target: ExceptionTarget<'_>,
        body: impl FnOnce(Option<String>) -> B,
    ) -> anyhow::Result<ExitCode> {
        let ExceptionTarget {
            server,
            condition,
            policy,
            subject,
            until,
        } = target;
        let local = LocalTime::of_policy(server, policy).await?;
        let body = body(local.at(present()).instant_text(until)?);
        let path = self.path(policy, subject);
        let before = before_change(server, &path).await?;
        let request = request(server, Method::PUT, &path)?.json(&body);
        let answer = call(condition.on(request)).await?;
        if !server.json {
            let name = format!("{policy} {subject}");
            print_changes(&name, before.as_ref(), &answer, &local)?;
        }
        let shown = client::show(server, &answer, |found| (self.print)(found, &local));
        condition.tell(server);
        shown
    }

    pub async fn show(&self, args: SubjectArgs) -> anyhow::Result<ExitCode> {
        let path = self.path(&args.policy, &args.subject);
        let answer = call(request(&args.server, Method::GET, &path)?).await?;
        let local = LocalTime::of_policy(&args.server, &args.policy).await?;
        client::show(&args.server, &answer, |found| (self.print)(found, &local))
    }

    pub async fn list(&self, args: ListArgs) -> anyhow::Result<ExitCode> {
        let path = format!("{}?limit=1000", self.list_of(&args.policy));
        let items = all_items(&args.server, &path).await?;
        let local = LocalTime::of_policy(&args.server, &args.policy).await?;
        show_all(&args.server, items, |found| (self.print)(found, &local))
    }

    /// Ends an exception, and says that it is `done`.
    pub async fn end(&self, args: DeleteArgs, done: &str) -> anyhow::Result<ExitCode> {
        let path = self.path(&args.policy, &args.subject);
        let request = request(&args.server, Method::DELETE, &path)?;
        let request = request.query(&[("reason", &args.reason)]);
        let answer = call(args.condition.on(request)).await?;
        match (args.server.json, args.condition.dry_run) {
            (true, _) => println!("{answer:#}"),
            (false, false) => println!("{done}"),
            (false, true) => args.condition.tell(&args.server),
        }
        Ok(ExitCode::SUCCESS)
    }
}
