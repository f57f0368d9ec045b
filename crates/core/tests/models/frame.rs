//! Frame against a model of plain fields, over every sequence of calls: breadth first from a new frame until no call
//! leads anywhere new. A real frame is brought to each state by repeating the calls that lead there.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::panic::catch_unwind;

use headwater_core::PageIndex;
use headwater_core::frame::{
    Ended, FileId, FirstUse, Frame, FrameState, Held, Invalidated, LoadId, LoadKind, Offer, Pin,
    REFERENCES_MAX, Unpinned, Usage, WriteLatch,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Free,
    Loading,
    Resident,
    Stale,
    Doomed,
    Dirty,
    Writing,
    Offered,
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
    Install(usize),
    Invalidate,
    InvalidateClean,
    Pin(usize, (u32, u32)),
    Hold(usize),
    PinAgain,
    Unpin,
    BeginWrite(usize, (u32, u32)),
    EndWrite,
    Clean,
    Offer,
    BeginTouch,
    Withdraw,
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
    Invalidated(Option<(Invalidated, Usage)>),
    Pin(Pin),
    Held(Held),
    WriteLatch(WriteLatch),
    Unpinned(Unpinned),
    Evicted(Option<Usage>),
    Offer(Offer),
    Did(bool),
    References(u8),
    FirstUse(FirstUse),
}

fn calls() -> Vec<Call> {
    use Call::*;
    let kinds = [LoadKind::Demand, LoadKind::Ahead];
    let identities = 0..IDENTITIES.len();
    let begins = identities.clone().flat_map(|identity| kinds.map(|kind| BeginLoad(identity, kind)));
    let pins = identities.clone().flat_map(|identity| READS.map(|read| Pin(identity, read)));
    let writes = identities.clone().flat_map(|identity| READS.map(|part| BeginWrite(identity, part)));
    let whole = identities.flat_map(|identity| [Install(identity), Hold(identity)]);
    let sets = (0..=REFERENCES_MAX + 1).map(SetReferences);
    let loads = [CompleteLoad, FailLoad, Invalidate, InvalidateClean, PinAgain, Unpin, EndWrite, Clean];
    let others = [Offer, BeginTouch, Withdraw, Evict, TakeReferences, Demand, Mark];
    begins.chain(pins).chain(writes).chain(whole).chain(sets).chain(loads).chain(others).collect()
}

