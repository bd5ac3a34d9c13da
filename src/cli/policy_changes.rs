//! Commands that create, change and replace a policy.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{anyhow, bail};
use clap::Args;
use reqwest::header::IF_NONE_MATCH;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::ServerArgs;
use super::client::{call, read, request};
use super::condition::ConditionArgs;
use super::difference::{before_change, print_changes};
use super::local::{LocalTime, present};
use super::past_versions;
use super::policies::{path_of, show_with_warnings};
use super::refusal::Refused;
use super::times::{EffectTime, TimeOrNone, Unplaced};
use api::policies::{LimitBody, PolicyAnswer, PolicyBody, PolicyPatch};
use api::strict::{Object, WholeNumber};
use api::tiers::TierBody;

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The policy's name
    policy: String,

    /// A limit, such as "3 per day", "1 per ever", "5 per 15m calendar", "80 per 2 weeks from 2026-01-05", "5
    /// per 24h sliding", "500 per 24h sliding step 1h", "5 per 24h from_first_claim" or "10 per 1s rate burst
    /// 20". Repeat the option for more limits
    #[arg(long = "limit", required = true, value_parser = LimitBody::from_str)]
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
    #[arg(long = "limit", value_parser = LimitBody::from_str)]
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

    /// Whose calendar divides time: policy, subject, or first_grant: as subject, counted from the day of a
    /// subject's first entry [default: policy]
    #[arg(long)]
    calendar: Option<String>,

    /// Grant nothing before this time; or none
    #[arg(
        long = "from",
        alias = "active-from",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    active_from: Option<TimeOrNone>,

    /// Grant nothing from this time on; or none
    #[arg(
        long = "until",
        alias = "active-until",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    active_until: Option<TimeOrNone>,

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

    /// Levels of use in percent, such as 80,100: the entry that brings a limit to one of them is marked
    /// [default: none]
    #[arg(long, value_name = "PERCENTS", value_parser = parse_levels)]
    warn_at: Option<LevelList>,

    /// For at least how many days a claim can be repeated with its Idempotency-Key; or none [default: 400]
    #[arg(long, value_name = "DAYS", value_parser = parse_days)]
    idempotency_days: Option<DaysArg>,

    /// A tier: a name, and other maxima for the subjects that are put into it, such as "gold: 10 per day, 30 per
    /// week"; or none. Repeat the option for more tiers [default: none]
    #[arg(long = "tier", value_name = "TIER", value_parser = parse_tier)]
    tiers: Vec<TierArg>,

    /// A limit that all subjects share, such as "1000 per day"; or none. Repeat the option for more of them
    /// [default: none]
    #[arg(long = "total", value_name = "LIMIT", value_parser = parse_total)]
    total: Vec<TotalArg>,
}

/// A number of days, or the word `none`.
#[derive(Debug, Clone, Copy)]
struct DaysArg(Option<i128>);

fn parse_days(text: &str) -> Result<DaysArg, &'static str> {
    match text {
        "none" => Ok(DaysArg(None)),
        _ => match text.parse() {
            Ok(days) => Ok(DaysArg(Some(days))),
            Err(_) => Err("write a whole number of days, such as 30, or none"),
        },
    }
}

/// A limit that all subjects share, or the word `none`.
#[derive(Debug, Clone)]
struct TotalArg(Option<LimitBody>);

fn parse_total(text: &str) -> Result<TotalArg, &'static str> {
    match text {
        "none" => Ok(TotalArg(None)),
        _ => text.parse().map(|limit| TotalArg(Some(limit))),
    }
}

/// A tier, or the word `none`.
#[derive(Debug, Clone)]
struct TierArg(Option<TierBody>);

fn parse_tier(text: &str) -> Result<TierArg, &'static str> {
    match text {
        "none" => Ok(TierArg(None)),
        _ => text.parse().map(|tier| TierArg(Some(tier))),
    }
}

impl OtherSettings {
    /// The tiers, if any option is about them.
    fn tiers(&self) -> Option<Vec<Object<TierBody>>> {
        let tiers = self.tiers.iter().filter_map(|tier| tier.0.clone());
        (!self.tiers.is_empty()).then(|| tiers.map(Object).collect())
    }

