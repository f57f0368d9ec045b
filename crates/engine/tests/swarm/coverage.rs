//! Coverage: how often rare things happened, so that a swarm that no longer reaches them is noticed.
//!
//! Owns: what is counted.
//! Does not own: when.

use std::fmt;

/// Something that does not happen in every run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Reached {
    ReadWaited,
    MutationWaited,
    SyncWaited,
    ReadBesideMutation,
    ReadSawTwoVersions,
    ReadFailed,
    /// Several places by one call.
    ManyRead,
    /// Of a file without an open handle.
    WholeReadWhileClosed,
    WholeReadBesideMutation,
    HolePunched,
    /// Of pages, by a device that makes them.
    HoleMade,
    CopiedWithin,
    /// From another file.
    CopiedAcross,
    /// Of a file that changed meanwhile.
    CopiedBesideChange,
    /// By pages, on a file system where files can share extents.
    CopiedInStep,
    /// By a handle that cannot read.
    WrittenAlone,
    AppendedShared,
    /// By a writer that blocks.
    WrittenInOrderNow,
    WrittenVectored,
    ReadVectored,
    /// By calls that block, as the five that follow.
    ChangedNow,
    /// Of which the device had writes in flight.
    ChangedBesideWrites,
    AppendedNow,
    CopiedNow,
    SyncedNow,
    ViewedNow,
    Allocated,
    AllocatedBeyondEnd,
    AllocationRefused,
    MutationFailed,
    MutationDropped,
    DurableOnDisk,
    DroppedInPart,
    DroppedUndone,
    SyncFailed,
    SyncSawDisk,
    /// A clean file that others read.
    CleanSawDisk,
    CleanAfterSync,
    /// A list of ranges that is longer than the queue.
    AdviceWaited,
    WaitingAdviceUsed,
    ViewHeldOverWrite,
    ViewRefused,
    /// More pages than a thread may borrow outside of the quota.
    PeekedMany,
    PeekHeldOverChange,
    PeekRefused,
    PeekForgotten,
    Evicted,
    ListenerPanicked,
    ListenerRead,
    ListenerDropped,
    WakerPanicked,
    WakerRead,
    WakerDropped,
    FutureForgotten,
    ViewForgotten,
    WindowMade,
    WindowRefused,
    WindowStored,
    WindowBeyondEnd,
    WindowHeldOverChange,
    WindowEndedBesideFaults,
    WindowForgotten,
    WindowLoaded,
    WindowLoadedZeros,
    WrittenBackByAge,
    Forked,
    Exited,
    ExitFlushed,
    ExitLostUnsynced,
    ExitWhileEnding,
    ExitBesideTasks,
    ExitBesideWindows,
    ExitBesideThreads,
    ExitBesideFaults,
    FullDevice,
    Pressed,
    /// To a system that is short of it.
    MemoryReleased,
    MemoryOffered,
    OfferTaken,
    /// Others changed a file in front of bytes that were not written.
    Conflict,
    /// Another program has set a file's time.
    Touched,
    /// A device does not answer.
    ReadHung,
    WriteHung,
    /// While it does not, pages of another file are written for their age.
    WrittenBesideHung,
    ExitBesideHung,
}

