//! Advice: how a program's hints about its reads are carried out.
//!
//! ```text
//!   advise ─┬─ Normal, Sequential, Random, NoReuse ─► the file's readahead   (not cached: the kernel's)
//!           ├─ WillNeed ─► planned as reads ahead ─► started, not waited for (not cached: the kernel's page cache)
//!           └─ DontNeed ─► pages leave the cache ─► and the kernel's
//! ```
//!
//! Owns: where each advice goes, which advice is refused.
//! Does not own: readahead (`headwater-core`), pages (the inode's).

use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use headwater_core::readahead::Advice;
use headwater_core::units::{ByteRange, PageRange};

use crate::api::contents::Contents;
use crate::api::file::File;
use crate::base::error::{Error, Operation, Result};
use crate::engine::frames;
use crate::engine::handle::{IoMode, OFFSET_BYTES_MAX, Source, byte_range, check_order};
use crate::inode::Inode;
use crate::load::submit::{Caller, Starter};

impl File {
    /// Takes advice about the reads to come, with the meaning of `posix_fadvise(2)`.
    ///
    /// [`Advice::Normal`], [`Advice::Sequential`], [`Advice::Random`] and [`Advice::NoReuse`] apply to the whole file and to
    /// every handle of it in this engine, until one of these four replaces another. `range` must cover the file. They affect
    /// positional reads; a `Reader` reads ahead by its own rules.
    ///
    /// With [`Advice::NoReuse`] a page leaves the cache after the first read (through any handle) that reaches its end: a
    /// sequential reader, in portions of any size, finds each page read ahead and leaves none behind. A page of which only the
    /// beginning is read stays until it is evicted. A page shared by a [`Bytes`](bytes::Bytes) lives as long as that.
    ///
    /// [`Advice::WillNeed`] starts reading the pages of `range` that are not cached, and returns without waiting for them. Frames
    /// come from pages that can be evicted; what finds none is left to later reads. Requests that find no place in the queue wait
    /// for one, behind reads that a caller waits for. A page that fails to load is read again, and its error reported, by the
    /// read that needs it.
    ///
    /// [`Advice::DontNeed`] drops the pages that lie wholly in `range`, from this cache and from the kernel's. The last page of
    /// the file counts as whole when `range` covers it up to the end of the file. [`Bytes`](bytes::Bytes) of a dropped page stay
    /// valid.
    ///
    /// For a file that is not cached (see [`Caching`](crate::Caching)) the advice goes to the kernel, for the descriptor that
    /// reads through its page cache. If the file is also read directly, the first four have no effect, because positional reads
    /// then have no readahead. With [`IoMode::Direct`], which bypasses the page cache, [`Advice::WillNeed`] is refused. A file in
    /// memory accepts all advice and ignores it.
    ///
    /// # Errors
    /// `InvalidInput` for a range that ends before it begins; with the first four, for one that does not cover the file; with the
    /// last two, for one that begins at or beyond the end of the file (an empty range is allowed); with [`Advice::WillNeed`], for
    /// more than the cache can hold (the engine's memory less an eighth, 16 MiB at most). `Unsupported` as described above. What
    /// `fstat(2)` and `posix_fadvise(2)` report.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, vec![7; 100_000])?;
    /// use headwater::Advice;
    /// let file = headwater::File::open(&path)?;
    /// file.advise(Advice::WillNeed, 0..8192)?;
    /// file.advise(Advice::Random, ..)?;
    /// assert!(file.advise(Advice::Random, 0..8192).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advise(&self, advice: Advice, range: impl RangeBounds<u64>) -> Result<()> {
        let range = byte_range((Operation::Advise, self.path()), &range, || self.len())?;
        self.check_advice(advice, range)?;
        match &self.contents {
            Contents::Stored(source) => source.advise(advice, range),
            Contents::Memory(_) => Ok(()),
        }
    }

    /// [`Advice::WillNeed`] for several ranges at once, in any order: one check of the file, one submission. What lies beyond the
    /// end of the file is left out. Waits for no device: what the kernel's page cache has is copied in this call, the rest is read meanwhile:
    /// all of it for which there is memory, behind reads that a caller waits for. For a file that is not cached the kernel is advised, if
    /// reads go through its page cache; else it does nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, vec![7; 100_000])?;
    /// use headwater::ByteRange;
    /// let file = headwater::File::open(&path)?;
    /// file.will_need(&[ByteRange::new(0, 4096), ByteRange::new(65_536, 1_000_000)])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for a range that ends before it begins, and for more than the cache can hold. What `statx(2)` and `posix_fadvise(2)`
    /// report.
    pub fn will_need(&self, ranges: &[ByteRange]) -> Result<()> {
        ranges.iter().try_for_each(|&range| check_order((Operation::Advise, self.path()), range))?;
        let Contents::Stored(source) = &self.contents else { return Ok(()) };
        source.check_read_for(Operation::Advise)?;
        match source.inode() {
            Some(inode) => source.will_need(inode, ranges),
            None if source.open.direct().is_some() || source.mode == IoMode::Direct => Ok(()),
            None => {
                let advise =
                    |range: &ByteRange| source.tell_kernel(Advice::WillNeed, range.clip(OFFSET_BYTES_MAX));
                ranges.iter().try_for_each(advise)
            }
        }
    }

    fn check_advice(&self, advice: Advice, range: ByteRange) -> Result<()> {
        let length_bytes = self.len()?;
        let (start, end) = (range.start, range.end);
        match advice {
            Advice::WillNeed | Advice::DontNeed => {
                let begins_beyond = start >= length_bytes && !range.is_empty();
                if end > OFFSET_BYTES_MAX {
                    return Err(self.refused(start, "offsets of files end at 2^63 - 1".to_owned()));
                }
                if begins_beyond && self.has_length() {
                    let text = format!("{start}..{end} begins beyond the file's {length_bytes} bytes");
                    return Err(self.refused(start, text));
                }
            }
            Advice::Normal | Advice::Sequential | Advice::Random | Advice::NoReuse => {
                if start > 0 || end < length_bytes {
                    let text =
                        format!("{advice:?} is about a whole file, 0..{length_bytes}, not {start}..{end}");
                    return Err(self.refused(start, text));
                }
            }
        }
        Ok(())
    }

    fn refused(&self, offset_bytes: u64, text: String) -> Error {
        let error = io::Error::new(io::ErrorKind::InvalidInput, text);
        Error::at(Operation::Advise, self.path(), offset_bytes, error)
    }

    fn has_length(&self) -> bool {
        match &self.contents {
            Contents::Stored(source) => source.has_length(),
            Contents::Memory(_) => true,
        }
    }
}

