//! Arguments: options of `headwater cp`, and its help.
//!
//! Owns: options and their texts.
//! Does not own: what a copy does with them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::shared::arguments::{QueueArguments, shortened};
use crate::shared::output::{JsonArguments, JsonTo};

#[derive(Args, Debug, Default)]
#[command(
    override_usage = "headwater cp [OPTIONS] <SOURCE> <DEST>\n       headwater cp [OPTIONS] <SOURCE>... <DIRECTORY>"
)]
// Of `--reflink=auto --reflink=never` the last counts; `--recurs` is `--recursive` and `--sparse=alw` is `--sparse=always`, as with
// all GNU commands.
#[command(args_override_self = true, infer_long_args = true)]
pub(crate) struct CopyArguments {
    /// Files to copy, devices and FIFOs by what they give, and with -r directories, then the destination: a file, or an existing directory.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Whether the copy has holes.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = shortened::<Sparse>())]
    pub(crate) sparse: Sparse,
    /// Whether the copy may share the source's blocks, on file systems that can (Btrfs, XFS, bcachefs). Without a value: always.
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always",
        value_parser = shortened::<Reflink>()
    )]
    pub(crate) reflink: Reflink,
    /// Copy directories with all that is in them; symbolic links, FIFOs and devices as what they are.
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Print each source and its destination.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Leave existing destinations alone, dangling symbolic links too, even with --force.
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// As --preserve without a list.
    #[arg(short = 'p')]
    pub(crate) preserve_most: bool,
    /// What the copy keeps of the source. Without a list: mode,ownership,timestamps,xattr, as far as this user may set them. Without
    /// this option the copy gets the source's permissions less the umask, or what the default access control list of its directory, if
    /// it has one, leaves of them. A program that runs with the rights of its owner or group (setuid, setgid) does so as a copy only if
    /// the copy has the same owner and group.
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "most",
        value_parser = shortened::<Attribute>()
    )]
    pub(crate) preserve: Vec<Attribute>,
    /// Copy symbolic links as links, and files that are hard links of each other too: --preserve=links.
    #[arg(short = 'd')]
    pub(crate) links: bool,
    /// Copy symbolic links as links; the default with -r.
    #[arg(short = 'P', long)]
    pub(crate) no_dereference: bool,
    /// Copy directories and keep all that can be kept: -d -r --preserve=all.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Return only when the copy and its name survive a loss of power.
    #[arg(long)]
    pub(crate) sync: bool,
    /// Before the copy gets its name, read both files again, bypassing all caches where that is possible, and compare
    /// them byte by byte.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Replace a destination even if it is write-protected or has several hard links.
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    #[command(flatten)]
    pub(crate) queue: QueueArguments,
}

impl CopyArguments {
    /// These paths without an option.
    pub(crate) fn plain(paths: Vec<OsString>) -> CopyArguments {
        CopyArguments { paths: paths.into_iter().map(PathBuf::from).collect(), ..CopyArguments::default() }
    }

    /// Whether copies keep an attribute.
    pub(super) fn keeps(&self, attribute: Attribute) -> bool {
        let most = attribute != Attribute::Links;
        let wants = |wanted: &Attribute| {
            *wanted == attribute || *wanted == Attribute::All || (*wanted == Attribute::Most && most)
        };
        self.archive
            || self.preserve.iter().any(wants)
            || (self.links && attribute == Attribute::Links)
            || (self.preserve_most && most)
    }

    /// Whether each source and its destination are printed.
    pub(super) fn shows(&self) -> bool {
        self.verbose && self.json.to() != JsonTo::StandardOutput
    }

    pub(super) fn is_recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Whether a symbolic link that is a source is copied as a link.
    pub(super) fn copies_links(&self) -> bool {
        self.is_recursive() || self.links || self.no_dereference
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attribute {
    /// Permissions and access control lists.
    Mode,
    /// Owner and group.
    Ownership,
    /// Times of the last access and modification.
    Timestamps,
    /// Files that are hard links of each other are so in the copy.
    Links,
    /// Extended attributes.
    Xattr,
    /// All of these.
    All,
    /// What there is without a list: all but links.
    #[value(hide = true)]
    Most,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Sparse {
    /// Holes stay holes.
    #[default]
    Auto,
    /// Holes stay holes, and pages of zeros become holes; no blocks are shared.
    Always,
    /// Holes are written out as zeros, and no blocks are shared.
    Never,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Reflink {
    /// Blocks are shared where that is possible, else copied.
    #[default]
    Auto,
    /// All bytes are copied.
    Never,
    /// Blocks are shared, or the copy fails.
    Always,
}

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater cp disk.img /backup/            into a directory
  headwater cp -rp photos/ /backup/         a directory, with permissions, owners and times
  headwater cp -a photos/ /backup/          and hard links stay hard links
  headwater cp --sync --verify disk.img copy.img
  headwater cp --reflink=never a b          move the bytes, whatever the file system could share
  headwater cp /dev/nvme0n1p2 part.img      a whole partition
  headwater cp <(sort names) sorted         what a program writes, whole or not at all

The copy is written to an unnamed file in the directory of DEST and gets its name when it is
complete: at any moment DEST is either the old file or the whole new one, and an interrupted copy
leaves nothing behind. A file that is replaced takes up space until then; its owner and permissions
are not kept. Where the file system has no unnamed files, the copy is called .NAME.headwater-N
meanwhile, and is removed when it fails or is interrupted.

Where no other file can take the place of DEST (its directory is read-only, or sticky and another
user's, or DEST is a mount point), a DEST that may be read and written is overwritten in place,
unless it has several hard links. It then stays the same file, with its owner and permissions, but
readers see it change, and a copy that fails or is interrupted leaves it incomplete. If there is
clearly too little space, nothing is overwritten.

Where --preserve=mode alone gives the copy of a setuid program another owner, GNU cp keeps the bit: a
copy that root makes would run whatever a user has put there with root's rights. Here it goes, as it
goes for both with -p when the owner cannot be kept.

A directory is not copied into itself: nothing of it is, where GNU cp copies a part of it and fails.
Of a directory that cannot be read no empty copy is made.

If DEST is a symbolic link, the target of the link is replaced. A link that leads nowhere is refused
unless POSIXLY_CORRECT is set: the place may be the choice of another user. If DEST has several hard
links, replacing it takes --force, and its other names keep the old contents. Devices, FIFOs and
sockets cannot be destinations.

What the kernel's page cache holds of the source is copied from there; the rest is read with direct
I/O, and does not enter it. Up to an eighth of the memory that nothing uses, the copy is left to the
kernel to write later, as by any program; a larger one, or one with --sync or --verify, is written
with direct I/O. No cached file is evicted.";
