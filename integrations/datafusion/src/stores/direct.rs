//! Direct: `LocalFileSystem` with direct reads, as simple as it can be.
//!
//! ```text
//!   get_opts ───► conditions and range by LocalFileSystem ─► the range with O_DIRECT, in a blocking thread
//!   get_ranges ─► one blocking thread: open, each range with O_DIRECT, one after the other
//! ```
//!
//! It shows what direct reads gain by themselves, without a cache, readahead or several reads at once.
//!
//! Owns: alignment.
//! Does not own: all but reads (`LocalFileSystem`).

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path as FilePath, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use rustix::fs::OFlags;

/// `LocalFileSystem` with reads that go around the kernel's page cache.
#[derive(Debug)]
pub struct DirectFileSystem {
    local: LocalFileSystem,
}

impl DirectFileSystem {
    /// All files of the system.
    #[expect(clippy::new_without_default, reason = "as LocalFileSystem is made")]
    pub fn new() -> DirectFileSystem {
        DirectFileSystem { local: LocalFileSystem::new() }
    }
}

impl fmt::Display for DirectFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectFileSystem over {}", self.local)
    }
}

#[async_trait]
impl ObjectStore for DirectFileSystem {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.local.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.local.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let result = self.local.get_opts(location, options).await?;
        if is_head {
            return Ok(result);
        }
        let (path, range) = (self.local.path_to_filesystem(location)?, result.range.clone());
        let bytes = stream::once(blocking(move || Reading::open(&path)?.range(range)));
        Ok(GetResult { payload: GetResultPayload::Stream(bytes.boxed()), ..result })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (path, ranges) = (self.local.path_to_filesystem(location)?, ranges.to_vec());
        blocking(move || {
            let reading = Reading::open(&path)?;
            ranges.into_iter().map(|range| reading.range(range)).collect()
        })
        .await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.local.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.local.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.local.copy_opts(from, to, options).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

/// A file that is read directly.
struct Reading {
    file: File,
    path: PathBuf,
}

impl Reading {
    fn open(path: &FilePath) -> Result<Reading> {
        let flags = OFlags::DIRECT.bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(path);
        Ok(Reading { file: file.map_err(|error| failure(path, 0, error))?, path: path.to_owned() })
    }

    fn range(&self, range: Range<u64>) -> Result<Bytes> {
        let start = range.start - range.start % ALIGNMENT as u64;
        let skipped = (range.start - start) as usize;
        let wanted = (range.end - range.start) as usize;
        let length = (skipped + wanted).next_multiple_of(ALIGNMENT);
        // Without unsafe code: a buffer that is longer by one alignment has an aligned part.
        let mut buffer = vec![0; length + ALIGNMENT];
        let first = buffer.as_ptr().align_offset(ALIGNMENT);
        let read = self.fill(&mut buffer[first..first + length], start)?;
        if read < skipped + wanted {
            let text = format!("the file ends at {}, before the end of a range", start + read as u64);
            return Err(failure(
                &self.path,
                start,
                std::io::Error::new(std::io::ErrorKind::UnexpectedEof, text),
            ));
        }
        Ok(Bytes::from(buffer).slice(first + skipped..first + skipped + wanted))
    }

    /// Reads until the buffer is full or the file ends.
    fn fill(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::pread(&self.file, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(failure(&self.path, offset + filled as u64, errno.into())),
            }
            // Only the end of a file leaves a part of a block.
            if filled % ALIGNMENT != 0 {
                break;
            }
        }
        Ok(filled)
    }
}

fn failure(path: &FilePath, offset: u64, source: std::io::Error) -> Error {
    let source = format!("failed to read {} directly at {offset}: {source}", path.display());
    Error::Generic { store: "DirectFileSystem", source: source.into() }
}

/// Of memory, offsets and lengths; all usual devices take it.
const ALIGNMENT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ranges of any alignment have the bytes of the file, and one beyond its end is an error.
    #[tokio::test]
    async fn ranges_are_those_of_the_file() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        let content: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let (store, location) = (DirectFileSystem::new(), Path::from_absolute_path(&path).unwrap());
        let ranges = [0..1, 4095..4097, 8192..12_288, 19_999..20_000, 0..20_000];
        let read = store.get_ranges(&location, &ranges).await.unwrap();
        for (range, bytes) in ranges.iter().zip(read) {
            assert_eq!(bytes, content[range.start as usize..range.end as usize]);
            let options = GetOptions::new().with_range(Some(range.clone()));
            assert_eq!(store.get_opts(&location, options).await.unwrap().bytes().await.unwrap(), bytes);
        }
        let beyond = 19_000..20_001;
        assert!(store.get_ranges(&location, &[beyond]).await.is_err());
    }
}
