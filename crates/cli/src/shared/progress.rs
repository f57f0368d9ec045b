//! Progress: what the progress bars of all commands share.
//!
//! Owns: how a bar looks, when there is one.
//! Does not own: what is counted.

use std::time::Duration;

use indicatif::ProgressStyle;

/// The style of a bar. Without colours, so that `NO_COLOR` (no-color.org) changes nothing.
///
/// # Panics
/// If the template is malformed.
pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed")
}

/// Bytes done of all bytes, the rate, the time left, and as much of a message as the terminal has room for: 60 columns hold all else.
pub(crate) const BYTES: &str =
    "{bar:12} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left {wide_msg}";

/// The same of work whose end is unknown.
pub(crate) const COUNTING: &str = "{binary_bytes} {binary_bytes_per_sec}, {wide_msg}";

/// Work that ends sooner shows no bar.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::{fmt, io};

    use headwater_measure::rounds;
    use indicatif::{ProgressBar, ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal of 60 columns that keeps what is drawn.
    #[derive(Clone, Default)]
    struct Narrow(Arc<Mutex<String>>);

    impl fmt::Debug for Narrow {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Narrow")
        }
    }

    impl TermLike for Narrow {
        fn width(&self) -> u16 {
            60
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(&format!("{text}\n"))
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.write_str("\n")
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Goal: a bar fits 60 columns, so that no terminal breaks its line, however large the numbers and long the name. Method: those for bytes and
    /// those for rounds are drawn on such a terminal.
    #[test]
    fn bars_fit_60_columns() {
        let bytes = [(10, 3), (1 << 20, 1 << 19), (999 << 40, 998 << 40)]
            .map(|(length, done)| (ProgressBar::new(length).with_style(style(BYTES)), done));
        // A suite of thousands of rounds, and one of hours.
        let rounds = [(rounds::bar(99_999), 99_998), (rounds::time_bar(9_999_999), 3)];
        for (bar, done) in bytes.into_iter().chain(rounds) {
            let terminal = Narrow::default();
            bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
            bar.set_message("a/name/that/is/long/".repeat(9));
            bar.set_position(done);
            bar.force_draw();
            let drawn = terminal.0.lock().unwrap().clone();
            let widths = drawn.split(['\n', '\r']).map(|line| line.trim_end().chars().count());
            let widest = widths.max().unwrap();
            assert!((30..=60).contains(&widest), "{widest}: {drawn:?}");
        }
    }
}
