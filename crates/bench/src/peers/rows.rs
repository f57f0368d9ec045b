//! Rows: the kinds of work, and which arms do each.
//!
//! Owns: names, the state a file has to be in, the figures that a row is judged by.
//! Does not own: the work.

use clap::ValueEnum;

/// A kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Row {
    /// One big file from start to end; a byte of every page is looked at.
    ColdScan,
    /// Pages of 4 KiB at random places of it, one at a time.
    #[value(name = "cold-random-1")]
    ColdRandom1,
    /// The same, 20 at a time.
    #[value(name = "cold-random-20")]
    ColdRandom20,
    /// The same, 50 at a time.
    #[value(name = "cold-random-50")]
    ColdRandom50,
    /// Pages at random places of a file that is in memory, from one thread.
    WarmRandom,
    /// Small files, each opened, read and closed; their contents are cold.
    FilesCold,
    /// The same with the contents in the kernel's page cache.
    FilesWarm,
    /// A cold file from start to end, each 64 KiB through BLAKE3.
    Hash,
    /// The scan of Glommio's example of files, by one core.
    CoreScan,
    /// Its random reads, 50 in flight, by one core.
    CoreRandom,
    /// The same scan by all cores, each a part of the file.
    CoresScan,
    /// The same random reads by all cores, 50 in flight each.
    CoresRandom,
}

/// What has to be in the kernel's page cache before an arm runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Cold,
    Warm,
}

/// A library.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Peer {
    Headwater,
    /// `std::fs`, on threads where several reads are to be in flight.
    Std,
    /// A mapping of the file, as memmap2 makes it.
    Mmap,
    TokioFs,
    TokioUring,
    Compio,
    Monoio,
    Glommio,
    #[cfg(feature = "nuclei")]
    Nuclei,
    Foyer,
    QuickCache,
    Moka,
}

/// A library, and the way it is used where there is more than one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Arm {
    /// `std::fs::File`, one thread.
    Std,
    /// The same with a buffer of 128 KiB.
    #[value(name = "std-128k")]
    Std128k,
    /// The same with one of 1 MiB.
    #[value(name = "std-1m")]
    Std1m,
    /// `pread` with O_DIRECT on as many threads as reads are to be in flight.
    StdThreads,
    /// 4 threads.
    #[value(name = "std-4")]
    Std4,
    /// 16 threads.
    #[value(name = "std-16")]
    Std16,
    /// 32 threads.
    #[value(name = "std-32")]
    Std32,
    /// With `MADV_SEQUENTIAL` or `MADV_RANDOM`, whichever is right.
    Mmap,
    /// `tokio::fs`, or `spawn_blocking` where it has no positional reads.
    TokioFs,
    /// `tokio_uring::fs::File`, direct if cold.
    TokioUring,
    /// `compio::fs::File`, direct if cold.
    Compio,
    /// `monoio::fs::File`, direct if cold.
    Monoio,
    /// `glommio::io::DmaFile` and its streams.
    Glommio,
    /// The same as Glommio's example has it: pinned executors that spin for 10 ms before they sleep.
    GlommioCores,
    /// `glommio::io::BufferedFile`.
    GlommioBuffered,
    /// `nuclei::Handle`, direct if cold.
    #[cfg(feature = "nuclei")]
    Nuclei,
    /// `foyer_memory::Cache` of pages.
    Foyer,
    /// `quick_cache::sync::Cache` of pages.
    QuickCache,
    /// `moka::sync::Cache` of pages.
    Moka,
    /// `headwater::File` or `headwater::Reader`, blocking, one thread.
    Headwater,
    /// `headwater::AsyncReader` on a tokio current-thread runtime.
    HeadwaterAsync,
    /// `headwater::ByteStream` there, its bytes hashed in a thread of their own.
    HeadwaterStream,
    /// Futures in a `headwater::LocalEngine`.
    HeadwaterLocal,
    /// Work handed to `headwater::LocalEngines`.
    HeadwaterCores,
    /// Futures on a tokio current-thread runtime.
    HeadwaterTokio,
    /// `headwater::File::view`.
    HeadwaterView,
    /// `headwater::File::read_many`, 16 pages in a call.
    HeadwaterMany,
    /// Blocking calls on 4 threads.
    #[value(name = "headwater-4")]
    Headwater4,
    /// Blocking calls on 16 threads.
    #[value(name = "headwater-16")]
    Headwater16,
    /// `Engine::read`, one thread.
    HeadwaterRead,
    /// 4 threads.
    #[value(name = "headwater-read-4")]
    HeadwaterRead4,
    /// 32 threads.
    #[value(name = "headwater-read-32")]
    HeadwaterRead32,
    /// `IoMode::Buffered`: the kernel caches, headwater does not. One thread.
    HeadwaterBuffered,
    /// The same on 16 threads.
    #[value(name = "headwater-buffered-16")]
    HeadwaterBuffered16,
    /// Blocking calls on as many threads as reads are to be in flight.
    HeadwaterThreads,
    /// `headwater::ring` without an engine: `Call::open_at`, `Call::pread` and `Call::close`, 50 files in flight in one thread.
    HeadwaterRing,
}

