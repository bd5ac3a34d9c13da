//! Making, ending, revoking and reading API keys.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use crate::{Admin, Editor, Precondition};
use claims::instance::{
    Failure, PERDIEM, SEED_LENGTH, first_version, generate_secret, hash, secret_of,
};
use domain::key::{Key, KeyRule, UsedKey};
use domain::policy::PolicyName;
use ledger::{Change, KeyReplacement};
use record::ListFailure;
use record::cursor::{self, cut_page};

/// Why a key was not made or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key does not exist.
    #[error("no such key")]
    UnknownKey,
    /// The key is at another version.
    #[error("the key is at version {0}")]
    PreconditionFailed(u32),
    /// A revoked key cannot get another end.
    #[error("the key is revoked")]
    Revoked,
    /// A key that has ended cannot be replaced: the new one would have the same end.
    #[error("the key has ended")]
    Ended,
    /// Without this key nobody could make keys any more.
    #[error("it is the last admin key without an end")]
    LastAdmin,
    /// The key would be confined to policies that do not exist or are archived. These are they,
    /// with their places in the list.
    #[error("it names unknown policies")]
    UnknownPolicies(Vec<(usize, PolicyName)>),
}

/// Checks that a change of a key leaves a lasting admin key.
fn check_last_admin(
    before: &KeyRule,
    after: &KeyRule,
    another_stays: bool,
) -> Result<(), KeyError> {
    let ends_an_admin = before.is_lasting_admin() && !after.is_lasting_admin();
    if ends_an_admin && !another_stays {
        Err(KeyError::LastAdmin)
    } else {
        Ok(())
    }
}

impl Admin {
    /// Makes a key, and returns its secret. The secret is stored nowhere.
    ///
    /// # Errors
    /// [`Failure`] outside, [`KeyError::UnknownPolicies`] inside.
    pub async fn create_key(
        self: &Arc<Self>,
        rule: KeyRule,
        reason: Option<String>,
        made_by: Arc<str>,
    ) -> Result<Result<(Key, String), KeyError>, Failure> {
        let admin = self.clone();
        let work = async move {
            // Another instance may just have made or archived a policy.
            admin.instance.policies.refresh().await?;
            let unknown = admin.unknown_policies(&rule);
            if !unknown.is_empty() {
                return Ok(Err(KeyError::UnknownPolicies(unknown)));
            }
            let key = first_version(rule, reason, &made_by, admin.instance.clock.now());
            let secret = generate_secret();
            admin.ledger.add_key(&key, &hash(&secret)).await?;
            admin.learn_keys().await;
            Ok(Ok((key, secret)))
        };
        self.instance.detached(work).await?
    }

    fn unknown_policies(&self, rule: &KeyRule) -> Vec<(usize, PolicyName)> {
        let names = rule.policies.as_deref().unwrap_or_default();
        let now = self.instance.clock.now();
        let is_known = |name: &PolicyName| {
            // A policy that cannot be read here exists.
            let policy = self.instance.policies.terms.get(name, now);
            policy.map_or(true, |policy| policy.is_some_and(|policy| !policy.archived))
        };
        let unknown = names.iter().cloned().enumerate();
        unknown.filter(|(_, name)| !is_known(name)).collect()
    }

    /// Keeps the key of a person who signed in: the first time a new one, later the same with these rights. Returns
    /// its secret, which these bits make. A key whose end an admin has removed gets none.
    ///
    /// # Errors
    /// [`Failure`] outside, [`KeyError`] inside: [`KeyError::Revoked`], since a person who was locked out stays so, and
    /// [`KeyError::LastAdmin`].
    pub async fn keep_key(
        self: &Arc<Self>,
        bits: [u8; SEED_LENGTH],
        rule: KeyRule,
        reason: String,
    ) -> Result<Result<String, KeyError>, Failure> {
        let kept = self.keep(bits, reason, move |key| {
            let Some(key) = key else {
                return Ok(rule);
            };
            if key.rule.revoked {
                return Err(KeyError::Revoked);
            }
            let ends_at = key.rule.ends_at.and(rule.ends_at);
            Ok(KeyRule { ends_at, ..rule })
        });
        Ok(kept.await?.map(|()| secret_of(&bits)))
    }

