//! Ours: headwater's ring, shared by all threads or one for each.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater::DriverKind;
use headwater::ring::{Driver, DriverOptions, Request, Sharing};

use headwater_measure::{Figures, Latencies, crew};

use super::{ArmOptions, all_threads, figures};

pub(super) fn any_thread(options: &ArmOptions) -> io::Result<Figures> {
    let driver = driver(options, Sharing::AnyThread)?;
    let latencies = all_threads(options, || Ok(&driver), |driver| batches(options, driver))?;
    Ok(figures(&latencies, Some(driver.stats().enters)))
}

pub(super) fn local(options: &ArmOptions) -> io::Result<Figures> {
    let enters = AtomicU64::new(0);
    let latencies = all_threads(
        options,
        || driver(options, Sharing::Local),
        |driver| {
            let latencies = batches(options, &driver);
            enters.fetch_add(driver.stats().enters, Ordering::Relaxed);
            latencies
        },
    )?;
    Ok(figures(&latencies, Some(enters.into_inner())))
}

fn driver(options: &ArmOptions, sharing: Sharing) -> io::Result<Driver> {
    let queue_depth = options.entries;
    Driver::new(&DriverOptions { kind: DriverKind::Uring, queue_depth, sharing, ..DriverOptions::default() })
}

fn batches(options: &ArmOptions, driver: &Driver) -> io::Result<Latencies> {
    let mut batch = driver.batch();
    crew::time_steps(options.time(), || {
        for _ in 0..options.batch {
            batch.push(Request::Nop).map_err(|_| io::Error::other("the ring took no whole batch"))?;
        }
        let mut outcome = Ok(());
        batch.finish(|_, finished| {
            if let Err(error) = finished.result {
                outcome = Err(error);
            }
        });
        outcome
    })
}
