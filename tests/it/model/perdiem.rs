//! The protocol as a model that can be searched.

use perdiem::domain::window::Window;

use super::appending::refresh;
use super::rule::{LineId, Question, Rule, instant};
use super::search::{Actions, Model};
use super::settling::{forget, join, lose, roll_back, snapshot, split};
use super::world::{
    Action, Claim, Counters, Instance, Kind, Protocol, Request, Scene, Stage, State, Wants,
};

/// A protocol, in a scene.
pub struct Perdiem {
    pub scene: Scene,
    pub protocol: Protocol,
    pub rule: Rule,
}

impl Perdiem {
    pub fn new(scene: &Scene, protocol: Protocol) -> Self {
        Self {
            scene: scene.clone(),
            protocol,
            rule: Rule::new(scene.versions),
        }
    }

    pub fn accounts(&self) -> u8 {
        let accounts = self.scene.requests.iter().map(|request| request.account);
        accounts.max().unwrap_or_default() + 1
    }

    /// A request of the scene, or the probe of an account.
    pub fn request(&self, request: u8) -> Request {
        let requests = &self.scene.requests;
        match requests.get(usize::from(request)) {
            Some(request) => *request,
            None => Request {
                account: request - count(requests),
                units: 1,
                key: None,
                wants: Wants::Grant,
                sends: 0,
            },
        }
    }

    /// The request for one unit of an account, which no client sends.
    pub fn probe(&self, account: u8) -> u8 {
        count(&self.scene.requests) + account
    }

    pub fn has_give_backs(&self) -> bool {
        let mut requests = self.scene.requests.iter();
        requests.any(|request| request.wants != Wants::Grant)
    }

    /// What an instance's clock says, in seconds after midnight.
    pub fn now(&self, state: &State, instance: u8) -> i32 {
        self.scene.instants[usize::from(state.time)] + self.scene.clocks[usize::from(instance)]
    }

    pub fn last_line(&self, state: &State, account: u8) -> LineId {
        let mut entries = state.ledger.iter().rev();
        let last = entries.find(|entry| entry.account == account);
        last.map_or(LineId::NONE, |entry| entry.line)
    }

    /// What an account's grants up to a number took in a window, less what was given back.
    pub fn sum(&self, state: &State, account: u8, number: u8, window: Window) -> u64 {
        let mut sum = 0;
        for (index, entry) in state.ledger.iter().enumerate() {
            let facts = self.rule.facts(entry.line);
            if entry.account == account && facts.number <= number {
                let grant = entry.kind.of().map_or(index, usize::from);
                let at = self.rule.facts(state.ledger[grant].line).at;
                match entry.kind {
                    _ if !window.contains(instant(at)) => {}
                    Kind::Grant | Kind::Hold => sum += u64::from(entry.units),
                    Kind::Reversal(_) | Kind::Lapse(_) => {
                        sum = sum.saturating_sub(entry.units.into());
                    }
                    Kind::Confirmation(_) => {}
                }
            }
        }
        sum
    }

    /// The grant of a request with a key, by its place in the ledger.
    pub fn grant_of(&self, state: &State, request: u8) -> Option<u8> {
        let key = self.request(request).key?;
        let place = state.ledger.iter().position(|entry| {
            let first = entry
                .claim
                .map(|claim| state.claims[usize::from(claim)].request);
            entry.key == Some(key) && first == Some(request)
        });
        place.map(|place| u8::try_from(place).expect("few entries"))
    }

    /// For the grant at a place in the ledger that is a hold: when it lapses unless it is confirmed.
    pub fn held_until(&self, state: &State, grant: u8) -> Option<i32> {
        let entry = &state.ledger[usize::from(grant)];
        let until = self.rule.facts(entry.line).at + self.scene.hold_seconds;
        (entry.kind == Kind::Hold).then_some(until)
    }

    /// The account's holds up to a number that nothing up to it ended: their places in the ledger
    /// and when they lapse, the first one first.
    pub fn open_holds(&self, state: &State, account: u8, number: u8) -> Vec<(u8, i32)> {
        let entries = || {
            let numbered = state.ledger.iter().zip(0..);
            numbered.filter(|(entry, _)| {
                entry.account == account && self.rule.number(entry.line) <= number
            })
        };
        let is_open = |place: u8| !entries().any(|(entry, _)| entry.kind.of() == Some(place));
        let mut open: Vec<(u8, i32)> = entries()
            .filter(|(_, place)| is_open(*place))
            .filter_map(|(_, place)| Some((place, self.held_until(state, place)?)))
            .collect();
        open.sort_by_key(|(place, until)| (*until, *place));
        open
    }

    /// An account's next instant.
    pub fn instant_after(&self, last: LineId, now: i32) -> i32 {
        match last {
            LineId::NONE => now,
            line => now.max(self.rule.facts(line).at),
        }
    }

