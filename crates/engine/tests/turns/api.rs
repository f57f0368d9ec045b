//! Interface: what of headwater's interface these tests use that depends on what a file promises.
//!
//! Owns: the levels of coherence, and what each of them promises to a test.
//! Does not own: opening files (combination).

use headwater::{Coherence, File, OpenOptions, Result};

/// Every level there is.
pub(crate) const LEVELS: &[Coherence] = &[
    Coherence::Revalidated,
    Coherence::Leased,
    Coherence::Private,
    Coherence::Unwatched,
    Coherence::Checked,
];

/// Has the file looked at once.
pub(crate) fn refresh(file: &File) -> Result<()> {
    file.refresh()
}

/// Has appends go to the end that the file has in the kernel.
pub(crate) fn appending(options: &mut OpenOptions) -> &mut OpenOptions {
    options.append(true)
}

/// Whether a read sees what another program wrote just before, without a look that is asked for.
pub(crate) fn sees_at_once(level: Coherence) -> bool {
    level == Coherence::Leased
}

/// Whether changes by others are reported while something of ours is unwritten.
pub(crate) fn is_checked(level: Coherence) -> bool {
    level == Coherence::Checked
}
