//! Examples: what stands below the help of the commands.
//!
//! Owns: the texts, of commands that have no module of arguments of their own.
//! Does not own: options and their help (`args`).

pub(crate) const EXAMPLES: &str = "\
Examples:
  headwater bench                           is your storage slow, or your API? a minute, no rights
  headwater bench --html report.html        the same as a page, with plots
  headwater tune /mnt/nvme                  what suits this device; engines use it from then on
  headwater cat big.log | grep -c error     read a file; whatever is cached stays cached
  headwater cp big.log /backup/             copy it, the whole or nothing
  headwater scan --hash blake3 photos/      hash a tree, many files at once
  headwater stat big.log                    what is cached of it, and how it can be read
  headwater trace replay t.csv --cache 1G   what a cache would make of a trace
  headwater man | man -l -                  the manual";

/// Standard output carries the files.
pub(crate) const CAT_JSON: &str =
    "Say afterwards what was copied from where: JSON on standard error, or with =OUT in that file";

pub(crate) const CAT_EXAMPLES: &str = "\
Examples:
  headwater cat part-* > whole              join files
  zcat a.gz | headwater cat header - > b    standard input between files
  headwater cat --io direct --memory 4M f   with 4 MiB of memory, around the page cache";

pub(crate) const STAT_EXAMPLES: &str = "\
Examples:
  headwater stat big.log                        is it cached, and can it be read directly?
  headwater stat --json *.parquet               for programs
  headwater stat /dev/nvme0n1                   a whole device

Of a file that is cached in part a map is shown: each mark stands for an equal part of the file,
  # all cached, + half or more, - less, . nothing";

pub(crate) const BENCH_EXAMPLES: &str = "\
Examples:
  headwater bench                                     every suite in quick form
  headwater bench scan --dir /mnt/nvme --size 8G      on the file system mounted there
  headwater bench scan --file big.log --json=out.json with a file that exists
  headwater bench cache --set 256M                    what a read of cached bytes costs
  headwater bench readahead --size 512M               orders other than from start to end
  headwater bench ubc --dir /mnt/nvme                 new files, overwritten ones, and one read again
  headwater bench nop                                 what the ring costs, without storage";

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

A ring is used in two ways: one that all threads share, as any thread may, or a local one for each thread.";

pub(crate) const TRACE_EXAMPLES: &str = "\
Examples:
  headwater trace replay w92.oracleGeneral.bin --cache 256M,1G
  headwater trace replay --help                 which formats are read, and what is counted";

pub(crate) const REPLAY_EXAMPLES: &str = "\
Examples:
  headwater trace replay w92.oracleGeneral.bin --cache 256M,1G
  headwater trace replay disk.csv --cache 64M --policy clock2q+ --json=out.json
  headwater trace replay disk.csv --cache 64M --policy clock2q+ --readahead adaptive

The format oracle-general has records of 24 bytes, little-endian: time (4 bytes), object (8),
size (4), next access (8). Each object is taken for one page of 4 KiB, whatever its size, and
each access for a read.

The format csv has a header that names its columns, then a request a line. Columns, in any order:
  offset  where the request starts, in bytes; or instead
  lbn     the same in sectors of 512 bytes; or
  obj_id  the number of an object, taken for one page of 4 KiB
  size    in bytes; needed with offset and lbn, else not looked at
  op      read or write, r or w; without it every request is a read
Others, such as time, are not looked at.

A write brings its pages into the cache as well, but of those that are missing it reads only what
it overwrites in part. Adjacent missing pages of one request are one read of the device.

Readahead hears of reads, not of writes; adjacent missing pages of what it plans at once are one
read, up to 2 MiB. Every read arrives at once, and files have no end. Columns: pages that were read ahead, those
of them that were used, and those that left the cache without having been used.";
