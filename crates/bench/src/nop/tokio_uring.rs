//! Tokio-uring: a runtime a thread, as it is meant to be used, and the requests of a batch joined in one task.

use std::io;

use futures_util::future::join_all;

use headwater_measure::{Figures, Latencies, crew};

use super::{ArmOptions, all_threads, figures};

/// How the requests of a batch are joined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    /// `join_all` over all, as one writes it; above 30 it gives each a task and a waker of its own.
    Plain,
    /// In groups that `join_all` polls from a plain list: leaner, for programs that know their group size.
    Groups,
}

pub(super) fn run(options: &ArmOptions, join: Join) -> io::Result<Figures> {
    let mut builder = tokio_uring::builder();
    builder.entries(options.entries);
    let latencies = all_threads(
        options,
        || tokio_uring::Runtime::new(&builder),
        |runtime| runtime.block_on(batches(options, join)),
    )?;
    Ok(figures(&latencies, None))
}

async fn batches(options: &ArmOptions, join: Join) -> io::Result<Latencies> {
    let mut clock = crew::Clock::start(options.time());
    while clock.runs() {
        match join {
            Join::Plain => all(options.batch).await?,
            Join::Groups => {
                let groups = (0..options.batch).step_by(GROUP as usize);
                let sizes = groups.map(|first| (options.batch - first).min(GROUP));
                join_all(sizes.map(all)).await.into_iter().collect::<io::Result<()>>()?;
            }
        }
        clock.lap();
    }
    Ok(clock.latencies)
}

async fn all(size: u32) -> io::Result<()> {
    join_all((0..size).map(|_| tokio_uring::no_op())).await.into_iter().collect()
}

/// Below 30, where `join_all` changes its form, and half of a batch of 32.
const GROUP: u32 = 16;
