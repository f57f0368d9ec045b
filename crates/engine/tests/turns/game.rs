//! Game: headwater and a stranger take turns on a file, and after each turn all of it is compared.
//!
//! ```text
//!   ours: writes, appends, truncates ─► sync, flush, close or nothing ─► the disk, as std reads it; all handles
//!   theirs: the same, renames over, recreations ─► pause or look ─► all handles ─► if ours was unwritten: sync, disk, handles
//! ```
//!
//! Owns: the file, handles on it and on those that had its name before, what was done.
//! Does not own: what is drawn (draw), what may be found (model), the interfaces (looks).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;

use headwater::Coherence;
use headwater_testkit::Rng;

use crate::api::{is_checked, sees_at_once};
use crate::combination::{Combination, For};
use crate::contents::bytes;
use crate::draw::{Draw, Handover, Ours, Patience, Pause, Theirs};
use crate::foreign::Stranger;
use crate::ideal::Ideal;
use crate::looks::INTERFACES;
use crate::model::{Model, Outcome};
use crate::program::{Opened, Program};

/// Everything that decides a game, up to the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) combination: Combination,
    pub(crate) seed: u64,
    pub(crate) patience: Patience,
    pub(crate) player: Player,
}

/// Which program plays beside the stranger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Player {
    Headwater,
    /// A program that does everything right.
    Ideal,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

pub(crate) struct Game<'a> {
    case: &'a Case,
    program: Program,
    stranger: &'a mut Stranger,
    path: PathBuf,
    draw: Draw,
    /// For choices that are no part of the plan, so that it stays the same if steps are left out.
    dice: Rng,
    /// Steps that are left out, and the number of the one that comes.
    left_out: &'a BTreeSet<u64>,
    step: u64,
    model: Model,
    handles: Vec<Handle>,
    /// What had the name before, for as long as we have it open.
    replaced: Vec<(Model, Vec<Handle>)>,
    pub(crate) counts: Counts,
    pub(crate) log: Vec<String>,
}

struct Handle {
    file: Opened,
    purpose: For,
}

