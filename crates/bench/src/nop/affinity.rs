//! Affinity: on which processors measuring threads run; the words of `headwater bench nop`, but no ranges.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Affinity {
    /// The kernel decides.
    None,
    /// Thread i on the i-th processor that this process may use.
    Spread,
    /// All threads on these processors.
    List(Vec<usize>),
}

impl FromStr for Affinity {
    type Err = String;

    /// `none`, `spread`, or a list like `0,1`.
    fn from_str(text: &str) -> Result<Affinity, String> {
        match text {
            "none" => Ok(Affinity::None),
            "spread" => Ok(Affinity::Spread),
            list => {
                let number = |word: &str| word.parse().ok().filter(|&processor| processor < CpuSet::MAX_CPU);
                let processors: Option<Vec<usize>> = list.split(',').map(number).collect();
                processors
                    .map(Affinity::List)
                    .ok_or_else(|| "it is none, spread or a list of processors like 0,1".to_owned())
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
    /// Moves the calling thread, the `index`-th, to where it belongs.
    pub(super) fn apply(&self, index: usize) -> io::Result<()> {
        let mut set = CpuSet::new();
        match self {
            Affinity::None => return Ok(()),
            Affinity::Spread => {
                let usable = sched_getaffinity(None)?;
                let usable: Vec<usize> =
                    (0..CpuSet::MAX_CPU).filter(|&processor| usable.is_set(processor)).collect();
                set.set(usable[index % usable.len()]);
            }
            Affinity::List(processors) => processors.iter().for_each(|&processor| set.set(processor)),
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}
