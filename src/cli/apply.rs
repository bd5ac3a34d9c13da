//! `perdiem policy apply`: creates, replaces and archives policies by a file.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use reqwest::header::{IF_MATCH, IF_NONE_MATCH};
use reqwest::{Method, RequestBuilder};
use serde_json::{Map, Value, json};

use super::client::{all_items, call, can_try_again, read, request, segment};
use super::difference::differences;
use super::local::LocalTime;
use super::orphans::describe_orphans;
use super::policies::tell_warnings;
use super::refusal::Refused;
use super::{ServerArgs, WAITS, yaml};
use api::instant::written;
use api::policies::PolicyAnswer;
use api::versions::FieldDifference;
use domain::policy::PolicyName;

/// The exit code of a dry run when something would change.
const WOULD_CHANGE: u8 = 5;

/// A dry run needs a reason too, but stores none.
const REHEARSED: &str = "a dry run";

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// YAML or JSON file with each policy by its name under `policies`; - reads standard input
    #[arg(short, long)]
    file: PathBuf,

    /// Only show what would change; exits with 5 when something would change
    #[arg(long)]
    dry_run: bool,

    /// Archive the policies that the file does not name
    #[arg(long)]
    prune: bool,

    /// Reason for all policies that have no reason in the file
    #[arg(long)]
    reason: Option<String>,

    /// Overrides that the changes leave without their limit, or subjects without their tier: drop them, or keep
    /// them without an effect
    #[arg(long)]
    orphaned_overrides: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

/// One policy of the file or of the server, and the action that it needs.
struct PlanStep {
    name: String,
    action: Action,
    /// The policy on the server.
    before: Option<KnownPolicy>,
    /// The policy after the change; `None` where it is archived.
    after: Option<KnownPolicy>,
    /// The fields in the file, with a reason if there is one.
    body: Map<String, Value>,
    /// Where the change waits for a second admin: the command that makes it.
    approval: Option<String>,
}

/// A policy as the server answered it: as it came, and in its type.
struct KnownPolicy {
    json: Value,
    policy: PolicyAnswer,
}

impl KnownPolicy {
    fn read(json: Value) -> anyhow::Result<Self> {
        let policy = read(&json)?;
        Ok(Self { json, policy })
    }

