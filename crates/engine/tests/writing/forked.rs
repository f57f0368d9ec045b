//! Forked: a child that is left with its parent's files cannot write them, nor lose what the parent has not synced.
//!
//! Owns: writing in a child.
//! Does not own: reading there (reading's forks).

use headwater::{Error, File, IoMode, Operation};
use headwater_testkit::{run_forked, run_self_with_env, with_seed};

use crate::model::same;
use crate::rig::{Rig, Scratch, drivers, watched};
use crate::threads::open;

/// Goal: a child gets [`Error::Forked`] from writes, drops all it has, and the parent's bytes are those of the
/// parent, which goes on.
#[test]
fn a_child_of_a_writing_process() {
    let name = "forked::a_child_of_a_writing_process";
    in_a_process_of_its_own(name, || fork_while_writing(name, refused_writes));
}

/// Goal: the same for lengths, syncs and views.
#[test]
fn a_child_neither_cuts_nor_syncs() {
    let name = "forked::a_child_neither_cuts_nor_syncs";
    in_a_process_of_its_own(name, || fork_while_writing(name, refused_changes));
}

/// Other tests of this binary have threads that hold locks at the moment of the fork.
pub(crate) fn in_a_process_of_its_own(name: &str, work: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    let output = run_self_with_env(name, CHILD, "1");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stdout));
}

type Refused = Vec<(Operation, headwater::Result<()>)>;

fn fork_while_writing(name: &str, refused: fn(&File) -> Refused) {
    with_seed(name, |seed| {
        for driver in drivers(seed) {
            let (rig, scratch) = (Rig::sized(driver, 3 << 20, 16), Scratch::new(seed, 0));
            let file = open(&rig, &scratch.path(), IoMode::Auto);
            let mut expected = Vec::new();
            for round in 0..6_u8 {
                let bytes = vec![round + 1; 300_001];
                file.append(&bytes).unwrap();
                expected.extend(bytes);
                let view = file.view(0, 70_000).unwrap();
                let mut inherited = Some((file.clone(), view));
                run_forked(|| {
                    let (file, view) = inherited.take().unwrap();
                    for (operation, result) in refused(&file) {
                        let error = result.unwrap_err();
                        assert!(matches!(error, Error::Forked(_)), "{operation}: {error:?}");
                    }
                    drop((file, view));
                });
                drop(inherited);
                let mut found = vec![0; expected.len()];
                watched(rig.name(), || file.read_exact_at(&mut found, 0)).unwrap();
                same("in the parent", 0, &expected, &found).unwrap();
            }
            watched(rig.name(), || file.sync_data()).unwrap();
            same("on disk", 0, &expected, &std::fs::read(scratch.path()).unwrap()).unwrap();
            drop(file);
            rig.assert_idle();
        }
    });
}

fn refused_writes(file: &File) -> Refused {
    vec![
        (Operation::Write, file.write_at(b"child", 0).map(|_| ())),
        (Operation::Write, file.write_all_at(b"child", 1_000_000)),
        (Operation::Write, file.append(b"child").map(|_| ())),
    ]
}

fn refused_changes(file: &File) -> Refused {
    vec![
        (Operation::SetLength, file.set_len(5)),
        (Operation::PunchHole, file.punch_hole(..)),
        (Operation::Allocate, file.allocate(..9)),
        (Operation::Length, file.wait_for_growth(0, None).map(|_| ())),
        (Operation::Sync, file.sync_data()),
        (Operation::View, file.view(5, 50_000).map(|_| ())),
    ]
}

const CHILD: &str = "HEADWATER_FORKED_CHILD";