impl<'a> Game<'a> {
    /// In a directory of its own.
    pub(crate) fn new(
        case: &'a Case,
        left_out: &'a BTreeSet<u64>,
        stranger: &'a mut Stranger,
        directory: &Path,
    ) -> Game<'a> {
        let path = directory.join("file");
        let mut draw = Draw::new(case.seed, case.patience);
        let contents = bytes(case.seed, draw.span().0);
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, &contents).unwrap();
        stranger.turn_to(&path);
        let memory_bytes = [3, 6, 32][draw.rng.below(3) as usize] << 20;
        let program = match case.player {
            Player::Headwater => Program::Headwater(case.combination.engine(memory_bytes), case.combination),
            Player::Ideal => Program::Ideal(Ideal::new()),
        };
        let (handles, replaced, log) = (Vec::new(), Vec::new(), Vec::new());
        let (model, counts) = (Model::new(contents), Counts::default());
        Game {
            case,
            program,
            stranger,
            path,
            draw,
            dice: Rng::new(case.seed),
            left_out,
            step: 0,
            model,
            handles,
            replaced,
            counts,
            log,
        }
    }

    pub(crate) fn play(&mut self, turns: u64) -> Outcome {
        self.open_some()?;
        for turn in 0..turns {
            self.step = turn * STEPS_MAX;
            if self.left_out.contains(&self.step) {
                continue;
            }
            self.draw.begin_turn(turn);
            match self.draw.rng.below(2) {
                0 => self.our_turn()?,
                _ => self.their_turn()?,
            }
        }
        self.settle()?;
        self.compare()
    }

    fn our_turn(&mut self) -> Outcome {
        self.open_some()?;
        for _ in 0..self.draw.count() {
            let (step, seed) = (self.draw.ours(), self.draw.rng.next_u64());
            if self.is_left_out() {
                continue;
            }
            self.note(format!("ours: {step:?}"));
            self.do_ours(step, seed).map_err(|error| format!("{step:?}: {error}"))?;
        }
        let handover = match self.draw.handover() {
            // `Private` promises that no other program writes while it is open, also while something is unwritten.
            _ if self.is_private() => Handover::SyncAndClose,
            drawn => drawn,
        };
        self.note(format!("ours: hands over by {handover:?}"));
        self.hand_over(handover).map_err(|error| format!("hand over by {handover:?}: {error}"))
    }

    fn do_ours(&mut self, step: Ours, seed: u64) -> Outcome {
        match step {
            Ours::Write { offset, length } => {
                self.writer().write_all_at(&bytes(seed, length), offset)?;
                self.model.write(offset, &bytes(seed, length));
            }
            Ours::Append { length } => {
                let (at, end) = (self.writer().append(&bytes(seed, length))?, self.model.len());
                if at != end {
                    return Err(format!("appended at {at}, the file ends at {end}"));
                }
                self.model.write(at, &bytes(seed, length));
            }
            Ours::SetLength(length) => {
                self.writer().set_len(length)?;
                self.model.set_len(length);
            }
            Ours::Read { offset, length } => {
                let mut found = vec![0xAA; length];
                let read = self.any().read_at(&mut found, offset)?;
                let there = self.model.len().saturating_sub(offset).min(length);
                if read != there {
                    return Err(format!("{read} bytes read, {there} are there"));
                }
                self.model.check_range("read in our own turn", offset, &found[..read])?;
            }
            Ours::Open => self.open([For::Reading, For::Writing][seed as usize % 2])?,
            Ours::Press => self.program.press(&self.path.with_file_name("large")),
        }
        Ok(())
    }

    fn hand_over(&mut self, handover: Handover) -> Outcome {
        match handover {
            Handover::SyncData => self.writer().sync_data()?,
            Handover::SyncAll => self.writer().sync_all()?,
            Handover::Flush => self.program.flush()?,
            Handover::SyncAndClose => {
                self.writer().sync_data()?;
                self.handles.clear();
            }
            Handover::Nothing => return self.compare(),
            Handover::Close => {
                self.handles.clear();
                return Ok(());
            }
        }
        self.check_disk()?;
        if self.is_private() { Ok(()) } else { self.compare() }
    }

    fn their_turn(&mut self) -> Outcome {
        if self.is_private() {
            self.handles.clear();
            self.replaced.clear();
        }
        let rest = self.draw.rest();
        if !rest.is_zero() {
            self.note(format!("theirs: rests {rest:?}"));
            thread::sleep(rest);
        }
        for _ in 0..self.draw.count() {
            let (step, seed) = (self.draw.theirs(), self.draw.rng.next_u64() >> 1);
            if self.is_left_out() {
                continue;
            }
            self.note(format!("theirs: {step:?}"));
            self.do_theirs(step, seed);
        }
        if self.draw.rng.chance(1, 4) {
            self.note("theirs: sync".to_owned());
            self.stranger.tell("sync");
        }
        if is_checked(self.case.combination.level) {
            self.take_reports();
        }
        if self.draw.rng.chance(1, 4) {
            self.look_by_path()?;
        }
        self.pause()?;
        if !self.model.is_dirty() {
            return self.compare();
        }
        let compared = if self.draw.rng.chance(1, 2) { self.compare() } else { Ok(()) };
        self.settle()?;
        compared.map_err(|error| format!("while ours is unwritten: {error}"))?;
        self.compare()
    }

    fn do_theirs(&mut self, step: Theirs, seed: u64) {
        match step {
            Theirs::Write { offset, length } => {
                self.stranger.tell(&format!("write {offset} {length} {seed}"));
                self.model.stranger_writes(offset, &bytes(seed, length));
            }
            Theirs::Append { length } => {
                let at = self.stranger.tell(&format!("append {length} {seed}"));
                self.model.stranger_writes(at as usize, &bytes(seed, length));
            }
            Theirs::SetLength(length) => {
                self.stranger.tell(&format!("length {length}"));
                self.model.stranger_sets_len(length);
            }
            Theirs::Replace { length } => {
                self.stranger.tell(&format!("replace {length} {seed}"));
                self.lose_name(bytes(seed, length));
            }
            Theirs::Recreate { length } => {
                self.stranger.tell(&format!("recreate {length} {seed}"));
                self.lose_name(bytes(seed, length));
            }
            Theirs::Hold => drop(self.stranger.tell("hold")),
            Theirs::Release => drop(self.stranger.tell("release")),
        }
    }

    /// The name is another file's now; ours, what of it is unwritten included, is the old one.
    fn lose_name(&mut self, contents: Vec<u8>) {
        let model = std::mem::replace(&mut self.model, Model::new(contents));
        let handles = std::mem::take(&mut self.handles);
        if !handles.is_empty() {
            self.replaced.push((model, handles));
        }
    }

    /// What was written to a file while it had bytes of ours unwritten is an error, once to each handle.
    fn take_reports(&mut self) {
        for handle in self.handles.iter().chain(self.replaced.iter().flat_map(|(_, handles)| handles)) {
            let _ = handle.file.sync_data();
        }
        let _ = self.program.flush();
    }

    fn pause(&mut self) -> Outcome {
        let level = self.case.combination.level;
        let pause = match self.draw.pause() {
            _ if self.is_private() => Pause::Reopen,
            Pause::Refresh if sees_at_once(level) => Pause::Nothing,
            Pause::Nothing if !sees_at_once(level) => Pause::Refresh,
            drawn => drawn,
        };
        self.note(format!("pause: {pause:?}"));
        match pause {
            Pause::Nothing => {}
            Pause::Refresh => {
                let replaced = self.replaced.iter().flat_map(|(_, handles)| handles);
                for handle in self.handles.iter().chain(replaced) {
                    handle.file.refresh()?;
                }
            }
            Pause::Reopen => {
                self.handles.clear();
                self.replaced.clear();
            }
            Pause::Wait(time) => thread::sleep(time),
        }
        self.open_some()
    }

    /// Everything of ours arrives.
    fn settle(&mut self) -> Outcome {
        self.open_some()?;
        self.note("ours: sync".to_owned());
        self.writer().sync_data().map_err(|error| format!("sync_data: {error}"))?;
        self.check_disk()
    }

    fn check_disk(&mut self) -> Outcome {
        let found = std::fs::read(&self.path).map_err(|error| error.to_string())?;
        self.counts.bytes += found.len() as u64;
        if self.dice.chance(1, 8) && self.stranger.tell("seal") != checksum(&found) {
            return Err("the stranger reads other bytes than this process".to_owned());
        }
        self.model.settle(found)
    }

    fn look_by_path(&mut self) -> Outcome {
        let bytes = self.program.read(&self.path)?;
        self.counts.bytes += bytes.len() as u64;
        self.model.check("Engine::read at once", &bytes)
    }

    /// All handles, all interfaces, in any order.
    fn compare(&mut self) -> Outcome {
        let open = |handles: &[Handle]| handles.iter().map(|handle| handle.file.clone()).collect::<Vec<_>>();
        let mut looks: Vec<(Opened, &'static str, &Model)> = Vec::new();
        looks.extend(open(&self.handles).into_iter().map(|file| (file, "a handle", &self.model)));
        for (model, handles) in &self.replaced {
            let files = open(handles);
            looks.extend(files.into_iter().map(|file| (file, "a handle of the file replaced", model)));
        }
        let mut looks: Vec<_> = looks
            .iter()
            .flat_map(|look| INTERFACES.map(|interface| (look, interface)))
            .filter(|((_, _, model), _)| model.len() < 50_000 || self.dice.chance(1, 4))
            .collect();
        shuffle(&mut looks, &mut self.dice);
        for ((file, what, model), interface) in looks {
            self.counts.bytes += file.look(interface, what, model)?;
        }
        let now = self.program.open(&self.path, For::Reading)?;
        let interface = INTERFACES[self.dice.below(6) as usize];
        self.counts.bytes += now.look(interface, "a handle opened now", &self.model)?;
        self.forget_some();
        self.look_by_path()
    }

    /// Files that were replaced are not looked at for ever.
    fn forget_some(&mut self) {
        while self.replaced.len() > 2 || (!self.replaced.is_empty() && self.dice.chance(1, 3)) {
            self.replaced.remove(0);
        }
        if self.handles.len() > 4 {
            self.handles.remove(self.dice.below(3) as usize);
        }
    }

    /// One for writing and one for reading, if there are none.
    fn open_some(&mut self) -> Outcome {
        for purpose in [For::Reading, For::Writing] {
            if self.handles.iter().all(|handle| handle.purpose != purpose) {
                self.open(purpose)?;
            }
        }
        Ok(())
    }

    fn open(&mut self, purpose: For) -> Outcome {
        let opened = self.program.open(&self.path, purpose);
        let file = opened.map_err(|error| format!("open: {error}"))?;
        self.handles.push(Handle { file, purpose });
        Ok(())
    }

    fn writer(&mut self) -> Opened {
        let first = self.dice.below(self.handles.len() as u64) as usize;
        let (before, after) = self.handles.split_at(first);
        let writer = after.iter().chain(before).find(|handle| handle.purpose == For::Writing);
        writer.expect("one is open").file.clone()
    }

    fn any(&mut self) -> Opened {
        self.handles[self.dice.below(self.handles.len() as u64) as usize].file.clone()
    }

    fn is_private(&self) -> bool {
        self.case.combination.level == Coherence::Private
    }

    fn is_left_out(&mut self) -> bool {
        self.step += 1;
        self.left_out.contains(&self.step)
    }

    fn note(&mut self, step: String) {
        self.counts.operations += 1;
        self.log.push(step);
    }
}

/// Numbers of a turn: its own, and those of its steps.
pub(crate) const STEPS_MAX: u64 = 8;

fn shuffle<T>(list: &mut [T], rng: &mut Rng) {
    for last in (1..list.len()).rev() {
        list.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

/// As the stranger makes it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
