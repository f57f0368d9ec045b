//! Plot: the latencies of all rows as curves over the percentiles, both axes logarithmic.
//!
//! Owns: the drawing.
//! Does not own: the file it goes into.

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::latency::Latencies;
use super::report::Outcome;

/// The drawing as SVG.
pub(super) fn svg(outcomes: &[Outcome]) -> Result<String, String> {
    let mut text = String::new();
    draw(&mut text, outcomes).map_err(|error| format!("failed to draw: {error}"))?;
    Ok(text)
}

fn draw(text: &mut String, outcomes: &[Outcome]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (low, high) = bounds_us(outcomes);
    let mut chart = ChartBuilder::on(&root)
        .caption("Latency of a batch of requests that do nothing", ("sans-serif", 22))
        .margin(16)
        // Half of the last label of the axis stands out.
        .margin_right(40)
        .x_label_area_size(48)
        .y_label_area_size(88)
        .build_cartesian_2d(Nines, (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("share of the batches")
        .y_desc("at most, µs")
        .x_labels(PERCENTILES.len())
        .light_line_style(TRANSPARENT)
        .axis_desc_style(FONT)
        .label_style(FONT)
        .draw()?;
    for (outcome, colour) in outcomes.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(curve(&outcome.measured.latencies), style))?
            .label(outcome.row.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(FONT)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

/// Microseconds over the number of nines of the percentile: 1 is p90, 5 is p99.999.
fn curve(latencies: &Latencies) -> impl Iterator<Item = (f64, f64)> {
    let first = nines(PERCENTILES[0].0);
    let step = (NINES_MAX - first) / f64::from(POINTS);
    (0..=POINTS).map(move |point| {
        let nines = first + step * f64::from(point);
        (nines, latencies.within_us(1.0 - 10_f64.powf(-nines)).max(LATENCY_US_MIN))
    })
}

/// Whole decades around all curves.
fn bounds_us(outcomes: &[Outcome]) -> (f64, f64) {
    let values = outcomes.iter().flat_map(|outcome| curve(&outcome.measured.latencies)).map(|(_, us)| us);
    let (low, high) =
        values.fold((f64::INFINITY, 0.0), |(low, high), us| (f64::min(low, us), f64::max(high, us)));
    let low = 10_f64.powf(low.log10().floor());
    (low, 10_f64.powf(high.log10().ceil()).max(low * 10.0))
}

fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

/// The horizontal axis: nines, marked at the percentiles of the table.
struct Nines;

impl Ranged for Nines {
    type FormatOption = plotters::coord::ranged1d::NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let first = nines(PERCENTILES[0].0);
        let share = (value - first) / (NINES_MAX - first);
        limit.0 + (share * f64::from(limit.1 - limit.0)) as i32
    }

    fn key_points<Hint: plotters::coord::ranged1d::KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        PERCENTILES.iter().map(|&(quantile, _)| nines(quantile)).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        nines(PERCENTILES[0].0)..NINES_MAX
    }
}

impl ValueFormatter<f64> for Nines {
    fn format_ext(&self, value: &f64) -> String {
        let distance = |quantile: f64| (nines(quantile) - value).abs();
        let nearest = PERCENTILES.iter().min_by(|left, right| distance(left.0).total_cmp(&distance(right.0)));
        nearest.map_or_else(String::new, |&(_, name)| name.to_owned())
    }
}

const PERCENTILES: [(f64, &str); 6] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (0.999_99, "p99.999")];

const NINES_MAX: f64 = 5.0;

/// Smooth at the width of the drawing.
const POINTS: u32 = 120;

/// The clock's nanosecond: a logarithmic axis has no zero.
const LATENCY_US_MIN: f64 = 0.001;

const FONT: (&str, u32) = ("sans-serif", 17);

const SIZE: (u32, u32) = (960, 540);

/// Told apart with every kind of colour vision (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
