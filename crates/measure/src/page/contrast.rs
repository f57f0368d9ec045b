//! Contrast: that what the style pairs can be read, by the formula of WCAG 2.
//!
//! Owns: which colours meet.
//! Does not own: the colours (`style.css`).

use std::collections::HashMap;

use super::STYLE;

type Colour = [f64; 3];

/// Goal: text has 4.5 against every ground it stands on, marks have 3, in light, in dark and printed.
#[test]
fn everything_can_be_read() {
    let schemes: Vec<HashMap<&str, Colour>> = STYLE.split(":root {").skip(1).map(colours).collect();
    assert_eq!(schemes.len(), 3, "light, dark, printed");
    for scheme in &schemes {
        for ground in ["ground", "raised", "accent-soft"] {
            for ink in ["ink", "quiet", "accent", "limit"] {
                assert_apart(scheme, ink, scheme[ground], 4.5);
            }
        }
        // The darkest cell of a heat map, as the style mixes it.
        let full = std::array::from_fn(|part| f64::midpoint(scheme["heat"][part], scheme["ground"][part]));
        assert_apart(scheme, "ink", full, 4.5);
        for mark in ["peer", "c0", "c1", "c2", "c3", "c4", "c5"] {
            assert_apart(scheme, mark, scheme["ground"], 3.0);
        }
    }
}

/// Goal: the formula is that of the standard. Method: its extremes, and a grey whose ratio is widely known.
#[test]
fn formula() {
    let (white, black, grey) = ([255.0; 3], [0.0; 3], [f64::from(0x76); 3]);
    assert!((contrast(white, black) - 21.0).abs() < 1e-9);
    assert!((contrast(white, grey) - 4.54).abs() < 0.01);
}

fn assert_apart(scheme: &HashMap<&str, Colour>, ink: &str, ground: Colour, least: f64) {
    let found = contrast(scheme[ink], ground);
    assert!(found >= least, "{ink} on {ground:?} has {found:.2}, needs {least}");
}

/// The variables up to the end of the block.
fn colours(block: &str) -> HashMap<&str, Colour> {
    let variables = block.split_once('}').expect("the end of a block").0.split(';');
    let variables = variables.filter_map(|variable| variable.trim().strip_prefix("--")?.split_once(':'));
    variables.map(|(name, value)| (name, colour(value.trim()))).collect()
}

fn colour(text: &str) -> Colour {
    let Some(digits) = text.strip_prefix('#') else {
        let parts: Vec<f64> = text.split(' ').map(|part| part.parse().expect("a number")).collect();
        return parts.try_into().expect("three parts");
    };
    let width = digits.len() / 3;
    std::array::from_fn(|part| {
        let digits = digits[part * width..(part + 1) * width].repeat(2 / width);
        f64::from(u8::from_str_radix(&digits, 16).expect("digits of a colour"))
    })
}

fn contrast(one: Colour, other: Colour) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

fn luminance(colour: Colour) -> f64 {
    let linear = |part: f64| match part / 255.0 {
        low if low <= 0.040_45 => low / 12.92,
        high => ((high + 0.055) / 1.055).powf(2.4),
    };
    0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2])
}
