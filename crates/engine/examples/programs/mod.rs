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
    /// `EXAMPLE [--std | --headwater] [--once] [--shrink=DIVISOR] [UNITS] [DIRECTORY]`: both forms by turns, five times, or only one of
    /// them; with `--once` a single run of each, as a line of JSON.
    pub(crate) fn main(&self) -> io::Result<()> {
        let (mut forms, mut units, mut parent) =
            (vec![Form::Headwater, Form::Std], self.units, std::env::temp_dir());
        let mut is_once = false;
        for argument in std::env::args().skip(1) {
            match argument.as_str() {
                "--std" => forms = vec![Form::Std],
                "--headwater" => forms = vec![Form::Headwater],
                "--once" => is_once = true,
                shrink if shrink.starts_with("--shrink=") => units = (units / divisor(shrink)?).max(1),
                number if number.parse::<usize>().is_ok() => units = number.parse().unwrap_or(units),
                directory => parent = PathBuf::from(directory),
            }
        }
        if is_once {
            return forms.into_iter().try_for_each(|form| self.run_once(form, &parent, units));
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

    /// For programs that compare: they start one process for each run.
    fn run_once(&self, form: Form, parent: &Path, units: usize) -> io::Result<()> {
        let (seconds, _) = self.timed(form, parent, units)?;
        println!("{}", json(units, seconds));
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

fn json(units: usize, seconds: f64) -> String {
    format!("{{\"elapsed_s\": {seconds}, \"units_per_s\": {}}}", units as f64 / seconds)
}

fn divisor(argument: &str) -> io::Result<usize> {
    let divisor = argument.trim_start_matches("--shrink=").parse().ok().filter(|&divisor| divisor > 0);
    divisor.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{argument}: not a number from 1 on"))
    })
}

/// Both forms come to the same result. Called by the test of each example.
#[cfg(test)]
pub(crate) fn check(program: &Program, units: usize) {
    let parent = std::env::temp_dir();
    let [ours, theirs] =
        [Form::Headwater, Form::Std].map(|form| program.timed(form, &parent, units).unwrap().1);
    assert_eq!(ours, theirs, "{}", program.name);
    let figures: serde_json::Value = serde_json::from_str(&json(units, 0.5)).unwrap();
    assert_eq!(
        (figures["elapsed_s"].as_f64(), figures["units_per_s"].as_f64()),
        (Some(0.5), Some(2.0 * units as f64))
    );
    assert_eq!(divisor("--shrink=8").unwrap(), 8);
    assert!(divisor("--shrink=0").is_err());
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
