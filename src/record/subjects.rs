//! Subjects by their beginnings.

use std::sync::Arc;

use crate::cursor::{self, InvalidCursor, cut_page};
use crate::{ListFailure, Record};
use claims::instance::Failure;
use domain::claim::Subject;
use domain::policy::PolicyName;

/// Which subjects to list.
#[derive(Debug)]
pub struct SubjectQuery<'q> {
    /// Subjects that begin so.
    pub prefix: Option<Subject>,
    /// Subjects that this policy knows, archived or not.
    pub policy: Option<PolicyName>,
    /// If the caller is confined to policies, only subjects that these know.
    pub confined_to: Option<&'q [PolicyName]>,
}

/// A subject, and the policies that have entries or an exception of it.
#[derive(Debug)]
pub struct KnownSubject {
    pub subject: String,
    pub policies: Vec<PolicyName>,
}

impl Record {
    /// A page of at most `limit` subjects, in the order of their bytes, and the cursor of the next page. Without a
    /// named policy archived policies are left out.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn subjects(
        self: &Arc<Self>,
        query: SubjectQuery<'_>,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<KnownSubject>, Option<String>), ListFailure> {
        let identity = self.ledger.identity();
        let prefix = query.prefix;
        let list = format!(
            "subjects {:?} {:?}",
            query.policy,
            prefix.as_ref().map(Subject::as_str)
        );
        let after = match cursor {
            Some(cursor) => String::from_utf8(cursor::decode_any(identity, &list, cursor)?)
                .map_err(|_| InvalidCursor)?,
            None => String::new(),
        };
        let policies = match query.policy {
            Some(name) => vec![self.listed_policy(&name).await?.name.clone()],
            None => {
                let policies = self.instance.policies_in_use(query.confined_to).await?;
                policies.iter().map(|policy| policy.name.clone()).collect()
            }
        };
        let record = self.clone();
        let work = async move {
            let found = record.ledger.record();
            let found = found.subjects(&policies, prefix.as_ref(), &after, limit + 1);
            found.await
        };
        let rows = self.instance.detached(work).await?.map_err(Failure::from)?;
        let mut found: Vec<KnownSubject> = Vec::new();
        for (subject, policy) in rows {
            match found.last_mut().filter(|last| last.subject == subject) {
                Some(known) => known.policies.push(policy),
                None => found.push(KnownSubject {
                    subject,
                    policies: vec![policy],
                }),
            }
        }
        let next = cut_page(&mut found, limit)
            .map(|last| cursor::encode(identity, &list, last.subject.as_bytes()));
        Ok((found, next))
    }
}
