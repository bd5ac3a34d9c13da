//! What a proxy asks, as claims: each descriptor is one.

use super::messages::{Descriptor, RateLimitRequest};
use api::claims::ClaimBody;
use api::strict::WholeNumber;
use domain::policy::PolicyName;

/// The domain of every question.
const DOMAIN: &str = "perdiem";
/// The entry with the name of the policy.
const POLICY: &str = "policy";
/// The entry with the key that makes a question count once.
const KEY: &str = "idempotency_key";
/// The most descriptors of a question.
const DESCRIPTORS_MOST: usize = 100;

/// A question whose settings are right. The values in it are not checked yet.
#[derive(Debug)]
pub struct RateLimitQuestion {
    /// One for each descriptor.
    pub claims: Vec<AskedClaim>,
    pub key: Option<Vec<u8>>,
}

#[derive(Debug)]
pub struct AskedClaim {
    pub policy: PolicyName,
    /// The values of the other entries; `None` if one of them is no text.
    pub subject: Option<String>,
    /// `None` only looks whether a unit is left.
    units: Option<u64>,
}

impl RateLimitQuestion {
    /// # Errors
    /// What to write instead, into the settings of the proxy.
    pub fn parse(request: RateLimitRequest) -> Result<Self, String> {
        let RateLimitRequest {
            domain,
            descriptors,
            hits_addend,
        } = request;
        if domain != DOMAIN {
            return Err(format!("the domain is {domain:?}: write {DOMAIN}"));
        }
        if !(1..=DESCRIPTORS_MOST).contains(&descriptors.len()) {
            return Err(format!("send 1 to {DESCRIPTORS_MOST} descriptors"));
        }
        let mut claims = Vec::with_capacity(descriptors.len());
        let mut keys = Vec::new();
        for (index, descriptor) in descriptors.into_iter().enumerate() {
            let claim = AskedClaim::parse(descriptor, hits_addend, &mut keys);
            claims.push(claim.map_err(|fault| format!("descriptor {}: {fault}", index + 1))?);
        }
        keys.dedup();
        if keys.len() > 1 {
            return Err(format!(
                "the descriptors have several values of {KEY}: give all the same one, and it is for the question"
            ));
        }
        Ok(Self {
            claims,
            key: keys.pop(),
        })
    }
}

impl AskedClaim {
    fn parse(
        descriptor: Descriptor,
        hits_addend: u32,
        keys: &mut Vec<Vec<u8>>,
    ) -> Result<Self, String> {
        if descriptor.limit.is_some() {
            return Err("it has a limit of its own: perdiem takes the limits of the policy".into());
        }
        if descriptor.is_negative_hits {
            return Err(
                "it has negative hits: reverse the grant in perdiem-grant, and its units come back"
                    .into(),
            );
        }
        let mut policies = Vec::new();
        let mut values = Vec::new();
        for entry in descriptor.entries {
            match entry.key.as_str() {
                POLICY => policies.push(entry.value),
                KEY => keys.push(entry.value),
                // The values stay apart behind each other.
                _ => {
                    let value = String::from_utf8(entry.value).ok();
                    values.push(value.map(|value| value.replace('%', "%25").replace('/', "%2F")));
                }
            }
        }
        let policy = match policies.as_slice() {
            [policy] => {
                let policy = PolicyName::new(&String::from_utf8_lossy(policy));
                policy.map_err(|error| error.to_string())?
            }
            [] => {
                return Err(format!(
                    "it has no entry {POLICY}: name the policy in a generic_key"
                ));
            }
            _ => return Err(format!("it has several entries {POLICY}: write one")),
        };
        if values.is_empty() {
            return Err(format!(
                "it has no entry with the subject: write one beside {POLICY}, such as remote_address"
            ));
        }
        let subject: Option<Vec<String>> = values.into_iter().collect();
        let units = descriptor
            .hits_addend
            .unwrap_or_else(|| hits_addend.max(1).into());
        Ok(Self {
            policy,
            subject: subject.map(|values| values.join("/")),
            units: Some(units).filter(|units| *units > 0),
        })
    }

    pub fn only_looks(&self) -> bool {
        self.units.is_none()
    }

