//! Readahead against a consumer that is simulated call by call, and a list of all extents ever handed out.

use headwater_core::{Alignment, ByteRange, ReadaheadLimits, SequentialStream};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Next,
    /// Consume this part of what is ahead and within the file.
    Consume(f64),
    Wait,
    /// Announce so many bytes.
    Expect(u64),
    Refuse,
    Restart(u64),
    Resume(u64),
    Fail,
    Length(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let offset_bytes = || 0..6 * MIB;
    prop_oneof![
        12 => Just(Step::Next),
        6 => (0.0..=1.0f64).prop_map(Step::Consume),
        3 => Just(Step::Consume(1.0)),
        2 => Just(Step::Wait),
        1 => offset_bytes().prop_map(Step::Expect),
        2 => Just(Step::Refuse),
        1 => offset_bytes().prop_map(Step::Restart),
        1 => offset_bytes().prop_map(Step::Resume),
        1 => Just(Step::Fail),
        2 => offset_bytes().prop_map(Step::Length),
    ]
}

fn limits() -> impl Strategy<Value = ReadaheadLimits> {
    (0..6u32, 0..6u32, 0..3 * MIB).prop_map(|(min, more, distance)| {
        let size_bytes_max = 4096 << (min + more);
        let distance_bytes_max = size_bytes_max + distance;
        ReadaheadLimits {
            size_bytes_min: 4096 << min,
            size_bytes_max,
            distance_bytes_max,
            ..ReadaheadLimits::default()
        }
    })
}

fn alignment() -> impl Strategy<Value = Alignment> {
    prop_oneof![Just(1u64), Just(512), Just(4096), Just(64 * KIB)].prop_map(|x| Alignment::new(x).unwrap())
}

/// What a naive reader knows: where it is, up to where it asked, and what it asked for last.
struct Consumer {
    stream: SequentialStream,
    alignment: Alignment,
    base_bytes: u64,
    length_bytes: u64,
    position_bytes: u64,
    asked_bytes: u64,
    /// With the size and the file's length at that time.
    last: Option<(ByteRange, u64, u64)>,
    distance_bytes_max: u64,
}

impl Consumer {
    fn new(base_bytes: u64, start_bytes: u64, limits: ReadaheadLimits, alignment: Alignment) -> Self {
        let position_bytes = base_bytes + start_bytes;
        Self {
            stream: SequentialStream::new(position_bytes, limits, alignment),
            alignment,
            base_bytes,
            length_bytes: base_bytes + 4 * MIB,
            position_bytes,
            asked_bytes: alignment.down(position_bytes),
            last: None,
            distance_bytes_max: limits.distance_bytes_max.max(alignment.get()),
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Next => self.next(),
            Step::Consume(part) => self.consume(part),
            Step::Wait => self.wait(),
            Step::Expect(bytes) => self.expect(bytes),
            Step::Refuse => self.refuse(),
            Step::Restart(offset_bytes) => {
                self.jump(self.base_bytes + offset_bytes, SequentialStream::restart);
            }
            Step::Resume(offset_bytes) => self.resume(self.base_bytes + offset_bytes),
            Step::Fail => self.fail(),
            Step::Length(length_bytes) => self.length_bytes = self.base_bytes + length_bytes,
        }
        self.stream.check();
        assert_eq!(self.stream.position_bytes(), self.position_bytes);
        assert_eq!(self.stream.submitted_bytes(), self.asked_bytes);
    }

