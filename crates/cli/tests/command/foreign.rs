//! Foreign file systems: that figures and facts of files that lie on no disk of this machine come with a warning.

use std::fs;
use std::process::Command;

use headwater_testkit::{ScratchDir, skip, tmpfs};
use serde_json::Value;

use crate::{run, text, utf8};

/// Goal: on a disk there is no warning, in memory there is one.
#[test]
fn disks_and_memory_are_told_apart() {
    let scratch = ScratchDir::on_target().unwrap();
    let path = scratch.path().join("file");
    fs::write(&path, "abc").unwrap();
    let entries: Value = serde_json::from_slice(&run(&["stat", "--json", utf8(&path)]).stdout).unwrap();
    let storage = entries[0]["file_system"].as_str().unwrap();
    if ["ext4", "xfs", "btrfs"].contains(&storage) {
        assert_eq!(entries[0]["warning"], Value::Null, "{entries}");
    }
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let path = scratch.path().join("file");
    fs::write(&path, "abc").unwrap();
    let said = text(&run(&["stat", utf8(&path)]).stdout);
    assert!(said.contains("  warning     tmpfs is made of memory: what is read comes from memory"), "{said}");
}

/// Goal: on an overlay, as in containers, `stat` and `bench cat` warn as `tune` does. Method: a mount in a namespace of its own, which goes
/// with its last process.
#[test]
fn overlays_are_warned_of() {
    let scratch = ScratchDir::on_target().unwrap();
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| {
        let path = scratch.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    });
    fs::write(lower.join("file"), vec![7; 2 << 20]).unwrap();
    let (program, merged) = (env!("CARGO_BIN_EXE_headwater"), utf8(&merged));
    let layers = format!("lowerdir={},upperdir={},workdir={}", utf8(&lower), utf8(&upper), utf8(&work));
    let in_overlay = |commands: &str| {
        let script = format!(
            "mount -t overlay -o '{layers}' overlay '{merged}' || exit 99; cd '{merged}'; {commands}"
        );
        Command::new("unshare").args(["-m", "sh", "-c", &script]).output()
    };
    match in_overlay("true") {
        Ok(output) if output.status.success() => {}
        Ok(output) => return skip(format!("no overlay can be mounted: {}", text(&output.stderr).trim())),
        Err(error) => return skip(format!("unshare: {error}")),
    }
    let output =
        in_overlay(&format!("'{program}' stat file; '{program}' stat --json file >stat.json")).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected =
        "overlay lies upon other file systems: what is read comes from whichever of them has the file";
    assert!(
        text(&output.stdout).contains(&format!("  warning     {expected}\n")),
        "{}",
        text(&output.stdout)
    );
    let entries: Value = serde_json::from_slice(&fs::read(upper.join("stat.json")).unwrap()).unwrap();
    assert_eq!(entries[0]["warning"], expected);
    let measured =
        "note: overlay lies upon other file systems: what was measured is whichever of them has the file";
    for command in [
        "bench cat --rounds 1 --file file",
        "bench scan --rounds 1 --size 1M --dir .",
        "tune --seconds 1 --dry-run file",
    ] {
        let output = in_overlay(&format!("'{program}' {command}")).unwrap();
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(measured), "{command}: {}", text(&output.stdout));
    }
}
