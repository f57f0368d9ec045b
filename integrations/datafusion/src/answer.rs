//! Answer: the rows of a query in a form that does not depend on their order, and the first difference of two answers.
//!
//! ```text
//!   batches ─► rows of text ─► sorted ─► compared: numbers of floating point within a tolerance, all else as it stands
//! ```
//!
//! Owns: what counts as the same answer.
//! Does not own: which answers are compared.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use serde::{Deserialize, Serialize};

/// All rows of a query, sorted.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Whether each column is of floating point, whose sums depend on their order.
    floats: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Answer {
    /// The rows of these batches.
    ///
    /// # Errors
    /// For types that have no text.
    pub fn of(batches: &[RecordBatch]) -> Result<Answer, ArrowError> {
        let Some(first) = batches.first() else { return Ok(Answer::default()) };
        let is_float =
            |kind: &DataType| matches!(kind, DataType::Float16 | DataType::Float32 | DataType::Float64);
        let floats = first.schema().fields().iter().map(|field| is_float(field.data_type())).collect();
        let options = FormatOptions::default();
        let mut rows = Vec::new();
        for batch in batches {
            let columns: Result<Vec<ArrayFormatter<'_>>, ArrowError> =
                batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options)).collect();
            let columns = columns?;
            rows.extend(
                (0..batch.num_rows())
                    .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect()),
            );
        }
        rows.sort_unstable();
        Ok(Answer { floats, rows })
    }

    /// How many.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Where another answer differs first; `None` where it is the same.
    pub fn difference(&self, other: &Answer) -> Option<String> {
        if self.rows.len() != other.rows.len() {
            return Some(format!("{} rows, not {}", other.rows.len(), self.rows.len()));
        }
        let is_same = |column: usize, left: &str, right: &str| {
            left == right || (self.floats.get(column) == Some(&true) && are_near(left, right, FLOATS, FLOATS))
        };
        self.first_difference(&other.rows, is_same)
    }

    /// Where this answer differs from a published one first: texts whose cells are between `|`, below a line of names, with numbers
    /// that are rounded.
    pub fn difference_to_published(&self, text: &str) -> Option<String> {
        let lines = text.lines().filter(|line| !line.trim().is_empty()).skip(1);
        let mut rows: Vec<Vec<String>> =
            lines.map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect()).collect();
        if self.rows.len() != rows.len() {
            return Some(format!("{} rows, not {}", self.rows.len(), rows.len()));
        }
        // Rounded numbers may sort otherwise, so each row is looked for.
        for own in &self.rows {
            let Some(found) = rows.iter().position(|cells| self.is_published(own, cells)) else {
                return Some(format!("no such row: {}", own.join(" | ")));
            };
            rows.swap_remove(found);
        }
        None
    }

    fn is_published(&self, own: &[String], published: &[String]) -> bool {
        let is_same = |(column, (left, right)): (usize, (&str, &str))| {
            let share = if self.floats.get(column) == Some(&true) { RATIOS } else { 0.0 };
            left == right || are_near(left, right, share, ROUNDED)
        };
        let pairs = own.iter().map(|cell| cell.trim()).zip(published.iter().map(String::as_str));
        own.len() == published.len() && pairs.enumerate().all(is_same)
    }

    fn first_difference(
        &self,
        others: &[Vec<String>],
        is_same: impl Fn(usize, &str, &str) -> bool,
    ) -> Option<String> {
        for (own, other) in self.rows.iter().zip(others) {
            let same = own.len() == other.len()
                && own
                    .iter()
                    .zip(other)
                    .enumerate()
                    .all(|(column, (left, right))| is_same(column, left, right));
            if !same {
                return Some(format!("{}, not {}", other.join(" | "), own.join(" | ")));
            }
        }
        None
    }
}

/// Whether two texts are numbers that differ by no more than a share of the larger one, or than `absolute`.
fn are_near(left: &str, right: &str, share: f64, absolute: f64) -> bool {
    let (Ok(left), Ok(right)) = (left.parse::<f64>(), right.parse::<f64>()) else { return false };
    (left - right).abs() <= absolute.max(share * left.abs().max(right.abs()))
}

/// Sums of millions of floating-point numbers in another order differ by less.
const FLOATS: f64 = 1e-9;

/// What the specification allows for ratios and averages (clause 2.1.3.5), which are the columns of floating point.
const RATIOS: f64 = 0.01;

/// Published numbers have two places.
const ROUNDED: f64 = 0.0101;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: &[[&str; 2]]) -> Answer {
        let rows = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        Answer { floats: vec![false, true], rows }
    }

    #[test]
    fn only_floats_may_differ_and_little() {
        let one = answer(&[["a", "1000000.0"], ["b", "2"]]);
        assert_eq!(one.difference(&answer(&[["a", "1000000.0000001"], ["b", "2.0"]])), None);
        assert!(one.difference(&answer(&[["a", "1000000.1"], ["b", "2"]])).is_some());
        assert!(one.difference(&answer(&[["1", "1000000.0"], ["b", "2"]])).is_some());
        assert_eq!(one.difference(&answer(&[["a", "1000000.0"]])).unwrap(), "1 rows, not 2");
    }

    #[test]
    fn published_answers_are_rounded_and_in_any_order() {
        let one = answer(&[["a", "1.0049"], ["b", "2"]]);
        assert_eq!(one.difference_to_published("\nname |number\nb    |2.00  \na    |1.00\n"), None);
        assert_eq!(one.difference_to_published("name|number\nb|2.00\na|1.014\n"), None);
        assert!(one.difference_to_published("name|number\nb|2.00\na|1.50\n").is_some());
        assert!(one.difference_to_published("name|number\nc|2.00\na|1.00\n").is_some());
        assert!(one.difference_to_published("name|number\nb|2.00\n").is_some());
    }
}
