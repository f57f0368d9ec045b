//! Verdict: a ratio, the bar it is held against, and whether it is met.

use std::io::{self, Write};

use serde::Serialize;

/// What is promised.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    pub(crate) fn is_met(self, measured: f64) -> bool {
        match self {
            Bar::AtLeast(limit) => measured >= limit,
            Bar::AtMost(limit) => measured <= limit,
        }
    }
}

/// A promise, and what was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    title: String,
    measured: f64,
    bar: Bar,
    is_met: bool,
}

impl Verdict {
    pub(crate) fn new(title: String, measured: f64, bar: Bar) -> Verdict {
        Verdict { title, measured, bar, is_met: bar.is_met(measured) }
    }

    pub(crate) fn print(&self) -> io::Result<()> {
        report(&self.title, self.measured, self.bar)
    }
}

pub(crate) fn report(title: &str, measured: f64, bar: Bar) -> io::Result<()> {
    let (sign, limit) = match bar {
        Bar::AtLeast(limit) => (">=", limit),
        Bar::AtMost(limit) => ("<=", limit),
    };
    let verdict = if bar.is_met(measured) { "met" } else { "MISSED" };
    writeln!(io::stdout(), "{title:<66} {measured:>9.3} {sign}{limit:>5}  {verdict}")
}

pub(crate) fn detail(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "  {text}")
}

pub(crate) fn skipped(title: &str, reason: &dyn std::fmt::Display) -> io::Result<()> {
    writeln!(io::stdout(), "{title:<66} skipped: {reason}")
}
