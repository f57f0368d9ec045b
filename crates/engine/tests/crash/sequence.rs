//! Sequence: random steps on one file through an engine on a recorded device.
//!
//! Owns: which steps, and the way from the device's log to the kit.
//! Does not own: what is legal (history).

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use headwater::testing::{DeviceEvent, SimControl, SimOptions};
use headwater::{Caching, DriverKind, Engine, File, IoMode, OpenOptions};
use headwater_testkit::{CrashEvent, CrashEventKind, CrashImages, Pattern, Rng, block_on};

use crate::history::History;

/// Decides all that follows.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    steps: u64,
    queue_depth: u32,
    base_bytes: u64,
    mode: IoMode,
}

struct Actor {
    engine: Engine,
    control: SimControl,
    file: Option<File>,
    history: History,
    /// What was read, and a copy of it.
    kept: Vec<(Bytes, Vec<u8>)>,
    rng: Rng,
    writes: u64,
}

impl Case {
    pub(crate) fn new(seed: u64) -> Case {
        let mut rng = Rng::new(seed);
        let base_bytes = [0, 1, 4096, 8192, rng.below(5000), rng.below(60_000)][rng.below(6) as usize];
        let mode = [IoMode::Auto, IoMode::Auto, IoMode::Buffered][rng.below(3) as usize];
        let (steps, queue_depth) = (5 + rng.below(25), 1 + rng.below(16) as u32);
        Case { seed, steps, queue_depth, base_bytes, mode }
    }

    pub(crate) fn run(&self, path: &Path) -> (History, CrashImages) {
        let mut base = vec![0; self.base_bytes as usize];
        Pattern::new(self.seed).fill(0, &mut base);
        fs::write(path, &base).unwrap();
        let options = SimOptions::hostile(self.seed);
        let control = options.control.clone();
        let engine = Engine::builder().memory(3 << 20).queue_depth(self.queue_depth);
        let engine = engine.driver(DriverKind::Sim(options)).build().unwrap();
        control.record();
        let mut actor = Actor {
            engine,
            control: control.clone(),
            file: None,
            history: History::new(base.clone()),
            kept: Vec::new(),
            rng: Rng::new(self.seed ^ 1),
            writes: 0,
        };
        (0..self.steps).for_each(|_| actor.step(path, self.mode));
        if actor.rng.chance(1, 4) {
            actor.fail_sync(path, self.mode);
        }
        let history = std::mem::take(&mut actor.history);
        // The engine goes, and writes what is left.
        drop(actor);
        let images = CrashImages::new(base, crash_events(control.take_log()));
        if let Some(&last) = images.crash_points().last() {
            let disk = fs::read(path).unwrap();
            assert!(images.most(last) == disk, "the log is not what was done: {self:#x?}\n{history}");
            assert!(history.bytes == disk, "the disk is not what was written: {self:#x?}\n{history}");
        }
        (history, images)
    }
}

impl Actor {
    fn step(&mut self, path: &Path, mode: IoMode) {
        let file = self.file(path, mode);
        match self.rng.below(20) {
            0..=6 => self.write(&file),
            7..=9 => self.append(&file),
            10..=11 => self.set_len(&file),
            12..=13 => self.sync(&file),
            14 => self.sync_beside(&file),
            15 if self.rng.chance(1, 2) => self.append_durable(path, mode),
            15 => self.engine.flush().unwrap(),
            16 => self.read(&file),
            17 => self.keep(&file),
            18 => self.kept.drain(..).for_each(|(bytes, copy)| assert!(bytes == copy, "invariant 1")),
            _ => self.file = None,
        }
    }

    fn file(&mut self, path: &Path, mode: IoMode) -> File {
        let open = || {
            let mut options = OpenOptions::new();
            options.engine(&self.engine).io(mode).caching(Caching::On).write(true).open(path).unwrap()
        };
        self.file.get_or_insert_with(open).clone()
    }

    fn length(&self) -> u64 {
        self.history.bytes.len() as u64
    }

    fn contents(&mut self, length: u64) -> Vec<u8> {
        self.writes += 1;
        let mut bytes = vec![0; length as usize];
        Pattern::new(self.writes).fill(0, &mut bytes);
        bytes
    }

    /// Small, about a page, or as much as is written at once; rarely a MiB, whose writing begins by itself.
    fn some_length(&mut self) -> u64 {
        match self.rng.below(40) {
            0 => (1 << 20) + self.rng.below(5000),
            1..=15 => 1 + self.rng.below(700),
            16..=25 => 4096 * (1 + self.rng.below(3)),
            _ => 1 + self.rng.below(20_000),
        }
    }

