//! Changes: nothing outdated is served, whoever changes an object and whenever.

use std::io::Write;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use headwater_object_store::v0_14::HeadwaterFileSystem;
use headwater_object_store::v0_14::object_store::path::Path;
use headwater_object_store::v0_14::object_store::{Error, MultipartUpload, ObjectStoreExt};

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
    let open = || {
        let links = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.starts_with(folder.path())).count()
    };
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
