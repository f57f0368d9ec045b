//! Frame against a model of plain fields, over every sequence of calls: breadth first from a new frame until no call
//! leads anywhere new. A real frame is brought to each state by repeating the calls that lead there.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::panic::catch_unwind;

use headwater_core::PageIndex;
use headwater_core::frame::{
    Ended, FileId, FirstUse, Frame, FrameState, Invalidated, LoadId, LoadKind, Pin, REFERENCES_MAX, Unpinned,
    Usage,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Free,
    Loading,
    Resident,
    Stale,
    Doomed,
}

/// What a frame is to remember. What it need not remember any more stays here too, so that every past of a free frame
/// is a state of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Model {
    state: State,
    pins: u32,
    references: u8,
    ahead: bool,
    fresh: bool,
    mark: bool,
    cursor_bytes: u32,
    identity: usize,
}

/// Two files and two pages; one pair is missing, so that each is told from another by the file alone or the page alone.
const IDENTITIES: [(FileId, PageIndex); 3] = [
    (FileId::new(1), PageIndex::new(7)),
    (FileId::new(1), PageIndex::new(8)),
    (FileId::new(2), PageIndex::new(7)),
];

/// Start and end within the page: all of it, a beginning, two that go on from somewhere.
const READS: [(u32, u32); 4] = [(0, 4096), (0, 512), (512, 1024), (1024, 4096)];

const PINS_MAX: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    BeginLoad(usize, LoadKind),
    CompleteLoad,
    FailLoad,
    Invalidate,
    Pin(usize, (u32, u32)),
    Unpin,
    Evict,
    TakeReferences,
    SetReferences(u8),
    Demand,
    Mark,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Nothing,
    Ended(Ended),
    Invalidated(Invalidated, Usage),
    Pin(Pin),
    Unpinned(Unpinned),
    Evicted(Option<Usage>),
    References(u8),
    FirstUse(FirstUse),
}

fn calls() -> Vec<Call> {
    use Call::*;
    let kinds = [LoadKind::Demand, LoadKind::Ahead];
    let identities = 0..IDENTITIES.len();
    let begins = identities.clone().flat_map(|identity| kinds.map(|kind| BeginLoad(identity, kind)));
    let pins = identities.flat_map(|identity| READS.map(|read| Pin(identity, read)));
    let sets = (0..=REFERENCES_MAX + 1).map(SetReferences);
    let others = [CompleteLoad, FailLoad, Invalidate, Unpin, Evict, TakeReferences, Demand, Mark];
    begins.chain(pins).chain(sets).chain(others).collect()
}

impl Call {
    /// As the documentation writes it.
    fn name(self) -> &'static str {
        match self {
            Call::BeginLoad(..) => "begin_load",
            Call::CompleteLoad => "complete_load",
            Call::FailLoad => "fail_load",
            Call::Invalidate => "invalidate",
            Call::Pin(..) => "pin",
            Call::Unpin => "unpin",
            Call::Evict => "evict",
            Call::TakeReferences => "take_references",
            Call::SetReferences(_) => "set_references",
            Call::Demand => "demand",
            Call::Mark => "mark",
        }
    }

    fn make(self, frame: &Frame) -> Answer {
        match self {
            Call::BeginLoad(identity, kind) => {
                let (file, page) = IDENTITIES[identity];
                frame.begin_load(file, page, load_of(identity), kind);
                Answer::Nothing
            }
            Call::CompleteLoad => Answer::Ended(frame.complete_load()),
            Call::FailLoad => Answer::Ended(frame.fail_load()),
            Call::Invalidate => {
                let (became, usage) = frame.invalidate();
                Answer::Invalidated(became, usage)
            }
            Call::Pin(identity, (within, end)) => {
                let (file, page) = IDENTITIES[identity];
                Answer::Pin(frame.pin(file, page, within, end))
            }
            Call::Unpin => Answer::Unpinned(frame.unpin()),
            Call::Evict => Answer::Evicted(frame.evict()),
            Call::TakeReferences => Answer::References(frame.take_references()),
            Call::SetReferences(count) => {
                frame.set_references(count);
                Answer::Nothing
            }
            Call::Demand => Answer::FirstUse(frame.demand()),
            Call::Mark => {
                frame.mark();
                Answer::Nothing
            }
        }
    }
}

fn load_of(identity: usize) -> LoadId {
    LoadId::new(identity as u32 + 10)
}

/// What a call may do in a state.
enum Verdict {
    /// It gives this, and leaves that.
    Gives(Answer, Model),
    /// It panics, and leaves everything as it was.
    Panics,
    /// Nobody makes it here.
    Outside,
}

impl Model {
    const NEW: Model = Model {
        state: State::Free,
        pins: 0,
        references: 0,
        ahead: false,
        fresh: false,
        mark: false,
        cursor_bytes: 0,
        identity: 0,
    };

