//! Answers: the first answer to each query, and whether all others are the same.
//!
//! Owns: what an answer is held against.
//! Does not own: what counts as the same (`answer`), the published answers (`tpchgen`).

use std::collections::HashMap;

use tpchgen::q_and_a::answers_sf1;

use crate::answer::Answer;
use crate::data::Data;
use crate::queries::Query;
use crate::{Error, Result};

/// The first answer to each query, with the name of its giver.
pub struct Answers {
    first: HashMap<String, (String, Answer)>,
    /// Whether there are published answers for the data.
    is_published: bool,
}

impl Answers {
    /// None yet, of queries to this data.
    pub fn of(data: &Data) -> Answers {
        Answers { first: HashMap::new(), is_published: data.scale == 1.0 }
    }

    /// Keeps the first answer to a query, if it is the one that is published for the scale, and holds others against it. `by` names its
    /// giver in the words of an error.
    ///
    /// # Errors
    /// [`Error::Answer`] with the first difference.
    pub fn check(&mut self, query: &Query, by: &str, answer: Answer) -> Result<()> {
        let differs = |other: &str, difference| {
            let (query, store, other) = (query.name.clone(), by.to_owned(), other.to_owned());
            Err(Error::Answer { query, store, other, difference })
        };
        if let Some((other, first)) = self.first.get(&query.name) {
            return first.difference(&answer).map_or(Ok(()), |difference| differs(other, difference));
        }
        let has_published = |number: &i32| self.is_published && *number != CUT_OFF;
        let published = query.number().filter(has_published).and_then(answers_sf1::answer);
        if let Some(difference) = published.and_then(|text| answer.difference_to_published(text)) {
            return differs("the one that TPC publishes", difference);
        }
        self.first.insert(query.name.clone(), (by.to_owned(), answer));
        Ok(())
    }

    /// Whose answers are the same, and to how many queries: `givers` is `all stores`, or the like, and `is_whole` whether all of them have
    /// answered the query of a name.
    pub fn sentence(&self, givers: &str, is_whole: impl Fn(&str) -> bool) -> String {
        let whole = self.first.iter().filter(|(query, _)| is_whole(query));
        let rows: Vec<usize> = whole.map(|(_, (_, answer))| answer.rows()).collect();
        if rows.is_empty() {
            return "no query came to its end".to_owned();
        }
        let published = if self.is_published {
            ", and those of TPC-H are the published ones (q11 not compared)"
        } else {
            ""
        };
        let (queries, rows) = (rows.len(), rows.iter().sum::<usize>());
        format!("{givers} give the same answers to {queries} queries ({rows} rows){published}")
    }
}

/// The number of the query that `tpchgen` 4.0.0 has a cut answer for: only the first four places of each key.
const CUT_OFF: i32 = 11;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a query that one of the givers has not answered is not among those with the same answers.
    #[test]
    fn only_whole_queries_are_counted() {
        let mut answers = Answers { first: HashMap::new(), is_published: false };
        for name in ["q1", "q2"] {
            let query = Query { name: name.to_owned(), sql: String::new() };
            answers.check(&query, "local", Answer::default()).unwrap();
        }
        let sentence = answers.sentence("all stores", |query| query == "q2");
        assert_eq!(sentence, "all stores give the same answers to 1 queries (0 rows)");
        assert_eq!(answers.sentence("all stores", |_| false), "no query came to its end");
    }
}
