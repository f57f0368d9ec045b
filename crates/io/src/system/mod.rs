//! System: raw system calls, detection of forks, threads without signals.

pub(crate) mod fork;
pub(crate) mod reject;
pub(crate) mod signals;
pub(crate) mod sys;
