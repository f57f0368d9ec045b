//! Words: the results of tuning as text.
//!
//! Owns: the text.
//! Does not own: the figures (report), the maps and their colours (map).

use headwater::ReadaheadLimits;
use headwater_measure::{hanging, terminal_width};
use os_display::Quotable;

use super::map::{Style, map};
use super::memory::Sweep;
use super::report::{Grid, Latency, Report};
use crate::shared::units::MIB;
use crate::shared::units::readable;

pub(super) fn text(report: &Report, style: Style) -> String {
    let width = terminal_width();
    let folded = |text: &str| hanging("", text, width);
    let mut lines: Vec<String> = head(report).iter().flat_map(|line| folded(line)).collect();
    lines.extend(memory(&report.memory, width));
    for grid in report.grids() {
        lines.push(String::new());
        lines.extend(folded(&format!("{}, MiB/s by request size and requests in flight:", grid.title())));
        lines.extend(map(grid, style, width));
        lines.extend(hanging("  ", &chosen(grid), width));
    }
    lines.extend(report.random.iter().flat_map(|grid| latency(&report.latency, grid.sizes_bytes[0])));
    lines.push(String::new());
    lines.extend(report.sequential.iter().flat_map(|grid| folded(&meaning(grid))));
    lines.extend(report.notes.iter().flat_map(|note| hanging("note: ", note, width)));
    lines.extend(report.stored_in.iter().map(|path| format!("stored in {}", path.maybe_quote())));
    // To be copied, so it stays one line.
    lines.extend(report.grids().map(|grid| format!("the same with fio: {}", grid.chosen.fio)));
    lines.join("\n").trim_end().to_owned() + "\n"
}

/// How much, and of which file; `place` is the words for its path.
pub(super) fn what_was_read(report: &Report, place: &str) -> String {
    match (report.bytes, report.made_for_this) {
        (0, _) => format!("nothing of {place} was read"),
        (bytes, true) => format!("{} made in {place} and removed", readable(bytes)),
        (bytes, false) => format!("{} of {place}", readable(bytes)),
    }
}

fn head(report: &Report) -> Vec<String> {
    let what = what_was_read(report, &report.path.display().to_string());
    let words = [report.device.words(), report.block_size.words()];
    vec![report.host.line(), format!("{what}; {}", words.join("; ")), String::new()]
}

fn memory(sweep: &Sweep, width: Option<usize>) -> Vec<String> {
    let highest = sweep.blocks.iter().map(|block| block.mib_per_s).fold(0.0, f64::max);
    let total = readable(sweep.total_bytes);
    let head = format!("memory: /dev/zero to /dev/null through a buffer, {total} for each block, MiB/s");
    let mut lines = hanging("", &head, width);
    let room = width.map_or(BAR_COLUMNS, |width| width.saturating_sub(BAR_FRAME_COLUMNS)).min(BAR_COLUMNS);
    for block in &sweep.blocks {
        let bar = "█".repeat((block.mib_per_s / highest * room as f64).round() as usize);
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
        // The map has more that may look faster: rates of other moments.
        true => "the fastest of those measured in turn".to_owned(),
        false => format!("{share:.1} % of the fastest of those measured in turn ({})", grid.best.words()),
    };
    format!("chosen: {}, {memory} of memory with the device: {rate}, {against}", choice.setting.words())
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

/// The longest bar.
const BAR_COLUMNS: usize = 40;

/// Of the figures before a bar, and the mark of the best behind it.
const BAR_FRAME_COLUMNS: usize = 28;

const MEMORY_BYTES_DEFAULT: u64 = headwater::testing::Limits::MEMORY_BYTES_DEFAULT;
