//! Forks: windows stay with the process that made them.
//!
//! Owns: what a child finds, and what it leaves to its parent.
//! Does not own: forks without windows (`reading`).

use std::sync::atomic::Ordering;

use headwater::{Caching, Error, IoMode};
use headwater_testkit::{run_forked, run_self_with_env};

use crate::contiguous::{roomy_rigs, window};
use crate::open;
use crate::rig::Scratch;

/// Goal: a child has neither bytes nor words, calls give an error, and dropping the view there writes nothing; the parent's
/// window is as it was. Method: in a process of its own, where no other test runs.
#[test]
fn a_child_has_no_windows() {
    const CHILD: &str = "HEADWATER_MAPPING_FORK";
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("forks::a_child_has_no_windows", CHILD, "1");
        return assert!(output.status.success(), "{output:?}");
    }
    for rig in roomy_rigs(1) {
        let scratch = Scratch::new(1, 10_000);
        let file = open(&rig, &scratch.path(), IoMode::Auto, Caching::On);
        let Some(view) = window(&file, 0, 10_000) else { return };
        view.as_cells().unwrap()[5].store(1, Ordering::Relaxed);
        let mut parents = Some((file, view));
        run_forked(|| {
            let (file, view) = parents.take().unwrap();
            assert!(view.as_cells().is_none() && view.atomic_u64(0).is_none());
            let calls = [
                view.load_u64(0).map(drop),
                view.store_u64(0, 1),
                view.sync(),
                file.map(view.range()).map(drop),
            ];
            assert!(calls.iter().all(|call| matches!(call, Err(Error::Forked(_)))), "{calls:?}");
            assert!(view.fetch_add_u64(0, 1).is_err() && file.map_contiguous(view.range()).is_err());
            drop((file, view));
        });
        let (file, view) = parents.unwrap();
        assert_eq!(std::fs::read(scratch.path()).unwrap()[5], scratch.pattern.byte(5));
        assert_eq!(view.load_u8(5).unwrap(), 1);
        drop(view);
        assert_eq!(std::fs::read(scratch.path()).unwrap()[5], 1);
        drop(file);
        rig.assert_idle();
    }
}
