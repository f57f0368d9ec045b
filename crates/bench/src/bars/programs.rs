//! Programs: the commands of headwater against other programs that do the same.
//!
//! Owns: command lines, the tree that is hashed, that all print the same, fio's grid that `tune` is held against.
//! Does not own: `cat` to /dev/null (`headwater bench cat`), the search of `tune` (the command's).

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

use headwater::testing::children_cpu_time;
use headwater_measure::{Figures, child};
use headwater_testkit::Rng;
use serde::Deserialize;

use super::reading;
use crate::contest::Contest;
use crate::setup::Bench;
use crate::tools;

/// To /dev/null as the suite measures it, cold and warm, and warm into a pipe.
pub(super) fn cat<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let mut contest = Contest::default();
    let (cold, warm) = (&*bench.options.file, bench.warm_file());
    contest.several("headwater bench cat", move || {
        let mut runs = reading::suite(bench, cold, "", &["cat"])?;
        if warm != cold {
            runs.retain(|(name, _)| name.starts_with("cold"));
            let of_warm = reading::suite(bench, warm, "", &["cat"])?;
            runs.extend(of_warm.into_iter().filter(|(name, _)| name.starts_with("warm")));
        }
        Ok(runs)
    });
    let length_bytes = warm.metadata()?.len();
    let pipe = |tool: &Path, verb: &str| {
        // The status is that of the last command: a cat that fails is known by what comes out of it.
        let command = format!("[ \"$(\"$1\" {verb} \"$2\" | wc -c)\" -eq {length_bytes} ]");
        let tool = tool.to_owned();
        move || {
            tools::make_warm(warm)?;
            tools::shell(&command, &[tool.as_os_str(), warm.as_os_str()], length_bytes)
        }
    };
    let options = bench.options;
    contest.way("headwater into a pipe", pipe(&options.headwater, "cat"));
    contest.way("GNU into a pipe", pipe(&options.gnu_cat, ""));
    match Command::new(&options.uutils).arg("--help").output() {
        Ok(_) => contest.way("uutils into a pipe", pipe(&options.uutils, "cat")),
        Err(_) => contest.skip("uutils cat", &"not found; cargo install coreutils, or --uutils"),
    }
    Ok(contest)
}

/// `headwater scan --hash blake3` and b3sum over small files.
pub(super) fn hash_tree<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let tree = bench.path("tree");
    let (files, length_bytes) = make_tree(&tree)?;
    let named = |first: &[&OsStr]| {
        let first = first.iter().map(|word| (*word).to_owned());
        first.chain(files.iter().map(|path| path.clone().into_os_string())).collect()
    };
    let (b3sum, sh) = (&*bench.options.b3sum, Path::new("sh"));
    let together = ["-c", TOGETHER].map(OsStr::new).into_iter().chain([b3sum.as_os_str()]);
    let theirs = [
        ("b3sum", b3sum, named(&[])),
        ("b3sum --no-mmap", b3sum, named(&["--no-mmap".as_ref()])),
        ("b3sum --no-mmap, xargs -P", sh, named(&together.collect::<Vec<_>>())),
    ];
    hash(bench, &tree, Hashed { files, length_bytes }, theirs)
}

/// The same over one large file.
pub(super) fn hash_file<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let file = &bench.options.file;
    let hashed = Hashed { files: vec![file.clone()], length_bytes: file.metadata()?.len() };
    let b3sum = &*bench.options.b3sum;
    let theirs = [
        ("b3sum", b3sum, vec![file.into()]),
        ("b3sum --no-mmap", b3sum, vec!["--no-mmap".into(), file.into()]),
    ];
    hash(bench, file, hashed, theirs)
}

/// Several at once, as is usual for a tree; their lines in the order of the names.
const TOGETHER: &str =
    r#"printf '%s\0' "$@" | xargs -0 -n 200 -P "$(nproc)" "$0" --no-mmap | LC_ALL=C sort -k 2"#;

struct Hashed {
    files: Vec<PathBuf>,
    length_bytes: u64,
}

/// All of them read the files cold and print the same lines.
fn hash<'a, const RIVALS: usize>(
    bench: &'a Bench<'a>,
    path: &Path,
    hashed: Hashed,
    rivals: [(&'static str, &'a Path, Vec<OsString>); RIVALS],
) -> io::Result<Contest<'a>> {
    let (mut contest, options) = (Contest::default(), bench.options);
    if Command::new(&options.b3sum).arg("--version").output().is_err() {
        contest.skip("b3sum", &"not found; cargo install b3sum, or --b3sum");
        return Ok(contest);
    }
    contest.note(format!("{} cold files, {} MiB", hashed.files.len(), hashed.length_bytes >> 20));
    let hashed = Rc::new(hashed);
    let ours = ["scan", "--hash", "blake3"].map(OsString::from).into_iter().chain([path.into()]);
    let ours = ("headwater", &*options.headwater, ours.collect());
    for (name, program, arguments) in [ours].into_iter().chain(rivals) {
        let hashed = Rc::clone(&hashed);
        contest.way(name, move || hashed.run(program, &arguments, &bench.path("lines")));
    }
    Ok(contest)
}