    /// The same question as if the account had no holds.
    pub fn without_lapses(&self, question: Question) -> Question {
        match question.last {
            LineId::NONE => question,
            last => Question {
                last: self.rule.with_lapses_at(last, None),
                ..question
            },
        }
    }

    /// Whether a claim may be sent to an instance, which takes a key once at a time.
    fn may_send(&self, state: &State, request: Request, instance: u8) -> bool {
        let is_busy = |claim: &Claim| {
            let key = self.request(claim.request).key;
            claim.is_under_way() && claim.instance == instance && key == request.key
        };
        match request.wants {
            Wants::Reversal(of) | Wants::Confirmation(of) => self.grant_of(state, of).is_some(),
            Wants::Grant | Wants::Hold => {
                request.key.is_none() || !state.claims.iter().any(is_busy)
            }
        }
    }

    fn claims_progress(&self, state: &State, progress: &mut Vec<Action>) {
        let mut waiting = Vec::new();
        for (index, claim) in state.claims.iter().enumerate() {
            let account = self.request(claim.request).account;
            match claim.stage {
                Stage::Asking => progress.push(Action::Ask {
                    claim: u8::try_from(index).expect("few claims"),
                }),
                Stage::Waiting => waiting.push((claim.instance, account)),
                Stage::Unsent | Stage::Grouped | Stage::Settling | Stage::Ended(_) => {}
            }
        }
        for (groups, instance) in state.instances.iter().map(|one| &one.groups).zip(0..) {
            for (group, account) in groups.iter().zip(0..) {
                let is_sent = state
                    .drafts
                    .iter()
                    .any(|draft| draft.waits == Some(instance) && draft.account == account);
                match group {
                    Some(group) if group.looked.is_some() => {
                        progress.push(Action::Decide { instance, account });
                    }
                    Some(_) if !is_sent => progress.push(Action::Begin { instance, account }),
                    None if !is_sent && waiting.contains(&(instance, account)) => {
                        progress.push(Action::Begin { instance, account });
                    }
                    Some(_) | None => {}
                }
            }
        }
    }

    fn messages_progress(&self, state: &State, actions: &mut Actions<Action>) {
        for (draft, index) in state.drafts.iter().zip(0..) {
            match (draft.waits, draft.stands) {
                (Some(_), None) => {
                    actions.progress.push(Action::Append { draft: index });
                }
                (Some(_), Some(_)) => actions.progress.push(Action::Answer { draft: index }),
                (None, _) => actions.events.push(Action::Append { draft: index }),
            }
            if draft.waits.is_some() && state.left.timeouts > 0 {
                actions.events.push(Action::TimeOut { draft: index });
            }
        }
        for (_, settlement) in state.settlements.iter().zip(0..) {
            actions.progress.push(Action::Settle {
                settlement,
                repeats: false,
            });
            if state.left.repeats > 0 {
                actions.events.push(Action::Settle {
                    settlement,
                    repeats: true,
                });
            }
            if state.left.losses > 0 {
                actions.events.push(Action::Lose { settlement });
            }
        }
    }

    fn sends(&self, state: &State, events: &mut Vec<Action>) {
        let under_way = state.claims.iter().filter(|claim| claim.is_under_way());
        if under_way.count() >= self.scene.at_once {
            return;
        }
        let is_unsent = |claim: &&Claim| claim.stage == Stage::Unsent;
        let are_alike = self.scene.clocks.iter().all(|ahead| *ahead == 0)
            && state.newest == 1
            && state.claims.iter().all(|claim| is_unsent(&claim));
        let instances = if are_alike {
            1
        } else {
            count(self.scene.clocks)
        };
        let mut last = None;
        for (claim, index) in state.claims.iter().zip(0..) {
            // One sending of a request is as good as another.
            if !is_unsent(&claim) || last == Some(claim.request) {
                continue;
            }
            last = Some(claim.request);
            for instance in 0..instances {
                if self.may_send(state, self.request(claim.request), instance) {
                    let is_correction = self.request(claim.request).wants.is_correction();
                    let asks = self.scene.has_redis && !is_correction;
                    events.push(Action::Send {
                        claim: index,
                        instance,
                        asks,
                    });
                    if asks && state.left.silences > 0 {
                        events.push(Action::Send {
                            claim: index,
                            instance,
                            asks: false,
                        });
                    }
                }
            }
        }
    }

