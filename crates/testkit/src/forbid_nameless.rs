//! Forbidding files without names: what file systems without `O_TMPFILE` (FAT, NFS, many in user space) do to us.
//!
//! Owns: the filter.
//! Does not own: running a part of a test in a child, which a filter needs (see `forbid_uring`).

use std::collections::BTreeMap;
use std::env;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

/// From now on, and for good, every thread of this process and every child gets `EOPNOTSUPP` from `open(2)` and
/// `openat(2)` with `O_TMPFILE`. Needs no privilege.
///
/// # Panics
/// When the kernel refuses the filter.
pub fn forbid_nameless_files() {
    let rules = CALLS.map(|(call, flags_argument)| (call, vec![rule(flags_argument)]));
    let rules: BTreeMap<_, _> = rules.into_iter().collect();
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(Errno::OPNOTSUPP.raw_os_error() as u32),
        TargetArch::try_from(env::consts::ARCH).expect("seccompiler knows this architecture"),
    );
    let program: BpfProgram = filter.and_then(BpfProgram::try_from).expect("the filter is well-formed");
    apply_filter_all_threads(&program).expect("the kernel accepts the filter");
}

/// Whether the flags, at this place among the arguments, ask for a file without a name.
fn rule(flags_argument: u8) -> SeccompRule {
    let operator = SeccompCmpOp::MaskedEq(TMPFILE_BIT);
    let condition = SeccompCondition::new(flags_argument, SeccompCmpArgLen::Dword, operator, TMPFILE_BIT);
    condition.and_then(|condition| SeccompRule::new(vec![condition])).expect("the rule is well-formed")
}

/// `open(path, flags, mode)` and `openat(directory, path, flags, mode)`: which argument the flags are.
#[cfg(target_arch = "x86_64")]
const CALLS: [(i64, u8); 2] = [(2, 1), (257, 2)];

/// Younger architectures have only `openat`.
#[cfg(not(target_arch = "x86_64"))]
const CALLS: [(i64, u8); 1] = [(56, 2)];

/// `__O_TMPFILE` of `asm-generic/fcntl.h`; the rest of `O_TMPFILE` is `O_DIRECTORY`.
const TMPFILE_BIT: u64 = 0o20_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_self_with_env;
    use rustix::fs::{Mode, OFlags};

    /// Goal: under the filter only files with names can be made. Method: this test again, in a child.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn names_are_needed_under_the_filter() {
        const CHILD: &str = "HEADWATER_TESTKIT_NAMELESS";
        if env::var_os(CHILD).is_some() {
            forbid_nameless_files();
            let place = tempfile::tempdir().unwrap();
            let made = rustix::fs::open(place.path(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
            assert_eq!(made.unwrap_err(), Errno::OPNOTSUPP);
            std::fs::write(place.path().join("file"), "contents").unwrap();
            println!("saw EOPNOTSUPP");
            return;
        }
        let name = "forbid_nameless::tests::names_are_needed_under_the_filter";
        let output = run_self_with_env(name, CHILD, "1");
        assert!(String::from_utf8_lossy(&output.stdout).contains("saw EOPNOTSUPP"), "{output:?}");
    }
}
