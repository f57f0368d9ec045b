//! Tidy: the rules of the house that a machine can check, over the whole repository.
//!
//! ```text
//!   repository ─► checker (a pure function of path and text) ─► findings: file:line, what, how to mend
//! ```
//!
//! One test a rule. The checkers have unit tests of their own, on snippets that break the rule, so that a checker
//! that has gone blind is noticed.
//!
//! Owns: which rule applies to which files.
//! Does not own: the rules themselves (see the modules).

#![forbid(unsafe_code)]

mod documents;
mod edges;
mod examples;
mod links;
mod local_files;
mod module_docs;
mod mutations;
mod publishing;
mod repository;
mod rooms;
mod shape;
mod unsafety;

use std::fs;

use repository::{Crate, Finding, SourceFile, crates, tracked_text_files};

#[test]
fn dependencies_between_crates_point_down_only() {
    report(crates().iter().flat_map(|krate| edges::check(&krate.manifest_path(), &krate.manifest)));
}

#[test]
fn imports_within_a_crate_point_down_and_make_no_circles() {
    report(crates().iter().flat_map(|krate| rooms::check(&krate.folder, &krate.sources())));
}

#[test]
fn crate_roots_forbid_unsafe_code() {
    report(
        sources(|krate| !may_be_unsafe(krate))
            .filter_map(|file| unsafety::check_root(&file.path, &file.text, level_of(&file.path))),
    );
}

#[test]
fn unsafe_stays_in_its_crates() {
    report(
        all_sources(|krate| !may_be_unsafe(krate))
            .filter(|file| UNSAFE_FILES.iter().all(|(path, _)| *path != file.path))
            .flat_map(|file| unsafety::check_none(&file.path, &file.text)),
    );
}

#[test]
fn unsafe_blocks_say_why_they_are_sound() {
    report(all_sources(|_| true).flat_map(|file| unsafety::check_safety(&file.path, &file.text)));
}

#[test]
fn modules_begin_with_their_doc() {
    report(sources(|_| true).flat_map(|file| module_docs::check(&file.path, &file.text)));
}

#[test]
fn docs_of_published_crates_are_for_users() {
    let published = crates().into_iter().filter(|krate| !krate.manifest.contains("publish = false"));
    report(published.flat_map(|krate| {
        let sources = krate.sources();
        let root = sources.iter().find(|file| file.path == format!("{}/src/lib.rs", krate.folder));
        root.map(|root| module_docs::check_rendered(root, &sources)).unwrap_or_default()
    }));
}

#[test]
fn published_crates_say_what_a_registry_shows() {
    report(crates().iter().flat_map(|krate| publishing::check(&krate.manifest_path(), &krate.manifest)));
}

#[test]
fn packages_hold_sources_readme_and_licences() {
    let all = crates();
    let published = all.iter().filter(|krate| publishing::is_published(&krate.manifest));
    report(published.flat_map(|krate| {
        let files = publishing::packed(&repository::root().join(krate.manifest_path()));
        let readme = format!("{}/README.md", krate.folder);
        let text =
            fs::read_to_string(repository::root().join(&readme)).expect("each published crate has one");
        let dead = publishing::check_readme(&readme, &text, &files);
        publishing::check_packed(&krate.manifest_path(), &files).into_iter().chain(dead)
    }));
}

#[test]
fn no_stray_files_are_tracked() {
    report(repository::tracked_paths().iter().filter_map(|path| documents::check_place(path)));
}

#[test]
fn links_of_documents_lead_somewhere() {
    let documents: Vec<_> =
        tracked_text_files().into_iter().filter(|(path, _)| path.ends_with(".md")).collect();
    report(links::check(&documents, |path| repository::root().join(path).exists()).into_iter());
}

#[test]
fn public_names_are_shown_in_the_guide() {
    let root = fs::read_to_string(repository::root().join("crates/engine/src/lib.rs")).expect("it is there");
    let pages = tracked_text_files().into_iter().filter(|(path, _)| path.starts_with(links::GUIDE));
    report(documents::check_shown(&root, &pages.map(|(_, text)| text).collect::<String>()).into_iter());
}

#[test]
fn examples_of_the_readme_are_whole() {
    let text = fs::read_to_string(repository::root().join("README.md")).expect("it is there");
    report(documents::check_examples("README.md", &text).into_iter());
}

#[test]
fn public_methods_are_called_in_examples() {
    let engine = crates().into_iter().find(|krate| krate.folder == "crates/engine").expect("it is there");
    let sources: Vec<SourceFile> =
        engine.sources().into_iter().filter(|file| file.path.starts_with("crates/engine/src/api/")).collect();
    let is_read = |path: &str| {
        path.starts_with(links::GUIDE)
            || path.ends_with("README.md")
            || path.contains("crates/engine/examples/")
    };
    let others = tracked_text_files().into_iter().filter(|(path, _)| is_read(path)).map(|(_, text)| text);
    report(examples::check(&sources, &others.collect::<String>()).into_iter());
}

#[test]
fn local_files_keep_in_their_thread_what_they_return() {
    report(
        crates()
            .iter()
            .filter(|krate| krate.folder == "crates/engine")
            .flat_map(|krate| local_files::check(&krate.sources())),
    );
}

#[test]
fn functions_and_files_are_short() {
    report(all_sources(|_| true).flat_map(|file| shape::check_lengths(&file.path, &file.text)));
}

