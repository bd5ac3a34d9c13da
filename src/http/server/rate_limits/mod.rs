//! Envoy's Rate Limit Service, over gRPC: a proxy asks before it lets a request through. Each descriptor of a
//! question is a claim of the gate's key, and the claims of one question are granted together or not at all.

mod connection;
pub mod messages;
mod question;
mod told;

use std::iter::{once, repeat_with};
use std::rc::Rc;
use std::sync::Arc;

use actix_web::ResponseError;
use futures_util::future::{join_all, try_join_all};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use self::messages::{RateLimitRequest, RateLimitResponse};
use self::question::{AskedClaim, RateLimitQuestion};
use self::told::{Became, Passed, tell};
use super::connection::Bounds;
use super::request_id::RequestId;
use crate::answer::ApiError;
use crate::request::{GateKey, KeyHeader};
use crate::v1::batches::{Checked, claim_together};
use crate::v1::claims::{Claimed, GrantedClaim, check_claim, decide};
use domain::claim::IdempotencyKey;
use engine::{Engine, Principal, Rehearsal};
use host::chain::Chain;

/// The service of one thread.
pub struct RateLimits {
    engine: Arc<Engine>,
    key: GateKey,
    bounds: Bounds,
    /// Cancelled when the server ends.
    ending: CancellationToken,
}

impl RateLimits {
    pub fn new(
        engine: Arc<Engine>,
        key: GateKey,
        bounds: Bounds,
        ending: CancellationToken,
    ) -> Rc<Self> {
        Rc::new(Self {
            engine,
            key,
            bounds,
            ending,
        })
    }

    /// The answer to a question; or why there is none, which the log tells too if the service failed.
    async fn answer(
        &self,
        request: RateLimitRequest,
        id: &RequestId,
    ) -> Result<RateLimitResponse, Status> {
        let answered = self.decided(request, id).await;
        answered.map_err(|error| {
            if error.status_code().is_server_error() && !error.is_told_elsewhere() {
                let _in_span = id.span().enter();
                let cause = Chain(&error).to_string();
                tracing::error!(cause, "a question about a rate limit failed");
            }
            Status::new(grpc_code(&error), error.to_string())
        })
    }

    async fn decided(
        &self,
        request: RateLimitRequest,
        id: &RequestId,
    ) -> Result<RateLimitResponse, ApiError> {
        // 1. Read the settings of the proxy.
        let question = RateLimitQuestion::parse(request).map_err(ApiError::Malformed)?;
        let policies: Vec<_> = question.claims.iter().map(|claim| &claim.policy).collect();
        // 2. Claim, with the rights that the key has now.
        let claimers = policies.iter();
        let claimers = claimers.map(|policy| self.key.claimer_of(&self.engine, policy));
        let claimers = try_join_all(claimers).await?;
        let claimer = claimers.first().ok_or(ApiError::WrongGateKey)?;
        let became = self.decide(&question, claimer).await?;
        // 3. Tell.
        tell(&policies, became, |error| {
            error.json(id.text(), id.trace_id())
        })
    }

    /// What becomes of the claim of each descriptor.
    async fn decide(
        &self,
        question: &RateLimitQuestion,
        claimer: &Principal,
    ) -> Result<Vec<Became>, ApiError> {
        let claims = &question.claims;
        // 1. Look where a descriptor only looks. If that is refused, nothing is taken anywhere.
        let looks = claims.iter().map(async |asked| {
            let look = asked.only_looks().then(|| self.look(asked, claimer));
            Some(look?.await)
        });
        let looks = join_all(looks).await;
        let may_take = looks.iter().flatten().all(Result::is_ok);
        // 2. Take what the others ask for.
        let taking: Vec<_> = claims.iter().filter(|asked| !asked.only_looks()).collect();
        let mut taken = if may_take {
            self.take(&taking, question.key.as_deref(), claimer).await?
        } else {
            Vec::new()
        }
        .into_iter();
        // 3. Answer in the order of the descriptors.
        let missing = || Err(ApiError::FailedDependency);
        let became = looks.into_iter();
        let became = became.map(|look| look.or_else(|| taken.next()).unwrap_or_else(missing));
        Ok(became.collect())
    }

    /// Whether one unit would be granted, and what would be left.
    async fn look(&self, asked: &AskedClaim, claimer: &Principal) -> Became {
        let (policy, claim) = check(asked, None, claimer)?;
        let claims = &self.engine.claims;
        let claimed = Claimed::of(&policy, &claim);
        let admission = claims.admit(&claimer.key)?;
        match claims.try_claim(admission, &policy, claim).await? {
            Rehearsal::WouldGrant {
                totals,
                would_deny,
                forecast,
            } => Ok(Passed {
                totals,
                forecast,
                now: claims.instance.now(),
                grant: None,
                would_deny,
            }),
            Rehearsal::Ended(foretold) => claimed.tell(foretold, claims).await.map(passed),
        }
    }

    /// Takes the units of all these claims, or of none.
    async fn take(
        &self,
        asked: &[&AskedClaim],
        key: Option<&str>,
        claimer: &Principal,
    ) -> Result<Vec<Became>, ApiError> {
        let claims = &self.engine.claims;
        let keys = match keys(key, asked.len()) {
            Ok(keys) => keys,
            // The user can have written it, so it refuses the question, as a wrong subject does.
            Err(error) => {
                let others = repeat_with(|| Err(ApiError::FailedDependency));
                return Ok(once(Err(error)).chain(others).take(asked.len()).collect());
            }
        };
        let checked = asked.iter().zip(keys);
        let checked = checked.map(|(asked, key)| check(asked, key, claimer));
        let mut checked: Vec<Checked> = checked.collect();
        let granted = if asked.len() > 1 {
            claim_together(&claimer.key, checked, claims).await?
        } else {
            let Some(one) = checked.pop() else {
                return Ok(Vec::new());
            };
            let decided = async {
                let (policy, claim) = one?;
                decide(claims, &claimer.key, policy, claim).await
            };
            vec![decided.await]
        };
        Ok(granted.into_iter().map(|it| it.map(passed)).collect())
    }
}

/// The key of each claim. A claim alone has the key of the question, and one of several also its number.
fn keys(key: Option<&str>, count: usize) -> Result<Vec<Option<IdempotencyKey>>, ApiError> {
    let key = key.map_or(Ok(KeyHeader(None)), |key| KeyHeader::parse(key.as_bytes()))?;
    if count > 1 {
        key.of_members(count)
    } else {
        Ok(vec![key.0])
    }
}

fn check(asked: &AskedClaim, key: Option<IdempotencyKey>, claimer: &Principal) -> Checked {
    let (claim, _) = check_claim(asked.body(), KeyHeader(key), claimer.number)?;
    Ok((asked.policy.clone(), claim))
}

fn passed(granted: GrantedClaim) -> Passed {
    Passed {
        grant: granted.answer.grant.map(|grant| grant.id),
        would_deny: granted.answer.would_deny,
        totals: granted.totals,
        forecast: granted.forecast,
        now: granted.now,
    }
}

/// The code for a question that was not decided.
fn grpc_code(error: &ApiError) -> Code {
    match error {
        ApiError::Malformed(_) => Code::InvalidArgument,
        ApiError::UnknownPolicy(_) => Code::NotFound,
        ApiError::WrongGateKey => Code::PermissionDenied,
        ApiError::ClaimInProgress => Code::Aborted,
        _ => Code::Unavailable,
    }
}
