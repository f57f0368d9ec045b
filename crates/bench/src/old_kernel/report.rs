//! Report: what the guest says of its tests, line by line, and what comes of it.
//!
//! Owns: the lines that host and guest share, the counts, the verdict.
//! Does not own: how lines get from one to the other (inside, console).

use std::io;

use serde::{Deserialize, Serialize};

use crate::tools::print;

/// A line of the guest.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    Began {
        suite: String,
    },
    Test {
        name: String,
        outcome: Outcome,
    },
    Skipped {
        reason: String,
    },
    /// What a suite that failed had to say.
    Text(String),
    /// `failure` is how the program ended, if not well.
    Ended {
        seconds: u64,
        failure: Option<String>,
    },
    AllDone,
}

/// As the test harness names it.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Ignored,
}

/// Of all suites so far.
#[derive(Default)]
pub(crate) struct Report {
    suites: Vec<SuiteReport>,
    is_complete: bool,
}

#[derive(Default)]
struct SuiteReport {
    name: String,
    passed: u32,
    failed: Vec<String>,
    skips: Vec<String>,
    texts: Vec<String>,
    /// Seconds, and how the program failed.
    ended: Option<(u64, Option<String>)>,
}

impl Line {
    /// The outcome that a line of the test harness tells: `test name ... ok`.
    pub(crate) fn of_harness(line: &str) -> Option<Line> {
        let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        let outcome = match outcome.split(',').next()?.trim() {
            "ok" => Outcome::Passed,
            "FAILED" => Outcome::Failed,
            "ignored" => Outcome::Ignored,
            _ => return None,
        };
        Some(Line::Test { name: name.split(" - ").next()?.to_owned(), outcome })
    }
}

impl Report {
    /// Takes a line in; returns what there is to show of it: a suite that has ended.
    pub(crate) fn add(&mut self, line: Line) -> Option<String> {
        if let Line::Began { suite } = line {
            self.suites.push(SuiteReport { name: suite, ..SuiteReport::default() });
            return None;
        }
        self.is_complete |= line == Line::AllDone;
        let suite = self.suites.last_mut()?;
        match line {
            Line::Test { name, outcome: Outcome::Failed } => suite.failed.push(name),
            Line::Test { outcome: Outcome::Passed, .. } => suite.passed += 1,
            Line::Skipped { reason } if !suite.skips.contains(&reason) => suite.skips.push(reason),
            Line::Text(text) => suite.texts.push(text),
            Line::Ended { seconds, failure } => {
                suite.ended = Some((seconds, failure));
                return Some(suite.summary());
            }
            _ => {}
        }
        None
    }

    /// The suite that runs, and how many of its tests are done.
    pub(crate) fn current(&self) -> String {
        let current = self.suites.last().filter(|suite| suite.ended.is_none());
        current.map_or("boot".to_owned(), |suite| format!("{}, {} tests", suite.name, suite.passed))
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// # Errors
    /// What failed, when something did or nothing ran.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let bad: Vec<&str> =
            self.suites.iter().filter(|suite| suite.is_bad()).map(|suite| suite.name.as_str()).collect();
        let passed: u32 = self.suites.iter().map(|suite| suite.passed).sum();
        match (bad.as_slice(), passed) {
            ([], 0) => Err("no test ran".to_owned()),
            ([], _) => Ok(()),
            (bad, _) => Err(format!("failed: {}", bad.join(", "))),
        }
    }

    /// What failed with all it said, what was skipped, and the count.
    pub(crate) fn print(&self, version: &str) -> io::Result<()> {
        let mut lines = Vec::new();
        for suite in self.suites.iter().filter(|suite| suite.is_bad()) {
            lines.extend([String::new(), suite.summary()]);
            lines.extend(suite.texts.iter().map(|text| format!("    {text}")));
            lines.extend(suite.failed.iter().map(|test| format!("  FAILED {test}")));
        }
        for suite in &self.suites {
            lines.extend(suite.skips.iter().map(|reason| format!("{}: skipped: {reason}", suite.name)));
        }
        let passed: u32 = self.suites.iter().map(|suite| suite.passed).sum();
        lines.push(format!("Linux {version}: {passed} tests passed in {} suites", self.suites.len()));
        print(&(lines.join("\n") + "\n"))
    }
}

impl SuiteReport {
    fn is_bad(&self) -> bool {
        !self.failed.is_empty() || !matches!(self.ended, Some((_, None)))
    }

    fn summary(&self) -> String {
        let (seconds, end) = match &self.ended {
            Some((seconds, None)) => (format!("{seconds} s"), String::new()),
            Some((seconds, Some(failure))) => (format!("{seconds} s"), format!("; {failure}")),
            None => (String::new(), "not done".to_owned()),
        };
        let (passed, failed, skips) = (self.passed, self.failed.len(), self.skips.len());
        format!("{:<18} {passed:>4} passed {failed:>3} failed {skips:>3} skips {seconds:>6}{end}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the harness's lines are told from all else that tests print.
    #[test]
    fn outcomes_are_read() {
        let test = |name: &str, outcome| Some(Line::Test { name: name.to_owned(), outcome });
        assert_eq!(Line::of_harness("test a::b ... ok"), test("a::b", Outcome::Passed));
        assert_eq!(Line::of_harness("test a - should panic ... ok"), test("a", Outcome::Passed));
        assert_eq!(Line::of_harness("test a ... FAILED"), test("a", Outcome::Failed));
        assert_eq!(Line::of_harness("test a ... ignored, too long"), test("a", Outcome::Ignored));
        assert_eq!(Line::of_harness("test result: ok. 3 passed"), None);
        assert_eq!(Line::of_harness("a test ... ok"), None);
    }

    /// Goal: a failed test, a suite that dies or does not end, and a guest in which nothing runs, are failures.
    #[test]
    fn whatever_is_not_well_fails() {
        let began = Line::Began { suite: "a".to_owned() };
        let test = |outcome| Line::Test { name: "t".to_owned(), outcome };
        let ended = |failure: Option<&str>| Line::Ended { seconds: 1, failure: failure.map(str::to_owned) };
        let verdict = |lines: &[Line]| {
            let mut report = Report::default();
            lines.iter().for_each(|line| drop(report.add(line.clone())));
            report.verdict().is_ok()
        };
        assert!(verdict(&[began.clone(), test(Outcome::Passed), ended(None)]));
        assert!(!verdict(&[began.clone(), test(Outcome::Passed)]));
        assert!(!verdict(&[began.clone(), test(Outcome::Failed), test(Outcome::Passed), ended(None)]));
        assert!(!verdict(&[began.clone(), test(Outcome::Passed), ended(Some("signal 6"))]));
        assert!(!verdict(&[began, test(Outcome::Ignored), ended(None)]));
        assert!(!verdict(&[]));
    }
}
