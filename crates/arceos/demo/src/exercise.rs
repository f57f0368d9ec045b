//! Exercise: writing through the cache and past it in a real kernel, against a plain buffer, and what the file system has afterwards.
//!
//! Owns: what is done to the file, and the comparison.
//! Does not own: measuring.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use ax_std::thread;
use axfs_ng_vfs::VfsResult;
use headwater_arceos::{ArceOs, CachedFile, FileBackend, PageCache, PageIndex, Settings, SyncScope, open_at};

use crate::arm::{locate, node};
use crate::layout::{WRITES_BYTES, WRITES_PATH, word};

/// Does several hundred random things to a file with a cache smaller than it, and compares each read, and in the end what
/// the file system itself reads.
pub fn exercise() -> Result<(), String> {
    let kernel = ArceOs::new(ax_hal::time::monotonic_time);
    let cache = PageCache::new(kernel, Settings::new(MEMORY_BYTES)).map_err(|error| format!("{error}"))?;
    let server = {
        let cache = cache.clone();
        thread::spawn(move || cache.serve())
    };
    let result = operate(&cache);
    cache.stop();
    server.join().map_err(|_| "the task that serves has panicked")?;
    cache.check();
    result
}

fn operate(cache: &alloc::sync::Arc<PageCache<ArceOs>>) -> Result<(), String> {
    let location = locate(WRITES_PATH).map_err(|error| at("locate", error))?;
    let file = open_at(cache, &location).map_err(|error| at("open", error))?;
    if !open_at(cache, &location).is_ok_and(|again| again.ptr_eq(&file)) {
        return Err("a location was opened as two files".into());
    }
    let mut model = vec![0; WRITES_BYTES];
    file.read_at(&mut model, 0).map_err(|error| at("read", error))?;
    for step in 0..STEPS {
        operation(&file, &mut model, step).map_err(|error| format!("step {step}: {error:?}"))?;
        compare(&file, &model, step)?;
    }
    both_at_once(&file, &mut model)?;
    file.sync(SyncScope::All).map_err(|error| at("sync", error))?;
    let mut stored = vec![0; model.len() + 1];
    let length =
        node(WRITES_PATH).and_then(|node| node.read_at(&mut stored, 0)).map_err(|error| at("node", error))?;
    if stored[..length] != model {
        return Err(format!(
            "the file system has {length} other bytes than {} that were written",
            model.len()
        ));
    }
    Ok(())
}

fn operation(file: &CachedFile<ArceOs>, model: &mut Vec<u8>, step: usize) -> VfsResult<()> {
    let random = |index: usize, below: usize| word(SEED, step * 8 + index) as usize % below;
    let bytes = vec![step as u8; 1 + random(0, LENGTH_MAX)];
    match random(1, 8) {
        0 => {
            file.append(&bytes)?;
            model.extend_from_slice(&bytes);
        }
        1 => {
            let length = random(2, WRITES_BYTES);
            file.set_len(length as u64)?;
            model.resize(length, 0);
        }
        2 => file.sync(SyncScope::Data)?,
        3 if !model.is_empty() => file.mark_dirty(PageIndex::new(random(2, model.len()) as u64 / 4096))?,
        _ => {
            let offset = random(2, WRITES_BYTES);
            file.write_at(&bytes, offset as u64)?;
            model.resize(model.len().max(offset + bytes.len()), 0);
            model[offset..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
    Ok(())
}

/// Opens the file a second time, past the cache, while it is open through it. After each group of writes the handle that has not made the
/// last one reads them all, and then the other one, with the bytes around them.
fn both_at_once(file: &CachedFile<ArceOs>, model: &mut Vec<u8>) -> Result<(), String> {
    let handles =
        [("cached", FileBackend::Cached(file.clone())), ("direct", FileBackend::Direct(file.clone()))];
    file.set_len(WRITES_BYTES as u64).map_err(|error| at("truncate", error))?;
    model.resize(WRITES_BYTES, 0);
    for group in GROUPS {
        for &(writer, offset, length) in group {
            let bytes = vec![word(SEED, offset) as u8; length];
            let written =
                handles[writer].1.write_at(&bytes, offset as u64).map_err(|error| at("write", error))?;
            if written != length {
                return Err(at("write", "it took a part"));
            }
            model[offset..][..length].copy_from_slice(&bytes);
        }
        let last = group[group.len() - 1].0;
        for reader in [1 - last, last] {
            let (name, handle) = &handles[reader];
            let mut found = vec![0; BOTH_BYTES];
            let read = handle.read_at(&mut found, 0).map_err(|error| at("read", error))?;
            if found[..read] != model[..BOTH_BYTES] {
                return Err(format!("the {name} handle lacks something of {group:?}"));
            }
        }
    }
    Ok(())
}

/// A part that begins anywhere.
fn compare(file: &CachedFile<ArceOs>, model: &[u8], step: usize) -> Result<(), String> {
    let offset = word(SEED, step * 8 + 7) as usize % WRITES_BYTES;
    let mut found = vec![0; 3 * LENGTH_MAX];
    let read = file.read_at(&mut found, offset as u64).map_err(|error| at("read", error))?;
    let expected = &model[offset.min(model.len())..model.len().min(offset + found.len())];
    if found[..read] != *expected || file.len() != model.len() as u64 {
        return Err(format!("step {step}: {read} wrong bytes at {offset}, of {}", model.len()));
    }
    Ok(())
}

fn at(what: &str, error: impl core::fmt::Debug) -> String {
    format!("{what} of {WRITES_PATH}: {error:?}")
}

/// The least there is, and half of the file.
const MEMORY_BYTES: usize = 2 << 20;
const STEPS: usize = 300;
/// Handle, offset and length of writes that two handles make, 0 the cached one and 1 the direct one: each alone, then one over what the
/// other one has left in the same pages.
const GROUPS: [&[(usize, usize, usize)]; 6] = [
    &[(0, 4100, 3)],
    &[(1, 0, 4096)],
    &[(0, 8000, 9000), (1, 12_000, 9000)],
    &[(1, 20_479, 2), (0, 20_480, 5000)],
    &[(0, 20_000, 5000), (1, 24_000, 100)],
    &[(0, 1, 20_000)],
];
/// Past all of them, in the middle of a page.
const BOTH_BYTES: usize = 30_000;
/// Some are within a page, most are not.
const LENGTH_MAX: usize = 40_000;
const SEED: u64 = 0x7772_6974_6573;
