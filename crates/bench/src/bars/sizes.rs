//! Sizes: `headwater cat` and `headwater cp` against GNU's, on files of all sizes, cold and warm.
//!
//! ```text
//!   sizes × states × programs: file cold or warm ─► a process from its start to its end ─► runs a second
//! ```
//!
//! Owns: the files, command lines, how a run is timed.
//! Does not own: large files (`programs`, `write`), rounds and verdicts (contest).

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

use headwater::testing::children_cpu_time;
use headwater_measure::Figures;
use headwater_testkit::Rng;

use crate::contest::Contest;
use crate::setup::Bench;
use crate::tools;

/// To /dev/null.
pub(super) fn cat<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let programs = |file: &Path| {
        let mut ours = Command::new(&bench.options.headwater);
        ours.arg("cat").arg(file);
        let mut gnu = Command::new(&bench.options.gnu_cat);
        gnu.arg(file);
        [ours, gnu]
    };
    contest(bench, &bench.path("copy"), &programs)
}

/// Into a new file beside the source, not synced.
pub(super) fn cp<'a>(bench: &'a Bench<'a>) -> io::Result<Contest<'a>> {
    let copy = bench.path("copy");
    let programs = |file: &Path| {
        let mut ours = Command::new(&bench.options.headwater);
        ours.arg("cp").args([file, &copy]);
        let mut gnu = Command::new(&bench.options.gnu_cp);
        gnu.args([file, &copy]);
        [ours, gnu]
    };
    contest(bench, &copy, &programs)
}

/// Headwater's program first.
type Programs<'a> = &'a dyn Fn(&Path) -> [Command; 2];

fn contest<'a>(bench: &'a Bench<'a>, copy: &Path, programs: Programs<'_>) -> io::Result<Contest<'a>> {
    let (mut contest, mut endings, copy) = (Contest::default(), Vec::new(), Rc::new(copy.to_owned()));
    for kib in SIZES_KIB {
        let file = make_file(&bench.path(&format!("{kib}-kib")), kib << 10)?;
        for state in [State::Cold, State::Warm] {
            let ending = format!(", {} {}", words(kib), state.word());
            for (name, command) in ["headwater", "GNU"].into_iter().zip(programs(&file)) {
                let (file, copy) = (file.clone(), Rc::clone(&copy));
                let run = Run { command: command.into(), file, copy, kib, state };
                contest.way(format!("{name}{ending}"), move || run.several());
            }
            endings.push(ending);
        }
    }
    contest.judge_each(endings);
    if let Err(error) = tools::check_static(&bench.options.headwater) {
        contest.note(error.to_string());
    }
    Ok(contest)
}

/// What the page cache holds of the file before a run.
#[derive(Clone, Copy)]
enum State {
    Cold,
    Warm,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Cold => "cold",
            State::Warm => "warm",
        }
    }
}

struct Run {
    command: RefCell<Command>,
    file: PathBuf,
    /// Removed after each run, if there is one.
    copy: Rc<PathBuf>,
    kib: u64,
    state: State,
}

impl Run {
    /// The median of several, for small files: a process that takes half a millisecond varies by as much.
    fn several(&self) -> io::Result<Figures> {
        let count = (SEVERAL_KIB / self.kib).clamp(1, SEVERAL_MAX);
        let mut runs = (0..count).map(|_| self.once()).collect::<io::Result<Vec<_>>>()?;
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (elapsed_s, cpu_s) = runs[runs.len() / 2];
        Ok(Figures::from([
            ("files_per_s", 1.0 / elapsed_s),
            ("ms_each", elapsed_s * 1e3),
            ("mib_per_s", self.kib as f64 / 1024.0 / elapsed_s),
            ("cpu_us", cpu_s * 1e6),
        ]))
    }

    /// Seconds that passed, and those of processors.
    fn once(&self) -> io::Result<(f64, f64)> {
        match self.state {
            State::Cold => tools::make_cold(&self.file)?,
            State::Warm => tools::make_warm(&self.file)?,
        }
        let mut command = self.command.borrow_mut();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let (cpu_before, start) = (children_cpu_time(), Instant::now());
        let status = command.status()?;
        let elapsed_s = start.elapsed().as_secs_f64();
        let cpu_s = (children_cpu_time() - cpu_before).as_secs_f64();
        if !status.success() {
            return Err(io::Error::other(format!("{command:?}: {status}")));
        }
        if self.copy.exists() {
            fs::remove_file(&*self.copy)?;
        }
        Ok((elapsed_s, cpu_s))
    }
}

fn make_file(path: &Path, length_bytes: u64) -> io::Result<PathBuf> {
    let (mut file, mut rng) = (File::create(path)?, Rng::new(length_bytes));
    let mut bytes = vec![0; length_bytes.min(1 << 20) as usize];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
    }
    for _ in 0..length_bytes / bytes.len() as u64 {
        file.write_all(&bytes)?;
    }
    file.sync_all()?;
    Ok(path.to_owned())
}

fn words(kib: u64) -> String {
    if kib < 1024 { format!("{kib} KiB") } else { format!("{} MiB", kib / 1024) }
}

/// From a line of a configuration to a video.
const SIZES_KIB: [u64; 9] = [1, 64, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 512 << 10];

/// Runs of a round together move no more than this.
const SEVERAL_KIB: u64 = 16 << 10;

const SEVERAL_MAX: u64 = 9;
