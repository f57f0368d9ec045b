//! Forks: a child has none of the memory, is told so, and does its parent no harm.
//!
//! Owns: every operation in the child, memory of the child's own.
//! Does not own: how a fork is noticed (`fork` in `src`).

use std::io::ErrorKind;

use headwater_io::{Arena, Extents, LiveMemory};
use headwater_testkit::{Pattern, run_forked};
use smallvec::smallvec;

use crate::filling::extent;
use crate::{HUGE_BYTES, PAGE_BYTES, bytes_of, live_memory};

/// Goal: in the child every operation fails, the atomics are gone, dropping unmaps nothing, and new memory works; what the
/// parent has stays, and is tracked as before.
#[test]
fn a_child_has_none_of_it() {
    let Some(memory) = live_memory(2 * HUGE_BYTES) else { return };
    let (arena, pattern) = (Arena::new(9 << 20).unwrap(), Pattern::new(1));
    memory.fill_moved(0, HUGE_BYTES, smallvec![extent(&arena, HUGE_BYTES, &pattern)]).unwrap();
    memory.track().unwrap();
    memory.write(HUGE_BYTES, &[1]).unwrap();
    let mut kept = Some(memory);
    run_forked(|| {
        let memory = kept.take().unwrap();
        assert_refused(&memory);
        drop(memory);
        let own = LiveMemory::new(HUGE_BYTES).unwrap();
        own.track().unwrap();
        own.write(5000, &[1]).unwrap();
        let mut written = Vec::new();
        own.take_written(&mut written).unwrap();
        assert_eq!(written.len(), 1);
        assert_eq!(written[0], PAGE_BYTES..2 * PAGE_BYTES);
    });
    let memory = kept.expect("taken by the child alone");
    assert_eq!(pattern.mismatch(0, &bytes_of(&memory, 0, HUGE_BYTES)), None);
    let mut written = Vec::new();
    memory.take_written(&mut written).unwrap();
    assert_eq!(written.len(), 1);
    assert_eq!(written[0], HUGE_BYTES..HUGE_BYTES + PAGE_BYTES);
}

fn assert_refused(memory: &LiveMemory) {
    let results = [
        memory.read(0, &mut [0; 10]),
        memory.write(0, &[0; 10]),
        memory.zero(0..10),
        memory.fill_copied(0, &[0; 10]),
        memory.fill_moved(0, 0, Extents::new()),
        memory.track(),
        memory.take_written(&mut Vec::new()),
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert!(memory.atomic_u64(0).is_none());
    assert!(memory.as_cells().is_empty());
}
