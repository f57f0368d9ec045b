//! First: what an engine without a number takes at the beginning, and what it may have in the end.
//!
//! Owns: the ceiling of the default, that its first page costs little.
//! Does not own: time, which a benchmark measures.

use std::path::PathBuf;

use headwater::testing::SimOptions;
use headwater::{Caching, DriverKind, Elasticity, Engine, OpenOptions};
use headwater_testkit::{Pattern, ScratchDir, make_cold, run_self_with_env};

/// Goal: an engine that follows the system may have all memory of the machine; one that cannot has 64 MiB; a number is a number.
#[test]
fn the_default_is_what_the_machine_has() {
    let ceiling = |engine: Engine| engine.info().memory_bytes;
    let default = ceiling(Engine::builder().build().unwrap());
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10;
    assert_eq!(default, total);
    let sim = DriverKind::Sim(SimOptions::hostile(1));
    assert_eq!(ceiling(Engine::builder().driver(sim).build().unwrap()), 64 << 20);
    assert_eq!(ceiling(Engine::builder().elasticity(Elasticity::Off).build().unwrap()), 64 << 20);
    assert_eq!(Engine::builder().local().unwrap().info().memory_bytes, 64 << 20);
    assert_eq!(ceiling(Engine::builder().memory(5 << 20).build().unwrap()), 5 << 20);
}

/// Goal: a program that reads one page pays for about one page. Method: its anonymous resident memory before and after, in a child.
#[test]
fn the_first_page_is_small() {
    if let Some(path) = std::env::var_os(CHILD) {
        let before_kib = anonymous_kib();
        let engine = Engine::builder().build().unwrap();
        let file = OpenOptions::new().engine(&engine).caching(Caching::On).open(PathBuf::from(path)).unwrap();
        file.read_exact_at(&mut [0; 4096], 1 << 20).unwrap();
        let taken_kib = anonymous_kib() - before_kib;
        let stats = engine.stats();
        println!("{taken_kib} KiB");
        assert!(taken_kib < 1024, "{taken_kib} KiB for one page: {stats:?}");
        assert!(stats.cache.metadata_bytes < 256 << 10, "{stats:?}");
        return;
    }
    let scratch = ScratchDir::on_target().unwrap();
    let path = scratch.path().join("file");
    Pattern::new(3).write_file(&path, 8 << 20).unwrap();
    make_cold(&std::fs::File::open(&path).unwrap()).unwrap();
    let output = run_self_with_env("first::the_first_page_is_small", CHILD, path.to_str().unwrap());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

const CHILD: &str = "HEADWATER_TEST_FIRST";
