//! Unsafety: where `unsafe` may stand, and the comment that must stand above it.
//!
//! Works on tokens, so comments, strings and doc examples do not count, and code inside macros does.

use proc_macro2::{TokenStream, TokenTree};

use crate::repository::Finding;

/// What the root of a crate says about unsafe code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// There is none.
    Forbid,
    /// One named file allows it.
    Deny,
}

/// A crate root has to forbid unsafe code, or to deny it where one file may have some; other modules pass.
pub(crate) fn check_root(path: &str, text: &str, level: Level) -> Option<Finding> {
    let root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("/src/bin/");
    let wanted = match level {
        Level::Forbid => "#![forbid(unsafe_code)]",
        Level::Deny => "#![deny(unsafe_code)]",
    };
    let says = |line: &str| line.split("//").next().is_some_and(|code| code.trim() == wanted);
    if !root || text.lines().any(says) {
        return None;
    }
    let message = format!("unsafe code is not ruled out; add `{wanted}` below the module doc");
    Some(Finding::new(path, 1, message))
}

/// No `unsafe` at all.
pub(crate) fn check_none(path: &str, text: &str) -> Vec<Finding> {
    let message = "`unsafe` outside of crates/io; put the operation there, behind a safe function";
    unsafe_tokens(text).into_iter().map(|token| Finding::new(path, token.line, message)).collect()
}

/// Every `unsafe` block and `unsafe impl` has `// SAFETY:` above its statement.
pub(crate) fn check_safety(path: &str, text: &str) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().collect();
    unsafe_tokens(text)
        .into_iter()
        .filter(|token| token.promises && !is_explained(&lines, token.line))
        .map(|token| {
            let message =
                "`unsafe` without a reason; say in a `// SAFETY:` comment just above why it is sound";
            Finding::new(path, token.line, message)
        })
        .collect()
}

struct UnsafeToken {
    line: usize,
    /// A block or an impl: here the author promises. In `unsafe fn` the caller does, and its doc says what.
    promises: bool,
}

fn unsafe_tokens(text: &str) -> Vec<UnsafeToken> {
    let tokens: TokenStream = text.parse().unwrap_or_default();
    let mut found = Vec::new();
    collect(tokens, &mut found);
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<UnsafeToken>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(word) if word == "unsafe" => {
                let promises = tokens.peek().is_some_and(is_block_or_impl);
                found.push(UnsafeToken { line: word.span().start().line, promises });
            }
            _ => {}
        }
    }
}

fn is_block_or_impl(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::Brace,
        TokenTree::Ident(word) => word == "impl",
        _ => false,
    }
}

/// Walks up from the line (counted from 1) through the start of its statement, attributes and comments.
fn is_explained(lines: &[&str], line: usize) -> bool {
    let mut code_lines = 0;
    for above in lines[..line - 1].iter().rev().map(|above| above.trim()) {
        if above.starts_with("// SAFETY:") {
            return true;
        }
        if above.starts_with("//") || above.starts_with("#[") {
            continue;
        }
        code_lines += 1;
        let other_statement = above.is_empty() || above.ends_with([';', '{', '}', ',']);
        if other_statement || code_lines > STATEMENT_LINES_MAX {
            return false;
        }
    }
    false
}

/// How many lines of its own statement may stand between the comment and the keyword.
const STATEMENT_LINES_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_without_the_attribute_are_found() {
        let forbids = |path, text| check_root(path, text, Level::Forbid).is_none();
        assert!(!forbids("crates/a/src/lib.rs", "//! A.\n"));
        assert!(!forbids("crates/a/src/main.rs", "// #![forbid(unsafe_code)]\n"));
        assert!(!forbids("crates/a/src/lib.rs", "//! A.\n#![deny(unsafe_code)]\n"));
        assert!(forbids("crates/a/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n"));
        assert!(forbids("crates/a/src/module.rs", "//! A.\n"));
    }

    #[test]
    fn roots_with_one_unsafe_file_deny() {
        let denies = |text| check_root("crates/a/src/lib.rs", text, Level::Deny).is_none();
        assert!(denies("//! A.\n#![deny(unsafe_code)] // for the sake of one file\n"));
        assert!(!denies("//! A.\n"));
    }

    #[test]
    fn the_keyword_is_found_in_code_only() {
        let text = "// unsafe\nconst A: &str = \"unsafe\";\nmacro_rules! m { () => { unsafe { f() } } }\nunsafe fn f() {}\n";
        let lines: Vec<usize> = check_none("a.rs", text).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [3, 4]);
    }

    #[test]
    fn blocks_without_a_reason_are_found() {
        let bare = [
            "fn f() {\n    unsafe { g() }\n}\n",
            "unsafe impl Send for A {}\n",
            "fn f() {\n    // SAFETY: fine.\n    let a = unsafe { g() };\n    let b = unsafe { g() };\n}\n",
            "// SAFETY: of something else.\n\nunsafe impl Send for A {}\n",
            "fn f() {\n    // This is fine.\n    unsafe { g() }\n}\n",
        ];
        for text in bare {
            assert_eq!(check_safety("a.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn blocks_with_a_reason_pass() {
        let explained = [
            "fn f() {\n    // SAFETY: a reason\n    // of two lines.\n    unsafe { g() }\n}\n",
            "// SAFETY: a reason.\n#[cfg(unix)]\nunsafe impl Send for A {}\n",
            "fn f() {\n    // SAFETY: a reason.\n    let a =\n        unsafe { g() };\n}\n",
            "/// # Safety\n/// The caller promises.\nunsafe fn f() {}\n",
        ];
        for text in explained {
            assert_eq!(check_safety("a.rs", text), Vec::new(), "{text}");
        }
    }
}