    fn is_in_table(&self) -> bool {
        matches!(self.state, State::Loading | State::Resident)
    }

    fn usage(&self) -> Usage {
        if self.ahead { Usage::Unused } else { Usage::Used }
    }

    fn first_use(&self) -> FirstUse {
        match (self.ahead, self.mark) {
            (false, false) => FirstUse::No,
            (true, false) => FirstUse::Ahead,
            (false, true) => FirstUse::Marked,
            (true, true) => FirstUse::AheadMarked,
        }
    }

    fn to(self, state: State) -> Model {
        Model { state, ..self }
    }

    fn apply(self, call: Call) -> Verdict {
        use Verdict::{Gives, Outside, Panics};
        match call {
            Call::BeginLoad(identity, kind) if self.state == State::Free => {
                Gives(Answer::Nothing, Self::loading(identity, kind))
            }
            Call::CompleteLoad | Call::FailLoad => self.end_load(call),
            Call::Invalidate if self.is_in_table() => self.invalidate(),
            Call::Unpin if self.pins > 0 => self.unpin(),
            Call::BeginLoad(..) | Call::Invalidate | Call::Unpin => Panics,
            Call::SetReferences(count) if count > REFERENCES_MAX => Panics,
            Call::Pin(identity, read) => self.pin(identity, read),
            Call::Evict => match (self.state, self.pins) {
                (State::Resident, 0) => Gives(Answer::Evicted(Some(self.usage())), self.to(State::Free)),
                _ => Gives(Answer::Evicted(None), self),
            },
            Call::TakeReferences | Call::SetReferences(_) | Call::Demand | Call::Mark
                if !self.is_in_table() =>
            {
                Outside
            }
            Call::TakeReferences => {
                Gives(Answer::References(self.references), Model { references: 0, ..self })
            }
            Call::SetReferences(references) => Gives(Answer::Nothing, Model { references, ..self }),
            Call::Demand => {
                let fresh = self.fresh || self.ahead;
                Gives(Answer::FirstUse(self.first_use()), Model { ahead: false, mark: false, fresh, ..self })
            }
            Call::Mark => Gives(Answer::Nothing, Model { mark: true, ..self }),
        }
    }

    fn loading(identity: usize, kind: LoadKind) -> Model {
        let ahead = kind == LoadKind::Ahead;
        Model { state: State::Loading, ahead, fresh: !ahead, identity, ..Self::NEW }
    }

    fn end_load(self, call: Call) -> Verdict {
        match (self.state, call) {
            (State::Loading, Call::CompleteLoad) => {
                Verdict::Gives(Answer::Ended(Ended::Current), self.to(State::Resident))
            }
            (State::Loading, _) => Verdict::Gives(Answer::Ended(Ended::Current), self.to(State::Free)),
            (State::Stale, _) => Verdict::Gives(Answer::Ended(Ended::Stale), self.to(State::Free)),
            _ => Verdict::Panics,
        }
    }

    fn invalidate(self) -> Verdict {
        let (became, to) = match (self.state, self.pins) {
            (State::Loading, _) => (Invalidated::Stale, State::Stale),
            (_, 0) => (Invalidated::Freed, State::Free),
            _ => (Invalidated::Doomed, State::Doomed),
        };
        Verdict::Gives(Answer::Invalidated(became, self.usage()), self.to(to))
    }

    fn unpin(self) -> Verdict {
        let left = Model { pins: self.pins - 1, ..self };
        match (left.state, left.pins) {
            (State::Doomed, 0) => Verdict::Gives(Answer::Unpinned(Unpinned::Freed), left.to(State::Free)),
            _ => Verdict::Gives(Answer::Unpinned(Unpinned::Kept), left),
        }
    }

    fn pin(self, identity: usize, (within_bytes, end_bytes): (u32, u32)) -> Verdict {
        if !self.is_in_table() || identity != self.identity {
            return Verdict::Gives(Answer::Pin(Pin::Absent), self);
        }
        if self.state == State::Loading {
            return Verdict::Gives(Answer::Pin(Pin::Pending(load_of(identity))), self);
        }
        if self.pins == PINS_MAX {
            return Verdict::Outside;
        }
        let goes_on = within_bytes != 0 && within_bytes == self.cursor_bytes;
        let counted = u8::from(!self.fresh && !goes_on);
        let pinned = Model {
            pins: self.pins + 1,
            references: (self.references + counted).min(REFERENCES_MAX),
            ahead: false,
            fresh: false,
            mark: false,
            cursor_bytes: end_bytes % 4096,
            ..self
        };
        Verdict::Gives(Answer::Pin(Pin::Pinned(self.first_use())), pinned)
    }

