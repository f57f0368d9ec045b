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

use std::path::{Path, PathBuf};
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
pub(crate) use section::TITLE;

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
    arguments.svg.iter().try_for_each(|path| {
        output::check_beside(path, [&arguments.path]).and_then(|()| output::check_file(path))
    })?;
    arguments.json.to().beside([&arguments.path])?.check_printed()?;
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
        notes: place.notes().into_iter().chain(target.as_ref().and_then(Target::note)).collect(),
    };
    let mut report = measure(plan)?;
    let store = match &target {
        Some(target) if target.hole_bytes > 0 => Err(HOLES),
        _ => store.as_deref().ok_or(OFF),
    };
    // What was measured in a minute is worth something without being stored.
    let kept = keep(&mut report, store, key.as_deref());
    given(&report, arguments, kept.err())
}

/// The path of the profiles. Checks before the measurements that the file can be read, and replaced.
fn store_of(arguments: &TuneArguments) -> Result<Option<PathBuf>, String> {
    if arguments.dry_run {
        return Ok(None);
    }
    let path = stored::path()?;
    let checked = path.iter().try_for_each(|path| stored::check(path));
    checked.map_err(|error| format!("{error}; --dry-run measures and stores nothing"))?;
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

/// Stores the profile, or notes in the report why not. `store`: where, or why nowhere.
///
/// # Errors
/// One sentence for the user, which is a note of the report as well.
fn keep(report: &mut Report, store: Result<&Path, &str>, key: Option<&str>) -> Result<(), String> {
    let Some(profile) = report.profile(stored::unix_seconds(SystemTime::now())) else { return Ok(()) };
    let place = store.and_then(|path| match key {
        _ if report.ends_at_memory() => Err(LITTLE_MEMORY),
        Some(key) => Ok((path, key)),
        None => Err(NO_KEY),
    });
    let stored = match place {
        Ok((path, key)) => {
            stored::put(path, key, profile).map(|()| report.stored_in = Some(path.display().to_string()))
        }
        Err(reason) => {
            report.notes.push(format!("nothing was stored{reason}"));
            Ok(())
        }
    };
    stored.inspect_err(|error| report.notes.push(format!("nothing was stored: {error}")))
}

/// Gives the results to all that want them, whatever has `failed` before and whichever of them does.
fn given(report: &Report, arguments: &TuneArguments, failed: Option<String>) -> Result<(), String> {
    let mut errors: Vec<String> = failed.into_iter().collect();
    if let Some(path) = &arguments.svg {
        let grids: Vec<_> = report.grids().collect();
        errors.extend(svg::svg(&grids).and_then(|svg| output::write_file(path, &svg)).err());
    }
    let to = arguments.json.to();
    if to.wants_text() {
        errors.extend(output::print(&words::text(report, Style::of_output())).err());
    }
    errors.extend(to.write_results(report).err());
    if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
}

fn show(arguments: &TuneArguments) -> Result<(), String> {
    let to = arguments.json.to();
    to.check_printed()?;
    let path = stored::path()?;
    let stored = path.as_deref().map_or(Ok(StoredProfiles::default()), stored::load)?;
    let off = || "profiles are off (HEADWATER_PROFILES)\n".to_owned();
    let words = |path: &Path| stored::words(path, &stored, SystemTime::now());
    to.give(|| path.as_deref().map_or_else(off, words), &stored)
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

// Why nothing was stored.
const OFF: &str = ", as --dry-run or HEADWATER_PROFILES=off says";
const HOLES: &str =
    ": reads of holes say nothing of the device; give a file that was written, or its directory";
const LITTLE_MEMORY: &str = ": the fastest setting was one of the largest that fit into memory here";
const NO_KEY: &str = ": the system does not tell by what the device is known again";
