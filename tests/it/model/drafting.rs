//! The next entries of an account: first the lapses that are due, then what claims and corrections
//! become. As in `src/domain/drafting.rs`.

use perdiem::domain::window::Window;

use super::perdiem::Perdiem;
use super::rule::{LineId, Question, Said};
use super::world::{Entry, Kind, Request, State, Wants};

/// Why nothing can be decided with what is known.
pub enum Missing {
    /// The ledger's own word.
    Look,
    /// A newer version of the policy.
    Policy,
    /// The open holds.
    Holds,
}

/// Whether the ledger was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A counter's hint is all that is known.
    Hint,
    /// Windows can be summed.
    Ledger,
    /// And the open holds are known.
    LedgerWithHolds,
}

/// What becomes of a claim or correction.
pub enum Decided {
    Entry,
    /// It was made before.
    Repeated,
    Refused {
        for_lack_of_room: bool,
    },
}

/// A hold that nothing ended yet; its place in the ledger, if it stands there.
#[derive(Clone, Copy)]
struct OpenHold {
    place: Option<u8>,
    until: i32,
}

pub struct Drafting<'a> {
    model: &'a Perdiem,
    state: &'a State,
    account: u8,
    /// The number of the last line.
    number: u8,
    version: u8,
    now: i32,
    /// The claim that it is made for.
    nonce: Option<u8>,
    seen: Seen,
    /// The open holds once they are known, the first one first.
    holds: Option<Vec<OpenHold>>,
    /// The line that the next entry goes on from.
    pub line: LineId,
    pub entries: Vec<Entry>,
}

impl<'a> Drafting<'a> {
    /// Begins with the lapses that are due.
    pub fn begin(
        model: &'a Perdiem,
        state: &'a State,
        account: u8,
        question: Question,
        nonce: Option<u8>,
        seen: Seen,
    ) -> Result<Self, Missing> {
        let last = question.last;
        let facts = model.rule.facts(last);
        if facts.version > question.version {
            return Err(Missing::Policy);
        }
        let holds = model.open_holds(state, account, facts.number).into_iter();
        let holds = holds.map(|(place, until)| OpenHold {
            place: Some(place),
            until,
        });
        let mut drafting = Self {
            model,
            state,
            account,
            number: facts.number,
            version: question.version,
            now: question.now,
            nonce,
            seen,
            holds: (seen == Seen::LedgerWithHolds).then(|| holds.collect()),
            line: last,
            entries: Vec::new(),
        };
        let at = model.instant_after(last, question.now);
        let may_have_lapses = facts.lapses_at.is_some_and(|lapses_at| lapses_at <= at);
        if may_have_lapses && model.protocol.lapses_first {
            drafting.lapse(at)?;
        }
        Ok(drafting)
    }

    fn lapse(&mut self, at: i32) -> Result<(), Missing> {
        let holds = self.holds.as_ref().ok_or(Missing::Holds)?;
        let due = holds.partition_point(|hold| hold.until <= at);
        let due: Vec<OpenHold> = holds[..due].to_vec();
        for hold in due {
            let place = hold.place.expect("it stands in the ledger");
            let own_id = self
                .nonce
                .filter(|_| self.model.protocol.lapses_have_own_ids);
            let lapse = self.give_back(place, Kind::Lapse(place), None, own_id);
            self.append(lapse);
        }
        // There may have been none: the last line only says when the first may lapse.
        if self.line != LineId::NONE {
            self.line = self
                .model
                .rule
                .with_lapses_at(self.line, self.first_lapse());
        }
        Ok(())
    }

    /// When the first hold lapses, or may lapse where they are not known.
    fn first_lapse(&self) -> Option<i32> {
        match &self.holds {
            Some(holds) => holds.first().map(|hold| hold.until),
            None => self.model.rule.facts(self.line).lapses_at,
        }
    }

    /// Decides the next one.
    pub fn decide(&mut self, index: u8) -> Result<Decided, Missing> {
        let request = self
            .model
            .request(self.state.claims[usize::from(index)].request);
        match request.wants {
            Wants::Grant | Wants::Hold => Ok(self.decide_claim(index, request)?),
            Wants::Reversal(of) => {
                let grant = self.grant_of(of);
                if self.is_followed(|kind| kind == Kind::Reversal(grant)) {
                    return Ok(Decided::Repeated);
                }
                if self.is_followed(|kind| kind == Kind::Lapse(grant)) {
                    return Ok(REFUSED);
                }
                self.must_know_the_next_hold(grant)?;
                let kind = Kind::Reversal(grant);
                let reversal = self.give_back(grant, kind, Some(index), Some(index));
                self.append(reversal);
                Ok(Decided::Entry)
            }
            Wants::Confirmation(of) => {
                let grant = self.grant_of(of);
                if self.is_followed(|kind| kind.gives_back(grant)) {
                    return Ok(REFUSED);
                }
                if self.is_followed(|kind| kind == Kind::Confirmation(grant)) {
                    return Ok(Decided::Repeated);
                }
                self.must_know_the_next_hold(grant)?;
                let question = self.question(self.state.ledger[usize::from(grant)].units);
                let line = self.model.rule.carry_on(question, self.sum());
                let units = question.units;
                let kind = Kind::Confirmation(grant);
                self.append(self.entry(line, kind, units, Some(index), Some(index)));
                Ok(Decided::Entry)
            }
        }
    }

