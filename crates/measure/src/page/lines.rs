//! Lines: a value over a setting that grows step by step, such as the size of a buffer, with the spread of each point.
//!
//! ```text
//!   steps of the setting, equally far apart ─► x        zero to the highest sample, in round numbers ─► y
//! ```
//!
//! Owns: axes, where lines, whiskers and letters are.
//! Does not own: colours and dashes (`style.css`), letters and keys (`curves`).

use std::fmt::Write;

use maud::{Markup, html};

use super::curves::{
    BOTTOM, End, HEIGHT, KEY_HEIGHT, LEFT, RIGHT, STANDALONE_STYLE, TOP, WIDTH, letter, letters, number,
    sample, style_of,
};
use super::{figure, whose_class};
use crate::row::Better;
use crate::section::{Line, Lines};

pub(super) fn chart(lines: &Lines, id: &str) -> Markup {
    let (caption_id, title_id, description_id) =
        (format!("{id}-caption"), format!("{id}-title"), format!("{id}-description"));
    html! {
        figure id=(id) {
            figcaption id=(caption_id) { (lines.caption) ", " (lines.unit) span .better { " – " (better(lines)) } }
            ul .key {
                @for (index, line) in lines.lines.iter().enumerate() {
                    li .(whose_class(line.whose)) { (sample(index)) b { (letter(index)) } " " (line.label) }
                }
                @if lines.lines.iter().any(has_spread) {
                    li { span .swatch .whisker-swatch {} "lowest to highest of the rounds" }
                }
            }
            svg .plot viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-labelledby={ (title_id) " " (description_id) } {
                title id=(title_id) { (lines.caption) }
                desc id=(description_id) { (description(lines)) }
                (plotted(lines))
            }
        }
    }
}

/// The drawing by itself, as a file of its own.
pub fn svg(lines: &Lines) -> String {
    let height = HEIGHT + KEY_HEIGHT * (lines.lines.len() + 1) as f64;
    let key = |index: usize| HEIGHT + KEY_HEIGHT * (index as f64 + 0.7);
    let drawing = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } {
            style { (STANDALONE_STYLE) }
            rect width=(WIDTH) height=(height) fill="#fff" {}
            title { (lines.caption) ", " (lines.unit) }
            desc { (description(lines)) }
            (plotted(lines))
            @for (index, line) in lines.lines.iter().enumerate() {
                path class=(style_of(index)) d={ "M" (LEFT) " " (number(key(index) - 6.0)) "h40" } {}
                text x=(number(LEFT + 52.0)) y=(number(key(index))) { (letter(index)) " " (line.label) }
            }
            text x=(LEFT) y=(number(key(lines.lines.len()))) {
                (lines.caption) ", " (lines.unit) "; " (better(lines))
            }
        }
    };
    drawing.into_string() + "\n"
}

fn better(lines: &Lines) -> &'static str {
    match lines.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    }
}

fn plotted(lines: &Lines) -> Markup {
    let axes = Axes::around(lines);
    let settings = &lines.across.1;
    html! {
        @for index in (0..settings.len()).step_by(settings.len().div_ceil(NAMES_MAX).max(1)) {
            @let x = axes.x(index);
            path .grid d={ "M" (number(x)) " " (TOP) "V" (BOTTOM) } {}
            text x=(number(x)) y=(number(BOTTOM + 32.0)) text-anchor="middle" { (settings[index]) }
        }
        @for tick in 0..=axes.ticks {
            @let value = axes.step * f64::from(tick);
            @let y = axes.y(value);
            path .grid d={ "M" (LEFT) " " (number(y)) "H" (RIGHT) } {}
            text x=(number(LEFT - 10.0)) y=(number(y + 6.0)) text-anchor="end" { (tick_words(value)) }
        }
        @for (index, line) in lines.lines.iter().enumerate() {
            path class=(style_of(index)) d=(path(line, &axes)) {}
            path class={ (style_of(index)) " error" } d=(whiskers(line, &axes)) {}
        }
        (letters(ends(lines, &axes)))
    }
}

fn tick_words(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { figure(value) }
}

/// The best point of each line in words, for readers that cannot see them.
fn description(lines: &Lines) -> String {
    let mut text = String::new();
    for (index, line) in lines.lines.iter().enumerate() {
        let points =
            line.points.iter().zip(&lines.across.1).filter_map(|(point, at)| Some((point.as_ref()?.0, at)));
        let best = points.max_by(|left, right| match lines.better {
            Better::Higher => left.0.total_cmp(&right.0),
            Better::Lower => right.0.total_cmp(&left.0),
        });
        if let Some((value, at)) = best {
            let _ = write!(
                text,
                "{} {}: best {} {} at {at} of {}. ",
                letter(index),
                line.label,
                figure(value),
                lines.unit,
                lines.across.0
            );
        }
    }
    text
}

