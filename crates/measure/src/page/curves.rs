//! Curves: latencies over percentiles, both axes logarithmic.
//!
//! ```text
//!   share of operations ─► nines (p90 = 1, p99 = 2) ─► x        latency ─► decades ─► y
//! ```
//!
//! Owns: axes, where lines and letters are.
//! Does not own: colours and dashes (`style.css`, the same in the drawing and its key).

use std::fmt::Write;

use maud::{Markup, html};

use super::{figure, whose_class};
use crate::section::{Curve, Curves};

pub(super) fn chart(curves: &Curves, id: &str) -> Markup {
    let caption_id = format!("{id}-caption");
    html! {
        figure id=(id) {
            figcaption id=(caption_id) {
                (curves.caption) ", " (curves.unit) span .better { " – less is better" }
            }
            ul .key {
                @for (index, curve) in curves.curves.iter().enumerate() {
                    li .(whose_class(curve.whose)) { (sample(index)) b { (letter(index)) } " " (curve.label) }
                }
            }
            @if let Some(axes) = Axes::around(curves) { (drawing(curves, &axes, id)) }
        }
    }
}

pub(super) fn sample(index: usize) -> Markup {
    html! {
        svg .sample viewBox="0 0 28 10" aria-hidden="true" { path class=(style_of(index)) d="M0 5H28" {} }
    }
}

fn drawing(curves: &Curves, axes: &Axes, id: &str) -> Markup {
    let (title_id, description_id) = (format!("{id}-title"), format!("{id}-description"));
    html! {
        svg .plot viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-labelledby={ (title_id) " " (description_id) } {
            title id=(title_id) { (curves.caption) }
            desc id=(description_id) { (description(curves)) }
            (plotted(curves, axes))
        }
    }
}

/// The drawing by itself, as a file of its own. Without a point there is only its key.
pub fn svg(curves: &Curves) -> String {
    let height = HEIGHT + KEY_HEIGHT * (curves.curves.len() + 1) as f64;
    let key = |index: usize| HEIGHT + KEY_HEIGHT * (index as f64 + 0.7);
    let drawing = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } {
            style { (STANDALONE_STYLE) }
            rect width=(WIDTH) height=(height) fill="#fff" {}
            title { (curves.caption) ", " (curves.unit) }
            desc { (description(curves)) }
            @if let Some(axes) = Axes::around(curves) { (plotted(curves, &axes)) }
            @for (index, curve) in curves.curves.iter().enumerate() {
                path class=(style_of(index)) d={ "M" (LEFT) " " (number(key(index) - 6.0)) "h40" } {}
                text x=(number(LEFT + 52.0)) y=(number(key(index))) { (letter(index)) " " (curve.label) }
            }
            text x=(LEFT) y=(number(key(curves.curves.len()))) { (curves.caption) ", " (curves.unit) }
        }
    };
    drawing.into_string() + "\n"
}

fn plotted(curves: &Curves, axes: &Axes) -> Markup {
    html! {
            @for (share, name) in PERCENTILES.iter().filter(|(share, _)| axes.shows(*share)) {
                @let x = axes.x(*share);
                path .grid d={ "M" (number(x)) " " (TOP) "V" (BOTTOM) } {}
                text x=(number(x)) y=(number(BOTTOM + 32.0)) text-anchor="middle" { (name) }
            }
            @for decade in axes.decades.0..=axes.decades.1 {
                @let y = axes.y(10_f64.powi(decade));
                path .grid d={ "M" (LEFT) " " (number(y)) "H" (RIGHT) } {}
                text x=(number(LEFT - 10.0)) y=(number(y + 6.0)) text-anchor="end" { (power(decade)) }
            }
            @for (index, curve) in curves.curves.iter().enumerate() {
                path class=(style_of(index)) d=(path(curve, axes)) {}
            }
            (letters(ends(curves, axes)))
    }
}

/// The curves in words, for readers that cannot see them.
fn description(curves: &Curves) -> String {
    let mut text = String::new();
    for (index, curve) in curves.curves.iter().enumerate() {
        let _ = write!(text, "{} {}: ", letter(index), curve.label);
        let drawn = || curve.points.iter().filter(|(share, value)| is_drawn(*share, *value));
        let at = |&(share, name): &(f64, &str)| {
            drawn().find(|(known, _)| *known <= share + SHARE_ERROR)?;
            let (_, value) = drawn().find(|(known, _)| *known >= share - SHARE_ERROR)?;
            Some(format!("{name} {} {}", figure(*value), curves.unit))
        };
        text += &PERCENTILES.iter().filter_map(at).collect::<Vec<_>>().join(", ");
        text += ". ";
    }
    text
}

