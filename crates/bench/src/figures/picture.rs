//! Picture: the ratios of the README's table as bars, in SVG.
//!
//! ```text
//!   ┊ 1: as fast as the other
//!   a cold scan against fio
//!   ████████████████████████████████████████┊█ 1.04
//! ```
//!
//! A viewer shows it in light or dark, as its reader has set; text stays text, and nothing else is loaded.
//!
//! Owns: how bars lie and what they look like.
//! Does not own: which ratios there are, how a number is written (markdown).

use super::Figures;
use super::markdown::{highlights, number};

/// The picture; without bars where nothing was measured.
pub(super) fn picture(figures: &Figures) -> String {
    let ratios = highlights(figures);
    let most = ratios.iter().map(|(_, ratio)| *ratio).fold(1.0, f64::max);
    // Whole halves, so that the mark at 1 stays where it is from one measurement to the next.
    let one = BAR_MOST / ((most * 2.0).ceil() / 2.0);
    let height = HEAD + ratios.len() as f64 * PITCH + MARGIN / 2.0;
    let description = described(&ratios);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title description\">\n<title id=\"title\">headwater against its peers</title>\n\
         <desc id=\"description\">{description}</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n\
         {}<text class=\"rival\" x=\"{}\" y=\"26\">1: as fast as the other; the longer, the better for headwater</text>\n",
        mark(MARGIN + 1.0, 14.0),
        MARGIN + 10.0
    );
    for (at, &(words, ratio)) in ratios.iter().enumerate() {
        svg += &row(HEAD + at as f64 * PITCH, words, ratio, one);
    }
    svg + "</svg>\n"
}

/// The words of a ratio and its bar below them, of which `one` is as long as that of a ratio of 1.
fn row(top: f64, words: &str, ratio: f64, one: f64) -> String {
    let (label, value, length) = (label(words), number(ratio), ratio * one);
    let [label_at, bar_at, value_at] = [14.0, 21.0, 33.0].map(|below| top + below);
    // Not under the mark.
    let value_x = MARGIN + length.max(one) + 8.0;
    let mark = mark(MARGIN + one, bar_at);
    format!(
        "<text x=\"{MARGIN}\" y=\"{label_at}\">{label}</text>\n\
         <rect class=\"bar\" x=\"{MARGIN}\" y=\"{bar_at}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>\n\
         {mark}<text class=\"value\" x=\"{value_x:.1}\" y=\"{value_at}\">{value}</text>\n"
    )
}

/// Where a bar of 1 ends that begins at this height.
fn mark(x: f64, bar_at: f64) -> String {
    format!("<path class=\"one\" d=\"M{x:.1} {}v{}\"/>\n", bar_at - 3.0, BAR + 6.0)
}

/// The same for readers that hear it.
fn described(ratios: &[(&str, f64)]) -> String {
    let sentences =
        ratios.iter().map(|(words, ratio)| format!("{}: {}.", words.replace('`', ""), number(*ratio)));
    escaped(&format!(
        "Ratios; more than 1 is better for headwater. {}",
        sentences.collect::<Vec<_>>().join(" ")
    ))
}

/// What is measured, then the other in a fainter colour; code as code.
fn label(words: &str) -> String {
    let (what, other) = words.split_once(", against").unwrap_or((words, ""));
    let other = if other.is_empty() { String::new() } else { format!(" against{other}") };
    format!("{}<tspan class=\"rival\">{}</tspan>", coded(what), coded(&other))
}

fn coded(words: &str) -> String {
    let parts = words.split('`').enumerate();
    parts
        .map(|(at, part)| match at % 2 {
            0 => escaped(part),
            _ => format!("<tspan class=\"code\">{}</tspan>", escaped(part)),
        })
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// As wide as the text of a README on a forge, so that letters keep their size there.
const WIDTH: f64 = 760.0;

const MARGIN: f64 = 24.0;

/// Above the first row: what the mark at 1 means.
const HEAD: f64 = 44.0;

/// From a row to the next.
const PITCH: f64 = 46.0;

/// How high a bar is.
const BAR: f64 = 14.0;

/// How long the longest may be; its value stands behind it.
const BAR_MOST: f64 = WIDTH - 2.0 * MARGIN - 48.0;

/// The colours of the report page.
const STYLE: &str = "
svg { font: 14px system-ui, -apple-system, 'Segoe UI', sans-serif; }
.ground { fill: #ffffff; } .bar { fill: #0068a6; } text { fill: #1b1f24; }
.rival { fill: #545c66; } .value { font-weight: 600; } .code { font-family: ui-monospace, monospace; font-size: 13px; }
.one { stroke: #b84a00; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
.ground { fill: #14171b; } .bar { fill: #5db5ea; } text { fill: #e6e9ed; } .rival { fill: #a3acb6; } .one { stroke: #f0a040; }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names with marks of XML or of Markdown neither break the picture nor show the marks.
    #[test]
    fn labels_are_text() {
        assert_eq!(
            label("`cat` of a<b, against R&D"),
            "<tspan class=\"code\">cat</tspan> of a&lt;b<tspan class=\"rival\"> against R&amp;D</tspan>"
        );
        assert_eq!(label("alone"), "alone<tspan class=\"rival\"></tspan>");
    }

    /// Goal: bars are as long as their ratios, whatever the largest is, and all lie within the picture.
    #[test]
    fn bars_are_in_proportion() {
        let width = |svg: &str| -> f64 {
            let (_, rest) = svg.split_once("class=\"bar\"").unwrap();
            rest.split_once("width=\"").unwrap().1.split_once('"').unwrap().0.parse().unwrap()
        };
        let [half, twice] = [0.5, 2.0].map(|ratio| width(&row(0.0, "it", ratio, 300.0)));
        assert_eq!((half, twice), (150.0, 600.0));
        assert!(picture(&Figures::default()).ends_with("</svg>\n"));
    }
}
