//! Figures: the UBC suite's section of the report page.
//!
//! Owns: its figures, its sentences, how rows were taken.
//! Does not own: the values (`report`), how it looks (`page`).

use super::{Cell, Line, Report};
use crate::bench::section::{Bar, Bars, Better, Figure, Method, Section, Table, Whose, sentence};
use crate::bench::suite::{place_words, rounds_sentence};
use crate::bench::ubc::{Way, Work};
use crate::shared::units::readable;

impl Report {
    pub(in crate::bench::ubc) fn section(&self) -> Section {
        let bars =
            [(Work::Raw, "A large cold file to nothing"), (Work::Overwrite, "Zeros over a file, synced")];
        let bars = bars.into_iter().filter_map(|(work, caption)| self.bars(work, caption)).map(Figure::Bars);
        let tables = [
            self.figures("Rates, GB/s", |cell| format!("{:.2}", cell.gb_per_s)),
            self.figures("Times, s", |cell| format!("{:.3}", cell.seconds)),
            self.figures("Processor time, s", |cell| format!("{:.3}", cell.cpu_seconds)),
        ];
        Section {
            id: "ubc",
            title: "Reading and writing files".to_owned(),
            question: "What do reading, writing and reading again cost in each way there is?".to_owned(),
            answer: self.answer().unwrap_or_default(),
            figures: bars.chain(tables.into_iter().map(Figure::Table)).collect(),
            methods: self.methods(),
            facts: self.facts(),
            notes: self.notes.iter().map(|note| sentence(note)).collect(),
            ..Section::default()
        }
    }

    /// Reading and writing against plain calls, with what the device can do where that is known.
    fn answer(&self) -> Option<String> {
        let raw = self.line(Work::Raw)?;
        let read = best_of_headwater(raw)?;
        let size = readable(self.bytes);
        let mut text = format!("headwater reads a cold file of {size} at {:.2} GB/s", read.gb_per_s);
        if read.way == Way::View.id() {
            text += " by its views";
        }
        if let Some(plain) = raw.cell(Way::Buffered) {
            text += &format!(", {:.2} × what buffered reads get", read.gb_per_s / plain.gb_per_s);
        }
        if let Some(limit) = raw.cell(Way::Device) {
            text += &format!(" and {:.2} × the ring alone", read.gb_per_s / limit.gb_per_s);
        }
        if let Some(line) = self.line(Work::Overwrite)
            && let (Some(ours), Some(plain)) = (line.cell(Way::Headwater), line.cell(Way::Buffered))
        {
            let (rate, ratio) = (ours.gb_per_s, ours.gb_per_s / plain.gb_per_s);
            text += &format!("; it overwrites one at {rate:.2} GB/s, {ratio:.2} × buffered writes");
        }
        Some(text + ".")
    }

    fn line(&self, work: Work) -> Option<&Line> {
        self.rows.iter().find(|line| line.id == work.id())
    }

    fn bars(&self, work: Work, caption: &str) -> Option<Bars> {
        let line = self.line(work).filter(|line| !line.cells.is_empty())?;
        let bar = |way: Way| {
            let cell = line.cell(way)?;
            let rate = |seconds: f64| cell.bytes as f64 / seconds / super::GIGABYTE;
            // A part of the file is another one in each round, so it has no spread in seconds.
            let spread = match cell.bytes == work.bytes(self.bytes) {
                true => (rate(cell.seconds_max), rate(cell.seconds_min)),
                false => (cell.gb_per_s, cell.gb_per_s),
            };
            Some(Bar {
                label: way.name().to_owned(),
                value: cell.gb_per_s,
                spread,
                whose: way.whose(),
                note: String::new(),
            })
        };
        let bars = Way::ALL.into_iter().filter_map(bar).collect();
        Some(Bars { caption: caption.to_owned(), unit: "GB/s", better: Better::Higher, bars })
    }

    fn figures(&self, caption: &str, show: impl Fn(&Cell) -> String) -> Table {
        let row = |line: &Line| {
            let mut cells = vec![line.name.clone(), line.page_cache.words().to_owned()];
            cells.extend(Way::ALL.map(|way| line.cell(way).map_or("-".to_owned(), &show)));
            (Whose::Peer, cells)
        };
        let ways = Way::ALL.map(|way| way.name().to_owned());
        Table {
            caption: caption.to_owned(),
            columns: ["work", "page cache before"].map(str::to_owned).into_iter().chain(ways).collect(),
            rows: self.rows.iter().filter(|line| !line.cells.is_empty()).map(row).collect(),
        }
    }

    fn methods(&self) -> Vec<Method> {
        let how = format!(
            "The rows of Chuck Silvers' paper on NetBSD's unified buffer cache (UBC, 2000), each in a child process of \
             its own, after the kernel was made to forget the file (posix_fadvise, POSIX_FADV_DONTNEED); the column \
             on the page cache says where it was not. Writing ends with fsync, which counts. Large is {}, 50 MB is \
             {}. {}",
            readable(self.bytes),
            readable(self.small_bytes),
            rounds_sentence(self.rounds)
        );
        let ways = "buffered: the page cache, 128 KiB at a time. mmap: a byte of each mapped page. O_DIRECT: 1 MiB at a \
                    time. headwater: read_at and write_at, 1 MiB at a time, the raw file by its reader. view: \
                    headwater's pages themselves. device: 32 direct requests of 1 MiB in flight, nobody looks at the \
                    bytes.";
        let limits = ["The device's limit when it reads", "The device's limit when it writes"];
        let limits = limits.into_iter().zip(&self.fio).map(|(what, line)| Method {
            what: what.to_owned(),
            how: "32 requests of 1 MiB in flight.".to_owned(),
            fio: Some(line.clone()),
        });
        [("All rows", how.as_str()), ("Ways", ways)]
            .map(|(what, how)| Method { what: what.to_owned(), how: how.to_owned(), fio: None })
            .into_iter()
            .chain(limits)
            .collect()
    }

    fn facts(&self) -> Vec<(String, String)> {
        let mut facts = self.host.facts();
        let files = if self.made_for_this { "made in" } else { "of" };
        facts.push((
            "Files".to_owned(),
            format!("{} {files} {}", readable(self.bytes), place_words(&self.path)),
        ));
        facts.push(("Rounds".to_owned(), self.rounds.to_string()));
        facts
    }
}

impl Line {
    fn cell(&self, way: Way) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.way == way.id())
    }
}

fn best_of_headwater(line: &Line) -> Option<&Cell> {
    let ours = [Way::Headwater, Way::View].into_iter().filter_map(|way| line.cell(way));
    ours.max_by(|left, right| left.gb_per_s.total_cmp(&right.gb_per_s))
}

impl Way {
    fn whose(self) -> Whose {
        match self {
            Way::Headwater | Way::View => Whose::Headwater,
            Way::Device => Whose::Limit,
            Way::Buffered | Way::Mapped | Way::Direct => Whose::Peer,
        }
    }
}
