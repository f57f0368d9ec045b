//! System: raw system calls, telling a process from its child, threads without signals.

pub(crate) mod fork;
pub(crate) mod reject;
pub(crate) mod signals;
pub(crate) mod sys;
