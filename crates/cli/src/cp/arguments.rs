//! Arguments: what `headwater cp` can be told, and its help.
//!
//! Owns: options and their texts.
//! Does not own: what a copy does with them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::shared::arguments::QueueArguments;
use crate::shared::output::JsonArguments;

#[derive(Args, Debug)]
#[command(
    override_usage = "headwater cp [OPTIONS] <SOURCE> <DEST>\n       headwater cp [OPTIONS] <SOURCE>... <DIRECTORY>"
)]
pub(crate) struct CopyArguments {
    /// Regular files and block devices to copy, then where to: a file, or a directory that exists.
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    pub(crate) paths: Vec<PathBuf>,
    /// What becomes of holes in the source.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) sparse: Sparse,
    /// Whether the copy may share the source's blocks, on file systems that can (Btrfs, XFS, bcachefs).
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) reflink: Reflink,
    /// Give the copy the source's times, its extended attributes (access control lists among them), and its permissions as they are;
    /// otherwise it gets the permissions, less the umask.
    #[arg(long)]
    pub(crate) preserve: bool,
    /// Return only when the copy, its name included, survives a loss of power.
    #[arg(long)]
    pub(crate) sync: bool,
    /// Read both files again before the copy gets its name, around all caches where that is possible, and compare
    /// them byte by byte.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Replace a file that is write-protected, or that has further names, as well.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    #[command(flatten)]
    pub(crate) queue: QueueArguments,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sparse {
    /// Holes stay holes.
    Auto,
    /// Holes are written out as zeros, and no blocks are shared.
    Never,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reflink {
    /// Blocks are shared where that is possible, else copied.
    Auto,
    /// All bytes are copied.
    Never,
    /// Blocks are shared, or the copy fails.
    Always,
}

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater cp disk.img /backup/            into a directory
  headwater cp --sync --verify disk.img copy.img
  headwater cp --reflink never a b          move the bytes, whatever the file system could share
  headwater cp /dev/nvme0n1p2 part.img      a whole partition

The copy is made in a file without a name, in the directory of DEST, and gets its name when it is
complete. So DEST is the old file or the whole new one at any moment, and an interrupted copy
leaves nothing behind. A file that is replaced takes up room until then, and its owner and
permissions go with it. Where the file system has no files without a name, it is called
.NAME.headwater-N meanwhile, and removed when the copy fails or is interrupted.

Where no other file can take the place of DEST (its directory is read-only, or sticky and another
user's, or something is mounted on DEST), a DEST that may be read and written is overwritten in
place, unless it has further names. It stays the same file then, with its owner and permissions, but
readers see it change, and a copy that fails or is interrupted leaves it incomplete. It is left as it
is if there is clearly too little room.

If DEST is a symbolic link, the file that it leads to is replaced. Of a file with several names
only DEST is replaced, and the others keep the old contents: that takes --force. Devices, FIFOs
and sockets are no destination.

What the kernel's page cache holds of the source is taken from there; the rest is read directly,
and written directly, without a copy in between. The page cache stays as it is.";
