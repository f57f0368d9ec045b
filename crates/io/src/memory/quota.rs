//! Quota: how many pages may be lent out, counted without a write that threads share.
//!
//! ```text
//!   reserve ─► this thread's stripe has allowance left? ─┬─ yes: one compare-and-swap
//!                                                        └─ no: a batch of the rest, or what other stripes do not use (lock)
//!   stripe: │ is owned: 1 │ allowance: 31 │ lent: 32 │           Share drops ─► lent falls, in the stripe that it came from
//! ```
//!
//! A share also keeps what the quota was made for, as an `Arc` would, but its count is that of the stripe: lending a page and
//! returning it writes to one line of the thread's own. A stripe is left once its owner is gone and nothing is lent from it; the
//! last to leave frees all.
//!
//! Owns: the counts, and the value that owner and shares keep.
//! Does not own: what is lent.
//! Invariants: Q1 the allowances of all stripes and the rest are together the quota, and no stripe lends more than its allowance: so
//! never is more lent than the quota, unless it was lowered. Q2 while anything is not lent, it can be reserved, whatever stripe has the allowance. Q3 the value
//! is dropped once, after the owner and the last share.
//! Locks: `rest`, to move allowances; alone.
//! Hot path: one compare-and-swap to reserve, one subtraction to return, no allocation.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, fence, unpoisoned};

/// A quota of pages, and the value that its shares keep. The only owner; shares come from here.
pub(super) struct Quota<T> {
    inner: NonNull<Inner<T>>,
}

/// Pages reserved of a quota, until this is dropped, in any thread. Keeps the quota's value.
pub(super) struct Share<T> {
    inner: NonNull<Inner<T>>,
    stripe: u32,
    pages: u32,
}

struct Inner<T> {
    stripes: [Stripe; STRIPES],
    rest: Mutex<Rest>,
    /// Stripes that have not been left, and the owner.
    users: AtomicUsize,
    value: T,
}

struct Rest {
    quota: u32,
    /// Pages in no stripe's allowance; less than none while more is lent than the quota has been lowered to.
    pages: i64,
}

struct Stripe(CachePadded<AtomicU64>);

// SAFETY: the counts are atomic, and the value is reached by shared reference and dropped by any thread, as that of an `Arc`.
unsafe impl<T: Send + Sync> Send for Quota<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Quota<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Share<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Share<T> {}

impl<T> Quota<T> {
    /// A quota of `pages_max` pages, 8 TiB at most.
    pub(super) fn new(pages_max: usize, value: T) -> Quota<T> {
        let pages_max = pages_max.min(PAGES_MAX as usize) as u32;
        let inner = Inner {
            stripes: std::array::from_fn(|_| Stripe(CachePadded::new(AtomicU64::new(OWNED)))),
            rest: Mutex::new(Rest { quota: pages_max, pages: i64::from(pages_max) }),
            users: AtomicUsize::new(STRIPES + 1),
            value,
        };
        Quota { inner: NonNull::from(Box::leak(Box::new(inner))) }
    }

    /// Changes the quota. What is lent stays so, and no more is lent than that until some of it is returned.
    pub(super) fn set(&self, pages_max: usize) {
        let inner = self.inner();
        let pages_max = pages_max.min(PAGES_MAX as usize) as u32;
        let mut rest = unpoisoned(inner.rest.lock());
        if rest.quota != pages_max {
            rest.pages += i64::from(pages_max) - i64::from(rest.quota) + inner.take_back();
            rest.quota = pages_max;
        }
    }

    /// Reserves pages, at least one; `None` when fewer are left.
    #[inline]
    pub(super) fn reserve(&self, pages: u32) -> Option<Share<T>> {
        self.reserve_in(this_stripe(), pages)
    }

    #[inline]
    fn reserve_in(&self, stripe: usize, pages: u32) -> Option<Share<T>> {
        let pages = pages.max(1);
        let is_reserved = self.inner().reserve(stripe, pages);
        is_reserved.then(|| Share { inner: self.inner, stripe: stripe as u32, pages })
    }

    /// Pages lent now.
    pub(super) fn lent_pages(&self) -> usize {
        self.inner().stripes.iter().map(|stripe| lent(stripe.0.load(Ordering::Relaxed)) as usize).sum()
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: Q3: the owner is there.
        unsafe { self.inner.as_ref() }
    }
}

