//! Readahead case by case: the figures of a stream's life, worked out by hand.

use headwater_core::{Alignment, ByteRange, ReadaheadLimits, SequentialStream};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn default_stream(position_bytes: u64) -> SequentialStream {
    SequentialStream::new(position_bytes, ReadaheadLimits::default(), Alignment::PAGE)
}

fn drain(stream: &mut SequentialStream, end_bytes: u64) -> Vec<ByteRange> {
    core::iter::from_fn(|| stream.next_extent(end_bytes)).collect()
}

/// Runs a consumer that takes 64 KiB at a time and never waits, and returns the sizes of the extents.
fn steady_sizes_bytes(stream: &mut SequentialStream, total_bytes: u64) -> Vec<u64> {
    let mut sizes_bytes = Vec::new();
    while stream.position_bytes() < total_bytes {
        sizes_bytes.extend(drain(stream, u64::MAX).iter().map(ByteRange::len));
        assert!(stream.submitted_bytes() > stream.position_bytes(), "nothing is ahead");
        stream.on_consumed(64 * KIB);
    }
    sizes_bytes
}

/// Goal: a new stream reads little at once, and a reader that never waits gets the largest size all the same
/// without ever running dry. Method: consume 8 MiB in steps of 64 KiB.
#[test]
fn size_ramps_without_waits() {
    let mut stream = default_stream(0);
    assert_eq!(drain(&mut stream, u64::MAX).iter().map(ByteRange::len).sum::<u64>(), 256 * KIB);
    let sizes_bytes = steady_sizes_bytes(&mut stream, 8 * MIB);
    assert_eq!(sizes_bytes[..3], [256 * KIB, 512 * KIB, MIB]);
    assert!(sizes_bytes[3..].iter().all(|bytes| *bytes == MIB));
    assert_eq!(stream.distance_bytes(), 2 * MIB);
}

/// Goal: of what is announced, 2 MiB are asked for at once, in several extents, and no more than was announced. Method: long and
/// short announcements.
#[test]
fn what_is_announced_is_asked_for_at_once() {
    let sizes_kib = |announced_bytes, end_bytes| {
        let mut stream = default_stream(0);
        stream.expect(announced_bytes);
        drain(&mut stream, end_bytes).iter().map(|extent| extent.len() / KIB).collect::<Vec<_>>()
    };
    assert_eq!(sizes_kib(u64::MAX, u64::MAX), [256, 256, 512, 1024]);
    assert_eq!(sizes_kib(MIB, MIB), [128, 128, 256, 512]);
    assert_eq!(sizes_kib(0, u64::MAX), [128, 128]);
}

/// Goal: while the reader consumes, something is always in flight ahead of what it consumes. Method: two
/// extents are ahead whenever the distance was just refilled in the steady state.
#[test]
fn refills_one_by_one() {
    let mut stream = default_stream(0);
    steady_sizes_bytes(&mut stream, 8 * MIB);
    drain(&mut stream, u64::MAX);
    assert_eq!(stream.submitted_bytes() - stream.position_bytes(), 2 * MIB);
    stream.on_consumed(MIB - 1);
    assert_eq!(drain(&mut stream, u64::MAX), []);
    stream.on_consumed(1);
    assert_eq!(drain(&mut stream, u64::MAX), [ByteRange::at(10 * MIB, MIB)]);
}

