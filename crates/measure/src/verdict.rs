//! Verdict: what a comparison of rows says, and whether a promise is kept.
//!
//! ```text
//!   rows ─► the best of headwater : the best rival ─► round by round, where the ratio lies ─► around 1, or hardly apart? no difference
//!   a ratio : its limit ─► met, or MISSED; by less than the spread, if the limit lies where the ratio may lie
//! ```
//
// Owns: which rows are compared, when a difference is one, the line of a promise.
// Does not own: the sentence around a comparison (suites), which limits are promised.

use std::fmt;

use serde::Serialize;

use crate::row::{Better, Metric, Row, Whose};
use crate::statistics;

/// Two rows by one metric.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// Usually the best of headwater.
    pub ours: &'a Row,
    /// Usually the best of all that are not.
    pub theirs: &'a Row,
    /// Our value against theirs.
    pub ratio: f64,
    /// Whether the ratio is more than chance.
    pub outcome: Outcome,
    metrics: (&'a Metric, &'a Metric),
}

/// Of a comparison, seen from our side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Better by more than what may be chance.
    Better,
    /// Worse by more than that.
    Worse,
    /// The samples do not tell.
    NoDifference,
}

impl<'a> Comparison<'a> {
    /// The best of headwater's rows with the best of its peers'. `None` where one of them has no figures.
    pub fn of_best(rows: impl Iterator<Item = &'a Row> + Clone, metric: &str) -> Option<Comparison<'a>> {
        let of = |whose| best(rows.clone().filter(move |row| row.whose == whose), metric);
        Comparison::of(of(Whose::Headwater)?, of(Whose::Peer)?, metric)
    }

    /// Two given rows. `None` where one of them has no figures, or there is no ratio to the other's because that is 0.
    pub fn of(ours: &'a Row, theirs: &'a Row, metric: &str) -> Option<Comparison<'a>> {
        let (one, other) = (ours.find(metric)?, theirs.find(metric)?);
        let ratio = Some(one.value()? / other.value()?).filter(|ratio| ratio.is_finite())?;
        // Seen as if more were better.
        let seen = |ratio: f64| if one.better == Better::Higher { ratio } else { 1.0 / ratio };
        let outcome = match seen(ratio) {
            _ if may_be(1.0, one, other) => Outcome::NoDifference,
            ratio if ratio >= NOTEWORTHY => Outcome::Better,
            ratio if 1.0 / ratio >= NOTEWORTHY => Outcome::Worse,
            _ => Outcome::NoDifference,
        };
        Some(Comparison { ours, theirs, ratio, outcome, metrics: (one, other) })
    }

    /// `1.50 × std buffered`, or that there is no difference to it.
    pub fn words(&self) -> String {
        let (name, ratio) = (&self.theirs.name, self.ratio);
        match self.outcome {
            Outcome::NoDifference => format!("no difference to {name} ({ratio:.2} ×)"),
            Outcome::Better | Outcome::Worse => format!("{ratio:.2} × {name}"),
        }
    }
}

/// The row with the best value of a metric.
pub fn best<'a>(rows: impl Iterator<Item = &'a Row>, metric: &str) -> Option<&'a Row> {
    let valued = rows.filter_map(|row| Some((row, row.find(metric)?.value()?, row.find(metric)?.better)));
    let merit = |value: f64, better| if better == Better::Higher { value } else { -value };
    let best = valued.max_by(|one, other| merit(one.1, one.2).total_cmp(&merit(other.1, other.2)));
    best.map(|(row, ..)| row)
}

/// Whether the ratio of two metrics may be this: it lies where theirs lies with 95 %, and some sample of one, times this, lies among those of
/// the other. One round decides.
fn may_be(ratio: f64, ours: &Metric, theirs: &Metric) -> bool {
    let (Some(own), Some(their)) = (ours.spread(), theirs.spread()) else { return false };
    let meet = own.0 <= their.1 * ratio && their.0 * ratio <= own.1;
    let interval = ratio_interval(&ours.samples, &theirs.samples);
    meet && interval.is_some_and(|(low, high)| (low..=high).contains(&ratio))
}

/// Where the ratio of two rows lies, by the ratios of their rounds, which are interleaved; where one has more of them, by each row's own.
fn ratio_interval(ours: &[f64], theirs: &[f64]) -> Option<(f64, f64)> {
    let logarithms = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let (own, their) = (logarithms(ours), logarithms(theirs));
    let (low, high) = if own.len() == their.len() {
        statistics::interval(&own.iter().zip(&their).map(|(own, their)| own - their).collect::<Vec<f64>>())?
    } else {
        let (own, their) = (statistics::interval(&own)?, statistics::interval(&their)?);
        (own.0 - their.1, own.1 - their.0)
    };
    (low.is_finite() && high.is_finite()).then(|| (low.exp(), high.exp()))
}

/// Virtual disks differ by a few per cent from one run to the next.
const NOTEWORTHY: f64 = 1.1;

/// What is promised of a figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Limit {
    fn is_met(self, measured: f64) -> bool {
        match self {
            Limit::AtLeast(limit) => measured >= limit,
            Limit::AtMost(limit) => measured <= limit,
        }
    }
}

/// A figure, and whether it is what was promised.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    title: String,
    /// Usually a ratio.
    pub measured: f64,
    /// `None` for what is told without a promise.
    bar: Option<Limit>,
    is_met: bool,
    /// Whether the limit lies where the ratio may lie, so that other rounds may decide otherwise.
    is_close: bool,
}

