//! Tables: figures of all queries and stores, for a terminal and for the report page.
//!
//! Owns: what is shown, ratios and their intervals.
//! Does not own: taking figures (`compare`).

use headwater_measure::{Better, Figure, Figures, Media, Metric, Row, Table, Whose, interval, median};

use crate::queries::Query;
use crate::stores::Kind;

/// A query over a store, and a sample of each round.
pub struct Way {
    /// The query.
    pub query: Query,
    /// The store.
    pub store: Kind,
    /// A sample of each round.
    pub samples: Vec<Figures>,
    /// Why it has no more samples.
    pub failure: Option<String>,
}

/// Whether a query has failed in none of its ways.
pub fn is_whole(ways: &[Way], query: &str) -> bool {
    ways.iter().all(|way| way.query.name != query || way.failure.is_none())
}

impl Way {
    /// Not measured yet.
    pub fn new(query: Query, store: Kind) -> Way {
        Way { query, store, samples: Vec::new(), failure: None }
    }

    /// For JSON.
    pub fn row(&self) -> Row {
        let name = format!("{} {}", self.query.name, self.store.name());
        let row = Row::new(whose(self.store), name)
            .label("query", &*self.query.name)
            .label("store", self.store.name());
        METRICS.iter().fold(row, |row, &(name, unit, _)| {
            row.metric(Metric::new(name, unit, Better::Lower, self.values(name)))
        })
    }

    fn values(&self, metric: &str) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.find(metric)).collect()
    }

    fn median(&self, metric: &str) -> Option<f64> {
        let values = self.values(metric);
        (!values.is_empty() && self.failure.is_none()).then(|| median(values))
    }
}

/// Name, unit and places of each figure.
const METRICS: [(&str, &str, usize); 6] = [
    ("seconds", "s", 3),
    ("cpu_seconds", "s", 3),
    ("wait_seconds", "s", 3),
    ("read_mib", "MiB", 1),
    ("returned_mib", "MiB", 1),
    ("peak_mib", "MiB", 0),
];

/// The times of all queries, the sums of all figures, and on the page the other figures of all queries.
pub fn all(ways: &[Way], stores: &[Kind]) -> Vec<Figure> {
    let mut tables = vec![times(ways, stores), sums(ways, stores)];
    for (metric, unit, places) in &METRICS[1..] {
        let caption = format!("{} of each query, {unit}", caption(metric));
        tables.push(of_queries(ways, stores, caption, Media::Page, |query| {
            let of =
                |&store: &Kind| shown(find(ways, query, store).and_then(|way| way.median(metric)), *places);
            stores.iter().map(of).collect()
        }));
    }
    tables.into_iter().map(Figure::Table).collect()
}

fn times(ways: &[Way], stores: &[Kind]) -> Table {
    let bases = bases(stores);
    let mut table = of_queries(ways, stores, "Seconds of each query".to_owned(), Media::Both, |query| {
        let seconds =
            |&store: &Kind| shown(find(ways, query, store).and_then(|way| way.median("seconds")), 3);
        let ratio = |&base: &Kind| {
            find(ways, query, Kind::Headwater).zip(find(ways, query, base)).and_then(ratio_words)
        };
        let ratios = bases.iter().map(|base| ratio(base).unwrap_or_else(|| "-".to_owned()));
        stores.iter().map(seconds).chain(ratios).collect()
    });
    table.columns.extend(bases.iter().map(|base| format!("headwater : {}", base.name())));
    table
}

/// The stores that headwater is held against.
fn bases(stores: &[Kind]) -> Vec<Kind> {
    let is_compared = stores.contains(&Kind::Headwater);
    stores.iter().copied().filter(|&store| is_compared && store != Kind::Headwater).collect()
}

/// A line for each query that has been run.
fn of_queries(
    ways: &[Way],
    stores: &[Kind],
    caption: String,
    media: Media,
    cells: impl Fn(&str) -> Vec<String>,
) -> Table {
    let mut names: Vec<&str> = ways.iter().map(|way| &*way.query.name).collect();
    names.dedup();
    let rows =
        names.iter().map(|name| (Whose::Peer, [(*name).to_owned()].into_iter().chain(cells(name)).collect()));
    let columns =
        ["query"].into_iter().chain(stores.iter().map(|store| store.name())).map(str::to_owned).collect();
    Table { caption, columns, minor: Vec::new(), rows: rows.collect(), media }
}

