//! Arguments: options of `headwater cat`, and its help.

use std::ffi::OsString;

use clap::Args;

use crate::cat::shown::Shown;
use crate::shared::arguments::{EngineArguments, IoChoice};
use crate::shared::output::JsonArguments;

#[derive(Args, Debug)]
// `-nn` is `-n`; `--number-non` is `--number-nonblank`, as with all GNU commands.
#[command(args_override_self = true, infer_long_args = true)]
#[command(mut_arg("json", |json| json.help(CAT_JSON).long_help(CAT_JSON)))]
pub(crate) struct CatArguments {
    /// Files to write, one after the other; `-`, or no file, is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<OsString>,
    /// Where to read from.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) io: IoChoice,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    #[command(flatten, next_help_heading = "Lines")]
    pub(crate) shown: Shown,
}

impl CatArguments {
    /// These files without an option.
    pub(crate) fn plain(files: Vec<OsString>) -> CatArguments {
        let (json, engine) = (JsonArguments::default(), EngineArguments::default());
        CatArguments { files, io: IoChoice::default(), json, engine, shown: Shown::default() }
    }
}

/// The help of `--json`: standard output carries the files, so the JSON goes to standard error.
pub(crate) const CAT_JSON: &str =
    "Report how many bytes came from where: as JSON on standard error, or with =OUT in that file";

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater cat part-* > whole              join files
  headwater cat -n main.c                   with line numbers; -s -A -b -e -E -t -T -v as well
  zcat a.gz | headwater cat header - > b    standard input between files
  headwater cat --io direct --memory 4M f   with 4 MiB of memory, around the page cache";
