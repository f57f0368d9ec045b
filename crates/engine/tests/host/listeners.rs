//! Listeners: those of a program that panic, or use the file that they hear of.
//!
//! Owns: that the engine goes on.
//! Does not own: which pages they hear of (reading).

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use headwater::{Caching, Coherence, Engine, File, IoMode, OpenOptions};
use headwater_testkit::{PATIENCE, ScratchDir, block_on, skip, watched};

/// Goal: a listener that panics ends no thread of the engine's: what is dirty is still written, by itself. Method: a file under a lease
/// with such a listener, which the engine's own thread calls when another program writes; then a byte in another file.
#[test]
fn a_listener_that_panics_ends_no_thread() {
    watched("a_listener_that_panics_ends_no_thread", || {
        let directory = ScratchDir::on_target().unwrap();
        let (leased, written) = (directory.path().join("leased"), directory.path().join("written"));
        fs::write(&leased, vec![1; 100_000]).unwrap();
        let engine = Engine::builder().memory(16 << 20).build().unwrap();
        let mut options = OpenOptions::new();
        let file =
            options.engine(&engine).caching(Caching::On).coherence(Coherence::Leased).open(&leased).unwrap();
        let (told, counter) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
        let _guard = {
            let told = told.clone();
            file.on_evicted(move |_| {
                told.fetch_add(1 + counter.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                panic!("a listener that panics");
            })
        };
        wait_until("a lease", || file.coherence() == Coherence::Leased);
        file.read_exact_at(&mut [0; 100_000], 0).unwrap();
        let shell = Command::new("sh").arg("-c").arg("printf x >> \"$0\"").arg(&leased).status();
        assert!(shell.unwrap().success());
        wait_until("a call of the listener", || {
            _ = file.read_at(&mut [0; 1], 0).unwrap();
            told.load(Ordering::Relaxed) > 0
        });
        let writer = OpenOptions::new().engine(&engine).write(true).create(true).open(&written).unwrap();
        writer.write_all_at(b"X", 0).unwrap();
        wait_until("what was written", || fs::read(&written).unwrap() == b"X");
    });
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE / 2, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Goal: a listener may write to the file that it hears of, also when a truncate of that file has its pages leave, by a thread or by
/// a task.
#[test]
fn a_listener_of_a_truncate_may_append() {
    appended_to_in_a_truncate("a truncate by a thread", |file| file.set_len(10_000));
    appended_to_in_a_truncate("a truncate by a task", |file| block_on(file.set_len_async(10_000)));
}

fn appended_to_in_a_truncate(what: &str, truncate: fn(&File) -> headwater::Result<()>) {
    watched(what, || {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        let engine = Engine::builder().memory(16 << 20).build().unwrap();
        let mut options = OpenOptions::new();
        let file = options.engine(&engine).caching(Caching::On).write(true).create(true).open(&path).unwrap();
        file.write_all_at(&[7; 100_000], 0).unwrap();
        file.sync_all().unwrap();
        let other = file.clone();
        let guard = file.on_evicted(move |_| _ = other.append(b"cut").unwrap());
        truncate(&file).unwrap();
        drop(guard);
        file.sync_all().unwrap();
        let found = fs::read(&path).unwrap();
        assert!(found.len() > 10_000 && found[10_000..].chunks(3).all(|part| part == b"cut"));
    });
}

/// Goal: a listener may read a file while the thread that calls the listener has further writes to the same file to begin. Method: others
/// change a file of which several pages are dirty in part; each page leaves when it is written, and the listener reads all of them.
#[test]
fn a_listener_may_read_what_its_thread_writes() {
    const PAGE: u64 = 4096;
    watched("a_listener_may_read_what_its_thread_writes", || {
        let directory = ScratchDir::on_target().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let engine = Engine::builder().memory(16 << 20).build().unwrap();
        let mut options = OpenOptions::new();
        options.engine(&engine).caching(Caching::On).revalidate(Duration::ZERO).write(true);
        let file = options.open(&path).unwrap();
        file.read_exact_at(&mut [0; 1 << 20], 0).unwrap();
        let dirty = [10, 20, 30, 40];
        for page in dirty {
            file.write_all_at(&[1; 10], page * PAGE).unwrap();
        }
        let (other, calls) = (file.clone(), Arc::new(AtomicU64::new(0)));
        let counter = calls.clone();
        let guard = file.on_evicted(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            dirty.iter().for_each(|page| _ = other.read_at(&mut [0; 10], page * PAGE).unwrap());
        });
        fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[2; 10], 3 * PAGE).unwrap();
        file.sync_all().unwrap();
        assert!(calls.load(Ordering::Relaxed) > 0);
        drop(guard);
        let found = fs::read(&path).unwrap();
        assert!(dirty.iter().all(|page| found[(page * PAGE) as usize..][..10] == [1; 10]));
        assert_eq!(found[3 * PAGE as usize..][..10], [2; 10]);
    });
}

