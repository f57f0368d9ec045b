//! Follow: what is appended to a file, as `tail -f` shows it, without polling.
//!
//! `cargo run --release -p headwater --example follow -- /var/log/syslog`

use std::io::{self, Write};
use std::path::Path;

fn main() -> io::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: follow FILE"))?;
    follow(Path::new(&path), &mut io::stdout(), |_| true)
}

/// Writes what is appended from now on, as long as `goes_on` returns true for the bytes written so far.
fn follow(path: &Path, output: &mut dyn Write, goes_on: impl Fn(u64) -> bool) -> io::Result<()> {
    let file = headwater::File::open(path)?;
    let (mut known_bytes, mut written_bytes) = (file.len()?, 0);
    while goes_on(written_bytes) {
        let length_bytes = file.wait_for_growth(known_bytes, None)?;
        if length_bytes > known_bytes {
            let view = file.view(known_bytes, (length_bytes - known_bytes) as usize)?;
            view.chunks().try_for_each(|chunk| output.write_all(chunk))?;
            output.flush()?;
            written_bytes += view.len() as u64;
        }
        // A shorter file was truncated, and is followed from its new end.
        known_bytes = length_bytes;
    }
    Ok(())
}

#[test]
fn appended_lines_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, "before\n").unwrap();
    let (mut shown, begun) = (Vec::new(), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            for line in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                let mut log = std::fs::File::options().append(true).open(&path).unwrap();
                writeln!(log, "line {line}").unwrap();
            }
        });
        let end = (0..20).map(|line| format!("line {line}\n").len() as u64).sum();
        let is_first = std::cell::Cell::new(true);
        let goes_on = |written_bytes| {
            if is_first.take() {
                begun.wait();
            }
            written_bytes < end
        };
        follow(&path, &mut shown, goes_on).unwrap();
    });
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.starts_with("line 0\n") && shown.ends_with("line 19\n"), "{shown}");
}
