//! Bars: a list of ways with a bar, a whisker and the figures of each.
//!
//! Owns: the scale, what a bar is drawn and described with.
//! Does not own: colours and patterns (`style.css`).

use maud::{Markup, html};

use super::{figure, whose_class, whose_words};
use crate::row::{Better, Whose};
use crate::section::{Bar, Bars};

pub(super) fn chart(bars: &Bars, id: &str) -> Markup {
    let full = bars.bars.iter().map(|bar| bar.value.max(bar.spread.1)).filter(|value| value.is_finite());
    let full = full.fold(0.0, f64::max);
    let better = match bars.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };
    let caption_id = format!("{id}-caption");
    html! {
        figure id=(id) {
            figcaption id=(caption_id) { (bars.caption) ", " (bars.unit) span .better { " – " (better) } }
            (key(bars))
            ul .bars aria-labelledby=(caption_id) {
                @for bar in &bars.bars { (row(bar, bars.unit, full)) }
            }
        }
    }
}

/// Which pattern is whose, of those that are there.
fn key(bars: &Bars) -> Markup {
    let is_there = |whose: &Whose| bars.bars.iter().any(|bar| bar.whose == *whose);
    let there = [Whose::Headwater, Whose::Peer, Whose::Limit].into_iter().filter(is_there);
    let there: Vec<Whose> = there.collect();
    html! {
        ul .key {
            @if there.len() > 1 {
                @for whose in there {
                    li { span .swatch .(whose_class(whose)) {} (whose_words(whose)) }
                }
            }
            @if bars.bars.iter().any(has_spread) {
                li { span .swatch .whisker-swatch {} "lowest to highest of the rounds" }
            }
        }
    }
}

fn row(bar: &Bar, unit: &str, full: f64) -> Markup {
    let (low, high) = bar.spread;
    let spread = has_spread(bar).then(|| format!("{} – {}", figure(low), figure(high)));
    let described = format!("{} {unit}", figure(bar.value));
    html! {
        li .(whose_class(bar.whose)) {
            span .name {
                (bar.label)
                @if bar.whose == Whose::Limit { " " span .tag { "limit" } }
                @if !bar.note.is_empty() { " " span .remark { (bar.note) } }
            }
            span .track role="img" aria-label=(described) {
                span .bar style={ "width:" (share(bar.value, full)) "%" } {}
                @if has_spread(bar) {
                    span .whisker style={
                        "left:" (share(low, full)) "%;width:" (share(high - low, full)) "%"
                    } {}
                }
            }
            span .value { (figure(bar.value)) }
            span .spread { @if let Some(spread) = spread { (spread) } }
        }
    }
}

fn has_spread(bar: &Bar) -> bool {
    let (low, high) = bar.spread;
    low.is_finite() && high.is_finite() && low < high
}

/// Per cent of the longest, to a hundredth.
fn share(value: f64, full: f64) -> String {
    let share = if full > 0.0 && value.is_finite() { (value / full).clamp(0.0, 1.0) } else { 0.0 };
    format!("{:.2}", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64, spread: (f64, f64), whose: Whose) -> Bar {
        Bar { label: "a & b".to_owned(), value, spread, whose, note: String::new() }
    }

    /// Goal: the longest whisker fills the width, one round has none, and names are escaped.
    #[test]
    fn lengths() {
        let bars = vec![bar(50.0, (40.0, 100.0), Whose::Headwater), bar(25.0, (25.0, 25.0), Whose::Limit)];
        let bars = Bars { caption: "Rate".to_owned(), unit: "MiB/s", better: Better::Higher, bars };
        let text = chart(&bars, "x").into_string();
        for part in ["width:50.00%", "left:40.00%;width:60.00%", "width:25.00%", "a &amp; b", "limit", "50.0"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(text.matches("class=\"whisker\"").count(), 1);
    }

    /// Goal: what cannot be drawn does no harm.
    #[test]
    fn nothing_and_no_number() {
        assert_eq!(share(1.0, 0.0), "0.00");
        assert_eq!(share(f64::NAN, 1.0), "0.00");
        assert!(!has_spread(&bar(1.0, (f64::INFINITY, 0.0), Whose::Peer)));
    }
}