impl Verdict {
    /// Holds the ratio of two rows against a limit.
    pub fn of(title: impl Into<String>, comparison: &Comparison<'_>, limit: Limit) -> Verdict {
        let (Limit::AtLeast(bar) | Limit::AtMost(bar)) = limit;
        let is_close = may_be(bar, comparison.metrics.0, comparison.metrics.1);
        Verdict { is_close, ..Verdict::new(title, comparison.ratio, limit) }
    }

    /// Holds a figure against a limit.
    pub fn new(title: impl Into<String>, measured: f64, bar: impl Into<Option<Limit>>) -> Verdict {
        let bar = bar.into();
        let is_met = bar.is_none_or(|bar| bar.is_met(measured));
        Verdict { title: title.into(), measured, bar, is_met, is_close: false }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (title, measured) = (&self.title, self.measured);
        let (sign, limit) = match self.bar {
            None => return write!(f, "  {title:<64} {measured:>9.3}"),
            Some(Limit::AtLeast(limit)) => (">=", limit),
            Some(Limit::AtMost(limit)) => ("<=", limit),
        };
        let verdict = match (self.is_met, self.is_close) {
            (true, false) => "met",
            (true, true) => "met by less than the spread",
            (false, true) => "MISSED by less than the spread",
            (false, false) => "MISSED",
        };
        write!(f, "{title:<66} {measured:>9.3} {sign}{limit:>5}  {verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, whose: Whose, better: Better, samples: &[f64]) -> Row {
        Row::new(whose, name).metric(Metric::new("it", "", better, samples.iter().copied()))
    }

    fn outcome(better: Better, ours: &[f64], theirs: &[f64]) -> Outcome {
        let (ours, theirs) =
            (row("a", Whose::Headwater, better, ours), row("b", Whose::Peer, better, theirs));
        Comparison::of(&ours, &theirs, "it").unwrap().outcome
    }

    /// Goal: a difference takes a tenth, and rounds of which nearly each shows it; it knows which way is better, and more rounds tell more.
    #[test]
    fn differences() {
        use Better::{Higher, Lower};
        assert_eq!(outcome(Higher, &[20.0, 21.0], &[10.0, 11.0]), Outcome::Better);
        assert_eq!(outcome(Higher, &[10.0, 11.0], &[20.0, 21.0]), Outcome::Worse);
        assert_eq!(outcome(Higher, &[10.0, 30.0], &[15.0, 15.0]), Outcome::NoDifference);
        assert_eq!(outcome(Higher, &[10.5], &[10.0]), Outcome::NoDifference);
        assert_eq!(outcome(Higher, &[12.0, 12.4, 11.6, 12.2], &[10.0, 10.1, 9.9]), Outcome::Better);
        assert_eq!(outcome(Lower, &[10.0], &[20.0]), Outcome::Better);
        assert_eq!(outcome(Lower, &[20.0], &[10.0]), Outcome::Worse);
        // One bad round of the other.
        assert_eq!(outcome(Higher, &[3520.0, 3444.0, 3631.0], &[2902.0, 960.0, 3276.0]), Outcome::Better);
        // A fifth apart, with rounds that go along with each other, and one bad round each.
        let [ours, theirs] = [[12.0, 9.0, 12.3, 13.0, 11.8], [10.0, 7.6, 10.1, 10.7, 9.9]];
        assert_eq!(outcome(Higher, &ours, &theirs), Outcome::Better);
    }

    /// Goal: the rival is the best of the peers, and limits are none.
    #[test]
    fn the_best_rival_counts() {
        let of = |name, whose, value| row(name, whose, Better::Higher, &[value]);
        let rows = [
            of("slow peer", Whose::Peer, 10.0),
            of("fast peer", Whose::Peer, 29.0),
            of("slow", Whose::Headwater, 5.0),
            of("fast", Whose::Headwater, 30.0),
            of("device", Whose::Limit, 99.0),
        ];
        let comparison = Comparison::of_best(rows.iter(), "it").unwrap();
        assert_eq!((&*comparison.ours.name, &*comparison.theirs.name), ("fast", "fast peer"));
        assert_eq!(comparison.words(), "no difference to fast peer (1.03 ×)");
        assert!(Comparison::of_best(rows[..2].iter(), "it").is_none());
    }

    /// Goal: a promise is judged by its limit, and what is only told misses none.
    #[test]
    fn limits() {
        assert!(Verdict::new("a", 1.0, Limit::AtLeast(1.0)).to_string().ends_with(">=    1  met"));
        assert!(Verdict::new("a", 1.1, Limit::AtMost(1.0)).to_string().ends_with("MISSED"));
        assert!(Verdict::new("a", 0.1, None).is_met);
        let told = |values: [f64; 3], limit| {
            let rows = [("a", Whose::Headwater, values), ("b", Whose::Peer, [10.0; 3])];
            let rows = rows.map(|(name, whose, values)| row(name, whose, Better::Higher, &values));
            Verdict::of("a", &Comparison::of_best(rows.iter(), "it").unwrap(), limit).to_string()
        };
        assert!(told([9.5, 9.9, 10.1], Limit::AtLeast(1.0)).ends_with("  MISSED by less than the spread"));
        assert!(told([9.9, 10.1, 10.2], Limit::AtLeast(1.0)).ends_with("  met by less than the spread"));
        // Not a difference, and yet far from what was promised.
        assert!(told([9.5, 9.9, 10.1], Limit::AtLeast(1.3)).ends_with("  MISSED"));
        assert!(told([9.5, 9.9, 10.1], Limit::AtMost(0.5)).ends_with("  MISSED"));
    }
}