    /// The days of keys, if the option is given.
    fn idempotency_days(&self) -> Option<Option<WholeNumber>> {
        self.idempotency_days.map(|days| days.0.map(WholeNumber))
    }

    /// The limits that all subjects share, if any option is about them.
    fn total(&self) -> Option<Vec<Object<LimitBody>>> {
        let limits = self.total.iter().filter_map(|limit| limit.0.clone());
        (!self.total.is_empty()).then(|| limits.map(Object).collect())
    }
}

/// Levels of use, as written.
#[derive(Debug, Clone)]
struct LevelList(Vec<WholeNumber>);

fn parse_levels(text: &str) -> Result<LevelList, &'static str> {
    let levels = match text {
        "none" => Ok(Vec::new()),
        _ => text
            .split(',')
            .map(|level| level.trim().parse().map(WholeNumber))
            .collect(),
    };
    levels
        .map(LevelList)
        .map_err(|_| "write percents with commas between them, such as 80,100, or none")
}

/// How a policy is changed.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// When the change takes effect: next_window (the policy's next local day) or a time [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub effective: Option<EffectTime>,

    /// Overrides that the change leaves without their limit, or subjects without their tier: drop them, or
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

/// A scheduled version that a change gives up, and the version in force until then, as it came.
struct GivenUp {
    newest: PolicyAnswer,
    in_force: Value,
}

pub async fn create(args: CreateArgs) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    if change.condition.if_version.is_some() {
        bail!("a policy that does not exist has no version: leave out --if-version");
    }
    let local = args.local();
    let request = change.request(Method::PUT, &args.policy)?;
    let request = request.header(IF_NONE_MATCH, "*").json(&args.body(&local)?);
    let created = change.send(&args.policy, None, request, &local).await;
    created.map_err(|error| match error.downcast_ref::<Refused>() {
        Some(refused) if refused.code() == "precondition-failed" => anyhow!(
            "{} exists already: change it with `perdiem policy set`, or replace it with `perdiem \
             policy put`",
            args.policy
        ),
        _ => error,
    })
}

pub async fn put(args: CreateArgs) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    let before = before_change(&change.server, &path_of(&args.policy)).await?;
    let local = args.local();
    let request = change.request(Method::PUT, &args.policy)?;
    let request = request.json(&args.body(&local)?);
    change.send(&args.policy, before, request, &local).await
}

pub async fn set(args: SetArgs) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    let before = before_change(&change.server, &path_of(&args.policy)).await?;
    let local = match &args.time_zone {
        Some(zone) => args.others.local(&change.server, zone),
        None => LocalTime::of_policy(&change.server, &args.policy).await?,
    };
    let request = change.request(Method::PATCH, &args.policy)?;
    let request = request.json(&args.patch(&local)?);
    change.send(&args.policy, before, request, &local).await
}

impl OtherSettings {
    /// In a zone, with the start of the day that the settings name.
    fn local(&self, server: &ServerArgs, time_zone: &str) -> LocalTime {
        LocalTime::in_zone(server, time_zone, self.day_starts_at.as_deref())
    }
}

impl CreateArgs {
    /// In the zone that the policy gets.
    fn local(&self) -> LocalTime {
        self.others.local(&self.change.server, &self.time_zone)
    }

    fn body(&self, local: &LocalTime) -> anyhow::Result<PolicyBody> {
        let others = &self.others;
        let change = &self.change;
        let now = local.at(present());
        let instant =
            |given: Option<TimeOrNone>| now.instant_text(given.and_then(TimeOrNone::time));
        Ok(PolicyBody {
            description: others.description.clone(),
            time_zone: self.time_zone.clone(),
            limits: self.limits.iter().cloned().map(Object).collect(),
            day_starts_at: others.day_starts_at.clone(),
            week_starts_on: others.week_starts_on.clone(),
            calendar: others.calendar.clone(),
            active_from: instant(others.active_from)?,
            active_until: instant(others.active_until)?,
            paused: None,
            mode: others.mode.clone(),
            effective: change.effective(local)?,
            durability: others.durability.clone(),
            on_ledger_outage: others.on_ledger_outage.clone(),
            warn_at: others.warn_at.as_ref().map(|levels| levels.0.clone()),
            idempotency_days: others.idempotency_days().flatten(),
            tiers: others.tiers(),
            total: others.total(),
            orphaned_overrides: change.orphaned_overrides.clone(),
            reason: change.reason.clone(),
        })
    }
}

