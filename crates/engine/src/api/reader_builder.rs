//! Reader builder: how a reader reads ahead, as its program says.
//!
//! Owns: the two sizes, what fits together.
//! Does not own: readahead (read stream).

use std::io;

use headwater_core::readahead::ReadaheadLimits;

use crate::api::async_reader::AsyncReader;
use crate::api::builder::check_size;
use crate::api::contents::Contents;
use crate::api::cursor::Cursor;
use crate::api::file::File;
use crate::api::reader::Reader;
use crate::base::error::{Error, Operation, Result};

/// Builds readers of a file with a request size and a readahead of their own, from [`Reader::builder`].
///
/// Without it a reader begins with small requests, and finds out by how far ahead it has to read: the better choice unless the device is
/// known and the reader reads on for certain. What is set here holds from the first byte on, and after a seek.
///
/// ```
/// use std::io::Read;
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, vec![7; 3_000_000])?;
/// let file = headwater::File::open(&path)?;
/// // Five requests of 512 KiB: one that is consumed, and four ahead.
/// let mut reader = headwater::Reader::builder(&file).request_bytes(512 << 10).ahead_bytes(2 << 20).build()?;
/// let mut bytes = Vec::new();
/// reader.read_to_end(&mut bytes)?;
/// assert_eq!(bytes.len(), 3_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder builds when it is asked to"]
pub struct ReaderBuilder<'a> {
    file: &'a File,
    request_bytes: Option<u64>,
    ahead_bytes: Option<u64>,
}

impl Reader {
    /// A reader with request size and readahead of its own, in place of those that adapt to device and reader.
    pub fn builder(file: &File) -> ReaderBuilder<'_> {
        ReaderBuilder { file, request_bytes: None, ahead_bytes: None }
    }
}

impl ReaderBuilder<'_> {
    /// The size of each request to the device: a power of two from 4096 to 2 MiB. By default the largest that the file's adaptive readers
    /// use ([`File::readahead_limits`]), or [`ReaderBuilder::ahead_bytes`] if that is less.
    pub fn request_bytes(self, request_bytes: u64) -> Self {
        Self { request_bytes: Some(request_bytes), ..self }
    }

    /// How far ahead of the position the reader asks for, and so, together with the request that is consumed, the memory that it takes:
    /// from one request to half of the engine's memory. Less than two requests, and the reader waits for each. By default as far as the
    /// file's adaptive readers at the most.
    pub fn ahead_bytes(self, ahead_bytes: u64) -> Self {
        Self { ahead_bytes: Some(ahead_bytes), ..self }
    }

    /// The reader, at byte 0. A file in memory has no requests, and takes any sizes. Reads nothing yet, and does not block.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// # std::fs::write(&path, "first\nsecond\n")?;
    /// use std::io::BufRead;
    /// let file = headwater::File::open(&path)?;
    /// let reader = headwater::Reader::builder(&file).request_bytes(64 << 10).build()?;
    /// assert_eq!(reader.lines().count(), 2);
    /// assert!(headwater::Reader::builder(&file).request_bytes(0).build().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` when the sizes are out of their ranges.
    pub fn build(self) -> Result<Reader> {
        self.cursor().map(Reader::at)
    }

    /// The same for async tasks.
    ///
    /// ```
    /// use futures_util::AsyncReadExt;
    /// # headwater::Engine::builder().local()?.block_on(async {
    /// let file = headwater::File::from_bytes("one two");
    /// let mut text = String::new();
    /// headwater::Reader::builder(&file).build_async()?.read_to_string(&mut text).await?;
    /// assert_eq!(text, "one two");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`ReaderBuilder::build`].
    pub fn build_async(self) -> Result<AsyncReader> {
        self.cursor().map(AsyncReader::at)
    }

    fn cursor(&self) -> Result<Cursor> {
        let refused = |text: String| {
            let error = io::Error::new(io::ErrorKind::InvalidInput, text);
            Err(Error::at(Operation::Read, self.file.path(), 0, error))
        };
        let contents = &self.file.contents;
        let Contents::Stored(source) = contents else { return Ok(Cursor::new(contents, None)) };
        let usual = source.readahead;
        let distance_bytes_max =
            self.ahead_bytes.unwrap_or(usual.distance_bytes_max.max(self.request_bytes.unwrap_or(0)));
        let fitting = || usual.size_bytes_max.min(1 << distance_bytes_max.checked_ilog2().unwrap_or(0));
        let size_bytes_max = self.request_bytes.unwrap_or_else(fitting);
        let limits =
            ReadaheadLimits { size_bytes_min: size_bytes_max, size_bytes_max, distance_bytes_max, ..usual };
        if let Err(error) = limits.validate() {
            return refused(format!(
                "{error} ({size_bytes_max} bytes a request, {distance_bytes_max} ahead)"
            ));
        }
        if let Err(text) = check_size(size_bytes_max) {
            return refused(text);
        }
        let most = (source.shared().arena.usable_bytes() as u64 / 2).max(usual.distance_bytes_max);
        if distance_bytes_max > most {
            return refused(format!(
                "{distance_bytes_max} bytes ahead are more than {most}, half of the engine's memory"
            ));
        }
        Ok(Cursor::new(contents, Some(limits)))
    }
}
