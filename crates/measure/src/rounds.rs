//! Rounds: in which order rows are measured, and what a person sees meanwhile.
//
// Owns: the order, progress bars, the words for rounds.
// Does not own: what is measured in a round.

use indicatif::{ProgressBar, ProgressStyle};

use crate::standard::{self, Unread};

/// Rounds go through the rows forwards and backwards in turn, so that no row always follows the same other one.
pub fn order(rows: usize, round: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Runs the ways in turn, `rounds` times, with the number of the round, and with a bar on standard error that says which way is
/// under way.
///
/// # Errors
/// The first that a run reports; before a run, that the program ends with its reader, which has gone.
pub fn with_progress<A, E: From<Unread>>(
    ways: &mut [A],
    rounds: u32,
    name: impl Fn(&A) -> String,
    mut run: impl FnMut(&mut A, u32) -> Result<(), E>,
) -> Result<(), E> {
    let bar = bar(u64::from(rounds) * ways.len() as u64);
    for round in 0..rounds {
        for index in order(ways.len(), round) {
            standard::check_reader()?;
            bar.set_message(name(&ways[index]));
            bar.tick();
            run(&mut ways[index], round)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Hidden when standard error is no terminal. Without colours, so `NO_COLOR` asks for nothing else.
pub fn bar(steps: u64) -> ProgressBar {
    styled(steps, "{bar:20} {pos}/{len}, {eta} left, {wide_msg}")
}

/// The same for work that is known by its time in milliseconds.
pub fn time_bar(milliseconds: u64) -> ProgressBar {
    styled(milliseconds, "{bar:20} {eta} left, {wide_msg}")
}

fn styled(steps: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(steps).with_style(style.expect("the template is well-formed"))
}

/// For the head of a table.
pub fn words(rounds: u32) -> String {
    if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") }
}

/// For the report page: which sample counts, and in which order rows are measured.
pub fn sentence(rounds: u32) -> String {
    if rounds == 1 {
        return "There was one round, so there is no spread.".to_owned();
    }
    format!(
        "The median of {rounds} rounds counts, which went through the rows forwards and backwards in turn; whiskers \
         show the lowest and the highest."
    )
}