    /// When the version takes effect: `now`, or an instant.
    fn effect(&self) -> String {
        if self.policy.in_force_version == Some(self.policy.version) {
            "now".to_owned()
        } else {
            written(self.policy.effective_at)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Create,
    Replace,
    Keep,
    Archive,
    /// The policy is not in the file, and is not changed.
    Leave,
}

pub async fn apply(args: ApplyArgs) -> anyhow::Result<ExitCode> {
    // 1. Read the file.
    let mut policies = policies_of(yaml::read(&args.file)?, args.reason.as_deref())?;
    if let Some(choice) = &args.orphaned_overrides {
        for (_, policy) in &mut policies {
            let field = policy.entry("orphaned_overrides");
            field.or_insert_with(|| choice.as_str().into());
        }
    }
    // 2. Ask the server, by dry runs, what each policy would become. A refusal ends the command
    // here.
    let mut steps = plan(&args, policies).await?;
    // 3. Show the differences.
    if !args.server.json {
        steps.iter().for_each(|step| print!("{step}"));
        println!("{}", summary(&steps));
    }
    // 4. Apply the changes, each with a reason.
    let has_changes = steps.iter().any(|step| step.action.is_change());
    if !args.dry_run && has_changes {
        check_reasons(&steps)?;
        check_orphans(&steps)?;
        perform(&args.server, &mut steps).await?;
        if !args.server.json {
            println!("{}", outcome(&steps));
        }
    }
    // 5. Print the result as JSON: after the changes, with what the server answered.
    if args.server.json {
        let steps: Vec<Value> = steps.iter().map(PlanStep::json).collect();
        println!("{:#}", Value::Array(steps));
    }
    Ok(if args.dry_run && has_changes {
        ExitCode::from(WOULD_CHANGE)
    } else if steps.iter().any(|step| step.approval.is_some()) {
        ExitCode::from(WAITS)
    } else {
        ExitCode::SUCCESS
    })
}

/// Replacing or archiving a policy requires a reason.
fn check_reasons(steps: &[PlanStep]) -> anyhow::Result<()> {
    let without: Vec<&str> = steps
        .iter()
        .filter(|step| matches!(step.action, Action::Replace | Action::Archive))
        .filter(|step| step.reason().is_none())
        .map(|step| step.name.as_str())
        .collect();
    if !without.is_empty() {
        let names = without.join(", ");
        bail!("no reason for {names}: write it with --reason or in the file; nothing was changed");
    }
    Ok(())
}

/// A change that orphans overrides requires a choice.
fn check_orphans(steps: &[PlanStep]) -> anyhow::Result<()> {
    let has_choice = |step: &PlanStep| step.body.contains_key("orphaned_overrides");
    let without: Vec<&str> = steps
        .iter()
        .filter(|step| step.orphans().is_some() && !has_choice(step))
        .map(|step| step.name.as_str())
        .collect();
    if !without.is_empty() {
        let names = without.join(", ");
        bail!(
            "overrides or subjects of {names} lose their limit or tier: write --orphaned-overrides with drop or keep, or \
             orphaned_overrides in the file; nothing was changed"
        );
    }
    Ok(())
}

/// The policies of a file, by name, each with a reason if there is one.
pub fn policies_of(
    file: Value,
    reason: Option<&str>,
) -> anyhow::Result<Vec<(String, Map<String, Value>)>> {
    let Value::Object(mut file) = file else {
        bail!("the file is not a map: write policies:, and each policy by its name under it");
    };
    let policies = file.remove("policies");
    if let Some(unknown) = file.keys().next() {
        bail!("the file has the unknown field {unknown}: write each policy under policies:");
    }
    let policies = match policies {
        Some(Value::Object(policies)) if !policies.is_empty() => policies,
        _ => bail!("the file has no policies: write each policy by its name under policies:"),
    };
    let mut named = Vec::new();
    for (name, policy) in policies {
        PolicyName::new(&name).with_context(|| format!("the policy {name:?}"))?;
        let Value::Object(mut policy) = policy else {
            bail!("the policy {name} is not a map: write its fields, such as time_zone and limits");
        };
        if let Some(reason) = reason
            && policy.get("reason").is_none_or(Value::is_null)
        {
            policy.insert("reason".to_owned(), reason.into());
        }
        named.push((name, policy));
    }
    Ok(named)
}

/// Asks the server what each policy would become. Nothing is changed. A refusal of one policy is an
/// error, so that nothing is changed later either.
async fn plan(
    args: &ApplyArgs,
    policies: Vec<(String, Map<String, Value>)>,
) -> anyhow::Result<Vec<PlanStep>> {
    let mut steps = Vec::new();
    let mut refusals = Vec::new();
    // 1. The server's policies that the file does not name: archive them, or leave them.
    let standing = all_items(&args.server, "/v1/policies?limit=1000").await?;
    for policy in standing {
        let policy = KnownPolicy::read(policy)?;
        let name = policy.policy.name.clone();
        if policies.iter().any(|(in_file, _)| *in_file == name) {
            continue;
        }
        let action = if args.prune {
            Action::Archive
        } else {
            Action::Leave
        };
        let reason = args.reason.as_deref();
        let reason = reason.map(|reason| ("reason".to_owned(), reason.into()));
        steps.push(PlanStep {
            name,
            action,
            before: Some(policy),
            after: None,
            body: reason.into_iter().collect(),
            approval: None,
        });
    }
    // 2. The file's policies: a dry run of each one. All refusals are collected, to report them at
    // once.
    for (name, body) in policies {
        match rehearse(&args.server, name.clone(), body).await? {
            Ok(step) => steps.push(step),
            Err(refusal) => refusals.push(format!("{name}: {refusal}")),
        }
    }
    if !refusals.is_empty() {
        bail!("nothing was changed; {}", refusals.join("; "));
    }
    // 3. Sort by name: the output does not depend on the order in the file.
    steps.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(steps)
}

/// Reads the policy that the server has, and asks what it would become.
async fn rehearse(
    server: &ServerArgs,
    name: String,
    body: Map<String, Value>,
) -> anyhow::Result<Result<PlanStep, String>> {
    // 1. Read the policy.
    let path = format!("/v1/policies/{}", segment(&name));
    let before = match call(request(server, Method::GET, &path)?).await {
        Ok(answer) => Some(KnownPolicy::read(answer)?),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) if refused.code() == "unknown-policy" => None,
            _ => return Ok(Err(refusal_of(error)?)),
        },
    };
    let mut step = PlanStep {
        name,
        action: Action::Create,
        before,
        after: None,
        body,
        approval: None,
    };
    // 2. Send the new policy as a dry run, on the condition that the policy is still the one that
    // was read.
    let mut rehearsal = step.body.clone();
    rehearsal
        .entry("reason")
        .or_insert_with(|| REHEARSED.into());
    let put = request(server, Method::PUT, &format!("{path}?dry_run=true"))?;
    let mut after = match call(step.guard(put).json(&rehearsal)).await {
        Ok(answer) => KnownPolicy::read(answer)?,
        Err(error) => return Ok(Err(refusal_of(error)?)),
    };
    tell_warnings(&after.policy.warnings);
    // 3. The same version in both answers means: nothing would change.
    if let Some(before) = &step.before {
        step.action = if before.policy.version == after.policy.version {
            Action::Keep
        } else {
            Action::Replace
        };
    }
    if step.action != Action::Keep
        && let Value::Object(fields) = &mut after.json
    {
        fields.insert("reason".to_owned(), step.reason().into());
    }
    step.after = Some(after);
    Ok(Ok(step))
}

