//! Page reference: the rest of a page, borrowed from the cache for a moment.
//!
//! ```text
//!   peek ─► resident, checked lately, few others in this thread? ─┬─ yes: pinned ─► &[u8] ─► drop: unpinned
//!                                                                 └─ no: a view, else a copy
//! ```
//!
//! Owns: one pin, and how many of these a thread may have.
//! Does not own: the page. A write to it while it is pinned puts another frame in its place (loan-break).
//! Invariants: I1 the bytes never change; I6 a thread has at most as many pages pinned outside the quota as a copying read pins.
//! Hot path: no lock, no system call, no allocation, no write that threads share but the page's own word.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::MutexGuard;

use headwater_core::units::{PAGE_BYTES, PAGE_SIZE_BYTES};
use headwater_io::PinnedPage;

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::api::view::View;
use crate::base::error::{Error, Result};
use crate::load::submit::Caller;

/// Bytes within one page of a file, as they were when [`File::peek`] returned, whatever is written later. Pinned until dropped, in the
/// thread that peeked. The ninth and further ones of a thread count as lent ([`Stats::lent_bytes`](crate::Stats::lent_bytes)); to keep
/// bytes for longer than the [`File`], or to send them to another thread, take a [`View`].
///
/// ```compile_fail,E0277
/// let file = headwater::File::from_bytes("one two");
/// let rest = file.peek(0).unwrap();
/// std::thread::scope(|scope| _ = scope.spawn(move || rest.len()));
/// ```
pub struct PageRef<'a>(Memory<'a>);

enum Memory<'a> {
    Page {
        page: PinnedPage<'a>,
        part: Range<usize>,
        #[expect(dead_code, reason = "dropped with the page")]
        peek: Peek,
    },
    View(View),
}

/// One of the peeks that a thread may have outside the quota for lending; given back in that thread, as a lock is.
struct Peek(PhantomData<MutexGuard<'static, ()>>);

thread_local! {
    static PEEKS: Cell<u32> = const { Cell::new(0) };
}

/// Half of what a copying read pins at once.
const PEEKS_MAX: u32 = 8;

impl Peek {
    /// `None` if this thread has its maximum.
    #[inline]
    fn new() -> Option<Peek> {
        let peeks = PEEKS.get();
        if peeks == PEEKS_MAX {
            return None;
        }
        PEEKS.set(peeks + 1);
        Some(Peek(PhantomData))
    }
}

impl Drop for Peek {
    #[inline]
    fn drop(&mut self) {
        PEEKS.set(PEEKS.get() - 1);
    }
}

impl File {
    /// The bytes from `offset_bytes` to the end of their page of 4 KiB or of the file, in place: the fastest way to a few bytes or
    /// a record. Empty at the end of the file and beyond. A page that is not cached is loaded first, which blocks. While half of the
    /// engine's budget is lent, and for files that are not cached, the bytes are a copy.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let file = headwater::File::create(dir.path().join("data"))?;
    /// file.write_all_at(&[7; 5000], 0)?;
    /// assert_eq!(file.peek(4000)?.len(), 96);
    /// let rest = file.peek(4096)?;
    /// file.write_all_at(&[8; 5000], 0)?;
    /// assert_eq!(rest[..], [7; 904]);
    /// assert!(file.peek(5000)?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::view`], but the end of the file is none.
    #[inline]
    pub fn peek(&self, offset_bytes: u64) -> Result<PageRef<'_>> {
        if let Contents::Stored(source) = &self.contents
            && let Some(peek) = Peek::new()
            && let Some((page, part)) =
                source.pin_at_once(offset_bytes, rest_of_page(offset_bytes), Caller::Thread)
        {
            return Ok(PageRef(Memory::Page { page, part, peek }));
        }
        self.peek_slowly(offset_bytes)
    }

    #[cold]
    fn peek_slowly(&self, offset_bytes: u64) -> Result<PageRef<'_>> {
        // Of some files that the kernel makes as they are read, the length is 0 or too large.
        let is_end = |error: &Error| error.kind() == std::io::ErrorKind::UnexpectedEof;
        let mut rest = match self.len()? {
            0 => rest_of_page(offset_bytes),
            length_bytes => length_bytes.saturating_sub(offset_bytes).min(rest_of_page(offset_bytes)),
        };
        loop {
            match self.view(offset_bytes, rest as usize) {
                Err(error) if is_end(&error) => {
                    rest = self.read_at(&mut [0; PAGE_BYTES][..rest as usize], offset_bytes)? as u64;
                }
                view => return Ok(PageRef(Memory::View(view?))),
            }
        }
    }
}

impl Deref for PageRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Page { page, part, .. } => &page[part.clone()],
            Memory::View(view) => view.as_slice().expect("it is within a page"),
        }
    }
}

impl AsRef<[u8]> for PageRef<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PageRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageRef({} bytes)", self.len())
    }
}

/// Bytes from the offset to the end of its page.
fn rest_of_page(offset_bytes: u64) -> u64 {
    PAGE_SIZE_BYTES - offset_bytes % PAGE_SIZE_BYTES
}
