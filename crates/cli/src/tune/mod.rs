//! Tune: the request size and queue depth that suit a device, measured and stored.
//!
//! ```text
//!   PATH ─► place ─► file to read ─► measure: memory, then settings (search ◄─► device) ─► report ─┬─► words, SVG, JSON
//!                                                                                       └─► profile, stored
//!   memory ─► sweep: rates by the size of the buffer
//! ```
//!
//! Owns: the order of the steps, when a profile is stored.
//! Does not own: the use of profiles (the engine).

mod arguments;
mod block_size;
mod device;
mod map;
mod measure;
mod memory;
mod place;
mod report;
mod search;
mod section;
mod setting;
mod stored;
mod svg;
mod sweep;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use arguments::TuneCommand;
pub(crate) use arguments::{EXAMPLES, TuneArguments};

use headwater::testing::profiles::StoredProfiles;

use crate::shared::complain::exit_code;
use crate::shared::output;
use crate::shared::target::{SIZE_BYTES_MIN, Target};
use crate::shared::units::readable;
use headwater_measure::Findings;
use map::Style;
use measure::{Plan, measure};
use os_display::Quotable;
use place::{Kind, Place};
use report::Report;

pub(crate) fn run(arguments: &TuneArguments) -> ExitCode {
    let outcome = match arguments {
        TuneArguments { of: Some(TuneCommand::Memory(arguments)), .. } => sweep::run(arguments),
        TuneArguments { show: true, .. } => show(arguments),
        TuneArguments { reset: true, .. } => reset(arguments),
        _ => tune(arguments),
    };
    exit_code(outcome)
}

/// The quick form on an existing file. Stores nothing.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn quick(target: &Target, time: Duration) -> Result<Findings, String> {
    let place = Place::of(&target.path)?;
    let notes = place.notes();
    let has_device = place.has_device();
    let Place { path, device, block_size, .. } = place;
    let target = has_device.then_some(target);
    let plan = Plan { path: &path, device, block_size, target, scratch: None, time, notes };
    let report = measure(plan)?;
    Ok(Findings::new(words::text(&report, Style::of_output()), &report, section::section(&report)))
}

fn tune(arguments: &TuneArguments) -> Result<(), String> {
    let started = Instant::now();
    arguments.svg.iter().try_for_each(|path| output::check_file(path))?;
    arguments.json.to().check_printed()?;
    let store = store_of(arguments)?;
    arguments.json.to().end_with_reader(arguments.svg.as_deref().or(store.as_deref()));
    let place = Place::of(&arguments.path)?;
    let target = if place.has_device() { Some(prepare(&place, arguments)?) } else { None };
    let is_written = arguments.write && target.as_ref().is_some_and(|target| target.direct_refusal.is_none());
    let scratch = if is_written { Some(prepare_for_writing(&place, arguments)?) } else { None };
    let key = place.device.key.clone();
    let plan = Plan {
        path: &place.path,
        device: place.device.clone(),
        block_size: place.block_size,
        target: target.as_ref(),
        scratch: scratch.as_ref(),
        time: arguments.seconds.saturating_sub(started.elapsed()).max(TIME_MIN),
        notes: place.notes(),
    };
    let mut report = measure(plan)?;
    keep(&mut report, store.as_deref(), key.as_deref())?;
    give(&report, arguments)
}

/// The path of the profiles. Checks before the measurements that the file can be read.
fn store_of(arguments: &TuneArguments) -> Result<Option<PathBuf>, String> {
    if arguments.dry_run {
        return Ok(None);
    }
    let path = stored::path()?;
    path.iter().try_for_each(|path| stored::load(path).map(drop))?;
    Ok(path)
}

fn prepare(place: &Place, arguments: &TuneArguments) -> Result<Target, String> {
    let wanted = place.wanted(arguments.size, arguments.seconds)?;
    let target = Target::prepare(&wanted).map_err(|text| match place.kind {
        // A --size that does not suit is told by itself what does.
        Kind::Directory if !text.contains("--size") => {
            format!("{text}; give a file to read instead, or another directory")
        }
        _ => text,
    })?;
    if target.bytes < SIZE_BYTES_MIN {
        let (path, size) = (place.path.maybe_quote(), readable(target.bytes));
        return Err(format!(
            "failed to tune with {path}: its {size} are too little, it takes {}; give its directory instead",
            readable(SIZE_BYTES_MIN)
        ));
    }
    Ok(target)
}

fn prepare_for_writing(place: &Place, arguments: &TuneArguments) -> Result<Target, String> {
    Target::prepare(&place.wanted_for_writing(arguments.size, arguments.seconds)?)
}

/// Stores the profile, or notes in the report why not.
fn keep(report: &mut Report, store: Option<&std::path::Path>, key: Option<&str>) -> Result<(), String> {
    let Some(profile) = report.profile(stored::unix_seconds(SystemTime::now())) else { return Ok(()) };
    if store.is_some() && report.ends_at_memory() {
        let text = "nothing was stored: the fastest setting was one of the largest that fit into memory here";
        report.notes.push(text.to_owned());
        return Ok(());
    }
    match (store, key) {
        (Some(path), Some(key)) => {
            stored::put(path, key, profile)?;
            report.stored_in = Some(path.display().to_string());
        }
        (None, _) => {
            report.notes.push("nothing was stored, as --dry-run or HEADWATER_PROFILES=off says".to_owned())
        }
        (Some(_), None) => {
            let text = "nothing was stored: the system does not tell by what the device is known again";
            report.notes.push(text.to_owned());
        }
    }
    Ok(())
}

fn give(report: &Report, arguments: &TuneArguments) -> Result<(), String> {
    if let Some(path) = &arguments.svg {
        let grids: Vec<_> = report.grids().collect();
        output::write_file(path, &svg::svg(&grids)?)?;
    }
    let to = arguments.json.to();
    if to.wants_text() {
        output::print(&words::text(report, Style::of_output()))?;
    }
    to.write_results(report)
}

fn show(arguments: &TuneArguments) -> Result<(), String> {
    let to = arguments.json.to();
    to.check_printed()?;
    let path = stored::path()?;
    let stored = path.as_deref().map_or(Ok(StoredProfiles::default()), stored::load)?;
    if to.wants_text() {
        let off = || "profiles are off (HEADWATER_PROFILES)\n".to_owned();
        let words = |path: PathBuf| stored::words(&path, &stored, SystemTime::now());
        output::print(&path.map_or_else(off, words))?;
    }
    to.write_results(&stored)
}

fn reset(arguments: &TuneArguments) -> Result<(), String> {
    let to = arguments.json.to();
    to.check_printed()?;
    let Some(path) = stored::path()? else {
        return Err("failed to reset: profiles are off (HEADWATER_PROFILES)".to_owned());
    };
    let place = if arguments.all { None } else { Some(Place::of(&arguments.path)?) };
    let removed = match &place {
        None => stored::remove(&path, None)?,
        Some(place) => place.device.key.as_deref().map_or(Ok(0), |key| stored::remove(&path, Some(key)))?,
    };
    if to.wants_text() {
        let what = place.map_or_else(|| "all devices".to_owned(), |place| place.device.words());
        output::print(&format!("{removed} removed: profiles of {what}\n"))?;
    }
    to.write(|| serde_json::json!({ "removed": removed }).to_string())
}

/// However long the scratch file took.
const TIME_MIN: Duration = Duration::from_millis(500);
