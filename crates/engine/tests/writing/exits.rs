//! Exits: a process that ends in an orderly way, without a word about what it has written.
//!
//! Owns: the child and its ways of ending.
//! Does not own: what a kill leaves (killed).

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::AsyncWriteExt;
use headwater::{Caching, Coherence, DriverKind, Engine, EvictionListener, File, IoMode, OpenOptions};
use headwater_testkit::{ScratchDir, block_on, skip, spawn_self_with_env, watched};

const CHILD: &str = "HEADWATER_TEST_EXITS";
const LINES: u32 = 5000;

/// Goal: what was not synced is written when the process ends: by `exit`, by the end of the test's process, with the file
/// closed, or leaked and so open for ever, or by an engine of the program's own that is never dropped.
#[test]
fn what_is_not_synced_is_written_at_the_end() {
    if let Ok(task) = std::env::var(CHILD) {
        return write_and_end(&task);
    }
    let directory = ScratchDir::on_target().unwrap();
    for way in ["exits", "leaks", "closes", "static"] {
        let path = directory.path().join(way);
        let task = format!("{way} {}", path.display());
        let name = "exits::what_is_not_synced_is_written_at_the_end";
        let status =
            watched(way, || spawn_self_with_env(name, CHILD, &task).wait_with_output().unwrap().status);
        assert_eq!(status.code(), Some(if way == "exits" { 3 } else { 0 }), "{way}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), contents(), "{way}");
    }
}

/// Goal: a process ends although a task that truncates its file is never polled again, and all bytes that the process wrote are
/// there, since the truncate did not happen. Method: whole MiBs, whose writes the truncate waits for, small parts before and behind them, and a
/// dropped writer of tasks, which waits for the truncate.
#[test]
fn a_truncate_that_was_left_keeps_no_process() {
    const CUT: &str = "HEADWATER_TEST_EXITS_CUT";
    const NAME: &str = "exits::a_truncate_that_was_left_keeps_no_process";
    const BEHIND: u64 = 40 << 20;
    if let Ok(path) = std::env::var(CUT) {
        let mut options = OpenOptions::new();
        let file = options.caching(Caching::On).write(true).create(true).truncate(true).open(path).unwrap();
        for place in 0..16 {
            file.write_all_at(&[7; 1 << 20], (2 * place + 1) << 20).unwrap();
            file.write_all_at(b"dirty", (2 * place) << 20).unwrap();
        }
        let mut truncate = Box::pin(file.set_len_async(4096));
        let polled = truncate.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut writer = file.async_writer().starting_at(BEHIND);
        block_on(writer.write_all(b"dropped")).unwrap();
        drop(writer);
        std::process::exit(if polled.is_pending() { 3 } else { 4 });
    }
    let directory = ScratchDir::on_target().unwrap();
    for round in 0..10 {
        let path = directory.path().join(round.to_string());
        let began = Instant::now();
        let child = || spawn_self_with_env(NAME, CUT, &path.display().to_string()).wait_with_output();
        let status = watched("a truncate that was left", child).unwrap().status;
        assert!(began.elapsed() < Duration::from_secs(30), "only the watch of the test ends it");
        if status.code() == Some(4) {
            // The device was faster than the truncate.
            continue;
        }
        assert_eq!(status.code(), Some(3));
        let found = std::fs::read(&path).unwrap();
        for place in 0..16 {
            let at = (2 * place) << 20;
            assert_eq!(&found[at..at + 5], b"dirty");
            assert!(found[at + (1 << 20)..at + (2 << 20)].iter().all(|&byte| byte == 7));
        }
        assert_eq!(found.get(BEHIND as usize..), Some(&b"dropped"[..]));
        return;
    }
    panic!("no truncate was left under way");
}

/// Goal: what threads that have ended had begun, a write behind the write call and a sync, is carried out, and reported to the thread that
/// goes on with it. Method: each begins in a thread that is gone before the result is asked for.
#[test]
fn threads_that_have_ended_wrote_and_synced() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    for (mode, round) in
        [IoMode::Auto, IoMode::Buffered].into_iter().flat_map(|mode| (1..5).map(move |round| (mode, round)))
    {
        let engine = Engine::builder().memory(64 << 20).build().unwrap();
        let mut options = OpenOptions::new();
        options.engine(&engine).caching(Caching::On).io(mode).write(true).create(true).truncate(true);
        let file = options.open(&path).unwrap();
        let bytes = vec![round; (24 << 20) + 777];
        let mut sync = Box::pin(file.sync_data_async());
        let polled = watched("a sync whose threads have ended", || {
            thread::scope(|scope| scope.spawn(|| file.write_all_at(&bytes, 0)).join()).unwrap().unwrap();
            let begin = || sync.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let begun = thread::scope(|scope| scope.spawn(begin).join()).unwrap();
            match begun {
                Poll::Ready(result) => result,
                Poll::Pending => block_on(sync),
            }
        });
        polled.unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes, "{mode:?}, round {round}");
    }
}

/// Goal: an engine whose last handle is dropped by its own background thread writes what is dirty before that drop returns.
/// Method: a listener that drops the last files, which that thread calls when a lease is broken.
#[test]
fn the_last_handle_goes_with_a_listener() {
    let directory = ScratchDir::on_target().unwrap();
    let (leased, dirty) = (directory.path().join("leased"), directory.path().join("dirty"));
    std::fs::write(&leased, [1; 10_000]).unwrap();
    let engine = Engine::builder().memory(4 << 20).driver(DriverKind::Threads).build().unwrap();
    let mut options = OpenOptions::new();
    options.engine(&engine).caching(Caching::On).coherence(Coherence::Leased);
    let reader = options.open(&leased).unwrap();
    reader.read_exact_at(&mut [0; 10_000], 0).unwrap();
    if reader.coherence() != Coherence::Leased {
        return skip("no leases here");
    }
    let writer = options.write(true).create(true).open(&dirty).unwrap();
    drop((engine, options));
    writer.write_all_at(&[7; 10_000], 0).unwrap();
    let (gone, heard) = channel();
    let last = Arc::new(Mutex::new(None));
    let guard = reader.on_evicted({
        let last = last.clone();
        move |_| {
            let all = last.lock().unwrap().take();
            if all.is_some() {
                drop::<Option<(File, File, EvictionListener)>>(all);
                gone.send(std::thread::current().name().map(str::to_owned)).unwrap();
            }
        }
    });
    *last.lock().unwrap() = Some((reader, writer, guard));
    // Waits until the lease is given up.
    drop(std::fs::OpenOptions::new().write(true).open(&leased).unwrap());
    let thread = watched("a last handle", || heard.recv()).unwrap();
    assert_eq!(thread.as_deref(), Some("headwater-maint"));
    assert!(std::fs::read(&dirty).unwrap() == [7; 10_000]);
}

fn contents() -> String {
    (0..LINES).map(|line| format!("line {line}\n")).collect()
}

fn write_and_end(task: &str) {
    let (way, path) = task.split_once(' ').unwrap();
    static OWN: OnceLock<Engine> = OnceLock::new();
    let mut options = OpenOptions::new();
    if way == "static" {
        options.engine(OWN.get_or_init(|| Engine::builder().memory(16 << 20).build().unwrap()));
    }
    let file = options.caching(Caching::On).write(true).create(true).open(path).unwrap();
    for line in 0..LINES {
        file.append(format!("line {line}\n").as_bytes()).unwrap();
    }
    match way {
        "exits" => std::process::exit(3),
        "leaks" | "static" => std::mem::forget(file),
        _ => drop(file),
    }
}
