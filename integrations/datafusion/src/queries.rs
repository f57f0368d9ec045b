//! Queries: the 22 of TPC-H with the values of the specification, and a few that read more than they compute.
//!
//! Their text is that of the crate `tpchgen`: the specification's templates, with numbers where a value belongs.
//!
//! Owns: the values, the limits of rows, the names of queries.
//! Does not own: the templates and the published answers (`tpchgen`).

use tpchgen::q_and_a::queries::query;

/// A query by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// `q1` to `q22`, or one of [`EXTRA`].
    pub name: String,
    /// One statement of SQL, as DataFusion reads it.
    pub sql: String,
}

impl Query {
    /// The query of a name; a number is one of TPC-H.
    ///
    /// # Errors
    /// The names that there are.
    pub fn named(name: &str) -> Result<Query, String> {
        let number = name.trim_start_matches(['q', 'Q']).parse::<usize>().ok();
        if let Some(number) = number.filter(|number| (1..=VALUES.len()).contains(number)) {
            return Ok(Query { name: format!("q{number}"), sql: tpch(number) });
        }
        let extra = EXTRA.iter().find(|extra| extra.0 == name);
        let extra = extra.map(|(name, sql)| Query { name: (*name).to_owned(), sql: (*sql).to_owned() });
        extra.ok_or_else(|| {
            let names: Vec<&str> = EXTRA.iter().map(|extra| extra.0).collect();
            format!("{name:?} is no query; there are 1 to {}, and {}", VALUES.len(), names.join(", "))
        })
    }

    /// The 22 of TPC-H.
    pub fn all() -> Vec<Query> {
        (1..=VALUES.len()).map(|number| Query { name: format!("q{number}"), sql: tpch(number) }).collect()
    }

    /// Those of these names; without any, the 22 of TPC-H.
    ///
    /// # Errors
    /// As [`named`](Query::named).
    pub fn list(names: &[String]) -> Result<Vec<Query>, String> {
        if names.is_empty() {
            return Ok(Query::all());
        }
        names.iter().map(|name| Query::named(name)).collect()
    }

    /// The number of a query of TPC-H.
    pub fn number(&self) -> Option<i32> {
        self.name.strip_prefix('q')?.parse().ok()
    }
}

/// Queries whose time is mostly that of reading.
pub const EXTRA: [(&str, &str); 5] = [
    // DataFusion answers it from footers.
    ("count", "select count(*) from lineitem"),
    // Two columns of sixteen, both cheap to decode.
    ("columns", "select sum(l_quantity), count(l_shipdate) from lineitem"),
    // The widest column, of which only the lengths are used.
    ("comments", "select sum(octet_length(l_comment)) from lineitem"),
    // Statistics leave few row groups.
    ("selective", "select * from orders where o_orderkey between 1000 and 1100"),
    // Every byte of the largest table.
    ("all", ALL_COLUMNS),
];

const ALL_COLUMNS: &str = "select count(l_orderkey), count(l_partkey), count(l_suppkey), count(l_linenumber), \
     count(nullif(l_quantity, 0)), count(nullif(l_extendedprice, 0)), count(nullif(l_discount, 1)), count(nullif(l_tax, 1)), \
     count(nullif(l_returnflag, '')), count(nullif(l_linestatus, '')), max(l_shipdate), max(l_commitdate), max(l_receiptdate), \
     count(nullif(l_shipinstruct, '')), count(nullif(l_shipmode, '')), count(nullif(l_comment, '')) from lineitem";

/// What the specification puts in for validation (clause 2.4, "query validation"), for `:1`, `:2` and so on.
const VALUES: [&[&str]; 22] = [
    &["90"],
    &["15", "BRASS", "EUROPE"],
    &["BUILDING", "1995-03-15"],
    &["1993-07-01"],
    &["ASIA", "1994-01-01"],
    &["1994-01-01", "0.06", "24"],
    &["FRANCE", "GERMANY"],
    &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
    &["green"],
    &["1993-10-01"],
    &["GERMANY", "0.0001"],
    &["MAIL", "SHIP", "1994-01-01"],
    &["special", "requests"],
    &["1995-09-01"],
    &["1996-01-01"],
    &["Brand#45", "MEDIUM POLISHED", "49", "14", "23", "45", "19", "3", "36", "9"],
    &["Brand#23", "MED BOX"],
    &["300"],
    &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
    &["forest", "1994-01-01", "CANADA"],
    &["SAUDI ARABIA"],
    &["13", "31", "23", "29", "30", "18", "17"],
];

/// How many rows the specification asks for, where the text has no word for it.
const LIMITS: [(usize, u32); 5] = [(2, 100), (3, 10), (10, 20), (18, 100), (21, 100)];

/// One text for all scales: the share in q11, which the specification divides by the scale, stays that of scale 1.
fn tpch(number: usize) -> String {
    let template = query(i32::try_from(number).expect("22 at the most")).expect("the crate has all of them");
    let mut sql = if number == 15 { fifteen(template) } else { template.to_owned() };
    // The precision of an interval, which DataFusion does not parse.
    sql = sql.replace(" day (3)", " day").trim().trim_end_matches(';').to_owned();
    // From the last, since `:1` begins `:10`.
    for (index, value) in VALUES[number - 1].iter().enumerate().rev() {
        sql = sql.replace(&format!(":{}", index + 1), value);
    }
    match LIMITS.iter().find(|(limited, _)| *limited == number) {
        Some((_, rows)) => format!("{sql}\nlimit {rows}"),
        None => sql,
    }
}

/// The view as a common table expression, the variant A of the specification: one statement, and nothing to drop.
fn fifteen(template: &str) -> String {
    let mut statements = template.split(';').map(str::trim);
    let (view, select) = (statements.next().unwrap_or_default(), statements.next().unwrap_or_default());
    let view = view.replacen("create view revenue:s", "with revenue", 1).replacen(" as\n", " as (\n", 1);
    format!("{view})\n{}", select.replace("revenue:s", "revenue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_put_in() {
        for query in Query::all() {
            let left = query.sql.match_indices(':').count();
            assert_eq!(left, 0, "{}: {}", query.name, query.sql);
            assert!(!query.sql.contains(';'), "{}", query.name);
        }
        assert!(Query::named("16").unwrap().sql.contains("in (49, 14, 23, 45, 19, 3, 36, 9)"));
        assert!(Query::named("Q3").unwrap().sql.ends_with("limit 10"));
    }

    #[test]
    fn names_that_are_none_list_those_that_are() {
        assert!(Query::named("23").unwrap_err().contains("1 to 22, and count, columns"));
        assert_eq!(Query::named("count").unwrap().number(), None);
    }
}