impl Row {
    pub(super) fn all() -> impl Iterator<Item = Row> {
        Row::value_variants().iter().copied()
    }

    /// Whether each processor has a thread and an engine or executor of its own.
    pub(super) fn is_by_core(self) -> bool {
        matches!(self, Row::CoreScan | Row::CoreRandom | Row::CoresScan | Row::CoresRandom)
    }

    /// As on the command line.
    pub(super) fn id(self) -> &'static str {
        match self {
            Row::ColdScan => "cold-scan",
            Row::ColdRandom1 => "cold-random-1",
            Row::ColdRandom20 => "cold-random-20",
            Row::ColdRandom50 => "cold-random-50",
            Row::WarmRandom => "warm-random",
            Row::FilesCold => "files-cold",
            Row::FilesWarm => "files-warm",
            Row::Hash => "hash",
            Row::CoreScan => "core-scan",
            Row::CoreRandom => "core-random",
            Row::CoresScan => "cores-scan",
            Row::CoresRandom => "cores-random",
        }
    }

    /// The figures that arms are compared by.
    pub(super) fn judged(self) -> (&'static str, &'static str) {
        match self {
            Row::ColdScan | Row::Hash | Row::CoreScan | Row::CoresScan => ("mib_per_s", "cpu_s_per_gib"),
            Row::FilesCold | Row::FilesWarm => ("files_per_s", "cpu_us"),
            _ => ("iops", "cpu_us"),
        }
    }

    /// Reads in flight, of rows of random reads.
    pub(super) fn depth(self) -> u32 {
        match self {
            Row::ColdRandom20 => 20,
            Row::ColdRandom50 => 50,
            _ => 1,
        }
    }

    pub(super) fn is_of_small_files(self) -> bool {
        matches!(self, Row::FilesCold | Row::FilesWarm)
    }

    /// Whether both read the same.
    pub(super) fn reads_file_of(self, other: Row) -> bool {
        let of = |row: Row| match row {
            Row::WarmRandom => 0,
            Row::Hash => 1,
            Row::FilesCold | Row::FilesWarm => 2,
            _ => 3,
        };
        of(self) == of(other)
    }

    /// The kernel's ways, the runtimes that do everything, and what else does this work.
    pub(super) fn arms(self) -> Vec<Arm> {
        use Arm::*;
        let (before, after): (&[Arm], &[Arm]) = match self {
            Row::ColdScan => (&[Std128k, Std1m, Mmap], &[Glommio, Headwater]),
            Row::ColdRandom1 => (&[StdThreads, Mmap], &[Glommio, Headwater, HeadwaterLocal]),
            Row::ColdRandom20 | Row::ColdRandom50 => {
                (&[StdThreads, Mmap], &[Glommio, HeadwaterThreads, HeadwaterLocal, HeadwaterTokio])
            }
            Row::WarmRandom => (
                &[Std, Mmap],
                &[GlommioBuffered, Foyer, QuickCache, Moka, Headwater, HeadwaterView, HeadwaterMany],
            ),
            Row::FilesCold | Row::FilesWarm => (&[Std, Std4, Std16, Std32], FILES),
            Row::Hash => (
                &[Std128k, Std1m, Mmap],
                &[Glommio, Headwater, HeadwaterAsync, HeadwaterStream, HeadwaterLocal],
            ),
            Row::CoreScan | Row::CoreRandom | Row::CoresScan | Row::CoresRandom => {
                return vec![GlommioCores, HeadwaterCores];
            }
        };
        [before, RUNTIMES, after].concat()
    }
}

