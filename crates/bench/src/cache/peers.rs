//! Peers: cache libraries, as their users would set them up, with room for all pages.
//!
//! Owns: filling them, a get of each: the value is held, not looked at, and given back.
//! Does not own: the loop.

use std::hint::black_box;
use std::io;

use foyer_memory::{EvictionConfig, LruConfig, S3FifoConfig};

use super::gets::{self, Gets};
use super::{Arm, ArmOptions, PAGE_BYTES, fill_page};

/// Pages held as `V`.
pub(super) fn measure<V>(options: &ArmOptions, arm: Arm) -> io::Result<Gets>
where
    V: From<Vec<u8>> + Clone + Send + Sync + 'static,
{
    match arm {
        Arm::QuickCache => quick_cache::<V>(options),
        Arm::FoyerS3fifo => foyer::<V>(options, S3FifoConfig::default().into()),
        Arm::FoyerLru => foyer::<V>(options, LruConfig::default().into()),
        Arm::Moka => moka::<V>(options),
        other => unreachable!("{other:?} is no cache library"),
    }
}

fn quick_cache<V>(options: &ArmOptions) -> io::Result<Gets>
where
    V: From<Vec<u8>> + Clone + Send + Sync,
{
    let cache: quick_cache::sync::Cache<u64, V> = quick_cache::sync::Cache::new(capacity(options));
    pages(options).for_each(|(key, page)| cache.insert(key, page));
    gets::measure(options, || |page| black_box(cache.get(&u64::from(page))).is_some())
}

fn foyer<V>(options: &ArmOptions, eviction: EvictionConfig) -> io::Result<Gets>
where
    V: From<Vec<u8>> + Send + Sync + 'static,
{
    let cache: foyer_memory::Cache<u64, V> =
        foyer_memory::CacheBuilder::new(capacity(options)).with_eviction_config(eviction).build();
    pages(options).for_each(|(key, page)| drop(cache.insert(key, page)));
    gets::measure(options, || |page| black_box(cache.get(&u64::from(page))).is_some())
}

fn moka<V>(options: &ArmOptions) -> io::Result<Gets>
where
    V: From<Vec<u8>> + Clone + Send + Sync + 'static,
{
    let cache: moka::sync::Cache<u64, V> = moka::sync::Cache::new(capacity(options) as u64);
    pages(options).for_each(|(key, page)| cache.insert(key, page));
    cache.run_pending_tasks();
    gets::measure(options, || |page| black_box(cache.get(&u64::from(page))).is_some())
}

/// Twice the pages: caches in parts evict where a part is full.
fn capacity(options: &ArmOptions) -> usize {
    2 * options.pages as usize
}

fn pages<V: From<Vec<u8>>>(options: &ArmOptions) -> impl Iterator<Item = (u64, V)> {
    (0..options.pages).map(|page| {
        let mut bytes = [0; PAGE_BYTES];
        fill_page(page, &mut bytes);
        (page.into(), V::from(bytes.to_vec()))
    })
}
