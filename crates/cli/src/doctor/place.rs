//! Place: what the file system and the device below a path allow.
//!
//! Owns: which facts there are, their words, how to mend them.
//! Does not own: how they are shown.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use headwater::Profiles;
use headwater::ring::{Access, DirectIo, OpenFile};
use headwater::testing::profiles::{Device, Nature, StoredProfiles};
use os_display::Quotable;

use super::{Fact, Verdict};
use crate::shared::storage::Storage;
use crate::shared::target::SIZE_BYTES_MIN;
use crate::shared::units::readable;

/// # Errors
/// One sentence for the user, if there is nothing at the path that can be read.
pub(super) fn facts(path: &Path) -> Result<Vec<Fact>, String> {
    let failed = |error: io::Error| format!("failed to look at {}: {error}", path.maybe_quote());
    let metadata = fs::metadata(path).map_err(failed)?;
    let kind = metadata.file_type();
    if !(kind.is_file() || kind.is_dir() || kind.is_block_device()) {
        return Err(failed(io::Error::other("it is neither a file nor a directory nor a block device")));
    }
    let file = File::open(path).map_err(failed)?;
    let device = Device::of(file.as_fd()).map_err(failed)?;
    let storage = Storage::of(path);
    let direct = direct(path, kind.is_dir());
    let tuning = Tuning::of(path, &metadata, &device, &direct);
    let mut facts = vec![below(&device), direct];
    facts.extend(polling(&storage));
    facts.extend(readahead(&storage));
    facts.push(profile(&device, &tuning));
    Ok(facts)
}

fn below(device: &Device) -> Fact {
    let found = [&device.file_system, &device.source, &device.model].map(String::as_str);
    let found = found.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
    let (follows, mend) = match device.nature {
        Nature::Disk => return Fact::good("file system", found),
        Nature::Memory => (
            "it lies in memory: nothing is gained by direct I/O, and what bench and tune measure is memory",
            "give a path on a disk; findmnt lists file systems and what they lie on",
        ),
        Nature::Network => (
            "another machine has the files: changes there are seen when it is asked, and what bench measures is the network \
             and the caches on its way",
            "to measure a disk, run this on the machine that has the files",
        ),
        Nature::Overlay => (
            "it lies upon other file systems: what bench measures is whichever of them has the file",
            "give a path in one of them: a volume, or upperdir= and lowerdir= in the options that findmnt shows",
        ),
        Nature::Other => (
            "a program answers for it, not a device: what bench measures is that program",
            "to measure a disk, give the path that this program reads",
        ),
    };
    Fact::limited("file system", found, follows).mended_by(mend)
}

fn direct(path: &Path, is_directory: bool) -> Fact {
    let scratch = is_directory.then(|| tempfile::tempfile_in(path));
    let target = match &scratch {
        Some(Ok(file)) => PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
        Some(Err(error)) => {
            return Fact::limited(
                "direct I/O",
                format!("unknown: no file can be made in this directory ({error})"),
                "whether its files can be read directly shows with each of them",
            )
            .mended_by("give a file in it");
        }
        None => path.to_owned(),
    };
    match OpenFile::open(&target, DirectIo::Required, Access::Read) {
        Ok(open) => {
            let words = open.direct().map_or("works".to_owned(), |alignment| {
                let (memory, offset) = (readable(alignment.memory.get()), readable(alignment.offset.get()));
                format!("works, memory aligned to {memory}, offsets to {offset}")
            });
            Fact::good("direct I/O", words)
        }
        Err(error) => Fact::limited(
            "direct I/O",
            format!("refused: {error}"),
            "files are read and written through the kernel's page cache, and copied from there",
        )
        .mended_by(
            "keep the files on ext4, XFS or Btrfs, without compression or encryption by the file system",
        ),
    }
}

fn polling(storage: &Storage) -> Option<Fact> {
    match storage.polls? {
        true => Some(Fact::good("polling", "the device completes polled I/O (EngineBuilder::polling)")),
        false => Some(
            Fact::good("polling", "not by this device: its requests end with an interrupt")
                .so("EngineBuilder::polling changes nothing here")
                .mended_by("nvme.poll_queues=4 on the kernel's command line, for an NVMe device"),
        ),
    }
}

fn readahead(storage: &Storage) -> Option<Fact> {
    let kib = storage.read_ahead_kb?;
    let found = format!("the kernel reads {kib} KiB ahead, for programs without headwater");
    let fact = Fact::good("readahead", found)
        .so("headwater reads ahead by itself, as far as the device gains from, whatever this says")
        .mended_by("blockdev --setra SECTORS DEVICE, in 512 bytes, for the other programs");
    Some(fact)
}

/// What `headwater tune` can do for a place.
enum Tuning {
    /// The command that measures the device.
    By(String),
    /// Why it would store nothing.
    No(&'static str),
}

impl Tuning {
    fn of(path: &Path, metadata: &Metadata, device: &Device, direct: &Fact) -> Tuning {
        match direct.verdict {
            _ if device.nature == Nature::Memory => {
                Tuning::No("there is no device below that could be measured")
            }
            Verdict::Good if device.key.is_none() => {
                Tuning::No("the system does not tell by what the device is known again")
            }
            Verdict::Good => {
                Tuning::By(format!("headwater tune {}", large_enough(path, metadata).maybe_quote()))
            }
            _ => Tuning::No("tune needs direct I/O in this place"),
        }
    }
}

/// The path itself, or the directory of a file that is too small to measure with.
fn large_enough<'a>(path: &'a Path, metadata: &Metadata) -> &'a Path {
    match path.parent() {
        Some(parent) if metadata.is_file() && metadata.len() < SIZE_BYTES_MIN => {
            if parent.as_os_str().is_empty() { Path::new(".") } else { parent }
        }
        _ => path,
    }
}

fn profile(device: &Device, tuning: &Tuning) -> Fact {
    let Some(file) = Profiles::Default.path() else {
        let is_off = std::env::var_os("HEADWATER_PROFILES").is_some_and(|value| value == "off");
        let why =
            if is_off { "HEADWATER_PROFILES is off" } else { "there is no home directory to keep it in" };
        return Fact::good("profile", format!("none: {why}"));
    };
    match StoredProfiles::load(&file) {
        Ok(stored) => match device.key.as_ref().and_then(|key| stored.profiles.get(key)) {
            Some(found) => {
                let setting = found.sequential;
                let size = readable(setting.size_bytes);
                Fact::good("profile", format!("measured: {} requests of {size} in flight", setting.depth))
            }
            None => match tuning {
                Tuning::By(command) => {
                    Fact::good("profile", "none: the defaults suit most devices").mended_by(command)
                }
                Tuning::No(why) => Fact::good("profile", format!("none: {why}")),
            },
        },
        Err(error) => Fact::limited(
            "profile",
            format!("{} cannot be used: {error}", file.maybe_quote()),
            "the defaults are used",
        )
        .mended_by(match tuning {
            Tuning::By(command) => format!("remove that file, then {command}"),
            Tuning::No(_) => "remove that file".to_owned(),
        }),
    }
}
