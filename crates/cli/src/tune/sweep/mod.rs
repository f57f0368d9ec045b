//! Sweep: how fast bytes get into a buffer or out of it, by its size: `headwater tune memory`.
//!
//! ```text
//!   --from, twice of it, … --to ─► rounds × (buffers × ways): a pass of at most a second ─► medians, spread ─► table, plot, JSON
//! ```
//!
//! Owns: the order of measurements, the files and the memory they take.
//! Does not own: the ways (`arms`), the words (`report`).

mod arguments;
mod arms;
mod report;

use std::time::Duration;

use headwater_measure::process::available_memory_bytes;
use headwater_measure::{Findings, rounds, standard, svg_of_lines};

pub(crate) use arguments::{EXAMPLES, SweepArguments};

use crate::shared::buffer::aligned;
use crate::shared::output;
use crate::shared::target::{self, Fitting, Target, Wanted};
use crate::shared::units::readable;
use arms::{Arm, Pass, engine_bytes};

/// # Errors
/// One sentence for the user.
pub(super) fn run(arguments: &SweepArguments) -> Result<(), String> {
    arguments.svg.iter().chain(&arguments.html).try_for_each(|path| output::check_file(path))?;
    arguments.json.to().check_printed()?;
    arguments.json.to().end_with_reader(arguments.svg.as_deref().or(arguments.html.as_deref()));
    let buffers = arguments.buffers()?;
    check_memory(arguments)?;
    let target = make(arguments)?;
    let other = if arguments.write { Some(make(arguments)?) } else { None };
    let failed = |error: std::io::Error| format!("failed to open what is measured: {error}");
    let mut arms = match &other {
        Some(other) => Arm::to_write(&target, other),
        None => Arm::to_read(&target),
    }
    .map_err(failed)?;
    let files: Vec<&Target> = match &other {
        Some(other) => vec![&target, other],
        None => vec![&target; arms.len()],
    };
    let cells = measure(arguments, &buffers, &mut arms, &files)?;
    let sweep = Sweep { arguments, target: &target, buffers, arms: &arms, cells };
    give(&sweep, arguments)
}

/// What was measured.
struct Sweep<'a> {
    arguments: &'a SweepArguments,
    target: &'a Target,
    buffers: Vec<usize>,
    arms: &'a [Arm<'a>],
    /// For each way the passes of each buffer.
    cells: Vec<Vec<Vec<Pass>>>,
}

fn measure(
    arguments: &SweepArguments,
    buffers: &[usize],
    arms: &mut [Arm<'_>],
    files: &[&Target],
) -> Result<Vec<Vec<Vec<Pass>>>, String> {
    let (bytes, count) = (arguments.size.0, buffers.len() * arms.len());
    let mut room = Vec::new();
    let buffer = aligned(&mut room, arguments.to.0 as usize);
    let bar = rounds::bar((arms.len() + count * arguments.rounds as usize) as u64);
    let failed = |name: &str, error: std::io::Error| format!("failed to measure {name}: {error}");
    for (arm, file) in arms.iter_mut().zip(files) {
        bar.set_message(format!("preparing {}", arm.name()));
        bar.tick();
        arm.prepare(buffer, bytes, file).map_err(|error| failed(arm.name(), error))?;
        bar.inc(1);
    }
    let mut cells = vec![vec![Vec::new(); buffers.len()]; arms.len()];
    for round in 0..arguments.rounds {
        for index in rounds::order(count, round) {
            standard::check_reader()?;
            let (size, arm) = (index / arms.len(), index % arms.len());
            let part = &mut buffer[..buffers[size]];
            bar.set_message(format!("{}, {}", arms[arm].name(), readable(part.len() as u64)));
            bar.tick();
            let pass = arms[arm].pass(part, bytes, LIMIT);
            cells[arm][size].push(pass.map_err(|error| failed(arms[arm].name(), error))?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(cells)
}

fn make(arguments: &SweepArguments) -> Result<Target, String> {
    let (dir, size) = (arguments.dir.clone(), arguments.size);
    Target::prepare(&Wanted::New { dir, size, fitting: SIZED })
}

/// How much is measured with is what the user says, or an error.
const SIZED: Fitting = Fitting::Exact("--size");

/// Before any file is made: what is to be in memory has to fit there, and the files on the device.
fn check_memory(arguments: &SweepArguments) -> Result<(), String> {
    let (size_bytes, buffer_bytes) = (arguments.size.0, arguments.to.0);
    let files = if arguments.write { 2 } else { 1 };
    let dir = target::usable_directory(arguments.dir.as_deref())?;
    target::require_room(size_bytes.saturating_mul(files), &dir, SIZED)?;
    let held = size_bytes.saturating_add(engine_bytes(size_bytes)).saturating_add(buffer_bytes);
    let available = available_memory_bytes().unwrap_or(u64::MAX);
    if held <= available / 4 * 3 {
        return Ok(());
    }
    Err(format!(
        "failed to measure memory: the file is held twice, by the page cache and by headwater, which takes {} with the buffer; \
         of memory {} are available; give a smaller --size",
        readable(held),
        readable(available)
    ))
}

/// Gives the results to all that want them, whichever of them fails.
fn give(sweep: &Sweep<'_>, arguments: &SweepArguments) -> Result<(), String> {
    let (report, plots) = report::report(sweep);
    let findings: Findings = report.findings();
    let (to, mut errors) = (arguments.json.to(), Vec::new());
    if to.wants_text() {
        errors.extend(output::print(findings.text(arguments.wide.shown())).err());
    }
    let svg = arguments.svg.as_ref().map(|path| output::write_file(path, &svg_of_lines(&plots)));
    let findings = [findings];
    let page = || headwater_measure::report::html(&findings);
    let html = arguments.html.as_ref().map(|path| output::write_file(path, &page()));
    let json = to.write(|| headwater_measure::report::json(&findings));
    errors.extend(svg.into_iter().chain(html).chain([json]).filter_map(Result::err));
    if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
}

/// For one pass: buffers that are slower than a gigabyte a second are measured with less.
const LIMIT: Duration = Duration::from_secs(1);
