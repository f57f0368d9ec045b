//! Trace: recorded accesses of other systems, replayed through a simulated cache.
//!
//! ```text
//!   file ─► requests (csv, oracle-general) ─ a batch at a time ─► a simulated cache for each policy and size ─► table
//! ```
//!
//! Owns: reading in batches, progress.
//! Does not own: formats (`requests`), the simulation (`replay`, `ahead`), the table and the JSON (`report`).

mod ahead;
pub(crate) mod arguments;
mod csv;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod oracle_general;
mod replay;
mod report;
mod request;
mod requests;

use std::process::ExitCode;

use headwater_measure::standard;
use indicatif::ProgressBar;

use crate::shared::complain::exit_code;
use crate::shared::progress;
use crate::trace::arguments::{ReplayArguments, TraceAction, TraceArguments};
use replay::Cache;
use report::Report;
use request::Request;
use requests::Requests;

pub(crate) fn run(arguments: &TraceArguments) -> ExitCode {
    let TraceAction::Replay(replay) = &arguments.action;
    exit_code(run_replay(replay))
}

fn run_replay(arguments: &ReplayArguments) -> Result<(), String> {
    let json = arguments.json.to();
    json.beside([&arguments.trace])?.check_printed()?;
    json.end_with_reader(None);
    let mut requests = Requests::open(&arguments.trace, arguments.format)?;
    let mut caches = caches(arguments);
    replay(&mut requests, &mut caches)?;
    let report = Report::new(arguments, requests.format(), &caches);
    json.give(|| report.text(arguments.wide.shown()), &report)
}

/// A cache for each policy and size: all policies of the first size, then of the next.
fn caches(arguments: &ReplayArguments) -> Vec<Cache> {
    let policies = arguments.policy.policies();
    let of_size = |size| policies.iter().map(move |&policy| Cache::new(policy, size, arguments.readahead));
    arguments.cache.iter().copied().flat_map(of_size).collect()
}

/// The trace is read once: every batch goes through one cache after the other.
fn replay(requests: &mut Requests, caches: &mut [Cache]) -> Result<(), String> {
    let progress = ProgressBar::new(requests.length_bytes()).with_style(progress::style(progress::BYTES));
    let mut batch: Vec<Request> = Vec::with_capacity(BATCH);
    loop {
        standard::check_reader()?;
        batch.clear();
        while batch.len() < BATCH {
            let Some(request) = requests.next_request()? else { break };
            batch.push(request);
        }
        if batch.is_empty() {
            progress.finish_and_clear();
            return requests.check_not_empty();
        }
        for cache in &mut *caches {
            batch.iter().try_for_each(|request| cache.serve(request))?;
        }
        progress.set_position(requests.position_bytes());
    }
}

/// Requests in a batch, 1 MiB of them: while one cache serves them, its tables stay in the processor's cache.
const BATCH: usize = 32 << 10;
