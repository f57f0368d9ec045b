//! Fio: command lines that measure the same without headwater.

use std::borrow::Cow;

use crate::shared::target::Target;

/// The file in a command line of fio: the user's own, or one that fio makes and removes.
pub(crate) struct FioFile {
    options: String,
}

impl FioFile {
    pub(crate) fn of(target: &Target, bytes: u64) -> FioFile {
        let path = target.path.display().to_string();
        let file = match target.is_made {
            true => format!("{} --unlink=1", quoted(&format!("--filename={}/fio.tmp", fio_name(&path)))),
            false => quoted(&format!("--filename={}", fio_name(&path))).into_owned(),
        };
        FioFile { options: format!("{file} --size={bytes}") }
    }

    pub(crate) fn job(&self, name: &str, options: &str) -> String {
        format!("fio --name={name} {} {options}", self.options)
    }

    /// What the device can do: `read` or `write`, large requests, many in flight.
    pub(crate) fn limit(&self, direction: &str) -> String {
        let options = "--ioengine=io_uring --direct=1 --bs=1M --iodepth=32 --mem=mmaphuge";
        self.job("limit", &format!("--rw={direction} {options}"))
    }
}

/// fio takes a colon as the start of the next file.
fn fio_name(path: &str) -> String {
    path.replace(':', "\\:")
}

/// As the shell takes it for one word.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./=+,@%".contains(letter);
    if word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line that is copied names one file, whatever its name.
    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("--filename=./fio.tmp"), "--filename=./fio.tmp");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(fio_name("a:b"), "a\\:b");
    }
}