    fn faults(&self, state: &State, events: &mut Vec<Action>) {
        for (instance, index) in state.instances.iter().zip(0..) {
            let mut claims = state.claims.iter();
            let has_work = claims.any(|claim| claim.is_under_way() && claim.instance == index);
            if state.left.crashes > 0 && has_work {
                events.push(Action::Crash { instance: index });
            }
            for (group, account) in instance.groups.iter().zip(0..) {
                if state.left.timeouts > 0 && group.is_some() {
                    events.push(Action::GiveUp {
                        instance: index,
                        account,
                    });
                }
            }
            if state.left.redis_faults > 0 && state.old_redis.is_none() {
                events.push(Action::Split { instance: index });
            }
        }
        for account in 0..self.accounts() {
            let has_counter = state.redis[usize::from(account)].is_some();
            if state.left.redis_faults > 0 && has_counter {
                events.push(Action::Forget { account });
            }
            if state.left.tamperings > 0 && has_counter {
                for hides_holds in [false, true] {
                    events.push(Action::Tamper {
                        account,
                        hides_holds,
                    });
                }
            }
        }
        if state.left.redis_faults > 0 && state.snapshot.is_none() {
            events.push(Action::Snapshot);
        }
        if state.snapshot.is_some() {
            events.push(Action::RollBack);
        }
        if state.old_redis.is_some() {
            events.push(Action::Join);
        }
    }

    /// Time, and changes of the policy.
    fn world_events(&self, state: &State, events: &mut Vec<Action>) {
        for (instance, index) in state.instances.iter().zip(0..) {
            if instance.is_fresh && instance.version < state.newest {
                events.push(Action::Refresh { instance: index });
            }
            if state.newest < self.rule.versions() {
                events.push(Action::Change { instance: index });
            }
        }
        if usize::from(state.time) + 1 < self.scene.instants.len() {
            events.push(Action::Tick);
        }
    }
}

impl Model for Perdiem {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        let accounts = usize::from(self.accounts());
        let counters: Counters = vec![None; accounts];
        let instance = Instance {
            version: 1,
            is_fresh: true,
            sees_old_redis: false,
            groups: vec![None; accounts],
        };
        let requests = self.scene.requests.iter().zip(0..);
        let claims = requests
            .flat_map(|(request, index)| vec![Claim::of(index); usize::from(request.sends)])
            .collect();
        State {
            time: 0,
            newest: 1,
            binding: 1,
            ledger: Vec::new(),
            redis: counters,
            old_redis: None,
            snapshot: None,
            instances: vec![instance; self.scene.clocks.len()],
            claims,
            drafts: Vec::new(),
            settlements: Vec::new(),
            left: self.scene.most,
            may_lag: false,
        }
    }

    fn actions(&self, state: &State) -> Actions<Action> {
        let mut actions = Actions::default();
        self.claims_progress(state, &mut actions.progress);
        self.messages_progress(state, &mut actions);
        for (instance, index) in state.instances.iter().zip(0..) {
            if !instance.is_fresh {
                actions.progress.push(Action::Refresh { instance: index });
            }
        }
        self.sends(state, &mut actions.events);
        self.faults(state, &mut actions.events);
        self.world_events(state, &mut actions.events);
        actions
    }

    fn next(&self, state: &State, action: Action) -> Result<State, String> {
        let mut next = state.clone();
        let state = &mut next;
        match action {
            Action::Send {
                claim,
                instance,
                asks,
            } => {
                let request = self.request(state.claims[usize::from(claim)].request);
                if self.scene.has_redis && !asks && !request.wants.is_correction() {
                    state.left.silences -= 1;
                }
                self.send(state, claim, instance, asks)?;
            }
            Action::Ask { claim } => self.ask(state, claim)?,
            Action::Begin { instance, account } => self.begin(state, instance, account)?,
            Action::Decide { instance, account } => self.decide(state, instance, account)?,
            Action::Append { draft } => self.append(state, draft)?,
            Action::Answer { draft } => self.receive(state, draft)?,
            Action::Settle {
                settlement,
                repeats,
            } => self.settle(state, settlement, repeats)?,
            Action::Refresh { instance } => refresh(state, instance),
            Action::TimeOut { draft } => self.time_out(state, draft),
            Action::GiveUp { instance, account } => self.give_up(state, instance, account),
            Action::Crash { instance } => self.crash(state, instance),
            Action::Lose { settlement } => lose(state, settlement),
            Action::Forget { account } => forget(state, account),
            Action::Snapshot => snapshot(state),
            Action::RollBack => roll_back(state),
            Action::Split { instance } => split(state, instance),
            Action::Join => join(state),
            Action::Tamper {
                account,
                hides_holds,
            } => self.tamper(state, account, hides_holds),
            Action::Change { instance } => {
                state.newest += 1;
                refresh(state, instance);
            }
            Action::Tick => {
                state.time += 1;
                state.binding = state.newest;
                for instance in &mut state.instances {
                    instance.is_fresh = false;
                }
            }
        }
        Ok(next)
    }

    fn check_at_rest(&self, state: &State) -> Result<(), String> {
        self.check_rest(state)
    }

    fn tell(&self, state: &State, action: Action) -> String {
        self.tell_step(state, action)
    }

    fn show(&self, state: &State) -> String {
        self.show_state(state)
    }
}

fn count<T>(items: &[T]) -> u8 {
    u8::try_from(items.len()).expect("few")
}
