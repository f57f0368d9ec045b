//! Filling: frame memory and plain bytes become the contents of live memory.
//!
//! Owns: extents of all sizes, moved and copied, pinned, just read into; what becomes of their frames.
//! Does not own: fills while writes are tracked (see `tracking`).

use std::fs::File;
use std::sync::Arc;

use headwater_io::{
    Access, Arena, DirectIo, Direction, Driver, DriverOptions, Extent, Extents, LiveMemory, OpenFile, Route,
    Transfer, Urgency,
};
use headwater_testkit::{Pattern, Rng, ScratchDir, make_cold, skip, watched, with_seed};
use io_uring::IoUring;
use smallvec::smallvec;

use crate::{HUGE_BYTES, PAGE_BYTES, bytes_of, live_memory};

/// Goal: extents of every size arrive whole at every place, aligned to huge pages or not, and so do runs of several; their
/// frames are the arena's again, and work. Method: three rounds through the same arena, each with other contents.
#[test]
fn extents_of_all_sizes() {
    with_seed("filling::extents_of_all_sizes", |seed| {
        let Some(memory) = live_memory(16 * HUGE_BYTES) else { return };
        let arena = Arena::new(9 << 20).unwrap();
        let mut at = 0;
        for round in 0..3 {
            let pattern = Pattern::new(seed + round);
            for length in [1, 2, 16, 64, 256, 512].map(|pages| pages * PAGE_BYTES) {
                fill_and_check(&memory, at, length, &pattern, extent(&arena, length, &pattern));
                at += length;
            }
            // Where a huge page may lie, and right behind.
            at = at.next_multiple_of(HUGE_BYTES);
            fill_and_check(&memory, at, HUGE_BYTES, &pattern, extent(&arena, HUGE_BYTES, &pattern));
            at += HUGE_BYTES + PAGE_BYTES;
            fill_and_check(&memory, at, HUGE_BYTES, &pattern, extent(&arena, HUGE_BYTES, &pattern));
            at += HUGE_BYTES;
        }
        assert_eq!(arena.stats().used_bytes, 0);
        assert_eq!(bytes_of(&memory, at, PAGE_BYTES), [0; PAGE_BYTES]);
    });
}

/// Goal: frames whose pages were moved away are zeros, and hold what is written to them next.
#[test]
fn moved_frames_are_frames() {
    let Some(memory) = live_memory(4 * HUGE_BYTES) else { return };
    // Of one chunk: whoever allocates gets the frames that were given back.
    let arena = Arena::new(HUGE_BYTES + (512 << 10)).unwrap();
    for round in 0..4 {
        let pattern = Pattern::new(round as u64);
        let at = round * HUGE_BYTES;
        fill_and_check(&memory, at, HUGE_BYTES, &pattern, extent(&arena, HUGE_BYTES, &pattern));
        let frames = arena.allocate(HUGE_BYTES, Urgency::Demand).unwrap();
        // Moved away where the system has huge pages, else still what was copied.
        assert!(frames.iter().all(|&byte| byte == 0) || pattern.mismatch(0, &frames).is_none());
    }
    for round in 0..4 {
        let bytes = bytes_of(&memory, round * HUGE_BYTES, HUGE_BYTES);
        assert_eq!(Pattern::new(round as u64).mismatch(0, &bytes), None, "round {round}");
    }
}

/// Goal: only what was asked for arrives: bytes behind the length stay what they were where something was, and are zeros
/// where nothing was, though the extent is longer.
#[test]
fn lengths_that_end_within_a_page() {
    let Some(memory) = live_memory(20_000) else { return };
    let (arena, pattern) = (Arena::new(9 << 20).unwrap(), Pattern::new(5));
    memory.write(12_288, &[9; 4096]).unwrap();
    let filled: Extents = smallvec![extent(&arena, 8192, &pattern), rest(&arena, 8192, 8192, &pattern)];
    memory.fill_moved(0, 13_000, filled).unwrap();
    let bytes = bytes_of(&memory, 0, 20_000);
    assert_eq!(pattern.mismatch(0, &bytes[..13_000]), None);
    assert_eq!(bytes[13_000..16_384], [9; 3384]);
    assert_eq!(bytes[16_384..], [0; 3616]);
    memory.fill_moved(16_384, 3616, smallvec![extent(&arena, 4096, &pattern)]).unwrap();
    assert_eq!(pattern.mismatch(0, &bytes_of(&memory, 16_384, 3616)), None);
    for (at, length) in [(0, 4097), (100, 100), (16_384, 3617), (20_480, 0)] {
        let refused = memory.fill_moved(at, length, smallvec![extent(&arena, 4096, &pattern)]).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{length} at {at}");
    }
    assert_eq!(arena.stats().used_bytes, 0);
}

