//! Tune: that a device is measured, its profile stored, shown, used and removed, and what cannot be tuned is said.
//!
//! Owns: fields, files, what is refused.
//! Does not own: which setting is chosen (the search's own tests).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use headwater_testkit::{FileSystem, LoopMount, PATIENCE, Pattern, ScratchDir, skip, tmpfs};
use serde_json::Value;

use crate::{assert_one_line, headwater, text, to_json, utf8};

/// Where profiles go in a test: never to those of the user.
struct Home {
    scratch: ScratchDir,
    /// On the device.
    place: PathBuf,
}

impl Home {
    fn new() -> Home {
        let scratch = ScratchDir::on_target().unwrap();
        let place = scratch.path().join("place");
        fs::create_dir(&place).unwrap();
        Home { scratch, place }
    }

    fn profiles(&self) -> PathBuf {
        self.scratch.path().join("headwater").join("profiles.json")
    }

    fn tune(&self, arguments: &[&str]) -> Output {
        let mut command = headwater();
        command.arg("tune").args(arguments);
        command.env_remove("HEADWATER_PROFILES").env("XDG_CONFIG_HOME", self.scratch.path());
        command.output().expect("the binary starts")
    }

    /// With success; its standard output.
    fn tuned(&self, arguments: &[&str]) -> String {
        let output = self.tune(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
        let out = text(&output.stdout);
        assert!(!out.contains('\x1b'), "{out}");
        out
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A map with so many sizes and depths, a choice within, and rates for some cells.
fn assert_grid(grid: &Value) {
    let (sizes, depths) = (grid["sizes_bytes"].as_array().unwrap(), grid["depths"].as_array().unwrap());
    let cells = grid["cells"].as_array().unwrap();
    assert!(!cells.is_empty() && cells.len() <= sizes.len() * depths.len(), "{grid}");
    for cell in cells {
        assert!(sizes.contains(&cell["size_bytes"]) && depths.contains(&cell["depth"]), "{cell}");
        assert!(cell["mib_per_s"].as_f64().unwrap() > 0.0, "{cell}");
    }
    let chosen = &grid["chosen"];
    let is_chosen =
        |cell: &&Value| cell["size_bytes"] == chosen["size_bytes"] && cell["depth"] == chosen["depth"];
    assert_eq!(cells.iter().filter(is_chosen).count(), 1, "{grid}");
    let number = |field: &str| chosen[field].as_u64().unwrap();
    assert_eq!(number("queue_bytes"), number("size_bytes") * number("depth"));
    assert!(chosen["share_of_best"].as_f64().unwrap() >= 0.97, "{chosen}");
    let fio = chosen["fio"].as_str().unwrap();
    assert!(
        fio.contains(&format!("--iodepth={}", number("depth"))) && fio.contains("--mem=mmaphuge"),
        "{fio}"
    );
}

/// Goal: a directory is measured, its profile stored under a key, shown and removed, and nothing is left in it.
#[test]
fn a_directory() {
    let home = Home::new();
    let svg = home.scratch.path().join("map.svg");
    let out = home.scratch.path().join("out.json");
    let place = utf8(&home.place);
    let shown = home.tuned(&[
        "--seconds",
        "1",
        "--size",
        "16M",
        "--write",
        "--svg",
        utf8(&svg),
        &to_json(utf8(&out)),
        place,
    ]);
    for word in
        ["sequential reads", "random reads", "sequential writes", "chosen: ", "for headwater: ", "memory: "]
    {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    assert!(shown.contains("latency of random reads") && shown.contains("st_blksize"), "{shown}");
    let results = json(&fs::read_to_string(&out).unwrap());
    assert_eq!((&results["suite"], &results["bytes"]), (&"tune".into(), &(16 << 20).into()));
    for grid in ["sequential", "random", "write"] {
        assert_grid(&results[grid]);
    }
    assert_eq!(results["latency"].as_array().unwrap().len(), 7);
    assert_eq!(fs::read_dir(&home.place).unwrap().count(), 0, "nothing is left");
    let drawing = fs::read_to_string(svg).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.trim_end().ends_with("</svg>"), "{drawing}");
    if results["device"]["key"].is_null() {
        return skip("the device has no key");
    }
    let stored = json(&fs::read_to_string(home.profiles()).unwrap());
    let profile = &stored["profiles"][results["device"]["key"].as_str().unwrap()];
    assert_eq!(profile["sequential"]["depth"], results["sequential"]["chosen"]["depth"]);
    assert_eq!(profile["write"]["size_bytes"], results["write"]["chosen"]["size_bytes"]);
    assert!(home.tuned(&["--show"]).contains("sequential reads: "));
    assert_eq!(json(&home.tuned(&["--show", "--json"])), stored);
    assert!(home.tuned(&["--reset", place]).starts_with("1 removed"));
    assert!(home.tuned(&["--reset", place]).starts_with("0 removed"));
    assert!(home.tuned(&["--show"]).starts_with("no profiles in "));
}

/// Goal: a file is only read; a dry run and profiles that are off store nothing; JSON takes the place of the text.
#[test]
fn a_file_and_nothing_stored() {
    let home = Home::new();
    let path = home.place.join("file");
    Pattern::new(3).write_file(&path, (3 << 20) + 123).unwrap();
    let results = json(&home.tuned(&["--seconds", "1", "--dry-run", "--json", utf8(&path)]));
    assert_eq!((&results["made_for_this"], &results["stored_in"]), (&false.into(), &Value::Null));
    assert_grid(&results["sequential"]);
    assert!(!home.profiles().exists());
    let bytes = fs::read(&path).unwrap();
    assert_eq!(Pattern::new(3).mismatch(0, &bytes), None);
    let mut off = headwater();
    off.args(["tune", "--seconds", "1", utf8(&path)]).env("HEADWATER_PROFILES", "off");
    let output = off.env("XDG_CONFIG_HOME", home.scratch.path()).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("nothing was stored"), "{output:?}");
    assert!(!home.profiles().exists());
    assert_eq!(fs::read_dir(&home.place).unwrap().count(), 1, "only the file");
}

/// Goal: a file that no device has to read is no measure of a device: a note says so, and no profile is stored. Method: a sparse file, one
/// that was allocated and then looked at, and one of which the part that is read was written.
#[test]
fn holes_are_no_device() {
    let home = Home::new();
    let [sparse, allocated, written] = ["sparse", "allocated", "written"].map(|name| home.place.join(name));
    let length = 16 << 20;
    fs::File::create(&sparse).unwrap().set_len(length).unwrap();
    Pattern::new(3).write_file(&written, length).unwrap();
    fs::OpenOptions::new().append(true).open(&written).unwrap().set_len(2 * length).unwrap();
    let file = fs::File::create(&allocated).unwrap();
    let is_allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length).is_ok();
    fs::read(&allocated).unwrap();
    if fs::metadata(&sparse).unwrap().blocks() > 0 || !is_allocated {
        return skip("the file system has no holes, or allocates nothing");
    }
    for path in [&sparse, &allocated] {
        let shown = home.tuned(&["--seconds", "1", utf8(path)]);
        for words in ["16 MiB of the 16 MiB that were read are holes", "nothing was stored: reads of holes"] {
            assert!(shown.replace('\u{a0}', " ").contains(words), "{words} in {shown}");
        }
        assert!(!home.profiles().exists());
    }
    let shown = home.tuned(&["--seconds", "1", "--size", "16M", utf8(&written)]);
    assert!(!shown.contains("holes"), "{shown}");
}

/// Goal: what was measured is not lost where it cannot be stored. Method: profiles that another program replaces meanwhile, once the
/// place of theirs is there, and a device that is full.
#[test]
fn a_profile_that_cannot_be_stored_costs_no_results() {
    let home = Home::new();
    let out = home.scratch.path().join("out.json");
    let mut command = headwater();
    command.args(["tune", "--seconds", "1", "--size", "16M", "--svg", "/dev/full", &to_json(utf8(&out))]);
    let folder = home.scratch.path().join("profiles");
    let profiles = folder.join("headwater.json");
    command.arg(&home.place).env("HEADWATER_PROFILES", &profiles);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while !folder.exists() {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    fs::write(&profiles, "mine").unwrap();
    let output = child.wait_with_output().unwrap();
    let results = json(&fs::read_to_string(&out).unwrap());
    if results["device"]["key"].is_null() {
        return skip("the device has no key");
    }
    assert_one_line(&output, "failed to read the profiles in ");
    assert_eq!(fs::read(&profiles).unwrap(), b"mine");
    assert_one_line(&output, "failed to write /dev/full");
    assert!(text(&output.stdout).contains("nothing was stored: failed to read"), "{output:?}");
    assert_grid(&results["sequential"]);
}

/// Goal: memory is no device: the sweep of memory is there, nothing else, and nothing is stored.
#[test]
fn memory_file_systems() {
    let home = Home::new();
    let scratch = match tmpfs() {
        Ok(scratch) => scratch,
        Err(reason) => return skip(reason),
    };
    let results = json(&home.tuned(&["--seconds", "1", "--json", utf8(scratch.path())]));
    assert_eq!((&results["sequential"], &results["device"]["nature"]), (&Value::Null, &"memory".into()));
    assert!(!results["memory"]["blocks"].as_array().unwrap().is_empty());
    assert!(results["notes"][0].as_str().unwrap().contains("made of memory"), "{results}");
    assert!(!home.profiles().exists());
}

/// Goal: what cannot be tuned for gets one line that says how to mend it, before anything is measured.
#[test]
fn what_cannot_be_tuned_for() {
    let home = Home::new();
    let fifo = home.place.join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let (empty, small) = (home.place.join("empty"), home.place.join("small"));
    fs::write(&empty, "").unwrap();
    fs::write(&small, "abc").unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["/nowhere"], "No such file"),
        (&["/dev/zero"], "a character device"),
        (&[utf8(&fifo)], "a FIFO"),
        (&[utf8(&empty)], "empty"),
        (&[utf8(&small)], "give its directory instead"),
        (&["--seconds", "0"], "1 to 3600"),
        (&["--seconds", "nan"], "1 to 3600"),
        (&["--all"], "--reset"),
        (&["--svg", "/nowhere/out.svg"], "No such file"),
    ];
    for (arguments, named) in cases {
        assert_one_line(&home.tune(arguments), named);
    }
    let broken = home.profiles();
    fs::create_dir_all(broken.parent().unwrap()).unwrap();
    fs::write(&broken, "mine").unwrap();
    assert_one_line(&home.tune(&["--show"]), "remove that file");
    assert_one_line(&home.tune(&[utf8(&home.place)]), "remove that file");
    assert!(home.tuned(&["--reset", "--all"]).starts_with("0 removed"));
    assert!(home.tuned(&["--show"]).starts_with("no profiles in "));
}