    /// R1 to R4 for one extent, from what this side knows.
    fn next(&mut self) {
        let (size_bytes, distance_bytes) = (self.stream.size_bytes(), self.stream.distance_bytes());
        let is_demand = self.asked_bytes <= self.position_bytes;
        let end_bytes = self.alignment.up(self.length_bytes);
        let Some(extent) = self.stream.next_extent(self.length_bytes) else {
            let natural_end_bytes = (self.asked_bytes / size_bytes + 1) * size_bytes;
            let is_filled = natural_end_bytes.min(end_bytes) > self.position_bytes + distance_bytes;
            assert!(self.asked_bytes >= end_bytes || (!is_demand && is_filled), "refused without a reason");
            return;
        };
        assert_eq!(extent.start, self.asked_bytes, "R1");
        assert!(!extent.is_empty() && extent.len() <= size_bytes, "R2");
        assert!(self.alignment.is_aligned(extent.end), "R2");
        assert_eq!(extent.start / size_bytes, (extent.end - 1) / size_bytes, "R2");
        assert!(extent.end.is_multiple_of(size_bytes) || extent.end == end_bytes, "R2");
        assert!(extent.start < self.length_bytes && extent.end <= end_bytes, "R3");
        assert!(is_demand || extent.end - self.position_bytes <= distance_bytes, "R4");
        assert!(distance_bytes <= self.distance_bytes_max, "R5");
        self.asked_bytes = extent.end;
        self.last = Some((extent, size_bytes, self.length_bytes));
    }

    fn consume(&mut self, part: f64) {
        let readable_bytes = self.asked_bytes.min(self.length_bytes).saturating_sub(self.position_bytes);
        let bytes = (readable_bytes as f64 * part) as u64;
        self.stream.on_consumed(bytes);
        self.position_bytes += bytes;
    }

    fn wait(&mut self) {
        let before_bytes = self.stream.distance_bytes();
        self.stream.on_wait();
        assert_eq!(self.stream.distance_bytes(), (before_bytes * 2).min(self.distance_bytes_max));
    }

    /// Size and distance do not fall, and the distance is no longer than what is announced.
    fn expect(&mut self, bytes: u64) {
        let (size_bytes, distance_bytes) = (self.stream.size_bytes(), self.stream.distance_bytes());
        self.stream.expect(bytes);
        assert!(self.stream.size_bytes() >= size_bytes && self.stream.distance_bytes() >= distance_bytes);
        assert!(self.stream.distance_bytes() <= bytes.max(distance_bytes));
        self.last = None;
    }

    /// A refused extent comes again, the same, and refusing does not move the distance.
    fn refuse(&mut self) {
        let is_refusable = |extent: &ByteRange| self.alignment.down(self.position_bytes) <= extent.start;
        let Some((extent, size_bytes, length_bytes)) = self.last.filter(|last| is_refusable(&last.0)) else {
            return;
        };
        self.last = None;
        let distance_bytes = self.stream.distance_bytes();
        self.stream.on_refused(extent);
        self.asked_bytes = extent.start;
        assert_eq!(self.stream.distance_bytes(), distance_bytes);
        assert_eq!(self.stream.size_bytes(), size_bytes);
        if let Some(again) = self.stream.clone().next_extent(length_bytes) {
            assert_eq!(again, extent);
        }
    }

    fn jump(&mut self, position_bytes: u64, call: fn(&mut SequentialStream, u64)) {
        call(&mut self.stream, position_bytes);
        self.position_bytes = position_bytes;
        self.asked_bytes = self.alignment.down(position_bytes);
        self.last = None;
    }

    fn resume(&mut self, position_bytes: u64) {
        let before = (self.stream.size_bytes(), self.stream.distance_bytes());
        self.jump(position_bytes, SequentialStream::resume_at);
        assert_eq!((self.stream.size_bytes(), self.stream.distance_bytes()), before);
    }

    fn fail(&mut self) {
        self.jump(self.position_bytes, SequentialStream::on_failed);
        assert_eq!(self.stream.size_bytes(), self.alignment.get().max(4096));
    }
}

