//! Arguments: the commands, and usage errors.
//!
//! Owns: which commands there are, how help and usage errors are printed.
//! Does not own: options and help of a command (its own module), checks that need the file or the device.

#[cfg(fuzzing)]
pub(crate) mod fuzzing;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use headwater_measure::{standard, terminal_width};

use crate::bench::arguments::RowArguments;
use crate::bench::command::BenchArguments;
use crate::cat::arguments::CatArguments;
use crate::cp::CopyArguments;
use crate::doctor::DoctorArguments;
use crate::manual::{CompletionsArguments, ManArguments};
use crate::scan::ScanFilesArguments;
use crate::shared::complain::{complain, exit_code};
use crate::shared::output::unwritten;
use crate::shared::prose::fitted;
use crate::stat::StatArguments;
use crate::trace::arguments::TraceArguments;
use crate::tune::TuneArguments;

#[derive(Parser, Debug)]
#[command(name = "headwater", bin_name = "headwater", version, propagate_version = true, about = ABOUT, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Write files to standard output.
    #[command(after_help = crate::cat::arguments::EXAMPLES)]
    Cat(CatArguments),
    /// Copy files, keeping holes, sharing blocks where the file system can.
    #[command(after_help = crate::cp::EXAMPLES)]
    Cp(CopyArguments),
    /// Show how much of a file the page cache holds, whether direct I/O works, and which device stores it.
    #[command(after_help = crate::stat::EXAMPLES)]
    Stat(StatArguments),
    /// Say what this machine allows, what follows from it, and how to mend what is missing.
    #[command(after_help = crate::doctor::EXAMPLES)]
    Doctor(DoctorArguments),
    /// Read files and directory trees at the speed of the device: hash them, verify them, or find unreadable places.
    #[command(after_help = crate::scan::EXAMPLES)]
    Scan(ScanFilesArguments),
    /// Find the request size and the queue depth that suit a device, and store them for headwater to use.
    #[command(after_help = crate::tune::EXAMPLES, args_conflicts_with_subcommands = true)]
    Tune(TuneArguments),
    /// Measure this machine's storage. Without a suite: all suites but alignment, in quick form.
    #[command(after_help = crate::bench::examples::BENCH_EXAMPLES, args_conflicts_with_subcommands = true)]
    Bench(BenchArguments),
    /// Replay recorded accesses through a simulated cache, without their data.
    #[command(after_help = crate::trace::arguments::EXAMPLES)]
    Trace(TraceArguments),
    /// Print man pages.
    #[command(after_help = crate::manual::MAN_EXAMPLES)]
    Man(ManArguments),
    /// Print a script with which a shell completes commands and options.
    #[command(after_help = crate::manual::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArguments),
    #[command(skip)]
    Internal(Internal),
}

/// What this program starts itself with. Help, suggestions and completions know nothing of it.
#[derive(Parser, Debug)]
#[command(name = "headwater")]
pub(crate) enum Internal {
    /// Measures one row of a benchmark; `bench` starts it as a child process.
    BenchRow(RowArguments),
    /// Removes an unfinished copy, or the cgroup of a measurement, if its parent process ends.
    CpGuard(GuardArguments),
}

#[derive(Args, Debug)]
pub(crate) struct GuardArguments {
    /// The file of the copy, or the directory of the cgroup.
    pub(crate) path: PathBuf,
}

/// All commands and options.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

/// The command of this process; or, after help or a usage error was printed, the exit code.
pub(crate) fn parse() -> Result<Command, ExitCode> {
    if let Some(command) = plain(std::env::args_os().skip(1)) {
        return Ok(command);
    }
    let first = std::env::args_os().nth(1).unwrap_or_default();
    let parsed = match first.to_str() {
        Some("bench-row" | "cp-guard") => Internal::try_parse().map(Command::Internal),
        _ => understood(std::env::args_os()),
    };
    parsed.map_err(|error| answer(&error))
}

/// The command of a line, the name of the program first.
fn understood(line: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let matches = shown(definition(), help_columns()).try_get_matches_from(line)?;
    Arguments::from_arg_matches(&matches).map(|arguments| arguments.command)
}

/// The definition for a command line: examples and notes of the help fit the terminal, as clap has the options do, and a negative number
/// is the value of the option before it, which says what it may be.
fn shown(command: clap::Command, columns: usize) -> clap::Command {
    let text = command.get_after_help().map(|text| fitted(&text.to_string(), columns));
    let command = command.mut_args(|argument| match argument.get_long() {
        Some(_) if argument.get_action().takes_values() => argument.allow_negative_numbers(true),
        _ => argument,
    });
    let command = command.term_width(columns).mut_subcommands(|sub| shown(sub, columns));
    match text {
        Some(text) => command.after_help(text),
        None => command,
    }
}

/// Longer lines are hard to read; where there is no terminal, those of one.
fn help_columns() -> usize {
    terminal_width().map_or(HELP_COLUMNS_DEFAULT, |width| width.clamp(HELP_COLUMNS_MIN, HELP_COLUMNS_MAX))
}

