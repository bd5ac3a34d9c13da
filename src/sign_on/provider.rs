//! The provider of accounts, asked over HTTPS.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use form_urlencoded::{Serializer, byte_serialize};
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::SignOnError;
use super::settings::SignOnSettings;
use super::token::header;

/// The longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// For how long the provider's description is used.
const DESCRIBED_FOR: Duration = Duration::from_secs(3600);
/// The most characters of a refusal that the log has.
const REFUSAL_MOST: usize = 200;
/// The pause between two readings of its keys, whatever keys the tokens name.
const KEYS_EVERY: Duration = Duration::from_secs(10);

/// The machine does not say whom it trusts.
#[derive(Debug, thiserror::Error)]
#[error(
    "the certificates of this machine, which the provider of accounts needs, cannot be read: {0}"
)]
pub struct NoCertificates(reqwest::Error);

/// What the provider did not do.
#[derive(Debug, thiserror::Error)]
pub enum ProviderFault {
    #[error("the provider does not answer as it should: {0}")]
    Http(#[from] reqwest::Error),
    #[error("the provider calls itself {0:?}: write this into PERDIEM_OIDC_ISSUER")]
    OtherIssuer(String),
    #[error("{0:?} is not an address that perdiem asks: it needs https, or http on this machine")]
    Address(String),
    #[error("the provider refuses the code of a sign-in: {0:?}")]
    Refused(String),
    #[error("the provider has no key {0:?} for its token")]
    NoKey(Option<String>),
}

/// Where to ask the provider what (OpenID Connect Discovery 1.0, section 3).
#[derive(Debug, Clone, Deserialize)]
pub struct Endpoints {
    issuer: String,
    pub authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// What the provider gives for a code.
#[derive(Deserialize)]
pub struct TokenAnswer {
    pub id_token: String,
    access_token: Option<String>,
}

/// A refusal of the token endpoint (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct TokenRefusal {
    error: String,
    #[serde(default)]
    error_description: String,
}

/// The provider's keys. Those for other purposes may be of kinds that perdiem does not know.
#[derive(Deserialize)]
struct Keys {
    keys: Vec<Value>,
}

impl Keys {
    fn known(self) -> JwkSet {
        let keys = self.keys.into_iter();
        let known = keys.filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        JwkSet {
            keys: known.collect(),
        }
    }
}

pub struct Provider {
    settings: SignOnSettings,
    client: Client,
    described: Mutex<Option<(Instant, Arc<Endpoints>)>>,
    keys: Mutex<Option<(Instant, JwkSet)>>,
}

impl Provider {
    pub fn new(settings: &SignOnSettings) -> Result<Self, NoCertificates> {
        // Another part of the program may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none());
        Ok(Self {
            settings: settings.clone(),
            client: client.build().map_err(NoCertificates)?,
            described: Mutex::default(),
            keys: Mutex::default(),
        })
    }

    /// Where to ask what.
    pub async fn description(&self) -> Result<Arc<Endpoints>, ProviderFault> {
        let mut described = self.described.lock().await;
        if let Some((at, description)) = &*described
            && at.elapsed() < DESCRIBED_FOR
        {
            return Ok(description.clone());
        }
        let issuer = &self.settings.issuer;
        let url = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let found: Endpoints = self.read(self.client.get(checked(&url)?)).await?;
        if found.issuer != *issuer {
            return Err(ProviderFault::OtherIssuer(found.issuer));
        }
        checked(&found.authorization_endpoint)?;
        let found = Arc::new(found);
        *described = Some((Instant::now(), found.clone()));
        Ok(found)
    }

    async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ProviderFault> {
        let answer = request.header(ACCEPT, "application/json").send().await?;
        Ok(answer.error_for_status()?.json().await?)
    }

