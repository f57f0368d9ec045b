//! Page: the report, one self-contained page of HTML.
//!
//! ```text
//!   sections ─► head: question, answer ─► contents ─► a part each ─► machine and device ─► results as JSON
//! ```
//!
//! Owns: the order of the page, its style, that nothing is loaded from elsewhere.
//! Does not own: what the figures say (`section`), the drawing of each (`bars`, `curves`, `lines`, `tables`).
//! Invariants: P1 whatever came from outside is escaped, by maud in the page and by `json_block` in the results. P2 it
//! works without scripts, and its policy (CSP) allows none. P3 colour never tells anything alone.

mod bars;
#[cfg(test)]
mod contrast;
pub(crate) mod curves;
mod date;
mod facts;
pub(crate) mod lines;
mod part;
mod tables;

use std::time::SystemTime;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::row::Whose;
use crate::section::Section;
use facts::{Facts, facts_list};

/// The page, with the results as JSON inside.
pub(crate) fn page(sections: &[&Section], json: &str) -> String {
    document(sections, json, SystemTime::now()).into_string()
}

fn document(sections: &[&Section], json: &str, now: SystemTime) -> Markup {
    let facts = Facts::of(sections);
    let headline = sections.iter().map(|section| &section.headline).find(|headline| !headline.is_empty());
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "headwater " (VERSION) };
                title { (title(headline, sections)) " – headwater bench" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a .skip href="#results-of-suites" { "Skip to the results" }
                (head(headline, sections, now))
                (contents(sections, &facts))
                main #results-of-suites {
                    @for section in sections { (part::part(section, &facts)) }
                    (machine(&facts))
                    (results())
                }
                footer {
                    p { "Written by " code { "headwater bench" } " " (VERSION) ". Everything on this page is in this file." }
                }
                (json_block(json))
            }
        }
    }
}

/// The question of the page, or of its only suite.
fn title<'a>(headline: Option<&String>, sections: &'a [&Section]) -> &'a str {
    match sections {
        [only] if headline.is_none() && only.question.is_empty() => &only.title,
        [only] if headline.is_none() => &only.question,
        _ => QUESTION,
    }
}

fn head(headline: Option<&String>, sections: &[&Section], now: SystemTime) -> Markup {
    let (day, second) = date::of(now);
    html! {
        header {
            p .kicker { "headwater bench" }
            h1 { (title(headline, sections)) }
            @if let Some(headline) = headline { p .lead { (headline) } }
            p .when { "Measured on " time datetime=(second) { (day) } " by headwater " (VERSION) "." }
        }
    }
}

fn contents(sections: &[&Section], facts: &Facts<'_>) -> Markup {
    html! {
        nav aria-label="Contents" {
            ol {
                @for section in sections { li { a href={ "#" (section.id) } { (section.title) } } }
                @if !facts.shared().is_empty() { li { a href="#machine" { (MACHINE) } } }
                li { a href="#data" { (DATA) } }
            }
        }
    }
}

fn machine(facts: &Facts<'_>) -> Markup {
    html! {
        @if !facts.shared().is_empty() {
            section #machine aria-labelledby="machine-title" {
                h2 #machine-title { (MACHINE) }
                (facts_list(facts.shared()))
            }
        }
    }
}

fn results() -> Markup {
    html! {
        section #data aria-labelledby="data-title" {
            h2 #data-title { (DATA) }
            p {
                "All results are in this file as JSON, as " code { "--json" } " gives them. This takes them out:"
            }
            pre tabindex="0" { code { (EXTRACT) } }
        }
    }
}

/// Every `<` as an escape, which JSON allows where one can be: within texts. So nothing ends the block or opens a comment.
fn json_block(json: &str) -> Markup {
    html! {
        (PreEscaped("\n"))
        script type="application/json" id="results" { (PreEscaped(json.replace('<', "\\u003c"))) }
    }
}

/// What tells rows apart beside their colour.
fn whose_class(whose: Whose) -> &'static str {
    match whose {
        Whose::Headwater => "headwater",
        Whose::Peer => "peer",
        Whose::Limit => "limit",
    }
}