const HELP_COLUMNS_DEFAULT: usize = 80;

const HELP_COLUMNS_MIN: usize = 40;

const HELP_COLUMNS_MAX: usize = 100;

/// `cat` or `cp` with paths and without options. To define all commands and options to clap takes longer than to copy a small
/// file: 0.3 ms and 74 page faults.
fn plain(mut words: impl Iterator<Item = OsString>) -> Option<Command> {
    let name = words.next()?;
    let paths: Vec<OsString> = words.collect();
    let are_paths = paths.iter().all(|path| path == "-" || !path.as_bytes().starts_with(b"-"));
    match name.to_str()? {
        "cat" if are_paths => Some(Command::Cat(CatArguments::plain(paths))),
        "cp" if are_paths && paths.len() >= 2 => Some(Command::Cp(CopyArguments::plain(paths))),
        _ => None,
    }
}

/// Prints help and version as clap does, and an error as one line.
fn answer(error: &clap::Error) -> ExitCode {
    if is_help(error) {
        return print_help(error);
    }
    complain(usage_error(error));
    ExitCode::from(EXIT_USAGE)
}

fn is_help(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// A usage error in one line.
fn usage_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let in_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n").map(in_one_line);
    let first = plainly(error, &paragraphs.next().unwrap_or_default());
    let similar = paragraphs.find_map(|paragraph| Some(paragraph.strip_prefix("tip: ")?.to_owned()));
    // Another tip of clap's, how to pass a file of such a name, misleads more often than it helps.
    let similar = similar.filter(|tip| tip.contains("similar"));
    let command = std::env::args_os().nth(1);
    let hint = missing_option(error, command.as_deref().and_then(OsStr::to_str));
    let advice = hint.map(str::to_owned).or(similar).map(|advice| format!("; {advice}")).unwrap_or_default();
    format!("{}{advice} (see --help)", first.trim_start_matches("error: "))
}

/// The first sentence of clap's error, without the words of Rust: an empty path is no missing value, `1..=9` is from 1 to 9, `1..` 1 at least.
fn plainly(error: &clap::Error, sentence: &str) -> String {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "-",
    };
    if of(ContextKind::InvalidValue).is_empty() && of(ContextKind::InvalidArg).starts_with(['<', '[']) {
        return format!("{}: an empty path names no file", of(ContextKind::InvalidArg));
    }
    match sentence
        .split_once(" is not in ")
        .and_then(|(before, range)| Some((before, range.split_once("..")?)))
    {
        Some((before, (low, high))) => {
            let value = before.rfind(": ").map_or(before, |at| &before[..at]);
            match high.strip_prefix('=') {
                Some(high) => format!("{value}: it must be from {low} to {high}"),
                // Without an end it is that of the type.
                None => format!("{value}: it must be {low} at least"),
            }
        }
        None => sentence.to_owned(),
    }
}

/// What takes the place of an option that GNU's command of this name has and this one lacks.
fn missing_option(error: &clap::Error, command: Option<&str>) -> Option<&'static str> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let (_, _, hint) = OPTIONS_OF_GNU
        .iter()
        .find(|(of, options, _)| command == Some(*of) && options.contains(&option.as_str()))?;
    (error.kind() == ErrorKind::UnknownArgument).then_some(*hint)
}

const OPTIONS_OF_GNU: [(&str, &[&str], &str); 17] = [
    ("cp", &["-L", "-H", "--dereference"], "without -r, -d and -P symbolic links are followed"),
    ("cp", &["-i", "--interactive", "-u", "--update"], "-n leaves destinations that exist as they are"),
    ("cp", &["-l", "--link", "-s", "--symbolic-link"], "ln makes links; --reflink=always shares blocks"),
    ("cp", &["-t", "--target-directory", "-T", "--no-target-directory"], "the destination is the last path"),
    (
        "cp",
        &["-b", "--backup", "-S", "--suffix"],
        "the old file stays whole until the copy takes its place; rename it before to keep it",
    ),
    (
        "cp",
        &["--parents"],
        "-r copies a directory with its name; make the directories before it with mkdir -p",
    ),
    ("cp", &["--remove-destination"], "a copy takes the place of the old file anyway, once it is whole"),
    (
        "cp",
        &["--no-preserve"],
        "nothing is kept without -p, -a or --preserve, which takes a list of what to keep",
    ),
    ("cp", &["-x", "--one-file-system"], "all file systems below a directory are copied"),
    ("cp", &["-Z", "--context"], "--preserve=xattr keeps a security context"),
    ("cp", &["--attributes-only"], "chmod, chown and touch --reference set attributes alone"),
    (
        "cp",
        &["--copy-contents", "--strip-trailing-slashes"],
        "without -r FIFOs and links are copied as what they lead to",
    ),
    ("cp", &["--debug", "-g", "--progress-bar"], "-v names each copy, --json says how it was made"),
    ("scan", &["-c"], "--check LIST compares"),
    (
        "scan",
        &["-b", "--binary", "--text", "-w", "--warn"],
        "files are always read as they are, and lines that are no sums are warned of",
    ),
    (
        "scan",
        &["--tag"],
        "--check reads lists with tags; --hash with --json names the algorithm in what is written",
    ),
    (
        "stat",
        &["-c", "--format", "--printf", "-f", "--file-system", "-t", "--terse", "-L"],
        "--json is for programs; the stat of coreutils shows inodes",
    ),
];

