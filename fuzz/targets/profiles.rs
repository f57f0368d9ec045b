//! Profiles: whatever the file of device profiles holds, it is refused or leads to limits that an engine can work with.

#![no_main]
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::io::ErrorKind;

use headwater::testing::profiles::{Profile, StoredProfiles, TunedSetting};
use headwater::{DriverKind, Engine};
use headwater_fuzz::memory_file::MemoryFile;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static FILE: RefCell<MemoryFile> = RefCell::default();
}

fuzz_target!(|bytes: &[u8]| {
    FILE.with_borrow_mut(|file| match StoredProfiles::load(file.with(bytes)) {
        Ok(stored) => check(&stored, file),
        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}"),
    });
});

fn check(stored: &StoredProfiles, file: &mut MemoryFile) {
    assert_eq!(stored.version, StoredProfiles::VERSION);
    let again = serde_json::to_vec(stored).expect("numbers and texts can be written");
    let again = StoredProfiles::load(file.with(&again)).expect("what was written is read");
    assert!(stored.profiles.keys().eq(again.profiles.keys()));
    for profile in stored.profiles.values() {
        settings(profile).for_each(check_setting);
    }
}

fn settings(profile: &Profile) -> impl Iterator<Item = TunedSetting> {
    [Some(profile.sequential), profile.random, profile.write].into_iter().flatten()
}

fn check_setting(setting: TunedSetting) {
    for memory_bytes in [0, 1, 3 << 20, 64 << 20, 4 << 40, u64::MAX] {
        let Some(limits) = setting.readahead_limits(memory_bytes) else { continue };
        assert!(limits.size_bytes_max <= setting.size_bytes, "{limits:?}");
        if let memory_bytes @ 3145728..=67108864 = memory_bytes {
            assert!(limits.distance_bytes_max <= memory_bytes / 2, "{limits:?}");
            // Refuses limits that contradict each other.
            let engine = Engine::builder().memory(memory_bytes).driver(DriverKind::Threads).readahead(limits);
            engine.build().expect("limits from a profile are sound");
        }
    }
}