/// A line for each store: sums over the queries that every store has finished, and the highest of the peaks.
fn sums(ways: &[Way], stores: &[Kind]) -> Table {
    let is_finished =
        |query: &str| ways.iter().filter(|way| way.query.name == query).all(|way| way.failure.is_none());
    let of_store =
        |store: Kind| ways.iter().filter(move |way| way.store == store && is_finished(&way.query.name));
    // Nothing where there is nothing to sum.
    let sum = |store, metric| {
        of_store(store).map(|way| way.median(metric)).reduce(|left, right| Some(left? + right?)).flatten()
    };
    let first = stores.first().copied().unwrap_or(Kind::Local);
    let line = |&store: &Kind| {
        let ratio = sum(store, "seconds").zip(sum(first, "seconds")).map(|(own, base)| own / base);
        let peak = of_store(store).filter_map(|way| way.median("peak_mib")).reduce(f64::max);
        let cells = [
            store.name().to_owned(),
            shown(sum(store, "seconds"), 3),
            shown(ratio, 3),
            shown(sum(store, "cpu_seconds"), 2),
            shown(sum(store, "wait_seconds"), 3),
            shown(sum(store, "read_mib"), 0),
            shown(sum(store, "returned_mib"), 0),
            shown(peak, 0),
        ];
        (whose(store), cells.to_vec())
    };
    let columns = ["store", "s", ": first", "CPU s", "waiting s", "read MiB", "returned MiB", "peak MiB"];
    Table {
        caption: "Sums of all queries".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        minor: vec![6, 2],
        rows: stores.iter().map(line).collect(),
        media: Media::Both,
    }
}

fn find<'a>(ways: &'a [Way], query: &str, store: Kind) -> Option<&'a Way> {
    ways.iter().find(|way| way.query.name == query && way.store == store)
}

/// The ratio of two ways' times, round by round: the middle, and the interval in which its mean is with 95 %.
fn ratio_words((ours, theirs): (&Way, &Way)) -> Option<String> {
    let pairs = ours.values("seconds").into_iter().zip(theirs.values("seconds"));
    let logarithms: Vec<f64> = pairs.map(|(own, other)| (own / other).ln()).collect();
    if logarithms.is_empty() || ours.failure.is_some() || theirs.failure.is_some() {
        return None;
    }
    let middle = median(logarithms.iter().copied()).exp();
    Some(match interval(&logarithms) {
        Some((low, high)) => format!("{middle:.2} ({:.2} – {:.2})", low.exp(), high.exp()),
        None => format!("{middle:.2}"),
    })
}

fn whose(store: Kind) -> Whose {
    if store == Kind::Headwater { Whose::Headwater } else { Whose::Peer }
}

fn caption(metric: &str) -> &'static str {
    match metric {
        "cpu_seconds" => "Processor time",
        "wait_seconds" => "Time with a read outstanding",
        "read_mib" => "Read from devices",
        "returned_mib" => "Returned by the store",
        _ => "Peak memory of the process",
    }
}

fn shown(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.places$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(store: Kind, seconds: &[f64]) -> Way {
        let samples = seconds.iter().map(|&seconds| Figures::from([("seconds", seconds)])).collect();
        Way { query: Query::named("6").unwrap(), store, samples, failure: None }
    }

    #[test]
    fn ratios_are_those_of_rounds() {
        let (ours, theirs) = (way(Kind::Headwater, &[1.0, 2.0, 3.0]), way(Kind::Local, &[2.0, 4.0, 6.0]));
        assert_eq!(ratio_words((&ours, &theirs)).unwrap(), "0.50 (0.50 – 0.50)");
        assert_eq!(ratio_words((&way(Kind::Headwater, &[1.0]), &theirs)).unwrap(), "0.50");
        let failed = Way { failure: Some("killed".to_owned()), ..ours };
        assert_eq!(ratio_words((&failed, &theirs)), None);
    }

    /// Goal: a query that one store has not finished is in no sum, and each store has its line.
    #[test]
    fn sums_are_of_the_same_queries() {
        let ways = [way(Kind::Local, &[2.0]), way(Kind::Headwater, &[1.0])];
        let rows = sums(&ways, &[Kind::Local, Kind::Headwater]).rows;
        assert_eq!(rows[1].1[..3], ["headwater", "1.000", "0.500"]);
        let [first, second] = ways;
        let failed = Way { failure: Some("killed".to_owned()), ..second };
        assert_eq!(sums(&[first, failed], &[Kind::Local]).rows[0].1[1], "-");
    }
}
