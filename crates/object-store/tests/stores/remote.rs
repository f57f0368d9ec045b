//! Remote: a file system whose server changes an object while the kernel still believes what it knew of it, as on NFS for up to a minute.
//!
//! ```text
//!   store ─► kernel, which caches names and attributes for a minute ─► /dev/fuse ─► a thread of the test, which has the one object
//! ```
//!
//! Owns: the server, which speaks as much of FUSE's protocol (fuse(4), include/uapi/linux/fuse.h) as one file needs.
//! Does not own: local file systems (changes).

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use headwater_object_store::v0_14::HeadwaterFileSystem;
use headwater_object_store::v0_14::object_store::ObjectStoreExt;
use headwater_object_store::v0_14::object_store::path::Path;
use headwater_testkit::{lack, watched};
use tempfile::TempDir;

use crate::rig::{engines, run};

/// Goal: meta and bytes of a get, and a head, are those that the server has, whatever the kernel believes. Method: an object that is kept
/// open is overwritten in place, longer and shorter, and replaced by another file, which makes the old one stale.
#[test]
fn a_change_that_the_kernel_does_not_know_is_seen() {
    for engine in engines() {
        let remote = match Remote::mount() {
            Ok(remote) => remote,
            Err(reason) => return lack(reason),
        };
        let store = HeadwaterFileSystem::new_with_prefix(remote.folder.path()).unwrap().with_engine(&engine);
        let location = Path::from("object");
        run("changes on the server", async {
            let read = async |byte: u8, length: usize| {
                let result = store.get(&location).await.map_err(|error| format!("get of {byte}: {error}"))?;
                let (meta, bytes) = (result.meta.clone(), result.bytes().await.unwrap());
                let is_right = bytes.len() == length && bytes.iter().all(|&read| read == byte);
                if is_right && meta.size as usize == length {
                    return Ok(meta.e_tag);
                }
                Err(format!(
                    "meta of {} bytes, {} bytes of {:?}, not {length} of {byte}",
                    meta.size,
                    bytes.len(),
                    bytes.first()
                ))
            };
            let mut tags = Vec::new();
            for (byte, length, is_replaced) in [
                (1, 300_000, false),
                (2, 400_000, false),
                (3, 200_000, false),
                (4, 100_000, true),
                (5, 100_000, true),
            ] {
                remote.change(vec![byte; length], is_replaced);
                tags.push(read(byte, length).await.unwrap());
                remote.change(vec![byte + 10; length + 1], is_replaced);
                assert_eq!(store.head(&location).await.unwrap().size as usize, length + 1);
                tags.push(read(byte + 10, length + 1).await.unwrap());
            }
            tags.dedup();
            assert_eq!(tags.len(), 10, "each change has a tag of its own");
        });
    }
}

/// Goal: the same for a get of a file that is not kept open. Method: the kernel is asked for the file's times, then it changes on the server.
#[test]
fn a_change_before_the_first_get_is_seen() {
    for (engine, length) in engines().into_iter().flat_map(|engine| [(engine.clone(), 200), (engine, 50)]) {
        let remote = match Remote::mount() {
            Ok(remote) => remote,
            Err(reason) => return lack(reason),
        };
        remote.change(vec![1; 100], false);
        assert_eq!(std::fs::metadata(remote.folder.path().join("object")).unwrap().len(), 100);
        remote.change(vec![2; length], false);
        let store = HeadwaterFileSystem::new_with_prefix(remote.folder.path()).unwrap().with_engine(&engine);
        let bytes = run("a first get", async {
            store.get(&Path::from("object")).await.unwrap().bytes().await.unwrap()
        });
        assert!(bytes == vec![2; length], "{} bytes of {:?}, not {length} of 2", bytes.len(), bytes.first());
    }
}