/// Prints help, in colours on a terminal.
fn print_help(error: &clap::Error) -> ExitCode {
    let printed = if error.use_stderr() { Ok(()) } else { standard::output().map(drop) };
    match printed.and_then(|()| error.print()) {
        Err(failure) if failure.kind() != io::ErrorKind::BrokenPipe => exit_code(Err(unwritten(&failure))),
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

const ABOUT: &str = "Reads, copies, hashes and measures files at the speed of the device, and leaves the kernel's page cache as it is";

const EXAMPLES: &str = "\
Examples:
  headwater bench                           is your storage slow, or your API? one to two minutes, without root
  headwater bench --html report.html        the same as a page, with plots
  headwater tune /mnt/nvme                  find what suits this device; headwater uses it from then on
  headwater cat big.log | grep -c error     read a file; the page cache stays as it is
  headwater cp big.log /backup/             copy it, all or nothing
  headwater scan --hash blake3 photos/      hash a tree, many files at once
  headwater stat big.log                    how much of it is cached, and can it be read directly?
  headwater doctor /mnt/nvme                what this machine allows, and how to mend what is missing
  headwater trace replay t.csv --cache 1G   how many accesses of a trace a cache would miss
  headwater man | man -l -                  the manual";

/// The exit code of shells and clap for usage errors.
const EXIT_USAGE: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// Goal: what is taken without clap means the same as with it, and options are left to clap. Method: both, compared as text.
    #[test]
    fn plain_commands_are_understood_as_by_clap() {
        let plain = |line: &[&str]| plain(line.iter().map(OsString::from));
        for line in [&["cat"][..], &["cat", "a", "-", ""], &["cp", "a", "b"], &["cp", "a", "-", "c"]] {
            let clap = Arguments::parse_from(["headwater"].iter().chain(line)).command;
            assert_eq!(format!("{:?}", plain(line).unwrap()), format!("{clap:?}"), "{line:?}");
        }
        for line in [
            &["cat", "-h"][..],
            &["cat", "a", "--io=direct"],
            &["cp", "a"],
            &["cp", "--", "a"],
            &["stat"],
            &[],
        ] {
            assert!(plain(line).is_none(), "{line:?}");
        }
    }

    /// Goal: no line of any help is wider than the terminal, but for commands to copy and the usage, which clap does not fold. Method: the help of every command at 60, 80 and 100
    /// columns.
    #[test]
    fn help_fits_the_terminal() {
        fn check(command: &mut clap::Command, columns: usize) {
            let help = command.render_long_help().to_string() + &command.render_help().to_string();
            let is_whole = |line: &&str| {
                ["  headwater ", "Usage: ", "       headwater "].iter().any(|start| line.starts_with(start))
            };
            for line in help.lines().filter(|line| !is_whole(line)) {
                assert!(line.chars().count() <= columns, "{columns}, {}: {line}", command.get_name());
            }
            command.get_subcommands_mut().for_each(|sub| check(sub, columns));
        }
        for columns in [60, 80, 100] {
            let mut command = shown(definition(), columns);
            command.build();
            check(&mut command, columns);
        }
    }

    /// Goal: what the guide says of `--json`: all commands take it but two that print what is no result.
    #[test]
    fn all_results_can_be_json() {
        fn check(command: &clap::Command, missing: &mut Vec<String>) {
            let mut subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set()).peekable();
            let is_whole = subcommands.peek().is_none();
            if is_whole && !command.get_arguments().any(|argument| argument.get_long() == Some("json")) {
                missing.push(command.get_name().to_owned());
            }
            subcommands.for_each(|sub| check(sub, missing));
        }
        let mut missing = Vec::new();
        check(&definition(), &mut missing);
        assert_eq!(missing, ["man", "completions"]);
    }

    /// Goal: a child process gets the engine options of its parent.
    #[test]
    fn engine_arguments_survive_a_round_trip() {
        let line = ["headwater", "cat", "--memory", "5M", "--driver", "threads", "--queue-depth", "7"];
        let Command::Cat(parsed) = Arguments::parse_from(line).command else { panic!("cat was asked for") };
        let again =
            ["headwater".to_owned(), "cat".to_owned()].into_iter().chain(parsed.engine.to_arguments());
        let Command::Cat(again) = Arguments::parse_from(again).command else { panic!("cat was asked for") };
        assert_eq!(format!("{:?}", again.engine), format!("{:?}", parsed.engine));
    }
}
