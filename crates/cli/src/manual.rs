//! Manual: man pages and shell completions, made from the definition of the command line.
//!
//! Owns: which pages there are, their names, the order of their sections.
//! Does not own: their texts (the commands, `sections`), their format (`clap_mangen`, `clap_complete`).

mod sections;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, bold, roman};

use crate::shared::complain::exit_code;
use crate::shared::output;
use crate::shared::prose::{Block, aside, blocks};

#[derive(Args, Debug)]
pub(crate) struct ManArguments {
    /// Command whose page to print, such as `bench scan`; without one, the page of headwater itself.
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,
    /// Write the pages of all commands into this directory instead, as `headwater-bench-scan.1` and so on.
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArguments {
    /// The shell that reads the script.
    shell: Shell,
}

pub(crate) const MAN_EXAMPLES: &str = "\
Examples:
  headwater man cat | man -l -              read the page of a command
  mkdir -p ~/.local/share/man/man1
  headwater man --dir ~/.local/share/man/man1";

pub(crate) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  cd ~/.local/share/bash-completion/completions
  headwater completions bash > headwater
  mkdir -p ~/.zfunc
  headwater completions zsh > ~/.zfunc/_headwater    with fpath+=~/.zfunc in ~/.zshrc, before compinit
  mkdir -p ~/.config/fish/completions
  cd ~/.config/fish/completions
  headwater completions fish > headwater.fish";

/// `definition` is that of the whole command line.
pub(crate) fn run_man(arguments: &ManArguments, definition: Command) -> ExitCode {
    let whole = whole(definition);
    let done = match &arguments.dir {
        Some(dir) => write_all(dir, &whole),
        None => find(&whole, &arguments.command).and_then(|command| output::print(&page(command))),
    };
    exit_code(done)
}

/// `definition` is that of the whole command line.
pub(crate) fn run_completions(arguments: &CompletionsArguments, definition: Command) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut whole(definition), "headwater", &mut text);
    exit_code(output::print(&String::from_utf8_lossy(&text)))
}

/// The command line as users see it: names are whole (`headwater-bench-scan`).
fn whole(definition: Command) -> Command {
    let mut command = definition.disable_help_subcommand(true);
    command.build();
    command
}

fn find<'a>(whole: &'a Command, names: &[String]) -> Result<&'a Command, String> {
    names.iter().try_fold(whole, |command, name| {
        command
            .get_subcommands()
            .find(|sub| sub.get_name() == name)
            .ok_or_else(|| format!("there is no command `{} {name}` (see headwater --help)", called(command)))
    })
}

fn write_all(dir: &Path, command: &Command) -> Result<(), String> {
    let path = dir.join(format!("{}.1", called(command).replace(' ', "-")));
    output::write_file(&path, &page(command))?;
    command.get_subcommands().try_for_each(|sub| write_all(dir, sub))
}

/// The name of a command with its parents, such as `headwater bench scan`.
fn called(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

/// The page in the format of `man(7)`.
fn page(command: &Command) -> String {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, notes) = sections::of_help(&help);
    let man = Man::new(command.clone().after_help(None::<&str>));
    let mut text = Vec::new();
    let written = man
        .render_title(&mut text)
        .and_then(|()| man.render_name_section(&mut text))
        .and_then(|()| man.render_synopsis_section(&mut text))
        .and_then(|()| man.render_description_section(&mut text))
        .and_then(|()| man.render_options_section(&mut text))
        .and_then(|()| {
            if command.get_subcommands().next().is_some() {
                man.render_subcommands_section(&mut text)
            } else {
                Ok(())
            }
        });
    written.expect("a vector takes all bytes");
    let mut own = Roff::new();
    described(&mut own, "EXIT STATUS", &sections::exit_status(called(command)));
    described(&mut own, "ENVIRONMENT", &sections::environment(command));
    described(&mut own, "FILES", &sections::files(command));
    flowing(&mut own, "NOTES", &notes);
    flowing(&mut own, "EXAMPLES", &examples);
    own.control("SH", ["SEE ALSO"]).text([roman(sections::see_also(called(command)))]);
    own.control("SH", ["VERSION"]).text([roman(format!("headwater {}", env!("CARGO_PKG_VERSION")))]);
    String::from_utf8(text).expect("the definition is UTF-8") + &own.render()
}

