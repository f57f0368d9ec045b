# Everyday commands, in groups; `just` lists them.

default:
    @just --list

# Check: what has to pass before a change is merged.

# All that has to pass before a change is merged.
[group('check')]
ci:
    .ci/run

# All tests. As root, with mkfs.ext4, mkfs.xfs and mkfs.btrfs installed, also on loop mounts of these.
[group('check')]
test *arguments:
    cargo test --workspace {{arguments}}

# Formatting and lints.
[group('check')]
lint:
    cargo fmt --all --check
    cargo fmt --all --manifest-path integrations/datafusion/Cargo.toml --check
    cargo clippy --workspace --all-targets -- -D warnings

# The rules of the house: crate edges, module docs, unsafe code, lengths.
[group('check')]
tidy:
    cargo test -p headwater-testkit --test tidy

# The documentation, with broken links as errors.
[group('check')]
doc *arguments:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps {{arguments}}

# The guide as a book, in target/guide: needs `cargo install --locked mdbook`. Its examples are tests of the library.
[group('check')]
guide *arguments:
    mdbook build docs/guide {{arguments}}

# Whether every crate could be published: packed, and built from its package.
[group('check')]
publishable:
    cargo publish --workspace --dry-run

# The command as one file that needs no C library of the system, in target/x86_64-unknown-linux-musl/release. Needs musl-tools.
[group('check')]
musl:
    cargo build --release --locked --target x86_64-unknown-linux-musl -p headwater-cli --bin headwater

# Whether two builds of the command do the same: `just same target/release/headwater target/x86_64-unknown-linux-musl/release/headwater`.
[group('check')]
same first second:
    .ci/same {{first}} {{second}}

# The core, and what runs inside of kernels, for a target without an operating system.
[group('check')]
no-std:
    cargo build -p headwater-core -p headwater-kernel -p headwater-arceos --target x86_64-unknown-none

# Licences, sources and advisories of the dependencies.
[group('check')]
deny:
    cargo deny check

# Prove: longer searches for bugs, with seeds that replay.

# Slots, pool and frames under loom: every order in which two threads can meet.
[group('prove')]
loom:
    RUSTFLAGS="--cfg headwater_loom" CARGO_TARGET_DIR=target/loom cargo test -p headwater-io -p headwater-core --release --lib loom

# The unsafe code of io and of the kernel's cache, and what is quick of the core, under miri.
[group('prove')]
miri:
    PROPTEST_CASES=2 MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test -p headwater-io --lib
    PROPTEST_CASES=2 MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test -p headwater-arceos --test host -- \
        forms:: listeners:: direct::
    PROPTEST_CASES=2 MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test -p headwater-core \
        --test models -- units:: plan:: buddy::

# A minute of chaos on each driver, and ten thousand short-lived rings.
[group('prove')]
chaos seconds="60":
    HEADWATER_CHAOS_SECONDS={{seconds}} cargo test --release -p headwater-io --test drivers -- --nocapture chaos rings_leave

# An engine under everything at once, and whether memory, descriptors, threads or requests grow: `just soak 1h`.
[group('prove')]
soak time="10m":
    HEADWATER_SOAK_SECONDS={{time}} cargo test --release -p headwater --test soak -- --nocapture soak::soak

# Random operations on files that are written, against a model, on all drivers, alone and beside each other; ten million operations in its 20 minutes on two processors: `just soak-write`.
[group('prove')]
soak-write time="20m":
    HEADWATER_SOAK_SECONDS={{time}} cargo test --release -p headwater --test writing -- --nocapture oracle::soak oracle::files_share

# Random gets, puts, copies, renames, deletions and changes from outside, against a store in memory, for both versions of object_store on each driver: a minute or two.
[group('prove')]
soak-store operations="1000000":
    HEADWATER_STORE_OPERATIONS={{operations}} cargo test --release -p headwater-object-store --test stores -- --nocapture model::

# What is left after a crash at any moment of random writes: `just soak-crash 10m`.
[group('prove')]
soak-crash time="10m":
    HEADWATER_SOAK_SECONDS={{time}} cargo test --release -p headwater --test crash -- --nocapture