impl<T> Drop for Quota<T> {
    fn drop(&mut self) {
        for stripe in 0..STRIPES {
            // SAFETY: Q3: the owner leaves last, below.
            let word = unsafe { &self.inner.as_ref().stripes[stripe].0 };
            if lent(word.fetch_and(!OWNED, Ordering::AcqRel)) == 0 {
                leave(self.inner);
            }
        }
        leave(self.inner);
    }
}

impl<T> Share<T> {
    /// Pages of this share.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Splits off a share of `pages`, some but not all.
    pub(super) fn split(&mut self, pages: u32) -> Share<T> {
        assert!((1..self.pages).contains(&pages), "both shares have pages");
        self.pages -= pages;
        Share { inner: self.inner, stripe: self.stripe, pages }
    }

    /// Reserves pages, at least one, beside this share; `None` when fewer are left. The owner of the quota may be gone.
    pub(super) fn another(&self, pages: u32) -> Option<Share<T>> {
        // SAFETY: Q3: this share is there.
        let inner = unsafe { self.inner.as_ref() };
        let pages = pages.max(1);
        // In its own stripe, which cannot be left while this share is lent from it.
        let is_reserved = inner.reserve(self.stripe as usize, pages);
        is_reserved.then(|| Share { inner: self.inner, stripe: self.stripe, pages })
    }
}

impl<T> Deref for Share<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: Q3: this share is there.
        unsafe { &self.inner.as_ref().value }
    }
}

impl<T> Drop for Share<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Q3: until the subtraction this share is there. The reference ends with it: another thread may free the stripe.
        let word = unsafe { &(*self.inner.as_ptr()).stripes.get_unchecked(self.stripe as usize).0 };
        let before = word.fetch_sub(u64::from(self.pages), Ordering::Release);
        if before & (OWNED | LENT) == u64::from(self.pages) {
            leave(self.inner);
        }
    }
}

impl<T> Inner<T> {
    /// Lends pages from a stripe that has not been left.
    #[inline]
    fn reserve(&self, stripe: usize, pages: u32) -> bool {
        self.stripes[stripe].lend(pages) || self.lend_more(stripe, pages)
    }

    /// Lends pages from a stripe whose allowance does not suffice, after raising it.
    #[cold]
    fn lend_more(&self, stripe: usize, pages: u32) -> bool {
        let mut rest = unpoisoned(self.rest.lock());
        if rest.pages < i64::from(pages) {
            rest.pages += self.take_back();
        }
        if rest.pages < i64::from(pages) {
            return false;
        }
        let moved = rest.pages.min(i64::from(pages.saturating_add(BATCH_PAGES)));
        rest.pages -= moved;
        self.stripes[stripe]
            .0
            .fetch_add((moved as u64) << ALLOWANCE_SHIFT | u64::from(pages), Ordering::Relaxed);
        true
    }

    /// Lowers all allowances to what is lent. Returns the difference.
    fn take_back(&self) -> i64 {
        self.stripes.iter().map(|stripe| i64::from(stripe.take_back())).sum()
    }
}

impl Stripe {
    #[inline]
    fn lend(&self, pages: u32) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while u64::from(lent(word)) + u64::from(pages) <= u64::from(allowance(word)) {
            let next = word + u64::from(pages);
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Lowers the allowance to what is lent. Returns the difference.
    fn take_back(&self) -> u32 {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let unused = allowance(word) - lent(word);
            let next = word - (u64::from(unused) << ALLOWANCE_SHIFT);
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return unused,
                Err(now) => word = now,
            }
        }
    }
}

/// The owner, or the last user of a stripe without owner, goes. Frees all after the last of them.
#[cold]
fn leave<T>(inner: NonNull<Inner<T>>) {
    // SAFETY: the caller has not left yet.
    let users = unsafe { &(*inner.as_ptr()).users };
    // Whatever shares of other threads did with the value happened before.
    fence(Ordering::AcqRel);
    if users.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: from `Box::leak`, and the last user frees it.
        drop(unsafe { Box::from_raw(inner.as_ptr()) });
    }
}

