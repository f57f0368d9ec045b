//! Trace: that a replay counts what a naive cache counts, in both formats, and names what is wrong with a file.
//!
//! Owns: counts against a list of pages, JSON against the table, errors.
//! Does not own: which policy is good.

use std::fs;
use std::path::PathBuf;

use headwater_testkit::{Trace, TraceShape};
use serde_json::Value;

use crate::{assert_one_line, run, text, to_json, utf8};

const CACHE_PAGES: u64 = 100;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, contents).unwrap();
        path
    }
}

fn pages() -> Vec<u64> {
    let shape = TraceShape { cache_pages: CACHE_PAGES, pages: 1000, skew: 0.9 };
    Trace::ZipfThenScans.accesses(shape, 1).take(5000).map(|page| page >> 16).collect()
}

fn oracle_general(pages: &[u64]) -> Vec<u8> {
    let record = |page: &u64| {
        let (time, size, next) = (7_u32.to_le_bytes(), 512_u32.to_le_bytes(), (-1_i64).to_le_bytes());
        [&time[..], &page.to_le_bytes(), &size, &next].concat()
    };
    pages.iter().flat_map(record).collect()
}

/// A list of pages, the one used last at its end.
fn lru_misses(pages: &[u64]) -> u64 {
    let (mut cached, mut misses) = (Vec::new(), 0);
    for page in pages {
        match cached.iter().position(|other| other == page) {
            Some(position) => drop(cached.remove(position)),
            None => misses += 1,
        }
        cached.push(*page);
        if cached.len() as u64 > CACHE_PAGES {
            cached.remove(0);
        }
    }
    misses
}

