//! Facts: of the machine, the device and the runs, each said once.
//!
//! Owns: which facts all suites agree on.
//! Does not own: where they come from (`host`).

use maud::{Markup, html};

use crate::section::Section;

type Fact = (String, String);

/// Those that several suites have in common, in the order in which they were first said.
pub(super) struct Facts<'a> {
    shared: Vec<&'a Fact>,
}

impl<'a> Facts<'a> {
    pub(super) fn of(sections: &[&'a Section]) -> Facts<'a> {
        let all = || sections.iter().flat_map(|section| &section.facts);
        let mut shared: Vec<&Fact> = Vec::new();
        for fact in all() {
            let same = all().filter(|other| *other == fact).count();
            let other = all().any(|other| other.0 == fact.0 && other.1 != fact.1);
            if same > 1 && !other && !shared.contains(&fact) {
                shared.push(fact);
            }
        }
        Facts { shared }
    }

    pub(super) fn shared(&self) -> &[&'a Fact] {
        &self.shared
    }

    /// What is to be said with the suite itself.
    pub(super) fn only_of<'b>(&self, section: &'b Section) -> Vec<&'b Fact> {
        section.facts.iter().filter(|fact| !self.shared.contains(fact)).collect()
    }
}

pub(super) fn facts_list(facts: &[&Fact]) -> Markup {
    html! {
        dl .facts {
            @for (name, value) in facts {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what all say is said once, what differs stays with the suite that says it.
    #[test]
    fn shared_and_own() {
        let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let section = |facts| Section { facts, ..Section::default() };
        let one = section(vec![fact("kernel", "Linux"), fact("file", "a"), fact("rounds", "3")]);
        let other = section(vec![fact("kernel", "Linux"), fact("file", "b")]);
        let sections = [&one, &other];
        let facts = Facts::of(&sections);
        assert_eq!(facts.shared(), [&fact("kernel", "Linux")]);
        assert_eq!(facts.only_of(&one), [&fact("file", "a"), &fact("rounds", "3")]);
        assert_eq!(facts.only_of(&other), [&fact("file", "b")]);
        assert!(Facts::of(&[&one]).shared().is_empty());
    }
}