fn lent(word: u64) -> u32 {
    (word & LENT) as u32
}

fn allowance(word: u64) -> u32 {
    ((word & !OWNED) >> ALLOWANCE_SHIFT) as u32
}

/// The stripe of this thread; threads may share one.
#[inline]
fn this_stripe() -> usize {
    STRIPE.try_with(Cell::get).unwrap_or(0)
}

/// Threads take the stripes in turn.
fn next_stripe() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % STRIPES
}

thread_local! {
    static STRIPE: Cell<usize> = Cell::new(next_stripe());
}

/// Two kilobytes for each engine. More threads than that share stripes, without harm while they share processors.
const STRIPES: usize = if cfg!(headwater_loom) { 2 } else { 16 };

/// Moved at once: 256 KiB, so that a thread that takes and returns pages comes back for more once in 64.
const BATCH_PAGES: u32 = if cfg!(headwater_loom) { 0 } else { 64 };

const LENT: u64 = u32::MAX as u64;
const ALLOWANCE_SHIFT: u32 = 32;
const OWNED: u64 = 1 << 63;
const PAGES_MAX: u32 = i32::MAX as u32;

/// Small, for miri.
#[cfg(all(test, not(headwater_loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// Goal: Q1, Q2: whatever is not lent can be lent, from any stripe, and not a page more; shares are split and returned.
    #[test]
    fn all_of_the_quota() {
        let quota = Quota::new(100, ());
        let first = quota.reserve_in(0, 40).unwrap();
        let mut shares: Vec<Share<()>> =
            (0..60).map(|at| quota.reserve_in(at % STRIPES, 1).unwrap()).collect();
        assert_eq!(quota.lent_pages(), 100);
        assert!((0..STRIPES).all(|stripe| quota.reserve_in(stripe, 1).is_none()));
        drop(first);
        let mut rest = quota.reserve_in(STRIPES - 1, 40).unwrap();
        assert!(quota.reserve_in(0, 1).is_none());
        let part = rest.split(39);
        assert_eq!((rest.pages(), part.pages()), (1, 39));
        drop(part);
        assert!(quota.reserve_in(1, 40).is_none() && rest.another(40).is_none());
        shares.push(rest.another(38).unwrap());
        shares.push(quota.reserve_in(1, 1).unwrap());
        assert!(rest.another(1).is_none());
        drop((shares, rest));
        assert_eq!(quota.lent_pages(), 0);
        assert!(quota.reserve(0).is_some_and(|share| share.pages() == 1), "a share has a page");
        assert!(quota.reserve(u32::MAX).is_none() && Quota::new(0, ()).reserve(1).is_none());
    }

    /// Goal: a quota that is raised lends more, one that is lowered no more than it says once enough was returned.
    #[test]
    fn the_quota_changes() {
        let quota = Quota::new(10, ());
        let mut shares: Vec<_> = (0..10).map(|at| quota.reserve_in(at % STRIPES, 1).unwrap()).collect();
        quota.set(12);
        shares.extend([0, 1].map(|stripe| quota.reserve_in(stripe, 1).unwrap()));
        assert!(quota.reserve_in(2, 1).is_none());
        quota.set(3);
        shares.truncate(2);
        assert!(quota.reserve_in(5, 2).is_none());
        drop(quota.reserve_in(5, 1).unwrap());
        drop(shares);
        assert!(quota.reserve(4).is_none());
        assert!(quota.reserve(3).is_some());
    }

    /// Goal: Q3: the value outlives the owner while a share is there, in another thread too, and is dropped once.
    #[test]
    fn shares_keep_the_value() {
        let value = Arc::new(7);
        let quota = Quota::new(10, value.clone());
        let shares: Vec<_> = [0, 1, 1].map(|stripe| quota.reserve_in(stripe, 3).unwrap()).into();
        drop(quota);
        let shares: Vec<_> = shares.into_iter().map(|share| share.another(0).unwrap()).collect();
        assert_eq!(Arc::strong_count(&value), 2);
        thread::spawn(move || assert!(shares.iter().all(|share| **share == Arc::new(7)))).join().unwrap();
        assert_eq!(Arc::strong_count(&value), 1);
        drop(Quota::new(10, value.clone()));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    /// Goal: Q1 with threads that take and return at the limit.
    #[test]
    fn threads_at_the_limit() {
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let (quota, lent) = (Quota::new(6, ()), std::sync::atomic::AtomicU32::new(0));
        thread::scope(|scope| {
            for thread in 0..4_u32 {
                let (quota, lent) = (&quota, &lent);
                scope.spawn(move || {
                    for round in 0..rounds {
                        let Some(share) = quota.reserve(1 + (round + thread) % 4) else { continue };
                        let now = lent.fetch_add(share.pages(), Ordering::SeqCst) + share.pages();
                        assert!(now <= 6, "{now} pages are lent");
                        lent.fetch_sub(share.pages(), Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(quota.lent_pages(), 0);
        assert!(quota.reserve(6).is_some());
    }
}

#[cfg(all(test, headwater_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    use super::*;

    /// A value that may be used until it is dropped, once.
    struct Value {
        is_here: Arc<AtomicU32>,
        used: crate::sync::UnsafeCell<u32>,
    }

    impl Drop for Value {
        fn drop(&mut self) {
            // Loom reports an access that is not ordered with the uses.
            self.used.with_mut(|_| ());
            assert_eq!(self.is_here.swap(0, Ordering::Relaxed), 1, "Q3: dropped twice");
        }
    }

    /// Goal: Q3: whichever of owner and shares goes last frees the value, after all uses of it.
    #[test]
    fn loom_the_last_frees() {
        loom::model(|| {
            let is_here = Arc::new(AtomicU32::new(1));
            let value = Value { is_here: is_here.clone(), used: crate::sync::UnsafeCell::new(0) };
            let quota = Quota::new(2, value);
            let shares = [0, 1].map(|stripe| quota.reserve_in(stripe, 1).expect("there are two"));
            let threads = shares.map(|share| {
                thread::spawn(move || {
                    assert_eq!(share.is_here.load(Ordering::Relaxed), 1, "Q3: used after the drop");
                    drop(share);
                })
            });
            drop(quota);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(is_here.load(Ordering::Relaxed), 0, "Q3: never dropped");
        });
    }

    /// Goal: Q3: a share that comes from another one, while the owner goes, keeps the value as the first did.
    #[test]
    fn loom_a_share_of_a_share() {
        loom::model(|| {
            let is_here = Arc::new(AtomicU32::new(1));
            let value = Value { is_here: is_here.clone(), used: crate::sync::UnsafeCell::new(0) };
            let quota = Quota::new(2, value);
            let share = quota.reserve_in(0, 1).expect("there are two");
            let thread = thread::spawn(move || {
                let another = share.another(1).expect("one is left");
                drop(share);
                assert_eq!(another.is_here.load(Ordering::Relaxed), 1, "Q3: used after the drop");
                assert!(another.another(2).is_none(), "Q1");
            });
            drop(quota);
            thread.join().unwrap();
            assert_eq!(is_here.load(Ordering::Relaxed), 0, "Q3: never dropped");
        });
    }

    /// Goal: Q1 and Q2 while one stripe takes what the other has: never more is lent than there is, and nothing is lost.
    #[test]
    fn loom_stripes_share_the_quota() {
        loom::model(|| {
            let (quota, lent) = (Arc::new(Quota::new(2, ())), Arc::new(AtomicU32::new(0)));
            // All allowance lies in the first stripe.
            drop(quota.reserve_in(0, 2));
            let other = {
                let (quota, lent) = (quota.clone(), lent.clone());
                thread::spawn(move || take(&quota, &lent, 1))
            };
            take(&quota, &lent, 0);
            other.join().unwrap();
            assert_eq!(quota.lent_pages(), 0);
            assert!(quota.reserve_in(0, 2).is_some(), "Q2: some of it is lost");
        });
    }

    fn take(quota: &Quota<()>, lent: &AtomicU32, stripe: usize) {
        let Some(share) = quota.reserve_in(stripe, 2 - stripe as u32) else { return };
        let now = lent.fetch_add(share.pages(), Ordering::AcqRel) + share.pages();
        assert!(now <= 2, "Q1: {now} of 2 are lent");
        lent.fetch_sub(share.pages(), Ordering::AcqRel);
    }
}