fn path(curve: &Curve, axes: &Axes) -> String {
    let mut path = String::new();
    for &(share, value) in curve.points.iter().filter(|(share, value)| is_drawn(*share, *value)) {
        let pen = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{pen}{} {}", number(axes.x(share)), number(axes.y(value)));
    }
    path
}

/// Curves and where they end.
fn ends(curves: &Curves, axes: &Axes) -> Vec<End> {
    let end = |(index, curve): (usize, &Curve)| {
        let (share, value) = curve.points.iter().rfind(|(share, value)| is_drawn(*share, *value)).copied()?;
        Some(End { index, x: axes.x(share), y: axes.y(value) })
    };
    curves.curves.iter().enumerate().filter_map(end).collect()
}

/// Where a curve, or a line, ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) index: usize,
    pub(super) x: f64,
    pub(super) y: f64,
}

/// The letters beside the drawing, and a thin line from each to the end that it names.
pub(super) fn letters(ends: Vec<End>) -> Markup {
    html! {
        @for (End { index, x, y }, letter_y) in apart(ends) {
            path class={ "leader " (colour_of(index)) }
                d={ "M" (number(x)) " " (number(y)) "H" (RIGHT) "L" (number(RIGHT + LEADER_WIDTH)) " " (number(letter_y)) } {}
            text .letter x=(number(RIGHT + LEADER_WIDTH + 4.0)) y=(number(letter_y + 6.0)) { (letter(index)) }
        }
    }
}

/// Ends from top to bottom, and the heights of their letters, which are moved so far that each has room.
fn apart(mut ends: Vec<End>) -> Vec<(End, f64)> {
    ends.sort_by(|left, right| left.y.total_cmp(&right.y));
    let mut heights: Vec<f64> = ends.iter().map(|end| end.y).collect();
    for index in 1..heights.len() {
        heights[index] = heights[index].max(heights[index - 1] + LETTER_HEIGHT);
    }
    let over = heights.last().map_or(0.0, |y| (y - BOTTOM).max(0.0));
    ends.into_iter().zip(heights).map(|(end, y)| (end, y - over)).collect()
}

/// Which shares and which values are in the drawing.
struct Axes {
    nines: (f64, f64),
    decades: (i32, i32),
}

impl Axes {
    /// Whole decades around all points. Without a point there is nothing to draw.
    fn around(curves: &Curves) -> Option<Axes> {
        let points = curves.curves.iter().flat_map(|curve| &curve.points);
        let points: Vec<_> = points.filter(|(share, value)| is_drawn(*share, *value)).collect();
        let extremes = |value: &dyn Fn(&(f64, f64)) -> f64| {
            let values = points.iter().map(|point| value(point));
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let (nines, powers) = (extremes(&|point| nines(point.0)), extremes(&|point| point.1.log10()));
        let (low, high) = (powers.0.floor() as i32, powers.1.ceil() as i32);
        let is_flat = points.is_empty() || nines.0 >= nines.1;
        (!is_flat).then(|| Axes { nines, decades: (low, high.max(low + 1)) })
    }

    fn shows(&self, share: f64) -> bool {
        nines(share) >= self.nines.0 - SHARE_ERROR && nines(share) <= self.nines.1 + SHARE_ERROR
    }

    fn x(&self, share: f64) -> f64 {
        let (first, last) = self.nines;
        LEFT + (nines(share) - first) / (last - first) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let (low, high) = (f64::from(self.decades.0), f64::from(self.decades.1));
        BOTTOM - (value.log10() - low) / (high - low) * (BOTTOM - TOP)
    }
}

/// All of the operations have infinitely many nines, and no time a logarithm.
fn is_drawn(share: f64, value: f64) -> bool {
    (0.0..1.0).contains(&share) && nines(share) <= NINES_MAX && value.is_finite() && value > 0.0
}

fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

fn power(decade: i32) -> String {
    if decade < 0 {
        format!("{:.*}", decade.unsigned_abs() as usize, 10_f64.powi(decade))
    } else {
        format!("{}", 10_f64.powi(decade))
    }
}

pub(super) fn number(value: f64) -> String {
    format!("{value:.1}")
}

pub(super) fn letter(index: usize) -> char {
    char::from(b'A' + (index % 26) as u8)
}

const PERCENTILES: [(f64, &str); 6] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (0.999_99, "p99.999")];

const NINES_MAX: f64 = 6.0;

/// Shares are sums of floating point.
const SHARE_ERROR: f64 = 1e-9;

/// The classes of a curve: colours begin anew after six, with another dash.
pub(super) fn style_of(index: usize) -> String {
    let again = if index / COLOURS % 2 == 1 { " again" } else { "" };
    format!("curve {}{again}", colour_of(index))
}

