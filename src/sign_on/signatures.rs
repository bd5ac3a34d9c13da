//! Signatures of tokens, checked by ring, which perdiem uses for TLS too.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use signature::Verifier;

/// perdiem signs no token, and makes no key of one.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(Error::from(ErrorKind::InvalidAlgorithm)),
    verifier_factory: |algorithm, key| Ok(Box::new(ByRing::new(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Lets `jsonwebtoken` check signatures.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Nobody else in the program sets one.
        let _ = PROVIDER.install_default();
    });
}

struct ByRing {
    algorithm: Algorithm,
    key: PublicKey,
}

enum PublicKey {
    Rsa(&'static RsaParameters, RsaPublicKeyComponents<Vec<u8>>),
    Other(UnparsedPublicKey<Vec<u8>>),
}

impl ByRing {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        let unfit = || Error::from(ErrorKind::InvalidKeyFormat);
        let rsa = |parameters| match key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let parts = RsaPublicKeyComponents {
                    n: n.clone(),
                    e: e.clone(),
                };
                Ok(PublicKey::Rsa(parameters, parts))
            }
            DecodingKeyKind::SecretOrDer(_) => Err(unfit()),
        };
        let other = |family, verification: &'static dyn VerificationAlgorithm| match key.kind() {
            DecodingKeyKind::SecretOrDer(bytes) if key.family() == family => Ok(PublicKey::Other(
                UnparsedPublicKey::new(verification, bytes.clone()),
            )),
            _ => Err(unfit()),
        };
        let key = match algorithm {
            Algorithm::RS256 => rsa(&RSA_PKCS1_2048_8192_SHA256)?,
            Algorithm::RS384 => rsa(&RSA_PKCS1_2048_8192_SHA384)?,
            Algorithm::RS512 => rsa(&RSA_PKCS1_2048_8192_SHA512)?,
            Algorithm::PS256 => rsa(&RSA_PSS_2048_8192_SHA256)?,
            Algorithm::PS384 => rsa(&RSA_PSS_2048_8192_SHA384)?,
            Algorithm::PS512 => rsa(&RSA_PSS_2048_8192_SHA512)?,
            Algorithm::ES256 => other(AlgorithmFamily::Ec, &ECDSA_P256_SHA256_FIXED)?,
            Algorithm::ES384 => other(AlgorithmFamily::Ec, &ECDSA_P384_SHA384_FIXED)?,
            Algorithm::EdDSA => other(AlgorithmFamily::Ed, &ED25519)?,
            _ => return Err(ErrorKind::InvalidAlgorithm.into()),
        };
        Ok(Self { algorithm, key })
    }
}

impl Verifier<Vec<u8>> for ByRing {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match &self.key {
            PublicKey::Rsa(parameters, key) => key.verify(parameters, message, signature),
            PublicKey::Other(key) => key.verify(message, signature),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for ByRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
