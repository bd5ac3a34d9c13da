//! The key with which the gate claims.

use std::sync::Arc;

use crate::answer::ApiError;
use domain::key::Role;
use domain::policy::PolicyName;
use engine::{Engine, Principal};

/// The key of the gate; `None` without a gate.
#[derive(Clone)]
pub struct GateKey(pub Option<Arc<str>>);

impl GateKey {
    /// The owner of the key, who can claim of a policy, or of some policy.
    ///
    /// # Errors
    /// [`ApiError::WrongGateKey`]; or the keys cannot be read.
    pub async fn claimer(
        &self,
        engine: &Engine,
        policy: Option<&PolicyName>,
    ) -> Result<Principal, ApiError> {
        let key = self.0.as_ref().ok_or(ApiError::WrongGateKey)?;
        let principal = engine.callers.authenticate(key).await?;
        let claims = principal.filter(|principal| {
            let may_use = policy.is_none_or(|policy| principal.may_use(policy));
            principal.role == Role::Claim && may_use
        });
        claims.ok_or(ApiError::WrongGateKey)
    }

    /// What is wrong with the key, as a line of `/readyz`.
    pub async fn trouble(&self, engine: &Engine) -> Option<String> {
        self.0.as_ref()?;
        let claimer = self.claimer(engine, None).await;
        let is_wrong = matches!(claimer, Err(ApiError::WrongGateKey));
        is_wrong.then(|| format!("{NO_CLAIMS}: {}", ApiError::WrongGateKey))
    }
}

const NO_CLAIMS: &str = "the gate refuses every question";
