//! Rio: one ring that all threads share, completions waited for one by one in the thread.

use std::io;

use headwater_measure::{Figures, crew};

use super::{ArmOptions, all_threads, figures};

pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    let ring = rio::Config { depth: options.entries as usize, ..rio::Config::default() }.start()?;
    let latencies = all_threads(
        options,
        || Ok(&ring),
        |ring| {
            let mut completions = Vec::new();
            crew::time_steps(options.time(), || {
                completions.extend((0..options.batch).map(|_| ring.nop()));
                completions.drain(..).try_for_each(rio::Completion::wait)
            })
        },
    )?;
    Ok(figures(&latencies, None))
}