/// For keys and for screen readers.
fn whose_words(whose: Whose) -> &'static str {
    match whose {
        Whose::Headwater => "headwater",
        Whose::Peer => "others",
        Whose::Limit => "limit of device or memory",
    }
}

/// Three digits that count, and no more places than that.
fn figure(value: f64) -> String {
    let magnitude = value.abs();
    let places = match magnitude {
        _ if magnitude >= 99.95 || magnitude == 0.0 => 0,
        _ if magnitude >= 9.995 => 1,
        _ if magnitude >= 0.9995 => 2,
        _ if magnitude >= 0.01 => 3,
        _ => 4,
    };
    format!("{value:.places$}")
}

pub(crate) const QUESTION: &str = "Is your storage slow, or is it your API?";

const MACHINE: &str = "Machine and device";

const DATA: &str = "The results as data";

/// Works with what every system has; the block stands by itself, from the line with its id to the end of the file.
const EXTRACT: &str =
    "sed -n '/<script type=\"application\\/json\" id=\"results\">/,$p' report.html | sed 's/<[^>]*>//g'";

const VERSION: &str = env!("CARGO_PKG_VERSION");

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn section(headline: &str) -> Section {
        let title = "A & B".to_owned();
        Section { id: "x", title, headline: headline.to_owned(), ..Section::default() }
    }

    /// Goal: the page of a suite that decides the question says so first; of another one, what it is about.
    #[test]
    fn heads() {
        let text = |section: &Section| document(&[section], "{}", UNIX_EPOCH).into_string();
        let decided = text(&section("It is < the API."));
        assert!(decided.contains(QUESTION) && decided.contains("It is &lt; the API."), "{decided}");
        let other = text(&section(""));
        assert!(!other.contains(QUESTION) && other.contains("<h1>A &amp; B</h1>"), "{other}");
        let asked = Section { question: "How fast?".to_owned(), ..section("") };
        assert!(text(&asked).contains("<h1>How fast?</h1>"));
        assert!(other.contains("datetime=\"1970-01-01T00:00:00Z\""), "{other}");
        let several = document(&[&section(""), &section("")], "{}", UNIX_EPOCH).into_string();
        assert!(several.contains(QUESTION), "{several}");
    }

    /// Goal: the block ends where it ends, and means the same.
    #[test]
    fn json_is_harmless() {
        let before = serde_json::json!({"path": "a</script><!--<script>"});
        let block = json_block(&before.to_string()).into_string();
        let (_, rest) = block.split_once('>').unwrap();
        let inner = rest.strip_suffix("</script>").unwrap();
        assert!(!inner.contains('<'), "{inner}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(inner).unwrap(), before);
    }

    /// Goal: on paper nothing that stands above something else is the last of its page, and what is short stays together.
    #[test]
    fn printed_heads_stay_with_what_follows() {
        let print = STYLE.split_once("@media print {").unwrap().1;
        let named = |rule: &str| {
            let (selectors, _) = print.split_once(rule).unwrap();
            let selectors = selectors.rsplit('\n').next().unwrap().trim_end_matches([' ', '{']);
            selectors.split(',').map(str::trim).collect::<Vec<_>>()
        };
        let heads = named("break-after: avoid");
        for head in ["h2", "h3", "figcaption", "caption", ".question", ".answer", ".methods dt"] {
            assert!(heads.contains(&head), "{head} in {heads:?}");
        }
        let whole = named("break-inside: avoid");
        for part in ["figure", ".scroll", "tr", ".methods dd"] {
            assert!(whole.contains(&part), "{part} in {whole:?}");
        }
    }

    #[test]
    fn figures_have_three_digits() {
        let cases = [(0.0, "0"), (0.0042, "0.0042"), (0.021, "0.021"), (0.9996, "1.00"), (9.996, "10.0")];
        for (value, expected) in cases.into_iter().chain([(99.96, "100"), (2767.4, "2767"), (-1.5, "-1.50")])
        {
            assert_eq!(figure(value), expected);
        }
    }
}