/// Goal: the distance doubles with waits up to its limit, holds for the hold-off, then shrinks a size at a
/// time to two sizes. Method: wait until nothing changes, then consume without waiting.
#[test]
fn distance_grows_with_waits_and_decays_without() {
    let mut stream = default_stream(0);
    steady_sizes_bytes(&mut stream, 4 * MIB);
    (0..10).for_each(|_| stream.on_wait());
    assert_eq!(stream.distance_bytes(), 8 * MIB);
    steady_sizes_bytes(&mut stream, 36 * MIB - 64 * KIB);
    assert_eq!(stream.distance_bytes(), 8 * MIB, "within the hold-off");
    steady_sizes_bytes(&mut stream, 36 * MIB);
    assert_eq!(stream.distance_bytes(), 7 * MIB);
    steady_sizes_bytes(&mut stream, 64 * MIB - 64 * KIB);
    assert_eq!(stream.distance_bytes(), 7 * MIB, "each step has a hold-off of its own");
    steady_sizes_bytes(&mut stream, 64 * MIB);
    assert_eq!(stream.distance_bytes(), 6 * MIB);
    stream.on_wait();
    assert_eq!(stream.distance_bytes(), 8 * MIB);
    steady_sizes_bytes(&mut stream, 64 * MIB + 31 * MIB);
    assert_eq!(stream.distance_bytes(), 8 * MIB, "a wait starts the hold-off again");
    steady_sizes_bytes(&mut stream, 1 << 30);
    assert_eq!(stream.distance_bytes(), 2 * MIB);
}

/// Goal: a refused extent comes again as it was, not larger, though the ramp had gone on. Method: refuse the
/// second extent of a new stream twice.
#[test]
fn refused_extent_is_offered_again() {
    let mut stream = default_stream(0);
    assert_eq!(stream.next_extent(MIB), Some(ByteRange::new(0, 128 * KIB)));
    for _refusal in 0..2 {
        let extent = stream.next_extent(MIB).unwrap();
        assert_eq!((extent, stream.size_bytes()), (ByteRange::new(128 * KIB, 256 * KIB), 512 * KIB));
        stream.on_refused(extent);
        assert_eq!((stream.submitted_bytes(), stream.size_bytes()), (128 * KIB, 256 * KIB));
    }
}

/// Goal: unaligned starts read the page they fall into, and natural alignment follows. Method: by hand.
#[test]
fn first_extent_ends_at_a_multiple_of_its_size() {
    let mut stream = default_stream(128 * KIB - 5000);
    let extents = drain(&mut stream, u64::MAX);
    assert_eq!(extents[0], ByteRange::new(120 * KIB, 128 * KIB));
    assert_eq!(extents[1], ByteRange::new(128 * KIB, 256 * KIB));
}

/// Goal: a file that grows is followed, one that shrinks is not read beyond its end. Method: by hand; growth
/// within the last page needs `resume_at`, which reads that page again.
#[test]
fn length_changes_are_followed() {
    let mut stream = default_stream(0);
    assert_eq!(drain(&mut stream, 5000), [ByteRange::new(0, 8192)]);
    assert_eq!(drain(&mut stream, 4096), []);
    stream.on_consumed(5000);
    assert_eq!(drain(&mut stream, 6000), []);
    stream.resume_at(5000);
    assert_eq!(drain(&mut stream, 9000), [ByteRange::new(4096, 12288)]);
    stream.on_consumed(4000);
    assert_eq!(drain(&mut stream, 100), []);
}

/// Goal: an empty file and a position beyond the end are read by nobody. Method: by hand.
#[test]
fn nothing_is_read_beyond_the_end() {
    assert_eq!(drain(&mut default_stream(0), 0), []);
    assert_eq!(drain(&mut default_stream(4096), 4096), []);
    assert_eq!(drain(&mut default_stream(u64::MAX), 4096), []);
    let mut whole = SequentialStream::whole(ByteRange::at(7, 0), ReadaheadLimits::default(), Alignment::ONE);
    assert_eq!(drain(&mut whole, u64::MAX), []);
}

/// Goal: the last offsets do not wrap. Method: a stream at the end of the number line, and the largest
/// limits.
#[test]
fn last_offsets_do_not_wrap() {
    let mut stream = default_stream(u64::MAX - 10_000);
    let extents = drain(&mut stream, u64::MAX);
    assert_eq!(extents.last().unwrap().end, Alignment::PAGE.down(u64::MAX));
    let huge = 1 << 63;
    let limits = ReadaheadLimits {
        size_bytes_min: huge,
        size_bytes_max: huge,
        distance_bytes_max: u64::MAX,
        ..ReadaheadLimits::default()
    };
    let mut stream = SequentialStream::new(1, limits, Alignment::PAGE);
    assert_eq!(drain(&mut stream, u64::MAX).len(), 2);
    stream.on_wait();
    stream.on_consumed(stream.submitted_bytes() - 1);
    stream.check();
}

