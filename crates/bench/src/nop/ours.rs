//! Ours: headwater's ring, by each form of request: in batches or by itself, in its own memory or the caller's.
//!
//! Owns: how each form is used.
//! Does not own: the file that is read (reads), threads and clocks.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater::ring::{
    Access, Arena, Call, DirectIo, Direction, Driver, DriverOptions, LocalDriver, OpenFile, Request, Route,
    Transfer, Urgency,
};
use headwater::{DriverKind, Polling, SubmissionPolling};

use headwater_measure::{Figures, Latencies, crew};

use super::reads::{self, Buffer, Offsets, Page, READ_BYTES};
use super::{Arm, ArmOptions, Work, all_threads, figures};

pub(super) fn any_thread(options: &ArmOptions) -> io::Result<Figures> {
    let driver = Driver::new(&driver_options(options))?;
    let latencies = all_threads(options, || Ok(&driver), |driver| work(options, driver))?;
    Ok(figures(&latencies, Some(driver.stats().enters)))
}

pub(super) fn local(options: &ArmOptions) -> io::Result<Figures> {
    let enters = AtomicU64::new(0);
    let latencies = all_threads(
        options,
        || LocalDriver::new(&driver_options(options)),
        |local| {
            let latencies = work(options, local.driver());
            enters.fetch_add(local.driver().stats().enters, Ordering::Relaxed);
            latencies
        },
    )?;
    Ok(figures(&latencies, Some(enters.into_inner())))
}

fn driver_options(options: &ArmOptions) -> DriverOptions {
    let submission_polling = match options.arm {
        Arm::AnyThreadSqpoll => {
            SubmissionPolling::On { idle_ms: IDLE_MS, processor: options.kernel_affinity }
        }
        _ => SubmissionPolling::Off,
    };
    // One ring with all entries; its kernel thread would have a twin for each further ring.
    let rings = (options.arm == Arm::AnyThreadSqpoll).then_some(1);
    DriverOptions {
        kind: DriverKind::Uring,
        queue_depth: options.entries,
        rings,
        polling: Polling::Off,
        submission_polling,
        ..DriverOptions::default()
    }
}

fn work(options: &ArmOptions, driver: &Driver) -> io::Result<Latencies> {
    match (options.arm, options.work) {
        (Arm::AnyThreadPlug, Work::Nop) => plugged(options, driver, || Ok(Request::Nop)),
        (Arm::AnyThreadPlug, _) => plugged(options, driver, arena_reads(options, driver)?),
        (Arm::CallsTogether, Work::Nop) => nop_calls_together(options, driver),
        (Arm::CallsTogether, _) => read_calls_together(options, driver),
        (Arm::Calls, Work::Nop) => nop_calls(options, driver),
        (Arm::Calls, _) => read_calls(options, driver),
        (_, Work::Nop) => batches(options, driver, || Ok(Request::Nop)),
        _ => batches(options, driver, arena_reads(options, driver)?),
    }
}