fn path(line: &Line, axes: &Axes) -> String {
    let mut path = String::new();
    let mut pen = 'M';
    for (index, point) in line.points.iter().enumerate() {
        let Some((value, _)) = point else {
            pen = 'M';
            continue;
        };
        let _ = write!(path, "{pen}{} {}", number(axes.x(index)), number(axes.y(*value)));
        pen = 'L';
    }
    path
}

fn whiskers(line: &Line, axes: &Axes) -> String {
    let spread = line.points.iter().enumerate().filter_map(|(index, point)| Some((index, point.as_ref()?.1)));
    let whisker = |(index, (low, high)): (usize, (f64, f64))| {
        let (x, low, high) = (axes.x(index), number(axes.y(low)), number(axes.y(high)));
        let (left, right) = (number(x - CAP), number(x + CAP));
        format!("M{left} {low}H{right}M{left} {high}H{right}M{} {low}V{high}", number(x))
    };
    spread.filter(|(_, (low, high))| low < high).map(whisker).collect()
}

fn has_spread(line: &Line) -> bool {
    line.points.iter().flatten().any(|(_, (low, high))| low < high)
}

/// Lines and where they end.
fn ends(lines: &Lines, axes: &Axes) -> Vec<End> {
    let end = |(index, line): (usize, &Line)| {
        let mut points = line.points.iter().enumerate().rev();
        let (step, value) = points.find_map(|(step, point)| Some((step, point.as_ref()?.0)))?;
        Some(End { index, x: axes.x(step), y: axes.y(value) })
    };
    lines.lines.iter().enumerate().filter_map(end).collect()
}

struct Axes {
    settings: usize,
    /// Between two lines of the grid.
    step: f64,
    ticks: u32,
}

impl Axes {
    fn around(lines: &Lines) -> Axes {
        let samples = lines.lines.iter().flat_map(|line| line.points.iter().flatten());
        let highest = samples.map(|(value, spread)| value.max(spread.1)).filter(|value| value.is_finite());
        let highest = highest.fold(0.0, f64::max);
        let step = round_step(highest / TICKS);
        Axes { settings: lines.across.1.len(), step, ticks: ((highest / step).ceil() as u32).max(1) }
    }

    fn x(&self, index: usize) -> f64 {
        let last = self.settings.saturating_sub(1).max(1) as f64;
        LEFT + MARGIN + index as f64 / last * (RIGHT - LEFT - 2.0 * MARGIN)
    }

    fn y(&self, value: f64) -> f64 {
        let share = value / (self.step * f64::from(self.ticks));
        BOTTOM - share.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }
}

/// The next number of 1, 2 and 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    if !least.is_finite() || least <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

/// Lines of the grid, about.
const TICKS: f64 = 5.0;

/// Names below the drawing that have room on a phone, where letters are larger.
const NAMES_MAX: usize = 6;

/// So that whiskers of the first and the last point stay inside.
const MARGIN: f64 = 12.0;

/// Half the width of a whisker's end.
const CAP: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Whose;

    fn lines(points: Vec<Option<(f64, (f64, f64))>>) -> Lines {
        let across = (0..points.len()).map(|index| format!("{} KiB", 1 << index)).collect();
        Lines {
            caption: "Rate".to_owned(),
            unit: "GiB/s",
            better: Better::Higher,
            across: ("buffer".to_owned(), across),
            lines: vec![Line { label: "read(2)".to_owned(), whose: Whose::Peer, points }],
        }
    }

    /// Goal: points are where they belong, gaps are gaps, spreads are drawn, and the best is said in words.
    #[test]
    fn drawn_and_said() {
        let lines =
            lines(vec![Some((5.0, (4.0, 6.0))), None, Some((10.0, (10.0, 10.0))), Some((2.5, (2.5, 2.5)))]);
        let axes = Axes::around(&lines);
        assert_eq!((axes.step, axes.ticks), (2.0, 5));
        assert!((axes.y(10.0) - TOP).abs() < 1e-9 && (axes.y(0.0) - BOTTOM).abs() < 1e-9);
        assert_eq!(path(&lines.lines[0], &axes).matches('M').count(), 2);
        let text = chart(&lines, "x").into_string();
        for part in [
            "A read(2): best 10.0 GiB/s at 4 KiB of buffer.",
            "lowest to highest",
            "more is better",
            "role=\"img\"",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(whiskers(&lines.lines[0], &axes).matches('V').count(), 1);
        assert!(svg(&lines).starts_with("<svg xmlns="));
    }

    /// Goal: nothing, or nothing but zeros, does no harm.
    #[test]
    fn nothing_to_draw() {
        for points in [vec![], vec![None], vec![Some((0.0, (0.0, 0.0)))], vec![Some((f64::NAN, (0.0, 0.0)))]]
        {
            let text = chart(&lines(points), "x").into_string();
            assert!(!text.contains("inf"), "{text}");
        }
    }

    #[test]
    fn steps_are_round() {
        for (least, step) in [(0.9, 1.0), (1.1, 2.0), (3.0, 5.0), (6.0, 10.0), (0.03, 0.05), (0.0, 1.0)] {
            assert!((round_step(least) - step).abs() < 1e-9, "{least}");
        }
    }
}
