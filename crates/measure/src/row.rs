//! Row: a way of doing something, and all samples of it.
//
// Owns: labels and metrics, which of several samples counts, a row as JSON.
// Does not own: taking samples (suites), comparing rows (`verdict`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

/// One way of doing something.
#[derive(Clone, Debug)]
pub struct Row {
    /// Colours its bars and decides which rows are rivals.
    pub whose: Whose,
    /// What it is called where it is drawn.
    pub name: String,
    /// What only holds for this row: `first 64 MiB only`. Empty for most.
    pub remark: String,
    labels: Map<String, Value>,
    metrics: Vec<Metric>,
}

/// The maker of what a row measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// This project.
    Headwater,
    /// Rivals that do the same.
    Peer,
    /// What the device, or the memory, can do at most.
    Limit,
}

/// One figure of a row, a sample a round.
#[derive(Clone, Debug)]
pub struct Metric {
    /// In JSON: `mib_per_s`.
    pub name: &'static str,
    /// For people: `MiB/s`.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// In the order of the rounds; empty where nothing was to be measured.
    pub samples: Vec<f64>,
    pick: Pick,
}

/// Which of two values of a metric wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Rates.
    Higher,
    /// Times and costs.
    Lower,
}

/// Which of the samples counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pick {
    Median,
    Least,
    Most,
    /// There is one, computed of others.
    Only,
}

impl Metric {
    /// The median counts; JSON gets the lowest and the highest too.
    pub fn new(
        name: &'static str,
        unit: &'static str,
        better: Better,
        samples: impl IntoIterator<Item = f64>,
    ) -> Metric {
        Metric { name, unit, better, samples: samples.into_iter().collect(), pick: Pick::Median }
    }

    /// One value that was computed of others.
    pub fn only(name: &'static str, value: Option<f64>) -> Metric {
        Metric { pick: Pick::Only, ..Metric::new(name, "", Better::Higher, value) }
    }

    /// One value of which less is better.
    pub fn cost(name: &'static str, unit: &'static str, value: Option<f64>) -> Metric {
        Metric { pick: Pick::Only, ..Metric::new(name, unit, Better::Lower, value) }
    }

    /// The highest counts instead of the median.
    pub fn most(self) -> Metric {
        Metric { pick: Pick::Most, ..self }
    }

    /// The lowest counts instead of the median.
    pub fn least(self) -> Metric {
        Metric { pick: Pick::Least, ..self }
    }

    /// The median counts, and JSON gets nothing else.
    pub fn plain(self) -> Metric {
        let value = self.value();
        Metric { samples: value.into_iter().collect(), pick: Pick::Only, ..self }
    }

    /// What counts; `None` without samples.
    pub fn value(&self) -> Option<f64> {
        let (low, high) = self.spread()?;
        Some(match self.pick {
            Pick::Median | Pick::Only => median(self.samples.iter().copied()),
            Pick::Least => low,
            Pick::Most => high,
        })
    }

    /// The lowest and the highest sample.
    pub fn spread(&self) -> Option<(f64, f64)> {
        let samples = || self.samples.iter().copied();
        Some((samples().reduce(f64::min)?, samples().reduce(f64::max)?))
    }
}

impl Row {
    /// A row without figures yet.
    pub fn new(whose: Whose, name: impl Into<String>) -> Row {
        let (labels, metrics) = (Map::new(), Vec::new());
        Row { whose, name: name.into(), remark: String::new(), labels, metrics }
    }

    /// Adds what tells the row from others, for JSON.
    #[must_use]
    pub fn label(mut self, name: &'static str, value: impl Into<Value>) -> Row {
        self.labels.insert(name.to_owned(), value.into());
        self
    }

    /// Adds the name as label `name`.
    #[must_use]
    pub fn named(self) -> Row {
        let name = self.name.clone();
        self.label("name", name)
    }

    /// Adds a figure.
    #[must_use]
    pub fn metric(mut self, metric: Metric) -> Row {
        self.metrics.push(metric);
        self
    }

    /// Adds the row's value of a metric against that of another row.
    pub fn add_ratio(&mut self, name: &'static str, of: &str, base: Option<f64>) {
        let ratio = self.value(of).zip(base).map(|(own, base)| own / base);
        self.metrics.push(Metric::only(name, ratio));
    }

