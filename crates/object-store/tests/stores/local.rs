//! Local: what is asked of the store and of `LocalFileSystem` on the same folder has the same outcome.

macro_rules! local {
    ($version:ident) => {
        mod $version {
            use std::os::unix::fs::symlink;

            use bytes::Bytes;
            use headwater_object_store::$version::HeadwaterFileSystem;
            use headwater_object_store::$version::object_store::local::LocalFileSystem;
            use headwater_object_store::$version::object_store::path::Path;
            use headwater_object_store::$version::object_store::{
                Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt,
            };
            use headwater_testkit::ScratchDir;

            use crate::rig::{engines, folder, kind, run};

            fn kind_of(error: Error) -> &'static str {
                kind!(error, headwater_object_store::$version::object_store)
            }

            /// A folder with objects, one beside it, links in and out, and names that are no objects.
            fn furnished() -> ScratchDir {
                let folder = folder();
                let inside = folder.path().join("inside");
                std::fs::create_dir_all(inside.join("folder")).unwrap();
                let write =
                    |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
                write("outside", b"outside");
                write("inside/object", &[7; 10_000]);
                write("inside/empty", b"");
                write("inside/folder/object", b"in a folder");
                write("inside/object#x", b"a name with a mark");
                write("inside/object#1", b"a staged upload");
                for (target, link) in
                    [("object", "in"), ("../outside", "out"), ("nowhere", "broken"), ("../", "up")]
                {
                    symlink(target, inside.join(link)).unwrap();
                }
                folder
            }

            const NAMES: [&str; 16] = [
                "object",
                "empty",
                "folder/object",
                "folder",
                "missing",
                "object/below",
                "object#x",
                "object#1",
                "in",
                "out",
                "broken",
                "up/outside",
                "folder/../object",
                "../outside",
                "..",
                "",
            ];

            fn options() -> Vec<GetOptions> {
                let ranges = [
                    GetRange::Bounded(0..1),
                    GetRange::Bounded(9999..20_000),
                    GetRange::Bounded(10_000..10_001),
                    GetRange::Bounded(5..5),
                    GetRange::Bounded(std::ops::Range { start: 6, end: 5 }),
                    GetRange::Offset(0),
                    GetRange::Offset(9999),
                    GetRange::Offset(10_000),
                    GetRange::Suffix(0),
                    GetRange::Suffix(1),
                    GetRange::Suffix(100_000),
                ];
                let plain = GetOptions::default;
                let mut options: Vec<_> =
                    ranges.into_iter().map(|range| GetOptions { range: Some(range), ..plain() }).collect();
                options.push(plain());
                options.push(GetOptions { head: true, ..plain() });
                for tag in ["*", "\"1-2-3\""] {
                    options.push(GetOptions { if_match: Some(tag.to_owned()), ..plain() });
                    options.push(GetOptions { if_none_match: Some(tag.to_owned()), ..plain() });
                    options.push(GetOptions { if_none_match: Some(tag.to_owned()), head: true, ..plain() });
                }
                let (past, future) = (std::time::SystemTime::UNIX_EPOCH, std::time::SystemTime::now());
                for time in [past, future + std::time::Duration::from_secs(1000)] {
                    options.push(GetOptions { if_modified_since: Some(time.into()), ..plain() });
                    options.push(GetOptions { if_unmodified_since: Some(time.into()), ..plain() });
                }
                options
            }

            type Got = Result<(Bytes, std::ops::Range<u64>, ObjectMeta), &'static str>;

            async fn got(store: &dyn ObjectStore, location: &Path, options: GetOptions) -> Got {
                let result = store.get_opts(location, options).await.map_err(kind_of)?;
                let (range, meta) = (result.range.clone(), result.meta.clone());
                Ok((result.bytes().await.map_err(kind_of)?, range, meta))
            }

            /// Goal: names, links, ranges and conditions have the outcome that they have with `LocalFileSystem`: bytes, range, tag, times,
            /// and the kind of error. What escapes the folder is refused as it refuses it.
            #[test]
            fn gets_have_the_same_outcome() {
                for engine in engines() {
                    let folder = furnished();
                    let inside = folder.path().join("inside");
                    let local = LocalFileSystem::new_with_prefix(&inside).unwrap();
                    let store = HeadwaterFileSystem::new_with_prefix(&inside).unwrap().with_engine(&engine);
                    run("gets", async {
                        for name in NAMES {
                            let location = Path::from(name);
                            // The second time the file is open.
                            for options in
                                options().into_iter().flat_map(|options| [options.clone(), options])
                            {
                                let ours = got(&store, &location, options.clone()).await;
                                let theirs = got(&local, &location, options.clone()).await;
                                assert_eq!(ours, theirs, "{name:?} with {options:?}");
                            }
                            let (ours, theirs) =
                                (store.path_to_filesystem(&location), local.path_to_filesystem(&location));
                            assert_eq!(ours.map_err(kind_of), theirs.map_err(kind_of), "{name:?}");
                        }
                        assert!(Path::parse("../outside").is_err());
                    });
                }
            }

            /// Goal: ranges that the object lacks, wholly or in part, empty ones and none at all have the same outcome.
            #[test]
            fn ranges_have_the_same_outcome() {
                for engine in engines() {
                    let folder = furnished();
                    let inside = folder.path().join("inside");
                    let local = LocalFileSystem::new_with_prefix(&inside).unwrap();
                    let store = HeadwaterFileSystem::new_with_prefix(&inside).unwrap().with_engine(&engine);
                    let lists = [
                        vec![],
                        vec![0..10_000],
                        vec![0..0, 9999..10_000],
                        vec![9000..10_001],
                        vec![10_000..10_001],
                        vec![5..6, 20_000..20_001],
                        vec![9..5000, 3..4, 4000..9000, 3..4],
                        vec![u64::MAX..u64::MAX, 0..1],
                    ];
                    run("ranges", async {
                        for name in NAMES.into_iter().filter(|name| *name != "folder") {
                            for list in &lists {
                                let ours = store.get_ranges(&Path::from(name), list).await.map_err(kind_of);
                                let theirs = local.get_ranges(&Path::from(name), list).await.map_err(kind_of);
                                assert_eq!(ours, theirs, "{list:?} of {name:?}");
                            }
                        }
                        let inverted = std::ops::Range { start: 7, end: 3 };
                        let refused = store.get_ranges(&Path::from("object"), &[inverted]).await;
                        assert_eq!(refused.map_err(kind_of), Err("generic"));
                    });
                }
            }

            /// Goal: a prefix that is missing or no folder is refused when and as `LocalFileSystem` refuses it.
            #[test]
            fn prefixes_have_the_same_outcome() {
                let folder = furnished();
                let missing = folder.path().join("nowhere");
                let ours = HeadwaterFileSystem::new_with_prefix(&missing).map(drop).map_err(kind_of);
                assert_eq!(ours, LocalFileSystem::new_with_prefix(&missing).map(drop).map_err(kind_of));
                assert_eq!(ours, Err("generic"));
                let file = folder.path().join("outside");
                let local = LocalFileSystem::new_with_prefix(&file).unwrap();
                let store = HeadwaterFileSystem::new_with_prefix(&file).unwrap();
                let location = Path::from("object");
                run("a file as prefix", async {
                    let (ours, theirs) = (store.get(&location).await, local.get(&location).await);
                    assert_eq!(ours.map(drop).map_err(kind_of), theirs.map(drop).map_err(kind_of));
                    let (ours, theirs) =
                        (store.put(&location, "x".into()).await, local.put(&location, "x".into()).await);
                    assert_eq!(ours.map(drop).map_err(kind_of), theirs.map(drop).map_err(kind_of));
                });
            }
        }
    };
}

local!(v0_13);
local!(v0_14);
