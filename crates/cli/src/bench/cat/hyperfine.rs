//! Hyperfine: the results in the form of `hyperfine --export-json`, for the scripts that read that.
//!
//! A result for each row and state, with the fields of hyperfine 1.19 and later; `parameters` names the state, as hyperfine names
//! those of `--parameter-list`.

use headwater_measure::Summary;
use serde::Serialize;

use super::Contest;

#[derive(Serialize)]
pub(super) struct Export {
    results: Vec<Result>,
}

#[derive(Serialize)]
struct Result {
    command: String,
    mean: f64,
    stddev: Option<f64>,
    median: f64,
    user: f64,
    system: f64,
    min: f64,
    max: f64,
    times: Vec<f64>,
    /// The maximum resident set of each run. Hyperfine asks for that of all its children together, and so writes the largest so far.
    memory_usage_byte: Vec<u64>,
    exit_codes: Vec<i32>,
    parameters: Parameters,
}

#[derive(Serialize)]
struct Parameters {
    file: &'static str,
}

impl Export {
    /// Runs that failed are none of the results, so that all exit codes are zero.
    pub(super) fn of(contest: &Contest<'_>) -> Export {
        let results = contest.outcomes.iter().filter_map(|outcome| {
            let times = outcome.seconds();
            let Summary { mean, stddev, median, min, max, .. } = Summary::of(&times)?;
            let file = outcome.state.id();
            let mean_of = |part: fn(&super::Measured) -> f64| {
                outcome.rounds.iter().map(part).sum::<f64>() / outcome.rounds.len() as f64
            };
            Some(Result {
                command: format!("{} ({file})", contest.ways.all[outcome.way].name),
                mean,
                stddev,
                median,
                user: mean_of(|measured| measured.user_seconds),
                system: mean_of(|measured| measured.system_seconds),
                min,
                max,
                exit_codes: vec![0; times.len()],
                times,
                memory_usage_byte: outcome
                    .rounds
                    .iter()
                    .map(|measured| measured.peak_resident_bytes)
                    .collect(),
                parameters: Parameters { file },
            })
        });
        Export { results: results.collect() }
    }
}
