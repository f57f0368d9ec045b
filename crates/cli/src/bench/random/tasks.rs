//! Tasks: many futures on one thread, each polled when it was woken.
//!
//! Owns: which tasks are to be polled.
//! Does not own: what is done.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

pub(super) type Task<T> = Pin<Box<dyn Future<Output = T>>>;

/// Runs up to 64 tasks to their ends. Results are in the order of the tasks.
pub(super) fn run_all<T>(tasks: Vec<Task<T>>) -> Vec<T> {
    assert!((1..=64).contains(&tasks.len()), "a bit for each task");
    let woken =
        Arc::new(Woken { bits: AtomicU64::new(u64::MAX >> (64 - tasks.len())), thread: thread::current() });
    let waker = |bit| Waker::from(Arc::new(TaskWaker { bit, woken: woken.clone() }));
    let wakers: Vec<Waker> = (0..tasks.len()).map(waker).collect();
    let mut tasks: Vec<Option<Task<T>>> = tasks.into_iter().map(Some).collect();
    let mut results: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
    while results.iter().any(Option::is_none) {
        let mut bits = woken.bits.swap(0, Ordering::Acquire);
        if bits == 0 {
            thread::park();
        }
        while bits != 0 {
            let index = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let Some(task) = &mut tasks[index] else { continue };
            if let Poll::Ready(result) = task.as_mut().poll(&mut Context::from_waker(&wakers[index])) {
                (tasks[index], results[index]) = (None, Some(result));
            }
        }
    }
    results.into_iter().flatten().collect()
}

/// Lets the others go first.
pub(super) async fn give_way() {
    let mut has_given_way = false;
    std::future::poll_fn(|context| {
        if has_given_way {
            return Poll::Ready(());
        }
        has_given_way = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct Woken {
    bits: AtomicU64,
    thread: Thread,
}

struct TaskWaker {
    bit: usize,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Whoever sets the first bit wakes the thread; the others find it on its way.
        if self.woken.bits.fetch_or(1 << self.bit, Ordering::Release) == 0 {
            self.woken.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every task comes to its end, in whatever order they are woken, and all have their turns.
    #[test]
    fn all_tasks_end() {
        let task = |number: u32| -> Task<u32> {
            Box::pin(async move {
                for _ in 0..number % 7 {
                    give_way().await;
                }
                let mut waits = number.is_multiple_of(3);
                std::future::poll_fn(|context| {
                    if std::mem::take(&mut waits) {
                        let waker = context.waker().clone();
                        thread::spawn(move || waker.wake());
                        return Poll::Pending;
                    }
                    Poll::Ready(())
                })
                .await;
                number
            })
        };
        assert_eq!(run_all((0..64).map(task).collect()), (0..64).collect::<Vec<u32>>());
    }
}
