//! Kernel: files as std reads them, and mapped.
//!
//! The mapping is headwater's own, because to map a file with memmap2 is `unsafe`; the system calls are the same.
//!
//! Owns: reads that block, on one thread and on several, for the arms of headwater that block too.
//! Does not own: what is done with what was read (work).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use headwater::testing::{MapAdvice, MappedFile};

use super::rows::{Arm, Row};
use super::runtime::{self, Opening};
use super::work::{FileSum, Hashing, Job, Lane, Meter, PageSum, SMALL_BUFFER_BYTES, Sample};
use crate::pages::{AlignedBuffer, PAGE};

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    match (job.row, job.arm) {
        (Row::ColdScan, Arm::Std128k) => scan(job, 128 << 10),
        (Row::ColdScan, Arm::Std1m) => scan(job, 1 << 20),
        (Row::ColdScan, Arm::Mmap) => scan_mapped(job),
        (Row::ColdRandom1 | Row::ColdRandom20 | Row::ColdRandom50, Arm::StdThreads) => {
            random(job, job.row.depth(), Opening::Direct)
        }
        (Row::WarmRandom, Arm::Std) => random(job, 1, Opening::Buffered),
        (Row::FilesCold | Row::FilesWarm, Arm::Std) => files(job, 1, read_file),
        (Row::FilesCold | Row::FilesWarm, Arm::Std4) => files(job, 4, read_file),
        (Row::FilesCold | Row::FilesWarm, Arm::Std16) => files(job, 16, read_file),
        (Row::FilesCold | Row::FilesWarm, Arm::Std32) => files(job, 32, read_file),
        (Row::Hash, Arm::Std128k) => hash(job, 128 << 10),
        (Row::Hash, Arm::Std1m) => hash(job, 1 << 20),
        (Row::Hash, Arm::Mmap) => hash_mapped(job),
        (_, Arm::Mmap) => random_mapped(job, job.row.depth()),
        _ => job.unknown(),
    }
}

fn scan(job: &Job, buffer_bytes: usize) -> io::Result<Sample> {
    let (meter, mut total) = (Meter::start(), PageSum::default());
    read(job, buffer_bytes, |chunk| total.add(chunk))?;
    Ok(meter.sample(total.bytes, 0, total.sum))
}

fn hash(job: &Job, buffer_bytes: usize) -> io::Result<Sample> {
    let (meter, mut hashing) = (Meter::start(), Hashing::default());
    read(job, buffer_bytes, |chunk| hashing.add(chunk))?;
    Ok(hashing.finish(&meter))
}

fn read(job: &Job, buffer_bytes: usize, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut file, mut buffer) = (File::open(&job.path)?, vec![0; buffer_bytes]);
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        take(&buffer[..length]);
    }
}

fn map(job: &Job, advice: MapAdvice) -> io::Result<MappedFile> {
    MappedFile::map(File::open(&job.path)?.as_fd(), job.length_bytes()?, advice)
}

fn scan_mapped(job: &Job) -> io::Result<Sample> {
    let meter = Meter::start();
    let mapped = map(job, MapAdvice::Sequential)?;
    Ok(meter.sample(job.length_bytes()?, 0, mapped.sum_of_pages()))
}

/// By way of a copy that stays in the processor's cache.
fn hash_mapped(job: &Job) -> io::Result<Sample> {
    let (meter, mut hashing) = (Meter::start(), Hashing::default());
    let (mapped, mut piece) = (map(job, MapAdvice::Sequential)?, vec![0; COPIED_BYTES]);
    for offset in (0..job.length_bytes()?).step_by(COPIED_BYTES) {
        let length = mapped.copy_at(&mut piece, offset);
        hashing.add(&piece[..length]);
    }
    Ok(hashing.finish(&meter))
}

fn random(job: &Job, threads: u32, opening: Opening) -> io::Result<Sample> {
    let file = File::options().read(true).custom_flags(runtime::flags(opening)).open(&job.path)?;
    random_on_threads(job, threads, |buffer, offset| file.read_at(buffer, offset))
}

/// Warm pages were all touched before.
fn random_mapped(job: &Job, threads: u32) -> io::Result<Sample> {
    let advice = if job.row == Row::WarmRandom { MapAdvice::Normal } else { MapAdvice::Random };
    let mapped = map(job, advice)?;
    if job.row == Row::WarmRandom {
        std::hint::black_box(mapped.sum_of_pages());
    }
    random_on_threads(job, threads, |buffer, offset| Ok(mapped.copy_at(buffer, offset)))
}

/// Blocking reads, on the threads given; on this one if it is one.
pub(super) fn random_on_threads(
    job: &Job,
    threads: u32,
    read: impl Fn(&mut [u8], u64) -> io::Result<usize> + Sync,
) -> io::Result<Sample> {
    let work = |mut lane: Lane| {
        let mut memory = AlignedBuffer::new(PAGE as usize);
        while let Some(offset) = lane.next() {
            let buffer = memory.bytes();
            let length = read(buffer, offset)?;
            lane.take(&buffer[..length])?;
        }
        Ok(lane)
    };
    let (lanes, meter) = (Lane::all(job, threads)?, Meter::start());
    if threads == 1 {
        return meter.lanes(lanes.into_iter().map(work));
    }
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(move || work(lane))).collect();
        let joined =
            workers.into_iter().map(|worker| worker.join().expect("a reading thread does not panic"));
        meter.lanes(joined)
    })
}

/// Opens, reads and closes every small file, on the threads given; on this one if it is one.
pub(super) fn files(
    job: &Job,
    threads: u32,
    read_file: impl Fn(&std::path::Path, &mut [u8]) -> io::Result<usize> + Sync,
) -> io::Result<Sample> {
    files_by(job, threads, |path, buffer, total| {
        let length = read_file(path, buffer)?;
        total.add(&buffer[..length]);
        Ok(())
    })
}

/// The same for programs that read into a buffer of their own.
pub(super) fn files_by(
    job: &Job,
    threads: u32,
    read_file: impl Fn(&std::path::Path, &mut [u8], &mut FileSum) -> io::Result<()> + Sync,
) -> io::Result<Sample> {
    let (meter, next) = (Meter::start(), AtomicU32::new(0));
    let work = || -> io::Result<FileSum> {
        let (mut buffer, mut total) = (vec![0; SMALL_BUFFER_BYTES], FileSum::default());
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= job.files {
                return Ok(total);
            }
            read_file(&job.file(index), &mut buffer, &mut total)?;
        }
    };
    let total = match threads {
        1 => work()?,
        _ => thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let joined =
                workers.into_iter().map(|worker| worker.join().expect("a reading thread does not panic"));
            joined.reduce(|one, other| Ok(one?.merge(other?))).expect("there are threads")
        })?,
    };
    Ok(meter.sample(total.bytes, total.files, total.sum))
}

fn read_file(path: &std::path::Path, buffer: &mut [u8]) -> io::Result<usize> {
    File::open(path)?.read(buffer)
}

const COPIED_BYTES: usize = 64 << 10;
