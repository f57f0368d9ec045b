//! Headline: is the storage slow, or the API? Decided from the rates of cold reads, in one sentence.
//!
//! ```text
//!   headwater : the best rival ─► apart by more than chance? ─► the API, how it is used, the storage, or not to be told
//! ```
//!
//! Owns: when which answer is given, and its words.
//! Does not own: the rates, when a difference is one (`headwater-measure`).

use headwater_measure::verdict::{Outcome, best};
use headwater_measure::{Comparison, Row, Whose};

/// `plain` is what programs do that do not think about it. `was_cold`: the page cache held nothing before each row.
pub(super) fn sentence(rows: &[Row], plain: &Row, was_cold: Cold) -> String {
    if was_cold == Cold::No {
        return "It cannot be told: the page cache kept parts of the file, so these reads were not all cold."
            .to_owned();
    }
    let Some(rival) = Comparison::of_best(rows.iter(), RATE) else {
        return format!(
            "It cannot be told: headwater has no row here, and plain buffered reads get {}.",
            rate(plain)
        );
    };
    let (ours, theirs) = (rival.ours, rival.theirs);
    let Some(gain) = Comparison::of(ours, plain, RATE) else { return String::new() };
    let best_gains =
        Comparison::of(theirs, plain, RATE).is_some_and(|other| other.outcome == Outcome::Better);
    match (rival.outcome, gain.outcome) {
        (Outcome::Better, Outcome::Better) => the_api(&rival, &gain),
        (Outcome::Worse, gained) if best_gains => format!(
            "It is the API, but headwater {} it here: {} reads this device at {}, {} what plain buffered reads get, and \
             headwater at {}.",
            if gained == Outcome::Better { "mends only a part of" } else { "does not mend" },
            theirs.name,
            rate(theirs),
            times(theirs.value(RATE).zip(plain.value(RATE)).map_or(1.0, |(their, plain)| their / plain)),
            rate(ours)
        ),
        (_, Outcome::Better) => format!(
            "It is the API, or how it is used: headwater reads this device at {}, no difference to {} at {}; {} gets {}.",
            rate(ours),
            theirs.name,
            rate(theirs),
            plain.name,
            rate(plain)
        ),
        (_, Outcome::NoDifference) if gain.ratio >= HOPEFUL => format!(
            "It cannot be told: headwater reads this device at {}, {} what plain buffered reads get, but the \
             rounds differ too much; measure again with more of them.",
            rate(ours),
            times(gain.ratio)
        ),
        _ => the_storage(&gain),
    }
}

/// Whether a file was read from the device alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cold {
    Yes,
    No,
}

/// The fastest of one side.
pub(super) fn fastest(rows: &[Row], whose: Whose) -> Option<&Row> {
    best(rows.iter().filter(|row| row.whose == whose), RATE)
}

fn the_api(rival: &Comparison<'_>, plain: &Comparison<'_>) -> String {
    let (ours, theirs) = (rival.ours, rival.theirs);
    let against = match theirs.name == plain.theirs.name {
        true => format!("{} what plain buffered reads get", times(plain.ratio)),
        false => format!(
            "{} the best other way ({} at {}) and {} what plain buffered reads get",
            times(rival.ratio),
            theirs.name,
            rate(theirs),
            times(plain.ratio)
        ),
    };
    let cpu = times(cpu(ours) / cpu(plain.theirs));
    format!(
        "It is the API: headwater reads this device at {}, {against}, with {cpu} their processor time.",
        rate(ours)
    )
}

fn the_storage(gain: &Comparison<'_>) -> String {
    let (ours, plain) = (gain.ours, gain.theirs);
    let against = match gain.outcome {
        Outcome::Worse => "headwater is slower",
        Outcome::Better | Outcome::NoDifference => "headwater no more",
    };
    format!(
        "It is the storage: plain buffered reads get {} from this device, and {against}, {} that, with {} their \
         processor time.",
        rate(plain),
        times(gain.ratio),
        times(cpu(ours) / cpu(plain))
    )
}

fn cpu(row: &Row) -> f64 {
    row.value(CPU).unwrap_or(f64::NAN)
}