/// The text of a refusal.
///
/// # Errors
/// The error is none, or the same command can succeed the next time.
pub fn refusal_of(error: anyhow::Error) -> anyhow::Result<String> {
    match error.downcast_ref::<Refused>() {
        Some(refused) if refused.code() == "precondition-failed" => Ok(
            "somebody changed the policy meanwhile: run the command again to see the difference"
                .to_owned(),
        ),
        Some(refused) if !can_try_again(&error) => Ok(refused.told()),
        _ => Err(error),
    }
}

/// Applies the changes one after the other, and stops at the first refusal: a change that somebody
/// else made meanwhile is not overwritten. A change that waits for a second admin is no refusal.
async fn perform(server: &ServerArgs, steps: &mut [PlanStep]) -> anyhow::Result<()> {
    let changes = steps.iter_mut().filter(|step| step.action.is_change());
    let mut changes: Vec<&mut PlanStep> = changes.collect();
    for done in 0..changes.len() {
        let result = changes[done].perform(server).await;
        result.with_context(|| {
            let made = changes[..done]
                .iter()
                .filter(|step| step.approval.is_none());
            let made: Vec<&str> = made.map(|step| step.name.as_str()).collect();
            let all = changes.iter().map(|step| step.name.as_str());
            let others: Vec<&str> = all.filter(|name| !made.contains(name)).collect();
            let names = |names: &[&str]| -> String {
                if names.is_empty() {
                    "nothing".to_owned()
                } else {
                    names.join(", ")
                }
            };
            format!(
                "stopped at {}; changed: {}; not changed: {}",
                changes[done].name,
                names(&made),
                names(&others)
            )
        })?;
    }
    Ok(())
}

impl Action {
    fn is_change(self) -> bool {
        match self {
            Self::Create | Self::Replace | Self::Archive => true,
            Self::Keep | Self::Leave => false,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Keep => "keep",
            Self::Archive => "archive",
            Self::Leave => "leave",
        }
    }
}

impl PlanStep {
    fn reason(&self) -> Option<&str> {
        let reason = self.body.get("reason").and_then(Value::as_str);
        reason.filter(|reason| !reason.trim().is_empty())
    }

    /// The overrides that the change orphans, in one line.
    fn orphans(&self) -> Option<String> {
        let orphans = self.after.as_ref()?.policy.orphaned_overrides.as_ref();
        orphans.map(describe_orphans)
    }