    fn write(&mut self, file: &File) {
        let length = self.some_length();
        let near = self.length() + 10_000;
        let offset_bytes = match self.rng.below(6) {
            0 => 0,
            1 => self.rng.below(near) / 4096 * 4096,
            2 => self.length().saturating_sub(self.rng.below(600)),
            _ => self.rng.below(near),
        };
        let bytes = self.contents(length);
        let began = self.control.next_moment();
        file.write_all_at(&bytes, offset_bytes).unwrap();
        self.history.write(began, offset_bytes, &bytes);
    }

    fn append(&mut self, file: &File) {
        let length = self.some_length();
        let bytes = self.contents(length);
        let began = self.control.next_moment();
        assert_eq!(file.append(&bytes).unwrap(), self.length());
        self.history.write(began, self.length(), &bytes);
    }

    /// Through a handle open for appending, or the one at hand.
    fn append_durable(&mut self, path: &Path, mode: IoMode) {
        let mut options = OpenOptions::new();
        options.engine(&self.engine).io(mode).caching(Caching::On).append(true);
        let file = if self.rng.chance(2, 3) { options.open(path).unwrap() } else { self.file(path, mode) };
        let length = self.some_length();
        let bytes = self.contents(length);
        let began = self.control.next_moment();
        assert_eq!(file.append_durable(&bytes).unwrap(), self.length());
        self.history.write(began, self.length(), &bytes);
        self.history.acknowledge(self.history.call_sync(), self.control.next_moment());
    }

    fn set_len(&mut self, file: &File) {
        let length_bytes = match self.rng.below(4) {
            0 => 0,
            1 => self.length() + self.rng.below(10_000),
            2 => self.length().saturating_sub(self.rng.below(3000)),
            _ => self.rng.below(self.length() + 1),
        };
        let began = self.control.next_moment();
        file.set_len(length_bytes).unwrap();
        self.history.set_len(began, length_bytes);
    }

    fn sync(&mut self, file: &File) {
        let called = self.history.call_sync();
        if self.rng.chance(1, 2) { file.sync_data() } else { file.sync_all() }.unwrap();
        self.history.acknowledge(called, self.control.next_moment());
    }

    /// Changes the file while a task syncs it, which covers what was done before it was called.
    fn sync_beside(&mut self, file: &File) {
        let called = self.history.call_sync();
        let mut syncing = pin!(file.sync_data_async());
        let mut poll = || syncing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut polled = Poll::Pending;
        for _ in 0..1 + self.rng.below(4) {
            polled = poll();
            if polled.is_ready() {
                break;
            }
            match self.rng.below(5) {
                0..=1 => self.write(file),
                2 => self.append(file),
                3 => self.set_len(file),
                _ => self.read(file),
            }
        }
        match polled {
            Poll::Ready(synced) => synced.unwrap(),
            Poll::Pending => block_on(syncing).unwrap(),
        }
        self.history.acknowledge(called, self.control.next_moment());
    }

    fn read(&mut self, file: &File) {
        let mut found = vec![0; self.history.bytes.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == self.history.bytes, "invariant 8");
    }

    /// What is pinned is replaced by those who write to it: a page is lent as it is, if much of it is asked for.
    fn keep(&mut self, file: &File) {
        let offset_bytes = self.rng.below(self.length() + 1) / 4096 * 4096;
        let length = (self.length() - offset_bytes).min(4096);
        let bytes = block_on(file.read_at_async(offset_bytes, length as usize)).unwrap();
        assert!(bytes == self.history.bytes[offset_bytes as usize..][..length as usize], "invariant 8");
        let copy = bytes.to_vec();
        self.kept.push((bytes, copy));
    }

    /// Acknowledges nothing.
    fn fail_sync(&mut self, path: &Path, mode: IoMode) {
        let file = self.file(path, mode);
        self.write(&file);
        self.control.fail_syncs(EIO, 1);
        file.sync_data().unwrap_err();
        self.write(&file);
        file.sync_data().unwrap_err();
    }
}

/// The log in the words of the kit. There is one file.
pub(crate) fn crash_events(log: Vec<DeviceEvent>) -> Vec<CrashEvent> {
    let event = |event: DeviceEvent| {
        let (began, ended) = (event.began(), event.ended());
        let kind = match event {
            DeviceEvent::Write { offset_bytes, bytes, .. } => CrashEventKind::Write { offset_bytes, bytes },
            DeviceEvent::SetLen { length_bytes, .. } => CrashEventKind::SetLen { length_bytes },
            DeviceEvent::Allocate { range, .. } => CrashEventKind::Allocate { end_bytes: range.end },
            DeviceEvent::Sync { succeeded: true, .. } => CrashEventKind::Sync,
            DeviceEvent::Sync { succeeded: false, .. } => return None,
        };
        Some(CrashEvent { kind, began, ended })
    };
    log.into_iter().filter_map(event).collect()
}

const EIO: i32 = 5;
