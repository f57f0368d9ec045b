# Everyday commands. `just` lists them.

default:
    @just --list

# All that has to pass before a change is merged.
ci:
    .ci/run

# All tests. As root, with mkfs.ext4, mkfs.xfs and mkfs.btrfs installed, also on loop mounts of these.
test *arguments:
    cargo test --workspace {{arguments}}

# Formatting and lints.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# The rules of the house: crate edges, module docs, unsafe code, lengths.
tidy:
    cargo test -p headwater-testkit --test tidy

# The documentation, with broken links as errors.
doc *arguments:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps {{arguments}}

# The core for a target without an operating system.
no-std:
    cargo build -p headwater-core --target x86_64-unknown-none

# The unit tests of core and io under miri.
miri *arguments:
    PROPTEST_CASES=8 MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test -p headwater-core {{arguments}}
    PROPTEST_CASES=8 MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test -p headwater-io --lib {{arguments}}

# Licences, sources and advisories of the dependencies.
deny:
    cargo deny check

# Measures this machine's storage.
bench *arguments:
    cargo run --release -- bench {{arguments}}
