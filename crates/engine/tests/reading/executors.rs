//! Executors: the same futures on tokio's two runtimes and on a loop of a few lines.
//!
//! Owns: that nothing here depends on a runtime; many reads at once.
//! Does not own: dropping (see `drops`).

use futures_util::io::AsyncReadExt;
use futures_util::{StreamExt, future};
use headwater::{AsyncReader, ByteStream, Caching, File, IoMode, OpenOptions, Reader};
use headwater_testkit::{Rng, with_seed};
use tokio::runtime::{Builder, Runtime};

use crate::rig::{Rig, Scratch, block_on, drivers, rigs};

/// Goal: 64 reads at once, more than there are slots, on every executor.
#[test]
fn many_reads_at_once() {
    with_seed("executors::many_reads_at_once", |seed| {
        let scratch = Scratch::new(seed, 2_000_000);
        for rig in rigs(seed) {
            let file = rig.open(&scratch.path(), IoMode::Direct);
            let all = || future::join_all((0..64).map(|number| read_some(&file, seed + number)));
            block_on(all()).into_iter().for_each(|read| read.check(&scratch));
            current_thread().block_on(all()).into_iter().for_each(|read| read.check(&scratch));
            let runtime = multi_thread();
            let tasks: Vec<_> =
                (0..64).map(|number| runtime.spawn(read_some(&file, seed + number))).collect();
            let results = runtime.block_on(future::join_all(tasks));
            results.into_iter().for_each(|read| read.unwrap().check(&scratch));
            rig.assert_idle();
        }
    });
}

struct Read {
    offset_bytes: u64,
    length: usize,
    bytes: bytes::Bytes,
}

impl Read {
    fn check(&self, scratch: &Scratch) {
        scratch.check_all(self.offset_bytes, self.length, &self.bytes);
    }
}

/// Goal: a task whose views are all in the cache lets others run, as one that reads does: after 8 MiB at the latest. Method: a
/// runtime of one thread, views of 1 MiB, and of files that are cached and not.
#[test]
fn warm_views_let_other_tasks_run() {
    with_seed("executors::warm_views_let_other_tasks_run", |seed| {
        let scratch = Scratch::new(seed, 1 << 20);
        for rig in rigs(seed) {
            for caching in [Caching::On, Caching::Off] {
                let mut options = OpenOptions::new();
                let file = options.engine(&rig.engine).caching(caching).open(scratch.path()).unwrap();
                current_thread().block_on(async {
                    let view = async || drop(file.view_async(0, 1 << 20).await.unwrap());
                    view().await;
                    let other = tokio::spawn(async {});
                    for _ in 0..16 {
                        view().await;
                    }
                    assert!(other.is_finished(), "16 views with {caching:?} on {}", rig.name());
                });
            }
            rig.assert_idle();
        }
    });
}

fn read_some(file: &File, seed: u64) -> impl Future<Output = Read> + Send + 'static + use<> {
    let (file, mut rng) = (file.clone(), Rng::new(seed));
    async move {
        let (offset_bytes, length) = (rng.below(2_000_000), rng.below(120_000) as usize);
        let bytes = file.read_at_async(offset_bytes, length).await.unwrap();
        // Lent memory is given back, since all 64 at once would be more than there is.
        Read { offset_bytes, length, bytes: bytes.to_vec().into() }
    }
}

/// Goal: readers and streams as tasks beside each other, moving between threads.
#[test]
fn readers_and_streams_as_tasks() {
    with_seed("executors::readers_and_streams_as_tasks", |seed| {
        let scratch = Scratch::new(seed, 1_500_000);
        for kind in drivers(seed) {
            let rig = Rig::sized(kind, 8 << 20, 8);
            let file = rig.open(&scratch.path(), IoMode::Direct);
            for runtime in [current_thread(), multi_thread()] {
                let reading: Vec<_> = (0..6).map(|_| runtime.spawn(read_all(file.async_reader()))).collect();
                let streaming: Vec<_> = (0..6).map(|_| runtime.spawn(stream_all(file.stream()))).collect();
                for contents in runtime.block_on(future::join_all(reading.into_iter().chain(streaming))) {
                    scratch.check_all(0, usize::MAX, &contents.unwrap());
                }
            }
            rig.assert_idle();
        }
    });
}

async fn read_all(mut reader: AsyncReader) -> Vec<u8> {
    let mut contents = Vec::new();
    reader.read_to_end(&mut contents).await.unwrap();
    contents
}

async fn stream_all(mut stream: ByteStream) -> Vec<u8> {
    let mut contents = Vec::new();
    while let Some(bytes) = stream.next().await {
        contents.extend_from_slice(&bytes.unwrap());
        tokio::task::yield_now().await;
    }
    contents
}

/// Everything may move between threads, and what has no state of its reader or writer is shared by them. A `PageRef` stays in its thread (it
/// counts there), and so does what belongs to a `LocalEngine`: examples that must not compile show it.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_send_and_sync<T: Send + Sync>() {}
    const fn is_sync<T: Sync>() {}
    is_sync::<headwater::PageRef<'_>>();
    is_send_and_sync::<headwater::Engine>();
    is_send_and_sync::<File>();
    is_send_and_sync::<headwater::Error>();
    is_send_and_sync::<headwater::EngineBuilder>();
    is_send_and_sync::<headwater::OpenOptions>();
    is_send_and_sync::<headwater::ReaderBuilder<'_>>();
    is_send_and_sync::<headwater::LocalEngines>();
    is_send_and_sync::<headwater::Task<()>>();
    is_send_and_sync::<headwater::EvictionListener>();
    is_send_and_sync::<headwater::View>();
    is_send_and_sync::<headwater::ContiguousView>();
    is_send_and_sync::<headwater::SharedView>();
    is_send_and_sync::<headwater::Profiles>();
    is_send_and_sync::<headwater::ring::Driver>();
    is_send_and_sync::<headwater::ring::Arena>();
    is_send_and_sync::<headwater::ring::OpenFile>();
    is_send_and_sync::<headwater::ring::Completion>();
    is_send_and_sync::<headwater::ring::Request>();
    is_send::<Reader>();
    is_send::<AsyncReader>();
    is_send::<ByteStream>();
    is_send::<headwater::Writer>();
    is_send::<headwater::AsyncWriter>();
    is_send::<headwater::ring::Batch>();
};

fn current_thread() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(3).build().unwrap()
}
