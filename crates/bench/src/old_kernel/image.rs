//! Image: the disk from which the guest runs tests, an ext4 file system with all that they need.
//!
//! ```text
//!   test programs (without debug information) ─┐
//!   tools that tests start ────────────────────┼─► with loader and libraries ─► folder ─► mkfs.ext4 -d ─► image
//!   programs that tests compile, sources ──────┘
//! ```
//!
//! Everything lies where it lies on the host, so that paths that were compiled in hold.
//!
//! Owns: what is on the disk.
//! Does not own: which tests are wanted (suites).

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::suites::Job;
use crate::guest::process::{find_tool, strip, succeeds};
use crate::guest::{Halt, about, initramfs};

/// Makes the image in the folder and tells its path.
pub(crate) fn make(folder: &Path, jobs: &[Job]) -> Result<PathBuf, Halt> {
    let mut root = Root::new(folder.join("root"))?;
    for tool in TOOLS {
        let path = find_tool(tool).ok_or_else(|| missing_tool(tool))?;
        root.add_program(&path, Path::new("/usr/bin").join(tool))?;
    }
    for (tool, path) in TOOLS_IF_THERE.iter().filter_map(|tool| Some((tool, find_tool(tool)?))) {
        root.add_program(&path, Path::new("/usr/bin").join(tool))?;
    }
    for job in jobs {
        root.add_program(&job.program, &job.program)?;
        strip(&root.inside(&job.program))?;
        root.add_tree(&job.package)?;
        compile_companions(&root, &job.package)?;
    }
    root.add_text(JOBS, &serde_json::to_string(jobs).map_err(io::Error::from)?)?;
    root.add_text(COMPILER, COMPILER_SCRIPT)?;
    root.add_text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")?;
    root.add_text(MKE2FS_PATH, MKE2FS)?;
    fs::set_permissions(root.inside(COMPILER), fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(root.inside("/tmp"), fs::Permissions::from_mode(0o1777))?;
    symlink("usr/bin", root.folder.join("bin"))?;
    symlink("/proc/self/mounts", root.folder.join("etc/mtab"))?;
    let image = folder.join("image");
    fill(&image, &root)?;
    fs::remove_dir_all(&root.folder)?;
    Ok(image)
}

/// The guest's root directory under construction.
struct Root {
    folder: PathBuf,
    libraries: BTreeSet<String>,
}

impl Root {
    fn new(folder: PathBuf) -> io::Result<Root> {
        for name in ["dev", "proc", "sys", "tmp", "root", "mnt", "run", "usr/bin", "etc"] {
            fs::create_dir_all(folder.join(name))?;
        }
        Ok(Root { folder, libraries: BTreeSet::new() })
    }

    /// Where a path of the guest is for now.
    fn inside(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.folder.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn add_program(&mut self, program: &Path, at: impl AsRef<Path>) -> io::Result<()> {
        self.add_file(program, at.as_ref())?;
        for library in initramfs::libraries_of(program)? {
            if self.libraries.insert(library.clone()) {
                self.add_file(Path::new(&library), Path::new(&library))?;
            }
        }
        Ok(())
    }

    fn add_file(&self, file: &Path, at: &Path) -> io::Result<()> {
        let at = self.inside(at);
        fs::create_dir_all(at.parent().unwrap_or(&self.folder))?;
        fs::copy(file, &at).map_err(|error| about(file, error))?;
        Ok(())
    }

    /// A folder of sources.
    fn add_tree(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder).map_err(|error| about(folder, error))? {
            let (kind, path) = entry.and_then(|entry| Ok((entry.file_type()?, entry.path())))?;
            if kind.is_dir() {
                self.add_tree(&path)?;
            } else if kind.is_file() {
                self.add_file(&path, &path)?;
            }
        }
        Ok(())
    }

    fn add_text(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.inside(path);
        fs::create_dir_all(path.parent().unwrap_or(&self.folder))?;
        fs::write(path, text)
    }
}

/// Programs that a test compiles when it runs are compiled here: the guest has no compiler, but [`COMPILER_SCRIPT`].
fn compile_companions(root: &Root, package: &Path) -> Result<(), Halt> {
    for source in COMPANIONS.iter().map(|source| package.join(source)).filter(|source| source.exists()) {
        let program = root.inside(COMPANIONS_FOLDER).join(source.file_stem().unwrap_or_default());
        fs::create_dir_all(root.inside(COMPANIONS_FOLDER))?;
        let mut compiler = Command::new(env::var_os("RUSTC").unwrap_or("rustc".into()));
        compiler.args(["--edition", "2024", "-O", "-o"]).arg(&program).arg(&source);
        succeeds(&mut compiler)?;
    }
    Ok(())
}

fn fill(image: &Path, root: &Root) -> Result<(), Halt> {
    File::create(image)?.set_len(IMAGE_BYTES)?;
    let mkfs = find_tool("mkfs.ext4").ok_or_else(|| missing_tool("mkfs.ext4"))?;
    let mut mkfs = Command::new(mkfs);
    mkfs.env("MKE2FS_CONFIG", root.inside(MKE2FS_PATH)).args(["-q", "-F", "-d"]).arg(&root.folder).arg(image);
    succeeds(&mut mkfs)
}

fn missing_tool(name: &str) -> Halt {
    Halt::Missing(format!("there is no {name}: apt-get install e2fsprogs xfsprogs btrfs-progs util-linux"))
}

/// What tests start.
const TOOLS: &[&str] = &[
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
    "mount",
    "umount",
    "losetup",
    "sh",
    "cat",
    "cp",
    "kill",
    "mkfifo",
    "true",
    "truncate",
    "fallocate",
    "dd",
    "touch",
    "chmod",
    "mv",
    "ln",
    "rm",
];

/// Without them some tests are skipped.
const TOOLS_IF_THERE: &[&str] = &["xfs_io", "dmsetup"];

/// Sources that tests compile, below their package.
const COMPANIONS: &[&str] = &["tests/sharing/appender.rs", "tests/turns/stranger.rs"];

const COMPANIONS_FOLDER: &str = "/companions";

/// What the guest is to run.
pub(crate) const JOBS: &str = "/jobs";

/// Takes the place of `rustc` in the guest.
pub(crate) const COMPILER: &str = "/usr/bin/rustc";

/// Copies what was compiled on the host to where `-o` has it; the source comes last.
const COMPILER_SCRIPT: &str = r#"#!/bin/sh
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then output=$2; fi
    source=$1
    shift
done
name=${source##*/}
exec cp "/companions/${name%.rs}" "$output"
"#;

/// What mkfs.ext4 goes by, here and in the guest: features that old kernels lack are left out.
const MKE2FS_PATH: &str = "/etc/mke2fs.conf";
const MKE2FS: &str = "[defaults]\nbase_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr\n\
                      blocksize = 4096\ninode_size = 256\ninode_ratio = 16384\n\
                      [fs_types]\next4 = {\n features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize\n}\n";

/// Sparse; the tests fill some GiB of it.
const IMAGE_BYTES: u64 = 16 << 30;