/// Goal: a seek forgets size and distance, so a jump does not read megabytes. Method: learn, then restart.
#[test]
fn restart_ramps_anew() {
    let mut stream = default_stream(0);
    steady_sizes_bytes(&mut stream, 8 * MIB);
    (0..10).for_each(|_| stream.on_wait());
    stream.restart(100 * MIB);
    assert_eq!((stream.size_bytes(), stream.distance_bytes()), (128 * KIB, 256 * KIB));
    let total_bytes: u64 = drain(&mut stream, u64::MAX).iter().map(ByteRange::len).sum();
    assert_eq!(total_bytes, 256 * KIB);
}

/// Goal: a steady stream is at its limits from the start, without a wait, after megabytes and after a restart; behind an error it asks
/// for single pages as others do.
#[test]
fn a_steady_stream_stays_at_its_limits() {
    let limits = ReadaheadLimits {
        size_bytes_max: 512 * KIB,
        distance_bytes_max: 2 * MIB,
        ..ReadaheadLimits::default()
    };
    let mut stream = SequentialStream::steady(0, limits, Alignment::PAGE);
    let ahead_bytes = |stream: &mut SequentialStream| {
        let extents = drain(stream, u64::MAX);
        assert!(extents.iter().all(|extent| extent.len() == 512 * KIB), "{extents:?}");
        extents.iter().map(ByteRange::len).sum::<u64>()
    };
    assert_eq!(ahead_bytes(&mut stream), 2 * MIB);
    for _ in 0..100 {
        stream.on_consumed(512 * KIB);
        assert_eq!(ahead_bytes(&mut stream), 512 * KIB);
        stream.check();
    }
    stream.restart(100 * MIB);
    assert_eq!(ahead_bytes(&mut stream), 2 * MIB);
    stream.on_failed(100 * MIB);
    assert_eq!(stream.next_extent(u64::MAX).map(|extent| extent.len()), Some(4096));
    stream.check();
}

/// Goal: R2 with an alignment above every limit. Method: 2 MiB alignment on the smallest limits.
#[test]
fn alignment_wins_over_limits() {
    let limits = ReadaheadLimits {
        size_bytes_min: 4096,
        size_bytes_max: 4096,
        distance_bytes_max: 4096,
        ..ReadaheadLimits::default()
    };
    let mut stream = SequentialStream::new(3 * MIB, limits, Alignment::new(2 * MIB).unwrap());
    assert_eq!(drain(&mut stream, 100 * MIB), [ByteRange::new(2 * MIB, 4 * MIB)]);
    stream.check();
}

/// Goal: only the last extent can be refused. Method: panic.
#[test]
#[should_panic(expected = "only the extent handed out last")]
fn refusing_an_older_extent_is_caught() {
    let mut stream = default_stream(0);
    let first = stream.next_extent(MIB).unwrap();
    stream.next_extent(MIB).unwrap();
    stream.on_refused(first);
}

/// Goal: an extent is refused once. Method: panic.
#[test]
#[should_panic(expected = "not taken back")]
fn refusing_twice_is_caught() {
    let mut stream = default_stream(0);
    let extent = stream.next_extent(MIB).unwrap();
    stream.on_refused(extent);
    stream.on_refused(extent);
}

/// Goal: what was not submitted cannot be consumed. Method: panic.
#[test]
#[should_panic(expected = "more is consumed")]
fn consuming_unsubmitted_bytes_is_caught() {
    let mut stream = default_stream(0);
    let extent = stream.next_extent(MIB).unwrap();
    stream.on_consumed(extent.len() + 1);
}

/// Goal: limits are checked where they enter. Method: panic.
#[test]
#[should_panic(expected = "not valid")]
fn invalid_limits_are_caught() {
    let limits = ReadaheadLimits { size_bytes_min: 0, ..ReadaheadLimits::default() };
    SequentialStream::new(0, limits, Alignment::PAGE);
}
