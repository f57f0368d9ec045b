//! Also: a command of the user's as a way, started without a shell.
//!
//! ```text
//!   'pv -q {}' ─► words, as a shell splits them ─► is there such a program? ─► each {} is the path of the file ─► a way
//! ```
//!
//! Owns: the words of the command, where its program is.
//! Does not own: running it (`ways`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::str::FromStr;

use os_display::Quotable;
use rustix::fs::{Access, access};

#[derive(Clone, Debug)]
pub(crate) struct Also {
    /// As it was typed.
    pub(super) text: String,
    words: Vec<String>,
}

impl FromStr for Also {
    type Err = String;

    fn from_str(text: &str) -> Result<Also, String> {
        let words = shlex::split(text).ok_or("a quotation in it has no end")?;
        match words.first().map(String::as_str) {
            None | Some("") => Err("it names no program".to_owned()),
            Some(_) => Ok(Also { text: text.trim().to_owned(), words }),
        }
    }
}

impl Also {
    pub(super) fn program(&self) -> &str {
        &self.words[0]
    }

    /// What follows the program; `path` takes the place of each `{}`, also within a word.
    pub(super) fn arguments(&self, path: &Path) -> Vec<OsString> {
        self.words[1..].iter().map(|word| with_path(word, path.as_os_str())).collect()
    }

    /// Whether there is such a program, before a file is made for it.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        let program = self.program();
        let can_run = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
        let is_there = match program.contains('/') {
            true => can_run(Path::new(program)),
            false => std::env::var_os("PATH").is_some_and(|path| {
                std::env::split_paths(&path).any(|directory| can_run(&directory.join(program)))
            }),
        };
        if is_there {
            return Ok(());
        }
        let place = if program.contains('/') { "that can be run" } else { "in PATH" };
        Err(format!("failed to measure --also {}: there is no program {program} {place}", self.text.quote()))
    }
}

fn with_path(word: &str, path: &OsStr) -> OsString {
    let parts: Vec<&[u8]> = word.split(PLACEHOLDER).map(str::as_bytes).collect();
    OsString::from_vec(parts.join(path.as_bytes()))
}

/// As `find -exec` and `xargs -I{}` have it.
const PLACEHOLDER: &str = "{}";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: words are those of a shell, without its expansions, and the path stays one word whatever is in it.
    #[test]
    fn words_of_a_command() {
        let also: Also = "pv -q --name='a b' {} x{}y $HOME *".parse().unwrap();
        let arguments = also.arguments(Path::new("/a b'"));
        assert_eq!(also.program(), "pv");
        assert_eq!(arguments, ["-q", "--name=a b", "/a b'", "x/a b'y", "$HOME", "*"]);
        for nonsense in ["", "  ", "''", "pv 'a"] {
            assert!(nonsense.parse::<Also>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn programs_are_looked_for() {
        let check = |text: &str| text.parse::<Also>().unwrap().check();
        assert_eq!(check("sh -c true"), Ok(()));
        assert_eq!(check("/bin/sh"), Ok(()));
        assert!(check("no-such-program {}").unwrap_err().ends_with("no program no-such-program in PATH"));
        assert!(check("/etc/passwd").unwrap_err().ends_with("no program /etc/passwd that can be run"));
        assert!(check("/etc").is_err(), "a directory is no program");
    }
}
