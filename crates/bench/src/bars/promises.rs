//! Promise: which row is held against which, and how much better it is to be.
//!
//! Owns: the table.
//! Does not own: the rows (defaults, reading, programs, short, sizes, write), the judgement (contest).

use headwater_measure::Limit;

use crate::contest::{Promise, own, ratio, shown};

const fn least(limit: f64) -> Limit {
    Limit::AtLeast(limit)
}

const fn most(limit: f64) -> Limit {
    Limit::AtMost(limit)
}

const RATE: &str = "mib_per_s";
const IOPS: &str = "iops";
const SYSTEM_CPU: &str = "system_cpu_s";
const CPU: &str = "cpu_s_per_gib";
const FILES: &str = "files_per_s";
const READS: &str = "reads_per_s";
const FIO_SCAN: &str = super::reading::FIO_SCANS[0].0;
const TUNED: &str = "headwater-tuned";
const TUNED_128: &str = "128K, headwater-tuned";

/// All of them, by groups.
pub(super) const ALL: &[Promise] = &[
    ratio("scan", TUNED, FIO_SCAN, RATE, least(0.95)),
    ratio("scan", TUNED, "fio *", RATE, least(0.9)),
    ratio("scan", TUNED_128, "128K, buffered-128k", RATE, least(1.3)),
    ratio("scan", TUNED_128, "128K, buffered-128k", CPU, most(0.25)),
    ratio("scan", TUNED, "buffered-128k", RATE, least(1.1)),
    ratio("scan", TUNED, "buffered-128k", CPU, most(0.25)),
    own("memory", TUNED, "peak_rss_mib", most(40.0)),
    own("memory", "4 MiB, headwater-tuned", "peak_rss_mib", most(4.0)),
    ratio("memory", "4 MiB, headwater-tuned", TUNED, RATE, least(0.85)),
    ratio("random", "headwater", "std-threads", IOPS, least(0.95)),
    ratio("random", "headwater, auto mode", "std-threads", IOPS, least(0.95)),
    ratio("ring", "headwater, tokio, 2 workers", "fio", IOPS, least(0.95)),
    ratio("ring", "headwater, tokio, 2 workers", "fio", "cpu_us", most(1.1)),
    own("ring", "headwater, tokio, 2 workers", "syscalls", most(0.2)),
    ratio("ring", "headwater, tokio, current thread", "fio", IOPS, least(0.95)),
    ratio("ring", "headwater, tokio, current thread", "fio", "cpu_us", most(1.1)),
    own("ring", "headwater, tokio, current thread", "syscalls", most(0.2)),
    ratio("ring", "headwater, smol, one thread", "fio", IOPS, least(0.95)),
    ratio("ring", "headwater, smol, one thread", "fio", "cpu_us", most(1.1)),
    own("ring", "headwater, smol, one thread", "syscalls", most(0.2)),
    // Of threads that wait for one request each nothing is promised but the rate: each of them sleeps and wakes.
    ratio("ring", "headwater, 32 threads", "fio", IOPS, least(0.9)),
    // What is resident must not become slower by not being read directly.
    ratio("warm", "headwater, fill_buf", "std 128K", RATE, least(1.0)),
    ratio("warm", "headwater, read 128K", "std 128K", RATE, least(0.95)),
    ratio("warm", "headwater, read_at 4K", "pread 4K", IOPS, least(0.9)),
    ratio("cache", "headwater, read_at 64K", "headwater, direct scan", RATE, least(0.95)),
    shown("cache", "headwater, read_at 64K", FIO_SCAN, RATE),
    own("cache", "headwater, read_at 64K", "hot_share", least(0.95)),
    ratio("cache", "headwater, read_at 1M", "headwater, direct scan", RATE, least(0.95)),
    shown("cache", "headwater, read_at 1M", FIO_SCAN, RATE),
    own("cache", "headwater, read_at 1M", "hot_share", least(0.95)),
    ratio("cat", "cold-cat7", "cold-gnu", RATE, least(1.3)),
    ratio("cat", "cold-cat7", "cold-uutils", RATE, least(1.05)),
    ratio("cat", "warm-cat7", "warm-gnu", RATE, least(2.0)),
    ratio("cat", "warm-cat7", "warm-uutils", RATE, least(1.0)),
    ratio("cat", "headwater into a pipe", "GNU into a pipe", RATE, least(3.0)),
    ratio("cat", "headwater into a pipe", "uutils into a pipe", RATE, least(1.0)),
    own("short", "headwater over std, cold", "ms_each", most(0.5)),
    own("short", "headwater over std, warm", "ms_each", most(0.5)),
    own("short", "headwater over std, traced", "syscalls", most(40.0)),
    ratio("sizes-cat", "headwater", "GNU", FILES, least(1.0)),
    ratio("sizes-cp", "headwater", "GNU", FILES, least(1.0)),
    ratio("hash-tree", "headwater", "b3sum*", RATE, least(2.0)),
    ratio("hash-file", "headwater", "b3sum*", RATE, least(1.2)),
    ratio("write-new", "headwater", "fio *", RATE, least(0.9)),
    ratio("write-new", "headwater", "std + fsync", RATE, least(1.0)),
    shown("write-new", "headwater", "std + fsync", SYSTEM_CPU),
    // Memory that is reused: the kernel has zeroed it once.
    ratio("write-new", "headwater, 64 MiB", "std + fsync", RATE, least(1.0)),
    ratio("write-new", "headwater, 64 MiB", "std + fsync", "cpu_s", most(0.333)),
    ratio("write-new", "headwater, 64 MiB", "std + fsync", SYSTEM_CPU, most(0.333)),
    ratio("write-overwrite", "headwater", "fio *", RATE, least(0.95)),
    ratio("write-overwrite", "headwater, 64 MiB", "fio *", RATE, least(0.95)),
    ratio("write-small", "headwater", "std", FILES, least(1.0)),
    shown("write-small", "headwater", "std", "cpu_us"),
    shown("write-random", "headwater", "std + fsync", RATE),
    own("write-random", "headwater", "written_per_dirtied", most(1.1)),
    shown("write-repeated", "headwater", "std + fsync", RATE),
    own("write-repeated", "headwater", "written_per_dirtied", most(1.1)),
    shown("write-dense", "headwater", "std + fsync", RATE),
    own("write-dense", "headwater", "written_per_dirtied", most(1.1)),
    own("write-dense", "headwater", "kib_per_write", least(64.0)),
    ratio("write-reread", "headwater, copying", "warm pread 128K, copying", RATE, least(1.3)),
    ratio("write-reread", "headwater View, summed", "warm pread 128K, summed", RATE, least(1.5)),
    ratio("write-beside", "beside writing, unpaced", "beside copying, unpaced", READS, least(0.9)),
    ratio("write-beside", "beside writing, unpaced", "alone", READS, least(0.9)),
    ratio("write-beside", "beside writing, 50000/s", "beside copying, 50000/s", READS, least(0.9)),
    ratio("write-beside", "beside writing, 50000/s", "alone", READS, least(0.9)),
    own("write-fork", "headwater, cache", "ms_each", most(2.0)),
    ratio("write-copy", "headwater cp", "GNU cp", RATE, least(1.2)),
    ratio("write-copy", "headwater cp and sync", "GNU cp and sync", RATE, least(1.2)),
    ratio("default-confined", "headwater, threads", "std, threads", IOPS, least(1.0)),
    ratio("default-confined", "headwater, tasks", "std, threads", IOPS, least(1.0)),
    ratio("default-service", "headwater, 4 KiB, cold", "spawn_blocking, 4 KiB, cold", RATE, least(1.0)),
    ratio("default-service", "headwater, 4 KiB, cold", "spawn_blocking, 4 KiB, cold", "cpu_s", most(0.7)),
    ratio("default-service", "headwater, 4 KiB, again", "spawn_blocking, 4 KiB, again", RATE, least(1.5)),
    ratio("default-service", "headwater, 4 KiB, again", "spawn_blocking, 4 KiB, again", "cpu_s", most(0.7)),
    ratio("default-service", "headwater, 64 KiB, cold", "spawn_blocking, 64 KiB, cold", RATE, least(1.0)),
    ratio("default-service", "headwater, 64 KiB, cold", "spawn_blocking, 64 KiB, cold", "cpu_s", most(0.7)),
    ratio("default-service", "headwater, 64 KiB, again", "spawn_blocking, 64 KiB, again", RATE, least(1.5)),
    ratio("default-service", "headwater, 64 KiB, again", "spawn_blocking, 64 KiB, again", "cpu_s", most(0.7)),
    ratio("default-fill", "headwater", "std", RATE, least(1.0)),
    ratio("tune", "headwater's choice, in fio", "the best of fio's grid", RATE, least(0.97)),
    ratio("tune", "headwater's choice, in fio", "the best of fio's grid", "queue_kib", most(1.0)),
];
