//! Oracle: random operations against a vector of bytes, with every policy and number of serving threads.
//!
//! Owns: the caches on which, and how many operations.
//! Does not own: the operations (model).

use axfs_ng_vfs::{NodeFlags, NodeType};
use headwater_arceos::ReadaheadPolicy;
use headwater_testkit::{Rng, watched, with_seed};

use crate::model::Actor;
use crate::node::{Faults, Node};
use crate::rig::{Rig, SMALL_BYTES};

/// Goal: whatever is done to a file, every byte is right, in the cache and, after a sync, in the node.
#[test]
#[cfg_attr(miri, ignore)]
fn a_file_is_its_model_with_every_policy() {
    with_seed("oracle::a_file_is_its_model_with_every_policy", |seed| {
        let mut rng = Rng::new(seed);
        for policy in POLICIES {
            for servers in 0..3 {
                one_file(policy, servers, Faults::default(), rng.next_u64());
            }
        }
    });
}

/// Goal: the same from a device that is interrupted and delivers less than it was asked for.
#[test]
#[cfg_attr(miri, ignore)]
fn a_file_is_its_model_on_a_device_that_falls_short() {
    with_seed("oracle::a_file_is_its_model_on_a_device_that_falls_short", |seed| {
        let mut rng = Rng::new(seed);
        for policy in POLICIES {
            let (short_every, interrupted_every) = (1 + rng.below(4), 2 + rng.below(4));
            let faults = Faults { short_every, interrupted_every, ..Faults::default() };
            one_file(policy, rng.below(3) as usize, faults, rng.next_u64());
        }
    });
}

/// Goal: the same while the file is mapped: loaded from, stored to, truncated, shrunk, written from its own mapping.
#[test]
#[cfg_attr(miri, ignore)]
fn a_mapped_file_is_its_model() {
    with_seed("oracle::a_mapped_file_is_its_model", |seed| {
        let mut rng = Rng::new(seed);
        for policy in POLICIES {
            for servers in 0..3 {
                let rig = Rig::with_policy(policy, SMALL_BYTES, servers);
                let short_every = rng.below(3);
                watched(&format!("{policy:?} with {servers} servers, mapped, seed {seed:#x}"), || {
                    let node = rig.node(Vec::new());
                    node.set_faults(Faults { short_every, ..Faults::default() });
                    let mut actor = Actor::new(&rig, node, FILE_BYTES, rng.next_u64()).mapped();
                    (0..STEPS).for_each(|_| {
                        actor.step();
                        actor.check();
                    });
                    actor.finish();
                });
                rig.assert_empty();
            }
        }
    });
}

/// Goal: the same for files that four threads write at once, in one cache that is too small for them.
#[test]
#[cfg_attr(miri, ignore)]
fn files_that_share_a_cache_are_their_models() {
    with_seed("oracle::files_that_share_a_cache_are_their_models", |seed| {
        let mut rng = Rng::new(seed);
        for servers in 0..3 {
            let rig = Rig::small(servers);
            let seeds: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
            watched(&format!("seed {seed:#x} with {servers} servers"), || {
                std::thread::scope(|scope| {
                    for seed in &seeds {
                        let rig = &rig;
                        scope.spawn(move || {
                            let actor = Actor::new(rig, rig.node(Vec::new()), FILE_BYTES, *seed);
                            perform(if seed % 2 == 0 { actor } else { actor.mapped() }, STEPS);
                        });
                    }
                });
            });
            rig.assert_empty();
        }
    });
}

/// Goal: a file that lives in the cache is its model too.
#[test]
#[cfg_attr(miri, ignore)]
fn a_file_in_memory_is_its_model() {
    with_seed("oracle::a_file_in_memory_is_its_model", |seed| {
        for is_mapped in [false, true] {
            let rig = Rig::small(1);
            let kind = NodeType::RegularFile;
            let node = Node::special(&rig.file_system, 1, Vec::new(), NodeFlags::ALWAYS_CACHE, kind);
            let file = rig.open(&node);
            let actor = Actor::new(&rig, node.clone(), 1 << 20, seed);
            let mut actor = if is_mapped { actor.mapped() } else { actor };
            (0..STEPS).for_each(|_| {
                actor.step();
                actor.check();
            });
            drop(actor);
            file.discard();
            drop(file);
            rig.assert_empty();
        }
    });
}

fn one_file(policy: ReadaheadPolicy, servers: usize, faults: Faults, seed: u64) {
    let rig = Rig::with_policy(policy, SMALL_BYTES, servers);
    watched(&format!("{policy:?} with {servers} servers, seed {seed:#x}"), || {
        let node = rig.node(Vec::new());
        node.set_faults(faults);
        perform(Actor::new(&rig, node, FILE_BYTES, seed), STEPS);
    });
    rig.assert_empty();
}

fn perform(mut actor: Actor<'_>, steps: usize) {
    (0..steps).for_each(|_| actor.step());
    actor.finish();
}

pub(crate) const POLICIES: [ReadaheadPolicy; 4] =
    [ReadaheadPolicy::Adaptive, ReadaheadPolicy::Linux, ReadaheadPolicy::Off, ReadaheadPolicy::Fixed(8)];

/// Three times the memory.
const FILE_BYTES: u64 = 6 << 20;
const STEPS: usize = 300;