/// A section of terms and what they mean; none without terms.
fn described(page: &mut Roff, title: &str, terms: &[(&str, &str)]) {
    if terms.is_empty() {
        return;
    }
    page.control("SH", [title]);
    for (term, meaning) in terms {
        page.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
    }
}

/// A section of paragraphs, which the reader's terminal folds, and of indented lines, which fit 80 columns; none without lines.
fn flowing(page: &mut Roff, title: &str, lines: &[&str]) {
    if lines.is_empty() {
        return;
    }
    page.control("SH", [title]);
    for block in blocks(lines.iter().copied()) {
        match block {
            Block::Paragraph(text) => {
                page.text([roman(text)]);
            }
            Block::Lines(lines) => {
                page.control("nf", []);
                for line in lines.into_iter().flat_map(|line| aside(line, LINE_COLUMNS)) {
                    page.text([roman(line)]);
                }
                page.control("fi", []);
            }
            Block::Empty => {
                page.control("PP", []);
            }
        }
    }
}

/// Of 80 columns `man` leaves two free, and begins a line behind seven.
const LINE_COLUMNS: usize = 71;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::definition;

    /// Goal: every command that users see has a page with its options, and hidden ones have none.
    #[test]
    fn every_command_has_a_page() {
        let place = tempfile::tempdir().unwrap();
        write_all(place.path(), &whole(definition())).unwrap();
        let names: Vec<String> = std::fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for name in ["headwater.1", "headwater-cat.1", "headwater-bench-scan.1", "headwater-trace-replay.1"] {
            assert!(names.iter().any(|there| there == name), "{name} in {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("row") || name.contains("guard")), "{names:?}");
        let scan = std::fs::read_to_string(place.path().join("headwater-bench-scan.1")).unwrap();
        assert!(scan.contains("headwater\\-bench\\-scan") && scan.contains("\\-\\-rounds"), "{scan}");
        assert!(scan.contains(".SH EXAMPLES\n.nf\n"), "{scan}");
        for name in &names {
            let page = std::fs::read_to_string(place.path().join(name)).unwrap();
            let place = |section: &str| {
                let found = page.find(&format!(".SH {section}\n").replace(' ', " "));
                found
                    .or_else(|| page.find(&format!(".SH \"{section}\"\n")))
                    .unwrap_or_else(|| panic!("{section} of {name}: {page}"))
            };
            let sections = [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "EXIT STATUS",
                "ENVIRONMENT",
                "EXAMPLES",
                "SEE ALSO",
                "VERSION",
            ];
            assert!(sections.map(place).is_sorted(), "{name}: {page}");
        }
    }

    /// Goal: no line that a page keeps as it is runs beyond 80 columns, and all other text is filled. Method: lines between `nf` and `fi`.
    #[test]
    fn pages_fit_80_columns() {
        fn check(command: &Command) {
            let page = page(command);
            let kept = page.split("\n.nf\n").skip(1).map(|rest| rest.split("\n.fi\n").next().unwrap());
            for line in kept.flat_map(str::lines) {
                let shown = line.replace("\\-", "-").replace("\\*(Aq", "'").replace("\\\\", "\\");
                assert!(shown.chars().count() <= LINE_COLUMNS, "{}: {shown}", called(command));
            }
            command.get_subcommands().for_each(check);
        }
        check(&whole(definition()));
    }

    /// Goal: the examples of a command are its own.
    #[test]
    fn examples_are_of_their_command() {
        fn check(command: &Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let (examples, _) = sections::of_help(&help);
            for line in examples.iter().filter_map(|line| line.strip_prefix("  headwater ")) {
                let name = called(command).trim_start_matches("headwater").trim_start();
                assert!(line.starts_with(name), "{}: {line}", called(command));
            }
            command.get_subcommands().for_each(check);
        }
        check(&whole(definition()));
    }

    /// Goal: a page is found by the words of its command; an unknown command is an error.
    #[test]
    fn pages_are_found_by_name() {
        let whole = whole(definition());
        let named = |names: &[&str]| {
            find(&whole, &names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).map(called)
        };
        assert_eq!(named(&[]), Ok("headwater"));
        assert_eq!(named(&["bench", "scan"]), Ok("headwater bench scan"));
        assert!(
            named(&["bench", "bench-row"]).unwrap_err().contains("no command `headwater bench bench-row`")
        );
        assert!(named(&["bench-row"]).is_err(), "hidden commands have no page");
    }
}
