//! Shape: lengths of functions and files, parameters of public functions, macros left behind.
//!
//! Owns: what counts as a function, a body, test code.
//! Does not own: the style behind the limits; they keep a reader from having to scroll.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, FnArg, Item, Signature, Visibility};

use crate::repository::Finding;

/// Functions (those of tests too) and files (without their `#[cfg(test)]` modules) that are too long.
pub(crate) fn check_lengths(path: &str, text: &str) -> Vec<Finding> {
    let file = match syn::parse_file(text) {
        Ok(file) => file,
        Err(error) => {
            return vec![Finding::new(path, error.span().start().line, format!("does not parse: {error}"))];
        }
    };
    let mut findings: Vec<Finding> = functions(&file, TestCode::Included)
        .into_iter()
        .filter(|function| function.length > FUNCTION_LINES_MAX)
        .map(|function| {
            let message = format!(
                "`{}` has {} lines, {FUNCTION_LINES_MAX} are allowed; split off what has a name of its own",
                function.name, function.length
            );
            Finding::new(path, function.line, message)
        })
        .collect();
    let lines = text.lines().count() - lines_of_tests(&file);
    if lines > FILE_LINES_MAX {
        let message =
            format!("{lines} lines without tests, {FILE_LINES_MAX} are allowed; a file is one concept");
        findings.push(Finding::new(path, 1, message));
    }
    findings
}

/// The lengths of all functions outside of tests; none for a file that does not parse, which others report.
pub(crate) fn function_lengths(text: &str) -> Vec<usize> {
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    functions(&file, TestCode::Excluded).iter().map(|function| function.length).collect()
}

/// Of the functions of a crate nine in ten have to be short.
pub(crate) fn check_share(path: &str, lengths: &[usize]) -> Option<Finding> {
    let long = lengths.iter().filter(|&&length| length > FUNCTION_LINES_USUAL).count();
    if long * 10 <= lengths.len() {
        return None;
    }
    let message = format!(
        "{long} of {} functions have more than {FUNCTION_LINES_USUAL} lines; at most a tenth may",
        lengths.len()
    );
    Some(Finding::new(path, 1, message))
}

/// `bool` as a parameter of a `pub fn` or of a function of a `pub trait`.
pub(crate) fn check_bool_parameters(path: &str, text: &str) -> Vec<Finding> {
    let mut visitor = BoolParameters::default();
    if let Ok(file) = syn::parse_file(text) {
        visitor.visit_file(&file);
    }
    let message = "a `bool` parameter says nothing where it is passed; make it an enum of two";
    visitor.lines.into_iter().map(|line| Finding::new(path, line, message)).collect()
}

/// `todo!`, `unimplemented!` and `dbg!`, in tests and macros too.
pub(crate) fn check_placeholders(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    collect_placeholders(text.parse().unwrap_or_default(), &mut found);
    let finding =
        |(name, line)| Finding::new(path, line, format!("`{name}!` is left; finish it or take it out"));
    found.into_iter().map(finding).collect()
}

/// Constants and functions that core and io define for all.
pub(crate) fn check_copies(path: &str, text: &str) -> Vec<Finding> {
    let copied = |line: &str| {
        COPIES.iter().find(|(copy, _)| line.trim_start().trim_start_matches("pub(crate) ").starts_with(copy))
    };
    let lines = (1..).zip(text.lines());
    lines
        .filter_map(|(line, content)| {
            let (_, instead) = copied(content)?;
            Some(Finding::new(path, line, format!("defined once; use {instead}")))
        })
        .collect()
}

const COPIES: [(&str, &str); 2] =
    [("const PAGE_BYTES:", "that of `headwater_core::units`"), ("fn lock<T>(mutex", "`headwater_io::lock`")];

#[derive(Clone, Copy, PartialEq, Eq)]
enum TestCode {
    Included,
    Excluded,
}

struct Function {
    name: String,
    line: usize,
    /// Lines between the braces.
    length: usize,
}

fn functions(file: &syn::File, test_code: TestCode) -> Vec<Function> {
    let mut visitor = Functions { found: Vec::new(), test_code };
    visitor.visit_file(file);
    visitor.found
}

struct Functions {
    found: Vec<Function>,
    test_code: TestCode,
}

