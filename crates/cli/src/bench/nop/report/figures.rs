//! Figures: the nop suite's section of the report page.
//!
//! Owns: its figures, its sentences, how rows were taken.
//! Does not own: the values (`report`), how it looks (`page`).

use super::{Line, Outcome, Report, TITLE};
use crate::bench::nop::latency::Latencies;
use crate::bench::section::{Curve, Curves, Figure, Method, Section, Table, Whose, sentence};

impl Report {
    pub(in crate::bench::nop) fn section(&self) -> Section {
        Section {
            id: "nop",
            title: TITLE.to_owned(),
            question: "What does the way into the kernel cost, without any device?".to_owned(),
            answer: self.verdict().map_or_else(String::new, |verdict| sentence(&verdict)),
            figures: vec![Figure::Curves(self.curves()), Figure::Table(self.table())],
            methods: vec![self.method()],
            facts: self.facts(),
            ..Section::default()
        }
    }

    fn curves(&self) -> Curves {
        let curve = |outcome: &Outcome| Curve {
            label: outcome.row.name(),
            whose: Whose::Headwater,
            points: points(&outcome.measured.latencies),
        };
        let curves = self.outcomes.iter().map(curve).collect();
        Curves { caption: "Latency of a batch of requests that do nothing".to_owned(), unit: "µs", curves }
    }

    fn table(&self) -> Table {
        let row = |row: &Line| {
            let latency = &row.latency;
            let times = [latency.mean_us, latency.p50_us, latency.p90_us, latency.p99_us, latency.p99_9_us];
            let tails = [latency.p99_99_us, latency.p99_999_us, latency.max_us];
            let mut cells =
                vec![row.name.clone(), row.batches.to_string(), format!("{:.0}", row.batches_per_s)];
            cells.extend(times.map(|time| format!("{time:.2}")));
            cells.extend(tails.map(|time| format!("{time:.1}")));
            cells.push(format!("{:.2}", row.enters_per_batch));
            (Whose::Headwater, cells)
        };
        let columns = [
            "threads × entries",
            "batches",
            "batches/s",
            "mean, µs",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "p99.99",
            "p99.999",
            "max",
            "enters per batch",
        ];
        Table {
            caption: "Batches and their latencies".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    fn method(&self) -> Method {
        let how = format!(
            "Threads push batches of {} requests that do nothing (IORING_OP_NOP) into headwater's ring and wait for \
             all of them, for {} s a row in this process; each batch goes into a histogram of three digits. Any-thread \
             rings are shared by all threads, local ones belong to one each. Enters are calls of io_uring_enter(2).",
            self.rows.first().map_or(0, |row| row.batch),
            self.seconds
        );
        Method { what: "All rows".to_owned(), how, fio: None }
    }

    fn facts(&self) -> Vec<(String, String)> {
        let mut facts = self.host.facts();
        facts.push(("Time a row".to_owned(), format!("{} s", self.seconds)));
        facts.push(("Affinity of threads".to_owned(), self.affinity.clone()));
        facts
    }
}

/// From the median on, as far as there are batches enough to tell.
fn points(latencies: &Latencies) -> Vec<(f64, f64)> {
    let nines_max = (latencies.count().max(10) as f64).log10().min(NINES_MAX);
    let step = (nines_max - NINES_MIN) / f64::from(STEPS);
    let nines = (0..=STEPS).map(|index| NINES_MIN + step * f64::from(index));
    nines.map(|nines| 1.0 - 10_f64.powf(-nines)).map(|share| (share, latencies.within_us(share))).collect()
}

/// The median.
const NINES_MIN: f64 = std::f64::consts::LOG10_2;

/// p99.999, the last of the table.
const NINES_MAX: f64 = 5.0;

/// Smooth at the width of the page.
const STEPS: u32 = 100;
