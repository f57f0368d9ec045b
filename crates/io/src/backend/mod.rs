//! Backends: io_uring, a pool of threads, and a simulated device; each carries out the requests of one queue.

pub(crate) mod sim;
pub(crate) mod threads;
pub(crate) mod uring;
pub(crate) mod waits;