    /// Exchanges a code for tokens.
    pub async fn exchange(&self, code: &str, verifier: &str) -> Result<TokenAnswer, ProviderFault> {
        let description = self.description().await?;
        let SignOnSettings {
            client_id,
            client_secret,
            ..
        } = &self.settings;
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &self.settings.redirect_uri())
            .append_pair("code_verifier", verifier);
        let mut request = self.client.post(checked(&description.token_endpoint)?);
        let methods = description.token_endpoint_auth_methods_supported.as_deref();
        if methods.is_none_or(|known| known.iter().any(|it| it == "client_secret_basic")) {
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encoded(client_id), encoded(client_secret));
            let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
            request = request.header(AUTHORIZATION, basic);
        } else {
            form.append_pair("client_id", client_id)
                .append_pair("client_secret", client_secret);
        }
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = request
            .header(ACCEPT, "application/json")
            .body(form.finish());
        let answer = request.send().await?;
        if answer.status().is_client_error() {
            let refusal: TokenRefusal = answer.json().await?;
            let text = format!("{} {}", refusal.error, refusal.error_description);
            let text = text.chars().take(REFUSAL_MOST).collect();
            return Err(ProviderFault::Refused(text));
        }
        Ok(answer.error_for_status()?.json().await?)
    }

    /// What the provider says of the person elsewhere: nothing, if it has no such place.
    pub async fn more_of(&self, answer: &TokenAnswer) -> Result<Map<String, Value>, ProviderFault> {
        let description = self.description().await?;
        let (Some(url), Some(token)) = (&description.userinfo_endpoint, &answer.access_token)
        else {
            return Ok(Map::new());
        };
        self.read(self.client.get(checked(url)?).bearer_auth(token))
            .await
    }

    /// Forgets the keys, unless they were read just now. Returns whether it did.
    pub async fn forget_keys(&self) -> bool {
        let mut keys = self.keys.lock().await;
        keys.take_if(|(at, _)| at.elapsed() >= KEYS_EVERY).is_some()
    }

    /// The key that a token names. Keys that are new are read again.
    pub async fn key_of(&self, token: &str) -> Result<DecodingKey, SignOnError> {
        let (_, id) = header(token)?;
        let description = self.description().await?;
        let mut keys = self.keys.lock().await;
        let is_recent = |at: &Instant| at.elapsed() < KEYS_EVERY;
        keys.take_if(|(at, _)| at.elapsed() >= DESCRIBED_FOR);
        loop {
            if let Some((at, set)) = &*keys {
                if let Some(key) = find(set, id.as_deref()) {
                    let key = DecodingKey::from_jwk(key);
                    return Ok(key.map_err(super::TokenFault::from)?);
                }
                if is_recent(at) {
                    return Err(ProviderFault::NoKey(id).into());
                }
            }
            let url = checked(&description.jwks_uri)?;
            let found: Keys = self.read(self.client.get(url)).await?;
            *keys = Some((Instant::now(), found.known()));
        }
    }
}

/// A provider with one key need not name it.
fn find<'s>(set: &'s JwkSet, id: Option<&str>) -> Option<&'s Jwk> {
    match id {
        Some(id) => set.find(id),
        None => Some(&set.keys[..]).filter(|keys| keys.len() == 1)?.first(),
    }
}

/// An address that perdiem may ask.
fn checked(address: &str) -> Result<Url, ProviderFault> {
    let url = Url::parse(address).ok().filter(is_safe);
    url.ok_or_else(|| ProviderFault::Address(address.to_owned()))
}

/// Whether nobody on the way to an address can read what is sent: it has https, or is on this machine. It is
/// without a query, and its fragment.
pub fn is_safe_address(address: &str) -> bool {
    let url = Url::parse(address).ok().filter(is_safe);
    url.is_some_and(|url| url.query().is_none() && url.fragment().is_none())
}

fn is_safe(url: &Url) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_travel_by_tls() {
        for address in [
            "https://id.example/a",
            "http://localhost:1/",
            "http://127.0.0.1/",
            "http://[::1]:2/",
        ] {
            assert!(checked(address).is_ok(), "{address}");
        }
        for address in [
            "http://id.example/",
            "http://localhost.example/",
            "ftp://localhost/",
            "id.example",
            "",
        ] {
            assert!(checked(address).is_err(), "{address}");
        }
    }
}
