//! Rights: a thread of root that opens files as their owner, and not as root, which may open all.
//!
//! Owns: the capabilities of a thread that pass the modes of files.
//! Does not own: user and group, which a thread keeps.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Runs `work` in this thread without the capabilities that let it pass the modes of files: root then opens a file of mode 0200 for writing
/// and not for reading. A thread without them runs `work` as it is.
///
/// # Panics
/// If the kernel refuses to change the capabilities.
pub fn as_owner<R>(work: impl FnOnce() -> R) -> R {
    let before = capabilities(None).expect("a thread may look at its own");
    let passes_modes = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    let _given_back = GivenBack(before);
    let fewer = CapabilitySets { effective: before.effective.difference(passes_modes), ..before };
    set_capabilities(None, fewer).expect("a thread may give up its own");
    work()
}

/// Whether [`as_owner`] changes what this process may open.
pub fn is_more_than_owner() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::DAC_OVERRIDE))
}

/// The capabilities of the thread, once this is dropped.
struct GivenBack(CapabilitySets);

impl Drop for GivenBack {
    fn drop(&mut self) {
        set_capabilities(None, self.0).expect("what a thread is permitted it may have again");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Goal: a file that its owner may only write is not opened for reading meanwhile, and is before and after.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn the_mode_of_a_file_counts_meanwhile() {
        if !is_more_than_owner() {
            return crate::skip("only root may open all files");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "bytes").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o200)).unwrap();
        assert!(fs::File::open(&path).is_ok());
        let (read, write) =
            as_owner(|| (fs::File::open(&path), fs::OpenOptions::new().write(true).open(&path)));
        assert_eq!((read.unwrap_err().kind(), write.is_ok()), (ErrorKind::PermissionDenied, true));
        assert!(fs::File::open(&path).is_ok());
    }
}