#[test]
fn most_functions_of_a_crate_are_short() {
    report(crates().iter().filter_map(|krate| {
        let lengths: Vec<usize> =
            krate.sources().iter().flat_map(|file| shape::function_lengths(&file.text)).collect();
        shape::check_share(&krate.manifest_path(), &lengths)
    }));
}

#[test]
fn public_functions_take_no_bool() {
    report(sources(|_| true).flat_map(|file| shape::check_bool_parameters(&file.path, &file.text)));
}

#[test]
fn no_placeholder_macros_are_left() {
    report(all_sources(|_| true).flat_map(|file| shape::check_placeholders(&file.path, &file.text)));
}

#[test]
fn files_name_only_what_belongs_to_the_project() {
    report(tracked_text_files().iter().flat_map(|(path, text)| documents::check_words(path, text)));
}

#[test]
fn docs_name_what_acts() {
    report(sources(|_| true).flat_map(|file| documents::check_docs(&file.path, &file.text)));
}

#[test]
fn constants_of_all_crates_are_defined_once() {
    report(
        all_sources(|krate| !["crates/core", "crates/arceos/demo"].contains(&krate.folder.as_str()))
            .flat_map(|file| shape::check_copies(&file.path, &file.text)),
    );
}

#[test]
fn the_architecture_gives_every_crate_and_dependency_its_reason() {
    let path = repository::root().join("ARCHITECTURE.md");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("ARCHITECTURE.md is missing: {error}"));
    report(crates().iter().flat_map(|krate| documents::check_architecture(&text, &krate.manifest)));
}

#[test]
fn faults_put_in_by_hand_still_fit_the_code() {
    let files = tracked_text_files();
    let (script, root) = (format!("{}run", mutations::FOLDER), repository::root());
    let script = &files.iter().find(|(path, _)| *path == script).expect("the script is beside the patches").1;
    let is_patch = |path: &str| path.starts_with(mutations::FOLDER) && path.ends_with(".patch");
    let patches: Vec<_> = files.iter().filter(|(path, _)| is_patch(path)).collect();
    assert!(!patches.is_empty(), "there are no patches in {}", mutations::FOLDER);
    report(patches.into_iter().flat_map(|(path, patch)| {
        let applies = mutations::check_applies(&root, path, patch);
        mutations::check(path, patch, script).into_iter().chain(applies)
    }));
}

/// `io` holds all the unsafe code there is; the benchmarks call competitors and the kernel in ways nobody ships.
fn may_be_unsafe(krate: &Crate) -> bool {
    ["crates/io", "crates/bench"].contains(&krate.folder.as_str())
}

/// The one file with unsafe code in a crate that has none otherwise, and the root of that crate, which denies what it
/// would else forbid: a command looks at its descriptors before `main`; tests of forked children need `fork(2)`, a hang is reported by
/// signals, and a soak needs the allocator's own count; a cache inside of a kernel has memory of its own; a kernel finds its application by a name that is not
/// mangled; a node of ArceOS's VFS has to have an `unsafe fn`; programs access what they have mapped by its address; guard pages lie around the buffers of fuzz targets.
const UNSAFE_FILES: [(&str, &str); 11] = [
    ("crates/measure/src/standard.rs", "crates/measure/src/lib.rs"),
    ("crates/testkit/src/fork.rs", "crates/testkit/src/lib.rs"),
    ("crates/testkit/src/hang.rs", "crates/testkit/src/lib.rs"),
    ("crates/testkit/src/heap.rs", "crates/testkit/src/lib.rs"),
    ("crates/testkit/src/lazy.rs", "crates/testkit/src/lib.rs"),
    ("crates/kernel/src/frames.rs", "crates/kernel/src/lib.rs"),
    ("crates/arceos/demo/src/main.rs", "crates/arceos/demo/src/main.rs"),
    ("crates/arceos/demo/src/mapped.rs", "crates/arceos/demo/src/main.rs"),
    ("crates/arceos/tests/host/node.rs", "crates/arceos/tests/host/main.rs"),
    ("crates/arceos/tests/host/address_space.rs", "crates/arceos/tests/host/main.rs"),
    ("fuzz/src/guarded.rs", "fuzz/src/lib.rs"),
];

/// What the root of a crate has to say about unsafe code.
fn level_of(root: &str) -> unsafety::Level {
    match UNSAFE_FILES.iter().any(|(_, denying)| *denying == root) {
        true => unsafety::Level::Deny,
        false => unsafety::Level::Forbid,
    }
}

/// What lies in `src` of the crates that match.
fn sources(wanted: impl Fn(&Crate) -> bool) -> impl Iterator<Item = SourceFile> {
    crates().into_iter().filter(wanted).flat_map(|krate| krate.sources())
}

/// The same, and tests, benches, examples and build scripts.
fn all_sources(wanted: impl Fn(&Crate) -> bool) -> impl Iterator<Item = SourceFile> {
    crates().into_iter().filter(wanted).flat_map(|krate| krate.all_sources())
}

fn report(findings: impl Iterator<Item = Finding>) {
    let lines: Vec<String> = findings.map(|finding| finding.to_string()).collect();
    assert!(lines.is_empty(), "{} to mend:\n{}\n", lines.len(), lines.join("\n"));
}