/// Goal: while a server does not answer, gets of its objects and heads of them wait alone: the executor goes on. Method: a server that waits
/// for the test; one thread.
#[test]
fn a_server_without_an_answer_holds_up_its_objects_alone() {
    let remote = match Remote::mount() {
        Ok(remote) => remote,
        Err(reason) => return lack(reason),
    };
    remote.change(vec![1; 300_000], false);
    let local = tempfile::tempdir().unwrap();
    std::fs::write(local.path().join("object"), [2; 1000]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for engine in engines() {
        let of = |folder| HeadwaterFileSystem::new_with_prefix(folder).unwrap().with_engine(&engine);
        let (far, near, object) = (of(remote.folder.path()), of(local.path()), Path::from("object"));
        let get = |store: &HeadwaterFileSystem| {
            let (store, object) = (store.clone(), object.clone());
            async move { store.get(&object).await.unwrap().bytes().await.unwrap() }
        };
        watched("a server without an answer", || {
            // Kept open from now on.
            assert_eq!(runtime.block_on(get(&far)).len(), 300_000);
            let silence = remote.object.lock().unwrap();
            let (waiting, (store, name)) = (runtime.spawn(get(&far)), (far.clone(), object.clone()));
            let head = runtime.spawn(async move { store.head(&name).await.unwrap().size });
            for _ in 0..20 {
                runtime.block_on(tokio::task::yield_now());
                assert_eq!(runtime.block_on(get(&near)), vec![2; 1000]);
            }
            assert!(!waiting.is_finished() && !head.is_finished());
            drop(silence);
            assert_eq!(runtime.block_on(waiting).unwrap().len(), 300_000);
            assert_eq!(runtime.block_on(head).unwrap(), 300_000);
        });
    }
}

/// A mounted folder with one object.
struct Remote {
    folder: TempDir,
    object: Arc<Mutex<Object>>,
}

struct Object {
    node: u64,
    modified: u64,
    bytes: Vec<u8>,
}

impl Remote {
    fn mount() -> Result<Remote, String> {
        let folder = tempfile::tempdir().unwrap();
        let device =
            File::options().read(true).write(true).open("/dev/fuse").map_err(|error| error.to_string())?;
        // Without a helper of FUSE's; the device is its standard input. Read-only: otherwise a read makes the kernel ask for the times again.
        let mounted = Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", "ro,fd=0,rootmode=40000,user_id=0,group_id=0", "headwater"])
            .arg(folder.path())
            .stdin(Stdio::from(device.try_clone().unwrap()))
            .output()
            .map_err(|error| error.to_string())?;
        if !mounted.status.success() {
            return Err(format!("mount: {}", String::from_utf8_lossy(&mounted.stderr)));
        }
        let object = Arc::new(Mutex::new(Object { node: 2, modified: 1000, bytes: Vec::new() }));
        let served = object.clone();
        std::thread::spawn(move || serve(device, &served));
        Ok(Remote { folder, object })
    }

    /// Changes the object without a word to the kernel.
    fn change(&self, bytes: Vec<u8>, is_replaced: bool) {
        let mut object = self.object.lock().unwrap();
        object.node += u64::from(is_replaced);
        object.modified += 1;
        object.bytes = bytes;
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).output();
    }
}

/// Answers until the file system is unmounted.
fn serve(mut device: File, object: &Mutex<Object>) {
    let mut request = vec![0; 64 << 10];
    while let Ok(length) = device.read(&mut request) {
        let number = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
        let (operation, unique, node) = (number(4) as u32, number(8), number(16));
        let Some(answer) = answer(operation, node, &request[HEADER..length], &object.lock().unwrap()) else {
            continue;
        };
        let (error, body) = answer.map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let mut reply = Vec::new();
        reply.extend((16 + body.len() as u32).to_le_bytes());
        reply.extend(error.to_le_bytes());
        reply.extend(unique.to_le_bytes());
        reply.extend(body);
        // Fails for a request that was interrupted.
        _ = device.write(&reply);
    }
}

/// The answer, or the number of an error; `None` for requests that have none.
fn answer(operation: u32, node: u64, body: &[u8], object: &Object) -> Option<Result<Vec<u8>, i32>> {
    let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
    let is_stale = node != ROOT && node != object.node;
    Some(match operation {
        FORGET | BATCH_FORGET | INTERRUPT => return None,
        // Protocol 7.31, writes of up to a page.
        INIT => Ok(words(&[7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        _ if is_stale && operation != RELEASE => Err(ESTALE),
        LOOKUP if body == b"object\0" => {
            let known = [longs(&[object.node, 0, MINUTE, MINUTE, 0]), attributes(object.node, object)];
            Ok(known.concat())
        }
        LOOKUP => Err(ENOENT),
        GETATTR => Ok([longs(&[MINUTE, 0]), attributes(node, object)].concat()),
        // Reads go past the kernel's page cache.
        OPEN => Ok([longs(&[0]), words(&[1, 0])].concat()),
        READ => {
            let start = (number(8) as usize).min(object.bytes.len());
            let end = (start + number(16) as u32 as usize).min(object.bytes.len());
            Ok(object.bytes[start..end].to_vec())
        }
        RELEASE | FLUSH => Ok(Vec::new()),
        _ => Err(ENOSYS),
    })
}

fn attributes(node: u64, object: &Object) -> Vec<u8> {
    let (mode, length) = if node == ROOT { (0o40_755, 0) } else { (0o100_644, object.bytes.len() as u64) };
    let times = [object.modified; 3];
    let numbers = longs(&[&[node, length, length.div_ceil(512)], &times[..]].concat());
    // Nanoseconds, mode, links, owner, group, device, block size, flags.
    [numbers, words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])].concat()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

const HEADER: usize = 40;
const ROOT: u64 = 1;
const MINUTE: u64 = 60;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;
const ESTALE: i32 = 116;