    /// Makes a request conditional: it fails if the policy has changed since it was read.
    fn guard(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.before {
            Some(before) => request.header(IF_MATCH, format!("\"{}\"", before.policy.version)),
            None => request.header(IF_NONE_MATCH, "*"),
        }
    }

    async fn perform(&mut self, server: &ServerArgs) -> anyhow::Result<()> {
        let path = format!("/v1/policies/{}", segment(&self.name));
        let request = match self.action {
            Action::Archive => {
                let reason = self.reason().unwrap_or_default();
                request(server, Method::DELETE, &path)?.query(&[("reason", reason)])
            }
            _ => request(server, Method::PUT, &path)?.json(&self.body),
        };
        match call(self.guard(request)).await {
            Ok(answer) => self.after = Some(KnownPolicy::read(answer)?),
            Err(error) => {
                let refused = error.downcast_ref::<Refused>();
                self.approval = refused.and_then(Refused::approval);
                if self.approval.is_none() {
                    bail!(refusal_of(error)?);
                }
            }
        }
        Ok(())
    }

    fn json(&self) -> Value {
        json!({
            "policy": self.name,
            "action": self.action.as_str(),
            "before": self.before.as_ref().map(|before| &before.json),
            "after": self.after.as_ref().map(|after| &after.json),
            "approval": self.approval,
        })
    }

    /// The fields that differ; for a new policy, the fields in the file.
    fn differences(&self) -> Vec<FieldDifference<'_>> {
        let before = self.before.as_ref();
        let after = self.after.as_ref();
        let before_json = before.map(|it| &it.json);
        let after_json = after.map(|it| &it.json);
        // A file has many policies.
        let utc = LocalTime::utc();
        let differences = differences(before_json, after_json, &utc);
        match (before, after) {
            (Some(before), Some(after)) => {
                let before = before.effect();
                let after = after.effect();
                let effect = (before != after).then_some(("effective", before, after));
                differences.chain(effect).collect()
            }
            _ => differences
                .filter(|(field, ..)| self.body.contains_key(*field))
                .collect(),
        }
    }
}

impl fmt::Display for PlanStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        let orphans = match (self.action.is_change(), self.orphans()) {
            (true, Some(orphans)) => format!("! {name}: {orphans}\n"),
            _ => String::new(),
        };
        match self.action {
            Action::Create => self.differences().iter().try_for_each(|(field, _, after)| {
                writeln!(formatter, "+ {name}: {field}: {after}")
            }),
            Action::Replace => self
                .differences()
                .iter()
                .try_for_each(|(field, before, after)| {
                    writeln!(formatter, "~ {name}: {field}: {before} → {after}")
                }),
            Action::Keep => writeln!(formatter, "= {name}"),
            Action::Archive => writeln!(
                formatter,
                "- {name}: archived, because it is not in the file"
            ),
            Action::Leave => writeln!(formatter, "! {name}: not in the file; --prune archives it"),
        }?;
        formatter.write_str(&orphans)
    }
}

/// What became of the changes: those that wait have the command of the second admin on a line of its own.
fn outcome(steps: &[PlanStep]) -> String {
    let waiting: Vec<String> = steps
        .iter()
        .filter_map(|step| {
            let approval = step.approval.as_ref()?;
            Some(format!(
                "{} is not changed yet: it waits for a second admin, who types\n{approval}",
                step.name
            ))
        })
        .collect();
    let changes = steps.iter().filter(|step| step.action.is_change()).count();
    let applied = (waiting.len() < changes).then(|| "applied".to_owned());
    let told: Vec<String> = applied.into_iter().chain(waiting).collect();
    told.join("\n")
}

fn summary(steps: &[PlanStep]) -> String {
    let count = |action| steps.iter().filter(|step| step.action == action).count();
    let counts = [
        (Action::Create, "new"),
        (Action::Replace, "changed"),
        (Action::Archive, "archived"),
        (Action::Keep, "unchanged"),
        (Action::Leave, "not in the file"),
    ];
    let counts: Vec<String> = counts
        .into_iter()
        .map(|(action, word)| (count(action), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    counts.join(", ")
}
