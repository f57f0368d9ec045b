//! Headline: is the storage slow, or the API? Decided from the rates of cold reads, in one sentence.
//!
//! ```text
//!   headwater, plain reads, the fastest other way ─► apart by more than noise? ─► the API, the storage, or not to be told
//! ```
//!
//! Owns: when which answer is given, and its words.
//! Does not own: the rates.

/// A way to read, and what it got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant<'a> {
    pub(super) name: &'a str,
    pub(super) mib_per_s: f64,
    /// The slowest and the fastest round.
    pub(super) spread: (f64, f64),
    pub(super) cpu_s_per_gib: f64,
}

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contest<'a> {
    /// Plain buffered reads.
    pub(super) plain: Contestant<'a>,
    /// The fastest of headwater's rows.
    pub(super) headwater: Option<Contestant<'a>>,
    /// The fastest of all others.
    pub(super) other: Contestant<'a>,
    /// Whether the page cache held nothing before each row.
    pub(super) was_cold: bool,
}

pub(super) fn sentence(contest: &Contest<'_>) -> String {
    let Contest { plain, headwater, other, was_cold } = *contest;
    if !was_cold {
        return "It cannot be told: the page cache kept parts of the file, so these reads were not all cold."
            .to_owned();
    }
    let Some(ours) = headwater else {
        return format!(
            "It cannot be told: headwater has no row here, and plain buffered reads get {}.",
            rate(plain)
        );
    };
    match (is_faster(ours, plain), is_faster(other, plain)) {
        (true, _) => the_api(plain, ours, other),
        (false, true) => format!(
            "It is the API, but headwater does not mend it here: {} reads this device at {}, {} what plain buffered \
             reads get, and headwater at {}.",
            other.name,
            rate(other),
            times(other.mib_per_s / plain.mib_per_s),
            rate(ours)
        ),
        (false, false) if ours.mib_per_s >= plain.mib_per_s * NOTEWORTHY => format!(
            "It cannot be told: headwater reads this device at {}, {} what plain buffered reads get, but the rounds \
             of the two overlap; measure again with more of them.",
            rate(ours),
            times(ours.mib_per_s / plain.mib_per_s)
        ),
        (false, false) => the_storage(plain, ours),
    }
}

fn the_api(plain: Contestant<'_>, ours: Contestant<'_>, other: Contestant<'_>) -> String {
    let mut text = format!(
        "It is the API: headwater reads this device at {}, {} what plain buffered reads get, with {} their processor \
         time",
        rate(ours),
        times(ours.mib_per_s / plain.mib_per_s),
        times(ours.cpu_s_per_gib / plain.cpu_s_per_gib),
    );
    if other.name != plain.name {
        let place = match () {
            () if is_faster(other, ours) => "faster yet is",
            () if is_faster(ours, other) => "the fastest other way is",
            () => "as fast, by all that these rounds can tell, is",
        };
        text += &format!("; {place} {} at {}", other.name, rate(other));
    }
    text + "."
}

fn the_storage(plain: Contestant<'_>, ours: Contestant<'_>) -> String {
    let (ratio, cpu) = (ours.mib_per_s / plain.mib_per_s, ours.cpu_s_per_gib / plain.cpu_s_per_gib);
    let against = match () {
        () if is_faster(plain, ours) => format!("headwater is slower, {} that", times(ratio)),
        () => format!("headwater no more, {} that", times(ratio)),
    };
    format!(
        "It is the storage: plain buffered reads get {} from this device, and {against}, with {} their processor time.",
        rate(plain),
        times(cpu)
    )
}

/// By more than what may be chance: a tenth, and no round of one within the rounds of the other.
fn is_faster(one: Contestant<'_>, other: Contestant<'_>) -> bool {
    one.mib_per_s >= other.mib_per_s * NOTEWORTHY && one.spread.0 > other.spread.1
}

fn rate(contestant: Contestant<'_>) -> String {
    format!("{:.0}\u{a0}MiB/s", contestant.mib_per_s)
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}\u{a0}×")
}

/// Virtual disks differ by a few per cent from one run to the next.
const NOTEWORTHY: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;

    fn contestant(name: &str, mib_per_s: f64, noise: f64, cpu_s_per_gib: f64) -> Contestant<'_> {
        let spread = (mib_per_s * (1.0 - noise), mib_per_s * (1.0 + noise));
        Contestant { name, mib_per_s, spread, cpu_s_per_gib }
    }

    fn said(plain: f64, ours: f64, other: f64, noise: f64) -> String {
        sentence(&Contest {
            plain: contestant("std", plain, noise, 0.4),
            headwater: Some(contestant("headwater tuned", ours, noise, 0.04)),
            other: contestant("O_DIRECT", other, noise, 0.1),
            was_cold: true,
        })
        .replace('\u{a0}', " ")
    }

    /// Goal: each answer where it is due, with its ratio, and no win that is none.
    #[test]
    fn answers() {
        let win = "It is the API: headwater reads this device at 3000 MiB/s, 1.50 × what plain buffered reads get, with \
                   0.10 × their processor time; the fastest other way is O_DIRECT at 2500 MiB/s.";
        assert_eq!(said(2000.0, 3000.0, 2500.0, 0.01), win);
        let beaten = said(2000.0, 3000.0, 4000.0, 0.01);
        assert!(beaten.ends_with("; faster yet is O_DIRECT at 4000 MiB/s."), "{beaten}");
        let even_others = said(2000.0, 3000.0, 3001.0, 0.01);
        assert!(even_others.ends_with("can tell, is O_DIRECT at 3001 MiB/s."), "{even_others}");
        let of_others = said(2000.0, 2000.0, 4000.0, 0.01);
        assert!(of_others.contains("headwater does not mend it here: O_DIRECT"), "{of_others}");
        let noisy = said(2000.0, 3000.0, 2000.0, 0.3);
        assert!(noisy.starts_with("It cannot be told") && noisy.contains("overlap"), "{noisy}");
        let even = said(2000.0, 2020.0, 2000.0, 0.01);
        assert!(even.starts_with("It is the storage: plain buffered reads get 2000"), "{even}");
        assert!(even.contains("headwater no more, 1.01 × that"), "{even}");
        let slower = said(2000.0, 1000.0, 1500.0, 0.01);
        assert!(slower.contains("headwater is slower, 0.50 × that"), "{slower}");
    }

    /// Goal: without cold reads, or without headwater, nothing is claimed.
    #[test]
    fn nothing_to_compare() {
        let plain = contestant("std", 100.0, 0.0, 0.4);
        let contest = Contest { plain, headwater: None, other: plain, was_cold: true };
        assert!(sentence(&contest).starts_with("It cannot be told: headwater has no row here"));
        assert!(sentence(&Contest { was_cold: false, ..contest }).contains("not all cold"));
    }

    /// Goal: plain reads are no other way than themselves.
    #[test]
    fn plain_reads_are_the_fastest_others() {
        let plain = contestant("std", 100.0, 0.0, 0.4);
        let headwater = Some(contestant("headwater", 200.0, 0.0, 0.4));
        let text = sentence(&Contest { plain, headwater, other: plain, was_cold: true });
        assert!(text.replace('\u{a0}', " ").ends_with("with 1.00 × their processor time."), "{text}");
    }
}
