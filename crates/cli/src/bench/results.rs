//! Results: what suites find out, shown as soon as it is there, and written in the end.
//!
//! ```text
//!   begin: can all be written? ─► a suite ─┬─ findings ─► text ─┬─► the next suite ─► … ─► end: the answer, the page, the JSON
//!                                          └─ an error ─► said ─┘                           └─► all errors, as one
//! ```
//!
//! Owns: the order; that a suite that fails, or a place that takes no results, costs nothing of the rest.
//! Does not own: texts, pages and JSON (`headwater-measure`), the suites.

use std::path::Path;

use headwater_measure::{Findings, report, standard};
use os_display::Quotable;

use crate::bench::arguments::ResultArguments;
use crate::shared::output::{self, JsonTo};

pub(super) struct Results<'a> {
    to: &'a ResultArguments,
    /// Whether anything but standard output takes results.
    has_file: bool,
    /// Whether standard output took all text so far.
    is_shown: bool,
    all: Vec<Findings>,
    errors: Vec<String>,
}

impl<'a> Results<'a> {
    /// Checks before the work that all results can be written after it, and not over the file that is measured with. Without a file for them the work ends with the reader of the text.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(super) fn begin(
        to: &'a ResultArguments,
        plot: Option<&Path>,
        input: Option<&Path>,
    ) -> Result<Results<'a>, String> {
        let (html, json) = (to.html.as_deref(), to.json.to());
        let to_json = if let JsonTo::File(path) = json { Some(path) } else { None };
        let mut files = html.into_iter().chain(plot).chain(to_json);
        files.try_for_each(|file| output::check_beside(file, input))?;
        html.into_iter().chain(plot).try_for_each(output::check_file)?;
        json.check_printed()?;
        json.end_with_reader(html.or(plot));
        let has_file = html.or(plot).or(to_json).is_some();
        Ok(Results { to, has_file, is_shown: true, all: Vec::new(), errors: Vec::new() })
    }

    /// Shows what a suite has found out.
    ///
    /// # Errors
    /// One sentence for the user: that nothing takes the text, where nothing else takes results.
    pub(super) fn add(&mut self, findings: Findings) -> Result<(), String> {
        let gap = if self.all.is_empty() { "" } else { "\n" };
        self.show(&format!("{gap}{}", findings.text(self.to.shown())));
        self.all.push(findings);
        if self.is_shown || self.has_file { Ok(()) } else { Err(self.errors.join("; ")) }
    }

    /// Says of a suite among others that it has failed.
    ///
    /// # Errors
    /// As [`Results::add`]; that the reader of the text has gone.
    pub(super) fn add_failure(&mut self, id: &'static str, title: &str, reason: &str) -> Result<(), String> {
        standard::check_reader()?;
        self.errors.push(format!("the suite {id} failed: {reason}"));
        self.add(Findings::failed(id, title, reason))
    }

    /// Shows the answer, and writes what is wanted beside it: the files of `others`, the page, the JSON.
    ///
    /// # Errors
    /// One sentence for the user, of all that has failed.
    pub(super) fn end(mut self, others: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let headline = report::headline(&self.all);
        if !headline.is_empty() {
            self.show(&format!("\n{headline}"));
        }
        self.errors.extend(others().err());
        if let Some(path) = &self.to.html {
            match output::write_file(path, &report::html(&self.all)) {
                Ok(()) => self.show(&format!("\nfor a browser, with plots: {}\n", path.maybe_quote())),
                Err(error) => self.errors.push(error),
            }
        }
        self.errors.extend(self.to.json.to().write(|| report::json(&self.all)).err());
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors.join("; ")) }
    }

    /// Prints text where it is wanted. The first error is kept, and nothing is printed after it.
    fn show(&mut self, text: &str) {
        if !self.to.json.to().wants_text() || !self.is_shown {
            return;
        }
        if let Err(error) = output::print(text) {
            self.is_shown = false;
            self.errors.push(error);
        }
    }
}
