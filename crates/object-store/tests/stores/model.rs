//! Model: random operations on the store and on one in memory, which must not differ.
//!
//! ```text
//!   operation ─┬─► HeadwaterFileSystem ─► bytes, range, size, kind of error ─┐
//!              └─► InMemory ────────────► the same ──────────────────────────┴─► equal?
//!   and between them: another program replaces, overwrites or shortens a file; the model is told
//! ```
//!
//! Owns: the operations, where `LocalFileSystem` differs from the model by design.
//! Does not own: the comparison with `LocalFileSystem` itself (local).

/// Operations of a run in the suite; `HEADWATER_STORE_OPERATIONS` says another number.
const OPERATIONS: u64 = 1500;

/// Operations on one runtime, with an end to what hangs.
const TOGETHER: usize = 1000;

fn operations() -> u64 {
    std::env::var("HEADWATER_STORE_OPERATIONS").map_or(OPERATIONS, |number| number.parse().unwrap())
}

macro_rules! model {
    ($version:ident) => {
        mod $version {
            use std::os::unix::fs::MetadataExt;

            use bytes::Bytes;
            use futures_util::TryStreamExt;
            use headwater::Engine;
            use headwater_object_store::$version::HeadwaterFileSystem;
            use headwater_object_store::$version::object_store::memory::InMemory;
            use headwater_object_store::$version::object_store::path::Path;
            use headwater_object_store::$version::object_store::{
                Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode,
            };
            use headwater_testkit::{Rng, ScratchDir, with_seed};

            use crate::rig::{engines, folder, kind, run};

            type Kind = &'static str;

            fn kind_of(error: Error) -> Kind {
                kind!(error, headwater_object_store::$version::object_store)
            }

            /// Goal: no operation has another outcome than in a model, also while another program changes the files.
            #[test]
            fn no_operation_differs_from_the_model() {
                for engine in engines() {
                    with_seed(
                        concat!("model::", stringify!($version), "::no_operation_differs_from_the_model"),
                        |seed| {
                            let mut world = World::new(&engine, seed);
                            let operations = super::operations();
                            for first in (0..operations).step_by(super::TOGETHER) {
                                run("random operations", async {
                                    for number in first..(first + super::TOGETHER as u64).min(operations) {
                                        world.step(number).await;
                                    }
                                });
                            }
                            drop(world);
                            assert_eq!(engine.stats().lent_bytes, 0);
                        },
                    );
                }
            }

            struct World {
                folder: ScratchDir,
                store: HeadwaterFileSystem,
                model: InMemory,
                rng: Rng,
            }

            impl World {
                fn new(engine: &Engine, seed: u64) -> World {
                    let folder = folder();
                    let store =
                        HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap().with_engine(engine);
                    World { folder, store, model: InMemory::new(), rng: Rng::new(seed) }
                }

                async fn step(&mut self, number: u64) {
                    let location = self.location();
                    match self.rng.below(20) {
                        0..3 => self.put(number, &location).await,
                        3..7 => self.get(number, &location).await,
                        7..11 => self.ranges(number, &location).await,
                        11 => self.conditional(number, &location).await,
                        12 => self.head(number, &location).await,
                        13 => self.copy(number, &location).await,
                        14 => self.rename(number, &location).await,
                        15 => self.delete(number, &location).await,
                        16 => self.list(number).await,
                        _ => self.change_outside(&location).await,
                    }
                }

                fn location(&mut self) -> Path {
                    let name = self.rng.below(6);
                    Path::from(if name < 4 { format!("{name}") } else { format!("folder/{name}") })
                }

                fn contents(&mut self) -> Bytes {
                    let around = [0, 100, 4096, 8192, 65_536, 300_000][self.rng.below(6) as usize];
                    let length = (around + self.rng.below(3)).saturating_sub(1) as usize;
                    let first = self.rng.next_u64();
                    (0..length).map(|at| (first.wrapping_add(at as u64 * 7) >> 3) as u8).collect()
                }

                async fn put(&mut self, number: u64, location: &Path) {
                    let (contents, mode) = (
                        self.contents(),
                        if self.rng.chance(1, 4) { PutMode::Create } else { PutMode::Overwrite },
                    );
                    let ours =
                        self.store.put_opts(location, contents.clone().into(), mode.clone().into()).await;
                    let theirs = self.model.put_opts(location, contents.into(), mode.into()).await;
                    assert_eq!(
                        ours.map(drop).map_err(kind_of),
                        theirs.map(drop).map_err(kind_of),
                        "put, step {number}"
                    );
                }

                async fn get(&mut self, number: u64, location: &Path) {
                    let (start, length) = (self.rng.below(70_000), self.rng.range(1, 70_000));
                    let range = match self.rng.below(4) {
                        0 => None,
                        1 => Some(GetRange::Bounded(start..start + length)),
                        2 => Some(GetRange::Offset(start)),
                        _ => Some(GetRange::Suffix(length)),
                    };
                    let ours = got(&self.store, location, range.clone()).await;
                    let theirs = got(&self.model, location, range.clone()).await;
                    assert!(
                        ours == theirs,
                        "get {range:?} of {location}, step {number}: {} and {}",
                        told(&ours),
                        told(&theirs)
                    );
                }

                async fn ranges(&mut self, number: u64, location: &Path) {
                    let size = self.model.head(location).await.map_or(0, |meta| meta.size);
                    let count = if size == 0 { 0 } else { self.rng.below(12) };
                    let mut ranges = Vec::new();
                    for _ in 0..count {
                        let start = self.rng.below(size);
                        ranges.push(start..self.rng.range(start + 1, (start + 50_000).min(size) + 1));
                    }
                    let ours = self.store.get_ranges(location, &ranges).await.map_err(kind_of);
                    let theirs = self.model.get_ranges(location, &ranges).await.map_err(kind_of);
                    assert!(ours == theirs, "{ranges:?} of {location}, step {number}");
                }

                /// Each store gets the tag that it made itself.
                async fn conditional(&mut self, number: u64, location: &Path) {
                    let (is_wanted, is_stale) = (self.rng.chance(1, 2), self.rng.chance(1, 3));
                    let mut outcomes = Vec::new();
                    for store in [&self.store as &dyn ObjectStore, &self.model] {
                        let tag = store.head(location).await.ok().and_then(|meta| meta.e_tag);
                        let tag = if is_stale { Some("\"0-0-0\"".to_owned()) } else { tag };
                        let options = match is_wanted {
                            true => GetOptions { if_match: tag, ..GetOptions::default() },
                            false => GetOptions { if_none_match: tag, ..GetOptions::default() },
                        };
                        outcomes.push(
                            store
                                .get_opts(location, options)
                                .await
                                .map(|result| result.range)
                                .map_err(kind_of),
                        );
                    }
                    assert_eq!(outcomes[0], outcomes[1], "{location}, step {number}");
                }

                async fn head(&mut self, number: u64, location: &Path) {
                    let ours = self.store.head(location).await.map(|meta| meta.size).map_err(kind_of);
                    let theirs = self.model.head(location).await.map(|meta| meta.size).map_err(kind_of);
                    assert_eq!(ours, theirs, "head of {location}, step {number}");
                }

                /// Copies are hard links, and a link over another of the same file does nothing: left out.
                async fn copy(&mut self, number: u64, from: &Path) {
                    let to = self.location();
                    if self.is_same(from, &to) {
                        return;
                    }
                    let is_new = self.rng.chance(1, 2);
                    let mut outcomes = Vec::new();
                    for store in [&self.store as &dyn ObjectStore, &self.model] {
                        let copied = if is_new {
                            store.copy_if_not_exists(from, &to).await
                        } else {
                            store.copy(from, &to).await
                        };
                        outcomes.push(copied.map_err(kind_of));
                    }
                    assert_eq!(outcomes[0], outcomes[1], "copy {from} to {to}, step {number}");
                }

                async fn rename(&mut self, number: u64, from: &Path) {
                    let to = self.location();
                    if self.is_same(from, &to) {
                        return;
                    }
                    let ours = self.store.rename(from, &to).await.map_err(kind_of);
                    let theirs = self.model.rename(from, &to).await.map_err(kind_of);
                    assert_eq!(ours, theirs, "rename {from} to {to}, step {number}");
                }

                /// The model has nothing against deleting what is not there.
                async fn delete(&mut self, number: u64, location: &Path) {
                    let is_there = self.model.head(location).await.is_ok();
                    let ours = self.store.delete(location).await.map_err(kind_of);
                    self.model.delete(location).await.unwrap();
                    assert_eq!(
                        ours,
                        if is_there { Ok(()) } else { Err("not found") },
                        "delete {location}, step {number}"
                    );
                }

                async fn list(&mut self, number: u64) {
                    let mut outcomes = Vec::new();
                    for store in [&self.store as &dyn ObjectStore, &self.model] {
                        let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
                        let mut listed: Vec<_> =
                            listed.into_iter().map(|meta| (meta.location, meta.size)).collect();
                        listed.sort();
                        outcomes.push(listed);
                    }
                    assert_eq!(outcomes[0], outcomes[1], "step {number}");
                }

                /// Another program writes: a new file under the name, or the same file, unless that has other names.
                async fn change_outside(&mut self, location: &Path) {
                    let path = self.path(location);
                    let Ok(metadata) = std::fs::metadata(&path) else { return };
                    let contents = self.contents();
                    if metadata.nlink() > 1 || self.rng.chance(1, 2) {
                        let other = self.folder.path().join("other#1");
                        std::fs::write(&other, &contents).unwrap();
                        std::fs::rename(&other, &path).unwrap();
                    } else {
                        std::fs::write(&path, &contents).unwrap();
                    }
                    self.model.put(location, contents.into()).await.unwrap();
                }

                fn is_same(&self, one: &Path, other: &Path) -> bool {
                    let inode =
                        |location| std::fs::metadata(self.path(location)).map(|metadata| metadata.ino()).ok();
                    one == other || inode(one).is_some_and(|one| inode(other) == Some(one))
                }

                fn path(&self, location: &Path) -> std::path::PathBuf {
                    self.folder.path().join(location.as_ref())
                }
            }

            type Got = Result<(Bytes, std::ops::Range<u64>, u64), Kind>;

            async fn got(store: &dyn ObjectStore, location: &Path, range: Option<GetRange>) -> Got {
                let options = GetOptions { range, ..GetOptions::default() };
                let result = store.get_opts(location, options).await.map_err(kind_of)?;
                let (range, size) = (result.range.clone(), result.meta.size);
                Ok((result.bytes().await.map_err(kind_of)?, range, size))
            }

            fn told(got: &Got) -> String {
                match got {
                    Ok((bytes, range, size)) => format!("{} bytes, {range:?} of {size}", bytes.len()),
                    Err(kind) => (*kind).to_owned(),
                }
            }
        }
    };
}

model!(v0_13);
model!(v0_14);
