//! Stored: the file of profiles, which is read, shown, changed and reset.
//!
//! ```text
//!   lock the folder ─► read ─► change ─► file with another name beside it, synced ─► its name
//! ```
//!
//! Owns: replacing the file atomically, so that readers see the old one or the new one, and no change of another process is lost; its
//! permissions.
//! Does not own: its format and path (`headwater::testing::profiles`).

use std::fs::{File, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headwater::Profiles;
use headwater::testing::profiles::{Profile, StoredProfiles, TunedSetting};
use headwater_measure::result_file;
use os_display::Quotable;

use crate::shared::output;
use crate::shared::units::readable;

/// The path of the file; `None` if profiles are off.
///
/// # Errors
/// One sentence for the user, if there is no directory for it.
pub(super) fn path() -> Result<Option<PathBuf>, String> {
    let is_off = std::env::var_os("HEADWATER_PROFILES").is_some_and(|value| value == "off");
    match Profiles::Default.path() {
        None if is_off => Ok(None),
        None => Err(
            "failed to find a place for profiles: neither XDG_CONFIG_HOME nor HOME is set; name a file with \
                     HEADWATER_PROFILES"
                .to_owned(),
        ),
        path => Ok(path),
    }
}

/// # Errors
/// One sentence for the user.
pub(super) fn load(path: &Path) -> Result<StoredProfiles, String> {
    StoredProfiles::load(path).map_err(|error| {
        format!(
            "failed to read the profiles in {}: {error}; remove that file to start anew",
            path.maybe_quote()
        )
    })
}

/// Checks that profiles can be stored.
///
/// # Errors
/// One sentence for the user.
pub(super) fn check(path: &Path) -> Result<(), String> {
    load(path)?;
    let place = StorePlace::of(path)?;
    tempfile::tempfile_in(&place.folder).map(drop).map_err(|error| failed_to_store(path, &error))
}

/// Stores a profile in place of the previous one of its key.
///
/// # Errors
/// One sentence for the user.
pub(super) fn put(path: &Path, key: &str, profile: Profile) -> Result<(), String> {
    let place = StorePlace::of(path)?;
    let mut stored = load(path)?;
    stored.profiles.insert(key.to_owned(), profile);
    place.save(&stored)
}

/// Removes the profile with this key, or all. Returns how many were removed.
///
/// # Errors
/// One sentence for the user.
pub(super) fn remove(path: &Path, key: Option<&str>) -> Result<usize, String> {
    if !path.exists() {
        return Ok(0);
    }
    let place = StorePlace::of(path)?;
    // What is not understood goes with all the rest.
    let mut stored = if key.is_none() { load(path).unwrap_or_default() } else { load(path)? };
    let before = stored.profiles.len();
    stored.profiles.retain(|known, _| key.is_some_and(|key| known != key));
    let removed = before - stored.profiles.len();
    if removed > 0 || key.is_none() {
        place.save(&stored)?;
    }
    Ok(removed)
}

/// Where the file is or will be, which no other process changes meanwhile.
struct StorePlace<'a> {
    /// As the user knows it.
    shown: &'a Path,
    /// The file itself: the path may be a symbolic link, for example into a directory of settings under version control.
    path: PathBuf,
    folder: PathBuf,
    /// The folder, locked until it is closed. The file is no place for a lock: each change puts another one in its place.
    _lock: File,
}

impl<'a> StorePlace<'a> {
    fn of(shown: &'a Path) -> Result<StorePlace<'a>, String> {
        let path = std::fs::canonicalize(shown).unwrap_or_else(|_| result_file::end_of_links(shown));
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.to_owned();
        let lock = std::fs::create_dir_all(&folder).and_then(|()| locked(&folder));
        let _lock = lock.map_err(|error| failed_to_store(shown, &error))?;
        Ok(StorePlace { shown, path, folder, _lock })
    }

    fn save(&self, stored: &StoredProfiles) -> Result<(), String> {
        self.replace(output::json(stored).as_bytes()).map_err(|error| failed_to_store(self.shown, &error))
    }

    /// The new file has the permissions, and where this process may give it away the owner, of the old one.
    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let old = std::fs::metadata(&self.path).ok();
        let mut builder = tempfile::Builder::new();
        builder.prefix(".profiles");
        if old.is_none() {
            // Less the umask, as that of any new file. The default of this crate keeps other users out.
            builder.permissions(Permissions::from_mode(0o666));
        }
        let mut file = builder.tempfile_in(&self.folder)?;
        if let Some(old) = old {
            let _ = fchown(file.as_file(), Some(old.uid()), Some(old.gid()));
            file.as_file().set_permissions(old.permissions())?;
        }
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }
}

fn failed_to_store(path: &Path, error: &io::Error) -> String {
    format!("failed to store profiles in {}: {error}", path.maybe_quote())
}

