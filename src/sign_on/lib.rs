//! Signing in with a company's account: OpenID Connect, the authorization code flow with PKCE (OpenID Connect
//! Core 1.0, section 3.1; RFC 7636). The provider says who somebody is and to which groups they belong; the
//! settings say which role a group has.

mod person;
mod provider;
mod settings;
mod signatures;
mod token;

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use form_urlencoded::Serializer;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

pub use person::Person;
pub use provider::NoCertificates;
pub use provider::is_safe_address;
use provider::{Provider, ProviderFault};
pub use settings::{RoleOfGroup, SignOnSettings, read_roles};
use token::{TokenClaims, TokenFault};

/// The path to which the provider sends a browser back.
pub const BACK: &str = "/console/sign-on/back";

/// The most sign-ins that wait for the provider at the same time.
const AT_ONCE_MOST: usize = 8;

/// The longest address that a browser keeps during a sign-in: a cookie has room for 4,096 bytes.
const TO_MOST: usize = 2000;

/// Why somebody is not signed in. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SignOnError {
    #[error("The provider of accounts cannot be asked now. Try again, or sign in with an API key.")]
    Provider(#[from] ProviderFault),
    #[error(
        "The provider's answer cannot be trusted. Try again; if it stays so, ask an admin to read the log."
    )]
    Token(#[from] TokenFault),
    #[error("Too many sign-ins are under way. Try again.")]
    TooMany,
}

/// What a browser keeps while its owner is at the provider.
#[derive(Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Comes back with the answer: it belongs to this browser.
    pub state: String,
    /// Is in the token: it belongs to this attempt.
    nonce: String,
    /// Shows that the code is exchanged by who asked for it.
    verifier: String,
    /// Where the reader wanted to go.
    pub to: String,
}

/// Sign-ins with the accounts of one provider.
pub struct SignOn {
    settings: SignOnSettings,
    provider: Provider,
    places: Arc<Semaphore>,
}

impl SignOn {
    /// Asks nobody: the provider may be away while perdiem starts.
    ///
    /// # Errors
    /// [`NoCertificates`].
    pub fn new(settings: SignOnSettings) -> Result<Self, NoCertificates> {
        signatures::install();
        Ok(Self {
            provider: Provider::new(&settings)?,
            settings,
            places: Arc::new(Semaphore::new(AT_ONCE_MOST)),
        })
    }

    /// Begins a sign-in. Returns where to send the browser, and what it must keep.
    ///
    /// # Errors
    /// The provider cannot be asked.
    pub async fn begin(&self, to: &str) -> Result<(String, Attempt), SignOnError> {
        let _place = self
            .places
            .try_acquire()
            .map_err(|_| SignOnError::TooMany)?;
        let attempt = Attempt {
            state: random(),
            nonce: random(),
            verifier: random(),
            to: if to.len() <= TO_MOST { to } else { "" }.to_owned(),
        };
        let endpoint = self
            .provider
            .description()
            .await?
            .authorization_endpoint
            .clone();
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&attempt.verifier));
        let query = Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.settings.redirect_uri())
            .append_pair("scope", &self.settings.scopes)
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .finish();
        let sign = if endpoint.contains('?') { '&' } else { '?' };
        Ok((format!("{endpoint}{sign}{query}"), attempt))
    }

    /// Ends a sign-in: exchanges the code for the claims of a person. `now` is the wall clock.
    ///
    /// # Errors
    /// [`SignOnError`].
    pub async fn finish(
        &self,
        attempt: &Attempt,
        code: &str,
        now: DateTime<Utc>,
    ) -> Result<Person, SignOnError> {
        let _place = self
            .places
            .try_acquire()
            .map_err(|_| SignOnError::TooMany)?;
        let answer = self.provider.exchange(code, &attempt.verifier).await?;
        let mut claims = match self.check(&answer.id_token, attempt, now).await {
            // The provider may have a new key of the same name.
            Err(SignOnError::Token(fault))
                if fault.is_of_key() && self.provider.forget_keys().await =>
            {
                self.check(&answer.id_token, attempt, now).await?
            }
            checked => checked?,
        };
        if claims.lack(&self.settings) {
            claims.add(self.provider.more_of(&answer).await?)?;
        }
        Ok(Person::of(&claims, &self.settings))
    }

    async fn check(
        &self,
        token: &str,
        attempt: &Attempt,
        now: DateTime<Utc>,
    ) -> Result<TokenClaims, SignOnError> {
        let key = self.provider.key_of(token).await?;
        Ok(token::check(
            token,
            &key,
            &self.settings,
            &attempt.nonce,
            now,
        )?)
    }
}

/// 256 random bits, as an address may have them.
fn random() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