/// Goal: filling what was filled, written or read before replaces it.
#[test]
fn fills_replace() {
    with_seed("filling::fills_replace", |seed| {
        let Some(memory) = live_memory(4 * HUGE_BYTES) else { return };
        let (arena, mut rng) = (Arena::new(9 << 20).unwrap(), Rng::new(seed));
        let mut model = vec![0; 4 * HUGE_BYTES];
        for round in 0..60 {
            let length = PAGE_BYTES << rng.below(10);
            let at = rng.below(((model.len() - length) / PAGE_BYTES) as u64) as usize * PAGE_BYTES;
            let at = if rng.chance(1, 2) { at / HUGE_BYTES * HUGE_BYTES } else { at };
            let pattern = Pattern::new(seed ^ round);
            match rng.below(4) {
                0 => memory.fill_copied(at, &extent(&arena, length, &pattern)).unwrap(),
                1 => memory.write(at, &extent(&arena, length, &pattern)).unwrap(),
                2 => {
                    assert_eq!(bytes_of(&memory, at, length), model[at..at + length]);
                    continue;
                }
                _ => memory.fill_moved(at, length, smallvec![extent(&arena, length, &pattern)]).unwrap(),
            }
            pattern.fill(0, &mut model[at..at + length]);
        }
        assert!(bytes_of(&memory, 0, model.len()) == model);
        assert_eq!(arena.stats().used_bytes, 0);
    });
}

/// Goal: extents that a device has just written to, also from a ring that keeps memory registered, arrive whole, and their
/// frames take the next read. Method: the file several times through an arena of two chunks, by direct I/O.
#[test]
fn extents_just_read_into() {
    let (directory, pattern) = (ScratchDir::on_target().unwrap(), Pattern::new(11));
    let path = directory.path().join("file");
    pattern.write_file(&path, 4 * HUGE_BYTES as u64).unwrap();
    make_cold(&File::open(&path).unwrap()).unwrap();
    let file = Arc::new(OpenFile::open(&path, DirectIo::Preferred, Access::Read).unwrap());
    let route = if file.direct().is_some() { Route::Direct } else { Route::Buffered };
    let (driver, arena) =
        (Driver::new(&DriverOptions::default()).unwrap(), Arena::new((4 << 20) + (512 << 10)).unwrap());
    watched("extents_just_read_into", || {
        for length_bytes in [PAGE_BYTES, 64 << 10, 1 << 20, HUGE_BYTES, HUGE_BYTES] {
            let Some(memory) = live_memory(4 * HUGE_BYTES) else { return };
            for at in (0..4 * HUGE_BYTES).step_by(length_bytes) {
                let extents = arena.allocate_run(length_bytes, Urgency::Demand).unwrap();
                let (direction, file, offset_bytes) = (Direction::Read, file.clone(), at as u64);
                let request = Transfer { direction, file, route, offset_bytes, length_bytes, extents };
                let finished = driver.submit(request, Urgency::Demand).unwrap().wait();
                assert_eq!(finished.result.unwrap(), length_bytes);
                memory.fill_moved(at, length_bytes, finished.extents).unwrap();
            }
            assert_eq!(pattern.mismatch(0, &bytes_of(&memory, 0, 4 * HUGE_BYTES)), None, "{length_bytes}");
        }
    });
    driver.attend();
    assert_eq!(arena.stats().used_bytes, 0);
}

/// Goal: a huge page that is pinned for I/O cannot move and is copied, so that the device and the frame still mean the same
/// memory. Method: the extent is a registered buffer of a ring, and is read into through it afterwards.
#[test]
fn extents_pinned_for_io() {
    let Some(memory) = live_memory(2 * HUGE_BYTES) else { return };
    let (arena, pattern) = (Arena::new(HUGE_BYTES + (512 << 10)).unwrap(), Pattern::new(3));
    let mut pinned = extent(&arena, HUGE_BYTES, &pattern);
    let frames = pinned.as_mut_ptr();
    let ring = match IoUring::new(4) {
        Ok(ring) => ring,
        Err(error) => return skip(format!("uring: {error}")),
    };
    let buffer = libc::iovec { iov_base: frames.cast(), iov_len: HUGE_BYTES };
    // SAFETY: the arena outlives the ring. Nothing is submitted.
    if let Err(error) = unsafe { ring.submitter().register_buffers(&[buffer]) } {
        return skip(format!("registered buffers: {error}"));
    }
    fill_and_check(&memory, 0, HUGE_BYTES, &pattern, pinned);
    let frames = arena.allocate(HUGE_BYTES, Urgency::Demand).unwrap();
    assert_eq!(pattern.mismatch(0, &frames), None, "copied, and so still there");
    drop(ring);
}

fn fill_and_check(memory: &LiveMemory, at: usize, length: usize, pattern: &Pattern, extent: Extent) {
    memory.fill_moved(at, length, smallvec![extent]).unwrap();
    assert_eq!(pattern.mismatch(0, &bytes_of(memory, at, length)), None, "{length} at {at}");
}

/// An extent with the beginning of the pattern.
pub(crate) fn extent(arena: &Arena, length: usize, pattern: &Pattern) -> Extent {
    rest(arena, length, 0, pattern)
}

fn rest(arena: &Arena, length: usize, offset: u64, pattern: &Pattern) -> Extent {
    let mut extent = arena.allocate(length, Urgency::Demand).unwrap();
    pattern.fill(offset, &mut extent);
    extent
}