    /// As the documentation calls the state.
    fn name(&self) -> &'static str {
        match (self.state, self.pins) {
            (State::Free, _) => "Free",
            (State::Loading, _) => "Loading",
            (State::Resident, 0) => "Resident",
            (State::Resident, _) => "Resident, pinned",
            (State::Stale, _) => "Stale",
            (State::Doomed, _) => "Doomed",
        }
    }

    /// Compares all that the frame can be asked. Uses it up.
    fn compare(&self, frame: &Frame, path: &[Call]) {
        frame.check();
        let state = match self.state {
            State::Free => FrameState::Free,
            State::Loading => FrameState::Loading,
            State::Resident => FrameState::Resident,
            State::Stale => FrameState::Stale,
            State::Doomed => FrameState::Doomed,
        };
        assert_eq!((frame.state(), frame.pins()), (state, self.pins), "{path:?}");
        if self.state != State::Free {
            let identity = (frame.file(), frame.page());
            let is_loading = matches!(self.state, State::Loading | State::Stale);
            let load = is_loading.then(|| load_of(self.identity));
            assert_eq!((identity, frame.load()), (IDENTITIES[self.identity], load), "{path:?}");
            let is_settled = self.references == REFERENCES_MAX && !self.ahead && !self.fresh && !self.mark;
            let glance = frame.glance(identity.0, identity.1);
            assert_eq!(glance.is_some(), is_settled && self.state == State::Resident, "{path:?}");
            assert!(glance.is_none_or(|glance| frame.is_unchanged(glance)), "{path:?}");
        }
        if self.is_in_table() {
            assert_eq!(frame.usage(), self.usage(), "{path:?}");
            assert_eq!(frame.take_references(), self.references, "{path:?}");
            assert_eq!(frame.demand(), self.first_use(), "{path:?}");
        }
    }
}

/// Every reachable state with the shortest calls that lead there.
fn explore() -> HashMap<Model, Vec<Call>> {
    let calls = calls();
    let mut paths = HashMap::from([(Model::NEW, Vec::new())]);
    let mut queue = VecDeque::from([Model::NEW]);
    while let Some(model) = queue.pop_front() {
        let path = paths[&model].clone();
        for call in &calls {
            if let Verdict::Gives(_, next) = model.apply(*call)
                && !paths.contains_key(&next)
            {
                paths.insert(next, [&path[..], &[*call]].concat());
                queue.push_back(next);
            }
        }
    }
    paths
}

fn frame_after(path: &[Call]) -> Frame {
    let frame = Frame::new();
    path.iter().for_each(|call| _ = call.make(&frame));
    frame
}

/// Goal: every call in every state gives what the model gives, and leaves what the model leaves. Method: exhaustive, see
/// above.
#[test]
#[cfg_attr(miri, ignore)] // hundreds of thousands of calls
fn every_call_in_every_state_equals_the_model() {
    for (model, path) in explore() {
        model.compare(&frame_after(&path), &path);
        for call in calls() {
            if let Verdict::Gives(answer, next) = model.apply(call) {
                let frame = frame_after(&path);
                assert_eq!(call.make(&frame), answer, "{call:?} after {path:?}");
                next.compare(&frame, &[&path[..], &[call]].concat());
            }
        }
    }
}

/// Goal: a call that the state forbids panics and changes nothing. Method: every such call in every state that differs
/// in more than what a frame remembers of the past.
#[test]
#[cfg_attr(miri, ignore)] // thousands of panics
fn forbidden_calls_panic_and_change_nothing() {
    let is_plain = |model: &Model| model.references == 0 && model.cursor_bytes == 0;
    for (model, path) in explore().into_iter().filter(|(model, _)| is_plain(model)) {
        for call in calls() {
            if let Verdict::Panics = model.apply(call) {
                let frame = frame_after(&path);
                let result = catch_unwind(|| call.make(&frame));
                assert!(result.is_err(), "{call:?} after {path:?} gave {result:?}");
                model.compare(&frame, &path);
            }
        }
    }
}

/// Goal: the table in the module's documentation is complete and true. Method: the rows against the changes of state that
/// the exploration finds.
#[test]
fn the_documented_transitions_are_all_there_are() {
    let mut found = BTreeSet::new();
    for model in explore().into_keys() {
        for call in calls() {
            if let Verdict::Gives(_, next) = model.apply(call)
                && next.name() != model.name()
            {
                found.insert((model.name().into(), next.name().into(), call.name().into()));
            }
        }
    }
    assert_eq!(found, documented_transitions());
}

/// From, to and function of each row of the table in `frame.rs`.
fn documented_transitions() -> BTreeSet<(String, String, String)> {
    let rows = include_str!("../../src/frame.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    let mut transitions = BTreeSet::new();
    for row in rows {
        let columns: Vec<&str> = row.split(" | ").collect();
        let functions = columns[2].split("`Frame::").skip(1).filter_map(|rest| rest.split('`').next());
        transitions.extend(functions.map(|function| (columns[0].into(), columns[1].into(), function.into())));
    }
    transitions
}
