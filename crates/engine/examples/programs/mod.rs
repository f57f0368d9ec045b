//! Programs: what the example programs share: both forms of one program, run by turns.
//!
//! Owns: arguments, rounds, the line that is printed.
//! Does not own: the programs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Which library a program reads and writes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Headwater,
    Std,
}

/// A program in both forms.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// What one unit of work is.
    pub(crate) unit: &'static str,
    /// Units by default.
    pub(crate) units: usize,
    /// Makes in an empty directory what `run` needs, before the clock starts.
    pub(crate) prepare: fn(&Path, usize) -> io::Result<()>,
    /// Does so many units of work, and returns a number by which both forms can be compared.
    pub(crate) run: fn(Form, &Path, usize) -> io::Result<u64>,
}

impl Program {
    /// `EXAMPLE [--std | --headwater] [UNITS] [DIRECTORY]`: both forms by turns, five times, or only one of them.
    pub(crate) fn main(&self) -> io::Result<()> {
        let (mut forms, mut units, mut parent) =
            (vec![Form::Headwater, Form::Std], self.units, std::env::temp_dir());
        for argument in std::env::args().skip(1) {
            match argument.as_str() {
                "--std" => forms = vec![Form::Std],
                "--headwater" => forms = vec![Form::Headwater],
                number if number.parse::<usize>().is_ok() => units = number.parse().unwrap_or(units),
                directory => parent = PathBuf::from(directory),
            }
        }
        let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); forms.len()];
        for _ in 0..ROUNDS {
            for (form, seconds) in forms.iter().zip(&mut seconds) {
                let (took, _) = self.timed(*form, &parent, units)?;
                seconds.push(took);
            }
        }
        let medians = seconds.iter_mut().map(|seconds| {
            seconds.sort_by(f64::total_cmp);
            seconds[seconds.len() / 2]
        });
        let medians: Vec<f64> = medians.collect();
        for (form, seconds) in forms.iter().zip(&medians) {
            let rate = units as f64 / seconds;
            println!("{}: {form:?} {seconds:.3} s, {rate:.0} {} a second", self.name, self.unit);
        }
        if let [ours, theirs] = medians[..] {
            println!("{}: headwater : std {:.2}", self.name, theirs / ours);
        }
        Ok(())
    }

    /// Seconds, and the number to compare.
    pub(crate) fn timed(&self, form: Form, parent: &Path, units: usize) -> io::Result<(f64, u64)> {
        let directory = tempfile::tempdir_in(parent)?;
        (self.prepare)(directory.path(), units)?;
        let begun = Instant::now();
        let result = (self.run)(form, directory.path(), units)?;
        Ok((begun.elapsed().as_secs_f64(), result))
    }
}

/// Both forms come to the same result. Called by the test of each example.
#[cfg(test)]
pub(crate) fn check(program: &Program, units: usize) {
    let parent = std::env::temp_dir();
    let [ours, theirs] =
        [Form::Headwater, Form::Std].map(|form| program.timed(form, &parent, units).unwrap().1);
    assert_eq!(ours, theirs, "{}", program.name);
}

/// Numbers that look random: splitmix64.
#[allow(dead_code, reason = "not all programs draw")]
pub(crate) fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

const ROUNDS: usize = 5;
