//! Refusal: io_uring forbidden, as the seccomp profile of a container does, and the driver chosen by environment.
//!
//! Owns: what happens in a process of its own.
//! Does not own: reading as such.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;

use headwater::testing::{device_polls, uring_refusal};
use headwater::{Caching, DriverKind, Engine, File, IoMode, OpenOptions, Polling};
use headwater_testkit::{exhaust_io_uring, forbid_io_uring, run_self_with_env, skip};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::rig::{Scratch, block_on};
use crate::whole::become_nobody;

/// Goal: where io_uring is forbidden, the defaults read with threads and say why; a demand for io_uring is refused.
#[test]
fn io_uring_forbidden() {
    if std::env::var_os(CHILD).is_none() {
        return expect_success("refusal::io_uring_forbidden", CHILD, "1");
    }
    forbid_io_uring();
    let info = Engine::global().unwrap().info();
    assert_eq!(info.driver, "threads");
    let reason = info.uring_refusal.unwrap();
    assert!(reason.contains("not permitted") && reason.lines().count() == 1, "{reason}");
    assert_eq!(uring_refusal(), Some(reason));
    read_everything();
    let error = Engine::builder().driver(DriverKind::Uring).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(error.to_string().lines().count(), 1);
    println!("{REACHED_THE_END}");
}

/// Goal: where the kernel has no memory for a ring, the defaults read with threads, and what is said names the limit that can be raised.
#[test]
fn no_memory_for_a_ring() {
    if !in_child("refusal::no_memory_for_a_ring") {
        return;
    }
    exhaust_io_uring();
    let error = Engine::builder().driver(DriverKind::Uring).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("ulimit -l"), "{error}");
    let info = Engine::global().unwrap().info();
    let reason = info.uring_refusal.unwrap();
    assert!(info.driver == "threads" && reason.contains("ulimit -l"), "{} {reason}", info.driver);
    read_everything();
}

/// Goal: without any locked memory allowed, io_uring reads (from Linux 5.12 on) or says what to do, and the default reads.
#[test]
fn no_locked_memory() {
    if !in_child("refusal::no_locked_memory") {
        return;
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Memlock, none).unwrap();
    read_everything();
    let info = Engine::global().unwrap().info();
    assert_eq!(info.driver == "uring", info.uring_refusal.is_none(), "{info:?}");
}

/// Goal: a user with little locked memory gets io_uring all the same, reads right, and where the kernel refuses to keep the cache's memory
/// registered, the reason names the limit and no old kernel. Method: 16 KiB, as `ulimit -l 16` sets them, without root's exemption.
#[test]
fn little_locked_memory() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become the user nobody");
    }
    if uring_refusal().is_some() {
        return skip("no io_uring");
    }
    if !in_child("refusal::little_locked_memory") {
        return;
    }
    let scratch = Scratch::new(1, 1_000_000);
    fs::set_permissions(scratch.path().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o644)).unwrap();
    setrlimit(Resource::Memlock, Rlimit { current: Some(16 << 10), maximum: Some(16 << 10) }).unwrap();
    become_nobody();
    let engine = Engine::builder().driver(DriverKind::Uring).build().unwrap();
    let mut options = OpenOptions::new();
    let file = options.engine(&engine).io(IoMode::Direct).caching(Caching::On).open(scratch.path()).unwrap();
    for _ in 0..2 {
        let mut contents = Vec::new();
        file.reader().read_to_end(&mut contents).unwrap();
        scratch.check_all(0, usize::MAX, &contents);
    }
    let info = engine.info();
    let reason = info.registration_refusal.expect("16 KiB hold no chunk of the cache");
    assert!(reason.contains("ulimit -l") && !reason.contains("kernel"), "{reason}");
    assert_eq!((info.driver, info.uring_refusal), ("uring", None));
}

/// Goal: devices that do not poll need no polled ring, those that do get one, and both are read; not so where polling is
/// off.
#[test]
fn polling_where_the_device_does_not() {
    if uring_refusal().is_some() {
        return;
    }
    let scratch = Scratch::new(1, 1_000_000);
    for polling in [Polling::Auto, Polling::Off] {
        let engine = Engine::builder().driver(DriverKind::Uring).polling(polling).build().unwrap();
        let file = OpenOptions::new().engine(&engine).io(IoMode::Direct).open(scratch.path()).unwrap();
        let bytes = block_on(file.read_at_async(4096, 65_536)).unwrap();
        scratch.check_all(4096, 65_536, &bytes);
        let info = engine.info();
        let were_tried = info.polled_rings > 0 || info.polling_refusal.is_some();
        assert_eq!(
            were_tried,
            polling == Polling::Auto && device_polls(&scratch.path()).unwrap(),
            "{info:?}"
        );
    }
}

/// Goal: `HEADWATER_DRIVER=threads` does. Method: the variable itself marks the child.
#[test]
fn threads_by_environment() {
    if std::env::var(DRIVER).as_deref() != Ok("threads") {
        return expect_success("refusal::threads_by_environment", DRIVER, "threads");
    }
    let info = Engine::global().unwrap().info();
    assert_eq!((info.driver, info.uring_refusal), ("threads", None));
    read_everything();
    println!("{REACHED_THE_END}");
}

/// Goal: a wrong word is an error that names the right ones; who names a driver in the program is not concerned.
#[test]
fn nonsense_by_environment() {
    if std::env::var(DRIVER).as_deref() != Ok("nonsense") {
        return expect_success("refusal::nonsense_by_environment", DRIVER, "nonsense");
    }
    let error = File::open("/proc/version").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    assert!(text.ends_with(r#"HEADWATER_DRIVER is "nonsense"; it can be auto, uring or threads"#), "{text}");
    assert!(Engine::builder().driver(DriverKind::Threads).build().is_ok());
    println!("{REACHED_THE_END}");
}

/// Runs the test again in a process of its own and says whether this is that process.
pub(crate) fn in_child(test_name: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let output = run_self_with_env(test_name, CHILD, "1");
    assert!(output.status.success(), "{output:?}");
    false
}

fn expect_success(test_name: &str, key: &str, value: &str) {
    let output = run_self_with_env(test_name, key, value);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(REACHED_THE_END), "{output:?}");
}

fn read_everything() {
    let scratch = Scratch::new(1, 1_000_000);
    let file = File::open(scratch.path()).unwrap();
    let mut contents = Vec::new();
    file.reader().read_to_end(&mut contents).unwrap();
    scratch.check_all(0, usize::MAX, &contents);
    let bytes = block_on(file.read_at_async(12_345, 500_000)).unwrap();
    scratch.check_all(12_345, 500_000, &bytes);
}

const DRIVER: &str = "HEADWATER_DRIVER";
const CHILD: &str = "HEADWATER_TEST_CHILD";
const REACHED_THE_END: &str = "reached the end";
