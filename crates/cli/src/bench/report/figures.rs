//! Figures: the scan's section of the report page.
//!
//! Owns: its figures, its sentences, how rows were taken and by which job of fio.
//! Does not own: the values (`report`), how it looks (`page`).

use super::{FioFile, Line, Report, fastest};
use crate::bench::headline::{self, Contestant};
use crate::bench::rows::BUFFERED_ID;
use crate::bench::section::{Bar, Bars, Better, Figure, Method, Section, Table, Whose, sentence};
use crate::bench::suite::{place_words, rounds_sentence};
use crate::shared::units::readable;

impl Report {
    pub(in crate::bench) fn section(&self) -> Section {
        Section {
            id: "scan",
            title: "Cold sequential read".to_owned(),
            question: "How fast is a cold file read from start to end, and what does that cost?".to_owned(),
            answer: self.verdict().map_or_else(String::new, |verdict| sentence(&verdict)),
            headline: self.headline().unwrap_or_default(),
            figures: vec![
                Figure::Bars(self.rates()),
                Figure::Bars(self.processor()),
                Figure::Table(self.memory()),
            ],
            methods: methods(&self.fio_file, self.rounds, &self.fio),
            facts: self.facts(),
            notes: self
                .skipped
                .iter()
                .map(|row| format!("Skipped {}: {}.", row.name, row.reason))
                .chain(self.notes.iter().map(|note| sentence(note)))
                .collect(),
        }
    }

    fn headline(&self) -> Option<String> {
        let ours = |row: &&Line| row.is_headwater;
        let plain = self.rows.iter().find(|row| row.id == BUFFERED_ID)?;
        Some(headline::sentence(&headline::Contest {
            plain: contestant(plain),
            headwater: fastest(self.rows.iter().filter(ours)).map(contestant),
            other: contestant(fastest(self.rows.iter().filter(|row| !ours(row)))?),
            was_cold: self.was_cold,
        }))
    }

    fn rates(&self) -> Bars {
        self.bars("Rate of a cold sequential read", "MiB/s", Better::Higher, |row| {
            (row.mib_per_s, (row.mib_per_s_min, row.mib_per_s_max))
        })
    }

    fn processor(&self) -> Bars {
        self.bars("Processor time", "CPU s/GiB", Better::Lower, |row| {
            (row.cpu_s_per_gib, (row.cpu_s_per_gib_min, row.cpu_s_per_gib_max))
        })
    }

    fn bars(
        &self,
        caption: &str,
        unit: &'static str,
        better: Better,
        value: impl Fn(&Line) -> (f64, (f64, f64)),
    ) -> Bars {
        let bar = |row: &Line| {
            let (value, spread) = value(row);
            let note = row.slice_bytes.map(|bytes| format!("first {} only", readable(bytes & !0xfffff)));
            Bar { label: row.name.clone(), value, spread, whose: row.whose(), note: note.unwrap_or_default() }
        };
        Bars { caption: caption.to_owned(), unit, better, bars: self.rows.iter().map(bar).collect() }
    }

    fn memory(&self) -> Table {
        let row = |row: &Line| {
            let ratio = row.ratio_to_buffered.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            let read = row.slice_bytes.unwrap_or(self.file.bytes);
            (
                row.whose(),
                vec![row.name.clone(), format!("{:.1}", row.peak_rss_mib), ratio, readable(read & !0xfffff)],
            )
        };
        Table {
            caption: "Memory of the process at its peak, without that of one that does nothing".to_owned(),
            columns: ["way to read", "peak, MiB", "rate, × buffered", "read"].map(str::to_owned).to_vec(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    fn facts(&self) -> Vec<(String, String)> {
        let mut facts = self.host.facts();
        let file = match self.file.made_for_this {
            true => {
                format!("{} made in {} and removed", readable(self.file.bytes), place_words(&self.file.path))
            }
            false => format!("{} of {}", readable(self.file.bytes), place_words(&self.file.path)),
        };
        facts.extend([("File".to_owned(), file), ("Rounds".to_owned(), self.rounds.to_string())]);
        facts
    }
}

impl Line {
    fn whose(&self) -> Whose {
        if self.is_headwater { Whose::Headwater } else { Whose::Peer }
    }
}

fn contestant(row: &Line) -> Contestant<'_> {
    let spread = (row.mib_per_s_min, row.mib_per_s_max);
    Contestant { name: &row.name, mib_per_s: row.mib_per_s, spread, cpu_s_per_gib: row.cpu_s_per_gib }
}

fn methods(file: &FioFile, rounds: u32, limit: &str) -> Vec<Method> {
    let method = |what: &str, how: &str, fio: Option<String>| Method {
        what: what.to_owned(),
        how: how.to_owned(),
        fio,
    };
    let job = |name: &str, options: &str| Some(file.job(name, &format!("--rw=read {options}")));
    let all = format!(
        "Each row is measured in a child process of its own, so processor time and memory are its own too. Before \
         each, the kernel is told to forget the file (posix_fadvise, POSIX_FADV_DONTNEED), and whether it did is \
         checked. {} Everyone looks at the first byte of each page, and the sums of those must \
         agree. The page cache is never dropped as a whole, so nothing else on the machine is slowed down.",
        rounds_sentence(rounds)
    );
    vec![
        method("All rows", &all, None),
        method(
            "std buffered",
            "std::fs::File::read, blocks of that size, through the page cache.",
            job("buffered", "--ioengine=psync --direct=0 --invalidate=1 --bs=128k"),
        ),
        method(
            "O_DIRECT",
            "read(2) around the page cache, one request at a time, into an aligned buffer of 4 KiB pages or in a \
             huge page.",
            job("direct", "--ioengine=psync --direct=1 --bs=1M --mem=mmaphuge"),
        ),
        method(
            "mmap",
            "The file is mapped, and a byte of each page is read; with MADV_SEQUENTIAL where that is said.",
            job("mmap", "--ioengine=mmap --invalidate=1 --bs=4k"),
        ),
        method(
            "headwater 4 KiB × n and 128 KiB × n",
            "headwater's reader with requests of that size and n of them in flight, whatever the device would like.",
            job("fixed", "--ioengine=io_uring --direct=1 --bs=128k --iodepth=32 --mem=mmaphuge"),
        ),
        method(
            "headwater tuned",
            "headwater's reader as it comes: zero-copy looks at the frames themselves, copying reads into a buffer of \
             1 MiB, polled asks the device instead of waiting for its interrupts.",
            None,
        ),
        method(
            "The device's limit",
            "32 requests of 1 MiB in flight, and nobody looks at the bytes.",
            Some(limit.to_owned()),
        ),
    ]
}
