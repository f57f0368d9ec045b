//! Section: the results of tuning on the report page.
//!
//! Owns: which figures are shown, the text around them.
//! Does not own: the figures (`report`), the page.

use super::report::{Choice, Grid, Report};
use super::words::what_was_read;
use crate::shared::target::place_words;
use crate::shared::units::readable;
use headwater_measure::{Bar, Bars, Better, Figure, HeatMap, Media, Method, Section, Table, Whose};

pub(crate) fn section(report: &Report) -> Section {
    let mut figures: Vec<Figure> = report.grids().map(|grid| Figure::HeatMap(heat_map(grid))).collect();
    if !report.latency.is_empty() {
        figures.push(Figure::Table(latency(report)));
    }
    figures.push(Figure::Bars(memory(report)));
    Section {
        headline: String::new(),
        id: "tune",
        title: TITLE.to_owned(),
        question: "How large should requests be, and how many of them in flight?".to_owned(),
        answer: answer(report),
        figures,
        methods: report.grids().map(method).chain([memory_method(report)]).collect(),
        facts: vec![
            ("device".to_owned(), report.device.words()),
            ("file".to_owned(), what_was_read(report, place_words(&report.path.display().to_string()))),
            ("block size".to_owned(), report.block_size.words()),
        ],
        notes: report.notes.clone(),
    }
}

fn answer(report: &Report) -> String {
    let Some(grid) = &report.sequential else { return "There is no device to tune for.".to_owned() };
    sentence(&grid.chosen)
}

fn sentence(choice: &Choice) -> String {
    let (requests, read) = match choice.setting.depth {
        1 => ("request", "reads"),
        _ => ("requests", "read"),
    };
    format!(
        "{} {requests} of {} in flight {read} {:.0} MiB/s, {:.0} % of the fastest of all settings compared, with {} of memory.",
        choice.setting.depth,
        readable(choice.setting.size_bytes),
        choice.mib_per_s,
        choice.share_of_best * 100.0,
        readable(choice.queue_bytes),
    )
}

fn heat_map(grid: &Grid) -> HeatMap {
    HeatMap {
        caption: grid.title().to_owned(),
        unit: "MiB/s",
        across: ("requests in flight".to_owned(), grid.depths.iter().map(u32::to_string).collect()),
        down: ("request size".to_owned(), grid.sizes_bytes.iter().map(|&size| readable(size)).collect()),
        cells: grid.rows(),
        chosen: grid.chosen_at(),
    }
}

fn latency(report: &Report) -> Table {
    let columns = ["requests in flight", "mean µs", "p99 µs", "requests/s"].map(str::to_owned).to_vec();
    let rows = report.latency.iter().map(|latency| {
        let figures = [latency.mean_us, latency.p99_us, latency.requests_per_s];
        let words = figures.iter().map(|figure| format!("{figure:.0}"));
        (Whose::Limit, [latency.depth.to_string()].into_iter().chain(words).collect())
    });
    Table {
        caption: "Latency of random reads of 4 KiB".to_owned(),
        columns,
        rows: rows.collect(),
        minor: Vec::new(),
        media: Media::Page,
    }
}

fn memory(report: &Report) -> Bars {
    let bars = report.memory.blocks.iter().map(|block| Bar {
        label: readable(block.bytes),
        value: block.mib_per_s,
        spread: (block.mib_per_s_min, block.mib_per_s_max),
        whose: Whose::Limit,
        note: if block.bytes == report.memory.best_bytes { "best".to_owned() } else { String::new() },
    });
    let caption = "Memory: /dev/zero to /dev/null, by size of the block".to_owned();
    Bars { caption, unit: "MiB/s", better: Better::Higher, bars: bars.collect() }
}

fn method(grid: &Grid) -> Method {
    let how = "Direct requests of one size, a fixed number of them in flight, through headwater's own queue into huge pages. The \
               search takes coarse steps, then settings around the best, then those that need less memory. It measures the \
               cheapest and the fastest again in turn, compares their medians, and chooses the cheapest within 3 % of the best."
        .to_owned();
    Method { what: grid.title().to_owned(), how, fio: Some(grid.chosen.fio.clone()) }
}

fn memory_method(report: &Report) -> Method {
    let total = readable(report.memory.total_bytes);
    let how = format!(
        "{total} read from /dev/zero and written to /dev/null for each block, three rounds, medians."
    );
    Method { what: "memory".to_owned(), how, fio: None }
}

/// Of the section.
pub(crate) const TITLE: &str = "Request size and queue depth";

#[cfg(test)]
mod tests {
    use super::super::setting::Setting;
    use super::*;

    /// Goal: the answer is a sentence, also where a single request is the best setting. Method: one in flight, and four.
    #[test]
    fn the_answer_is_a_sentence() {
        let answer = |depth| {
            sentence(&Choice {
                setting: Setting { size_bytes: 2 << 20, depth },
                queue_bytes: u64::from(depth) << 21,
                mib_per_s: 2000.0,
                mib_per_s_min: 1900.0,
                mib_per_s_max: 2100.0,
                requests_per_s: 1000.0,
                share_of_best: 1.0,
                fio: String::new(),
            })
        };
        assert!(
            answer(1).starts_with("1 request of 2 MiB in flight reads 2000 MiB/s, 100 % of"),
            "{}",
            answer(1)
        );
        assert!(
            answer(4).starts_with("4 requests of 2 MiB in flight read 2000 MiB/s, 100 % of"),
            "{}",
            answer(4)
        );
    }
}
