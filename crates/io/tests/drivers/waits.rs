//! Waits: calls that last as long as something else pleases, and what has to go on beside them.
//!
//! Owns: requests that keep each other waiting: for a place.
//! Does not own: what timeouts and polls return (see `operations`).

use std::fs::File;
use std::time::Duration;

use headwater_io::{Call, Calling, Driver, DriverKind, DriverOptions, RingOperations, uring_refusal};
use headwater_testkit::skip;

use crate::bench::watched;

/// Goal: calls that a ring leaves to worker threads do not wait for timeouts and polls that it leaves to them too: these need a place, of
/// which there are as many as in the ring, and no thread. Method: more timeouts than such a ring has threads.
#[test]
fn waits_beside_a_ring_keep_no_call_waiting() {
    if let Some(reason) = uring_refusal() {
        return skip(format!("uring: {reason}"));
    }
    let operations = RingOperations::Transfers;
    let options = DriverOptions { kind: DriverKind::Uring, rings: Some(1), operations, ..Default::default() };
    let (driver, directory) = (Driver::new(&options).unwrap(), tempfile::tempdir().unwrap());
    let hours: Vec<_> = (0..20).map(|_| driver.call(Call::timeout(HOUR))).collect();
    watched("calls beside timeouts", || {
        driver.call(Call::timeout(Duration::from_millis(1))).wait().result.unwrap();
        let parent = File::open(directory.path()).unwrap();
        driver.call(Call::make_directory_at(parent, "made", 0o700)).wait().result.unwrap();
    });
    assert!(directory.path().join("made").is_dir());
    assert!(!hours.iter().any(Calling::is_done));
}

const HOUR: Duration = Duration::from_secs(3600);
