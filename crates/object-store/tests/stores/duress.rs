//! Duress: few descriptors, a full disk, no permission.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use futures_util::{StreamExt, TryStreamExt};
use headwater_object_store::v0_14::HeadwaterFileSystem;
use headwater_object_store::v0_14::object_store::local::LocalFileSystem;
use headwater_object_store::v0_14::object_store::path::Path;
use headwater_object_store::v0_14::object_store::{Error, ObjectStore, ObjectStoreExt};
use headwater_testkit::{run_self_with_env, skip, small_tmpfs};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::rig::{engines, folder, run};

const CHILD: &str = "HEADWATER_STORE_CHILD";

/// Goal: with 64 descriptors hundreds of objects are read, several at once, by gets and ranges; too many streams at once are refused
/// with an error, and once they are gone all works again.
#[test]
fn few_descriptors_suffice() {
    if std::env::var_os(CHILD).is_none() {
        let output = run_self_with_env("duress::few_descriptors_suffice", CHILD, "1");
        assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
    for engine in engines() {
        let folder = folder();
        let store = HeadwaterFileSystem::new_with_prefix(folder.path()).unwrap().with_engine(&engine);
        let location = |number: usize| Path::from(format!("{number}"));
        run("300 objects", async {
            for number in 0..300 {
                store.put(&location(number), vec![number as u8; 20_000].into()).await.unwrap();
            }
            let read = async |number: usize| {
                let bytes = store.get(&location(number)).await?.bytes().await?;
                let ranges = store.get_ranges(&location(number), &[5..10, 10_000..20_000]).await?;
                assert!(bytes.iter().chain(&ranges[1]).all(|&byte| byte == number as u8));
                Ok::<usize, Error>(bytes.len())
            };
            let read: Vec<usize> = futures_util::stream::iter((0..300).map(read))
                .buffer_unordered(8)
                .try_collect()
                .await
                .unwrap();
            assert_eq!(read.iter().sum::<usize>(), 300 * 20_000);
            let mut streams = Vec::new();
            let refused = loop {
                match store.get(&location(streams.len())).await {
                    Ok(result) => streams.push(result.into_stream()),
                    Err(error) => break error,
                }
                assert!(streams.len() < 64, "each holds a descriptor");
            };
            assert!(matches!(refused, Error::Generic { .. }), "{refused:?}");
            assert!(streams.len() > 8, "only {} at once", streams.len());
            drop(streams);
            assert_eq!(store.get(&location(299)).await.unwrap().bytes().await.unwrap().len(), 20_000);
        });
    }
}

/// Goal: a put that the disk has no room for fails, and leaves the object as it was and nothing beside it.
#[test]
fn a_full_disk_is_reported() {
    let disk = match small_tmpfs(4 << 20) {
        Ok(disk) => disk,
        Err(reason) => return skip(reason),
    };
    for engine in engines() {
        let store = HeadwaterFileSystem::new_with_prefix(disk.path()).unwrap().with_engine(&engine);
        let location = Path::from("object");
        run("a full disk", async {
            store.put(&location, vec![1; 100_000].into()).await.unwrap();
            let refused = store.put(&location, vec![2; 8 << 20].into()).await.unwrap_err();
            assert!(matches!(refused, Error::Generic { .. }), "{refused:?}");
            let mut upload = store.put_multipart(&location).await.unwrap();
            assert!(upload.put_part(vec![3; 8 << 20].into()).await.is_err());
            upload.abort().await.unwrap();
            let bytes = store.get(&location).await.unwrap().bytes().await.unwrap();
            assert_eq!(bytes, vec![1; 100_000]);
        });
        assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 1);
    }
}

/// Goal: an object without permission to read it is refused as `LocalFileSystem` refuses it, one in a folder that may not be searched
/// too. Method: as another user, in a child.
#[test]
fn no_permission_is_reported() {
    const NAME: &str = "duress::no_permission_is_reported";
    if let Some(folder) = std::env::var_os(CHILD) {
        return refused_as_by_local(std::path::Path::new(&folder));
    }
    if !rustix::process::geteuid().is_root() {
        return skip("not root, so there is no other user to be");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let set = |name: &str, mode| {
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap()
    };
    std::fs::create_dir(path("closed")).unwrap();
    for name in ["open", "secret", "closed/object"] {
        std::fs::write(path(name), b"bytes").unwrap();
    }
    set("", 0o755);
    set("secret", 0o600);
    set("closed", 0o700);
    // The folder of this program may be closed to others too.
    let program = path("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    set("program", 0o755);
    let mut command = Command::new(&program);
    command
        .args(["--exact", NAME, "--nocapture"])
        .env(CHILD, folder.path())
        .current_dir(folder.path())
        .uid(65_534)
        .gid(65_534);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn refused_as_by_local(folder: &std::path::Path) {
    let local = LocalFileSystem::new_with_prefix(folder).unwrap();
    let store = HeadwaterFileSystem::new_with_prefix(folder).unwrap();
    run("refused reads", async {
        assert_eq!(store.get(&Path::from("open")).await.unwrap().bytes().await.unwrap(), "bytes");
        for name in ["secret", "closed/object"] {
            let location = Path::from(name);
            let ours =
                [store.get(&location).await.map(drop), store.get_ranges(&location, &[0..1]).await.map(drop)];
            let theirs =
                [local.get(&location).await.map(drop), local.get_ranges(&location, &[0..1]).await.map(drop)];
            for (ours, theirs) in ours.into_iter().zip(theirs) {
                assert!(matches!(ours, Err(Error::Generic { .. })), "{name}: {ours:?}");
                assert!(matches!(theirs, Err(Error::Generic { .. })), "{name}: {theirs:?}");
            }
        }
        assert!(store.head(&Path::from("closed/object")).await.is_err());
    });
}
