//! Changes: nothing outdated is served, whoever changes an object and whenever.

use std::io::Write;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use headwater_object_store::v0_14::HeadwaterFileSystem;
use headwater_object_store::v0_14::object_store::path::Path;
use headwater_object_store::v0_14::object_store::{
    Error, GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt,
};

use crate::rig::{engines, folder, run};

async fn whole(store: &HeadwaterFileSystem, name: &str) -> Bytes {
    store.get(&Path::from(name)).await.unwrap().bytes().await.unwrap()
}

/// Goal: a get sees every change that was made before it: by this store, under the name, in the file, by a rename over it, and a
/// deletion. Method: each followed at once by a get, a range and a head, a hundred times.
#[test]
fn a_get_sees_what_was_before_it() {
    for engine in engines() {
        let folder = folder();
        let store = HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap().with_engine(&engine);
        let (path, other) = (folder.path().join("object"), folder.path().join("other"));
        let location = Path::from("object");
        run("changes", async {
            let mut tags = Vec::new();
            for round in 0..100_u8 {
                let contents = vec![round; 5000 + usize::from(round % 3)];
                match round % 4 {
                    0 => drop(store.put(&location, contents.clone().into()).await.unwrap()),
                    1 => std::fs::write(&path, &contents).unwrap(),
                    2 => {
                        std::fs::write(&other, &contents).unwrap();
                        std::fs::rename(&other, &path).unwrap();
                    }
                    _ => {
                        // The same length, in place.
                        std::fs::write(&path, vec![0; contents.len()]).unwrap();
                        drop(whole(&store, "object").await);
                        std::fs::File::options()
                            .write(true)
                            .open(&path)
                            .unwrap()
                            .write_all_at(&contents, 0)
                            .unwrap();
                    }
                }
                assert_eq!(
                    store.get_range(&location, 4000..5000).await.unwrap(),
                    contents[4000..5000],
                    "round {round}"
                );
                assert_eq!(whole(&store, "object").await, contents, "round {round}");
                let meta = store.head(&location).await.unwrap();
                assert_eq!(meta.size as usize, contents.len());
                tags.push(meta.e_tag);
            }
            tags.dedup();
            assert_eq!(tags.len(), 100, "each change has a tag of its own");
            std::fs::remove_file(&path).unwrap();
            for outcome in [store.get(&location).await.map(drop), store.head(&location).await.map(drop)] {
                assert!(matches!(outcome, Err(Error::NotFound { path, .. }) if path.ends_with("object")));
            }
        });
    }
}

/// Goal: a stream of an object that is replaced or removed goes on with the object that it began with.
#[test]
fn a_stream_keeps_its_object() {
    for engine in engines() {
        let folder = folder();
        let store = HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap().with_engine(&engine);
        let location = Path::from("object");
        run("a stream", async {
            for is_removed in [false, true] {
                store.put(&location, vec![1; 8 << 20].into()).await.unwrap();
                let mut stream = store.get(&location).await.unwrap().into_stream();
                let first = stream.next().await.unwrap().unwrap();
                if is_removed {
                    store.delete(&location).await.unwrap();
                } else {
                    store.put(&location, vec![2; 1000].into()).await.unwrap();
                }
                let rest: Vec<Bytes> = stream.try_collect().await.unwrap();
                assert_eq!(first.len() + rest.iter().map(Bytes::len).sum::<usize>(), 8 << 20);
                assert!(rest.iter().flatten().all(|&byte| byte == 1));
            }
        });
    }
}

/// Goal: a stream of a file that is truncated meanwhile ends with an error, after bytes that the file had.
#[test]
fn a_stream_of_a_truncated_file_fails() {
    for engine in engines() {
        let folder = folder();
        let store = HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap().with_engine(&engine);
        let path = folder.path().join("object");
        run("a stream", async {
            let mut file = std::fs::File::create(&path).unwrap();
            file.write_all(&vec![1; 32 << 20]).unwrap();
            headwater_testkit::make_cold(&file).unwrap();
            let mut stream = store.get(&Path::from("object")).await.unwrap().into_stream();
            let mut read = stream.next().await.unwrap().unwrap().len();
            file.set_len(1000).unwrap();
            let error = loop {
                match stream.next().await.expect("the end is an error") {
                    Ok(bytes) => {
                        assert!(bytes.iter().all(|&byte| byte == 1));
                        read += bytes.len();
                    }
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Generic { .. }), "{error:?}");
            assert!(error.to_string().contains("object"), "{error}");
            assert!(read < 32 << 20);
            assert!(stream.next().await.is_none());
        });
    }
}

