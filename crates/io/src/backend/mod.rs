//! Backends: the three ways in which a request reaches a device.

pub(crate) mod sim;
pub(crate) mod threads;
pub(crate) mod uring;
