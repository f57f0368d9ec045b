//! Handover: what one of several waiting threads and tasks goes on with.
//!
//! A thread that is notified runs. A task that is notified may never be polled again, and would swallow the notification: so a thread
//! goes on, if one waits, and only if none does all tasks look again.
//!
//! Owns: which waiter is notified.
//! Does not own: what they wait for; a waiter looks again, and one that comes meanwhile may be first.

use headwater_io::{Driver, Event, EventListener};

use crate::base::shared_completion::Notified;

/// Waiting threads and tasks, of which one after the other goes on.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    threads: Event,
    tasks: Event,
}

impl Handover {
    /// Registers the calling thread.
    pub(crate) fn listen(&self) -> EventListener {
        self.threads.listen()
    }

    /// Registers a task.
    pub(crate) fn listen_async<'a>(&self, driver: &'a Driver) -> Notified<&'a Driver> {
        Notified { listener: Some(self.tasks.listen()), driver }
    }

    /// Notifies one thread, or else all tasks: one alone may never be polled again, and the others would wait for it.
    pub(crate) fn notify_one(&self) {
        if self.threads.notify(1) == 0 {
            self.tasks.notify(usize::MAX);
        }
    }

    /// Notifies the first `count` threads and the first `count` tasks.
    pub(crate) fn notify(&self, count: usize) {
        self.threads.notify(count);
        self.tasks.notify(count);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};
    use std::time::Duration;

    use headwater_io::{Driver, DriverOptions};

    use super::Handover;

    /// Goal: a thread that waits is notified whatever tasks wait, and each task if no thread does. Method: a task that listens first
    /// and is not polled again, and one behind it.
    #[test]
    fn a_task_keeps_no_notification_from_a_thread() {
        let (handover, driver) = (Handover::default(), Driver::new(&DriverOptions::default()).unwrap());
        let mut task = Box::pin(handover.listen_async(&driver));
        let mut context = Context::from_waker(Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_pending());
        let mut behind = Box::pin(handover.listen_async(&driver));
        assert!(behind.as_mut().poll(&mut context).is_pending());
        let thread = handover.listen();
        handover.notify_one();
        assert!(thread.wait_timeout(Duration::ZERO), "the task has it");
        assert!(behind.as_mut().poll(&mut context).is_pending());
        handover.notify_one();
        assert!(behind.as_mut().poll(&mut context).is_ready(), "the task that nothing polls has it");
        assert!(task.as_mut().poll(&mut context).is_ready());
    }
}
