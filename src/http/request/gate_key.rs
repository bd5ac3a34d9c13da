//! The key with which the gate claims.

use std::sync::{Arc, Mutex, PoisonError};

use crate::answer::ApiError;
use domain::key::Role;
use domain::policy::PolicyName;
use engine::{Engine, Principal};
use host::retried::Retried;

/// The key of the gate, shared by the threads.
#[derive(Clone)]
pub struct GateKey {
    /// `None` without a gate.
    secret: Option<Arc<str>>,
    /// Whether the key could claim, when it was last tried.
    tried: Arc<Mutex<Retried>>,
}

impl GateKey {
    pub fn new(secret: Option<Arc<str>>) -> Self {
        Self {
            secret,
            tried: Arc::default(),
        }
    }

    /// The owner of the key, who claims of a policy. The log tells that the key cannot claim, and not at each
    /// question.
    ///
    /// # Errors
    /// As for [`GateKey::claimer`].
    pub async fn claimer_of(
        &self,
        engine: &Engine,
        policy: &PolicyName,
    ) -> Result<Principal, ApiError> {
        let found = self.claimer(engine, Some(policy)).await;
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = tried.first_failure(&found) {
            tracing::error!(%error, "the gate cannot claim");
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
