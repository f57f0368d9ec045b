//! Profiles: measurements of devices by `headwater tune`, stored in a file, and the readahead limits that follow.
//!
//! ```text
//!   Engine::build ─► profiles.json, once ─┬─ absent, off, broken ─► none: default limits
//!                                         └─ some ─► open: device seen before? ─► its limits
//!                                                                └► no: key of the device ─► profile ─► limits, kept
//! ```
//!
//! Profiles never cause a failure: a file that cannot be read or parsed is reported once, as a warning through `tracing`, and the
//! engine works without it.
//!
//! Locks: `by_device`, under which the key of a device is looked up once; nothing else is locked under it.
//
// Owns: the format and the place of the file, the limits that a profile leads to.
// Does not own: measuring and writing (`headwater tune`), the key of a device (device).

mod device;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use headwater_core::limits::Limits;
use headwater_core::readahead::ReadaheadLimits;
use headwater_core::units::PAGE_SIZE_BYTES;
use headwater_io::{OpenFile, device_number, lock};
use serde::{Deserialize, Serialize};

pub use device::{Device, Nature};

use crate::base::events;

/// Where an engine finds profiles; see [`EngineBuilder::profiles`](crate::EngineBuilder::profiles).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Profiles {
    /// From the file that `HEADWATER_PROFILES` names, from nowhere if that is `off`; when it is not set, from
    /// `headwater/profiles.json` in `$XDG_CONFIG_HOME` or `~/.config`. An engine on a simulated device uses none.
    #[default]
    Default,
    /// From nowhere.
    Off,
    /// From this file.
    At(PathBuf),
}

impl Profiles {
    /// The file, whether it exists or not; `None` when profiles are off or there is no home directory.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Profiles::Default => default_path(|name| std::env::var_os(name).map(PathBuf::from)),
            Profiles::Off => None,
            Profiles::At(path) => Some(path.clone()),
        }
    }
}

/// The contents of the file: a profile for each device.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct StoredProfiles {
    /// The version of the format: [`StoredProfiles::VERSION`].
    pub version: u32,
    /// By [`Device::key`].
    pub profiles: BTreeMap<String, Profile>,
}

/// Measurements of a device.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Profile {
    /// The device's name, for people.
    pub device: String,
    /// When it was measured, in seconds since 1970.
    pub measured_unix_s: u64,
    /// The version of headwater that measured it.
    pub headwater: String,
    /// The cheapest setting that reads from start to end at the device's rate.
    pub sequential: TunedSetting,
    /// As `sequential`, for random reads of 4 KiB.
    pub random: Option<TunedSetting>,
    /// As `sequential`, for sequential writes, if these were measured.
    pub write: Option<TunedSetting>,
}

/// A request size, how many of them in flight, and the rate that they reached.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct TunedSetting {
    /// Size of a request.
    pub size_bytes: u64,
    /// Requests in flight.
    pub depth: u32,
    /// The rate reached.
    pub mib_per_s: f64,
}

impl Default for StoredProfiles {
    fn default() -> StoredProfiles {
        StoredProfiles { version: StoredProfiles::VERSION, profiles: BTreeMap::new() }
    }
}

impl StoredProfiles {
    /// The version of the format that this headwater reads and writes.
    pub const VERSION: u32 = 1;

    /// The profiles of the file; none if it does not exist.
    ///
    /// # Errors
    /// What reading reports; `InvalidData` when the file has another format or version, or is larger than 1 MiB.
    pub fn load(path: &Path) -> io::Result<StoredProfiles> {
        let metadata = match fs::metadata(path) {
            Err(error) if is_absent(&error) => return Ok(StoredProfiles::default()),
            metadata => metadata?,
        };
        // Opening a FIFO would wait for its other end.
        if !metadata.is_file() {
            return Err(unusable("it is no regular file".to_owned()));
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(unusable(format!("it is larger than {FILE_BYTES_MAX} bytes")));
        }
        parse(&fs::read(path)?)
    }
}

