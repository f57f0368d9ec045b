//! Figures: the readahead suite's section of the report page.
//!
//! Owns: its figures, its sentences, how rows were taken.
//! Does not own: the values (`report`), how it looks (`page`).

use super::{Line, Pattern, READ_AHEAD_KB, Reader, Report, column_name};
use crate::bench::section::{Bar, Bars, Better, Figure, HeatMap, Method, Section, Table, Whose, sentence};
use crate::bench::suite::{median, place_words, rounds_sentence};
use crate::shared::units::readable;

impl Report {
    pub(in crate::bench::readahead) fn section(&self) -> Section {
        Section {
            id: "readahead",
            title: "Readahead".to_owned(),
            question: "What does readahead make of a cold file that is read in some order?".to_owned(),
            answer: self.answer().unwrap_or_default(),
            figures: self.figures(),
            methods: vec![self.method()],
            facts: self.facts(),
            notes: self.notes.iter().map(|note| sentence(note)).collect(),
            ..Section::default()
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let overview = [Figure::HeatMap(self.overview()), Figure::Table(self.rates())];
        self.ratios(Reader::Kernel).map(Figure::Bars).into_iter().chain(overview).collect()
    }

    /// All rates at a glance: who reads well in which order.
    fn overview(&self) -> HeatMap {
        let readers =
            self.readers.iter().filter(|reader| self.rows.iter().any(|row| row.reader == reader.id()));
        let readers: Vec<Reader> = readers.copied().collect();
        let rate = |pattern, reader: &Reader| self.row(pattern, *reader).map(|row| row.mib_per_s);
        let cells = |pattern| readers.iter().map(|reader| rate(pattern, reader)).collect();
        let orders = Pattern::ALL.map(|pattern| pattern.name().to_owned()).to_vec();
        HeatMap {
            caption: "Rates by order and reader".to_owned(),
            unit: "MiB/s",
            across: ("reader".to_owned(), readers.iter().map(|reader| self.reader_words(*reader)).collect()),
            down: ("order of reads".to_owned(), orders),
            cells: Pattern::ALL.into_iter().map(cells).collect(),
            chosen: None,
        }
    }

    /// headwater's row of each pattern, and how many times the kernel's rate that is.
    fn compared(&self, kernel: Reader) -> Vec<(Pattern, f64)> {
        let ratio = |row: &Line| if kernel == Reader::Kernel { row.ratio } else { row.ratio_128 };
        let of = |pattern| Some((pattern, ratio(self.row(pattern, self.ours()?)?)?));
        Pattern::ALL.into_iter().filter_map(of).collect()
    }

    fn answer(&self) -> Option<String> {
        let compared = self.compared(Reader::Kernel);
        let ordered = |left: &&(Pattern, f64), right: &&(Pattern, f64)| left.1.total_cmp(&right.1);
        let (best, worst) = (compared.iter().max_by(ordered)?, compared.iter().min_by(ordered)?);
        let middle = |compared: &[(Pattern, f64)]| median(compared.iter().map(|(_, ratio)| *ratio));
        let mut text = format!(
            "In the median of {} orders headwater reads at {:.2} × the rate of the ",
            compared.len(),
            middle(&compared)
        );
        text += &self.kernel_words(Reader::Kernel);
        let common = self.compared(Reader::Kernel128);
        if !common.is_empty() {
            text += &format!(
                ", and at {:.2} × that of the {}",
                middle(&common),
                self.kernel_words(Reader::Kernel128)
            );
        }
        let (least, most) = (worst.1, best.1);
        text += &format!(
            "; it is {least:.2} × in the worst ({}) and {most:.2} × in the best ({}).",
            worst.0.name(),
            best.0.name()
        );
        Some(text)
    }

    fn ratios(&self, kernel: Reader) -> Option<Bars> {
        let bar = |label: &str, value, whose| Bar {
            label: label.to_owned(),
            value,
            spread: (value, value),
            whose,
            note: String::new(),
        };
        let compared = self.compared(kernel);
        let ours = compared.iter().map(|&(pattern, ratio)| bar(pattern.name(), ratio, Whose::Headwater));
        let words = self.kernel_words(kernel);
        let bars = [bar(&words, 1.0, Whose::Peer)].into_iter().chain(ours).collect();
        let caption = format!("Rate of headwater against the {words}, by order of reads");
        let bars = Bars { caption, unit: "× the kernel's rate", better: Better::Higher, bars };
        (!compared.is_empty()).then_some(bars)
    }

    fn rates(&self) -> Table {
        let row = |pattern: Pattern, reader: &Reader| {
            let row = self.row(pattern, *reader)?;
            let spread = match self.rounds {
                1 => "-".to_owned(),
                _ => format!("{:.0} – {:.0}", row.mib_per_s_min, row.mib_per_s_max),
            };
            let words = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            let device = row.amplification.map_or("-".to_owned(), |device| format!("{device:.2}"));
            let cells = vec![
                format!("{}: {}", pattern.name(), self.reader_words(*reader)),
                format!("{:.0}", row.mib_per_s),
                spread,
                format!("{:.3}", row.cpu_s_per_gib),
                device,
                words(row.ratio),
                words(row.ratio_128),
            ];
            let whose = if matches!(reader, Reader::Headwater(_)) { Whose::Headwater } else { Whose::Peer };
            Some((whose, cells))
        };
        let rows = Pattern::ALL.into_iter().flat_map(|pattern| {
            self.readers.iter().filter_map(move |reader| row(pattern, reader)).collect::<Vec<_>>()
        });
        let ratios =
            [Reader::Kernel, Reader::Kernel128].map(|kernel| format!("× {}", self.reader_words(kernel)));
        let columns = ["order: reader", "MiB/s", "min\u{a0}–\u{a0}max", "CPU s/GiB", "device bytes per byte"];
        Table {
            caption: "All orders and readers".to_owned(),
            columns: columns.map(str::to_owned).into_iter().chain(ratios).collect(),
            rows: rows.collect(),
        }
    }

    fn kernel_words(&self, kernel: Reader) -> String {
        let own = self
            .host
            .storage
            .read_ahead_kb
            .map_or("as the device is set".to_owned(), |kib| format!("of {kib} KiB"));
        let size = if kernel == Reader::Kernel { own } else { format!("of {READ_AHEAD_KB} KiB") };
        format!("kernel with readahead {size}")
    }

    fn reader_words(&self, reader: Reader) -> String {
        match (reader, self.host.storage.read_ahead_kb) {
            (Reader::Kernel, Some(kib)) => format!("kernel, {kib} KiB"),
            (Reader::Kernel, None) => "kernel".to_owned(),
            (Reader::Kernel128, _) => format!("kernel, {READ_AHEAD_KB} KiB"),
            (Reader::Headwater(_), _) => format!("headwater, {}", column_name(reader)),
        }
    }

    fn method(&self) -> Method {
        let how = format!(
            "Each row is measured in a child process of its own, after the kernel was made to forget the file \
             (posix_fadvise, POSIX_FADV_DONTNEED), and all readers of an order must read the same bytes. The kernel's \
             rows are pread(2) through the page cache, with the readahead the device is set to, or with {READ_AHEAD_KB} \
             KiB, which most systems have; headwater's are File::read_at. Device bytes per byte is what the process \
             asked of devices (/proc/self/io) for each byte it wanted. {}",
            rounds_sentence(self.rounds)
        );
        let options = "--rw=randread --ioengine=psync --direct=0 --invalidate=1 --fadvise_hint=0 --bs=4k";
        let fio = self.fio_file.job("random", &format!("{options} --number_ios={}", self.places));
        Method { what: "All rows; the line is random, 4 KiB, by the kernel".to_owned(), how, fio: Some(fio) }
    }

    fn facts(&self) -> Vec<(String, String)> {
        let mut facts = self.host.facts();
        facts.push((
            "Read".to_owned(),
            format!("up to {} of {}", readable(self.bytes), place_words(&self.path)),
        ));
        facts.push(("Rounds".to_owned(), self.rounds.to_string()));
        facts
    }
}
