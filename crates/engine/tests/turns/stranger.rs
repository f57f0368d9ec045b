//! Stranger: a program that knows the standard library alone, and changes files as it is asked on its standard input.
//!
//! ```text
//!   "write 4095 2 17\n" ─► open, write, close ─► "ok 0\n"
//! ```
//!
//! The tests compile this file by itself (`foreign`), so nothing of headwater can be in it.
//!
//! Owns: what each command does. A command is answered when its last system call has returned.
//! Does not own: which commands are given.

mod contents;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

fn main() {
    let (mut stranger, mut output) = (Stranger::default(), io::stdout().lock());
    for command in io::stdin().lock().lines().map_while(Result::ok) {
        let answered = match stranger.obey(&command) {
            Ok(number) => writeln!(output, "ok {number}"),
            Err(error) => writeln!(output, "error {error}"),
        };
        if answered.and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

#[derive(Default)]
struct Stranger {
    path: PathBuf,
    /// Open for longer than a command.
    held: Option<Arc<File>>,
    /// Writes until it is asked to stop, and says what it wrote last.
    background: Option<(Arc<AtomicBool>, JoinHandle<io::Result<u64>>)>,
}

impl Stranger {
    fn obey(&mut self, command: &str) -> io::Result<u64> {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        if name == "file" {
            (self.path, self.held) = (PathBuf::from(rest), None);
            return Ok(0);
        }
        let numbers: Vec<u64> = rest.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        let bytes = |at: usize| contents::bytes(number(at + 1), number(at) as usize);
        match name {
            "hold" => self.held = Some(Arc::new(self.writable()?)),
            "release" => self.held = None,
            "write" => self.file()?.write_all_at(&bytes(1), number(0))?,
            "append" => return self.append(&bytes(0)),
            "length" => self.file()?.set_len(number(0))?,
            "sync" => self.file()?.sync_all()?,
            "replace" => self.replace(&bytes(0))?,
            "recreate" => self.recreate(&bytes(0))?,
            "seal" => return Ok(checksum(&fs::read(&self.path)?)),
            "lines" => self.append_lines(number(0), number(1))?,
            "pages" => self.begin_pages(number(0))?,
            "appends" => self.begin_appends(number(0), number(1).max(1) as usize)?,
            "stop" => return self.stop(),
            _ => return Err(io::Error::other(format!("there is no command {command:?}"))),
        }
        Ok(0)
    }

    fn writable(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.path)
    }

    fn file(&self) -> io::Result<Arc<File>> {
        match &self.held {
            Some(file) => Ok(file.clone()),
            None => self.writable().map(Arc::new),
        }
    }

    /// Returns where the bytes are.
    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        file.write_all(bytes)?;
        Ok(file.stream_position()? - bytes.len() as u64)
    }

    /// Writes a file beside, and gives it the name.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let beside = self.path.with_extension("beside");
        fs::write(&beside, bytes)?;
        fs::rename(&beside, &self.path)?;
        self.hold_again()
    }

    /// The file system is free to use the inode number again.
    fn recreate(&mut self, bytes: &[u8]) -> io::Result<()> {
        let is_held = self.held.take().is_some();
        fs::remove_file(&self.path)?;
        fs::write(&self.path, bytes)?;
        if is_held { self.obey("hold").map(drop) } else { Ok(()) }
    }

    fn hold_again(&mut self) -> io::Result<()> {
        if self.held.is_some() { self.obey("hold").map(drop) } else { Ok(()) }
    }

    fn append_lines(&self, count: u64, synced_every: u64) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        for number in 0..count {
            file.write_all(contents::line('s', number).as_bytes())?;
            if synced_every > 0 && number % synced_every == 0 {
                file.sync_data()?;
            }
        }
        Ok(())
    }

    /// Writes higher and higher numbers to one page until it is asked to stop.
    fn begin_pages(&mut self, page: u64) -> io::Result<()> {
        let file = self.writable()?;
        self.begin(move |number| file.write_all_at(&contents::numbered_page(number), page * 4096));
        Ok(())
    }

    /// Appends lines until it is asked to stop, each after others had the chance of a turn.
    fn begin_appends(&mut self, synced_every: u64, repeated: usize) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        self.begin(move |number| {
            std::thread::yield_now();
            file.write_all(contents::line('s', number - 1).repeat(repeated).as_bytes())?;
            if synced_every > 0 && number % synced_every == 0 { file.sync_data() } else { Ok(()) }
        });
        Ok(())
    }

    fn begin(&mut self, mut step: impl FnMut(u64) -> io::Result<()> + Send + 'static) {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while number == 0 || !over.load(Ordering::Relaxed) {
                number += 1;
                step(number)?;
            }
            Ok(number)
        });
        self.background = Some((is_over, thread));
    }

    fn stop(&mut self) -> io::Result<u64> {
        let Some((is_over, thread)) = self.background.take() else { return Ok(0) };
        is_over.store(true, Ordering::Relaxed);
        thread.join().map_err(|_| io::Error::other("it panicked"))?
    }
}

/// FNV-1a of the bytes.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}
