//! Draws: what is done in a turn, where, and how the turn is handed over, from a seed.
//!
//! Owns: how often each is drawn. Small ranges near each other are the rule, so that pages and blocks are shared.
//! Does not own: carrying it out (game).

use std::time::Duration;

use headwater_testkit::{Rng, mix};

/// What headwater does to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ours {
    Write {
        offset: usize,
        length: usize,
    },
    Append {
        length: usize,
    },
    SetLength(usize),
    Read {
        offset: usize,
        length: usize,
    },
    /// Opens another handle.
    Open,
    /// Reads another file, which takes the memory.
    Press,
}

/// What the stranger does to it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Theirs {
    Write { offset: usize, length: usize },
    Append { length: usize },
    SetLength(usize),
    Replace { length: usize },
    Recreate { length: usize },
    Hold,
    Release,
}

/// What headwater does at the end of its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handover {
    SyncData,
    SyncAll,
    Flush,
    /// And closes all handles.
    SyncAndClose,
    /// Nothing: bytes stay unwritten.
    Nothing,
    /// Closes all handles, without a sync.
    Close,
}

/// What comes between the end of the stranger's turn and a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Nothing: for levels that see at once.
    Nothing,
    /// `File::refresh` of each handle.
    Refresh,
    /// All handles are closed, and others opened.
    Reopen,
    /// Time, and no look that is asked for.
    Wait(Duration),
}

/// Which pauses there are besides short ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    Short,
    /// Seconds, now and then: longer than bytes stay unwritten.
    Long,
}

/// Draws for one game.
pub(crate) struct Draw {
    seed: u64,
    /// Decides one turn.
    pub(crate) rng: Rng,
    patience: Patience,
    length_max: usize,
    hot: [usize; 4],
}

impl Draw {
    pub(crate) fn new(seed: u64, patience: Patience) -> Draw {
        let mut rng = Rng::new(seed);
        let length_max = [3000, 9000, 20_000, 20_000, 70_000, 500_000][rng.below(6) as usize];
        let hot = [0; 4].map(|_| rng.below(length_max as u64) as usize);
        Draw { seed, rng, patience, length_max, hot }
    }

    /// What follows depends on the seed and this number alone, so that turns can be left out.
    pub(crate) fn begin_turn(&mut self, number: u64) {
        self.rng = Rng::new(mix(self.seed ^ mix(number)));
    }

    pub(crate) fn ours(&mut self) -> Ours {
        let (offset, length) = self.span();
        match self.rng.below(40) {
            0..=21 => Ours::Write { offset, length },
            22..=27 => Ours::Append { length },
            28..=30 => Ours::SetLength(offset),
            31..=37 => Ours::Read { offset, length },
            38 => Ours::Open,
            _ => Ours::Press,
        }
    }

    pub(crate) fn theirs(&mut self) -> Theirs {
        let (offset, length) = self.span();
        match self.rng.below(40) {
            0..=21 => Theirs::Write { offset, length },
            22..=27 => Theirs::Append { length },
            28..=31 => Theirs::SetLength(offset),
            32..=33 => Theirs::Replace { length: offset },
            34..=35 => Theirs::Recreate { length: offset },
            36..=37 => Theirs::Hold,
            _ => Theirs::Release,
        }
    }

    pub(crate) fn handover(&mut self) -> Handover {
        match self.rng.below(10) {
            0..=2 => Handover::SyncData,
            3 => Handover::SyncAll,
            4 => Handover::Flush,
            5 => Handover::SyncAndClose,
            6..=8 => Handover::Nothing,
            _ => Handover::Close,
        }
    }

    pub(crate) fn pause(&mut self) -> Pause {
        match self.rng.below(400) {
            0..=199 => Pause::Refresh,
            200..=339 => Pause::Reopen,
            340..=379 => Pause::Wait(Duration::from_millis(11)),
            380..=395 => Pause::Wait(Duration::from_millis(25 + self.rng.below(35))),
            396..=398 => Pause::Wait(Duration::from_millis(100 + self.rng.below(60))),
            _ if self.patience == Patience::Long && self.rng.chance(1, 10) => {
                Pause::Wait(Duration::from_millis(2000 + self.rng.below(4000)))
            }
            _ => Pause::Nothing,
        }
    }

    /// How long the stranger lets our turn rest before its own.
    pub(crate) fn rest(&mut self) -> Duration {
        Duration::from_millis(if self.rng.chance(1, 20) { 25 + self.rng.below(35) } else { 0 })
    }

    /// How many steps a turn has.
    pub(crate) fn count(&mut self) -> u64 {
        1 + self.rng.below(5)
    }

    /// A range that the file may have, or get.
    pub(crate) fn span(&mut self) -> (usize, usize) {
        let length = match self.rng.below(10) {
            0..=2 => 1 + self.rng.below(8),
            3..=6 => 1 + self.rng.below(700),
            7..=8 => 1 + self.rng.below(6000),
            _ => 1 + self.rng.below(25_000),
        };
        let near = self.hot[self.rng.below(4) as usize];
        let mut offset = match self.rng.below(6) {
            0 => self.rng.below(self.length_max as u64) as usize,
            1 => near.next_multiple_of(4096),
            2 => near.next_multiple_of(512).saturating_sub(self.rng.below(10) as usize),
            _ => near + self.rng.below(5000) as usize,
        };
        if self.rng.chance(1, 8) {
            offset = offset.saturating_sub(length as usize);
        }
        (offset.min(self.length_max), length as usize)
    }
}