    fn decide_claim(&mut self, index: u8, request: Request) -> Result<Decided, Missing> {
        let question = self.question(request.units);
        // Without the lapses that are due, the rule would refuse to answer.
        let question = match self.model.protocol.lapses_first {
            true => question,
            false => self.model.without_lapses(question),
        };
        let said = match self.seen {
            Seen::Hint => self.model.rule.decide_on_line(question),
            Seen::Ledger | Seen::LedgerWithHolds => {
                Some(self.model.rule.decide(question, self.sum()))
            }
        };
        match said.ok_or(Missing::Look)? {
            Said::Granted(line) => {
                let kind = match request.wants {
                    Wants::Hold => Kind::Hold,
                    _ => Kind::Grant,
                };
                let mut entry = self.entry(line, kind, request.units, Some(index), Some(index));
                entry.key = request.key;
                self.append(entry);
                Ok(Decided::Entry)
            }
            Said::Denied => Ok(Decided::Refused {
                for_lack_of_room: true,
            }),
            Said::NeverFits => Ok(REFUSED),
            Said::Outdated => Err(Missing::Policy),
        }
    }

    fn give_back(&self, grant: u8, kind: Kind, claim: Option<u8>, nonce: Option<u8>) -> Entry {
        let entry = &self.state.ledger[usize::from(grant)];
        let granted_at = self.model.rule.facts(entry.line).at;
        let question = self.question(entry.units);
        let line = self.model.rule.give_back(question, granted_at, self.sum());
        self.entry(line, kind, entry.units, claim, nonce)
    }

    fn entry(
        &self,
        line: LineId,
        kind: Kind,
        units: u8,
        claim: Option<u8>,
        nonce: Option<u8>,
    ) -> Entry {
        Entry {
            account: self.account,
            line,
            claim,
            nonce,
            key: None,
            units,
            kind,
        }
    }

    fn append(&mut self, mut entry: Entry) {
        let opened = (entry.kind == Kind::Hold)
            .then(|| self.model.rule.facts(entry.line).at + self.model.scene.hold_seconds);
        let lapses_at = match &mut self.holds {
            Some(holds) => {
                holds.extend(opened.map(|until| OpenHold { place: None, until }));
                holds.retain(|hold| hold.place.is_none() || hold.place != entry.kind.of());
                holds.sort_by_key(|hold| hold.until);
                self.first_lapse()
            }
            None => self.first_lapse().into_iter().chain(opened).min(),
        };
        entry.line = self.model.rule.with_lapses_at(entry.line, lapses_at);
        self.line = entry.line;
        self.entries.push(entry);
    }

    /// Whoever ends the hold that would lapse first has to know the one after it.
    fn must_know_the_next_hold(&self, grant: u8) -> Result<(), Missing> {
        let until = self.model.held_until(self.state, grant);
        match until.is_some() && until == self.first_lapse() && self.holds.is_none() {
            true => Err(Missing::Holds),
            false => Ok(()),
        }
    }

    fn grant_of(&self, request: u8) -> u8 {
        let grant = self.model.grant_of(self.state, request);
        grant.expect("nobody corrects what was not granted")
    }

    /// Whether an entry is known that has something to do with a grant.
    fn is_followed(&self, by: impl Fn(Kind) -> bool) -> bool {
        let looks = self.model.protocol.followers_are_looked_up;
        let standing = self.state.ledger.iter().filter(|_| looks);
        standing.chain(&self.entries).any(|entry| by(entry.kind))
    }

    fn question(&self, units: u8) -> Question {
        Question {
            version: self.version,
            units,
            last: self.line,
            now: self.now,
        }
    }

    fn sum(&self) -> impl Fn(Window) -> u64 {
        |window| {
            self.model
                .sum(self.state, self.account, self.number, window)
        }
    }
}

const REFUSED: Decided = Decided::Refused {
    for_lack_of_room: false,
};
