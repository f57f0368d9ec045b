//! Random: seeded random numbers, and seeds that a failing test prints with the command that replays it.
//!
//! ```text
//!   HEADWATER_SEED set? ─ yes ─► that seed
//!                       └ no ──► mix(test name, time) ─► test ─ panics ─► seed and command on stderr
//! ```
//!
//! Owns: the generator, the choice of a seed, the message after a failure.
//! Does not own: contents (see `pattern`).

use std::env;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Splitmix64: small, fast, and equal on every machine. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator whose numbers are decided by `seed` alone.
    #[must_use]
    pub const fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// A number in `0..bound`; `bound` must not be 0. The bias (Lemire's multiplication without its rejection
    /// step) is below `bound / 2^64`, which no test can see.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below 0 was asked for");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..high`; the range must not be empty.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "the range {low}..{high} is empty");
        low + self.below(high - low)
    }

    /// True in `numerator` of `denominator` cases.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}

/// The output function of splitmix64: a bijection on 64 bits that leaves no visible trace of its input's order.
#[must_use]
pub const fn mix(input: u64) -> u64 {
    let mixed = (input ^ (input >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The seed for the test `name`: the value of `HEADWATER_SEED` (decimal, or hexadecimal after `0x`), else one made
/// of the name and the time.
///
/// # Panics
/// When `HEADWATER_SEED` holds no number: a replay with a mistyped seed must not pass for one.
#[must_use]
pub fn seed_from_env(name: &str) -> u64 {
    match env::var(SEED_VARIABLE) {
        Ok(text) => parse_seed(&text).unwrap_or_else(|| panic!("{SEED_VARIABLE}={text} is not a number")),
        Err(_) => name.bytes().fold(nanoseconds_now(), |seed, byte| mix(seed ^ u64::from(byte))),
    }
}

/// Runs `test` with the seed for `test_name`, the full path of the test within its binary
/// (`module::tests::name`). If it panics, the seed and the exact command that replays it go to stderr.
pub fn with_seed<T>(test_name: &str, test: impl FnOnce(u64) -> T) -> T {
    let guard = SeedGuard::new(test_name);
    test(guard.seed())
}

/// Holds the seed of a test; dropped by a panic, it prints the seed and the command that replays the test.
#[derive(Debug)]
pub struct SeedGuard {
    test_name: String,
    seed: u64,
}

impl SeedGuard {
    /// Takes the seed for `test_name` from [`seed_from_env`].
    #[must_use]
    pub fn new(test_name: &str) -> SeedGuard {
        SeedGuard { test_name: test_name.to_owned(), seed: seed_from_env(test_name) }
    }

    /// The seed this test runs with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn replay_command(&self) -> String {
        // cargo sets the variable for the tests it runs. Without it every crate is asked for the name.
        let package =
            env::var("CARGO_PKG_NAME").map_or("--workspace".to_owned(), |name| format!("-p {name}"));
        format!("{SEED_VARIABLE}={:#x} cargo test {package} -- --exact {}", self.seed, self.test_name)
    }
}

impl Drop for SeedGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("seed {:#x}; replay with: {}", self.seed, self.replay_command());
        }
    }
}

fn parse_seed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn nanoseconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// The step of the state: 2^64 divided by the golden ratio, odd, so that the state visits all 2^64 values.
pub(crate) const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

const SEED_VARIABLE: &str = "HEADWATER_SEED";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the generator is the published one. Method: the reference outputs for seed 1234567.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        let expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431];
        assert_eq!(expected.map(|_| rng.next_u64()), expected);
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut rng = Rng::new(1);
        let numbers: Vec<u64> = (0..1000).map(|_| rng.range(5, 12)).collect();
        assert_eq!(numbers.iter().min(), Some(&5));
        assert_eq!(numbers.iter().max(), Some(&11));
        assert!((0..100).all(|_| rng.chance(1, 1) && !rng.chance(0, 1)));
    }

    #[test]
    fn seeds_are_read_in_both_notations() {
        assert_eq!(parse_seed("0xff"), Some(255));
        assert_eq!(parse_seed("17"), Some(17));
        assert_eq!(parse_seed("seed"), None);
    }

    #[test]
    fn the_replay_command_names_seed_and_test() {
        let guard = SeedGuard { test_name: "a::b".to_owned(), seed: 255 };
        let command = guard.replay_command();
        assert!(command.starts_with("HEADWATER_SEED=0xff cargo test "), "{command}");
        assert!(command.ends_with(" -- --exact a::b"), "{command}");
    }
}