    /// What a label says, if it is text.
    pub fn text(&self, label: &str) -> &str {
        self.labels.get(label).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether all of these labels are texts that say this.
    pub fn is(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(label, text)| self.text(label) == *text)
    }

    /// A label that is a number.
    pub fn number(&self, label: &str) -> u64 {
        self.labels.get(label).and_then(Value::as_u64).unwrap_or_default()
    }

    /// A label that is a curve: pairs of numbers.
    pub fn points(&self, label: &str) -> Vec<(f64, f64)> {
        let points = self.labels.get(label).and_then(|points| Vec::deserialize(points).ok());
        points.unwrap_or_default()
    }

    /// A metric by its name.
    pub fn find(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// What counts of a metric; `None` where there is none, or no sample.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.find(name)?.value()
    }

    /// The lowest and the highest sample of a metric.
    pub fn spread(&self, name: &str) -> Option<(f64, f64)> {
        self.find(name)?.spread()
    }
}

impl Serialize for Row {
    /// Labels, then each metric by its name (`null` where nothing was measured), `_min` and `_max` beside medians, and all
    /// samples of those below `metrics`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (mut all, mut sampled) = (self.labels.clone(), Vec::new());
        for metric in &self.metrics {
            let Metric { name, unit, better, samples, pick } = metric;
            all.insert((*name).to_owned(), json!(metric.value()));
            if let (Pick::Median, Some((low, high))) = (pick, metric.spread()) {
                all.insert(format!("{name}_min"), json!(low));
                all.insert(format!("{name}_max"), json!(high));
                sampled.push(json!({"name": name, "unit": unit, "better": better, "samples": samples}));
            }
        }
        if !sampled.is_empty() {
            all.insert("metrics".to_owned(), Value::Array(sampled));
        }
        all.serialize(serializer)
    }
}

/// What one run of something reports: a number for each name, as a child prints it.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// With one more, or another value of one.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Figures {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// Zero where nothing was reported: what means nothing for a way of doing something.
    pub fn get(&self, name: &str) -> f64 {
        self.find(name).unwrap_or(0.0)
    }

    /// `None` where nothing was reported.
    pub fn find(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Of each name the median of those that report it.
    pub fn median(samples: &[Figures]) -> Figures {
        let names = samples.iter().flat_map(|figures| figures.0.keys());
        let of = |name: &String| median(samples.iter().filter_map(|figures| figures.find(name)));
        Figures(names.map(|name| (name.clone(), of(name))).collect())
    }
}

impl<const COUNT: usize> From<[(&str, f64); COUNT]> for Figures {
    fn from(figures: [(&str, f64); COUNT]) -> Figures {
        Figures(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// The middle one; of an even number the mean of the two in the middle; zero of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (odd, middle) if odd % 2 == 1 => values[middle],
        (_, middle) => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    /// Goal: each kind of metric has the fields that it is to have, and what was not measured is `null`.
    #[test]
    fn rows_as_json() {
        let rate = Metric::new("rate", "1/s", Better::Higher, [2.0, 6.0, 4.0]);
        let peak = Metric::new("peak", "MiB", Better::Lower, [2.0, 6.0]).most();
        let mut row = Row::new(Whose::Peer, "std").label("id", "a").named().metric(rate).metric(peak);
        row.add_ratio("ratio", "rate", Some(8.0));
        row.add_ratio("none", "rate", None);
        let expected = json!({
            "id": "a", "name": "std", "rate": 4.0, "rate_min": 2.0, "rate_max": 6.0, "peak": 6.0, "ratio": 0.5, "none": null,
            "metrics": [{"name": "rate", "unit": "1/s", "better": "higher", "samples": [2.0, 6.0, 4.0]}]
        });
        assert_eq!(serde_json::to_value(&row).unwrap(), expected);
    }

    /// Goal: medians of each name by itself, also where not all runs report it.
    #[test]
    fn medians_of_figures() {
        let runs = [("a", 1.0), ("a", 3.0), ("b", 7.0)].map(|figure| Figures::from([figure]));
        let medians = Figures::median(&runs);
        assert_eq!(medians, Figures::from([("a", 2.0), ("b", 7.0)]));
        assert_eq!((medians.get("c"), medians.find("c")), (0.0, None));
    }
}