fn batches(
    options: &ArmOptions,
    driver: &Driver,
    mut request: impl FnMut() -> io::Result<Request>,
) -> io::Result<Latencies> {
    let mut batch = driver.batch();
    crew::time_steps(options.time(), || {
        for _ in 0..options.batch {
            batch.push(request()?).map_err(|_| io::Error::other("the ring took no whole batch"))?;
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

/// Each request by itself, submitted together.
fn plugged(
    options: &ArmOptions,
    driver: &Driver,
    mut request: impl FnMut() -> io::Result<Request>,
) -> io::Result<Latencies> {
    let mut under_way = Vec::with_capacity(options.batch as usize);
    crew::time_steps(options.time(), || {
        let mut plug = driver.plug();
        for _ in 0..options.batch {
            under_way.push(plug.submit(request()?, Urgency::Demand).map_err(io::Error::other)?);
        }
        drop(plug);
        under_way.drain(..).try_for_each(|completion| completion.wait().result.map(drop))
    })
}

/// The same as calls.
fn nop_calls(options: &ArmOptions, driver: &Driver) -> io::Result<Latencies> {
    let mut under_way = Vec::with_capacity(options.batch as usize);
    crew::time_steps(options.time(), || {
        let mut plug = driver.plug();
        under_way.extend((0..options.batch).map(|_| plug.call(Call::nop(()))));
        drop(plug);
        under_way.drain(..).try_for_each(|call| call.wait().result)
    })
}

/// Made together.
fn nop_calls_together(options: &ArmOptions, driver: &Driver) -> io::Result<Latencies> {
    crew::time_steps(options.time(), || {
        let mut outcome = Ok(());
        let calls = (0..options.batch).map(|_| Call::nop(()));
        driver.call_all(calls, |_, nothing| {
            if let Err(error) = nothing.result {
                outcome = Err(error);
            }
        });
        outcome
    })
}

/// The same with reads.
fn read_calls_together(options: &ArmOptions, driver: &Driver) -> io::Result<Latencies> {
    let file: Arc<fs::File> = Arc::new(reads::open(path(options)?, options.work)?);
    let mut offsets = Offsets::new();
    let mut buffers: Vec<Buffer> = (0..options.batch).map(|_| Buffer(Page::new())).collect();
    let mut spare = Vec::with_capacity(buffers.len());
    crew::time_steps(options.time(), || {
        let mut outcome = Ok(());
        let call = |buffer| Call::pread(file.clone(), buffer, offsets.next(options.work));
        driver.call_all(buffers.drain(..).map(call), |_, read| {
            if let Err(error) = read.result.and_then(check) {
                outcome = Err(error);
            }
            spare.push(read.given.1);
        });
        std::mem::swap(&mut buffers, &mut spare);
        outcome
    })
}

/// Reads into buffers of the caller's, which are used again.
fn read_calls(options: &ArmOptions, driver: &Driver) -> io::Result<Latencies> {
    let file: Arc<fs::File> = Arc::new(reads::open(path(options)?, options.work)?);
    let (mut offsets, mut under_way) = (Offsets::new(), Vec::with_capacity(options.batch as usize));
    let mut buffers: Vec<Buffer> = (0..options.batch).map(|_| Buffer(Page::new())).collect();
    crew::time_steps(options.time(), || {
        let mut plug = driver.plug();
        for buffer in buffers.drain(..) {
            under_way.push(plug.call(Call::pread(file.clone(), buffer, offsets.next(options.work))));
        }
        drop(plug);
        for call in under_way.drain(..) {
            let read = call.wait();
            check(read.result?)?;
            buffers.push(read.given.1);
        }
        Ok(())
    })
}

/// Reads into memory of an arena, which the rings know but for one arm.
fn arena_reads(options: &ArmOptions, driver: &Driver) -> io::Result<impl FnMut() -> io::Result<Request>> {
    let direct = if options.work == Work::Direct { DirectIo::Required } else { DirectIo::Off };
    let route = if options.work == Work::Direct { Route::Direct } else { Route::Buffered };
    let file = Arc::new(OpenFile::open(path(options)?, direct, Access::Read)?);
    let arena = Arena::new(4 << 20).map_err(io::Error::other)?;
    if options.arm != Arm::AnyThreadUnregistered {
        driver.register_memory(&arena);
    }
    let (mut offsets, work) = (Offsets::new(), options.work);
    Ok(move || {
        let extents = arena.allocate_run(READ_BYTES, Urgency::Demand).ok_or(io::ErrorKind::OutOfMemory)?;
        let (direction, offset_bytes) = (Direction::Read, offsets.next(work));
        let file = file.clone();
        Ok(Transfer { direction, file, route, offset_bytes, length_bytes: READ_BYTES, extents }.into())
    })
}

fn path(options: &ArmOptions) -> io::Result<&std::path::Path> {
    options.path.as_deref().ok_or_else(|| io::Error::other("reads need --path"))
}

fn check(read_bytes: usize) -> io::Result<()> {
    if read_bytes == READ_BYTES { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The kernel thread stays awake between batches, however slow the device is.
const IDLE_MS: u32 = 100;