# Headwater and a program that knows nothing of it take turns on files, in every combination of level, caching, I/O, driver and file system, with a table at the end; then two processes that append at once. As root, with mkfs.ext4, mkfs.xfs and mkfs.btrfs: `just turns 1000000`.
[group('prove')]
turns operations="1000000" appends="100000":
    HEADWATER_TURNS={{operations}} HEADWATER_APPENDS={{appends}} cargo test --release -p headwater --test turns -- --nocapture --test-threads 1

# Eight processes with an engine each and two without headwater in a cgroup smaller than what they read: nobody is killed, none starves: `just neighbours 60`.
[group('prove')]
neighbours seconds="30":
    HEADWATER_SOAK_SECONDS={{seconds}} cargo test --release -p headwater --test elastic -- --nocapture neighbours

# A full cache in a cgroup, and 100 MiB that its process touches at once, 50 times; the kernel takes what is on offer: `just sudden 50`.
[group('prove')]
sudden rounds="50":
    HEADWATER_SUDDEN_ROUNDS={{rounds}} cargo test --release -p headwater --test elastic -- --nocapture sudden::

# Processes that leave at random moments, and what their files have then: `just soak-children 10000`, four minutes.
[group('prove')]
soak-children children="10000":
    HEADWATER_CHILDREN={{children}} cargo test --release -p headwater --test writing -- --nocapture children::

# Short runs of everything at once, each decided by its seed, on a simulated device: `just swarm 10m`. As root, in memory.
[group('prove')]
swarm time="10m":
    TMPDIR=/dev/shm HEADWATER_SOAK_SECONDS={{time}} cargo test -p headwater --test swarm -- --nocapture

# Faults put into a copy of the last commit, one at a time, which test finds each and how fast, with a table at the end: `just mutations`, `just mutations append-at-a-stale-end`. An hour or two on two processors; goes on where it was stopped.
[group('prove')]
mutations *names:
    crates/testkit/mutations/run {{names}}

# Rings to which the kernel does all that a kernel may do, below the engine and below single requests: `just storms 10m` takes twice as long.
[group('prove')]
storms time="10m":
    HEADWATER_SOAK_SECONDS={{time}} cargo test --release -p headwater-io --lib -- --nocapture storm
    HEADWATER_SOAK_SECONDS={{time}} cargo test --release -p headwater --test host -- --nocapture kernel::storms

# Random inputs to one target, on one processor (`cargo +nightly fuzz list` names them): `just fuzz engine 600`. Needs the nightly toolchain and `cargo install cargo-fuzz`.
[group('prove')]
fuzz target seconds="60":
    fuzz/run {{seconds}} {{target}}

# Kernels: the cache inside of one, and headwater on old ones.

# A kernel with the cache in it, built, booted in QEMU on several machines, and its requests counted: five minutes. `just kernel-test --times` holds times to their bars as well, on a machine that does nothing else.
[group('kernels')]
kernel-test *arguments:
    crates/arceos/demo/test {{arguments}}

# The same on one machine, measured: `just kernel --fs fat --processors 2`, `just kernel --latency 30 --only reader`.
[group('kernels')]
kernel *arguments:
    crates/arceos/demo/run {{arguments}}

# What each step of a kernel's readahead costs and gains: page caches as they are first written, ArceOS's own, headwater's
kernel-story *latencies:
    crates/arceos/demo/story {{latencies}}

# The cache inside of kernels under everything at once, on the host: `just soak-kernel 10m`.
[group('kernels')]
soak-kernel time="10m":
    HEADWATER_SOAK_SECONDS={{time}} cargo test --release -p headwater-arceos --test host -- --nocapture soak::soak

# The tests that depend on the kernel on Linux 5.10, 6.1 or 6.12 of Debian, in a virtual machine: `just old-kernel 5.10 --only sharing`. Needs qemu-system-x86, and apt-get for a kernel.
[group('kernels')]
old-kernel version="6.1" *arguments:
    cargo run -p headwater-bench -- old-kernel {{version}} {{arguments}}

# Polled I/O in a virtual machine with an NVMe disk: needs qemu-system-x86, and apt-get for a kernel.
[group('kernels')]
guest *arguments:
    cargo run --release -p headwater-bench -- guest {{arguments}}

# Measure: figures, on a quiet machine.

