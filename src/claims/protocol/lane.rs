//! The queues of groups that the lanes take turns at.

/// The queue that a group waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// For a look at the ledger.
    Look,
    /// For a look and an append, when the turn of the group comes.
    Contend,
    /// For the append of its draft.
    Append,
    /// For the append of the drafts of an atomic batch.
    Together,
    /// For the append of a draft that changes a limit that all subjects share.
    Shared,
}

impl Lane {
    pub const ALL: [Self; 5] = [
        Self::Look,
        Self::Append,
        Self::Contend,
        Self::Together,
        Self::Shared,
    ];

    /// The lane that takes turns with this lane.
    pub fn beside(self) -> Option<Self> {
        match self {
            Self::Look => Some(Self::Append),
            Self::Append => Some(Self::Look),
            Self::Contend | Self::Together | Self::Shared => None,
        }
    }
}
