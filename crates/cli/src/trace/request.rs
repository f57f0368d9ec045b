//! Request: a read or write of a trace, in pages.
//!
//! Owns: which pages a range of bytes touches, and which of them in part.
//! Does not own: where requests come from (`requests`), what they cost (`replay`).

use headwater_core::units::PAGE_SIZE_BYTES;

/// A read or write of adjacent pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) first_page: u64,
    /// Zero for a request of zero bytes.
    pub(super) pages: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    /// A write. The flags say whether it overwrites the first and the last page in part, which takes a read before.
    Write {
        first: Covered,
        last: Covered,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Covered {
    Whole,
    Part,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Read,
    Write,
}

impl Request {
    /// The pages of a range of bytes; an error text if it is longer than any system requests at once.
    pub(super) fn of_bytes(start: u64, length: u64, direction: Direction) -> Result<Request, String> {
        if length > REQUEST_BYTES_MAX {
            return Err(format!("{length} bytes are more than the 1 GiB that a request may have"));
        }
        let end =
            start.checked_add(length).ok_or("the request ends beyond the 16 EiB that offsets can say")?;
        let first_page = start / PAGE_SIZE_BYTES;
        let pages = if length == 0 { 0 } else { (end - 1) / PAGE_SIZE_BYTES - first_page + 1 };
        let covered = |aligned| if aligned { Covered::Whole } else { Covered::Part };
        let first_end = (first_page + 1).saturating_mul(PAGE_SIZE_BYTES);
        let first = covered(start.is_multiple_of(PAGE_SIZE_BYTES) && end >= first_end);
        let last = if pages == 1 { first } else { covered(end.is_multiple_of(PAGE_SIZE_BYTES)) };
        let kind = match direction {
            Direction::Read => Kind::Read,
            Direction::Write => Kind::Write { first, last },
        };
        Ok(Request { first_page, pages, kind })
    }

    pub(super) fn of_object(object: u64, direction: Direction) -> Request {
        let kind = match direction {
            Direction::Read => Kind::Read,
            Direction::Write => Kind::Write { first: Covered::Whole, last: Covered::Whole },
        };
        Request { first_page: object, pages: 1, kind }
    }
}

/// The longest request, far above what devices and file systems take at once: a larger size means a mistaken column.
const REQUEST_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(start: u64, length: u64) -> (u64, u64, Covered, Covered) {
        let request = Request::of_bytes(start, length, Direction::Write).unwrap();
        let Kind::Write { first, last } = request.kind else { panic!("a write was asked for") };
        (request.first_page, request.pages, first, last)
    }

    /// Goal: which pages a range of bytes touches, and which of them in part.
    #[test]
    fn pages_of_bytes() {
        use Covered::{Part, Whole};
        assert_eq!(write(4096, 8192), (1, 2, Whole, Whole));
        assert_eq!(write(4095, 2), (0, 2, Part, Part));
        assert_eq!(write(100, 100), (0, 1, Part, Part));
        assert_eq!(write(4096, 5000), (1, 2, Whole, Part));
        assert_eq!(write(0, 4096), (0, 1, Whole, Whole));
        assert_eq!(write(0, 100), (0, 1, Part, Part));
        assert_eq!(write(5000, 0).1, 0);
        assert!(Request::of_bytes(u64::MAX, 2, Direction::Read).is_err());
        assert!(Request::of_bytes(0, (1 << 30) + 1, Direction::Read).is_err());
    }
}
