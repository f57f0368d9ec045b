//! Mutations: whether each fault that can be put in by hand still fits the code, and says what it is.
//!
//! Owns: what a patch begins with, and that git could apply it.
//! Does not own: which tests find the fault (`crates/testkit/mutations/run`).

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::repository::Finding;

/// Where the patches are, beside the script that applies them.
pub(crate) const FOLDER: &str = "crates/testkit/mutations/";

/// `script` is the text of the one that runs them.
pub(crate) fn check(path: &str, patch: &str, script: &str) -> Vec<Finding> {
    let (mut lines, mut findings) = (patch.lines(), Vec::new());
    if !lines.next().is_some_and(|first| first.ends_with('.') && first.matches(". ").count() >= 1) {
        let message = "the first line is no two sentences; say what is wrong, and what a user sees";
        findings.push(Finding::new(path, 1, message));
    }
    let Some(machines) = lines.next().and_then(|second| second.strip_prefix("Machines: ")) else {
        findings.push(Finding::new(path, 2, "no `Machines:`; name the tests that are to look first"));
        return findings;
    };
    let known = machines_of(script);
    let unknown = machines.split(' ').filter(|machine| !known.contains(machine));
    findings.extend(unknown.map(|machine| {
        Finding::new(path, 2, format!("`{machine}` is no machine; take one of the script's list"))
    }));
    findings
}

/// What stands in the script's list.
fn machines_of(script: &str) -> Vec<&str> {
    let list = script.split_once("\nMACHINES=\"").and_then(|(_, rest)| rest.split_once('"'));
    list.map_or_else(Vec::new, |(list, _)| list.split_whitespace().collect())
}

/// Whether git would apply the patch to the sources below `root`, or else what it says. Without git there is nothing to find.
pub(crate) fn check_applies(root: &Path, path: &str, patch: &str) -> Option<Finding> {
    let mut command = Command::new("git");
    command.args(["apply", "--check", "-"]).current_dir(root).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    // Without its end git would wait for more.
    let written = child.stdin.take().expect("it is piped").write_all(patch.as_bytes());
    let output = child.wait_with_output().expect("git ends");
    if written.is_ok() && output.status.success() {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Some(Finding::new(path, 1, format!("it no longer applies ({said}); make the same fault in the new code")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "set -e\nMACHINES=\"core io\n    swarm\"\n";

    #[test]
    fn headers_are_checked() {
        let good = "A is wrong. A user sees B.\nMachines: io swarm\n\ndiff\n";
        assert_eq!(check("a.patch", good, SCRIPT), Vec::new());
        for (line, patch) in [
            (1, "diff --git a/b b/b\nMachines: core\n"),
            (1, "One sentence is too few.\nMachines: core\n"),
            (2, "A is wrong. A user sees B.\ndiff\n"),
            (2, "A is wrong. A user sees B.\nMachines: core loom\n"),
        ] {
            let lines: Vec<usize> =
                check("a.patch", patch, SCRIPT).iter().map(|finding| finding.line).collect();
            assert_eq!(lines, [line], "{patch}");
        }
    }

    #[test]
    fn patches_that_do_not_apply_are_found() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("text"), "one\ntwo\nthree\n").unwrap();
        let patch = |before| {
            format!(
                "Words.\n\ndiff --git a/text b/text\n--- a/text\n+++ b/text\n@@ -2,2 +2,2 @@\n-{before}\n+2\n three\n"
            )
        };
        assert_eq!(check_applies(directory.path(), "a.patch", &patch("two")), None);
        assert!(check_applies(directory.path(), "a.patch", &patch("zwei")).is_some());
        assert!(check_applies(directory.path(), "a.patch", "no patch").is_some());
    }
}
