//! This program: started again as a child process.
//!
//! Owns: the path by which the kernel starts it.
//! Does not own: what a child does.

/// The program that runs, also when its file was replaced by another version or removed: `std::env::current_exe` is a name that leads
/// there no longer.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";