impl Arm {
    pub(super) fn peer(self) -> Peer {
        match self {
            Arm::Std | Arm::Std128k | Arm::Std1m | Arm::StdThreads => Peer::Std,
            Arm::Std4 | Arm::Std16 | Arm::Std32 => Peer::Std,
            Arm::Mmap => Peer::Mmap,
            Arm::TokioFs => Peer::TokioFs,
            Arm::TokioUring => Peer::TokioUring,
            Arm::Compio => Peer::Compio,
            Arm::Monoio => Peer::Monoio,
            Arm::Glommio | Arm::GlommioCores | Arm::GlommioBuffered => Peer::Glommio,
            #[cfg(feature = "nuclei")]
            Arm::Nuclei => Peer::Nuclei,
            Arm::Foyer => Peer::Foyer,
            Arm::QuickCache => Peer::QuickCache,
            Arm::Moka => Peer::Moka,
            _ => Peer::Headwater,
        }
    }

    /// Whether it is nothing without io_uring.
    pub(super) fn needs_uring(self) -> bool {
        self == Arm::HeadwaterRing
            || matches!(self.peer(), Peer::TokioUring | Peer::Compio | Peer::Monoio | Peer::Glommio)
    }

    /// Whether it reads around the kernel's page cache in this row, and fails where that is not possible.
    pub(super) fn is_direct(self, row: Row) -> bool {
        match row {
            Row::ColdScan | Row::Hash | Row::CoreScan | Row::CoresScan => self.needs_uring(),
            Row::CoreRandom | Row::CoresRandom => true,
            Row::ColdRandom1 | Row::ColdRandom20 | Row::ColdRandom50 => self.peer() != Peer::Mmap,
            Row::WarmRandom => false,
            Row::FilesCold | Row::FilesWarm => self == Arm::Glommio,
        }
    }

    /// Caches in user space are filled before, by reading a file that the kernel does not hold as well.
    pub(super) fn state(self, row: Row) -> State {
        if matches!(self, Arm::HeadwaterRead | Arm::HeadwaterRead4 | Arm::HeadwaterRead32) {
            return State::Cold;
        }
        match (row, self.peer()) {
            (Row::WarmRandom, Peer::Headwater | Peer::Foyer | Peer::QuickCache | Peer::Moka) => State::Cold,
            (Row::WarmRandom | Row::FilesWarm, _) => State::Warm,
            _ => State::Cold,
        }
    }
}

/// Those that have an arm for every row.
const RUNTIMES: &[Arm] = &[
    Arm::TokioFs,
    Arm::TokioUring,
    Arm::Compio,
    Arm::Monoio,
    #[cfg(feature = "nuclei")]
    Arm::Nuclei,
];

const FILES: &[Arm] = &[
    Arm::Glommio,
    Arm::GlommioBuffered,
    Arm::Headwater,
    Arm::Headwater4,
    Arm::Headwater16,
    Arm::HeadwaterRead,
    Arm::HeadwaterRead4,
    Arm::HeadwaterRead32,
    Arm::HeadwaterBuffered,
    Arm::HeadwaterBuffered16,
    Arm::HeadwaterLocal,
    Arm::HeadwaterTokio,
    Arm::HeadwaterRing,
];
