//! Counting: a store that measures how long queries wait for reads of the store below.
//!
//! A query waits as long as at least one read is outstanding: the union of the times of all reads, not their sum.
//!
//! Owns: the clock, which calls are reads.
//! Does not own: the reads.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// How long at least one read was outstanding, and how much was read.
#[derive(Clone, Default, Debug)]
pub struct Waits(Arc<Mutex<Clock>>);

#[derive(Default, Debug)]
struct Clock {
    outstanding: u32,
    since: Option<Instant>,
    total: Duration,
    bytes: u64,
}

impl Waits {
    /// Time and bytes of all reads that have ended, from now on counted anew.
    pub fn take(&self) -> (Duration, u64) {
        let mut clock = self.lock();
        let taken = (clock.total, clock.bytes);
        (clock.total, clock.bytes) = (Duration::ZERO, 0);
        taken
    }

    fn begin(&self) -> Outstanding {
        let mut clock = self.lock();
        if clock.outstanding == 0 {
            clock.since = Some(Instant::now());
        }
        clock.outstanding += 1;
        Outstanding(self.clone())
    }

    fn add(&self, bytes: usize) {
        self.lock().bytes += bytes as u64;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Clock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a read when it is dropped, so that a cancelled one ends too.
struct Outstanding(Waits);

impl Drop for Outstanding {
    fn drop(&mut self) {
        let mut clock = self.0.lock();
        clock.outstanding -= 1;
        if clock.outstanding == 0
            && let Some(since) = clock.since.take()
        {
            clock.total += since.elapsed();
        }
    }
}

/// A store whose reads are counted.
#[derive(Debug)]
pub struct Counting {
    below: Arc<dyn ObjectStore>,
    waits: Waits,
}

impl Counting {
    /// Counts the reads of `below` with `waits`.
    pub fn new(below: Arc<dyn ObjectStore>, waits: Waits) -> Counting {
        Counting { below, waits }
    }
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.below.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Counting {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.below.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.below.put_multipart_opts(location, opts).await
    }

    /// A range is read here, in one piece as its caller would have it, so that the time until its last byte is counted.
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_range = options.range.is_some() && !options.head;
        let outstanding = self.waits.begin();
        let result = self.below.get_opts(location, options).await?;
        if !is_range {
            return Ok(result);
        }
        let (meta, range, attributes) =
            (result.meta.clone(), result.range.clone(), result.attributes.clone());
        let bytes = result.bytes().await?;
        self.waits.add(bytes.len());
        drop(outstanding);
        let payload = GetResultPayload::Stream(stream::once(async move { Ok(bytes) }).boxed());
        Ok(GetResult { payload, meta, range, attributes })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let _outstanding = self.waits.begin();
        let read = self.below.get_ranges(location, ranges).await?;
        self.waits.add(read.iter().map(Bytes::len).sum());
        Ok(read)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.below.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.below.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.below.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.below.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: reads side by side count once, and a read that is given up ends.
    #[test]
    fn waits_are_a_union() {
        let waits = Waits::default();
        let (first, second) = (waits.begin(), waits.begin());
        let began = waits.lock().since.unwrap();
        drop(first);
        assert_eq!(waits.lock().total, Duration::ZERO);
        drop(second);
        let (total, _) = waits.take();
        assert!(total > Duration::ZERO && total <= began.elapsed());
        assert_eq!(waits.take(), (Duration::ZERO, 0));
    }
}
