//! Hash: `headwater scan --hash blake3` against b3sum, over a tree of small files and over one large file, all cold.
//!
//! Owns: the tree, the commands, what is promised; that both print the same lines.
//! Does not own: the rounds.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use headwater::testing::children_cpu_time;
use headwater_testkit::Rng;

use super::{Contest, rate};
use crate::tools;
use crate::tools::Sample;
use headwater_measure::median;
use headwater_measure::rounds::interleave;
use headwater_measure::verdict::{Limit, detail, report, skipped};

/// A program and its arguments, with the name that it has in the results.
struct Tool {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// What is hashed.
struct Load<'a> {
    files: &'a [PathBuf],
    length_bytes: u64,
    /// Where what is printed goes.
    output: &'a Path,
}

impl Contest<'_> {
    pub(super) fn hash(&self) -> io::Result<()> {
        if Command::new(&self.options.b3sum).arg("--version").output().is_err() {
            return skipped("scan --hash blake3 : b3sum", &"not found; cargo install b3sum, or --b3sum");
        }
        let folder = tools::folder_beside(self.file)?;
        let output = folder.path().join("output");
        self.hash_tree(&folder.path().join("tree"), &output)?;
        self.hash_file(&output)
    }

    fn hash_tree(&self, tree: &Path, output: &Path) -> io::Result<()> {
        let (files, length_bytes) = make_tree(tree)?;
        let load = Load { files: &files, length_bytes, output };
        let theirs = files.iter().map(|path| path.clone().into_os_string());
        let tools = [self.ours(tree), self.b3sum(&[], theirs.collect())];
        let samples = self.hash_rounds(&tools, &load)?;
        let title = format!("scan --hash blake3, {FILES} cold files of 4 to 64 KiB : b3sum");
        report(&title, rate(&samples[0]) / rate(&samples[1]), Limit::AtLeast(2.0)).map(drop)
    }

    fn hash_file(&self, output: &Path) -> io::Result<()> {
        let files = [self.file.to_owned()];
        let load = Load { files: &files, length_bytes: self.length_bytes, output };
        let theirs = |options| self.b3sum(options, vec![self.file.into()]);
        let tools = [self.ours(self.file), theirs(&[]), theirs(&["--no-mmap"])];
        let samples = self.hash_rounds(&tools, &load)?;
        let best = rate(&samples[1]).max(rate(&samples[2]));
        report(
            "scan --hash blake3, one cold file : the better b3sum",
            rate(&samples[0]) / best,
            Limit::AtLeast(1.2),
        )
    }

    fn ours(&self, path: &Path) -> Tool {
        let arguments = vec!["scan".into(), "--hash".into(), "blake3".into(), path.into()];
        Tool { name: "headwater", program: self.options.headwater.clone(), arguments }
    }

    fn b3sum(&self, options: &[&str], files: Vec<OsString>) -> Tool {
        let name = if options.is_empty() { "b3sum" } else { "b3sum --no-mmap" };
        let arguments = options.iter().map(OsString::from).chain(files).collect();
        Tool { name, program: self.options.b3sum.clone(), arguments }
    }

    /// The samples of each tool; all of them print the same.
    fn hash_rounds(&self, tools: &[Tool], load: &Load<'_>) -> io::Result<Vec<Vec<Sample>>> {
        let mut expected = None;
        let samples = interleave(tools, self.options.rounds, |tool| {
            let sample = tool.run(load)?;
            let printed = fs::read(load.output)?;
            if *expected.get_or_insert_with(|| printed.clone()) != printed {
                return Err(io::Error::other(format!(
                    "{} printed something else than the others",
                    tool.name
                )));
            }
            Ok(sample)
        })?;
        for (tool, samples) in tools.iter().zip(&samples) {
            let of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure));
            let (rate, cpu_s) = (of(|sample| sample.mib_per_s), of(|sample| sample.cpu_s));
            let of_a_file_ms =
                load.length_bytes as f64 / f64::from(1 << 20) / rate / load.files.len() as f64 * 1e3;
            let name = tool.name;
            detail(&format!("{name:<16} {rate:>6.0} MiB/s, {of_a_file_ms:.3} ms a file, {cpu_s:.2} CPU-s"))?;
        }
        Ok(samples)
    }
}

impl Tool {
    fn run(&self, load: &Load<'_>) -> io::Result<Sample> {
        load.files.iter().try_for_each(|path| tools::make_cold(path))?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(File::create(load.output)?);
        let (cpu_before, start) = (children_cpu_time(), Instant::now());
        let status = command.status()?;
        let elapsed_s = start.elapsed().as_secs_f64();
        if !status.success() {
            return Err(io::Error::other(format!("{}: {status}", self.name)));
        }
        let mib_per_s = load.length_bytes as f64 / f64::from(1 << 20) / elapsed_s;
        Ok(Sample { mib_per_s, cpu_s: (children_cpu_time() - cpu_before).as_secs_f64(), ..Sample::default() })
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

const FILES: usize = 10_000;
const FILES_PER_FOLDER: usize = 100;

/// What source trees, mail and small pictures are made of.
const LENGTH_BYTES_MIN: usize = 4 << 10;
const LENGTH_BYTES_MAX: usize = 64 << 10;