impl Functions {
    fn add(&mut self, signature: &Signature, block: &Block) {
        let braces = block.brace_token.span;
        let (open, close) = (braces.open().start().line, braces.close().start().line);
        let length = (close - open).saturating_sub(1).max(1);
        let line = signature.ident.span().start().line;
        self.found.push(Function { name: signature.ident.to_string(), line, length });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if self.test_code == TestCode::Included || !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[derive(Default)]
struct BoolParameters {
    lines: Vec<usize>,
}

/// Functions that have name, parameter and meaning of one of the standard library (`OpenOptions::append`), or of a type that another
/// one takes the place of (`LocalFileSystem::with_fsync`).
const AS_ELSEWHERE: [&str; 7] = ["append", "create", "create_new", "read", "truncate", "with_fsync", "write"];

impl BoolParameters {
    fn add(&mut self, visibility: &Visibility, signature: &Signature) {
        if !matches!(visibility, Visibility::Public(_))
            || AS_ELSEWHERE.iter().any(|name| signature.ident == name)
        {
            return;
        }
        let bools = signature.inputs.iter().filter(|input| match input {
            FnArg::Typed(typed) => matches!(&*typed.ty, syn::Type::Path(path) if path.path.is_ident("bool")),
            FnArg::Receiver(_) => false,
        });
        self.lines.extend(bools.map(|input| input.span().start().line));
    }
}

impl<'ast> Visit<'ast> for BoolParameters {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.vis, &item.sig);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.vis, &item.sig);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        for member in &item.items {
            if let syn::TraitItem::Fn(function) = member {
                self.add(&item.vis, &function.sig);
            }
        }
        visit::visit_item_trait(self, item);
    }
}

fn lines_of_tests(file: &syn::File) -> usize {
    let modules = file.items.iter().filter_map(|item| match item {
        Item::Mod(module) if is_test(&module.attrs) => Some(module.span()),
        _ => None,
    });
    modules.map(|span| span.end().line - span.start().line + 1).sum()
}

/// `#[cfg(test)]`, also within `all(…)`.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let tokens = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        tokens == "test"
            || tokens.starts_with("all") && tokens.split([' ', '(', ')', ',']).any(|word| word == "test")
    })
}

fn collect_placeholders(tokens: TokenStream, found: &mut Vec<(String, usize)>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => collect_placeholders(group.stream(), found),
            TokenTree::Ident(word) if PLACEHOLDERS.iter().any(|name| word == name) => {
                if matches!(tokens.peek(), Some(TokenTree::Punct(mark)) if mark.as_char() == '!') {
                    found.push((word.to_string(), word.span().start().line));
                }
            }
            _ => {}
        }
    }
}

const PLACEHOLDERS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// What fits on a screen; no function of the code bases the style is taken from needs more.
const FUNCTION_LINES_MAX: usize = 70;

/// What nine functions in ten stay below in those code bases.
const FUNCTION_LINES_USUAL: usize = 30;

/// Above this a file holds a second concept.
const FILE_LINES_MAX: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines))
    }

    #[test]
    fn long_functions_are_found_everywhere() {
        assert_eq!(check_lengths("a.rs", &function_of(70)), Vec::new());
        let wrappers =
            [("", ""), ("impl A {\n", "}\n"), ("trait A {\n", "}\n"), ("#[cfg(test)]\nmod tests {\n", "}\n")];
        for (before, after) in wrappers {
            let findings = check_lengths("a.rs", &format!("{before}{}{after}", function_of(71)));
            assert_eq!(findings.len(), 1, "{before}");
            assert_eq!(findings[0].line, before.lines().count() + 1);
        }
    }

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let code = "const A: u8 = 1;\n".repeat(600);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    const B: u8 = 1;\n".repeat(50));
        assert_eq!(check_lengths("a.rs", &format!("{code}{tests}")), Vec::new());
        assert_eq!(check_lengths("a.rs", &format!("{code}const A: u8 = 1;\n{tests}")).len(), 1);
    }

    #[test]
    fn a_tenth_of_the_functions_may_be_longer() {
        let text = format!(
            "{}{}#[cfg(test)]\nmod tests {{ fn g() {{}} }}\n",
            function_of(31),
            "fn f() {}\n".repeat(9)
        );
        let mut lengths = function_lengths(&text);
        assert_eq!(lengths.len(), 10, "tests do not count");
        assert_eq!(check_share("a", &lengths), None);
        lengths.pop();
        assert!(check_share("a", &lengths).is_some());
        assert_eq!(check_share("a", &[]), None);
    }

    #[test]
    fn bool_parameters_of_public_functions_are_found() {
        for text in [
            "pub fn f(a: u8, b: bool) {}",
            "impl A { pub fn f(&self, a: bool) {} }",
            "pub trait A { fn f(a: bool); }",
        ] {
            assert_eq!(check_bool_parameters("a.rs", text).len(), 1, "{text}");
        }
        for text in [
            "fn f(a: bool) {}",
            "pub(crate) fn f(a: bool) {}",
            "pub fn f() -> bool {}",
            "impl B for A { fn f(a: bool) {} }",
        ] {
            assert_eq!(check_bool_parameters("a.rs", text), Vec::new(), "{text}");
        }
    }

    #[test]
    fn placeholders_are_found_in_code_only() {
        let text =
            "fn f() {\n    // todo!()\n    let todo = \"dbg!()\";\n    vec![dbg!(1)];\n    todo!()\n}\n";
        let lines: Vec<usize> = check_placeholders("a.rs", text).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [4, 5]);
    }
}