impl SetArgs {
    fn patch(&self, local: &LocalTime) -> anyhow::Result<PolicyPatch> {
        let others = &self.others;
        let change = &self.change;
        let now = local.at(present());
        let given = |setting: &Option<String>| setting.clone().map(Some);
        let or_none = |given: Option<TimeOrNone>| {
            let instant = given.map(|given| now.instant_text(given.time()));
            instant.transpose()
        };
        let limits = self.limits.iter().cloned().map(Object).collect();
        Ok(PolicyPatch {
            description: given(&others.description),
            time_zone: self.time_zone.clone(),
            limits: (!self.limits.is_empty()).then_some(limits),
            day_starts_at: given(&others.day_starts_at),
            week_starts_on: given(&others.week_starts_on),
            calendar: given(&others.calendar),
            active_from: or_none(others.active_from)?,
            active_until: or_none(others.active_until)?,
            mode: given(&others.mode),
            durability: given(&others.durability),
            on_ledger_outage: given(&others.on_ledger_outage),
            warn_at: others.warn_at.as_ref().map(|levels| Some(levels.0.clone())),
            idempotency_days: others.idempotency_days(),
            tiers: others.tiers().map(Some),
            total: others.total().map(Some),
            effective: change.effective(local)?,
            reason: change.reason.clone(),
            orphaned_overrides: change.orphaned_overrides.clone(),
        })
    }
}

impl ChangeArgs {
    /// A request that changes a policy, on the condition that the arguments name.
    pub fn request(&self, method: Method, policy: &str) -> anyhow::Result<RequestBuilder> {
        let request = request(&self.server, method, &path_of(policy))?;
        Ok(self.condition.on(request))
    }

    /// When the change takes effect, as the server takes it.
    pub fn effective(&self, local: &LocalTime) -> Result<Option<String>, Unplaced> {
        let effective = self.effective;
        let text = effective.map(|effective| local.at(present()).effect(effective));
        text.transpose()
    }

    /// The version that was scheduled, if the change is in force at once and so takes its place.
    async fn given_up(
        &self,
        policy: &str,
        before: Option<&Value>,
        after: &Value,
    ) -> anyhow::Result<Option<GivenUp>> {
        let Some(newest) = before.map(read::<PolicyAnswer>).transpose()? else {
            return Ok(None);
        };
        let after: PolicyAnswer = read(after)?;
        let is_in_force =
            |version: &PolicyAnswer| version.in_force_version == Some(version.version);
        if is_in_force(&newest) || !is_in_force(&after) {
            return Ok(None);
        }
        let number = newest.in_force_version.unwrap_or(newest.version);
        let mut in_force = past_versions::version(&self.server, policy, number).await?;
        // As the policy shows it while it is in force.
        if let Value::Object(fields) = &mut in_force {
            fields.insert("in_force_version".to_owned(), number.into());
        }
        Ok(Some(GivenUp { newest, in_force }))
    }

    /// Sends a change, and shows what it changed.
    pub async fn send(
        &self,
        policy: &str,
        before: Option<Value>,
        request: RequestBuilder,
        local: &LocalTime,
    ) -> anyhow::Result<ExitCode> {
        let answer = call(request).await?;
        if !self.server.json {
            let given_up = self.given_up(policy, before.as_ref(), &answer).await?;
            let replaced = given_up.as_ref().map(|given_up| &given_up.in_force);
            print_changes(policy, replaced.or(before.as_ref()), &answer, local)?;
            if let Some(GivenUp { newest, .. }) = given_up {
                let at = local.show(newest.effective_at);
                let version = newest.version;
                println!("! {policy}: version {version} does not take effect at {at} any more");
            }
        }
        let shown = show_with_warnings(&self.server, &answer)?;
        self.condition.tell(&self.server);
        Ok(shown)
    }
}
