//! System: raw system calls, memory of chunks, detection of forks, children, facts that are found out once, processors, threads without signals.

pub(crate) mod calls;
pub(crate) mod children;
pub(crate) mod chunk_memory;
pub(crate) mod fork;
pub(crate) mod known;
pub(crate) mod pages;
pub(crate) mod processors;
pub(crate) mod reject;
pub(crate) mod signals;
pub(crate) mod sys;
