//! Stand-in: the batch interface of `headwater::ring` until it is there, without a ring behind it. Measures nothing.

use std::io;

#[derive(Default)]
pub(super) enum DriverKind {
    #[default]
    Auto,
    Uring,
}

#[derive(Default)]
pub(super) enum Sharing {
    #[default]
    AnyThread,
    Local,
}

#[derive(Default)]
pub(super) struct DriverOptions {
    pub(super) kind: DriverKind,
    pub(super) queue_depth: u32,
    pub(super) sharing: Sharing,
    pub(super) _more: (),
}

#[derive(Clone)]
pub(super) struct Driver;

pub(super) struct Stats {
    pub(super) enters: u64,
}

pub(super) enum Request {
    Nop,
}

pub(super) struct Finished {
    pub(super) result: io::Result<usize>,
}

pub(super) struct Batch(usize);

impl Driver {
    pub(super) fn new(options: &DriverOptions) -> io::Result<Driver> {
        let DriverOptions { kind: DriverKind::Auto | DriverKind::Uring, queue_depth, .. } = options;
        let (Sharing::AnyThread | Sharing::Local) = options.sharing;
        assert!(*queue_depth > 0);
        Ok(Driver)
    }

    pub(super) fn batch(&self) -> Batch {
        Batch(0)
    }

    pub(super) fn stats(&self) -> Stats {
        Stats { enters: 0 }
    }
}

impl Batch {
    pub(super) fn push(&mut self, request: Request) -> Result<(), Request> {
        let Request::Nop = request;
        self.0 += 1;
        Ok(())
    }

    pub(super) fn finish(&mut self, mut each: impl FnMut(usize, Finished)) {
        (0..std::mem::take(&mut self.0)).for_each(|index| each(index, Finished { result: Ok(0) }));
    }
}
