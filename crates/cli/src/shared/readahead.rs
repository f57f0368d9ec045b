//! Readahead: names of readahead policies on command lines and in tables.
//!
//! Owns: parsing and naming.
//! Does not own: the policies.

use headwater::ReadaheadPolicy;

/// `off`, `linux`, `adaptive` or `fixed:N`.
pub(crate) fn parse(text: &str) -> Result<ReadaheadPolicy, String> {
    let fixed = |pages: &str| pages.parse().ok().filter(|pages| (1..=FIXED_PAGES_MAX).contains(pages));
    match text {
        "off" => Ok(ReadaheadPolicy::Off),
        "linux" => Ok(ReadaheadPolicy::Linux),
        "adaptive" => Ok(ReadaheadPolicy::Adaptive),
        _ => text.strip_prefix("fixed:").and_then(fixed).map(ReadaheadPolicy::Fixed).ok_or_else(|| {
            format!("readahead is off, linux, adaptive or fixed:N with N from 1 to {FIXED_PAGES_MAX} pages")
        }),
    }
}

/// The name of a policy, as [`parse`] takes it.
pub(crate) fn name(policy: ReadaheadPolicy) -> String {
    match policy {
        ReadaheadPolicy::Fixed(pages) => format!("fixed:{pages}"),
        named => format!("{named:?}").to_lowercase(),
    }
}

/// The default limit of the readahead distance: 8 MiB.
const FIXED_PAGES_MAX: u32 = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each name means its policy, and nothing else means any.
    #[test]
    fn names_are_parsed() {
        for text in ["off", "linux", "adaptive", "fixed:1", "fixed:2048"] {
            assert_eq!(name(parse(text).unwrap()), text);
        }
        for text in ["", "on", "fixed", "fixed:", "fixed:0", "fixed:2049", "fixed:-1", "Off"] {
            assert!(parse(text).unwrap_err().contains("fixed:N"), "{text}");
        }
    }
}
