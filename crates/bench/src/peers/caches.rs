//! Caches: libraries that cache what their user has read, filled with all pages before.
//!
//! Owns: filling them, a look-up in each.
//! Does not own: what is done with a page (work).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use foyer_memory::S3FifoConfig;

use super::rows::{Arm, Row};
use super::work::{Job, Lane, Meter, Sample};
use crate::pages::PAGE;

pub(super) fn run(job: &Job) -> io::Result<Sample> {
    match (job.row, job.arm) {
        (Row::WarmRandom, Arm::Foyer) => foyer(job),
        (Row::WarmRandom, Arm::QuickCache) => quick_cache(job),
        (Row::WarmRandom, Arm::Moka) => moka(job),
        _ => job.unknown(),
    }
}

/// With the replacement that makes it faster.
fn foyer(job: &Job) -> io::Result<Sample> {
    let builder = foyer_memory::CacheBuilder::new(capacity(job)?);
    let cache: foyer_memory::Cache<u64, Bytes> =
        builder.with_eviction_config(S3FifoConfig::default()).build();
    pages(job, |page, bytes| drop(cache.insert(page, bytes)))?;
    // The entry holds the page; it is let go after it was looked at.
    gets(job, |page, look| cache.get(&page).map(|entry| look(entry.value())))
}

fn quick_cache(job: &Job) -> io::Result<Sample> {
    let cache: quick_cache::sync::Cache<u64, Bytes> = quick_cache::sync::Cache::new(capacity(job)?);
    pages(job, |page, bytes| cache.insert(page, bytes))?;
    gets(job, |page, look| cache.get(&page).map(|bytes| look(&bytes)))
}

fn moka(job: &Job) -> io::Result<Sample> {
    let cache: moka::sync::Cache<u64, Bytes> = moka::sync::Cache::new(capacity(job)? as u64);
    pages(job, |page, bytes| cache.insert(page, bytes))?;
    cache.run_pending_tasks();
    gets(job, |page, look| cache.get(&page).map(|bytes| look(&bytes)))
}

/// Twice the pages: caches in parts evict where a part is full.
fn capacity(job: &Job) -> io::Result<usize> {
    Ok(2 * job.length_bytes()?.div_ceil(PAGE) as usize)
}

fn pages(job: &Job, mut insert: impl FnMut(u64, Bytes)) -> io::Result<()> {
    let file = File::open(&job.path)?;
    for page in 0..job.length_bytes()? / PAGE {
        let mut bytes = vec![0; PAGE as usize];
        file.read_exact_at(&mut bytes, page * PAGE)?;
        insert(page, bytes.into());
    }
    Ok(())
}

/// `get` looks a page up and shows it to the function that it is given; `None` when it is not there.
fn gets(
    job: &Job,
    mut get: impl FnMut(u64, &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Option<io::Result<()>>,
) -> io::Result<Sample> {
    let (mut lane, meter) = (Lane::all(job, 1)?.remove(0), Meter::start());
    while let Some(offset) = lane.next() {
        get(offset / PAGE, &mut |page| lane.take(page))
            .ok_or_else(|| io::Error::other("a page is not in the cache although there is room for all"))??;
    }
    meter.lanes([Ok(lane)])
}