impl Source {
    fn advise(self: &Arc<Self>, advice: Advice, range: ByteRange) -> Result<()> {
        match (self.inode(), advice) {
            _ if self.shared().driver.is_forked() => self.check_read(range.start),
            (None, _) => self.advise_kernel(advice, range),
            (Some(inode), Advice::WillNeed) => self.will_need(inode, &[range]),
            (Some(inode), Advice::DontNeed) => {
                inode.drop_pages(inode.whole_pages(range));
                self.tell_kernel(advice, range)
            }
            (Some(inode), Advice::Normal | Advice::Sequential | Advice::Random | Advice::NoReuse) => {
                inode.advise(advice);
                Ok(())
            }
        }
    }

    fn will_need(&self, inode: &Arc<Inode>, ranges: &[ByteRange]) -> Result<()> {
        let length_error = |error| self.length_error(error);
        self.revalidate(inode).map_err(length_error)?;
        if ranges.iter().any(|range| range.end > inode.length_bytes()) {
            self.refresh(inode).map_err(length_error)?;
        }
        let clipped = |range: &ByteRange| PageRange::covering(range.clip(inode.length_bytes()));
        let pages = merged(ranges.iter().map(clipped).collect());
        let wanted: u64 = pages.iter().map(|pages| pages.bytes().len()).sum();
        let most = frames::cache_bytes_max(self.shared());
        if let Some(first) = ranges.first().filter(|_| wanted > most) {
            let text = format!("{wanted} bytes are more than the {most} that the cache can hold");
            return Err(self.advice_error(*first, io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let plan: Vec<_> = pages.into_iter().flat_map(|pages| inode.plan_will_need(pages)).collect();
        let route = self.device_route();
        Starter { source: self, inode, caller: Caller::Adviser, route }.start_all(&plan);
        Ok(())
    }

    /// Advice for a file that is not cached.
    fn advise_kernel(&self, advice: Advice, range: ByteRange) -> Result<()> {
        match advice {
            Advice::WillNeed if self.mode == IoMode::Direct => {
                let text = "the file is neither cached nor read through the page cache, so nothing can be read early";
                Err(self.advice_error(range, io::Error::new(io::ErrorKind::Unsupported, text)))
            }
            Advice::WillNeed | Advice::DontNeed => self.tell_kernel(advice, range),
            // `OpenFile::open` has set the buffered descriptor to `Random`, so that a probe of the page cache starts no
            // readahead.
            Advice::Normal | Advice::Sequential | Advice::Random | Advice::NoReuse
                if self.open.direct().is_some() =>
            {
                Ok(())
            }
            Advice::Normal | Advice::Sequential | Advice::Random | Advice::NoReuse => {
                self.tell_kernel(advice, range)
            }
        }
    }

    fn tell_kernel(&self, advice: Advice, range: ByteRange) -> Result<()> {
        self.open.advise_kernel(advice, range).map_err(|error| self.advice_error(range, error))
    }

    fn advice_error(&self, range: ByteRange, error: io::Error) -> Error {
        self.error(Operation::Advise, range.start, error)
    }
}

/// The same pages in order, each once: a load of pages of which one is already loading would not begin.
fn merged(mut ranges: Vec<PageRange>) -> Vec<PageRange> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, before| {
        let touches = next.start <= before.end;
        if touches {
            before.end = before.end.max(next.end);
        }
        touches
    });
    ranges
}
