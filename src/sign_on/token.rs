//! The claims of a person, from the ID token that shows who signed in (OpenID Connect Core 1.0, section 3.1.3.7).

use chrono::{DateTime, Utc};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

use domain::key::{NAME_MAX_CHARACTERS, check_name};
use domain::legible;

use super::settings::SignOnSettings;

/// The signatures that are accepted: those that only the provider can make.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// How far the provider's clock may differ.
const LEEWAY_SECONDS: f64 = 60.0;

/// Why a token shows nothing.
#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    #[error("the ID token is not valid: {0}")]
    Invalid(#[from] jsonwebtoken::errors::Error),
    #[error("the ID token has a signature that perdiem does not accept: {0:?}")]
    Algorithm(Algorithm),
    #[error("the ID token belongs to another sign-in or to another client")]
    Another,
    #[error("the ID token has ended, or has not begun: compare the clocks")]
    Untimely,
    #[error("the provider's answers are about two persons")]
    TwoPersons,
}

impl TokenFault {
    /// Whether another key of the provider may have signed the token.
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::Invalid(error) if *error.kind() == ErrorKind::InvalidSignature)
    }
}

/// What the provider says of a person.
#[derive(Debug)]
pub struct TokenClaims(Map<String, Value>);

/// The key and the signature that a token names.
pub fn header(token: &str) -> Result<(Algorithm, Option<String>), TokenFault> {
    let header = decode_header(token)?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(TokenFault::Algorithm(header.alg));
    }
    Ok((header.alg, header.kid))
}

/// Checks a token, and returns its claims.
///
/// # Errors
/// It is not the provider's, is too old, or belongs to another sign-in.
pub fn check(
    token: &str,
    key: &DecodingKey,
    settings: &SignOnSettings,
    nonce: &str,
    now: DateTime<Utc>,
) -> Result<TokenClaims, TokenFault> {
    let (algorithm, _) = header(token)?;
    let mut validation = Validation::new(algorithm);
    validation.set_audience(&[&settings.client_id]);
    validation.set_issuer(&[&settings.issuer]);
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    validation.validate_exp = false;
    let claims = decode::<Map<String, Value>>(token, key, &validation)?.claims;
    let is_for_us = claims
        .get("azp")
        .is_none_or(|azp| azp == &settings.client_id);
    if claims.get("nonce").and_then(Value::as_str) != Some(nonce) || !is_for_us {
        return Err(TokenFault::Another);
    }
    let instant = |name: &str| claims.get(name).and_then(Value::as_f64);
    let now = now.timestamp() as f64;
    let has_ended = instant("exp").is_none_or(|end| end + LEEWAY_SECONDS <= now);
    let has_begun = instant("nbf").is_none_or(|begin| begin - LEEWAY_SECONDS <= now);
    if has_ended || !has_begun {
        return Err(TokenFault::Untimely);
    }
    Ok(TokenClaims(claims))
}

impl TokenClaims {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// What the provider calls the person, for ever and for nobody else.
    pub fn subject(&self) -> &str {
        self.text("sub").unwrap_or_default()
    }

    /// What people call the person: an address that belongs to them, or a name.
    pub fn name(&self) -> String {
        let verified = self.0.get("email_verified");
        let is_own = verified.is_none_or(|it| *it == true || *it == "true");
        let email = self.text("email").filter(|_| is_own);
        let names = [email, self.text("preferred_username")];
        let mut names = names.into_iter().flatten();
        let legible = names.find(|name| check_name(name).is_ok() && legible::check(name).is_ok());
        if let Some(name) = legible {
            return name.to_owned();
        }
        let subject = self.subject().chars().filter(char::is_ascii_graphic);
        subject.take(NAME_MAX_CHARACTERS).collect()
    }

