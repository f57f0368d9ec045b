//! Stored: the file of profiles, which is read, shown, changed and reset.
//!
//! ```text
//!   read ─► change ─► file with another name beside it, synced ─► its name
//! ```
//!
//! Owns: replacing the file atomically, so that readers see the old one or the new one.
//! Does not own: its format and path (`headwater::testing::profiles`).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headwater::Profiles;
use headwater::testing::profiles::{Profile, StoredProfiles, TunedSetting};
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

/// Stores a profile in place of the previous one of its key.
///
/// # Errors
/// One sentence for the user.
pub(super) fn put(path: &Path, key: &str, profile: Profile) -> Result<(), String> {
    let mut stored = load(path)?;
    stored.profiles.insert(key.to_owned(), profile);
    save(path, &stored)
}

/// Removes the profile with this key, or all. Returns how many were removed.
///
/// # Errors
/// One sentence for the user.
pub(super) fn remove(path: &Path, key: Option<&str>) -> Result<usize, String> {
    // What is not understood goes with all the rest.
    let mut stored = if key.is_none() { load(path).unwrap_or_default() } else { load(path)? };
    let before = stored.profiles.len();
    stored.profiles.retain(|known, _| key.is_some_and(|key| known != key));
    let removed = before - stored.profiles.len();
    if removed > 0 || key.is_none() && path.exists() {
        save(path, &stored)?;
    }
    Ok(removed)
}

fn save(path: &Path, stored: &StoredProfiles) -> Result<(), String> {
    let failed =
        |error: std::io::Error| format!("failed to store profiles in {}: {error}", path.maybe_quote());
    // The file may be a symbolic link, for example into a directory of settings under version control.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut file = tempfile::Builder::new().prefix(".profiles").tempfile_in(folder).map_err(failed)?;
    file.write_all(output::json(stored).as_bytes())
        .and_then(|()| file.as_file().sync_all())
        .map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(())
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
