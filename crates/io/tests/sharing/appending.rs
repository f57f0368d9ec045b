//! Appending: several programs append to one file, and each line is there, whole and where it is said to be.
//!
//! ```text
//!   appender (std alone) × 2 ─┐
//!   child with an AppendFile ─┼─► one file ─► lines of each writer in order; those of this process at the places they got
//!   this process: 2 × 2 threads ─┘
//! ```
//!
//! Owns: the writers, and reading back what they wrote.
//! Does not own: engines.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use headwater_io::{
    Access, AppendFile, Appended, Creation, DirectIo, Driver, DriverKind, DriverOptions, OpenFile,
    SimControl, SimOptions,
};
use headwater_testkit::{FileSystem, LoopMount, ScratchDir, lack, run_forked, scratch_dirs, skip};

#[path = "appender.rs"]
mod appender;

const LINES: u64 = 10_000;

fn create(path: &Path) -> OpenFile {
    OpenFile::create(path, DirectIo::Preferred, Access::ReadWrite, Creation::New).unwrap()
}

/// The other program. `None` where there is no compiler.
fn compile(directory: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sharing/appender.rs");
    let (compiler, program) =
        (std::env::var_os("RUSTC").unwrap_or("rustc".into()), directory.join("appender"));
    let output = Command::new(compiler).args(["--edition", "2024", "-o"]).arg(&program).arg(source).output();
    match output {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => {
            lack(format!("rustc: {error}"));
            return None;
        }
    }
    Some(program)
}

/// Appends the lines of a writer, and gives their places.
fn append_lines(file: &AppendFile, writer: u64) -> Vec<Appended> {
    let append = |number| {
        let line = appender::line(writer, number);
        let appended = file.append(&line).unwrap();
        assert_eq!(appended.length_bytes, line.len());
        appended
    };
    (0..LINES).map(append).collect()
}

/// Goal: with seven writers in four processes at once, every line is in the file, whole, each writer's in order, and those of this
/// process are where they were said to be. Method: 10 000 lines of each, from some bytes to some pages, on every file system.
#[test]
fn every_line_is_there() {
    let programs = ScratchDir::on_target().unwrap();
    let program = compile(programs.path());
    for (name, directory) in scratch_dirs() {
        let path = directory.path().join("file");
        let file = create(&path);
        let children: Vec<_> = (program.iter().cycle())
            .zip(4..6)
            .map(|(program, writer)| {
                let (writer, lines) = (u64::to_string(&writer), LINES.to_string());
                Command::new(program).arg(&path).args([writer, lines]).spawn().unwrap()
            })
            .collect();
        let count = 4 + children.len() as u64 + 1;
        let files = [(); 2].map(|()| AppendFile::open(&file, &path).unwrap());
        let places: Vec<Vec<Appended>> = thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    scope.spawn({
                        let file = &files[writer as usize % 2];
                        move || append_lines(file, writer)
                    })
                })
                .collect();
            run_forked(|| drop(append_lines(&AppendFile::open(&file, &path).unwrap(), count - 1)));
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        for mut child in children {
            assert!(child.wait().unwrap().success(), "{name}");
        }
        let bytes = fs::read(&path).unwrap();
        check_lines(name, &bytes, count);
        for (writer, places) in (0..).zip(places) {
            for (number, place) in (0..).zip(places) {
                let (start, line) = (place.offset_bytes as usize, appender::line(writer, number));
                assert!(bytes[start..].starts_with(&line), "{name}: line {number} of writer {writer}");
            }
        }
    }
}

/// Every line is whole, and each writer's are in order, from the first to the last.
fn check_lines(name: &str, bytes: &[u8], writers: u64) {
    let mut next = vec![0; writers as usize];
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = std::str::from_utf8(line).unwrap();
        let mut words = text.split(' ').map(|word| word.parse::<u64>().ok());
        let (writer, number) = (words.next().flatten().unwrap(), words.next().flatten().unwrap());
        assert_eq!(number, next[writer as usize], "{name}: a line of writer {writer} is missing");
        assert!(line == appender::line(writer, number), "{name}: line {number} of writer {writer}");
        next[writer as usize] += 1;
    }
    assert_eq!(next, vec![LINES; writers as usize], "{name}");
}

