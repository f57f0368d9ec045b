//! Initramfs: the archive that the kernel unpacks before it starts `/init`.
//!
//! The format is cpio's `newc` (`Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel): for each
//! entry a header of fixed-width hexadecimal fields, the name, the data; names and data padded to four bytes.
//!
//! Owns: the format, and which libraries a program needs.
//! Does not own: what goes in.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// An archive under construction. Paths have no leading slash; folders on the way are added by themselves.
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    pub(crate) fn new() -> Archive {
        Archive { bytes: Vec::new(), entries: 0, folders: BTreeSet::new() }
    }

    pub(crate) fn add_folder(&mut self, path: &str) {
        if self.folders.insert(path.to_owned()) {
            self.add_parents(path);
            self.add(path, FOLDER | 0o755, NO_DEVICE, &[]);
        }
    }

    pub(crate) fn add_file(&mut self, path: &str, permissions: u32, contents: &[u8]) {
        self.add_parents(path);
        self.add(path, REGULAR | permissions, NO_DEVICE, contents);
    }

    /// `/dev/console`, which the kernel opens as the standard streams of `/init`.
    pub(crate) fn add_console(&mut self) {
        self.add_parents("dev/console");
        self.add("dev/console", CHARACTER_DEVICE | 0o600, CONSOLE, &[]);
    }

    /// A program, and the loader and libraries it is linked to, at the places where it looks for them.
    ///
    /// # Errors
    /// What reading the files reports.
    pub(crate) fn add_program(&mut self, path: &str, program: &Path) -> io::Result<()> {
        self.add_file(path, 0o755, &fs::read(program)?);
        for library in libraries_of(program)? {
            self.add_file(library.trim_start_matches('/'), 0o755, &fs::read(&library)?);
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, NO_DEVICE, &[]);
        self.bytes
    }

    fn add_parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.add_folder(parent);
        }
    }

    fn add(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.entries += 1;
        let length_bytes = u32::try_from(contents.len()).expect("files of 4 GiB do not fit the format");
        let (owner, group, links, modified, on_device, checksum) = (0, 0, 1, 0, (0, 0), 0);
        let fields = [
            self.entries,
            mode,
            owner,
            group,
            links,
            modified,
            length_bytes,
            on_device.0,
            on_device.1,
            device.0,
            device.1,
            path.len() as u32 + 1,
            checksum,
        ];
        self.bytes.extend_from_slice(b"070701");
        fields.iter().for_each(|field| self.bytes.extend_from_slice(format!("{field:08x}").as_bytes()));
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The loader and the libraries that a program is linked to.
pub(crate) fn libraries_of(program: &Path) -> io::Result<Vec<String>> {
    // A program that is linked to nothing makes ldd fail, and that is fine.
    let listed = Command::new("ldd").arg(program).env("LC_ALL", "C").output()?;
    Ok(libraries(&String::from_utf8_lossy(&listed.stdout)).into_iter().map(str::to_owned).collect())
}

/// The files that `ldd` lists: `name => /path (address)` and, for the loader, `/path (address)`.
fn libraries(listed: &str) -> Vec<&str> {
    let words = listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.collect()
}

const FOLDER: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// Major and minor number of an entry that is no device.
const NO_DEVICE: (u32, u32) = (0, 0);

/// `Documentation/admin-guide/devices.txt` of the kernel.
const CONSOLE: (u32, u32) = (5, 1);

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry {
        path: String,
        fields: Vec<u32>,
        contents: Vec<u8>,
    }

    /// A naive reader of the format.
    fn entries(archive: &[u8]) -> Vec<Entry> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < archive.len() {
            assert_eq!((&archive[at..at + 6], at % 4), (&b"070701"[..], 0));
            let digits = |field: usize| &archive[at + 6 + 8 * field..at + 14 + 8 * field];
            let value = |field| u32::from_str_radix(std::str::from_utf8(digits(field)).unwrap(), 16).unwrap();
            let fields: Vec<u32> = (0..13).map(value).collect();
            let name_end = at + 110 + fields[11] as usize;
            assert_eq!(archive[name_end - 1], 0);
            let start = name_end.next_multiple_of(4);
            let end = start + fields[6] as usize;
            let path = String::from_utf8(archive[at + 110..name_end - 1].to_vec()).unwrap();
            found.push(Entry { path, fields, contents: archive[start..end].to_vec() });
            at = end.next_multiple_of(4);
        }
        found
    }

    /// Goal: names and contents of all lengths come back, folders come before what is in them and once only, and the
    /// archive ends with its trailer.
    #[test]
    fn what_is_written_can_be_read() {
        let mut archive = Archive::new();
        archive.add_console();
        for length in 0..9 {
            archive.add_file(&format!("a/b/{}", "n".repeat(length + 1)), 0o644, &vec![7; length]);
        }
        let entries = entries(&archive.finish());
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths[..5], ["dev", "dev/console", "a", "a/b", "a/b/n"]);
        assert_eq!(paths.last(), Some(&"TRAILER!!!"));
        assert_eq!(entries[1].fields[1..2], [0o020_600]);
        assert_eq!(entries[1].fields[9..11], [5, 1]);
        assert_eq!(entries[2].fields[1], 0o040_755);
        for (length, entry) in entries[4..13].iter().enumerate() {
            assert_eq!((entry.path.len(), &entry.contents), (5 + length, &vec![7; length]));
            assert_eq!(entry.fields[1], 0o100_644);
        }
    }

    /// Goal: libraries and loader are taken from ldd's lines, and what has no file is not.
    #[test]
    fn libraries_are_listed() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                      \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f58)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f59)\n";
        assert_eq!(libraries(listed), ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(libraries("\tstatically linked\n").is_empty());
    }
}