/// Goal: what was deleted or replaced by the store gives its space back at once: no descriptor of it is left. Method: a put, a rename,
/// a multipart upload and a deletion, each after reads of the object.
#[test]
fn deleted_objects_are_closed() {
    let folder = folder();
    let store = HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap();
    let open = || open_below(folder.path());
    let (one, two) = (Path::from("one"), Path::from("two"));
    run("deletions", async {
        for location in [&one, &two] {
            store.put(location, vec![1; 100_000].into()).await.unwrap();
            for start in 0..40 {
                store.get_range(location, start..start + 1000).await.unwrap();
            }
        }
        assert!((2..=4).contains(&open()), "two files, and two descriptors each at most: {}", open());
        store.put(&one, "new".into()).await.unwrap();
        assert!(open() <= 2, "{}", open());
        store.rename(&two, &one).await.unwrap();
        assert_eq!(open(), 0);
        assert_eq!(whole(&store, "one").await.len(), 100_000);
        let mut upload = store.put_multipart(&one).await.unwrap();
        upload.put_part("in parts".into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!(open(), 0, "the upload has replaced an object that was read");
        assert_eq!(whole(&store, "one").await, "in parts");
        store.delete(&one).await.unwrap();
        assert_eq!(open(), 0);
    });
}

/// Descriptors of this process of files in a folder, also of deleted ones.
fn open_below(folder: &std::path::Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.starts_with(folder)).count()
}

/// Goal: an object is closed before it is deleted or replaced, so that neither a caller that gives up keeps its space nor the executor's
/// thread frees it. Method: futures that are polled once and dropped, and a stream of deletions dropped after its first item; the threads
/// for blocking calls go on.
#[test]
fn changes_that_are_given_up_leave_nothing_open() {
    let folder = folder();
    let store = HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap();
    let paths: Vec<Path> = (0..12).map(|number| Path::from(format!("{number}"))).collect();
    let is_there = |location: &Path| folder.path().join(location.as_ref()).exists();
    run("changes that are given up", async {
        for location in &paths {
            store.put(location, vec![1; 1000].into()).await.unwrap();
            store.get_range(location, 0..10).await.unwrap();
        }
        assert!(open_below(folder.path()) >= 12);
        // A thread may be as fast as the poll.
        _ = store.delete(&paths[0]).now_or_never();
        _ = store.rename(&paths[1], &paths[2]).now_or_never();
        let locations = futures_util::stream::iter(paths[3..].to_vec()).map(Ok).boxed();
        let mut deleted = store.delete_stream(locations);
        deleted.next().await.unwrap().unwrap();
        drop(deleted);
        while is_there(&paths[0]) || is_there(&paths[1]) {
            tokio::task::yield_now().await;
        }
        // The stream deletes up to ten at a time.
        assert_eq!(open_below(folder.path()), 0);
    });
}

/// Goal: the bytes of a get with `head` are those of the object that it has described, or an error. Method: a put, and a deletion,
/// between the get and its first bytes.
#[test]
fn a_head_and_its_bytes_are_of_one_object() {
    for engine in engines() {
        let folder = folder();
        let store = HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap().with_engine(&engine);
        let location = Path::from("object");
        run("heads", async {
            for contents in [vec![2; 2000], vec![2; 500]] {
                store.put(&location, vec![1; 1000].into()).await.unwrap();
                let head = || store.get_opts(&location, GetOptions { head: true, ..GetOptions::default() });
                let (unchanged, changed) = (head().await.unwrap(), head().await.unwrap());
                assert_eq!(unchanged.bytes().await.unwrap(), vec![1; 1000]);
                store.put(&location, contents.into()).await.unwrap();
                let error = changed.bytes().await.unwrap_err();
                assert!(matches!(error, Error::Generic { .. }), "{error:?}");
                assert!(error.to_string().contains("has changed"), "{error}");
                let deleted = head().await.unwrap();
                store.delete(&location).await.unwrap();
                assert!(matches!(deleted.bytes().await, Err(Error::NotFound { .. })));
            }
        });
    }
}
