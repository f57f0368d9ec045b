//! Contiguous view: a view in one piece of memory, as a slice.
//!
//! Owns: the choice between the pinned pages and a copy of them.
//! Does not own: the pages (view).
//! Invariants: I1 it never changes, as the view of which it is made.

use std::fmt;

use crate::api::view::View;

/// A view in one piece of memory, as a slice: `Deref`, `AsRef`, `Borrow` and `Hash` are those of `[u8]`. Made by
/// [`View::into_contiguous`]. The slice stays where it is when the value is moved.
#[derive(Clone)]
pub struct ContiguousView(Whole);

impl View {
    /// The bytes as one slice: the pinned pages where they are contiguous in memory, else a copy, which pins nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// let file = headwater::File::create(&path)?;
    /// file.write_all_at(b"one two three", 0)?;
    /// let words = file.view(4, 9)?.into_contiguous();
    /// assert_eq!(words.split(|&byte| byte == b' ').count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_contiguous(self) -> ContiguousView {
        let whole =
            if self.as_slice().is_some() { Whole::Pinned(self) } else { Whole::Copied(self.gathered()) };
        ContiguousView(whole)
    }
}

impl ContiguousView {
    /// Whether the bytes had to be copied: pages that different operations have read mostly lie apart, and so does what of a cached file is
    /// longer than 1 MiB.
    ///
    /// ```
    /// let file = headwater::File::from_bytes("one two three");
    /// assert!(!file.view(4, 9)?.into_contiguous().is_copied());
    /// # Ok::<(), headwater::Error>(())
    /// ```
    #[must_use]
    pub fn is_copied(&self) -> bool {
        matches!(self.0, Whole::Copied(_))
    }
}

/// The pinned pages themselves, or a copy of them.
#[derive(Clone)]
enum Whole {
    Pinned(View),
    Copied(Vec<u8>),
}

impl std::ops::Deref for ContiguousView {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Whole::Pinned(view) => {
                view.as_slice().expect("checked when it was made, and a view never changes")
            }
            Whole::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for ContiguousView {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::borrow::Borrow<[u8]> for ContiguousView {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for ContiguousView {
    fn eq(&self, other: &ContiguousView) -> bool {
        **self == **other
    }
}

impl Eq for ContiguousView {}

impl std::hash::Hash for ContiguousView {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl fmt::Debug for ContiguousView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copied = if self.is_copied() { ", copied" } else { "" };
        write!(f, "ContiguousView({} bytes{copied})", self.len())
    }
}
