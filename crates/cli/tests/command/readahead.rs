//! Readahead: that every order is read by every reader, in full, with the same bytes.
//!
//! Owns: rows, fields, what is said when a row is impossible.
//! Does not own: how much is read ahead.

use std::fs;
use std::path::Path;

use headwater_testkit::{Pattern, ScratchDir, skip, tmpfs};
use serde_json::Value;

use crate::{assert_one_line, copy_command, run, text, to_json, utf8};

fn readahead(arguments: &[&str], out: &Path) -> (String, Value) {
    let common = ["bench", "readahead", "--rounds", "1", &to_json(utf8(out))];
    let output = run(&[&common[..], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    (text(&output.stdout), serde_json::from_slice(&fs::read(out).unwrap()).unwrap())
}

fn rows<'a>(results: &'a Value, reader: &'a str) -> impl Iterator<Item = &'a Value> {
    results["rows"].as_array().unwrap().iter().filter(move |row| row["reader"] == reader)
}

/// Goal: every order by every reader, nothing read that is not counted. Method: 2 MiB of a file of odd length.
#[test]
fn table() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, out) = (scratch.path().join("file"), scratch.path().join("out.json"));
    Pattern::new(8).write_file(&path, (2 << 20) + 777).unwrap();
    let (table, results) = readahead(&["--file", utf8(&path), "--places", "20"], &out);
    assert_eq!((&results["suite"], &results["places"]), (&"readahead".into(), &20.into()));
    for reader in ["kernel", "headwater-off", "headwater-linux", "headwater"] {
        assert_eq!(rows(&results, reader).count(), 12);
    }
    for row in results["rows"].as_array().unwrap() {
        assert!(row["mib_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["reads"], row["reads_wanted"], "{row}");
        let jumps =
            ["stride-", "random-", "runs"].iter().any(|name| row["id"].as_str().unwrap().starts_with(name));
        assert!(!jumps || row["reads"].as_u64().unwrap() <= 20, "{row}");
        assert!(
            !row["reader"].as_str().unwrap().starts_with("headwater") || row["ratio"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
    let has_128 = rows(&results, "kernel-128k").count() == 12;
    assert!(has_128 || table.contains("note: no rows with a kernel readahead of 128 KiB: "), "{table}");
    assert!(table.contains("64 KiB into BLAKE3"), "{table}");
}

/// Goal: policies can be chosen, the last is compared with the kernel, and a name that is none is refused.
#[test]
fn policies() {
    let scratch = ScratchDir::on_target().unwrap();
    let (path, out) = (scratch.path().join("file"), scratch.path().join("out.json"));
    Pattern::new(8).write_file(&path, 1 << 20).unwrap();
    let arguments = ["--file", utf8(&path), "--places", "10", "--policy", "adaptive,fixed:16"];
    let (table, results) = readahead(&arguments, &out);
    assert_eq!(rows(&results, "headwater-fixed:16").count(), 12);
    assert_eq!((rows(&results, "headwater").count(), rows(&results, "headwater-off").count()), (12, 0));
    assert!(table.contains("fixed:16 : kernel"), "{table}");
    assert_one_line(&run(&["bench", "readahead", "--policy", "fixed:0"]), "fixed:N with N from 1 to 2048");
}

/// Goal: who may not change the kernel's readahead is told so, and gets the other rows.
#[test]
fn without_the_right_to_set_readahead() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become somebody else");
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let binary = place.path().join("headwater");
    copy_command(&binary);
    let mut command = std::process::Command::new(&binary);
    command.args(["bench", "readahead", "--size", "2M", "--rounds", "1", "--places", "20"]);
    let output = command.current_dir(place.path()).uid(65534).gid(65534).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("note: no rows with a kernel readahead of 128 KiB: "));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "only the binary");
}

/// Goal: where nothing can be made cold that is said.
#[test]
fn a_file_in_memory_is_not_cold() {
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let out = scratch.path().join("out.json");
    let (table, _) = readahead(&["--size", "1M", "--dir", utf8(scratch.path())], &out);
    assert!(table.contains("not all rows were cold"), "{table}");
}