    /// The groups of the person; `None` without this claim.
    pub fn groups(&self, claim: &str) -> Option<Vec<&str>> {
        let found = if let Some(path) = claim.strip_prefix('/') {
            let mut parts = path.split('/');
            let first = self.0.get(parts.next()?);
            parts.fold(first, |value, part| value?.get(part))
        } else {
            self.0.get(claim)
        };
        match found? {
            Value::String(group) => Some(vec![group]),
            Value::Array(groups) => Some(groups.iter().filter_map(Value::as_str).collect()),
            _ => None,
        }
    }

    /// Whether the token is silent about what perdiem needs.
    pub fn lack(&self, settings: &SignOnSettings) -> bool {
        self.groups(&settings.groups_claim).is_none() || self.text("email").is_none()
    }

    /// Adds what the provider says elsewhere. The token wins.
    ///
    /// # Errors
    /// The other claims are about another person (OpenID Connect Core 1.0, section 5.3.2).
    pub fn add(&mut self, others: Map<String, Value>) -> Result<(), TokenFault> {
        if others.get("sub").is_some_and(|sub| sub != self.subject()) {
            return Err(TokenFault::TwoPersons);
        }
        for (name, value) in others {
            self.0.entry(name).or_insert(value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::json;

    use super::*;
    use crate::signatures;

    /// A provider that signs with ES256.
    struct Signer(EcdsaKeyPair);

    impl Signer {
        fn new() -> Self {
            signatures::install();
            let random = SystemRandom::new();
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            Self(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap())
        }

        fn key(&self) -> DecodingKey {
            let point = self.0.public_key().as_ref();
            let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
            DecodingKey::from_ec_components(&encode(&point[1..33]), &encode(&point[33..])).unwrap()
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let encode = |json: &Value| BASE64_URL_SAFE_NO_PAD.encode(json.to_string());
            let text = format!("{}.{}", encode(header), encode(claims));
            let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
            format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
        }
    }

    fn settings() -> SignOnSettings {
        SignOnSettings {
            issuer: "https://id.example".to_owned(),
            client_id: "perdiem".to_owned(),
            client_secret: "secret".to_owned(),
            url: "https://perdiem.example".to_owned(),
            scopes: "openid".to_owned(),
            groups_claim: "groups".to_owned(),
            roles: Vec::new(),
        }
    }

    const NOW: i64 = 1_800_000_000;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(NOW, 0).unwrap()
    }

    /// The claims of a valid token.
    fn valid() -> Value {
        let now = NOW;
        json!({
            "iss": "https://id.example", "aud": "perdiem", "sub": "1", "nonce": "n",
            "iat": now, "exp": now + 300,
        })
    }

    #[test]
    fn a_token_shows_who_signed_in() {
        let signer = Signer::new();
        let header = json!({ "alg": "ES256", "typ": "JWT" });
        let check = |header: &Value, claims: &Value| {
            let token = signer.sign(header, claims);
            check(&token, &signer.key(), &settings(), "n", now())
        };
        assert_eq!(check(&header, &valid()).unwrap().subject(), "1");
        let several = json!(["other", "perdiem"]);
        let with = |name: &str, value: Value| {
            let mut claims = valid();
            claims[name] = value;
            claims
        };
        assert!(check(&header, &with("aud", several)).is_ok());
        assert!(check(&header, &with("azp", json!("perdiem"))).is_ok());
        assert!(check(&header, &with("exp", json!(NOW - 59))).is_ok());
        assert!(check(&header, &with("nbf", json!(NOW + 60))).is_ok());
        for (name, value) in [
            ("iss", json!("https://id.example/")),
            ("aud", json!("other")),
            ("aud", json!([])),
            ("azp", json!("other")),
            ("nonce", json!("m")),
            ("nonce", Value::Null),
            ("exp", json!(NOW - 60)),
            ("exp", json!("soon")),
            ("nbf", json!(NOW + 61)),
        ] {
            assert!(
                check(&header, &with(name, value.clone())).is_err(),
                "{name}: {value}"
            );
        }
        for name in ["iss", "aud", "sub", "exp", "nonce"] {
            let mut claims = valid();
            claims.as_object_mut().unwrap().remove(name);
            assert!(check(&header, &claims).is_err(), "{name}");
        }
    }

    #[test]
    fn only_the_provider_can_sign() {
        let signer = Signer::new();
        let valid = valid();
        let token = signer.sign(&json!({ "alg": "ES256" }), &valid);
        let check = |token: &str, key: &DecodingKey| check(token, key, &settings(), "n", now());
        assert!(check(&token, &signer.key()).is_ok());
        // 1. Another key, another text, no signature.
        assert!(check(&token, &Signer::new().key()).is_err());
        let cut = token.rsplit_once('.').unwrap().0;
        let other = signer.sign(&json!({ "alg": "ES256" }), &json!({ "sub": "2" }));
        let others = other.rsplit_once('.').unwrap().1;
        for token in [
            cut.to_owned(),
            format!("{cut}."),
            format!("{cut}.{others}"),
            String::new(),
        ] {
            assert!(check(&token, &signer.key()).is_err(), "{token}");
        }
        // 2. Signatures that others can make too, and keys of another kind.
        for algorithm in ["none", "HS256", "HS512", "ES384", "RS256", "EdDSA", "es256"] {
            let token = signer.sign(&json!({ "alg": algorithm }), &valid);
            assert!(check(&token, &signer.key()).is_err(), "{algorithm}");
        }
    }

    fn claims(value: Value) -> TokenClaims {
        TokenClaims(value.as_object().cloned().unwrap())
    }

    #[test]
    fn groups_are_found_where_the_setting_says() {
        let claims = claims(json!({
            "groups": ["a", 1, "b"],
            "https://example.com/groups": "one",
            "realm": { "roles": ["c"] },
            "flag": true,
        }));
        assert_eq!(claims.groups("groups"), Some(vec!["a", "b"]));
        assert_eq!(
            claims.groups("https://example.com/groups"),
            Some(vec!["one"])
        );
        assert_eq!(claims.groups("/realm/roles"), Some(vec!["c"]));
        for missing in ["flag", "nothing", "/realm", "/realm/nothing", "/"] {
            assert_eq!(claims.groups(missing), None, "{missing}");
        }
    }

    #[test]
    fn a_name_is_the_persons_own() {
        let name = |value| claims(value).name();
        let all = json!({ "sub": "1", "email": "a@b.c", "preferred_username": "anna" });
        assert_eq!(name(all), "a@b.c");
        for verified in [json!(false), json!("false"), Value::Null] {
            let others = json!({
                "sub": "1", "email": "ceo@b.c", "email_verified": verified,
                "preferred_username": "anna",
            });
            assert_eq!(name(others), "anna", "{verified}");
        }
        for nothing in ["", " ", "\u{200b}", "anna\u{202e}", " anna", "a\u{7}b"] {
            let email = json!({ "sub": "1", "email": nothing, "preferred_username": nothing });
            assert_eq!(name(email), "1", "{nothing}");
        }
        assert_eq!(name(json!({ "sub": "1\u{7}2\u{200b}" })), "12");
        let long = name(json!({ "sub": "e".repeat(300), "email": "é".repeat(300) }));
        assert_eq!(long, "e".repeat(NAME_MAX_CHARACTERS));
    }

    #[test]
    fn other_claims_are_of_the_same_person() {
        let mut of_token = claims(json!({ "sub": "1", "email": "a@b.c" }));
        let others = claims(json!({ "sub": "1", "email": "x@y.z", "groups": ["a"] }));
        of_token.add(others.0).unwrap();
        assert_eq!(of_token.name(), "a@b.c");
        assert_eq!(of_token.groups("groups"), Some(vec!["a"]));
        let others = claims(json!({ "sub": "2" }));
        assert!(of_token.add(others.0).is_err());
    }
}
