//! Profiles: which limits are in force for a file, and that nothing stored can do harm.
//!
//! Owns: profiles of the device that tests run on, of another, and none.
//! Does not own: what readahead does with limits.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use headwater::testing::profiles::{Device, Profile, StoredProfiles, TunedSetting};
use headwater::{Engine, EngineBuilder, OpenOptions, Profiles, ReadaheadLimits, ReadaheadPolicy};
use headwater_testkit::{Pattern, ScratchDir, skip, tmpfs};

const LENGTH: u64 = 3 << 20;

struct Case {
    scratch: ScratchDir,
    path: PathBuf,
    profiles: PathBuf,
}

impl Case {
    fn new() -> Case {
        let scratch = ScratchDir::on_target().unwrap();
        let path = scratch.path().join("file");
        Pattern::new(1).write_file(&path, LENGTH).unwrap();
        let profiles = scratch.path().join("profiles.json");
        Case { scratch, path, profiles }
    }

    fn store(&self, key: &str, size_bytes: u64, depth: u32) {
        let sequential = TunedSetting { size_bytes, depth, mib_per_s: 1.0 };
        let (device, headwater) = ("a disk".to_owned(), "0".to_owned());
        let profile =
            Profile { device, measured_unix_s: 0, headwater, sequential, random: None, write: None };
        let mut stored = StoredProfiles::default();
        stored.profiles.insert(key.to_owned(), profile);
        fs::write(&self.profiles, serde_json::to_vec(&stored).unwrap()).unwrap();
    }

    /// `None` where the system does not tell the device apart.
    fn key(&self) -> Option<String> {
        Device::of(File::open(&self.path).unwrap().as_fd()).unwrap().key
    }

    fn at(&self) -> Profiles {
        Profiles::At(self.profiles.clone())
    }
}

fn limits(engine: &Engine, path: &Path) -> ReadaheadLimits {
    let file = OpenOptions::new().engine(engine).open(path).unwrap();
    file.readahead_limits().expect("the file is stored")
}

/// The whole of a file, by a reader and by positional reads, is what was written.
fn assert_readable(engine: &Engine, path: &Path) {
    use std::io::Read;
    let file = OpenOptions::new().engine(engine).open(path).unwrap();
    let (mut read, mut at) = (Vec::new(), vec![0; LENGTH as usize]);
    file.reader().read_to_end(&mut read).unwrap();
    file.read_exact_at(&mut at, 0).unwrap();
    assert_eq!((Pattern::new(1).mismatch(0, &read), Pattern::new(1).mismatch(0, &at)), (None, None));
    assert_eq!(read.len() as u64, LENGTH);
}

/// Goal: a profile sets the limits of files on its device, as far as memory allows, and of no others.
#[test]
fn a_profile_counts_on_its_device() {
    let case = Case::new();
    let Some(key) = case.key() else { return skip("the device has no key") };
    case.store(&key, 256 << 10, 32);
    let engine = Engine::builder().memory(64 << 20).profiles(case.at()).build().unwrap();
    assert_eq!(engine.info().profiles, 1);
    let tuned = limits(&engine, &case.path);
    assert_eq!((tuned.size_bytes_max, tuned.distance_bytes_max), (256 << 10, 16 << 20));
    assert_readable(&engine, &case.path);
    let small = Engine::builder().memory(3 << 20).profiles(case.at()).build().unwrap();
    assert!(limits(&small, &case.path).distance_bytes_max <= 3 << 19);
    assert_readable(&small, &case.path);
    match tmpfs() {
        Ok(other) => {
            let path = other.path().join("file");
            fs::write(&path, "abc").unwrap();
            assert_eq!(limits(&engine, &path), ReadaheadLimits::default());
        }
        Err(reason) => skip(reason),
    }
}

/// With this much memory the limits are the default ones.
fn sized() -> EngineBuilder {
    Engine::builder().memory(64 << 20)
}

/// Goal: limits given go before a profile; profiles can be off; those of other devices change nothing.
#[test]
fn what_goes_before_a_profile() {
    let case = Case::new();
    let Some(key) = case.key() else { return skip("the device has no key") };
    case.store(&key, 64 << 10, 4);
    let given = ReadaheadLimits { size_bytes_max: 512 << 10, ..ReadaheadLimits::default() };
    let engine = sized().profiles(case.at()).readahead(given).build().unwrap();
    assert_eq!((limits(&engine, &case.path), engine.info().profiles), (given, 0));
    let engine = sized().profiles(Profiles::Off).build().unwrap();
    assert_eq!(limits(&engine, &case.path), ReadaheadLimits::default());
    case.store("ext4 uuid of another disk", 64 << 10, 4);
    let engine = sized().profiles(case.at()).build().unwrap();
    assert_eq!((limits(&engine, &case.path), engine.info().profiles), (ReadaheadLimits::default(), 1));
}

/// Goal: a fixed distance beyond the limits of a file is cut to them, with a profile and without; none at all is refused when the engine is
/// built.
#[test]
fn a_fixed_distance_fits_every_file() {
    let case = Case::new();
    case.store(&case.key().unwrap_or_default(), 64 << 10, 4);
    for profiles in [case.at(), Profiles::Off] {
        let fixed =
            |pages| sized().profiles(profiles.clone()).readahead_policy(ReadaheadPolicy::Fixed(pages));
        let engine = fixed(1 << 20).build().unwrap();
        assert!(limits(&engine, &case.path).distance_bytes_max < 4096 << 20);
        assert_readable(&engine, &case.path);
        assert_eq!(fixed(0).build().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// Goal: whatever lies where profiles should changes nothing, and no engine fails for it.
#[test]
fn garbage_changes_nothing() {
    let case = Case::new();
    let key = case.key().unwrap_or_default();
    let broken = [
        String::new(),
        "{".to_owned(),
        "{\"version\": 99, \"profiles\": {}}".to_owned(),
        format!("{{\"version\": 1, \"profiles\": {{{key:?}: 7}}}}"),
        "\u{0}".repeat(2 << 20),
    ];
    for text in broken {
        fs::write(&case.profiles, &text).unwrap();
        let engine = sized().profiles(case.at()).build().unwrap();
        assert_eq!((limits(&engine, &case.path), engine.info().profiles), (ReadaheadLimits::default(), 0));
    }
    for (size_bytes, depth) in [(0, 0), (4095, 1), (1 << 40, 4), (1 << 20, 0), (1 << 20, u32::MAX)] {
        case.store(&key, size_bytes, depth);
        let engine = sized().profiles(case.at()).build().unwrap();
        assert_eq!(limits(&engine, &case.path), ReadaheadLimits::default(), "{size_bytes} x {depth}");
        assert_readable(&engine, &case.path);
    }
    for path in [case.scratch.path().to_owned(), case.path.join("below a file"), "/nowhere".into()] {
        let engine = sized().profiles(Profiles::At(path)).build().unwrap();
        assert_eq!(limits(&engine, &case.path), ReadaheadLimits::default());
    }
}
