//! Tells the story to a running server, by the requests that everybody sends.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::cast::Actor;
use super::scene::{Deed, Scene, StoryClaim};
use crate::ServerArgs;
use crate::client::{call, read, request, segment, send};
use crate::offline::WorkBar;
use crate::refusal::Refused;
use api::grants::ClaimAnswer;
use api::instant::written;
use api::keys::CreatedKey;
use api::reconciliations::ReconciliationAnswer;
use api::seals::LatestSeal;
use api::statistics::StatisticsList;

const CLOCK: &str = "/v1/sandbox/clock";
/// The service writes denials and seals a few seconds later.
const SETTLE_TIME: Duration = Duration::from_secs(30);
/// The codes of claims that are neither granted nor denied.
const NOT_COUNTED: [&str; 2] = ["policy-inactive", "being-erased"];
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    pub granted: u64,
    pub denied: u64,
    pub given_back: u64,
}

/// Tells scenes by the keys of the cast.
pub struct Teller {
    url: String,
    keys: BTreeMap<Actor, HeldKey>,
    told: Told,
    /// The number of the next claim, which is its `Idempotency-Key`.
    next_claim: u64,
}

struct HeldKey {
    id: Option<Uuid>,
    secret: String,
}

impl Teller {
    pub fn new(url: String, admin_key: String) -> Self {
        let admin = HeldKey {
            id: None,
            secret: admin_key,
        };
        Self {
            url,
            keys: BTreeMap::from([(Actor::Admin, admin)]),
            told: Told::default(),
            next_claim: 1001,
        }
    }

    /// The secret of somebody's key.
    pub fn secret(&self, of: Actor) -> &str {
        self.keys.get(&of).map_or("", |key| &key.secret)
    }

    fn server(&self, by: Actor) -> ServerArgs {
        ServerArgs {
            url: self.url.clone(),
            key: Some(self.secret(by).to_owned()),
            key_file: None,
            json: false,
            utc: false,
        }
    }

    async fn ask(
        &self,
        by: Actor,
        method: Method,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let request = request(&self.server(by), method, path)?;
        let request = if body.is_null() {
            request
        } else {
            request.json(body)
        };
        call(request)
            .await
            .with_context(|| format!("the story cannot go on at {path}"))
    }

    /// Gives somebody a key.
    async fn introduce(&mut self, by: Actor, actor: Actor) -> anyhow::Result<()> {
        let answer = self.ask(by, Method::POST, "/v1/keys", &actor.key()).await?;
        let CreatedKey { key, secret } = read(&answer)?;
        let id = Some(key.id);
        self.keys.insert(actor, HeldKey { id, secret });
        Ok(())
    }

    /// Tells the scenes in the order of their instants, and what follows from them, up to an instant. Then the
    /// clock shows it.
    pub async fn tell(&mut self, scenes: Vec<Scene>, until: DateTime<Utc>) -> anyhow::Result<Told> {
        let bar = WorkBar::of("scenes")?;
        let mut queue: BTreeMap<(DateTime<Utc>, usize), Scene> = BTreeMap::new();
        let mut count = 0;
        let mut enter = |queue: &mut BTreeMap<_, _>, scene: Scene| {
            count += 1;
            queue.insert((scene.at, count), scene);
        };
        for scene in scenes {
            enter(&mut queue, scene);
        }
        let mut done = 0;
        while let Some((_, scene)) = queue.pop_first() {
            if scene.at >= until {
                break;
            }
            self.move_clock(scene.at).await?;
            if let Some(next) = self.play(scene).await? {
                enter(&mut queue, next);
            }
            done += 1;
            bar.tell(done, done + queue.len() as u64);
        }
        bar.end();
        self.settle().await?;
        self.move_clock(until).await?;
        Ok(self.told)
    }

    /// Moves the clock, unless it went on by itself meanwhile.
    async fn move_clock(&self, at: DateTime<Utc>) -> anyhow::Result<()> {
        let body = json!({ "at": written(at) });
        let moved = self.ask(Actor::Admin, Method::POST, CLOCK, &body).await;
        match moved {
            Err(error) if is_refused(&error, StatusCode::UNPROCESSABLE_ENTITY) => Ok(()),
            moved => moved.map(|_| ()),
        }
    }