    /// Ends the key of a person who has no role any more, in all their browsers.
    ///
    /// # Errors
    /// [`Failure`] outside, [`KeyError`] inside.
    pub async fn end_kept_key(
        self: &Arc<Self>,
        bits: [u8; SEED_LENGTH],
        reason: String,
    ) -> Result<Result<(), KeyError>, Failure> {
        let now = self.instance.clock.now();
        let ended = self.keep(bits, reason, move |key| {
            let key = key.ok_or(KeyError::UnknownKey)?;
            if !key.rule.is_valid(now) {
                return Err(KeyError::Ended);
            }
            Ok(KeyRule {
                ends_at: Some(now),
                ..key.rule.clone()
            })
        });
        ended.await
    }

    /// Makes the next version of the key whose secret these bits make, or the first one, with the rule that `decide`
    /// gives.
    async fn keep(
        self: &Arc<Self>,
        bits: [u8; SEED_LENGTH],
        reason: String,
        decide: impl FnOnce(Option<&Key>) -> Result<KeyRule, KeyError> + Send + 'static,
    ) -> Result<Result<(), KeyError>, Failure> {
        let admin = self.clone();
        let work = async move {
            let now = admin.instance.clock.now();
            let next = move |key: Option<&Key>, another_admin_stays: bool| {
                let rule = decide(key)?;
                let Some(key) = key else {
                    return Ok(first_version(rule, Some(reason), PERDIEM, now));
                };
                check_last_admin(&key.rule, &rule, another_admin_stays)?;
                Ok(key.changed(rule, reason, PERDIEM, now))
            };
            let hash = hash(&secret_of(&bits));
            let kept = admin.ledger.keep_key(&hash, next).await?;
            admin.learn_keys().await;
            Ok(kept.map(|_| ()))
        };
        self.instance.detached(work).await?
    }

    /// Sets, changes or removes the end of a key.
    ///
    /// # Errors
    /// [`Failure`] outside, [`KeyError`] inside.
    pub async fn end_key(
        self: &Arc<Self>,
        id: Uuid,
        ends_at: Option<DateTime<Utc>>,
        reason: String,
        precondition: Precondition,
        editor: Editor,
    ) -> Result<Result<Key, KeyError>, Failure> {
        let change = move |key: &Key| {
            if key.rule.revoked {
                Err(KeyError::Revoked)
            } else {
                Ok(KeyRule {
                    ends_at,
                    ..key.rule.clone()
                })
            }
        };
        self.change_key(id, reason, precondition, editor, change)
            .await
    }

    /// Makes a key with the same rights, and ends the old one after `keep`, or when it ends anyway. Returns the
    /// secret of the new key, which is stored nowhere.
    ///
    /// # Errors
    /// [`Failure`] outside, [`KeyError`] inside.
    pub async fn replace_key(
        self: &Arc<Self>,
        id: Uuid,
        keep: TimeDelta,
        reason: String,
        precondition: Precondition,
        editor: Editor,
    ) -> Result<Result<(KeyReplacement, String), KeyError>, Failure> {
        let admin = self.clone();
        let work = async move {
            let now = admin.instance.clock.now();
            let Editor {
                key: by,
                is_dry_run,
                ..
            } = editor;
            let decide = |key: Option<&Key>| {
                let old = key.ok_or(KeyError::UnknownKey)?;
                if old.rule.revoked {
                    return Err(KeyError::Revoked);
                }
                if !old.rule.is_valid(now) {
                    return Err(KeyError::Ended);
                }
                if !precondition.holds(Some(old.version)) {
                    return Err(KeyError::PreconditionFailed(old.version));
                }
                // The new key is as lasting as the old one, so the last admin key may be replaced. The policies of
                // the key are not looked up: one of them may be archived by now.
                let key = first_version(old.rule.clone(), Some(reason.clone()), &by, now);
                let ends_at = now + keep;
                let replaced = match old.rule.ends_at {
                    Some(end) if end <= ends_at => old.clone(),
                    _ => {
                        let ends_at = Some(ends_at);
                        let rule = KeyRule {
                            ends_at,
                            ..old.rule.clone()
                        };
                        old.changed(rule, reason, &by, now)
                    }
                };
                Ok(KeyReplacement { replaced, key })
            };
            let secret = generate_secret();
            let hash = hash(&secret);
            let replaced = admin.ledger.replace_key(id, &hash, is_dry_run, decide);
            let replaced = replaced.await?;
            if !is_dry_run {
                admin.learn_keys().await;
            }
            Ok(replaced.map(|replacement| (replacement, secret)))
        };
        self.instance.detached(work).await?
    }