impl Hashed {
    /// What is printed is compared with what the run before left in `lines`, by whichever program.
    fn run(&self, program: &Path, arguments: &[OsString], lines: &Path) -> io::Result<Figures> {
        self.files.iter().try_for_each(|path| tools::make_cold(path))?;
        let printed = lines.with_extension("new");
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(File::create(&printed)?);
        let (cpu_before, start) = (children_cpu_time(), Instant::now());
        let status = command.status()?;
        let elapsed_s = start.elapsed().as_secs_f64();
        if !status.success() {
            return Err(io::Error::other(format!("{}: {status}", program.display())));
        }
        if lines.exists() && fs::read(lines)? != fs::read(&printed)? {
            return Err(io::Error::other(format!(
                "{} printed something else than the others",
                program.display()
            )));
        }
        fs::rename(printed, lines)?;
        let cpu_s = (children_cpu_time() - cpu_before).as_secs_f64();
        let mib_per_s = self.length_bytes as f64 / f64::from(1 << 20) / elapsed_s;
        let ms_each = elapsed_s * 1e3 / self.files.len() as f64;
        Ok(Figures::from([("mib_per_s", mib_per_s), ("cpu_s", cpu_s), ("ms_each", ms_each)]))
    }
}

/// In folders of a hundred, by name in the order in which a walk meets them; how many bytes they have together.
fn make_tree(tree: &Path) -> io::Result<(Vec<PathBuf>, u64)> {
    let (mut rng, mut files, mut length_bytes) = (Rng::new(1), Vec::with_capacity(FILES), 0);
    let mut bytes = vec![0; LENGTH_BYTES_MAX];
    for index in 0..FILES {
        let folder = tree.join(format!("{:02}", index / FILES_PER_FOLDER));
        if index % FILES_PER_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        let length = LENGTH_BYTES_MIN + rng.below((LENGTH_BYTES_MAX - LENGTH_BYTES_MIN) as u64 + 1) as usize;
        for chunk in bytes[..length].chunks_mut(8) {
            chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
        }
        let path = folder.join(format!("{index:05}"));
        File::create(&path)?.write_all(&bytes[..length])?;
        files.push(path);
        length_bytes += length as u64;
    }
    Ok((files, length_bytes))
}

/// What `headwater tune` chooses against the best of fio's whole grid, both measured by fio.
pub(super) fn tune<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let (mut contest, file) = (Contest::default(), &*bench.options.file);
    contest.rounds_at_least(TUNE_ROUNDS_MIN);
    let (highest, best) = best_of_grid(file)?;
    let mut command = Command::new(&bench.options.headwater);
    command.arg("tune").arg(file).args(["--dry-run", "--json"]).stdin(Stdio::null());
    let tuned: Tuned = child::result(&mut command, None)?;
    let chosen = tuned.sequential.chosen;
    contest.note(format!(
        "tune chose {}; the best of fio's grid of {} was {} at {highest:.0} MiB/s",
        chosen.words(),
        SIZES_KIB.len() * DEPTHS.len(),
        best.words()
    ));
    for (name, setting) in [("headwater's choice, in fio", chosen), ("the best of fio's grid", best)] {
        contest.way(name, move || {
            tools::make_cold(file)?;
            let figures = tools::fio(file, &setting.fio(COMPARED_SECONDS))?;
            Ok(figures.with("queue_kib", (setting.size_bytes * setting.depth) as f64 / 1024.0))
        });
    }
    Ok(contest)
}

/// Each setting once, in a short run; the highest rate in MiB/s.
fn best_of_grid(file: &Path) -> io::Result<(f64, Setting)> {
    tools::make_cold(file)?;
    let mut best = (0.0, Setting { size_bytes: 0, depth: 0 });
    for size_kib in SIZES_KIB {
        for depth in DEPTHS {
            let setting = Setting { size_bytes: size_kib << 10, depth };
            let rate = tools::fio(file, &setting.fio(GRID_SECONDS))?.get("mib_per_s");
            if rate > best.0 {
                best = (rate, setting);
            }
        }
    }
    Ok(best)
}

#[derive(Deserialize)]
struct Tuned {
    sequential: Grid,
}

#[derive(Deserialize)]
struct Grid {
    chosen: Setting,
}

#[derive(Deserialize, Clone, Copy)]
struct Setting {
    size_bytes: u64,
    depth: u64,
}

impl Setting {
    fn fio(self, seconds: f64) -> Vec<String> {
        vec![
            "--rw=read".to_owned(),
            format!("--bs={}", self.size_bytes),
            format!("--iodepth={}", self.depth),
            "--mem=mmaphuge".to_owned(),
            "--time_based".to_owned(),
            format!("--runtime={}ms", (seconds * 1000.0) as u64),
        ]
    }

    fn words(self) -> String {
        format!("{} KiB x {}", self.size_bytes >> 10, self.depth)
    }
}

const FILES: usize = 10_000;
const FILES_PER_FOLDER: usize = 100;

/// What source trees, mail and small pictures are made of.
const LENGTH_BYTES_MIN: usize = 4 << 10;
const LENGTH_BYTES_MAX: usize = 64 << 10;

const SIZES_KIB: [u64; 10] = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

const DEPTHS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Seventy settings in a minute and a half, fio's own start included.
const GRID_SECONDS: f64 = 1.0;

const COMPARED_SECONDS: f64 = 2.0;

/// The bar is narrow.
const TUNE_ROUNDS_MIN: u32 = 5;
