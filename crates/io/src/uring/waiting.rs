//! Waiting: threads that want a result, of which one leads and the others follow.
//!
//! Owns: who leads, and that the lead is taken up again when it becomes free.
//! Does not own: what a leader does (reaping).
//! Locks: `followers`, alone. Blocking: parks, or waits in the kernel as the leader.

use std::sync::MutexGuard;
use std::sync::atomic::{Ordering, fence};
use std::task::Waker;
use std::thread::Thread;

use super::{Reaper, Shared};
use crate::pool::SlotId;
use crate::sync::lock;

/// Who waits for the lead to become free.
#[derive(Default)]
pub(super) struct Followers {
    threads: Vec<Thread>,
    tasks: Vec<Waker>,
}

impl Shared {
    pub(super) fn wait(&self, id: SlotId) {
        self.check_owner();
        while !self.slots.is_done(id) {
            match self.try_lead() {
                Some(lead) => self.lead(lead, id),
                None => {
                    self.flush_staged();
                    self.follow(id);
                }
            }
        }
        self.hand_over();
    }

    /// Reaps once, unless the request was completed by the last leader in the meantime.
    pub(super) fn lead(&self, lead: MutexGuard<'_, ()>, id: SlotId) {
        if !self.slots.is_done(id) {
            self.reap(lead, Reaper::Waiting, None);
        }
    }

    /// Parks until the request is done or the leader hands over.
    pub(super) fn follow(&self, id: SlotId) {
        // SAFETY: who waits for a request owns it.
        if !unsafe { self.slots.register_thread(id) } {
            return;
        }
        lock(&self.followers).threads.push(std::thread::current());
        self.follower_count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence in `hand_over`: either the leader sees this entry, or we see that it has left.
        fence(Ordering::SeqCst);
        // The leader may have left between our try and our entry in the list; then nobody would wake us.
        match self.try_lead() {
            Some(lead) => self.lead(lead, id),
            None => std::thread::park(),
        }
        let me = std::thread::current().id();
        let mut followers = lock(&self.followers);
        if let Some(place) = followers.threads.iter().position(|thread| thread.id() == me) {
            followers.threads.swap_remove(place);
            self.follower_count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A task follows: it is woken when the lead becomes free. Says whether it is free already.
    #[cfg(feature = "tokio")]
    pub(super) fn follow_as_task(&self, waker: &Waker) -> bool {
        lock(&self.followers).tasks.push(waker.clone());
        self.follower_count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.reaper.try_lock().is_ok()
    }

    /// Wakes one thread that follows so that it can lead, and all tasks, because one alone may be a task that nobody
    /// polls any more. Called by everyone who stops waiting, after it last held the lead.
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
