//! Figures: the cache suite's section of the report page.
//!
//! Owns: its figures, its sentences, how rows were taken.
//! Does not own: the values (`report`), how it looks (`page`).

use super::{CacheState, Line, Report};
use crate::bench::cache::{Access, Source, THREADS};
use crate::bench::section::{Bar, Bars, Better, Figure, Method, Section, Table, Whose, sentence};
use crate::bench::suite::{PAGE_BYTES, place_words, rounds_sentence};
use crate::shared::units::readable;

impl Report {
    pub(in crate::bench::cache) fn section(&self) -> Section {
        let bars = Access::ALL.into_iter().map(|access| Figure::Bars(self.bars(access)));
        Section {
            id: "cache",
            title: "Cached reads".to_owned(),
            question: "What does it cost to read again what is cached, and does a second thread help?"
                .to_owned(),
            answer: sentence(&self.verdict()),
            figures: bars.chain([Figure::Table(self.scaling()), Figure::Table(self.residency())]).collect(),
            methods: self.methods(),
            facts: self.facts(),
            notes: self.notes.iter().map(|note| sentence(note)).collect(),
            ..Section::default()
        }
    }

    fn bars(&self, access: Access) -> Bars {
        let bar = |row: &Line| Bar {
            label: format!("{}, {}", row.source, threads_words(row.threads)),
            value: row.ns_per_read,
            spread: (row.ns_per_read_min, row.ns_per_read_max),
            whose: whose(row.source),
            note: String::new(),
        };
        let bars = self.rows.iter().filter(|row| row.bytes == access.bytes()).map(bar);
        Bars {
            caption: format!(
                "Random reads of {} from a cache, as one thread waits",
                readable(access.bytes())
            ),
            unit: "ns per read",
            better: Better::Lower,
            bars: bars.collect(),
        }
    }

    fn scaling(&self) -> Table {
        let rows = self.rows.iter().filter(|row| row.threads > 1).map(|row| {
            let alone = self
                .rows
                .iter()
                .find(|one| one.source == row.source && one.bytes == row.bytes && one.threads == THREADS[0]);
            let rate = |row: &Line| format!("{:.3}", row.reads_per_s / 1e6);
            let cells = vec![
                row.name.clone(),
                alone.map_or("-".to_owned(), rate),
                rate(row),
                row.scaling.map_or("-".to_owned(), |scaling| format!("{scaling:.2}")),
                format!("{:.2}", row.gb_per_s),
                format!("{:.2}", row.ratio_to_pread),
                format!("{:.1}", row.cpu_ns_per_read),
            ];
            (whose(row.source), cells)
        });
        let columns = [
            "cached random read",
            "1 thread, M reads/s",
            "2 threads, M reads/s",
            "scaling",
            "2 threads, GB/s",
            "2 threads, × pread",
            "CPU ns per read",
        ];
        Table {
            caption: "Two threads against one".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }

    fn residency(&self) -> Table {
        let known = |pages: Option<u64>| pages.map_or("unknown".to_owned(), |pages| pages.to_string());
        let row = |cache: &CacheState| {
            let held = cache.held_bytes.map_or("-".to_owned(), readable);
            let before_and_after = [cache.kernel_pages_before, cache.kernel_pages_after].map(known);
            let cells = [vec![cache.source.to_owned()], before_and_after.to_vec(), vec![held]].concat();
            (whose(cache.source), cells)
        };
        let columns = ["read by", "page cache before", "page cache after", "headwater's cache"];
        Table {
            caption: format!("Where the set of {} pages was, in pages", self.set_bytes / PAGE_BYTES),
            columns: columns.map(str::to_owned).to_vec(),
            rows: self.caches.iter().map(row).collect(),
        }
    }

    fn methods(&self) -> Vec<Method> {
        let set = readable(self.set_bytes);
        let how = format!(
            "A set of {set} is made cold (posix_fadvise, POSIX_FADV_DONTNEED). Then a child process for each of the \
             three fills its cache by reading the set, counts which of its pages are where, and reads at random \
             places for {} s a row, with one thread and with two that have a file descriptor in common. {}",
            self.seconds,
            rounds_sentence(self.rounds)
        );
        let options =
            "--rw=randread --ioengine=psync --direct=0 --invalidate=0 --pre_read=1 --bs=4k --runtime=5";
        let fio = self.fio_file.job("cached", &format!("{options} --time_based"));
        vec![
            Method { what: "All rows".to_owned(), how, fio: None },
            Method {
                what: "headwater".to_owned(),
                how: "File::read_at from headwater's own memory; the kernel's page cache holds nothing of the set."
                    .to_owned(),
                fio: None,
            },
            Method {
                what: "pread".to_owned(),
                how: "pread(2) from the kernel's page cache, a system call for each read.".to_owned(),
                fio: Some(fio),
            },
            Method {
                what: "mmap".to_owned(),
                how: "A copy from the mapped page cache: no system call, and a page fault for each page at first."
                    .to_owned(),
                fio: None,
            },
        ]
    }

    fn facts(&self) -> Vec<(String, String)> {
        let mut facts = self.host.facts();
        facts
            .push(("Set".to_owned(), format!("{} in {}", readable(self.set_bytes), place_words(&self.path))));
        facts.push(("Rounds".to_owned(), self.rounds.to_string()));
        facts
    }
}

fn whose(source: &str) -> Whose {
    if source == Source::Headwater.id() { Whose::Headwater } else { Whose::Peer }
}

fn threads_words(threads: u32) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}