/// Goal: a listener may append to the file that it hears of, also when an append of that file has the last page leave.
#[test]
fn a_listener_of_an_append_may_append() {
    let hear = |file: &File| file.append(b"left").map(drop);
    watched("an append by a thread", || heard_of_appends(|file| file.append(b"line").map(drop), hear));
    watched("an append by a task", || {
        heard_of_appends(|file| block_on(file.append_async("line")).map(drop), hear);
    });
}

/// Goal: a listener may sync the file that it hears of, also from a durable append, which leads a sync for all that wait for one. Method: an
/// append to a page that is cached.
#[test]
fn a_listener_of_a_durable_append_may_sync() {
    watched("a_listener_of_a_durable_append_may_sync", || {
        heard_of_appends(|file| file.append_durable(b"line").map(drop), |file| file.sync_all());
    });
}

/// Appends to a file of which the last page is cached.
fn heard_of_appends(
    append: fn(&File) -> headwater::Result<()>,
    hear: impl Fn(&File) -> headwater::Result<()> + Send + Sync + 'static,
) {
    let directory = ScratchDir::on_target().unwrap();
    let engine = Engine::builder().memory(16 << 20).build().unwrap();
    let mut options = OpenOptions::new();
    options.engine(&engine).caching(Caching::On).read(true).append(true).create(true);
    let file = options.open(directory.path().join("log")).unwrap();
    let (other, (news, hears)) = (file.clone(), channel());
    let guard = file.on_evicted(move |_| news.send(hear(&other)).unwrap());
    for _ in 0..5 {
        append(&file).unwrap();
        file.read_at(&mut [0; 100], 0).unwrap();
    }
    drop(guard);
    let heard: Vec<_> = hears.iter().collect();
    assert!(heard.len() >= 4 && heard.iter().all(Result::is_ok), "{heard:?}");
}

/// Goal: a listener may append to a file for which room is made just then, by a thread or by a task. Method: a log in a small cache, with
/// lines of the program and of the listener, on a file that is read all over; the program appends, writes behind the end, or changes the length.
#[test]
fn a_listener_may_append_to_a_log() {
    lines_of_a_listener("lines of a thread", |log, line| log.append(line).map(drop));
    lines_of_a_listener("lines of a task", |log, line| block_on(log.append_async(line.to_vec())).map(drop));
    lines_of_a_listener("a task that writes behind the end", |log, line| {
        block_on(log.write_all_at_async(line.to_vec(), log.len()? + 10_000))
    });
    lines_of_a_listener("a task that truncates", |log, _| block_on(log.set_len_async(log.len()? / 2)));
}

fn lines_of_a_listener(what: &str, append: fn(&File, &[u8]) -> headwater::Result<()>) {
    watched(what, || {
        let directory = ScratchDir::on_target().unwrap();
        let (data, log) = (directory.path().join("data"), directory.path().join("log"));
        fs::write(&data, vec![1; 8 << 20]).unwrap();
        let engine = Engine::builder().memory(3 << 20).build().unwrap();
        let mut options = OpenOptions::new();
        let log = options.engine(&engine).caching(Caching::On).write(true).create(true).open(&log).unwrap();
        let mut options = OpenOptions::new();
        let data = options.engine(&engine).caching(Caching::On).io(IoMode::Direct).open(&data);
        let Ok(data) = data else { return skip("no direct I/O") };
        let (to, calls) = (log.clone(), Arc::new(AtomicU64::new(0)));
        let counter = calls.clone();
        let _guard = data.on_evicted(move |pages| {
            counter.fetch_add(1, Ordering::Relaxed);
            to.append(format!("{pages:?} left\n").as_bytes()).unwrap();
        });
        let mut buffer = vec![0; 4096];
        for round in 0..5000_u64 {
            data.read_exact_at(&mut buffer, round * 7919 % 2048 * 4096).unwrap();
            append(&log, &buffer).unwrap();
        }
        assert!(calls.load(Ordering::Relaxed) > 0);
    });
}
