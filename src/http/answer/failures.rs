//! How the failures of use cases become the errors of requests.

use super::error::{ApiError, Forbidden};
use api::orphans::OrphansBody;
use api::problem::InvalidPart;
use domain::policy::PolicyName;
use engine::{
    ClaimFailure, EditError, Failure, InvalidCursor, KeyError, LedgerError, ListFailure,
    ReadFailure, ReconcileFailure, Undecided,
};

impl From<ClaimFailure> for ApiError {
    fn from(failure: ClaimFailure) -> Self {
        match failure {
            ClaimFailure::UnknownPolicy(name) => Self::UnknownPolicy(name.to_string()),
            ClaimFailure::InProgress => Self::ClaimInProgress,
            ClaimFailure::Undecided(undecided) => undecided.into(),
        }
    }
}

impl From<Undecided> for ApiError {
    fn from(undecided: Undecided) -> Self {
        let Undecided::Ledger(error) = &undecided else {
            return Self::Undecided(undecided);
        };
        match (&**error, error.unreadable_terms()) {
            (LedgerError::Archived(what), _) => Self::Archived(what.clone()),
            (_, Some(terms)) => Self::UnreadableTerms(terms),
            (_, None) => Self::Undecided(undecided),
        }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::MayWait => Self::MayWait,
            Failure::Ledger(error) if matches!(*error, LedgerError::Archived(_)) => {
                Self::Archived(error.to_string())
            }
            Failure::Ledger(error) if error.is_out_of_time() => Self::TooSlow,
            Failure::Ledger(error) => match error.unreadable_terms() {
                Some(terms) => Self::UnreadableTerms(terms),
                None => Self::Unavailable(Failure::Ledger(error)),
            },
            failure @ (Failure::Silent
            | Failure::Unseen
            | Failure::NotFollowed
            | Failure::Interrupted) => Self::Unavailable(failure),
        }
    }
}

impl From<InvalidCursor> for ApiError {
    fn from(error: InvalidCursor) -> Self {
        Self::invalid("cursor", error)
    }
}

impl From<ListFailure> for ApiError {
    fn from(failure: ListFailure) -> Self {
        match failure {
            ListFailure::UnknownPolicy(name) => Self::UnheardPolicy(name.to_string()),
            ListFailure::UnknownOrArchived(name) => Self::UnknownPolicy(name.to_string()),
            ListFailure::Cursor(error) => error.into(),
            ListFailure::Misfit(parameter, misfit) => Self::invalid(parameter, misfit),
            ListFailure::Overloaded => Self::Overloaded,
            ListFailure::NoPlace => Self::TooManyAtOnce,
            ListFailure::Failure(failure) => failure.into(),
        }
    }
}

impl From<ReadFailure> for ApiError {
    fn from(failure: ReadFailure) -> Self {
        match failure {
            ReadFailure::TooMany => Self::TooManyReads,
            ReadFailure::Failure(failure) => failure.into(),
        }
    }
}

impl From<ReconcileFailure> for ApiError {
    fn from(failure: ReconcileFailure) -> Self {
        match failure {
            ReconcileFailure::InProgress => Self::ReconciliationInProgress,
            ReconcileFailure::Failure(failure) => failure.into(),
        }
    }
}

impl From<(PolicyName, EditError)> for ApiError {
    fn from((policy, error): (PolicyName, EditError)) -> Self {
        match error {
            EditError::PreconditionFailed(version) => Self::PreconditionFailed(version),
            EditError::UnknownPolicy => Self::UnknownPolicy(policy.to_string()),
            EditError::UnknownOverride => {
                Self::NotFound("this subject has no override under this policy")
            }
            EditError::UnknownBlock => {
                Self::NotFound("this subject has no block under this policy")
            }
            EditError::UnknownTier => Self::NotFound("this subject is in no tier of this policy"),
            EditError::BeyondBounds => Forbidden::BeyondBounds.into(),
            EditError::NotPaused => Self::NotFound("the policy is not paused"),
            EditError::Orphans(orphans) => Self::OrphanedOverrides(OrphansBody::new(&orphans)),
            EditError::BeingErased(at) => Self::BeingErased(at),
            EditError::NeedsApproval(waiting) => Self::NeedsApproval(waiting),
            EditError::OwnProposal => Self::OwnProposal,
            EditError::Stale(version) => Self::StaleProposal(version),
            EditError::ProposerGone => {
                let detail = "the key that proposed this is no valid admin key any more: propose the change again";
                Self::invalid_body("/proposal", detail)
            }
            EditError::Misfit(faults) => {
                Self::Invalid(faults.into_iter().map(InvalidPart::from).collect())
            }
            EditError::ReasonRequired => {
                let detail = "the reason is missing: write why the version is replaced";
                Self::invalid_body("/reason", detail)
            }
        }
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::UnknownKey => Self::NotFound("there is no key with this id"),
            KeyError::PreconditionFailed(version) => Self::PreconditionFailed(Some(version)),
            KeyError::Revoked => Self::KeyRevoked,
            KeyError::Ended => Self::KeyEnded,
            KeyError::LastAdmin => Self::LastAdminKey,
            KeyError::UnknownPolicies(unknown) => {
                let part = |(index, name): (usize, PolicyName)| {
                    let detail =
                        format!("there is no policy {name}, or it is archived: check the name");
                    InvalidPart::body(&format!("/policies/{index}"), detail)
                };
                Self::Invalid(unknown.into_iter().map(part).collect())
            }
        }
    }
}