impl Reached {
    const ALL: [Reached; 85] = [
        Reached::ReadWaited,
        Reached::MutationWaited,
        Reached::SyncWaited,
        Reached::ReadBesideMutation,
        Reached::ReadSawTwoVersions,
        Reached::ReadFailed,
        Reached::ManyRead,
        Reached::WholeReadWhileClosed,
        Reached::WholeReadBesideMutation,
        Reached::HolePunched,
        Reached::HoleMade,
        Reached::CopiedWithin,
        Reached::CopiedAcross,
        Reached::CopiedBesideChange,
        Reached::CopiedInStep,
        Reached::WrittenAlone,
        Reached::AppendedShared,
        Reached::WrittenInOrderNow,
        Reached::WrittenVectored,
        Reached::ReadVectored,
        Reached::ChangedNow,
        Reached::ChangedBesideWrites,
        Reached::AppendedNow,
        Reached::CopiedNow,
        Reached::SyncedNow,
        Reached::ViewedNow,
        Reached::Allocated,
        Reached::AllocatedBeyondEnd,
        Reached::AllocationRefused,
        Reached::MutationFailed,
        Reached::MutationDropped,
        Reached::DurableOnDisk,
        Reached::DroppedInPart,
        Reached::DroppedUndone,
        Reached::SyncFailed,
        Reached::SyncSawDisk,
        Reached::CleanSawDisk,
        Reached::CleanAfterSync,
        Reached::AdviceWaited,
        Reached::WaitingAdviceUsed,
        Reached::ViewHeldOverWrite,
        Reached::ViewRefused,
        Reached::PeekedMany,
        Reached::PeekHeldOverChange,
        Reached::PeekRefused,
        Reached::PeekForgotten,
        Reached::Evicted,
        Reached::ListenerPanicked,
        Reached::ListenerRead,
        Reached::ListenerDropped,
        Reached::WakerPanicked,
        Reached::WakerRead,
        Reached::WakerDropped,
        Reached::FutureForgotten,
        Reached::ViewForgotten,
        Reached::WindowMade,
        Reached::WindowRefused,
        Reached::WindowStored,
        Reached::WindowBeyondEnd,
        Reached::WindowHeldOverChange,
        Reached::WindowEndedBesideFaults,
        Reached::WindowForgotten,
        Reached::WindowLoaded,
        Reached::WindowLoadedZeros,
        Reached::WrittenBackByAge,
        Reached::Forked,
        Reached::Exited,
        Reached::ExitFlushed,
        Reached::ExitLostUnsynced,
        Reached::ExitWhileEnding,
        Reached::ExitBesideTasks,
        Reached::ExitBesideWindows,
        Reached::ExitBesideThreads,
        Reached::ExitBesideFaults,
        Reached::FullDevice,
        Reached::Pressed,
        Reached::MemoryReleased,
        Reached::MemoryOffered,
        Reached::OfferTaken,
        Reached::Conflict,
        Reached::Touched,
        Reached::ReadHung,
        Reached::WriteHung,
        Reached::WrittenBesideHung,
        Reached::ExitBesideHung,
    ];

    /// Whether windows with memory of their own are needed.
    pub(crate) fn needs_windows(self) -> bool {
        matches!(
            self,
            Reached::WindowMade
                | Reached::WindowStored
                | Reached::WindowEndedBesideFaults
                | Reached::WindowForgotten
        )
    }

    /// Whether a file system is needed on which files can share extents.
    pub(crate) fn needs_shared_extents(self) -> bool {
        self == Reached::CopiedInStep
    }

    /// Whether files are needed that this process can open, and their owner cannot.
    pub(crate) fn needs_capabilities(self) -> bool {
        self == Reached::WrittenAlone
    }

    /// Whether windows on demand are needed.
    pub(crate) fn needs_windows_on_demand(self) -> bool {
        matches!(self, Reached::WindowLoaded | Reached::WindowLoadedZeros)
    }
}

/// How often each happened.
#[derive(Clone, Debug)]
pub(crate) struct Coverage([u64; Reached::ALL.len()]);

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage([0; Reached::ALL.len()])
    }
}

impl Coverage {
    pub(crate) fn note(&mut self, reached: Reached) {
        self.0[reached as usize] += 1;
    }

    pub(crate) fn note_if(&mut self, happened: bool, reached: Reached) {
        self.0[reached as usize] += u64::from(happened);
    }

    pub(crate) fn add(&mut self, other: &Coverage) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    /// What never happened.
    pub(crate) fn missing(&self) -> Vec<Reached> {
        Reached::ALL.into_iter().filter(|&reached| self.0[reached as usize] == 0).collect()
    }

    /// The counts, for [`Coverage::parse`].
    pub(crate) fn line(&self) -> String {
        self.0.map(|count| count.to_string()).join(" ")
    }

    pub(crate) fn parse(line: &str) -> Coverage {
        let mut coverage = Coverage::default();
        let counts = line.split_whitespace().map(|count| count.parse::<u64>().expect("a count"));
        coverage.0.iter_mut().zip(counts).for_each(|(place, count)| *place = count);
        coverage
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Reached::ALL
            .into_iter()
            .try_for_each(|reached| writeln!(f, "{:>10} {reached:?}", self.0[reached as usize]))
    }
}
