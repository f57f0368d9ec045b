//! headwater-tpch: the command.
//!
//! Owns: what is printed.
//! Does not own: what can be typed (`args`), what is done (the library).

#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use headwater_datafusion::args::{Action, Command, Generate, Run};
use headwater_datafusion::data::{self, Layout};
use headwater_datafusion::{Error, Result, one, run};
use headwater_measure::{report, result_file};

fn main() -> ExitCode {
    match act(&Command::parse().action) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("headwater-tpch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn act(action: &Action) -> Result<ExitCode> {
    match action {
        Action::Generate(arguments) => generate(arguments),
        Action::Run(arguments) => compare(arguments),
        Action::One(arguments) => {
            let outcome =
                serde_json::to_string(&one(arguments)?).map_err(|error| Error::Other(error.to_string()))?;
            print(&outcome)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn generate(arguments: &Generate) -> Result<ExitCode> {
    let layout = Layout {
        files: arguments.files as usize,
        row_group_rows: arguments.row_group as usize,
        compression: arguments.compression,
    };
    let data = data::generate(&arguments.folder, arguments.scale, layout)?;
    for table in &data.tables {
        let (files, mib) = (table.files, table.bytes as f64 / (1 << 20) as f64);
        print(&format!(
            "{:<9} {:>11} rows {mib:>9.1} MiB in {files} file{}\n",
            table.name,
            table.rows,
            if files == 1 { "" } else { "s" }
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn compare(arguments: &Run) -> Result<ExitCode> {
    for path in [&arguments.json, &arguments.html].into_iter().flatten() {
        result_file::check(path).map_err(|source| Error::File { path: path.clone(), source })?;
    }
    let (findings, is_whole) = run(arguments)?;
    print(&findings.text)?;
    let findings = [findings];
    write(arguments.json.as_deref(), || report::json(&findings))?;
    write(arguments.html.as_deref(), || report::html(&findings))?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(path: Option<&Path>, text: impl FnOnce() -> String) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, text()).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// A reader that has gone is no error: `headwater-tpch run | head`.
fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::File { path: "standard output".into(), source: error })
        }
        _ => Ok(()),
    }
}