/// The folder, opened and locked as soon as no other process has it locked; unlocked where that takes long, or the file system
/// has no locks.
fn locked(folder: &Path) -> io::Result<File> {
    let (folder, began) = (File::open(folder)?, Instant::now());
    while let Err(TryLockError::WouldBlock) = folder.try_lock() {
        if began.elapsed() > LOCK_PATIENCE {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(folder)
}

/// The profiles as text.
pub(super) fn words(path: &Path, stored: &StoredProfiles, now: SystemTime) -> String {
    if stored.profiles.is_empty() {
        return format!("no profiles in {}\n", path.maybe_quote());
    }
    let mut lines = vec![format!("profiles in {}", path.maybe_quote())];
    for (key, profile) in &stored.profiles {
        lines.push(String::new());
        lines.push(format!("{}, measured {}", profile.device, age(profile.measured_unix_s, now)));
        let kinds = [
            ("sequential reads", Some(profile.sequential)),
            ("random reads", profile.random),
            ("sequential writes", profile.write),
        ];
        lines.extend(kinds.iter().filter_map(|(kind, setting)| Some(setting_line(kind, (*setting)?))));
        lines.push(format!("  known as {key}"));
    }
    lines.join("\n") + "\n"
}

fn setting_line(kind: &str, setting: TunedSetting) -> String {
    let TunedSetting { size_bytes, depth, mib_per_s } = setting;
    format!("  {kind}: {} × {depth}, {mib_per_s:.0} MiB/s", readable(size_bytes))
}

fn age(measured_unix_s: u64, now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    match since.saturating_sub(measured_unix_s) / (24 * 60 * 60) {
        0 => "within the last day".to_owned(),
        1 => "a day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}

pub(super) fn unix_seconds(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A change takes some milliseconds; any process that may read the folder can keep it locked for ever.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(depth: u32) -> Profile {
        let sequential = TunedSetting { size_bytes: 1 << 20, depth, mib_per_s: 100.0 };
        let (device, headwater) = ("a disk".to_owned(), "0".to_owned());
        Profile { device, measured_unix_s: 0, headwater, sequential, random: None, write: None }
    }

    /// Goal: profiles are added, replaced and removed one by one, and no temporary file remains.
    #[test]
    fn profiles_come_and_go() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a").join("profiles.json");
        put(&path, "one", profile(1)).unwrap();
        put(&path, "two", profile(2)).unwrap();
        put(&path, "one", profile(3)).unwrap();
        let stored = load(&path).unwrap();
        assert_eq!(stored.profiles["one"].sequential.depth, 3);
        assert_eq!(stored.profiles.len(), 2);
        assert_eq!(remove(&path, Some("three")).unwrap(), 0);
        assert_eq!(remove(&path, Some("one")).unwrap(), 1);
        assert_eq!(load(&path).unwrap().profiles.len(), 1);
        let shown = words(&path, &load(&path).unwrap(), UNIX_EPOCH + Duration::from_secs(200_000));
        assert!(shown.contains("a disk, measured 2 days ago") && shown.contains("1 MiB × 2"), "{shown}");
        assert_eq!(remove(&path, None).unwrap(), 1);
        assert_eq!(std::fs::read_dir(place.path().join("a")).unwrap().count(), 1);
    }

    /// Goal: other users may read a new file as any other of this process, and each file after a change as before it. Method: modes of
    /// files that are new, that were 0644 and that were 0600.
    #[test]
    fn permissions_stay() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("profiles.json");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let other = place.path().join("other");
        File::create(&other).unwrap();
        put(&path, "one", profile(1)).unwrap();
        assert_eq!(mode(&path), mode(&other), "as the umask says");
        for kept in [0o644, 0o600, 0o664] {
            std::fs::set_permissions(&path, Permissions::from_mode(kept)).unwrap();
            put(&path, "one", profile(2)).unwrap();
            assert_eq!(mode(&path), kept);
        }
        if rustix::process::geteuid().is_root() {
            fchown(File::open(&path).unwrap(), Some(1000), Some(1000)).unwrap();
            put(&path, "one", profile(3)).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().uid(), 1000, "a user's file stays the user's");
        }
    }

    /// Goal: of several profiles that are stored at once none is lost. Method: eight threads, ten devices each.
    #[test]
    fn none_of_several_is_lost() {
        let place = tempfile::tempdir().unwrap();
        let path = &place.path().join("profiles.json");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    (0..10).for_each(|device| put(path, &format!("{thread}-{device}"), profile(1)).unwrap());
                });
            }
        });
        assert_eq!(load(path).unwrap().profiles.len(), 80);
    }

    /// Goal: a symbolic link to a file that is not there yet stays a link, and leads to the profiles.
    #[test]
    fn links_stay_links() {
        let place = tempfile::tempdir().unwrap();
        let (link, target) = (place.path().join("link"), place.path().join("settings/profiles.json"));
        std::os::unix::fs::symlink("settings/profiles.json", &link).unwrap();
        for device in ["one", "two"] {
            put(&link, device, profile(1)).unwrap();
        }
        assert!(link.is_symlink());
        assert_eq!(load(&target).unwrap().profiles.len(), 2);
    }

    /// Goal: a file of another format is not overwritten, except by a reset of all.
    #[test]
    fn what_is_not_understood_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("profiles.json");
        std::fs::write(&path, "mine").unwrap();
        assert!(put(&path, "one", profile(1)).unwrap_err().contains("remove that file"));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert_eq!(remove(&path, None).unwrap(), 0);
        assert_eq!(load(&path).unwrap(), StoredProfiles::default());
    }
}
