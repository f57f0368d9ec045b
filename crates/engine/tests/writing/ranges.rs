//! Ranges: every call that takes a range of bytes refuses one that ends before it begins, and takes an empty one.
//!
//! Owns: the list of those calls.
//! Does not own: what the calls do with ranges that have bytes.

use std::io::ErrorKind;
use std::ops::Bound;

use headwater::{Advice, ByteRange, File, OpenOptions, Residency, Result};
use headwater_testkit::ScratchDir;

use crate::rig::{Rig, block_on, drivers};

/// Goal: a range that ends before it begins is refused by every call with a `Result`, with the offset and in one line; is nothing to
/// [`File::residency`]; and leaves file and target as they were. An empty range, wherever it lies, is none. Method: all calls, on files
/// stored and in memory, with ranges of every form.
#[test]
fn ranges_that_end_before_they_begin() {
    for kind in drivers(1) {
        let (rig, directory) = (Rig::new(kind), ScratchDir::on_target().unwrap());
        let [path, other] = ["file", "other"].map(|name| directory.path().join(name));
        std::fs::write(&path, vec![7; 20_000]).unwrap();
        let open = |path| {
            let mut options = OpenOptions::new();
            options.engine(&rig.engine).write(true).create(true).open(path).unwrap()
        };
        let (file, target) = (open(&path), open(&other));
        for file in [&file, &File::from_bytes(vec![7; 20_000])] {
            let is_stored = file.path() == path;
            for (name, call) in CALLS {
                if !is_stored && !IN_MEMORY.contains(&name) {
                    continue;
                }
                for (range, text) in REVERSED {
                    let error = call(file, &target, range).expect_err(name);
                    let shown = error.to_string();
                    assert_eq!((error.kind(), error.offset_bytes()), (ErrorKind::InvalidInput, Some(text.0)));
                    assert!(shown.ends_with(text.1) && shown.lines().count() == 1, "{name}: {shown}");
                }
                for range in EMPTY {
                    // These windows have at least a byte.
                    if !["map_contiguous", "map_on_demand"].contains(&name) {
                        call(file, &target, range).unwrap_or_else(|error| panic!("{name}: {error}"));
                    }
                }
            }
            let reversed = [ByteRange::new(0, 1), ByteRange { start: 9, end: 8 }];
            assert_eq!(file.will_need(&reversed).unwrap_err().kind(), ErrorKind::InvalidInput);
            let of_nothing = if is_stored { Residency::None } else { Residency::Whole };
            for (range, _) in REVERSED {
                assert_eq!(file.residency(range), of_nothing);
            }
        }
        assert_eq!((file.len().unwrap(), target.len().unwrap()), (20_000, 0));
        assert!(file.view(0, 20_000).unwrap() == [7; 20_000]);
        drop((file, target));
        rig.assert_idle();
    }
}

type Range = (Bound<u64>, Bound<u64>);

/// A call with a range of the first file.
type Call = fn(&File, &File, Range) -> Result<()>;

const CALLS: [(&str, Call); 12] = [
    ("allocate", |file, _, range| file.allocate(range)),
    ("punch_hole", |file, _, range| file.punch_hole(range)),
    ("punch_hole_async", |file, _, range| block_on(file.punch_hole_async(range))),
    ("copy_range_to", |file, target, range| file.copy_range_to(range, target, 0).map(drop)),
    ("copy_range_to_async", |file, target, range| {
        block_on(file.copy_range_to_async(range, target, 0)).map(drop)
    }),
    ("advise, will need", |file, _, range| file.advise(Advice::WillNeed, range)),
    ("advise, do not need", |file, _, range| file.advise(Advice::DontNeed, range)),
    ("will_need", |file, _, range| {
        let (Bound::Included(start), Bound::Excluded(end)) = range else {
            return file.advise(Advice::WillNeed, range);
        };
        file.will_need(&[ByteRange { start, end }])
    }),
    ("map", |file, _, range| file.map(range).map(drop)),
    ("map, length", |file, _, range| {
        let view = file.map(range)?;
        assert!(view.is_empty() && view.range().is_empty());
        Ok(())
    }),
    ("map_contiguous", |file, _, range| match file.map_contiguous(range) {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        made => made.map(drop),
    }),
    ("map_on_demand", |file, _, range| file.map_on_demand(range, 1 << 20).map(drop)),
];

/// Those that a file in memory answers before it refuses what it has not.
const IN_MEMORY: [&str; 8] = [
    "copy_range_to",
    "copy_range_to_async",
    "advise, will need",
    "advise, do not need",
    "will_need",
    "map",
    "map, length",
    "map_on_demand",
];

/// With the offset and the end of the error's text.
const REVERSED: [(Range, (u64, &str)); 4] = [
    ((Bound::Included(10), Bound::Excluded(5)), (10, "10..5 ends before it begins")),
    ((Bound::Included(10), Bound::Included(4)), (10, "10..5 ends before it begins")),
    ((Bound::Excluded(19_999), Bound::Excluded(0)), (20_000, "20000..0 ends before it begins")),
    (
        (Bound::Included(1 << 62), Bound::Excluded(1)),
        (1 << 62, "4611686018427387904..1 ends before it begins"),
    ),
];

const EMPTY: [Range; 3] = [
    (Bound::Included(0), Bound::Excluded(0)),
    (Bound::Included(5), Bound::Included(4)),
    (Bound::Included(30_000), Bound::Unbounded),
];
