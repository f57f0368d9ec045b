//! Advice: what a program says about its reads to come, and what it does with a list of ranges that wait for the device.
//!
//! Owns: which errors advice may have, that a list is longer than the queue.
//! Does not own: what the reads afterwards may see (versions).

use std::fs;
use std::io::ErrorKind;

use headwater::{Advice, ByteRange};
use headwater_testkit::make_cold;

use super::{Outcome, World, text};
use crate::coverage::Reached;
use crate::steps::{Place, Span, Then, Work};

impl World {
    pub(super) fn advise(&mut self, place: Place, advice: Advice, span: Span) -> Outcome {
        let (file, end_bytes) = (self.handle(place)?, span.offset_bytes + span.length as u64);
        match file.advise(advice, ByteRange::new(span.offset_bytes, end_bytes)) {
            // Beyond the end, or without a cache.
            Err(error) if ![ErrorKind::InvalidInput, ErrorKind::Unsupported].contains(&error.kind()) => {
                if self.is_faulty {
                    Ok(())
                } else {
                    Err(error.to_string())
                }
            }
            _ => Ok(()),
        }
    }

    /// Single pages, with as much between them, of which neither the cache nor the kernel has any: each is a request of its own, and most wait
    /// for a place. The last is what is used then.
    pub(super) fn will_need_many(&mut self, place: Place, span: Span, count: u64, then: Then) -> Outcome {
        self.cool(place.file)?;
        let first_bytes = span.offset_bytes / PAGE * PAGE;
        let at = |number: u64| ByteRange::at(first_bytes + 2 * number * PAGE, PAGE);
        let ranges: Vec<ByteRange> = (0..count).map(at).collect();
        match self.handle(place)?.will_need(&ranges) {
            Err(_) if self.is_faulty => {}
            advised => advised.map_err(text)?,
        }
        let length_bytes = self.targets[place.file].versions.least_bytes() as u64;
        let Some(last) = ranges.into_iter().rfind(|range| range.start < length_bytes) else { return Ok(()) };
        let has_waiting = self.engine.stats().driver.queued > 0;
        self.coverage.note_if(has_waiting, Reached::AdviceWaited);
        let last = Span { offset_bytes: last.start, length: PAGE as usize };
        match then {
            Then::Nothing => return Ok(()),
            Then::ReadNow => self.read_now(place, last)?,
            Then::Read(mood) => self.begin(place, Work::Read(last), mood)?,
            Then::DontNeed => {
                self.advise(place, Advice::DontNeed, Span { offset_bytes: 0, length: 1 << 30 })?
            }
        }
        self.coverage.note_if(has_waiting, Reached::WaitingAdviceUsed);
        Ok(())
    }

    pub(super) fn cool(&mut self, file: usize) -> Outcome {
        let place = Place { file, handle: 0 };
        self.advise(place, Advice::DontNeed, Span { offset_bytes: 0, length: 1 << 30 })?;
        make_cold(&fs::File::open(&self.targets[file].path).map_err(text)?).map_err(text)
    }
}

const PAGE: u64 = 4096;
