//! The key with which the gate claims.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::answer::ApiError;
use domain::key::Role;
use domain::policy::PolicyName;
use engine::{Engine, Principal};
use host::chain::Chain;

/// The most policies whose failures are told.
const FAILING_MOST: usize = 100;

/// The key of the gate, shared by the threads.
#[derive(Clone)]
pub struct GateKey {
    /// `None` without a gate.
    secret: Option<Arc<str>>,
    /// The policies of which the key could not claim, when it was last tried.
    failing: Arc<Mutex<BTreeSet<PolicyName>>>,
}

impl GateKey {
    pub fn new(secret: Option<Arc<str>>) -> Self {
        Self {
            secret,
            failing: Arc::default(),
        }
    }

    /// The owner of the key, who claims of a policy. The log tells that the key cannot claim of a policy, once
    /// until it can.
    ///
    /// # Errors
    /// As for [`GateKey::claimer`].
    pub async fn claimer_of(
        &self,
        engine: &Engine,
        policy: &PolicyName,
    ) -> Result<Principal, ApiError> {
        let found = self.claimer(engine, Some(policy)).await;
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match &found {
            Ok(_) => drop(failing.remove(policy)),
            Err(error) if failing.len() < FAILING_MOST && failing.insert(policy.clone()) => {
                tracing::error!(%policy, error = %Chain(error), "the gate cannot claim");
            }
            Err(_) => {}
        }
        found
    }

    /// The owner of the key, who can claim of a policy, or of some policy.
    ///
    /// # Errors
    /// [`ApiError::WrongGateKey`]; or the keys cannot be read.
    async fn claimer(
        &self,
        engine: &Engine,
        policy: Option<&PolicyName>,
    ) -> Result<Principal, ApiError> {
        let key = self.secret.as_ref().ok_or(ApiError::WrongGateKey)?;
        let principal = engine.callers.authenticate(key).await?;
        let claims = principal.filter(|principal| {
            let may_use = policy.is_none_or(|policy| principal.may_use(policy));
            principal.role == Role::Claim && may_use
        });
        claims.ok_or(ApiError::WrongGateKey)
    }

    /// What is wrong with the key, as a line of `/readyz`.
    pub async fn trouble(&self, engine: &Engine) -> Option<String> {
        self.secret.as_ref()?;
        let claimer = self.claimer(engine, None).await;
        let is_wrong = matches!(claimer, Err(ApiError::WrongGateKey));
        is_wrong.then(|| format!("{NO_CLAIMS}: {}", ApiError::WrongGateKey))
    }
}

const NO_CLAIMS: &str = "the gate refuses every question";
