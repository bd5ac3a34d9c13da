//! Commands that create, change and replace a policy.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use reqwest::header::IF_NONE_MATCH;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

use super::ServerArgs;
use super::client::{describe, read, request, send};
use super::condition::ConditionArgs;
use super::difference::{before_change, describe_orphans, print_changes};
use super::limits;
use super::policies::{path_of, show_with_warnings};
use api::policies::{LimitBody, PolicyBody, PolicyPatch};
use api::problem::Problem;
use api::strict::Object;

/// The word that takes an optional setting away.
const NONE: &str = "none";

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The policy's name
    policy: String,

    /// A limit, such as "3 per day", "1 per ever", "5 per 24h sliding", "500 per 24h sliding step
    /// 1h", "5 per 24h from_first_claim" or "10 per 1s rate burst 20". Repeat the option for more
    /// limits
    #[arg(long = "limit", required = true, value_parser = limits::parse_limit)]
    limits: Vec<LimitBody>,

    /// IANA name or fixed offset, such as Asia/Shanghai or GMT+8
    #[arg(long)]
    time_zone: String,

    #[command(flatten)]
    others: OtherSettings,

    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// The policy's name
    policy: String,

    /// A limit, such as "3 per day". The limits replace all present ones: repeat the option for each
    #[arg(long = "limit", value_parser = limits::parse_limit)]
    limits: Vec<LimitBody>,

    /// IANA name or fixed offset, such as Asia/Shanghai or GMT+8
    #[arg(long)]
    time_zone: Option<String>,

    #[command(flatten)]
    others: OtherSettings,

    #[command(flatten)]
    change: ChangeArgs,
}

/// The settings that have defaults.
#[derive(Debug, Args)]
struct OtherSettings {
    /// A text for people: what the policy is for
    #[arg(long)]
    description: Option<String>,

    /// Local time at which a day begins, as HH:MM [default: 00:00]
    #[arg(long)]
    day_starts_at: Option<String>,

    /// Day on which a week begins, as an English name such as sunday [default: monday]
    #[arg(long)]
    week_starts_on: Option<String>,

    /// Grant nothing before this instant, such as 2026-12-01T00:00:00Z; or none
    #[arg(long)]
    active_from: Option<String>,

    /// Grant nothing from this instant on; or none
    #[arg(long)]
    active_until: Option<String>,

    /// enforce, or observe: grant every claim, and mark those that would have been denied [default:
    /// enforce]
    #[arg(long)]
    mode: Option<String>,

    /// recorded, or counted: Redis decides, and the ledger records the grants afterwards [default:
    /// recorded]
    #[arg(long)]
    durability: Option<String>,

    /// Claims while the ledger does not answer: refuse them, or count: Redis decides [default:
    /// refuse]
    #[arg(long)]
    on_ledger_outage: Option<String>,
}

/// How a policy is changed.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// When the change takes effect: now, next_window (the policy's next local day), a local date or an
    /// instant
    #[arg(long)]
    pub effective: Option<String>,

    /// Overrides that the change leaves without their limit, or beyond its bounds: drop them, or
    /// keep them without an effect
    #[arg(long)]
    pub orphaned_overrides: Option<String>,

    /// Reason of the change; required for a policy that exists or was archived
    #[arg(long)]
    pub reason: Option<String>,

    #[command(flatten)]
    pub condition: ConditionArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

pub async fn create(args: CreateArgs) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    let request = change.request(Method::PUT, &args.policy)?;
    let request = request.header(IF_NONE_MATCH, "*").json(&args.body());
    let (status, answer) = send(request).await?;
    if status == StatusCode::PRECONDITION_FAILED {
        bail!(
            "{} exists already: change it with `perdiem policy set`, or replace it with `perdiem \
             policy put`",
            args.policy
        );
    }
    change.show(&args.policy, None, status, answer)
}

pub async fn put(args: CreateArgs) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    let before = before_change(&change.server, &path_of(&args.policy)).await?;
    let request = change
        .request(Method::PUT, &args.policy)?
        .json(&args.body());
    change.send(&args.policy, before, request).await
}

pub async fn set(args: SetArgs) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    let before = before_change(&change.server, &path_of(&args.policy)).await?;
    let request = change
        .request(Method::PATCH, &args.policy)?
        .json(&args.patch());
    change.send(&args.policy, before, request).await
}

impl CreateArgs {
    fn body(&self) -> PolicyBody {
        let others = &self.others;
        let change = &self.change;
        let given = |setting: &Option<String>| setting.clone().filter(|text| text != NONE);
        PolicyBody {
            description: others.description.clone(),
            time_zone: self.time_zone.clone(),
            limits: self.limits.iter().cloned().map(Object).collect(),
            day_starts_at: others.day_starts_at.clone(),
            week_starts_on: others.week_starts_on.clone(),
            active_from: given(&others.active_from),
            active_until: given(&others.active_until),
            paused: None,
            mode: others.mode.clone(),
            effective: change.effective.clone(),
            durability: others.durability.clone(),
            on_ledger_outage: others.on_ledger_outage.clone(),
            orphaned_overrides: change.orphaned_overrides.clone(),
            reason: change.reason.clone(),
        }
    }
}

impl SetArgs {
    fn patch(&self) -> PolicyPatch {
        let others = &self.others;
        let change = &self.change;
        let given = |setting: &Option<String>| setting.clone().map(Some);
        let or_none = |setting: &Option<String>| {
            let setting = setting.clone();
            setting.map(|text| Some(text).filter(|text| text != NONE))
        };
        let limits = self.limits.iter().cloned().map(Object).collect();
        PolicyPatch {
            description: given(&others.description),
            time_zone: self.time_zone.clone(),
            limits: (!self.limits.is_empty()).then_some(limits),
            day_starts_at: given(&others.day_starts_at),
            week_starts_on: given(&others.week_starts_on),
            active_from: or_none(&others.active_from),
            active_until: or_none(&others.active_until),
            mode: given(&others.mode),
            durability: given(&others.durability),
            on_ledger_outage: given(&others.on_ledger_outage),
            effective: change.effective.clone(),
            reason: change.reason.clone(),
            orphaned_overrides: change.orphaned_overrides.clone(),
        }
    }
}

impl ChangeArgs {
    /// A request that changes a policy, on the condition that the arguments name.
    pub fn request(&self, method: Method, policy: &str) -> anyhow::Result<RequestBuilder> {
        let request = request(&self.server, method, &path_of(policy))?;
        Ok(self.condition.on(request))
    }

    /// Sends a change, and shows what it changed.
    pub async fn send(
        &self,
        policy: &str,
        before: Option<Value>,
        request: RequestBuilder,
    ) -> anyhow::Result<ExitCode> {
        let (status, answer) = send(request).await?;
        self.show(policy, before, status, answer)
    }

    fn show(
        &self,
        policy: &str,
        before: Option<Value>,
        status: StatusCode,
        answer: Value,
    ) -> anyhow::Result<ExitCode> {
        if !status.is_success() {
            let orphans = read::<Problem>(&answer)?.orphaned_overrides;
            let orphans = orphans.map(|orphans| format!("; {}", describe_orphans(&orphans)));
            bail!("{}{}", describe(&answer), orphans.unwrap_or_default());
        }
        if !self.server.json {
            print_changes(policy, before.as_ref(), &answer)?;
        }
        let shown = show_with_warnings(&self.server, &answer)?;
        self.condition.tell(&self.server);
        Ok(shown)
    }
}