    /// The claim, as in the body of a request; `None` if its subject is no text.
    pub fn body(&self) -> Option<ClaimBody> {
        Some(ClaimBody {
            subject: self.subject.clone()?,
            units: self.units.map(|units| WholeNumber(units.into())),
            hold_seconds: None,
            calendar: None,
            dry_run: self.only_looks(),
            metadata: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{DescriptorEntry, OtherLimit};
    use super::*;

    fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
        let entries = entries.iter().map(|(key, value)| DescriptorEntry {
            key: (*key).to_owned(),
            value: value.as_bytes().to_vec(),
        });
        Descriptor {
            entries: entries.collect(),
            ..Descriptor::default()
        }
    }

    fn request(descriptors: Vec<Descriptor>) -> RateLimitRequest {
        RateLimitRequest {
            domain: "perdiem".to_owned(),
            descriptors,
            hits_addend: 0,
        }
    }

    /// What is asked for one descriptor.
    fn asked(entries: &[(&str, &str)]) -> RateLimitQuestion {
        let question = RateLimitQuestion::parse(request(vec![descriptor(entries)]));
        question.expect("a right question")
    }

    #[track_caller]
    fn refused(request: RateLimitRequest, says: &str) {
        let fault = RateLimitQuestion::parse(request).expect_err("a wrong question");
        assert!(fault.contains(says), "{fault}");
    }

    #[test]
    fn the_other_entries_are_the_subject() {
        for (entries, subject) in [
            (
                vec![("policy", "a"), ("remote_address", "192.0.2.1")],
                "192.0.2.1",
            ),
            (
                vec![("user", "ann@example.com"), ("policy", "a")],
                "ann@example.com",
            ),
            (vec![("policy", "a"), ("x", "ë"), ("y", "b c")], "ë/b c"),
            // No value can look like two, or like one that is encoded.
            (vec![("policy", "a"), ("x", "b/c")], "b%2Fc"),
            (vec![("policy", "a"), ("x", "b%2Fc")], "b%252Fc"),
            (vec![("policy", "a"), ("x", ""), ("y", "")], "/"),
            (
                vec![("policy", "a"), ("idempotency_key", "k"), ("x", "b")],
                "b",
            ),
        ] {
            let question = asked(&entries);
            let found = question.claims[0].subject.as_deref();
            assert_eq!(found, Some(subject), "{entries:?}");
            let has_key = entries.contains(&("idempotency_key", "k"));
            assert_eq!(question.key.is_some(), has_key);
        }
    }

    #[test]
    fn only_an_explicit_zero_of_a_descriptor_looks() {
        for (of_descriptor, of_request, units) in [
            (None, 0, Some(1)),
            (None, 7, Some(7)),
            (Some(0), 7, None),
            (Some(3), 7, Some(3)),
            (Some(u64::MAX), 0, Some(u64::MAX)),
        ] {
            let descriptor = Descriptor {
                hits_addend: of_descriptor,
                ..descriptor(&[("policy", "a"), ("x", "b")])
            };
            let request = RateLimitRequest {
                hits_addend: of_request,
                ..request(vec![descriptor])
            };
            let question = RateLimitQuestion::parse(request).expect("a right question");
            let claim = &question.claims[0];
            assert_eq!(claim.units, units);
            let body = claim.body().expect("a text");
            assert_eq!(body.dry_run, units.is_none());
        }
    }

    #[test]
    fn a_question_has_one_key() {
        let with = |key| descriptor(&[("policy", "a"), ("x", "b"), ("idempotency_key", key)]);
        let without = descriptor(&[("policy", "a"), ("x", "b")]);
        let question = RateLimitQuestion::parse(request(vec![with("k"), without, with("k")]));
        assert_eq!(
            question.expect("a right question").key.as_deref(),
            Some(&b"k"[..])
        );
        refused(request(vec![with("k"), with("l")]), "several values");
    }

    #[test]
    fn wrong_settings_are_told() {
        let right = || descriptor(&[("policy", "a"), ("x", "b")]);
        let other = RateLimitRequest {
            domain: "envoy".to_owned(),
            ..request(vec![right()])
        };
        refused(other, "write perdiem");
        refused(request(Vec::new()), "1 to 100");
        refused(request(vec![right(); 101]), "1 to 100");
        let second = |wrong| request(vec![right(), wrong]);
        refused(
            second(descriptor(&[("x", "b")])),
            "descriptor 2: it has no entry policy",
        );
        refused(
            second(descriptor(&[("policy", "a")])),
            "no entry with the subject",
        );
        let twice = descriptor(&[("policy", "a"), ("policy", "a"), ("x", "b")]);
        refused(second(twice), "several entries policy");
        refused(
            second(descriptor(&[("policy", "A"), ("x", "b")])),
            "descriptor 2: ",
        );
        let limited = Descriptor {
            limit: Some(OtherLimit {}),
            ..right()
        };
        refused(second(limited), "limit of its own");
        let negative = Descriptor {
            is_negative_hits: true,
            ..right()
        };
        refused(second(negative), "negative hits");
    }
}
