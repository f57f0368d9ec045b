//! Forgotten: what an engine keeps of files that are closed and have no pages any more.

use headwater::{Advice, Caching, OpenOptions};
use headwater_testkit::{ScratchDir, trim_heap};

use crate::rig::{Rig, calm_device};

/// Goal: a closed file whose pages have left takes no memory. Method: compare the heap after 100 such files with the heap after 3000 more,
/// fewer than an engine remembers.
#[test]
fn closed_files_without_pages_take_no_memory() {
    let (rig, directory) = (Rig::sized(calm_device(1), 6 << 20, 16), ScratchDir::on_target().unwrap());
    let path = directory.path().join("file");
    let visit = || {
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, "x").unwrap();
        let open = || OpenOptions::new().engine(&rig.engine).caching(Caching::On).open(&path).unwrap();
        open().read_exact_at(&mut [0], 0).unwrap();
        // It was closed with its page, which leaves now.
        open().advise(Advice::DontNeed, ..).unwrap();
    };
    (0..100).for_each(|_| visit());
    let Some(before) = trim_heap() else { return };
    (0..3000).for_each(|_| visit());
    let after = trim_heap().expect("it was there before");
    assert!(after < before + (1 << 20), "{before} bytes, and after 3000 files {after}");
}