fn rate(row: &Row) -> String {
    format!("{:.0}\u{a0}MiB/s", row.value(RATE).unwrap_or(0.0))
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}\u{a0}×")
}

pub(super) const RATE: &str = "mib_per_s";
pub(super) const CPU: &str = "cpu_s_per_gib";

/// A ratio that more rounds may prove.
const HOPEFUL: f64 = 1.1;

#[cfg(test)]
mod tests {
    use headwater_measure::{Better, Metric};

    use super::*;

    /// Noise that slows headwater when the others are fast.
    fn row(whose: Whose, name: &str, mib_per_s: f64, noise: f64, cpu_s_per_gib: f64) -> Row {
        let noise = if whose == Whose::Headwater { -noise } else { noise };
        let rates = [1.0 + noise, 1.0, 1.0 - noise].map(|factor| mib_per_s * factor);
        let rate = Metric::new(RATE, "MiB/s", Better::Higher, rates);
        Row::new(whose, name).metric(rate).metric(Metric::new(CPU, "s", Better::Lower, [cpu_s_per_gib]))
    }

    fn said(plain: f64, ours: f64, other: f64, noise: f64) -> String {
        let rows = [
            row(Whose::Peer, "std", plain, noise, 0.4),
            row(Whose::Headwater, "headwater tuned", ours, noise, 0.04),
            row(Whose::Peer, "O_DIRECT", other, noise, 0.1),
        ];
        sentence(&rows, &rows[0], Cold::Yes).replace('\u{a0}', " ")
    }

    /// Goal: each answer where it is due, against the best rival, and no win that is none.
    #[test]
    fn answers() {
        let win = "It is the API: headwater reads this device at 3000 MiB/s, 1.20 × the best other way (O_DIRECT at 2500 MiB/s) \
                   and 1.50 × what plain buffered reads get, with 0.10 × their processor time.";
        assert_eq!(said(2000.0, 3000.0, 2500.0, 0.01), win);
        let beaten = said(2000.0, 3000.0, 4000.0, 0.01);
        assert!(beaten.contains("headwater mends only a part of it here: O_DIRECT reads"), "{beaten}");
        let even_others = said(2000.0, 3000.0, 3001.0, 0.01);
        let expected = "It is the API, or how it is used: headwater reads this device at 3000 MiB/s, no difference to O_DIRECT \
                        at 3001 MiB/s; std gets 2000 MiB/s.";
        assert_eq!(even_others, expected);
        let of_others = said(2000.0, 2000.0, 4000.0, 0.01);
        assert!(of_others.contains("headwater does not mend it here: O_DIRECT"), "{of_others}");
        let noisy = said(2000.0, 3000.0, 2000.0, 0.3);
        assert!(noisy.starts_with("It cannot be told") && noisy.contains("differ too much"), "{noisy}");
        let even = said(2000.0, 2020.0, 2000.0, 0.01);
        assert!(even.starts_with("It is the storage: plain buffered reads get 2000"), "{even}");
        assert!(even.contains("headwater no more, 1.01 × that"), "{even}");
        let slower = said(2000.0, 1000.0, 1500.0, 0.01);
        assert!(slower.contains("headwater is slower, 0.50 × that"), "{slower}");
    }

    /// Goal: without cold reads, or without headwater, nothing is claimed.
    #[test]
    fn nothing_to_compare() {
        let plain = row(Whose::Peer, "std", 100.0, 0.0, 0.4);
        let rows = std::slice::from_ref(&plain);
        assert!(
            sentence(rows, &plain, Cold::Yes).starts_with("It cannot be told: headwater has no row here")
        );
        assert!(sentence(rows, &plain, Cold::No).contains("not all cold"));
    }

    /// Goal: plain reads are no other way than themselves.
    #[test]
    fn plain_reads_are_the_fastest_others() {
        let rows =
            [row(Whose::Peer, "std", 100.0, 0.0, 0.4), row(Whose::Headwater, "headwater", 200.0, 0.0, 0.4)];
        let text = sentence(&rows, &rows[0], Cold::Yes).replace('\u{a0}', " ");
        assert!(
            text.ends_with("2.00 × what plain buffered reads get, with 1.00 × their processor time."),
            "{text}"
        );
    }
}
