//! Waiting: threads that wait for results, of which one leads (reaps for all) and the others follow (park).
//!
//! Owns: which thread leads, and that another takes the lead when it becomes free.
//! Does not own: what a leader does (reaping).
//! Locks: `followers`, alone. Blocking: parks, or waits in the kernel as the leader.

use std::sync::MutexGuard;
use std::sync::atomic::{Ordering, fence};
use std::task::Waker;
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::submission::LOOK_AGAIN;
use super::{Reaper, Shared, WaitsIdle};
use crate::request::slot_table::SlotId;
use crate::sync::event::Until;
use crate::sync::lock;

/// Threads and tasks that wait for the lead to become free.
#[derive(Default)]
pub(super) struct Followers {
    threads: Vec<Thread>,
    tasks: Vec<Waker>,
}

impl Shared {
    /// Waits until the request is done, or for `limit` to about twice that. Returns whether it is done.
    pub(super) fn wait_for(&self, id: SlotId, limit: Duration, until: Until) -> bool {
        self.check_owner();
        // One round takes no longer than `limit` and is mostly enough: the clock is read after it.
        let mut deadline = None;
        while !self.slots.is_done(id) {
            match self.try_lead() {
                lead if self.is_substituted() => self.wait_beside_workers(lead, id),
                Some(lead) => self.lead(lead, id, limit),
                None => {
                    self.flush_once();
                    self.follow(id, limit);
                }
            }
            if self.slots.is_done(id) || until.is_interrupted() {
                break;
            }
            let now = Instant::now();
            if now >= *deadline.get_or_insert(now + limit) {
                break;
            }
        }
        self.hand_over();
        self.slots.is_done(id)
    }

    /// Reaps once, unless the request was completed by the last leader in the meantime.
    fn lead(&self, lead: MutexGuard<'_, ()>, id: SlotId, limit: Duration) {
        if !self.slots.is_done(id) {
            self.reap(lead, Reaper::Waiting, limit, WaitsIdle::No);
        }
    }

    /// Reaps requests that the kernel had taken before it refused, and parks for a moment: a worker thread unparks the owner of a
    /// request that it has completed.
    #[cold]
    fn wait_beside_workers(&self, lead: Option<MutexGuard<'_, ()>>, id: SlotId) {
        if let Some(lead) = lead {
            self.reap_ready(lead);
        }
        // SAFETY: the thread that waits for a request owns it.
        if unsafe { self.slots.register_thread(id) } {
            std::thread::park_timeout(LOOK_AGAIN);
        }
    }

    /// Parks until the request is done or the leader hands over, and no longer than `limit`.
    fn follow(&self, id: SlotId, limit: Duration) {
        // SAFETY: a thread that waits for a request owns it.
        if !unsafe { self.slots.register_thread(id) } {
            return;
        }
        lock(&self.followers).threads.push(std::thread::current());
        self.follower_count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `hand_over`: either the leader sees this entry, or we see that it has left.
        fence(Ordering::SeqCst);
        // The leader may have left between our try and our entry in the list; then no thread would wake us.
        match self.try_lead() {
            Some(lead) => self.lead(lead, id, limit),
            None => std::thread::park_timeout(limit),
        }
        let me = std::thread::current().id();
        let mut followers = lock(&self.followers);
        if let Some(place) = followers.threads.iter().position(|thread| thread.id() == me) {
            followers.threads.swap_remove(place);
            self.follower_count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Registers a task to be woken when the lead becomes free. Returns whether it is free already.
    #[cfg(feature = "tokio")]
    pub(super) fn follow_as_task(&self, waker: &Waker) -> bool {
        lock(&self.followers).tasks.push(waker.clone());
        self.follower_count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.reaper.try_lock().is_ok()
    }

    /// Wakes one following thread so that it can lead, and all tasks, because a single one may never be polled again. Every thread
    /// that stops waiting calls this, after it last held the lead.
    pub(super) fn hand_over(&self) {
        fence(Ordering::SeqCst);
        if self.follower_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (thread, tasks) = {
            let mut followers = lock(&self.followers);
            (followers.threads.pop(), std::mem::take(&mut followers.tasks))
        };
        self.follower_count.fetch_sub(usize::from(thread.is_some()) + tasks.len(), Ordering::SeqCst);
        thread.iter().for_each(Thread::unpark);
        tasks.into_iter().for_each(Waker::wake);
    }
}