proptest! {
    /// Goal: R1 to R5 whatever happens, below and above 4 GiB and near the largest offset a file can have.
    /// Method: a simulated consumer that knows only the calls and checks every extent.
    #[test]
    fn invariants_hold_under_random_calls(
        steps in prop::collection::vec(step(), 1..150),
        base_bytes in prop_oneof![Just(0u64), Just((4 << 30) - 2 * MIB), Just((1 << 63) - 8 * MIB)],
        start_bytes in 0..3 * MIB,
        limits in limits(),
        alignment in alignment(),
    ) {
        let mut consumer = Consumer::new(base_bytes, start_bytes, limits, alignment);
        steps.into_iter().for_each(|step| consumer.apply(step));
    }

    /// Goal: a file is read once, in order, to its end, for every length, start and consumer. Method: count
    /// how often each page-sized unit is handed out while a consumer takes random amounts and waits at
    /// random.
    #[test]
    fn every_page_is_read_exactly_once(
        length_bytes in 0..5 * MIB,
        start_part in 0.0..1.0f64,
        amounts in prop::collection::vec((1..600 * KIB, any::<bool>()), 1..20),
        limits in limits(),
    ) {
        let start_bytes = (length_bytes as f64 * start_part) as u64;
        let mut stream = SequentialStream::new(start_bytes, limits, Alignment::PAGE);
        let mut reads = vec![0; length_bytes.div_ceil(4096) as usize];
        let mut amounts = amounts.iter().cycle();
        loop {
            while let Some(extent) = stream.next_extent(length_bytes) {
                let pages = (extent.start / 4096) as usize..(extent.end / 4096) as usize;
                reads[pages].iter_mut().for_each(|n| *n += 1);
            }
            let ready_bytes = stream.submitted_bytes().min(length_bytes);
            let left_bytes = ready_bytes.saturating_sub(stream.position_bytes());
            if left_bytes == 0 {
                break;
            }
            let (amount_bytes, has_waited) = *amounts.next().unwrap();
            if has_waited {
                stream.on_wait();
            }
            stream.on_consumed(amount_bytes.min(left_bytes));
        }
        prop_assert_eq!(stream.position_bytes(), length_bytes);
        let first_page = (start_bytes / 4096) as usize;
        prop_assert!(reads[..first_page.min(reads.len())].iter().all(|n| *n == 0));
        prop_assert!(reads[first_page.min(reads.len())..].iter().all(|n| *n == 1));
    }

    /// Goal: an oversized request is all in flight at once, up to the distance, and never passes its end.
    /// Method: call without consuming; then consume it all.
    #[test]
    fn whole_request_is_in_flight_at_once(
        start_bytes in 0..3 * MIB,
        length_bytes in 1..12 * MIB,
        limits in limits(),
        alignment in alignment(),
    ) {
        let range = ByteRange::at(start_bytes, length_bytes);
        let mut stream = SequentialStream::whole(range, limits, alignment);
        let mut asked_bytes = alignment.down(start_bytes);
        while let Some(extent) = stream.next_extent(u64::MAX) {
            prop_assert_eq!(extent.start, asked_bytes);
            asked_bytes = extent.end;
        }
        let hull_end_bytes = alignment.up(range.end);
        let reach_bytes = start_bytes + limits.distance_bytes_max.max(alignment.get());
        let size_bytes_max = limits.size_bytes_max.max(alignment.get());
        prop_assert!(asked_bytes <= hull_end_bytes);
        prop_assert!(asked_bytes == hull_end_bytes || asked_bytes + size_bytes_max > reach_bytes);
        while stream.position_bytes() < range.end {
            let ready_bytes = stream.submitted_bytes().min(range.end) - stream.position_bytes();
            stream.on_consumed(ready_bytes);
            while stream.next_extent(u64::MAX).is_some() {}
            stream.check();
        }
        prop_assert_eq!(stream.submitted_bytes(), hull_end_bytes);
    }

    /// Goal: after errors every good byte is delivered and the bad page is found exactly. Method: a file with
    /// one bad page; an extent that holds it fails; the reader retries as the documentation says.
    #[test]
    fn bad_page_is_found_exactly(pages in 1..600u64, bad_part in 0.0..1.0f64, limits in limits()) {
        let bad_page = (pages as f64 * bad_part) as u64;
        let mut stream = SequentialStream::new(0, limits, Alignment::PAGE);
        for _attempt in 0..10_000 {
            let extent = stream.next_extent(pages * 4096).expect("the bad page comes before the end");
            if !extent.contains(bad_page * 4096) {
                stream.on_consumed(extent.len());
            } else if extent.len() > 4096 {
                stream.on_failed(extent.start);
            } else {
                prop_assert_eq!(extent, ByteRange::at(bad_page * 4096, 4096));
                prop_assert_eq!(stream.position_bytes(), bad_page * 4096);
                return Ok(());
            }
        }
        prop_assert!(false, "the bad page was never reached");
    }
}
