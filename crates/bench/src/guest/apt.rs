//! Apt: where packages come from, this machine's sources or those of another release of Debian.
//!
//! A release has lists of its own in the cache, which apt checks by Debian's keys as it does the machine's; the machine's are
//! left as they are.
//!
//! Owns: the options that have apt use them.
//! Does not own: which package is wanted (kernel).

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Halt, about, process};

/// Options for apt's programs.
pub(crate) struct Apt {
    options: Vec<OsString>,
}

impl Apt {
    /// The sources that this machine is set up with.
    pub(crate) fn of_machine() -> Apt {
        // Without its unprivileged user, who may not write to the cache.
        Apt { options: vec!["-o".into(), "APT::Sandbox::User=root".into()] }
    }

    /// The sources of a release, such as `bullseye`, with its lists fetched.
    ///
    /// # Errors
    /// [`Halt::Missing`] where Debian's keys or the release are out of reach.
    pub(crate) fn of_release(cache: &Path, release: &str) -> Result<Apt, Halt> {
        if !Path::new(KEYRING).exists() {
            let reason = format!("there is no {KEYRING}: apt-get install debian-archive-keyring");
            return Err(Halt::Missing(reason));
        }
        let folder = cache.join(format!("apt-{release}"));
        let (lists, archives, sources) =
            (folder.join("lists"), folder.join("archives"), folder.join("sources.list"));
        for folder in [&lists, &archives] {
            fs::create_dir_all(folder.join("partial")).map_err(|error| about(folder, error))?;
        }
        fs::write(&sources, sources_of(release)).map_err(|error| about(&sources, error))?;
        let mut apt = Apt::of_machine();
        apt.set("Dir::Etc::SourceList=", &sources);
        apt.set("Dir::Etc::SourceParts=", Path::new("-"));
        apt.set("Dir::State::Lists=", &lists);
        apt.set("Dir::Cache=", &folder);
        apt.set("Dir::State::Status=", Path::new("/dev/null"));
        // A release that is no longer renewed is fetched all the same.
        apt.set("Acquire::Check-Valid-Until=", Path::new("false"));
        apt.set("Acquire::Languages=", Path::new("none"));
        apt.set("APT::Update::Error-Mode=", Path::new("any"));
        let mut update = apt.command("apt-get");
        update.args(["update", "-q"]);
        if succeeds(&format!("the lists of {release}"), &mut update)? {
            return Ok(apt);
        }
        Err(Halt::Missing(format!("apt-get reaches no {release} at {MIRROR}: {}", INSTEAD)))
    }

    /// A program of apt's, to which only its command has to be added.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options).env("LC_ALL", "C");
        command
    }

    fn set(&mut self, option: &str, value: &Path) {
        let mut option = OsString::from(option);
        option.push(value);
        self.options.extend(["-o".into(), option]);
    }
}

/// Runs a command that fetches or unpacks, and shows how long that takes.
pub(super) fn succeeds(title: &str, command: &mut Command) -> Result<bool, Halt> {
    let program = command.get_program().to_owned();
    let spawned = process::bound(command)
        .and_then(|mut command| command.stdin(Stdio::null()).stdout(Stdio::null()).spawn());
    let child = spawned.map_err(|error| process::missing(&error, &program.to_string_lossy(), INSTEAD))?;
    Ok(process::watch(child, FETCH_LIMIT, process::ticker(title))?.is_some_and(|status| status.success()))
}

fn sources_of(release: &str) -> String {
    format!(
        "deb [signed-by={KEYRING} arch=amd64] {MIRROR}/debian {release} main\n\
         deb [signed-by={KEYRING} arch=amd64] {MIRROR}/debian-security {release}-security main\n"
    )
}

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const MIRROR: &str = "http://deb.debian.org";

/// What a user can do where nothing can be fetched.
pub(super) const INSTEAD: &str = "give a kernel with --kernel and --modules";

/// For 70 MB, over a slow line.
const FETCH_LIMIT: Duration = Duration::from_secs(1800);