fn parse(bytes: &[u8]) -> io::Result<StoredProfiles> {
    let text = |error: serde_json::Error| unusable(error.to_string());
    // The version first: another one may differ in the rest.
    let Versioned { version } = serde_json::from_slice(bytes).map_err(text)?;
    if version != StoredProfiles::VERSION {
        let known = StoredProfiles::VERSION;
        return Err(unusable(format!("its version is {version}, this headwater knows {known}")));
    }
    serde_json::from_slice(bytes).map_err(text)
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl TunedSetting {
    /// Bytes in flight at any time.
    ///
    /// ```
    /// use headwater::testing::profiles::TunedSetting;
    /// let setting = TunedSetting { size_bytes: 512 << 10, depth: 4, mib_per_s: 2700.0 };
    /// assert_eq!(setting.queue_bytes(), 2 << 20);
    /// ```
    pub fn queue_bytes(&self) -> u64 {
        self.size_bytes.saturating_mul(u64::from(self.depth))
    }

    /// Limits with which a reader keeps this many requests of this size in flight, and reads at least 8 MiB ahead, as far as the
    /// memory budget allows; `None` for a setting that no request can have.
    ///
    /// ```
    /// use headwater::testing::profiles::TunedSetting;
    /// let setting = TunedSetting { size_bytes: 512 << 10, depth: 4, mib_per_s: 2700.0 };
    /// let limits = setting.readahead_limits(64 << 20).expect("the setting can be used");
    /// assert_eq!((limits.size_bytes_max, limits.distance_bytes_max), (512 << 10, 8 << 20));
    /// let limits = setting.readahead_limits(3 << 20).expect("the setting can be used");
    /// assert_eq!((limits.size_bytes_max, limits.distance_bytes_max), (256 << 10, 3 << 19));
    /// ```
    pub fn readahead_limits(&self, memory_bytes: u64) -> Option<ReadaheadLimits> {
        let sizes = PAGE_SIZE_BYTES..=Limits::RUN_BYTES_MAX;
        let depths = 1..=Limits::QUEUE_DEPTH_MAX;
        let is_sound = self.size_bytes.is_power_of_two()
            && sizes.contains(&self.size_bytes)
            && depths.contains(&self.depth);
        is_sound.then(|| {
            let wanted_bytes = self.queue_bytes().saturating_mul(DISTANCE_FACTOR);
            // A distance that suffices on an idle device is too short beside other load (256 KiB x 4: 0.5 to 0.8 of the default's
            // rate).
            let wanted_bytes = wanted_bytes.max(ReadaheadLimits::DISTANCE_BYTES_MAX_DEFAULT);
            readahead_for(memory_bytes, self.size_bytes, wanted_bytes)
        })
    }
}

/// The profiles of an engine, and the limits of devices already looked up.
pub(crate) struct Tuned {
    profiles: BTreeMap<String, Profile>,
    memory_bytes: u64,
    by_device: Mutex<HashMap<(u32, u32), Option<ReadaheadLimits>>>,
}

impl Tuned {
    /// `None` when there are no profiles.
    pub(crate) fn load(from: &Profiles, memory_bytes: u64) -> Option<Tuned> {
        let path = from.path()?;
        let profiles = match StoredProfiles::load(&path) {
            Ok(stored) => stored.profiles,
            Err(error) => {
                events::profiles_ignored(&path, &error);
                return None;
            }
        };
        (!profiles.is_empty()).then(|| Tuned { profiles, memory_bytes, by_device: Mutex::default() })
    }

    /// The number of profiles.
    pub(crate) fn count(&self) -> usize {
        self.profiles.len()
    }

    /// The limits for the device of a file. One system call; a new device is looked up in `/proc` and sysfs.
    pub(crate) fn limits(&self, file: &OpenFile) -> Option<ReadaheadLimits> {
        let device = device_number(file.buffered()).ok()?;
        let mut by_device = lock(&self.by_device);
        *by_device.entry(device).or_insert_with(|| {
            let key = Device::of(file.buffered()).ok()?.key?;
            self.profiles.get(&key)?.sequential.readahead_limits(self.memory_bytes)
        })
    }
}

/// `variable` reads the environment.
fn default_path(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
    if let Some(path) = set(ENVIRONMENT) {
        return (path != Path::new(OFF)).then_some(path);
    }
    // The XDG base directory specification says that relative paths are ignored.
    let configured = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let folder = configured.or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("headwater").join("profiles.json"))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn unusable(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

const ENVIRONMENT: &str = "HEADWATER_PROFILES";

const OFF: &str = "off";

/// A profile takes 500 bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A part of the distance has arrived and waits to be consumed: extents that overtook the first request, and the current one.
/// With twice the queue's size as distance, the device still has a full queue.
const DISTANCE_FACTOR: u64 = 2;

/// Limits of this size and distance, reduced so that one reader leaves half of the frames to others and to demand.
pub(crate) fn readahead_for(memory_bytes: u64, size_bytes: u64, distance_bytes: u64) -> ReadaheadLimits {
    let defaults = ReadaheadLimits::default();
    let distance_bytes_max = distance_bytes.min(memory_bytes / 2);
    // Where memory limits the distance, requests shrink, but no more of them fit than were wanted.
    let depth = (distance_bytes / size_bytes).clamp(2, DEPTH_MIN);
    let size_bytes_max = size_bytes.min((distance_bytes_max / depth).next_power_of_two());
    let size_bytes_min = defaults.size_bytes_min.min(size_bytes_max);
    let share_bytes_max = memory_bytes / SHARE_DIVISOR;
    ReadaheadLimits { size_bytes_min, size_bytes_max, distance_bytes_max, share_bytes_max, ..defaults }
}

/// With little memory, requests shrink until this many fit into the distance: depth matters more than size on devices with queues
/// (128 KiB × 16 reached 0.9 of the rate of 1 MiB × 32 on a virtio disk).
const DEPTH_MIN: u64 = 8;

/// The share of memory that all streams of a file may have read ahead: enough for many streams at full distance where memory is
/// plentiful, and never that many that one stream's readahead evicts what another is about to use.
const SHARE_DIVISOR: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(size_bytes: u64, depth: u32) -> TunedSetting {
        TunedSetting { size_bytes, depth, mib_per_s: 1.0 }
    }

    /// Goal: any stored setting leads to valid limits that leave half of the memory, or to none.
    #[test]
    fn limits_are_valid_for_any_setting_and_memory() {
        for size_bytes in (0..64).map(|shift| 1 << shift).chain([0, 12_288, u64::MAX]) {
            for depth in [0, 1, 2, 3, 8, 64, 4096, u32::MAX] {
                for memory_bytes in [3 << 20, 5 << 20, 64 << 20, 1 << 40] {
                    let Some(limits) = setting(size_bytes, depth).readahead_limits(memory_bytes) else {
                        continue;
                    };
                    assert_eq!(limits.validate(), Ok(()), "{size_bytes} x {depth} in {memory_bytes}");
                    assert!(limits.distance_bytes_max <= memory_bytes / 2);
                    assert!(limits.size_bytes_max <= size_bytes);
                }
            }
        }
        assert_eq!(setting(12_288, 4).readahead_limits(64 << 20), None);
        assert_eq!(setting(4 << 20, 4).readahead_limits(64 << 20), None);
        assert_eq!(setting(1 << 20, 0).readahead_limits(64 << 20), None);
    }

    /// Goal: a profile equal to the default leads to the default, in any memory.
    #[test]
    fn the_default_is_a_profile_too() {
        let defaults = ReadaheadLimits::default();
        for memory_bytes in [3 << 20, 8 << 20, 64 << 20] {
            let limits = setting(1 << 20, 4).readahead_limits(memory_bytes).unwrap();
            assert_eq!(
                limits,
                readahead_for(memory_bytes, defaults.size_bytes_max, defaults.distance_bytes_max)
            );
        }
    }

    #[test]
    fn the_file_lies_where_the_environment_says() {
        let path = |set: &[(&str, &str)]| {
            default_path(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value))
            })
        };
        let home = ("HOME", "/home/me");
        let at = |text: &str| Some(PathBuf::from(text));
        assert_eq!(path(&[]), None);
        assert_eq!(path(&[home]), at("/home/me/.config/headwater/profiles.json"));
        assert_eq!(path(&[home, ("XDG_CONFIG_HOME", "/etc")]), at("/etc/headwater/profiles.json"));
        assert_eq!(
            path(&[home, ("XDG_CONFIG_HOME", "here")]),
            at("/home/me/.config/headwater/profiles.json")
        );
        assert_eq!(path(&[home, ("HEADWATER_PROFILES", "/x")]), at("/x"));
        assert_eq!(path(&[home, ("HEADWATER_PROFILES", "off")]), None);
        assert_eq!(path(&[home, ("HEADWATER_PROFILES", "")]), at("/home/me/.config/headwater/profiles.json"));
    }

    /// Goal: a stored file is read back; other versions and invalid contents are distinguished from an absent file.
    #[test]
    fn files_are_read_or_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("profiles.json");
        assert_eq!(StoredProfiles::load(&path).unwrap(), StoredProfiles::default());
        let profile = Profile {
            device: "a disk".to_owned(),
            measured_unix_s: 1,
            headwater: "0".to_owned(),
            sequential: setting(4096, 1),
            random: None,
            write: None,
        };
        let stored =
            StoredProfiles { profiles: [("key".to_owned(), profile)].into(), ..StoredProfiles::default() };
        fs::write(&path, serde_json::to_vec(&stored).unwrap()).unwrap();
        assert_eq!(StoredProfiles::load(&path).unwrap(), stored);
        for nonsense in ["", "{", "[]", "{\"version\": 2, \"profiles\": {}}", "{\"version\": 1}", "\u{0}"] {
            fs::write(&path, nonsense).unwrap();
            assert_eq!(StoredProfiles::load(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(
            StoredProfiles::load(place.path()).unwrap_err().kind(),
            io::ErrorKind::InvalidData,
            "a directory"
        );
    }
}