# Measures this machine's storage.
[group('measure')]
bench *arguments:
    cargo run --release -- bench {{arguments}}

# The table of the UBC paper on this machine's storage: `just ubc /mnt/nvme --size 4G`.
[group('measure')]
ubc dir *arguments:
    cargo run --release -- bench ubc --dir {{dir}} {{arguments}}

# The command, linked statically, in target/release: it starts in 0.7 of the time (docs/decisions/0028).
[group('measure')]
program:
    cargo rustc --release -p headwater-cli --bin headwater -- -C target-feature=+crt-static

# The example programs of the library, in target/release/examples.
[group('measure')]
programs:
    cargo build --release -p headwater --examples

# `--only write`: what writing costs, on files of its own beside yours: 16 GiB of room, or `--shrink 8`.
# `--only cache`: a scan through headwater's cache beside a hot set, with a file of 2 GiB or more.
# The comparisons that headwater promises to win, on a file of yours: needs fio (with huge pages), GNU cat, `cargo install coreutils`.
[group('measure')]
bars file *arguments: program
    cargo run --release -p headwater-bench -- bars --file {{file}} {{arguments}}

# All comparisons, written to docs/benchmarks.md and into the README's table and picture: an hour or two on a quiet machine with fio (and huge pages for it), GNU cat and cp, b3sum, `cargo install coreutils`; `just figures --only nop,cache` replaces two chapters.
[group('measure')]
figures *arguments: program programs
    cargo run --release -p headwater-bench -- figures {{arguments}}

# The ring against other io_uring libraries; `just nop --features rio` with the one under GPL-3.0 as well.
[group('measure')]
nop *arguments:
    cargo run --release -p headwater-bench {{arguments}} -- nop

# The cache against quick_cache, foyer, moka, pread and mmap; needs 3 GiB of memory and 1 GiB where it runs (or --dir).
[group('measure')]
cache *arguments:
    cargo run --release -p headwater-bench -- cache {{arguments}}

# Durable appends against a mutex, `write` and `fdatasync` of std, on the device of the current folder (or --dir).
[group('measure')]
log *arguments:
    cargo run --release -p headwater-bench -- log {{arguments}}

# headwater against the libraries that read files; needs 6 GiB of room where it runs (or --dir): `just peers --only files-warm`.
[group('measure')]
peers *arguments:
    cargo run --release -p headwater-bench -- peers {{arguments}}

# Gets of objects against LocalFileSystem of the crate object_store; needs 1.2 GiB of room where it runs (or --dir).
[group('measure')]
store *arguments:
    cargo run --release -p headwater-bench -- store {{arguments}}

# 512 bytes at random, and the bytes that the device reads for them; needs 1.2 GiB of room where it runs (or --dir).
[group('measure')]
amplify *arguments:
    cargo run --release -p headwater-bench -- amplify {{arguments}}

# Loads at random from windows over a file of four times the memory, beside mmap in a cgroup; needs 0.5 GiB of room where it runs (or --dir), and root.
[group('measure')]
windows *arguments:
    cargo run --release -p headwater-bench -- windows {{arguments}}

# The example programs, each by turns with its form in plain std, and their ratios. A folder in memory shows nothing: `--dir` names one on a disk.
[group('measure')]
examples *arguments: programs
    cargo run --release -p headwater-bench -- examples {{arguments}}

# TPC-H on DataFusion over LocalFileSystem, direct reads and headwater: `just tpch generate --scale 1 --folder sf1`, `just tpch run --folder sf1 --warm`.
[group('measure')]
tpch *arguments:
    cargo run --release --manifest-path integrations/datafusion/Cargo.toml --bin headwater-tpch -- {{arguments}}

# Ballista, whose executors read through headwater: `just ballista cluster`, `just ballista run --folder sf1 --warm`.
[group('measure')]
ballista *arguments:
    cargo run --release --manifest-path integrations/datafusion/Cargo.toml -p headwater-ballista -- {{arguments}}

# The tests of TPC-H on DataFusion and Ballista: their build takes some minutes.
[group('check')]
test-datafusion *arguments:
    cargo test --locked --workspace --manifest-path integrations/datafusion/Cargo.toml {{arguments}}