    /// Revokes a key for good. A revoked key is left as it is.
    ///
    /// # Errors
    /// [`Failure`] outside, [`KeyError`] inside.
    pub async fn revoke_key(
        self: &Arc<Self>,
        id: Uuid,
        reason: String,
        precondition: Precondition,
        editor: Editor,
    ) -> Result<Result<Key, KeyError>, Failure> {
        let change = |key: &Key| {
            Ok(KeyRule {
                revoked: true,
                ..key.rule.clone()
            })
        };
        self.change_key(id, reason, precondition, editor, change)
            .await
    }

    /// A key that is already so is left as it is, whatever the precondition: the client may have
    /// sent the change twice (RFC 9110, section 13.1.1).
    async fn change_key(
        self: &Arc<Self>,
        id: Uuid,
        reason: String,
        precondition: Precondition,
        editor: Editor,
        change: impl Fn(&Key) -> Result<KeyRule, KeyError> + Send + Sync + 'static,
    ) -> Result<Result<Key, KeyError>, Failure> {
        let admin = self.clone();
        let decide = move |key: Option<&Key>, another_admin_stays: bool| {
            let key = key.ok_or(KeyError::UnknownKey)?;
            let rule = change(key)?;
            if rule == key.rule {
                return Ok(Change::Keep);
            }
            check_last_admin(&key.rule, &rule, another_admin_stays)?;
            if !precondition.holds(Some(key.version)) {
                return Err(KeyError::PreconditionFailed(key.version));
            }
            Ok(Change::Version {
                terms: rule,
                reason: Some(reason.clone()),
            })
        };
        let work = async move {
            let now = admin.instance.clock.now();
            let Editor {
                key, is_dry_run, ..
            } = editor;
            let changed = admin.ledger.edit_key(id, &key, now, is_dry_run, decide);
            let changed = changed.await?;
            if !is_dry_run {
                admin.learn_keys().await;
            }
            Ok(changed)
        };
        self.instance.detached(work).await?
    }

    /// Makes this instance know its own change at once. If that fails, the next poll does it.
    async fn learn_keys(&self) {
        if let Err(error) = self.instance.policies.refresh().await {
            tracing::warn!(
                error = %host::chain::Chain(&error),
                "this instance learns a change of a key only with the next poll"
            );
        }
    }

    /// A key as the ledger has it.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn key(self: &Arc<Self>, id: Uuid) -> Result<Option<UsedKey>, Failure> {
        let admin = self.clone();
        let work = async move { admin.ledger.key(id).await };
        Ok(self.instance.detached(work).await??)
    }

    /// A page of at most `limit` keys, newest first, and the cursor of the next page.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn keys(
        self: &Arc<Self>,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<UsedKey>, Option<String>), ListFailure> {
        const LIST: &str = "keys";
        let identity = self.ledger.identity();
        let before = match cursor {
            Some(cursor) => Uuid::from_bytes(cursor::decode(identity, LIST, cursor)?),
            None => Uuid::max(),
        };
        let admin = self.clone();
        let work = async move { admin.ledger.keys(before, limit + 1).await };
        let mut keys = self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut keys, limit)
            .map(|last| cursor::encode(identity, LIST, last.key.id.as_bytes()));
        Ok((keys, next))
    }
}
