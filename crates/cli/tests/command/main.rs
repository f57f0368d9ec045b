//! Command: the built binary, run as a user runs it.

#![forbid(unsafe_code)]

mod alignment;
mod bench;
mod cache;
mod cat;
mod cat_lines;
mod cat_suite;
mod closed;
mod cp;
mod cp_access;
mod cp_in_place;
mod cp_limits;
mod cp_source;
mod cp_sparse;
mod cp_sync;
mod cp_tree;
mod doctor;
mod foreign;
mod inputs;
mod little_memory;
mod manual;
mod names;
mod nop;
mod random_suite;
mod readahead;
mod report;
mod scan;
mod scan_tags;
mod stat;
mod trace;
mod tune;
mod tune_memory;
mod ubc;
mod wide;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

fn headwater() -> Command {
    Command::new(env!("CARGO_BIN_EXE_headwater"))
}

fn run(arguments: &[&str]) -> Output {
    headwater().args(arguments).output().expect("the binary starts")
}

/// A copy of the command, which other users may run. Another process makes it: children of other tests would inherit the descriptor
/// that it is written by, and a file that is open for writing cannot be run.
fn copy_command(to: &Path) {
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_headwater")).arg(to).status().unwrap().success());
}

/// A PATH in which a shell script, whose version is 0.1, comes before all other programs of its name.
fn with_program(folder: &Path, name: &str, script: &str) -> OsString {
    let folder = folder.join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(name);
    let script = format!("#!/bin/sh\ncase \"$*\" in *--version) echo {name} 0.1; exit;; esac\n{script}\n");
    // By another process, as in `copy_command`.
    let mut write = Command::new("sh");
    write.args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(&program).arg(script);
    assert!(write.status().unwrap().success());
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&others))).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The option that writes JSON to a file.
fn to_json(path: &str) -> String {
    format!("--json={path}")
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// One line on standard error that begins like all of ours and names what is wrong; no panic.
fn assert_one_line(output: &Output, named: &str) {
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("headwater: ") && said.contains(named), "{said}");
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {said}", output.status);
    assert!(!said.contains("panicked") && !said.contains('\x1b'), "{said}");
}
