//! What is searched.

use super::{Counting, Most, Protocol};

const PROTOCOL: Protocol = Protocol {
    looks_before_append: true,
    lowers_what_was_queued: true,
    takes_what_its_line_counts: true,
    records_in_one_step: true,
    asks_again: true,
    waits_before_denial: true,
    remembers_ids: true,
    leaves_unknown: true,
};

const NOTHING: Most = Most {
    crashes: 0,
    repeats: 0,
    silences: 0,
    timeouts: 0,
    detours: 0,
};

/// A retry at another instance, and a claim without a key.
pub fn retries() -> Counting {
    Counting {
        max: 2,
        claims: &[None, Some(0), Some(0)],
        instances: 2,
        most: NOTHING,
        protocol: PROTOCOL,
    }
}

/// Drains that crash, and appends whose outcome is unknown.
pub fn crashes() -> Counting {
    Counting {
        max: 2,
        claims: &[None, Some(0)],
        most: Most {
            crashes: 2,
            repeats: 1,
            timeouts: 1,
            ..NOTHING
        },
        ..retries()
    }
}

/// Scripts that run twice.
pub fn repeats() -> Counting {
    Counting {
        claims: &[None, Some(0)],
        most: Most {
            repeats: 2,
            ..NOTHING
        },
        ..retries()
    }
}

/// Scripts without an answer.
pub fn silences() -> Counting {
    Counting {
        claims: &[None, Some(0)],
        most: Most {
            silences: 2,
            crashes: 1,
            ..NOTHING
        },
        ..retries()
    }
}

/// A claim that the ledger decides, since Redis does not answer its instance.
fn detours() -> Counting {
    Counting {
        claims: &[None, Some(0)],
        most: Most {
            detours: 1,
            crashes: 1,
            timeouts: 1,
            ..NOTHING
        },
        ..retries()
    }
}

pub fn all() -> [Counting; 5] {
    [retries(), crashes(), repeats(), silences(), detours()]
}

impl Counting {
    /// More of all that may happen in the scene.
    pub fn deeper(self, by: u8) -> Self {
        let more = |count: u8| if count == 0 { 0 } else { count + by };
        Self {
            most: Most {
                crashes: more(self.most.crashes),
                repeats: more(self.most.repeats),
                silences: more(self.most.silences),
                timeouts: more(self.most.timeouts),
                detours: more(self.most.detours),
            },
            ..self
        }
    }
}
