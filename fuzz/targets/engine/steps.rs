//! Steps: what is done to a file, as plain data.

use arbitrary::Arbitrary;
use headwater_fuzz::bounds::Number;
use headwater_fuzz::guarded::Side;

#[derive(Arbitrary, Debug)]
pub(crate) struct Case {
    pub(crate) driver: DriverChoice,
    pub(crate) place: Place,
    pub(crate) handles: [Handle; 2],
    pub(crate) steps: Vec<Step>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum DriverChoice {
    Sim,
    Threads,
}

/// What the file lies on: memory has all offsets and no direct I/O.
#[derive(Arbitrary, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Memory,
    Disk,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Handle {
    pub(crate) caching: u8,
    pub(crate) buffered: bool,
    pub(crate) readahead: u8,
    pub(crate) looks_always: bool,
}

#[derive(Arbitrary, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Blocking,
    Async,
}

/// Where a cursor goes.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Target {
    Start(Number),
    Current(Number),
    End(Number),
}

/// The first number is that of a handle, a cursor or a window.
#[derive(Arbitrary, Debug)]
pub(crate) enum Step {
    Read(u8, Number, u16, Side),
    ReadExact(u8, Number, u16, Side),
    ReadAsync(u8, Number, Number),
    ReadExactAsync(u8, Number, u16),
    ReadMany(u8, [(Number, u16); 3]),
    Write(u8, Number, u16, Way),
    Append(u8, u16, Way),
    SetLen(u8, Number, Way),
    PunchHole(u8, Number, Number, Way),
    /// From the first handle to the second, both of the same file.
    CopyRange([u8; 2], [Number; 2], Number, Way),
    Sync(u8, Way),
    Flush(u8, Way),
    Refresh(u8),
    View(u8, Number, Number, Way),
    ForgetViews,
    Map(u8, Number, Number),
    MapContiguous(u8, Number, u16),
    MapOnDemand(u8, Number, u16, Number),
    ForgetWindows,
    ReadWindow(u8, Number, u16, Side),
    WriteWindow(u8, Number, u16, Side),
    Add(u8, Number, u64),
    Exchange(u8, Number, u64),
    Advise(u8, u8, Number, Number),
    Residency(u8, Number, Number),
    Reader(u8, Way),
    Seek(u8, Target),
    ReadOn(u8, u16, Side),
    Stream(u8),
    SeekWriter(u8, Target),
    WriteOn(u8, u16),
}
