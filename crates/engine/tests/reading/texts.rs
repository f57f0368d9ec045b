//! Texts: what errors and handles print, in logs, at the end of `main` and in failed assertions.
//!
//! Owns: that each is short, says what a user asks for, and says it once.
//! Does not own: which operation, path and offset an error has (see where it is provoked).

use std::error::Error as _;
use std::io::{self, Read, Write};

use headwater::{Caching, Error, File, IoMode, OpenOptions};
use headwater_testkit::ScratchDir;

use crate::rig::rigs;

/// Goal: an error prints one line with operation, file, place and cause, by `{}` and by `{:?}`, and a reporter that prints the whole
/// chain says no cause twice; also as the error of `std::io`. Method: failures of several kinds, and such a reporter.
#[test]
fn errors_print_one_line_and_each_cause_once() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "contents").unwrap();
    for rig in rigs(1) {
        let file = rig.open(&path, IoMode::Auto);
        let missing = OpenOptions::new().engine(&rig.engine).open(directory.path().join("missing"));
        let refused = file.write_at(b"x", 0);
        let ended = file.read_exact_at(&mut [0; 9], 0);
        let built = headwater::Engine::builder().memory(1).build();
        let failures: [(Error, &str); 4] = [
            (missing.unwrap_err(), "No such file"),
            (refused.unwrap_err(), "not open for writing"),
            (ended.unwrap_err(), "ends here"),
            (built.unwrap_err(), "MiB"),
        ];
        for (error, cause) in failures {
            let text = error.to_string();
            assert!(text.contains(cause) && !text.contains('\n'), "{text}");
            assert_eq!(format!("{error:?}"), text);
            assert_eq!(chain(&error).matches(cause).count(), 1, "{}", chain(&error));
            assert!(text.ends_with(&error.io_error().to_string()), "{text}");
            let fields = format!("{error:#?}");
            assert!(fields.contains("operation: ") && fields.contains("io_error: "), "{fields}");
            let converted = io::Error::from(error);
            assert_eq!(converted.to_string(), text);
            assert_eq!(chain(&converted).matches(cause).count(), 1, "{}", chain(&converted));
        }
        drop(file);
        rig.assert_idle();
    }
}

/// All that a reporter prints which follows `source`.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        text.push('\n');
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Goal: a failed `main` of a program shows the line that the error's text is. Method: what the standard library's `Termination` prints,
/// which is the `Debug` of the error behind a word of its own.
#[test]
fn main_that_fails_prints_the_text() {
    let error = File::open("/nowhere").unwrap_err();
    assert!(error.source().is_none());
    assert_eq!(format!("Error: {error:?}"), "Error: open /nowhere: No such file or directory (os error 2)");
}

/// Goal: files, readers and writers print path, length, mode and position in a line, before their first use and after it, with bytes
/// that the device lacks; and printing changes nothing that is counted.
#[test]
fn handles_print_a_line() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    for rig in rigs(2) {
        std::fs::write(&path, "contents").unwrap();
        let line = |value: &dyn std::fmt::Debug, parts: &[&str]| {
            let text = format!("{value:?}");
            assert!(text.len() < 300 + path.as_os_str().len() && !text.contains('\n'), "{text}");
            let name = format!("{path:?}");
            for part in parts.iter().copied().chain([name.as_str()]) {
                assert!(text.contains(part), "{part} is not in {text}");
            }
        };
        let read = rig.open(&path, IoMode::Buffered);
        let before = rig.engine.stats().cache.counts;
        line(&read, &["File { ", "length: 8", "read: true", "write: false", "io: Buffered", "direct: false"]);
        assert_eq!(rig.engine.stats().cache.counts, before);
        let mut reader = read.reader();
        reader.read_exact(&mut [0; 3]).unwrap();
        line(&reader, &["Reader { position: 3", "length: 8"]);
        line(&read.async_reader(), &["AsyncReader { position: 0", "length: 8"]);
        line(&read.stream(), &["ByteStream { position: 0", "length: 8"]);
        let mut options = OpenOptions::new();
        let written = options.engine(&rig.engine).write(true).caching(Caching::On).open(&path).unwrap();
        written.write_all_at(b"longer", 8).unwrap();
        line(&written, &["length: 14", "write: true", "io: Auto"]);
        let mut writer = written.writer();
        writer.write_all(b"12345").unwrap();
        line(&writer, &["Writer { position: 5", "length: 14", "write: true"]);
        line(&written.async_writer(), &["AsyncWriter { position: 0", "length: 14"]);
        let appending = OpenOptions::new().engine(&rig.engine).append(true).open(&path).unwrap();
        line(&appending, &["write: true", "append: true"]);
        drop((reader, writer, read, written, appending));
        rig.assert_idle();
    }
    let text = format!("{:?}", File::from_bytes("in memory"));
    assert_eq!(text, r#"File { path: "<memory>", length: 9, read: true, write: false }"#);
}

/// Goal: an engine prints driver and memory in a line, as do the options that name it.
#[test]
fn engines_print_a_line() {
    for rig in rigs(3) {
        let text = format!("{:?}", rig.engine);
        assert!(text.len() < 300 && !text.contains('\n'), "{text}");
        for part in ["Engine { driver: ", rig.name(), "memory_bytes: 6291456", "dirty_pages: 0"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let mut options = OpenOptions::new();
        assert!(format!("{:?}", options.engine(&rig.engine)).contains(&text[..20]));
        rig.assert_idle();
    }
}
