//! Little memory: every command in a cgroup with less of it than a machine has.
//!
//! Owns: that the kernel kills none of them, and that what does not fit is said.
//! Does not own: how engines keep within their budget (see the engine's tests).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use headwater_testkit::{MemoryCgroup, Pattern, ScratchDir, make_cold, skip};
use serde_json::Value;

use crate::{text, utf8};

const PATTERN: Pattern = Pattern::new(17);

/// More than any of the cgroups has.
const FILE_BYTES: u64 = 96 << 20;

/// A folder with the large file `in`, and `trace`.
fn scratch() -> ScratchDir {
    let scratch = ScratchDir::on_target().unwrap();
    let path = scratch.path().join("in");
    PATTERN.write_file(&path, FILE_BYTES).unwrap();
    make_cold(&fs::File::open(path).unwrap()).unwrap();
    let accesses = (0..20_000).map(|number| format!("{number},{},4096\n", number * 7919 % 5000));
    fs::write(scratch.path().join("trace"), "time,obj_id,size\n".to_owned() + &accesses.collect::<String>())
        .unwrap();
    scratch
}

/// Runs it in a cgroup of its own, which it enters before it becomes the command. `None` where there are no cgroups.
fn run_within(limit_bytes: u64, arguments: &str, folder: &Path) -> Option<Output> {
    let cgroup = match MemoryCgroup::new(limit_bytes) {
        Ok(cgroup) => cgroup,
        Err(reason) => {
            skip(reason);
            return None;
        }
    };
    let line = format!("echo $$ > {}/cgroup.procs && exec \"$HEADWATER\" {arguments}", utf8(cgroup.path()));
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).current_dir(folder).env("HEADWATER", env!("CARGO_BIN_EXE_headwater"));
    let output = shell.env("HEADWATER_PROFILES", folder.join("profiles")).output().unwrap();
    println!("{arguments}: {}, {}", output.status, text(&output.stderr));
    assert_eq!(cgroup.kills(), 0, "{arguments} in {limit_bytes}: {}", text(&output.stderr));
    Some(output)
}

/// Goal: what reads and copies works within less memory than it reads.
#[test]
fn files_larger_than_memory() {
    let scratch = scratch();
    let commands = [
        "cat in > out",
        "cat --io direct --memory 1G in > out",
        "cat --io buffered in > out",
        "scan in",
        "scan --hash blake3 in in in in",
        "cp in out",
        "cp --verify --sync --queue-depth 256 in out",
        "stat in",
        "trace replay --cache 4M,64M,1G --readahead adaptive trace",
    ];
    for limit_mib in [64, 24] {
        for command in commands {
            let Some(output) = run_within(limit_mib << 20, command, scratch.path()) else { return };
            assert!(output.status.success(), "{command}: {}", text(&output.stderr));
            if command.ends_with("out") {
                let copied = fs::read(scratch.path().join("out")).unwrap();
                assert_eq!(
                    (copied.len() as u64, PATTERN.mismatch(0, &copied)),
                    (FILE_BYTES, None),
                    "{command}"
                );
            }
        }
    }
}

/// Goal: tuning measures what fits into the memory there is, and says what it left out.
#[test]
fn tuning_within_little_memory() {
    let scratch = scratch();
    let command = "tune --seconds 4 --write --json --size 32M in";
    let Some(output) = run_within(64 << 20, command, scratch.path()) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes = report["notes"].to_string();
    if report["sequential"].is_null() {
        return skip(notes);
    }
    assert!(notes.contains("memory are left here"), "{notes}");
    let cells = report["sequential"]["cells"].as_array().unwrap();
    let queue_bytes = |cell: &Value| cell["size_bytes"].as_u64().unwrap() * cell["depth"].as_u64().unwrap();
    let most = cells.iter().map(queue_bytes).max().unwrap();
    assert!((8 << 20..=48 << 20).contains(&most), "{most}: {cells:?}");
    // With still less there is nothing to compare.
    let output = run_within(20 << 20, command, scratch.path()).unwrap();
    assert!(!output.status.success() && text(&output.stderr).contains("give its cgroup more"), "{output:?}");
}

/// Goal: a simulation that outgrows the memory says so, and how to make it smaller. Method: half a million pages in sixteen caches.
#[test]
fn simulations_within_little_memory() {
    let scratch = scratch();
    let accesses: String = (0..500_000).map(|number| format!("{number},{number},4096\n")).collect();
    fs::write(scratch.path().join("trace"), "time,obj_id,size\n".to_owned() + &accesses).unwrap();
    let command = "trace replay --cache 2G,4G,8G,16G trace";
    let Some(output) = run_within(64 << 20, command, scratch.path()) else { return };
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("fewer policies and sizes at a time"), "{}", text(&output.stderr));
    let output = run_within(64 << 20, "trace replay --cache 64M --policy lru trace", scratch.path()).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Goal: measurements fit, or say why they do not.
#[test]
fn measurements_within_little_memory() {
    let scratch = scratch();
    let commands = [
        "bench scan --rounds 1 --file in --size 8M",
        "bench cache --rounds 1 --seconds 0.01 --set 8M --file in",
        "bench readahead --rounds 1 --size 8M --places 100 --file in",
        "bench ubc --rounds 1 --size 8M --file in",
        "bench cat --rounds 1 --size 8M --warm 8M",
        "bench random --rounds 1 --seconds 0.01 --file in",
        "bench nop --seconds 0.01",
        "bench scan --rounds 1 --file in --memory 1G --queue-depth 512",
        "bench cache --rounds 1 --seconds 0.01 --set 90M --file in",
        "bench ubc --rounds 1 --size 90M --file in --queue-depth 512",
    ];
    for command in commands {
        let Some(output) = run_within(64 << 20, command, scratch.path()) else { return };
        assert!(output.status.success() || text(&output.stderr).contains("memory"), "{command}: {output:?}");
    }
}