fn replay(trace: &str, json: &str, more: &[&str]) -> (String, Vec<Value>) {
    let output = run(&[&["trace", "replay", trace, &to_json(json)], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    let results: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    (text(&output.stdout), results["rows"].as_array().unwrap().clone())
}

/// Goal: both formats, all policies and several sizes; LRU misses as a naive one does, and a cache that holds
/// everything misses each page once.
#[test]
fn both_formats_count_the_same() {
    let (place, pages) = (Place::new(), pages());
    let lines: String = pages.iter().map(|page| format!("0,{page},4096,r\n")).collect();
    let binary = place.file("trace.bin", oracle_general(&pages));
    let csv = place.file("trace.csv", format!("time,obj_id,size,op\n{lines}"));
    let json = place.0.path().join("out.json");
    let (table, rows) = replay(utf8(&binary), utf8(&json), &["--cache", "400K,64M"]);
    let (_, rows_of_csv) = replay(utf8(&csv), utf8(&json), &["--cache", "400K,64M", "--policy", "all"]);
    assert_eq!(rows, rows_of_csv);
    let policies: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, [["clock2q+", "clock", "s3-fifo", "lru"]; 2].concat());
    assert_eq!(rows[3]["misses"], lru_misses(&pages));
    let distinct = pages.iter().collect::<std::collections::HashSet<_>>().len();
    assert!(rows[4..].iter().all(|row| row["misses"] == distinct), "{table}");
    for row in &rows {
        assert_eq!((&row["requests"], &row["page_accesses"]), (&5000.into(), &5000.into()));
        assert_eq!((&row["device_reads"], &row["pages_read"]), (&row["misses"], &row["misses"]));
        assert!(table.contains(&row["misses"].to_string()), "{table}");
    }
}

/// Goal: requests of several pages: reads merge, sectors are 512 bytes, whole writes read nothing.
#[test]
fn requests_of_several_pages() {
    let place = Place::new();
    let json = place.0.path().join("out.json");
    let trace = place.file("trace.csv", "lbn,size,op\n16,4096,r\n0,20480,r\n80,8192,w\n");
    let (table, rows) = replay(utf8(&trace), utf8(&json), &["--cache", "1M", "--policy", "clock2q+"]);
    assert_eq!(rows.len(), 1, "{table}");
    let count = |field: &str| rows[0][field].as_u64().unwrap();
    assert_eq!((count("requests"), count("page_accesses"), count("misses")), (3, 8, 7));
    assert_eq!((count("device_reads"), count("pages_read")), (3, 5));
    assert_eq!(rows[0]["miss_ratio"], 7.0 / 8.0);
}

/// Goal: readahead turns the misses of a scan into pages used, and says what it wasted; a name that is none is refused.
#[test]
fn readahead() {
    let place = Place::new();
    let json = place.0.path().join("out.json");
    let lines: String = (0..2000).map(|page| format!("{},4096,r\n", page * 4096)).collect();
    let trace = place.file("trace.csv", format!("offset,size,op\n{lines}"));
    for readahead in ["linux", "adaptive", "fixed:32"] {
        let more = ["--cache", "16M", "--policy", "clock2q+", "--readahead", readahead];
        let (table, rows) = replay(utf8(&trace), utf8(&json), &more);
        let count = |field: &str| rows[0][field].as_u64().unwrap();
        assert!(table.contains(&format!("readahead {readahead}")), "{table}");
        assert_eq!((count("misses"), count("used_pages"), count("unused_pages")), (1, 1999, 0), "{table}");
        assert_eq!(count("pages_read"), 1 + count("read_ahead_pages"));
        assert!(count("device_reads") < 200, "{table}");
    }
    let wrong = run(&["trace", "replay", utf8(&trace), "--cache", "1M", "--readahead", "fixed:0"]);
    assert_one_line(&wrong, "off, linux, adaptive or fixed:N");
}

/// Goal: a file that cannot be replayed is refused in one line that says where and why, and no JSON is left behind.
#[test]
fn broken_traces_are_named() {
    let place = Place::new();
    let whole = oracle_general(&[1, 2, 3]);
    let mut foreign = whole.clone();
    foreign[24 + 20] = 0x12;
    let cases: [(&[u8], &[&str], &str); 10] = [
        (&whole[..67], &[], "the record at byte 48 is cut off, 5 of its 24 bytes are missing"),
        (&foreign, &[], "the record at byte 24 says"),
        (b"", &[], "it is empty"),
        (b"offset,size\n", &[], "it holds no request"),
        (b"offset,size\n0,4096\n4096,x\n", &[], "line 3: size \"x\" is no number"),
        (b"offset,size\n0,4096\n\xff\xfe,1\n", &[], "line 3 is no text"),
        (b"some text\n", &[], "line 1: it needs a column offset, lbn or obj_id"),
        (b"offset,size\n0,1\n", &["--format", "oracle-general"], "try --format csv"),
        (&whole, &["--format", "csv"], "try --format oracle-general"),
        (&[0x28, 0xb5, 0x2f, 0xfd, 1], &[], "zstd -d"),
    ];
    let json = place.0.path().join("out.json");
    for (contents, more, expected) in cases {
        let trace = place.file("trace", contents);
        let start = ["trace", "replay", utf8(&trace), "--cache", "1M", &to_json(utf8(&json))];
        let output = run(&[&start, more].concat());
        assert_one_line(&output, expected);
        assert_one_line(&output, utf8(&trace));
        assert_eq!(text(&output.stdout), "");
        assert!(!json.exists());
    }
}

/// Goal: a command line that makes no sense, and files that are not there.
#[test]
fn wrong_arguments_are_named() {
    let place = Place::new();
    let trace = place.file("trace", oracle_general(&[1]));
    let trace = utf8(&trace);
    assert_one_line(&run(&["trace", "replay", "/nowhere", "--cache", "1M"]), "failed to open /nowhere");
    assert_one_line(&run(&["trace", "replay", utf8(place.0.path()), "--cache", "1M"]), "Is a directory");
    assert_one_line(&run(&["trace", "replay", trace]), "--cache");
    assert_one_line(&run(&["trace", "replay", trace, "--cache", "1M,2"]), "a cache has from 40K to 8T");
    assert_one_line(&run(&["trace", "replay", trace, "--cache", "1M", "--policy", "mru"]), "clock2q+");
    assert_one_line(
        &run(&["trace", "replay", trace, "--cache", "1M", "--json=/nowhere/out"]),
        "failed to open /nowhere/out",
    );
}

/// Goal: the help has examples and says what a column means.
#[test]
fn help_explains_the_formats() {
    let output = run(&["trace", "replay", "--help"]);
    let help = text(&output.stdout);
    for wanted in ["Examples:", "oracle-general", "obj_id", "sectors", "clock2q+"] {
        assert!(help.contains(wanted), "{wanted} is missing in {help}");
    }
}

/// Goal: a trace may come by standard input, as from a program that decompresses it; a replay that nothing reads ends with its reader.
#[test]
fn a_trace_comes_and_goes_by_pipes() {
    let place = Place::new();
    let trace = place.file("trace", oracle_general(&pages()));
    let from = |line: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line]).env("PROGRAM", env!("CARGO_BIN_EXE_headwater")).current_dir(place.0.path());
        shell.output().unwrap()
    };
    let replay = "\"$PROGRAM\" trace replay --cache 1M,4M";
    let [named, piped] =
        [format!("{replay} trace"), format!("cat trace | {replay} -")].map(|line| from(&line));
    assert!(piped.status.success(), "{}", text(&piped.stderr));
    let rows = |said: &[u8]| text(said).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&piped.stdout), rows(&named.stdout));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = crate::headwater();
    command.args(["trace", "replay", "--cache", "1M", utf8(&trace)]).stdout(writer);
    assert_eq!(command.output().unwrap().status.code(), Some(141));
}
