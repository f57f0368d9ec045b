//! Words: the results of tuning as text.
//!
//! Owns: the text.
//! Does not own: the figures (report), the maps and their colours (map).

use headwater::ReadaheadLimits;
use headwater_measure::terminal_width;
use os_display::Quotable;

use super::map::{Style, map};
use super::memory::Sweep;
use super::report::{Grid, Latency, Report};
use crate::shared::units::MIB;
use crate::shared::units::readable;

pub(super) fn text(report: &Report, style: Style) -> String {
    let mut lines = head(report);
    lines.extend(memory(&report.memory));
    for grid in report.grids() {
        lines.push(String::new());
        lines.push(format!("{}, MiB/s by request size and requests in flight:", grid.title()));
        lines.extend(map(grid, style, terminal_width()));
        lines.push(chosen(grid));
    }
    lines.extend(report.random.iter().flat_map(|grid| latency(&report.latency, grid.sizes_bytes[0])));
    lines.push(String::new());
    lines.extend(report.sequential.as_ref().map(meaning));
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    lines.extend(report.stored_in.iter().map(|path| format!("stored in {}", path.maybe_quote())));
    lines.extend(report.grids().map(|grid| format!("the same with fio: {}", grid.chosen.fio)));
    lines.join("\n").trim_end().to_owned() + "\n"
}

fn head(report: &Report) -> Vec<String> {
    let what = match (report.bytes, report.made_for_this) {
        (0, _) => format!("nothing of {} was read", report.path.display()),
        (bytes, true) => format!("{} made in {} and removed", readable(bytes), report.path.display()),
        (bytes, false) => format!("{} of {}", readable(bytes), report.path.display()),
    };
    let words = [report.device.words(), report.block_size.words()];
    vec![report.host.line(), format!("{what}; {}", words.join("; ")), String::new()]
}

fn memory(sweep: &Sweep) -> Vec<String> {
    let highest = sweep.blocks.iter().map(|block| block.mib_per_s).fold(0.0, f64::max);
    let mut lines = vec![format!(
        "memory: /dev/zero to /dev/null through a buffer, {} for each block, MiB/s",
        readable(sweep.total_bytes)
    )];
    for block in &sweep.blocks {
        let bar = "█".repeat((block.mib_per_s / highest * BAR_COLUMNS).round() as usize);
        let mark = if block.bytes == sweep.best_bytes { "  best" } else { "" };
        let line = format!("  {:>9} {:>8.0}  {bar}{mark}", readable(block.bytes), block.mib_per_s);
        lines.push(line);
    }
    lines
}

fn chosen(grid: &Grid) -> String {
    let (choice, share) = (&grid.chosen, grid.chosen.share_of_best * 100.0);
    let memory = readable(choice.queue_bytes);
    let rate = format!("{:.0} MiB/s, {:.0} requests/s", choice.mib_per_s, choice.requests_per_s);
    let against = match grid.best == choice.setting {
        true => "the fastest".to_owned(),
        false => format!("{share:.1} % of the fastest ({})", grid.best.words()),
    };
    format!("  chosen: {}, {memory} of memory with the device: {rate}, {against}", choice.setting.words())
}

fn latency(latencies: &[Latency], size_bytes: u64) -> Vec<String> {
    let head = format!("  {:>9} {:>10} {:>10} {:>12}", "in flight", "mean µs", "p99 µs", "requests/s");
    let line = |latency: &Latency| {
        let Latency { depth, mean_us, p99_us, requests_per_s } = latency;
        format!("  {depth:>9} {mean_us:>10.0} {p99_us:>10.0} {requests_per_s:>12.0}")
    };
    let title = format!("latency of random reads of {}:", readable(size_bytes));
    [String::new(), title, head].into_iter().chain(latencies.iter().map(line)).collect()
}

/// What the choice changes for readers, in an engine with the default memory.
fn meaning(grid: &Grid) -> String {
    let choice = &grid.chosen;
    let limits = choice.setting.tuned(choice.mib_per_s * MIB).readahead_limits(MEMORY_BYTES_DEFAULT);
    let Some(ReadaheadLimits { size_bytes_max, distance_bytes_max, .. }) = limits else {
        return "for headwater: nothing changes".to_owned();
    };
    let defaults = ReadaheadLimits::default();
    format!(
        "for headwater: with this as its profile files here are read ahead with requests of {}, {} ahead of the reader ({} keep the device busy \
         while no other reader uses it); without it {}, {} ahead",
        readable(size_bytes_max),
        readable(distance_bytes_max),
        readable(choice.queue_bytes),
        readable(defaults.size_bytes_max),
        readable(defaults.distance_bytes_max),
    )
}

const BAR_COLUMNS: f64 = 40.0;

const MEMORY_BYTES_DEFAULT: u64 = headwater::testing::Limits::MEMORY_BYTES_DEFAULT;