fn colour_of(index: usize) -> String {
    format!("c{}", index % COLOURS)
}

/// How many colours there are.
const COLOURS: usize = 6;

/// Of the drawing, in its own units; the style makes its letters larger on small screens, so there is room for them.
pub(super) const WIDTH: f64 = 720.0;
pub(super) const HEIGHT: f64 = 460.0;
pub(super) const LEFT: f64 = 84.0;
pub(super) const RIGHT: f64 = 656.0;
pub(super) const TOP: f64 = 16.0;
pub(super) const BOTTOM: f64 = 410.0;
const LETTER_HEIGHT: f64 = 26.0;
/// Between an end and its letter, so that lines to letters which were moved far are told apart.
const LEADER_WIDTH: f64 = 28.0;
pub(super) const KEY_HEIGHT: f64 = 26.0;

/// Colours that are told apart with every kind of colour vision (Okabe and Ito, 2008), and a dash for each.
pub(super) const STANDALONE_STYLE: &str = "text{font:17px sans-serif;fill:#222}.grid{stroke:#ddd}.curve{fill:none;stroke-width:2}\
    .c0{stroke:#0072b2}.c1{stroke:#d55e00;stroke-dasharray:8 3}.c2{stroke:#009e73;stroke-dasharray:2 3}\
    .c3{stroke:#cc79a7;stroke-dasharray:12 4}.c4{stroke:#e69f00;stroke-dasharray:6 2 2 2}.c5{stroke:#56b4e9}.again{stroke-dasharray:16 3 2 3 2 3}.error{stroke-width:1.2;stroke-dasharray:none}.leader{fill:none;stroke-width:1;stroke-dasharray:none}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Whose;

    fn curves(points: &[&[(f64, f64)]]) -> Curves {
        let curve = |points: &&[(f64, f64)]| Curve {
            label: "ring".to_owned(),
            whose: Whose::Headwater,
            points: points.to_vec(),
        };
        let curves = points.iter().map(curve).collect();
        Curves { caption: "Latency".to_owned(), unit: "µs", curves }
    }

    /// Goal: ends of the axes are where they belong, and each nine takes the same room.
    #[test]
    fn axes() {
        let curves = curves(&[&[(0.9, 1.0), (0.99, 10.0), (0.999, 100.0), (1.0, 1e9)]]);
        let axes = Axes::around(&curves).unwrap();
        let close = |left: f64, right: f64| (left - right).abs() < 1e-6;
        assert!(close(axes.x(0.9), LEFT) && close(axes.x(0.999), RIGHT));
        assert!(close(axes.x(0.99), f64::midpoint(LEFT, RIGHT)));
        assert!(close(axes.y(1.0), BOTTOM) && close(axes.y(100.0), TOP));
        let path = path(&curves.curves[0], &axes);
        assert_eq!(path.matches(['M', 'L']).count(), 3, "{path}");
        let text = chart(&curves, "x").into_string();
        for part in ["p99.9<", "A ring: p90 1.00 µs, p99 10.0 µs", "<title", "role=\"img\""] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("p50<"), "{text}");
    }

    /// Goal: nothing, a single point or no number does no harm.
    #[test]
    fn nothing_to_draw() {
        for points in [&[][..], &[(0.5, 1.0)], &[(1.0, 5.0)], &[(0.5, 0.0), (0.9, f64::NAN)]] {
            assert!(Axes::around(&curves(&[points])).is_none(), "{points:?}");
            assert!(!chart(&curves(&[points]), "x").into_string().contains("NaN"));
        }
    }

    /// Goal: letters of curves that end together do not cover each other, and each has a line from its curve's end.
    #[test]
    fn letters_have_room() {
        let same: &[(f64, f64)] = &[(0.5, 1.0), (0.9, 1.0)];
        let curves = curves(&[same, same, same]);
        let axes = Axes::around(&curves).unwrap();
        let letters = apart(ends(&curves, &axes));
        assert_eq!(letters.len(), 3);
        for pair in letters.windows(2) {
            assert!(pair[1].1 - pair[0].1 >= LETTER_HEIGHT - 1e-6, "{letters:?}");
        }
        assert!(letters.iter().all(|(_, y)| *y <= BOTTOM + 1e-6), "{letters:?}");
        let text = chart(&curves, "x").into_string();
        for (End { x, y, .. }, letter_y) in letters {
            let line = format!("M{} {}H{RIGHT}L684.0 {}", number(x), number(y), number(letter_y));
            assert!(text.contains(&line), "{line} in {text}");
        }
    }

    #[test]
    fn decades_are_plain_numbers() {
        assert_eq!([-2, 0, 3].map(power), ["0.01", "1", "1000"]);
    }
}