/// Goal: on a full file system an append says how much of it was written and where, or that nothing was. Method: until it is full.
#[test]
fn a_full_file_system() {
    let place = match LoopMount::new(FileSystem::Ext4, 16 << 20) {
        Ok(place) => place,
        Err(reason) => return skip(format!("ext4: {reason}")),
    };
    let path = place.path().join("file");
    let file = create(&path);
    let append = AppendFile::open(&file, &path).unwrap();
    let (bytes, mut length_bytes) = (vec![7; 1_000_003], 0);
    loop {
        match append.append(&bytes) {
            Ok(appended) => {
                assert_eq!(appended.offset_bytes, length_bytes);
                length_bytes += appended.length_bytes as u64;
                assert_eq!(file.length_bytes().unwrap(), length_bytes);
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
                break;
            }
        }
    }
    assert_eq!(file.length_bytes().unwrap(), length_bytes);
    assert!(!length_bytes.is_multiple_of(bytes.len() as u64), "the last one was short");
}

/// Goal: appending needs neither the name nor the descriptor that the file was opened by; it is refused to children, and on what has no
/// end.
#[test]
fn what_an_append_file_is() {
    let directory = ScratchDir::on_target().unwrap();
    let path = directory.path().join("file");
    let file = OpenFile::open(
        &{
            drop(create(&path));
            path.clone()
        },
        DirectIo::Off,
        Access::Read,
    )
    .unwrap();
    fs::remove_file(&path).unwrap();
    let append = AppendFile::open(&file, &path).unwrap();
    assert_eq!(append.append(b"abc").unwrap(), Appended { offset_bytes: 0, length_bytes: 3 });
    assert_eq!(append.append(b"").unwrap(), Appended { offset_bytes: 3, length_bytes: 0 });
    run_forked(|| {
        assert_eq!(append.append(b"child").unwrap_err().kind(), io::ErrorKind::Unsupported);
    });
    assert_eq!(append.append(b"d").unwrap(), Appended { offset_bytes: 3, length_bytes: 1 });
    let zero = OpenFile::open("/dev/zero".as_ref(), DirectIo::Off, Access::ReadWrite).unwrap();
    let refused = AppendFile::open(&zero, "/dev/zero".as_ref()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}

/// Goal: the simulated device fails appends and fills up by them, and its log says where they went. Method: another descriptor appends in
/// between.
#[test]
fn a_simulated_device() {
    let (directory, control) = (ScratchDir::on_target().unwrap(), SimControl::default());
    let path = directory.path().join("file");
    let options = SimOptions { control: control.clone(), ..SimOptions::hostile(3) };
    let driver =
        Driver::new(&DriverOptions { kind: DriverKind::Sim(options), ..Default::default() }).unwrap();
    let file = create(&path);
    let append = AppendFile::open(&file, &path).unwrap();
    control.record();
    let place = |offset_bytes, length_bytes| Appended { offset_bytes, length_bytes };
    assert_eq!(driver.append_blocking(&append, &[1; 5000]).unwrap(), place(0, 5000));
    control.fail_at(0, libc::EIO);
    assert_eq!(driver.append_blocking(&append, &[2; 50]).unwrap_err().raw_os_error(), Some(libc::EIO));
    control.space_left(Some(100));
    assert_eq!(driver.append_blocking(&append, &[3; 150]).unwrap(), place(5000, 100));
    assert_eq!(driver.append_blocking(&append, &[4]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    control.space_left(None);
    append.append(b"past the device").unwrap();
    assert_eq!(driver.append_blocking(&append, &[5; 7]).unwrap(), place(5115, 7));
    let key = file.identity().unwrap().0;
    let event = |offset_bytes, bytes: &[u8], began| headwater_io::DeviceEvent::Write {
        file: key,
        offset_bytes,
        bytes: bytes.to_vec(),
        began,
        ended: Some(began + 1),
    };
    let expected = [event(0, &[1; 5000], 0), event(5000, &[3; 100], 2), event(5115, &[5; 7], 4)];
    assert_eq!(control.take_log(), expected);
    assert_eq!((control.writes(), control.written_bytes()), (3, 5107));
}
