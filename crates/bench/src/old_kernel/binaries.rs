//! Binaries: the test programs of the workspace, as `cargo test` builds them.
//!
//! Owns: cargo's messages.
//! Does not own: which of the programs run (suites).

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::guest::{Halt, process};

/// A test program, and what it was built from.
pub(crate) struct Binary {
    /// Folder of the package.
    pub(crate) package: PathBuf,
    /// `lib` for the tests within a library.
    pub(crate) target: String,
    pub(crate) program: PathBuf,
}

/// Builds all tests of the workspace, so that they are those of `cargo test --workspace`, and tells where they are.
pub(crate) fn build() -> Result<Vec<Binary>, Halt> {
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(&cargo);
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let output = process::bound(&command)
        .and_then(|mut command| command.stdin(Stdio::null()).stderr(Stdio::inherit()).output())
        .map_err(|error| process::missing(&error, "cargo", "the tests are built with it"))?;
    if !output.status.success() {
        return Err(io::Error::other("cargo did not build the tests").into());
    }
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads cargo's messages; those that name no test program are passed over.
fn listed(messages: &str) -> Vec<Binary> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let tests = artifacts.filter(|artifact| artifact.profile.test);
    let binaries = tests.filter_map(|artifact| {
        let target =
            if artifact.target.kind.iter().any(|kind| kind == "lib") { "lib" } else { &artifact.target.name };
        let package = artifact.manifest_path.parent()?.to_owned();
        Some(Binary { package, target: target.to_owned(), program: artifact.executable? })
    });
    binaries.collect()
}

/// `compiler-artifact` of <https://doc.rust-lang.org/cargo/reference/external-tools.html#artifact-messages>.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: test programs are found among cargo's other messages, with the package and the target they are of.
    #[test]
    fn test_programs_are_found() {
        let artifact = |kind: &str, name: &str, test: bool, program: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/io/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":{test}}},"executable":{program}}}"#
            )
        };
        let messages = [
            artifact("lib", "headwater_io", false, "null"),
            artifact("test", "drivers", true, r#""/t/drivers-1""#),
            artifact("lib", "headwater_io", true, r#""/t/io-2""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = listed(&messages.join("\n"));
        let names: Vec<_> =
            found.iter().map(|binary| (binary.target.as_str(), binary.program.to_str())).collect();
        assert_eq!(names, [("drivers", Some("/t/drivers-1")), ("lib", Some("/t/io-2"))]);
        assert!(found[0].package.ends_with("io"));
    }
}