impl Call {
    /// As the documentation writes it.
    fn name(self) -> &'static str {
        match self {
            Call::BeginLoad(..) => "begin_load",
            Call::CompleteLoad => "complete_load",
            Call::FailLoad => "fail_load",
            Call::Install(_) => "install",
            Call::Invalidate => "invalidate",
            Call::InvalidateClean => "invalidate_clean",
            Call::Pin(..) => "pin",
            Call::Hold(_) => "hold",
            Call::PinAgain => "pin_again",
            Call::Unpin => "unpin",
            Call::BeginWrite(..) => "begin_write",
            Call::EndWrite => "end_write",
            Call::Clean => "clean",
            Call::Offer => "offer",
            Call::BeginTouch => "begin_touch",
            Call::Withdraw => "withdraw",
            Call::Evict => "evict",
            Call::TakeReferences => "take_references",
            Call::SetReferences(_) => "set_references",
            Call::Demand => "demand",
            Call::Mark => "mark",
        }
    }

    fn make(self, frame: &Frame) -> Answer {
        match self {
            Call::CompleteLoad => Answer::Ended(frame.complete_load()),
            Call::FailLoad => Answer::Ended(frame.fail_load()),
            Call::Invalidate => Answer::Invalidated(Some(frame.invalidate())),
            Call::InvalidateClean => Answer::Invalidated(frame.invalidate_clean()),
            Call::Pin(identity, (within, end)) => {
                let (file, page) = IDENTITIES[identity];
                Answer::Pin(frame.pin(file, page, within, end))
            }
            Call::Hold(identity) => Answer::Held(frame.hold(IDENTITIES[identity].0, IDENTITIES[identity].1)),
            Call::PinAgain => Answer::Did(frame.pin_again(PINS_MAX)),
            Call::Unpin => Answer::Unpinned(frame.unpin()),
            Call::BeginWrite(identity, (within, end)) => {
                let (file, page) = IDENTITIES[identity];
                Answer::WriteLatch(frame.begin_write(file, page, within, end))
            }
            Call::Offer => Answer::Offer(frame.offer()),
            Call::BeginTouch => Answer::Did(frame.begin_touch()),
            Call::Withdraw => Answer::Did(frame.withdraw()),
            Call::Evict => Answer::Evicted(frame.evict()),
            Call::TakeReferences => Answer::References(frame.take_references()),
            Call::Demand => Answer::FirstUse(frame.demand()),
            _ => {
                self.make_silent(frame);
                Answer::Nothing
            }
        }
    }

    /// Those that answer nothing.
    fn make_silent(self, frame: &Frame) {
        match self {
            Call::BeginLoad(identity, kind) => {
                let (file, page) = IDENTITIES[identity];
                frame.begin_load(file, page, load_of(identity), kind);
            }
            Call::Install(identity) => frame.install(IDENTITIES[identity].0, IDENTITIES[identity].1),
            Call::EndWrite => frame.end_write(),
            Call::Clean => frame.clean(),
            Call::SetReferences(count) => frame.set_references(count),
            Call::Mark => frame.mark(),
            _ => unreachable!("{self:?} answers something"),
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
        use State::{Dirty, Loading, Offered, Resident, Writing};
        matches!(self.state, Loading | Resident | Dirty | Writing | Offered)
    }

    /// Whether its bytes are the page's, and stay so while nobody writes.
    fn is_readable(&self) -> bool {
        matches!(self.state, State::Resident | State::Dirty)
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
            Call::Install(identity) if self.state == State::Free => {
                Gives(Answer::Nothing, Model { state: State::Dirty, identity, ..Self::NEW })
            }
            Call::CompleteLoad | Call::FailLoad => self.end_load(call),
            // Waits for the writer.
            Call::Invalidate if self.state == State::Writing => Outside,
            Call::InvalidateClean if matches!(self.state, State::Dirty | State::Writing) => {
                Gives(Answer::Invalidated(None), self)
            }
            Call::Invalidate | Call::InvalidateClean if self.is_in_table() => self.invalidate(),
            Call::PinAgain if self.pins > 0 => {
                let pins = (self.pins + 1).min(PINS_MAX);
                Gives(Answer::Did(pins > self.pins), Model { pins, ..self })
            }
            Call::Unpin if self.pins > 0 => self.unpin(),
            Call::EndWrite if self.state == State::Writing => Gives(Answer::Nothing, self.to(State::Dirty)),
            Call::BeginLoad(..) | Call::Install(_) | Call::EndWrite | Call::PinAgain | Call::Unpin => Panics,
            Call::Invalidate | Call::InvalidateClean => Panics,
            Call::Clean if self.state == State::Dirty && self.pins == 0 => Panics,
            Call::Clean if self.state == State::Dirty => Gives(Answer::Nothing, self.to(State::Resident)),
            Call::Clean => Gives(Answer::Nothing, self),
            Call::SetReferences(count) if count > REFERENCES_MAX => Panics,
            Call::Pin(identity, read) => self.pin(identity, read),
            Call::Hold(identity) => self.hold(identity),
            Call::BeginWrite(identity, part) => self.begin_write(identity, part),
            Call::Evict => match (self.state, self.pins) {
                (State::Resident | State::Offered, 0) => {
                    Gives(Answer::Evicted(Some(self.usage())), self.to(State::Free))
                }
                _ => Gives(Answer::Evicted(None), self),
            },
            Call::Offer | Call::BeginTouch | Call::Withdraw => self.offering(call),
            _ if !self.is_in_table() => Outside,
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
        Verdict::Gives(Answer::Invalidated(Some((became, self.usage()))), self.to(to))
    }

    fn unpin(self) -> Verdict {
        let left = Model { pins: self.pins - 1, ..self };
        match (left.state, left.pins) {
            (State::Doomed, 0) => Verdict::Gives(Answer::Unpinned(Unpinned::Freed), left.to(State::Free)),
            _ => Verdict::Gives(Answer::Unpinned(Unpinned::Kept), left),
        }
    }

    fn pin(self, identity: usize, read: (u32, u32)) -> Verdict {
        let answered = |pin| Verdict::Gives(Answer::Pin(pin), self);
        match self.state {
            _ if !self.is_in_table() || identity != self.identity => answered(Pin::Absent),
            State::Loading => answered(Pin::Pending(load_of(identity))),
            State::Writing => answered(Pin::Busy),
            State::Offered => answered(Pin::Offered),
            _ if self.pins == PINS_MAX => Verdict::Outside,
            _ => {
                let pinned = Model { pins: self.pins + 1, mark: false, ..self.used(read) };
                Verdict::Gives(Answer::Pin(Pin::Pinned(self.first_use())), pinned)
            }
        }
    }

    fn offering(self, call: Call) -> Verdict {
        let (answer, next) = match (call, self.state, self.pins) {
            (Call::Offer, State::Resident, 0) => (Answer::Offer(Offer::New), self.to(State::Offered)),
            (Call::Offer, State::Offered, 0) => (Answer::Offer(Offer::Again), self),
            (Call::Offer, State::Free, _) => (Answer::Offer(Offer::Free), self),
            (Call::Offer, ..) => (Answer::Offer(Offer::Refused), self),
            (Call::BeginTouch, State::Offered, PINS_MAX) => return Verdict::Outside,
            (Call::BeginTouch, State::Offered, pins) => (Answer::Did(true), Model { pins: pins + 1, ..self }),
            (Call::Withdraw, State::Offered, _) => (Answer::Did(true), self.to(State::Resident)),
            _ => (Answer::Did(false), self),
        };
        Verdict::Gives(answer, next)
    }

    fn hold(self, identity: usize) -> Verdict {
        match self.state {
            State::Dirty if identity == self.identity && self.pins == PINS_MAX => Verdict::Outside,
            State::Dirty if identity == self.identity => {
                Verdict::Gives(Answer::Held(Held::Yes), Model { pins: self.pins + 1, ..self })
            }
            _ => Verdict::Gives(Answer::Held(Held::No), self),
        }
    }

    fn begin_write(self, identity: usize, part: (u32, u32)) -> Verdict {
        let answered = |latch| Verdict::Gives(Answer::WriteLatch(latch), self);
        match self.state {
            _ if !self.is_in_table() || identity != self.identity => answered(WriteLatch::Absent),
            State::Loading => answered(WriteLatch::Pending(load_of(identity))),
            State::Writing => answered(WriteLatch::Busy),
            State::Offered => answered(WriteLatch::Offered),
            _ if self.pins > 0 => answered(WriteLatch::Pinned),
            _ => {
                let latch = WriteLatch::Latched(self.first_use());
                Verdict::Gives(Answer::WriteLatch(latch), self.used(part).to(State::Writing))
            }
        }
    }

    /// After a use that does not ask for the mark.
    fn used(self, (within_bytes, end_bytes): (u32, u32)) -> Model {
        let goes_on = within_bytes != 0 && within_bytes == self.cursor_bytes;
        let counted = u8::from(!self.fresh && !goes_on);
        let references = (self.references + counted).min(REFERENCES_MAX);
        Model { references, ahead: false, fresh: false, cursor_bytes: end_bytes % 4096, ..self }
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
            (State::Dirty, 0) => "Dirty",
            (State::Dirty, _) => "Dirty, pinned",
            (State::Writing, _) => "Writing",
            (State::Offered, 0) => "Offered",
            (State::Offered, _) => "Offered, pinned",
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
            State::Dirty => FrameState::Dirty,
            State::Writing => FrameState::Writing,
            State::Offered => FrameState::Offered,
        };
        assert_eq!((frame.state(), frame.pins()), (state, self.pins), "{path:?}");
        if self.state != State::Free {
            let identity = (frame.file(), frame.page());
            let is_loading = matches!(self.state, State::Loading | State::Stale);
            let load = is_loading.then(|| load_of(self.identity));
            assert_eq!((identity, frame.load()), (IDENTITIES[self.identity], load), "{path:?}");
            let is_settled = self.references == REFERENCES_MAX && !self.ahead && !self.fresh && !self.mark;
            let version = frame.begin_optimistic_read(identity.0, identity.1);
            assert_eq!(version.is_some(), is_settled && self.is_readable(), "{path:?}");
            assert!(version.is_none_or(|version| frame.is_unchanged(version)), "{path:?}");
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

/// Goal: F3: an optimistic read that a change of the bytes overlaps finds that out, also where the frame is in the same state again.
/// Method: in every state in which such a read begins, each way on which other bytes come, without any that the state forbids.
#[test]
#[cfg_attr(miri, ignore)] // thousands of states
fn every_change_of_the_bytes_has_a_version() {
    let mut tried = [0; 5];
    for (model, path) in explore().into_iter().filter(|(model, _)| model.is_readable() && model.pins == 0) {
        let (write, load) = (
            [Call::BeginWrite(model.identity, READS[1]), Call::EndWrite],
            [Call::BeginLoad(model.identity, LoadKind::Demand), Call::CompleteLoad],
        );
        let install = [Call::Install(model.identity)];
        let after = |leaves, enters: &[Call]| [&[leaves], enters].concat();
        let ways = [
            write.to_vec(),
            after(Call::Invalidate, &install),
            after(Call::Invalidate, &load),
            after(Call::Evict, &install),
            after(Call::Evict, &load),
        ];
        let is_clean = model.state == State::Resident;
        for (way, tried) in ways.iter().zip(&mut tried).filter(|(way, _)| is_clean || way[0] != Call::Evict) {
            let (frame, (file, page)) = (frame_after(&path), IDENTITIES[model.identity]);
            let Some(version) = frame.begin_optimistic_read(file, page) else { continue };
            way.iter().for_each(|call| _ = call.make(&frame));
            assert!(!frame.is_unchanged(version), "{way:?} after {path:?}");
            *tried += 1;
        }
    }
    assert!(tried.iter().all(|tried| *tried > 0), "{tried:?}");
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
