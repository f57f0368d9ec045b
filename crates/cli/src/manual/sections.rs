//! Sections: what man pages say that no option says: exit status, environment, files, other pages.
//!
//! Owns: those texts, by the name of a command or by the options that it has.
//! Does not own: their form, examples and notes (the help of each command).

use clap::Command;

type Terms = Vec<(&'static str, &'static str)>;

/// The lines of a help below its options: examples, and what follows them.
pub(super) fn of_help(help: &str) -> (Vec<&str>, Vec<&str>) {
    let mut lines = help.lines().skip_while(|line| *line == "Examples:");
    let examples = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    (examples, lines.collect())
}

pub(super) fn exit_status(called: &str) -> Terms {
    let (success, failure) = match called.trim_start_matches("headwater").trim() {
        "cat" => (
            "Every file was written.",
            "A file could not be read to its end, or standard output not written.",
        ),
        "cp" => (
            "Every file was copied, or left out as an option asks.",
            "A file was not copied; its destination is as it was, or not there, but for one that was written in place.",
        ),
        "stat" => ("Every file was looked at.", "A file could not be looked at."),
        "doctor" => (
            "What there is to say was said, limits of the machine included.",
            "There is nothing at the path that can be looked at.",
        ),
        "scan" => (
            "Every file was read to its end; with --check, every sum agrees.",
            "A file or a part of one could not be read; with --check, a sum does not match, or a list has none; with --strict, a line of a list was not verified.",
        ),
        _ => ("The command did what it was asked for.", "It did not; one line on standard error says why."),
    };
    let mut terms = vec![
        ("0", success),
        ("1", failure),
        ("2", "The command line makes no sense; one line on standard error says why."),
    ];
    if ["headwater cat", "headwater scan", "headwater trace replay"].contains(&called) {
        terms.push((
            "141",
            "The reader of standard output has closed it, as a shell shows it of a cat that SIGPIPE ends.",
        ));
    }
    if called.starts_with("headwater bench") || called.starts_with("headwater tune") {
        terms.push((
            "141",
            "The reader of standard output has closed it, and no file was to get the results, so it ended early.",
        ));
    }
    terms
}

pub(super) fn environment(command: &Command) -> Terms {
    let mut terms = Vec::new();
    if uses_engines(command) {
        terms.push((
            "HEADWATER_DRIVER",
            "How requests reach the kernel where no option says it: uring or threads.",
        ));
    }
    if uses_profiles(command) {
        terms.push((
            "HEADWATER_PROFILES",
            "The file of what tune has found out, in place of the usual one; off: none is used or stored.",
        ));
        terms.push(("XDG_CONFIG_HOME", "The directory of that file, where HEADWATER_PROFILES is not set."));
    }
    if has(command, "also") {
        terms.push(("PATH", "Where the programs of --also, and others that are measured, are looked for."));
    }
    if has(command, "dir") && has(command, "size") {
        terms.push((
            "TMPDIR",
            "Where the file to measure with is made if none can be made in the current directory.",
        ));
    }
    if has(command, "wide") || says_sentences(command) {
        terms.push((
            "COLUMNS",
            "How wide tables and sentences may be, in place of the width of the terminal.",
        ));
    }
    terms.push(("NO_COLOR", "If set, nothing is printed in colours."));
    terms
}

pub(super) fn files(command: &Command) -> Terms {
    let profiles = (
        "$XDG_CONFIG_HOME/headwater/profiles.json, ~/.config/headwater/profiles.json",
        "What headwater tune has found out for each device and file system.",
    );
    if uses_profiles(command) { vec![profiles] } else { Vec::new() }
}

pub(super) fn see_also(called: &str) -> String {
    let others = match called.trim_start_matches("headwater").trim() {
        "" => {
            "headwater-cat(1), headwater-cp(1), headwater-scan(1), headwater-stat(1), headwater-doctor(1), headwater-tune(1), headwater-bench(1)"
        }
        "cat" => "headwater-cp(1), headwater-scan(1), cat(1), splice(2)",
        "cp" => "headwater-cat(1), headwater-scan(1), cp(1), ioctl_ficlone(2)",
        "scan" => "headwater-cat(1), b3sum(1), sha256sum(1)",
        "stat" => "headwater-doctor(1), stat(1), fincore(1), cachestat(2)",
        "doctor" => "headwater-stat(1), headwater-tune(1), io_uring(7)",
        "tune" => "headwater-bench(1), headwater-doctor(1), fio(1)",
        "tune memory" => "headwater-bench-cat(1), dd(1), read(2), write(2)",
        "bench cat" => "headwater-cat(1), headwater-tune-memory(1), cat(1), hyperfine(1)",
        "bench alignment" => "headwater-stat(1), open(2), statx(2)",
        "bench nop" => "io_uring(7), io_uring_enter(2)",
        "bench" | "bench scan" | "bench random" => "headwater-tune(1), fio(1)",
        "bench cache" | "bench readahead" | "bench ubc" => "fio(1), mmap(2), posix_fadvise(2), readahead(2)",
        "man" => "headwater-completions(1), man(1), man(7)",
        "completions" => "headwater-man(1), bash(1), zsh(1), fish(1)",
        _ => "headwater-bench(1)",
    };
    match called.rsplit_once(' ') {
        Some((parent, _)) => format!("{}(1), {others}", parent.replace(' ', "-")),
        None => others.to_owned(),
    }
}

fn uses_engines(command: &Command) -> bool {
    has(command, "driver") || any_below(command, uses_engines)
}

fn uses_profiles(command: &Command) -> bool {
    let names = ["headwater tune", "headwater doctor"];
    uses_engines(command) || command.get_bin_name().is_some_and(|name| names.contains(&name))
}

fn says_sentences(command: &Command) -> bool {
    let names = ["headwater stat", "headwater doctor", "headwater tune"];
    command.get_bin_name().is_some_and(|name| names.contains(&name))
}

fn any_below(command: &Command, is_so: fn(&Command) -> bool) -> bool {
    command.get_subcommands().any(is_so)
}

fn has(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == Some(option))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_split_into_examples_and_notes() {
        let help = "Examples:\n  a\n  b\n\nNote,\n\n  and more";
        assert_eq!(of_help(help), (vec!["  a", "  b"], vec!["Note,", "", "  and more"]));
        assert_eq!(of_help(""), (vec![], vec![]));
    }
}
