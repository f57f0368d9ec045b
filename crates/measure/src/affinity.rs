//! Affinity: on which processors measuring threads run.
//
// Owns: the words for it, pinning the calling thread.
// Does not own: threads.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// As asked for on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Affinity {
    /// The kernel decides.
    None,
    /// Thread i on the i-th processor that this process may use.
    Spread,
    /// All threads on these processors.
    List(Vec<usize>),
}

impl FromStr for Affinity {
    type Err = String;

    /// `none`, `spread`, or a list like `0,2-3`.
    fn from_str(text: &str) -> Result<Affinity, String> {
        match text {
            "none" => Ok(Affinity::None),
            "spread" => Ok(Affinity::Spread),
            list => {
                let ranges: Option<Vec<_>> = list.split(',').map(parse_range).collect();
                let ranges = ranges.ok_or("it is none, spread or a list of processors like 0,2-3")?;
                Ok(Affinity::List(ranges.into_iter().flatten().collect()))
            }
        }
    }
}

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Affinity::None => f.write_str("none"),
            Affinity::Spread => f.write_str("spread"),
            Affinity::List(processors) => {
                let words: Vec<String> = processors.iter().map(usize::to_string).collect();
                f.write_str(&words.join(","))
            }
        }
    }
}

impl Affinity {
    /// Whether this process may use the processors.
    ///
    /// # Errors
    /// Which processor is not there, as a sentence for the user.
    pub fn check(&self) -> Result<(), String> {
        let Affinity::List(processors) = self else { return Ok(()) };
        let usable = usable().map_err(|error| format!("failed to read the affinity: {error}"))?;
        match processors.iter().find(|processor| !usable.contains(processor)) {
            None => Ok(()),
            Some(processor) => Err(format!(
                "--affinity {self}: there is no processor {processor} to run on, only {}",
                usable.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    /// Moves the calling thread, the `index`-th, to where it belongs.
    ///
    /// # Errors
    /// What `sched_setaffinity(2)` reports.
    pub fn apply(&self, index: usize) -> io::Result<()> {
        let mut set = CpuSet::new();
        match self {
            Affinity::None => return Ok(()),
            Affinity::Spread => {
                let usable = usable()?;
                set.set(usable[index % usable.len()]);
            }
            Affinity::List(processors) => processors.iter().for_each(|&processor| set.set(processor)),
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}

/// The processors of this process; the kernel never gives it none.
fn usable() -> rustix::io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}

/// `2` or `2-3`.
fn parse_range(text: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < CpuSet::MAX_CPU).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_lists() {
        assert_eq!("none".parse(), Ok(Affinity::None));
        assert_eq!("spread".parse(), Ok(Affinity::Spread));
        assert_eq!("0,2-3".parse(), Ok(Affinity::List(vec![0, 2, 3])));
        assert_eq!(Affinity::List(vec![0, 2, 3]).to_string(), "0,2,3");
        for text in ["", "all", "1-", "3-2", "0,,1", "-1", "99999999"] {
            assert!(text.parse::<Affinity>().is_err(), "{text}");
        }
    }
}
