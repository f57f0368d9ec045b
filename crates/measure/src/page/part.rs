//! Part: one suite on the page.
//!
//! Owns: what follows what within it.
//! Does not own: the drawing of figures.

use maud::{Markup, html};

use super::facts::{Facts, facts_list};
use super::{bars, curves, lines, tables};
use crate::section::{Figure, Media, Method, Section, sentence};

pub(super) fn part(section: &Section, facts: &Facts<'_>) -> Markup {
    let title_id = format!("{}-title", section.id);
    let own = facts.only_of(section);
    html! {
        section id=(section.id) aria-labelledby=(title_id) {
            h2 id=(title_id) { (section.title) }
            @if !section.question.is_empty() { p .question { (section.question) } }
            @if !section.answer.is_empty() { p .answer { (sentence(&section.answer)) } }
            @for (index, figure) in section.figures.iter().enumerate() {
                (drawn(figure, &format!("{}-{}", section.id, index + 1)))
            }
            @if !section.notes.is_empty() {
                h3 { "Notes" }
                ul .notes { @for note in &section.notes { li { (sentence(note)) } } }
            }
            @if !section.methods.is_empty() {
                h3 { "How it was taken" }
                dl .methods { @for method in &section.methods { (described(method)) } }
            }
            @if !own.is_empty() {
                h3 { "This run" }
                (facts_list(&own))
            }
        }
    }
}

fn drawn(figure: &Figure, id: &str) -> Markup {
    match figure {
        Figure::Bars(bars) => bars::chart(bars, id),
        Figure::Table(table) if table.media == Media::Text => html! {},
        Figure::Table(table) => tables::table(table, id),
        Figure::HeatMap(map) => tables::heat_map(map, id),
        Figure::Curves(curves) => curves::chart(curves, id),
        Figure::Lines(lines) => lines::chart(lines, id),
    }
}

fn described(method: &Method) -> Markup {
    html! {
        dt { (method.what) }
        dd {
            p { (method.how) }
            @if let Some(line) = &method.fio {
                p .label { "The same by fio:" }
                pre tabindex="0" { code { (line) } }
            }
        }
    }
}
