//! Date: a moment in UTC, for people and for `datetime`.
//!
//! Owns: days since 1970 as a date of the calendar.
//! Does not own: time zones; a report that is passed on is read in another one.

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-03-01, 12:34 UTC` and `2026-03-01T12:34:56Z`.
pub(super) fn of(moment: SystemTime) -> (String, String) {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = calendar(seconds / DAY_SECONDS);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let date = format!("{year}-{month:02}-{day:02}");
    (format!("{date}, {hour:02}:{minute:02} UTC"), format!("{date}T{hour:02}:{minute:02}:{second:02}Z"))
}

fn calendar(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while days >= 365 + leap(year) {
        days -= 365 + leap(year);
        year += 1;
    }
    let lengths = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

/// Days more than 365.
fn leap(year: u64) -> u64 {
    u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)))
}

const DAY_SECONDS: u64 = 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: ends of months and years, leap days and centuries. The seconds are those of `date -u +%s`.
    #[test]
    fn dates() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(of(UNIX_EPOCH + Duration::from_secs(seconds)).1, expected);
        }
        assert_eq!(of(UNIX_EPOCH + Duration::from_secs(1_767_225_599)).0, "2025-12-31, 23:59 UTC");
    }
}
