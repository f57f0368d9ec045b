//! File system: the trait of a version of `object_store`, over what is the same for all.
//!
//! Owns: the public type, errors and results as the version has them, what goes to `LocalFileSystem`.
//! Does not own: reading (store, stream, ranges).

/// Defines `HeadwaterFileSystem` for the crate `$object_store`; `$quote` stands around its tags, `$more` are the fields that results
/// have in this version alone.
macro_rules! file_system {
    ($object_store:ident, quote: $quote:literal, { $($more:tt)* }) => {
        use std::fmt;
        use std::ops::Range;
        use std::path::PathBuf;

        use async_trait::async_trait;
        use bytes::Bytes;
        use futures_util::StreamExt;
        use futures_util::stream::{self, BoxStream};
        use headwater::Engine;
        use $crate::failure::Failure;
        use $crate::status::Status;
        use $crate::store::Store;
        use $crate::stream::Wanted;

        pub use $object_store as object_store;
        use object_store::local::LocalFileSystem;
        use object_store::path::Path;
        use object_store::{
            Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
            ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
            UploadPart,
        };

        /// Files of a folder as objects, read through the headwater file cache. Takes the place of
        #[doc = concat!("[`LocalFileSystem`](", stringify!($object_store), "::local::LocalFileSystem)")]
        /// of the same version, in all that is visible but these:
        ///
        /// - [`ObjectStore::get_opts`] returns a stream and never an open file: a reader that got one would read around the cache.
        ///   With `head` it does not open the file, so it succeeds without the permission to read.
        /// - Files are kept open for the next reads, up to 256, or fewer where the process may have less than 4096 descriptors.
        ///   What another program deletes keeps its space until the file is closed: ten to twenty seconds after its last use.
        /// - Reads need no thread of the executor's blocking pool. Writing, listing and deleting do, as they are
        ///   `LocalFileSystem`'s own.
        /// - Where the kernel knows a path and no server answers for the file, it is opened and asked for its length and times in the
        ///   executor's thread; elsewhere by a thread of the store's own.
        /// - The bytes of a get with `head` are an error if the object has changed since; `get_ranges` of a folder is `NotFound`, as every get
        ///   of one is.
        #[derive(Clone, Debug)]
        pub struct HeadwaterFileSystem {
            local: LocalFileSystem,
            store: Store,
        }

        impl fmt::Display for HeadwaterFileSystem {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "HeadwaterFileSystem over {}", self.local)
            }
        }

        impl Default for HeadwaterFileSystem {
            fn default() -> Self {
                Self::new()
            }
        }

        impl HeadwaterFileSystem {
            /// All files of the system, with [`Engine::global`].
            pub fn new() -> Self {
                Self { local: LocalFileSystem::new(), store: Store::new(None) }
            }

            /// The files of a folder, with [`Engine::global`].
            ///
            /// # Errors
            /// As `LocalFileSystem::new_with_prefix`: when there is no such folder.
            pub fn new_with_prefix(prefix: impl AsRef<std::path::Path>) -> Result<Self> {
                Ok(Self { local: LocalFileSystem::new_with_prefix(prefix)?, store: Store::new(None) })
            }

            /// Sets the engine, whose cache and memory the reads share.
            pub fn with_engine(self, engine: &Engine) -> Self {
                Self { store: Store::new(Some(engine.clone())), ..self }
            }

            /// Whether a folder is deleted with its last file, as `LocalFileSystem::with_automatic_cleanup`.
            pub fn with_automatic_cleanup(mut self, automatic_cleanup: bool) -> Self {
                self.local = self.local.with_automatic_cleanup(automatic_cleanup);
                self
            }

            /// The path of the file that holds an object.
            ///
            /// # Errors
            /// As `LocalFileSystem::path_to_filesystem`: for a name that cannot be one of a file.
            pub fn path_to_filesystem(&self, location: &Path) -> Result<PathBuf> {
                self.local.path_to_filesystem(location)
            }

            /// Closes the file that is kept open for a location. Before a change, so that the thread that deletes or replaces it also frees
            /// its space, even if the future of the change is dropped; and after it, for gets meanwhile.
            fn changed(&self, location: &Path) {
                if let Ok(path) = self.local.path_to_filesystem(location) {
                    self.store.changed(&path);
                }
            }
        }

        #[async_trait]
        impl ObjectStore for HeadwaterFileSystem {
            async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
                self.changed(location);
                let outcome = self.local.put_opts(location, payload, opts).await;
                self.changed(location);
                outcome
            }

            async fn put_multipart_opts(
                &self,
                location: &Path,
                opts: PutMultipartOptions,
            ) -> Result<Box<dyn MultipartUpload>> {
                let local = self.local.put_multipart_opts(location, opts).await?;
                Ok(Box::new(Upload { local, file_system: self.clone(), location: location.clone() }))
            }

            async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
                let path = self.local.path_to_filesystem(location)?;
                let wanted = if options.range.is_some() { Wanted::Named } else { Wanted::Unknown };
                if options.head {
                    let status = self.store.status(&path).await.map_err(error)?;
                    let meta = meta(location, status);
                    let range = requested(&options, &meta)?;
                    let (store, of) = (self.store.clone(), range.clone());
                    let opened = async move {
                        let object = store.open_same(&path, status).await.map_err(error)?;
                        Ok(bytes($crate::stream::stream(object, of, wanted)))
                    };
                    return Ok(result(stream::once(opened).flat_map(flattened).boxed(), meta, range));
                }
                let object = self.store.open(&path).await.map_err(error)?;
                let meta = meta(location, object.status());
                let range = requested(&options, &meta)?;
                Ok(result(bytes($crate::stream::stream(object, range.clone(), wanted)), meta, range))
            }

            async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
                let path = self.local.path_to_filesystem(location)?;
                let object = self.store.open(&path).await.map_err(error)?;
                $crate::ranges::read(&object, ranges).await.map_err(error)
            }

            fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
                let this = self.clone();
                let changed = move |location: &Result<Path>| location.iter().for_each(|location| this.changed(location));
                let deleted = self.local.delete_stream(locations.inspect(changed.clone()).boxed());
                deleted.inspect(changed).boxed()
            }

            fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
                self.local.list(prefix)
            }

            fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
                self.local.list_with_offset(prefix, offset)
            }

            async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
                self.local.list_with_delimiter(prefix).await
            }

            async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
                self.changed(to);
                let outcome = self.local.copy_opts(from, to, options).await;
                self.changed(to);
                outcome
            }

            async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
                let changed = || [from, to].map(|location| self.changed(location));
                changed();
                let outcome = self.local.rename_opts(from, to, options).await;
                changed();
                outcome
            }
        }

        /// A multipart upload. When it completes, the file that was kept open for its location is closed.
        #[derive(Debug)]
        struct Upload {
            local: Box<dyn MultipartUpload>,
            file_system: HeadwaterFileSystem,
            location: Path,
        }

        #[async_trait]
        impl MultipartUpload for Upload {
            fn put_part(&mut self, data: PutPayload) -> UploadPart {
                self.local.put_part(data)
            }

            async fn complete(&mut self) -> Result<PutResult> {
                self.file_system.changed(&self.location);
                let outcome = self.local.complete().await;
                self.file_system.changed(&self.location);
                outcome
            }

            async fn abort(&mut self) -> Result<()> {
                self.local.abort().await
            }
        }

        fn meta(location: &Path, status: Status) -> ObjectMeta {
            ObjectMeta {
                location: location.clone(),
                last_modified: status.last_modified().into(),
                size: status.length_bytes,
                e_tag: Some(format!(concat!($quote, "{}", $quote), status.e_tag())),
                version: None,
            }
        }

        /// The range that the options ask for, once their conditions hold.
        fn requested(options: &GetOptions, meta: &ObjectMeta) -> Result<Range<u64>> {
            options.check_preconditions(meta)?;
            match &options.range {
                Some(range) => range.as_range(meta.size).map_err(|source| generic(source.into())),
                None => Ok(0..meta.size),
            }
        }

        fn result(bytes: BoxStream<'static, Result<Bytes>>, meta: ObjectMeta, range: Range<u64>) -> GetResult {
            let payload = GetResultPayload::Stream(bytes);
            GetResult { payload, meta, range, attributes: Attributes::default(), $($more)* }
        }

        fn bytes(
            stream: impl futures_util::Stream<Item = std::result::Result<Bytes, Failure>> + Send + 'static,
        ) -> BoxStream<'static, Result<Bytes>> {
            stream.map(|bytes| bytes.map_err(error)).boxed()
        }

        fn flattened(opened: Result<BoxStream<'static, Result<Bytes>>>) -> BoxStream<'static, Result<Bytes>> {
            opened.unwrap_or_else(|error| stream::iter([Err(error)]).boxed())
        }

        fn error(failure: Failure) -> Error {
            match failure {
                Failure::NotFound { path, source } => {
                    Error::NotFound { path: path.to_string_lossy().into_owned(), source: source.into() }
                }
                failure => generic(failure.into()),
            }
        }

        fn generic(source: Box<dyn std::error::Error + Send + Sync + 'static>) -> Error {
            Error::Generic { store: "HeadwaterFileSystem", source }
        }
    };
}

pub(crate) use file_system;
