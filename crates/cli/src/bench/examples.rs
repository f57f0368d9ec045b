//! Examples: the help of `headwater bench` that follows its options.

pub(crate) const BENCH_EXAMPLES: &str = "\
Examples:
  headwater bench                                     every suite but alignment, in quick form
  headwater bench scan --dir /mnt/nvme --size 8G      on the file system mounted there
  headwater bench scan --file big.log --json=out.json  with a file that exists
  headwater bench cache --set 256M                    what a read of cached bytes costs
  headwater bench readahead --size 512M               orders other than from start to end
  headwater bench ubc --dir /mnt/nvme                 new files, overwritten ones, and one read again
  headwater bench cat                                 a file to nothing, step by step, beside GNU cat
  headwater bench random --memory 1G                  4 KiB at random, within memory and beyond it
  headwater bench alignment                           what has to be aligned, and what it costs where it is not
  headwater bench nop                                 what the ring costs, without storage";

pub(crate) const SCAN_EXAMPLES: &str = "\
Examples:
  headwater bench scan                         a file of 4 GiB, made here
  headwater bench scan --dir /mnt/nvme --size 8G --rounds 5
  headwater bench scan --file big.log --html=report.html
  headwater bench scan --only buffered-128k,headwater-tuned

Every row reads the file from its start in a process of its own, once the kernel has forgotten the file. A row that
takes more than three seconds is measured on what it has read by then. A name that --only does not know is answered
with all that it knows.";

pub(crate) const CACHE_EXAMPLES: &str = "\
Examples:
  headwater bench cache                        8 bytes, 4 KiB and 64 KiB at random, of 1 GiB that is cached
  headwater bench cache --set 64M              of a set that fits the processor's caches better
  headwater bench cache --file big.log         of a file that exists

headwater's rows read from headwater's memory, with nothing of the file in the kernel's page cache; pread and mmap from
a page cache that holds all of it.";

pub(crate) const READAHEAD_EXAMPLES: &str = "\
Examples:
  headwater bench readahead                    streams, backwards, strides, runs, at random, and a consumer that hashes
  headwater bench readahead --policy off,fixed:32,adaptive
  headwater bench readahead --memory 8M        with less memory to read ahead into
  headwater bench readahead --file big.log     with a file that exists

The kernel's rows are measured with the readahead of the device as it is set, and for root with 128 KiB as well. That
setting is changed only for the moment in which a row opens its file.";

pub(crate) const NOP_EXAMPLES: &str = "\
Examples:
  headwater bench nop                          1 thread x 64 entries and 4 threads x 1024
  headwater bench nop --plot latency.svg       with a drawing of the latencies
  headwater bench nop --threads 8 --batch 16   a shape of your own
  headwater bench nop --affinity 0             all threads on processor 0: what does that cost?

Threads use rings in three ways: all share a driver, which has a ring for each processor; all share one ring, for which a
thread of the kernel submits (SQPOLL); or each has a local ring.";