    /// Plays a scene. Returns what follows from it.
    async fn play(&mut self, scene: Scene) -> anyhow::Result<Option<Scene>> {
        match &scene.deed {
            Deed::Claim(claim) => return self.claim(&scene, claim).await,
            Deed::Introduce(actor) => self.introduce(scene.by, *actor).await?,
            Deed::Confirm(grant) => {
                let path = format!("/v1/grants/{grant}/confirmation");
                let confirmed = self.ask(scene.by, Method::POST, &path, &Value::Null);
                came_too_late(confirmed.await)?;
            }
            Deed::GiveBack(grant, reason) => {
                let path = format!("/v1/grants/{grant}/reversal");
                let body = json!({ "reason": reason });
                let reversed = self.ask(scene.by, Method::POST, &path, &body).await;
                if !came_too_late(reversed)? {
                    self.told.given_back += 1;
                }
            }
            Deed::Change(change) => {
                self.ask(scene.by, change.method.clone(), &change.path, &change.body)
                    .await?;
            }
            Deed::Revoke(of, reason) => {
                let id = self.keys.get(of).and_then(|key| key.id);
                let id = id.context("the key has no id")?;
                let path = format!("/v1/keys/{id}?reason={}", segment(reason));
                self.ask(scene.by, Method::DELETE, &path, &Value::Null)
                    .await?;
            }
            Deed::Reconcile => self.reconcile(scene.by).await?,
        }
        Ok(None)
    }

    async fn claim(&mut self, scene: &Scene, claim: &StoryClaim) -> anyhow::Result<Option<Scene>> {
        let key = format!("order-{}", self.next_claim);
        self.next_claim += 1;
        let path = format!("/v1/policies/{}/claims", claim.policy);
        let request = request(&self.server(scene.by), Method::POST, &path)?;
        let request = request.header("Idempotency-Key", key).json(&claim.body());
        let answer = match send(request).await {
            Ok((_, answer)) => answer,
            Err(error) => match error.downcast_ref::<Refused>() {
                // Nobody counts these: the policy is paused, or the member is being erased.
                Some(refused) if NOT_COUNTED.contains(&refused.code()) => return Ok(None),
                Some(refused) if refused.is_no() => {
                    self.told.denied += 1;
                    return Ok(None);
                }
                Some(_) | None => return Err(error),
            },
        };
        self.told.granted += 1;
        let ClaimAnswer { grant, .. } = read(&answer)?;
        let grant = grant.context("a grant without an id")?;
        Ok(claim.then.map(|sequel| sequel.scene(grant.id, scene.at)))
    }

    async fn reconcile(&self, by: Actor) -> anyhow::Result<()> {
        let looks_only = json!({});
        let begun = self.ask(by, Method::POST, "/v1/reconciliations", &looks_only);
        let mut found: ReconciliationAnswer = read(&begun.await?)?;
        while found.report.finished_at.is_none() {
            sleep(LOOK_EVERY).await;
            let path = format!("/v1/reconciliations/{}", found.report.id);
            found = read(&self.ask(by, Method::GET, &path, &Value::Null).await?)?;
        }
        let differences = found.report.difference_count;
        if differences > 0 {
            bail!("a reconciliation of the demo found {differences} differences");
        }
        Ok(())
    }

    /// Waits until the figures of days are those that were told, and all of it is sealed.
    async fn settle(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + SETTLE_TIME;
        loop {
            let stats = self.ask(
                Actor::Auditor,
                Method::GET,
                "/v1/stats?limit=1000",
                &Value::Null,
            );
            let StatisticsList { items, as_of, .. } = read(&stats.await?)?;
            let sum =
                |figure: fn(&api::statistics::DayStatistics) -> u64| items.iter().map(figure).sum();
            let found = Told {
                granted: sum(|day| day.grants),
                denied: sum(|day| day.denied_claims),
                given_back: sum(|day| day.reversed_grants),
            };
            if found == self.told && self.is_sealed_to(as_of).await? {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "the figures are {found:?} where the story told {:?}",
                    self.told
                );
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn is_sealed_to(&self, position: u64) -> anyhow::Result<bool> {
        let latest = self
            .ask(
                Actor::Auditor,
                Method::GET,
                "/v1/seals/latest",
                &Value::Null,
            )
            .await;
        match latest {
            Ok(answer) => Ok(read::<LatestSeal>(&answer)?.seal.size >= position),
            Err(error) if is_refused(&error, StatusCode::NOT_FOUND) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a correction found its grant ended, or its member erased.
fn came_too_late(answer: anyhow::Result<Value>) -> anyhow::Result<bool> {
    match answer {
        Ok(_) => Ok(false),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) if refused.is_no() || NOT_COUNTED.contains(&refused.code()) => Ok(true),
            Some(_) | None => Err(error),
        },
    }
}

fn is_refused(error: &anyhow::Error, status: StatusCode) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| refused.problem.status == status.as_u16())
}
