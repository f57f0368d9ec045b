//! Digest: hash algorithms, and a hash being computed.
//!
//! Owns: which algorithms there are, how their results are written.
//! Does not own: how many threads hash.

use std::fmt::Write;

use clap::ValueEnum;
use rayon::ThreadPool;
use sha2::Digest as _;
use xxhash_rust::xxh3::Xxh3;

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    /// BLAKE3, 256 bits; large files are hashed by all threads together.
    Blake3,
    /// SHA-256.
    Sha256,
    /// XXH3, 128 bits; not cryptographic.
    Xxh3,
    /// CRC-32C (Castagnoli), 32 bits; detects accidental damage only.
    Crc32c,
}

impl Algorithm {
    /// Hexadecimal digits of a result.
    pub(super) fn digits(self) -> usize {
        match self {
            Algorithm::Blake3 | Algorithm::Sha256 => 64,
            Algorithm::Xxh3 => 32,
            Algorithm::Crc32c => 8,
        }
    }

    /// The other algorithms with results of the same length.
    pub(super) fn of_equal_length(self) -> impl Iterator<Item = Algorithm> {
        let all = Algorithm::value_variants().iter().copied();
        all.filter(move |other| *other != self && other.digits() == self.digits())
    }

    /// The name that `--hash` takes.
    pub(super) fn argument(self) -> String {
        self.to_possible_value().expect("none is hidden").get_name().to_owned()
    }

    /// The algorithm that a tag names, as `sha256sum --tag`, `b3sum --tag` and others write it in front of a sum.
    pub(super) fn of_tag(tag: &str) -> Option<Algorithm> {
        match tag {
            "BLAKE3" => Some(Algorithm::Blake3),
            "SHA256" | "SHA2-256" => Some(Algorithm::Sha256),
            "XXH128" => Some(Algorithm::Xxh3),
            "CRC32C" => Some(Algorithm::Crc32c),
            _ => None,
        }
    }

    /// Algorithms that this command does not have, and whose sums look the same.
    pub(super) fn confused_with(self) -> &'static str {
        match self {
            Algorithm::Blake3 | Algorithm::Sha256 => "BLAKE2 or SHA3-256",
            Algorithm::Xxh3 => "MD5",
            Algorithm::Crc32c => "CRC-32",
        }
    }

    /// The name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Algorithm::Blake3 => "BLAKE3",
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Xxh3 => "XXH3",
            Algorithm::Crc32c => "CRC-32C",
        }
    }
}

/// A hash being computed.
pub(super) enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
    Xxh3(Box<Xxh3>),
    Crc32c(u32),
}

impl Hasher {
    pub(super) fn new(algorithm: Algorithm) -> Hasher {
        match algorithm {
            Algorithm::Blake3 => Hasher::Blake3(Box::default()),
            Algorithm::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
            Algorithm::Xxh3 => Hasher::Xxh3(Box::default()),
            Algorithm::Crc32c => Hasher::Crc32c(0),
        }
    }

    /// Hashes in this thread.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Blake3(hasher) => drop(hasher.update(bytes)),
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Xxh3(hasher) => hasher.update(bytes),
            Hasher::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
        }
    }

    /// Hashes in all threads of the pool. `false`, and nothing is hashed, if the algorithm is sequential.
    pub(super) fn update_in(&mut self, pool: &ThreadPool, bytes: &[u8]) -> bool {
        let Hasher::Blake3(hasher) = self else { return false };
        pool.install(|| hasher.update_rayon(bytes));
        true
    }

    /// The sum in hexadecimal digits, as the standard tools print it.
    pub(super) fn finish(self) -> String {
        match self {
            Hasher::Blake3(hasher) => hasher.finalize().to_hex().to_string(),
            Hasher::Sha256(hasher) => hexadecimal(&hasher.finalize()),
            Hasher::Xxh3(hasher) => format!("{:032x}", hasher.digest128()),
            Hasher::Crc32c(sum) => format!("{sum:08x}"),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(algorithm: Algorithm, parts: &[&[u8]]) -> String {
        let mut hasher = Hasher::new(algorithm);
        parts.iter().for_each(|part| hasher.update(part));
        hasher.finish()
    }

    /// Goal: the published values of "123456789" (CRC-32C: RFC 3720's polynomial) and of nothing.
    #[test]
    fn known_values() {
        let known = [
            (Algorithm::Crc32c, "123456789", "e3069283"),
            (Algorithm::Sha256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (Algorithm::Xxh3, "", "99aa06d3014798d86001c324468d497f"),
            (Algorithm::Blake3, "", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        ];
        for (algorithm, text, expected) in known {
            assert_eq!(hash(algorithm, &[text.as_bytes()]), expected);
            assert_eq!(expected.len(), algorithm.digits());
        }
    }

    /// Goal: parts give the hash of the whole, whichever threads take them.
    #[test]
    fn parts_agree_with_the_whole() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|index| (index * 7 / 3) as u8).collect();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for &algorithm in Algorithm::value_variants() {
            let whole = hash(algorithm, &[&bytes]);
            let mut hasher = Hasher::new(algorithm);
            for part in bytes.chunks(300_001) {
                if !hasher.update_in(&pool, part) {
                    hasher.update(part);
                }
            }
            assert_eq!(hasher.finish(), whole);
        }
    }
}