/// Goal: a full file system is told with what to do, and a small one gets a smaller scratch file.
#[test]
fn little_room() {
    let home = Home::new();
    let mount = match LoopMount::new(FileSystem::Ext4, 128 << 20) {
        Ok(mount) => mount,
        Err(reason) => return skip(reason),
    };
    let results = json(&home.tuned(&["--seconds", "4", "--dry-run", "--json", utf8(mount.path())]));
    let bytes = results["bytes"].as_u64().unwrap();
    assert!((16 << 20..64 << 20).contains(&bytes), "{bytes}");
    fill(&mount.path().join("filling"));
    assert_one_line(&home.tune(&["--seconds", "1", utf8(mount.path())]), "give a file to read instead");
}

/// Until there is no room for more.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[7; 1 << 20]).is_ok() {}
    let _ = file.sync_all();
}

#[test]
fn help_has_examples() {
    let help = text(&headwater().args(["tune", "--help"]).output().unwrap().stdout);
    assert!(help.contains("Examples:\n  headwater tune") && help.contains("HEADWATER_PROFILES"), "{help}");
    assert!(!help.contains('\x1b'), "{help}");
}

/// Goal: what was stored is what headwater's readers go by afterwards. Method: the engine's own limits, in this process.
#[test]
fn a_stored_profile_is_used() {
    let home = Home::new();
    let path = home.place.join("file");
    Pattern::new(3).write_file(&path, 8 << 20).unwrap();
    let results = json(&home.tuned(&["--seconds", "1", "--json", utf8(&path)]));
    if results["stored_in"].is_null() {
        return skip("the device has no key");
    }
    let engine = headwater::Engine::builder().profiles(headwater::Profiles::At(home.profiles()));
    let engine = engine.memory(1 << 30).build().unwrap();
    let file = headwater::OpenOptions::new().engine(&engine).open(&path).unwrap();
    let limits = file.readahead_limits().unwrap();
    assert_eq!(limits.size_bytes_max, results["sequential"]["chosen"]["size_bytes"].as_u64().unwrap());
}

/// Goal: that nothing can be stored is found out before anything is measured. Method: a place in which no file can be made.
#[test]
fn a_place_for_profiles_is_checked_first() {
    let mut command = headwater();
    command.args(["tune", "--seconds", "1", "."]).env("HEADWATER_PROFILES", "/proc/nowhere/profiles");
    let output = command.output().unwrap();
    assert_one_line(&output, "failed to store profiles in /proc/nowhere/profiles");
    assert!(text(&output.stderr).contains("--dry-run"), "{output:?}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
}
