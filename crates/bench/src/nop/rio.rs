//! Rio: one ring that all threads share, completions waited for one by one in the thread.

use std::io;

use super::latency::NopSample;
use super::{ArmOptions, crew};

pub(super) fn run(options: &ArmOptions) -> io::Result<NopSample> {
    let ring = rio::Config { depth: options.entries as usize, ..rio::Config::default() }.start()?;
    let latencies = crew::run(
        options,
        || Ok(&ring),
        |ring| {
            let mut completions = Vec::new();
            crew::time_batches(options, || {
                completions.extend((0..options.batch).map(|_| ring.nop()));
                completions.drain(..).try_for_each(rio::Completion::wait)
            })
        },
    )?;
    Ok(latencies.sample(None))
}
