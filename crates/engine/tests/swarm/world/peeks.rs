//! Peeks: pages that the thread borrows in place, while it does other things, and those that it never gives back.
//!
//! Owns: what is borrowed, that it stays what it was.
//! Does not own: the steps meanwhile (world), what a page has at first (versions).

use std::io::ErrorKind;

use headwater::{File, PageRef};

use super::{Outcome, World};
use crate::coverage::Reached;
use crate::steps::{Place, Span, Step};

/// Performs the steps with these numbers.
pub(crate) type Perform<'a> = &'a mut dyn FnMut(&mut World, &[Step]) -> Outcome;

impl World {
    /// As a program has them: on the stack of what happens meanwhile.
    pub(crate) fn peek(&mut self, place: Place, span: Span, held: &[Step], perform: Perform<'_>) -> Outcome {
        let (file, mut borrowed) = (self.handle(place)?, Vec::new());
        for number in 0..=(span.length as u64 / PAGE).min(PAGES_MAX) {
            let offset_bytes = span.offset_bytes + number * PAGE;
            if let Some(page) = self.peek_at(place.file, &file, offset_bytes)? {
                let bytes = page.to_vec();
                borrowed.push((offset_bytes, page, bytes));
            }
        }
        self.coverage.note_if(borrowed.len() > OUTSIDE_THE_QUOTA, Reached::PeekedMany);
        perform(self, held)?;
        let now = self.targets[place.file].versions.last();
        let is_other = |&(offset_bytes, _, ref bytes): &(u64, PageRef<'_>, Vec<u8>)| {
            let rest = now.get(offset_bytes as usize..).unwrap_or_default();
            !rest.starts_with(bytes)
        };
        self.coverage.note_if(borrowed.iter().any(is_other), Reached::PeekHeldOverChange);
        match borrowed.iter().find(|(_, page, bytes)| page[..] != bytes[..]) {
            None => Ok(()),
            Some((offset_bytes, ..)) => Err(format!("the page borrowed at {offset_bytes} changed")),
        }
    }

    pub(super) fn forget_peek(&mut self, place: Place, span: Span) -> Outcome {
        let file = self.handle(place)?;
        if let Some(page) = self.peek_at(place.file, &file, span.offset_bytes)? {
            self.coverage.note_if(!page.is_empty(), Reached::PeekForgotten);
            self.has_leaked_pages = true;
            std::mem::forget(page);
        }
        Ok(())
    }

    /// `None` if it fails as it may.
    fn peek_at<'a>(
        &mut self,
        file: usize,
        handle: &'a File,
        offset_bytes: u64,
    ) -> Outcome<Option<PageRef<'a>>> {
        match handle.peek(offset_bytes) {
            Ok(page) => {
                let (versions, length) = (&self.targets[file].versions, PAGE - offset_bytes % PAGE);
                versions
                    .check(versions.now(), offset_bytes, length as usize, &page)
                    .map_err(|error| format!("borrowed: {error}"))?;
                Ok(Some(page))
            }
            Err(error) => {
                let may_fail = self.is_faulty || error.kind() == ErrorKind::OutOfMemory;
                self.forgive(may_fail, Reached::PeekRefused, &error).map(|()| None)
            }
        }
    }
}

/// More than a thread may borrow outside of the quota for lending.
const PAGES_MAX: u64 = 11;

/// What a thread may borrow at once without a share of that quota.
const OUTSIDE_THE_QUOTA: usize = 8;

const PAGE: u64 = 4096;
