//! Report: that the page is well-formed, complete, harmless, and fits a phone, in light and in dark.
//!
//! Owns: markup, what is embedded, how a browser lays it out.
//! Does not own: which figures a suite has.

use std::fs;
use std::path::Path;
use std::process::Command;

use headwater_testkit::{Pattern, ScratchDir, lack};
use serde_json::Value;

use crate::{run, text, to_json, utf8};

/// The page and the results of a suite.
fn report(arguments: &[&str], place: &Path) -> (String, Value) {
    let (html, json) = (place.join("out.html"), place.join("out.json"));
    let output = run(&[&["bench"], arguments, &["--html", utf8(&html), &to_json(utf8(&json))]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    (fs::read_to_string(html).unwrap(), results)
}

/// A page of small runs: 4 MiB, a round.
fn scan_report(place: &Path) -> (String, Value) {
    report(&["scan", "--size", "4M", "--rounds", "1", "--dir", utf8(place)], place)
}

/// Goal: all rows and figures of the scan, its question and answer, and the results as `--json` gives them.
#[test]
fn page_of_a_scan() {
    let scratch = ScratchDir::on_target().unwrap();
    let (page, results) = scan_report(scratch.path());
    assert_sound(&page, &results);
    assert!(page.contains("Is your storage slow, or is it your API?"), "{page}");
    assert!(["It is the API", "It is the storage", "It cannot be told"].iter().any(|it| page.contains(it)));
    for row in results["rows"].as_array().unwrap() {
        assert!(page.contains(row["name"].as_str().unwrap()), "{row}");
        let rate = row["mib_per_s"].as_f64().unwrap();
        let ratio = format!(">{:.2}<", row["ratio_to_buffered"].as_f64().unwrap());
        assert!(page.contains(&ratio), "{row}");
        assert!(rate < 100.0 || page.contains(&format!("{rate:.0}")), "{row}");
    }
    assert!(page.contains(env!("CARGO_PKG_VERSION")) && page.contains("<time datetime=\"20"), "{page}");
    assert!(page.contains("fio --name=limit"), "{page}");
}

/// Goal: the answer and the place of the page are the last that is printed, and with `--json` there is JSON alone. Method: a scan of 4 MiB in
/// both forms.
#[test]
fn the_answer_and_the_page_are_printed_last() {
    let scratch = ScratchDir::on_target().unwrap();
    let page = scratch.path().join("the page.html");
    let scan = ["bench", "scan", "--size", "4M", "--rounds", "1", "--dir", utf8(scratch.path())];
    let output = run(&[&scan[..], &["--html", utf8(&page)]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let (_, last) = said.split_once("\n\nIs your storage slow, or is it your API?\nIt ").expect(&said);
    let (answer, place) = last.split_once("\n\n").expect(&said);
    assert!(fs::read_to_string(&page).unwrap().contains(answer), "{answer} is on the page");
    assert_eq!(place, format!("for a browser, with plots: '{}'\n", utf8(&page)));
    let output = run(&[&scan[..], &["--json", "--html", utf8(&page)]].concat());
    assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok(), "{}", text(&output.stdout));
}

/// Goal: every suite makes a sound page with its rows in it.
#[test]
fn pages_of_all_suites() {
    let scratch = ScratchDir::on_target().unwrap();
    let place = scratch.path();
    let in_place = ["--dir", utf8(place)];
    let suites: [(&[&str], &[&str]); 3] = [
        (
            &["cache", "--set", "2M", "--seconds", "0.01", "--rounds", "2"],
            &["pread, 1 thread", "page cache before"],
        ),
        (&["readahead", "--size", "2M", "--rounds", "1"], &["random, 64 KiB", "64 KiB into BLAKE3"]),
        (&["ubc", "--size", "4M", "--rounds", "1"], &["zero to overwrite", "dropped", "O_DIRECT"]),
    ];
    for (arguments, expected) in suites {
        let (page, results) = report(&[arguments, &in_place].concat(), place);
        assert_sound(&page, &results);
        for words in expected {
            assert!(page.contains(words), "{words} in {page}");
        }
    }
}

/// Goal: curves of the ring are drawn, and named in their key.
#[test]
fn page_of_the_ring() {
    if let Some(reason) = headwater::testing::uring_refusal() {
        return headwater_testkit::skip(reason);
    }
    let scratch = ScratchDir::on_target().unwrap();
    let (page, results) = report(&["nop", "--seconds", "0.02"], scratch.path());
    assert_sound(&page, &results);
    let rows = results["rows"].as_array().unwrap();
    let drawn = page.matches("class=\"curve c").count();
    assert_eq!(drawn, 2 * rows.len(), "each curve, and each again in the key");
    for row in rows {
        assert!(page.contains(row["name"].as_str().unwrap()), "{row}");
    }
}

/// Goal: a file's name stays a name, wherever it is shown.
#[test]
fn names_do_not_become_markup() {
    let scratch = ScratchDir::on_target().unwrap();
    let path = scratch.path().join("a<").join("script><b> '\"&<!--<script>.bin");
    fs::create_dir(path.parent().unwrap()).unwrap();
    Pattern::new(7).write_file(&path, 2 << 20).unwrap();
    let (page, results) = report(&["scan", "--rounds", "1", "--file", utf8(&path)], scratch.path());
    assert!(results["file"]["path"].as_str().unwrap().contains("<!--<script>"), "{results}");
    assert_sound(&page, &results);
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</script").count(), 1);
    assert!(!page.contains("<b>") && !page.contains("<!--"), "{page}");
}

/// Goal: what the page says about taking its data out works.
#[test]
fn data_come_out_by_the_line_given() {
    let scratch = ScratchDir::on_target().unwrap();
    let (page, results) = scan_report(scratch.path());
    let (_, rest) = page.split_once("<code>sed ").unwrap();
    let line = unescaped(&format!("sed {}", rest.split_once("</code>").unwrap().0))
        .replace("report.html", "out.html");
    let output = Command::new("sh").args(["-c", &line]).current_dir(scratch.path()).output().unwrap();
    let taken: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!(taken, results);
}

/// Goal: on a phone, a tablet and a desk nothing sticks out, no table is cut at an edge but wide heat maps on a phone, which scroll, and it is
/// dark where that is preferred. Method: headless Chromium with the page in a frame of 360, 768 and 1280 pixels.
#[test]
fn fits_every_screen_in_light_and_dark() {
    let Some(browser) = browser() else {
        return lack("there is no Chromium");
    };
    let scratch = ScratchDir::on_target().unwrap();
    let (scan, _) = scan_report(scratch.path());
    let in_place = ["--size", "2M", "--rounds", "1", "--dir", utf8(scratch.path())];
    let (readahead, _) = report(&[&["readahead"], &in_place[..]].concat(), scratch.path());
    let (alignment, _) = report(&[&["alignment", "--ops", "2"], &in_place[..]].concat(), scratch.path());
    // Of a whole run on a disk: the longest figures there are.
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/report-example/report.html");
    for page in [scan, readahead, alignment, fs::read_to_string(example).unwrap()] {
        for width in [360, 768, 1280] {
            assert_fits(&page, width, browser, scratch.path());
        }
    }
}

fn assert_fits(page: &str, width: u64, browser: &str, place: &Path) {
    let framed = place.join("framed.html");
    fs::write(&framed, frame(page, width)).unwrap();
    let grounds = [("1", "light"), ("0", "dark")].map(|(scheme, name)| {
        let dom = dom_of(browser, &framed, place, scheme)?;
        let said = dom.split_once("<output>").and_then(|(_, rest)| rest.split_once("</output>"));
        let said = unescaped(said.unwrap_or_else(|| panic!("no measures in {dom}")).0);
        let measured: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert!(measured["width"].as_u64().unwrap() <= width, "{name}: {measured}");
        assert_eq!(measured["beyond"], serde_json::json!([]), "{name}");
        for fault in ["cut", "tight", "uneven"] {
            assert_eq!(measured[fault], serde_json::json!([]), "{fault} {name} {width}");
        }
        Some(measured["ground"].as_str().unwrap().to_owned())
    });
    match grounds {
        [Some(light), Some(dark)] => assert_ne!(light, dark),
        _ => lack("Chromium does not run here"),
    }
}

fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// What the browser made of a page; `None` where it does not run at all.
fn dom_of(browser: &str, page: &Path, place: &Path, scheme: &str) -> Option<String> {
    let output = Command::new(browser)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", place.join("profile").display()))
        .arg("--virtual-time-budget=10000")
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let dom = text(&output.stdout);
    (output.status.success() && !dom.trim().is_empty()).then_some(dom)
}

/// A page that shows another one as a screen of this width does, and measures it: how wide it is, what sticks out that does not scroll
/// within itself, figures that are wider than their column, tables in which names have more than one left edge, and its background.
fn frame(page: &str, width: u64) -> String {
    let escaped = page.replace('&', "&amp;").replace('<', "&lt;");
    let script = "const frame = document.querySelector('iframe');\
        frame.addEventListener('load', () => {\
            const inner = frame.contentDocument, style = (one) => frame.contentWindow.getComputedStyle(one);\
            const scrolls = (one) => one && (style(one).overflowX === 'auto' || scrolls(one.parentElement));\
            const beyond = [...inner.body.querySelectorAll('*')].filter((one) => !one.matches('.skip')\
                && one.getBoundingClientRect().right > Number(frame.width) + .5 && !scrolls(one)).map((one) => one.outerHTML.slice(0, 99));\
            const cut = [...inner.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1)\
                .filter((one) => Number(frame.width) > 400 || !one.querySelector('.heat'))\
                .map((one) => one.id);\
            const tight = [...inner.querySelectorAll('.value, .spread')].filter((one) => one.scrollWidth > one.clientWidth + 1)\
                .map((one) => one.textContent);\
            const begins = (one) => Math.round(one.getBoundingClientRect().left + parseFloat(style(one).paddingLeft));\
            const uneven = [...inner.querySelectorAll('table')]\
                .filter((one) => new Set([...one.querySelectorAll('tbody th')].map(begins)).size > 1)\
                .map((one) => one.outerHTML.slice(0, 99));\
            document.querySelector('output').textContent = JSON.stringify({\
                width: inner.documentElement.scrollWidth, beyond, cut, tight, uneven, ground: style(inner.body).backgroundColor });\
        });";
    format!(
        "<!DOCTYPE html><body><output></output><iframe width=\"{width}\" height=\"2000\" style=\"border:0\"></iframe>\
         <textarea hidden>{escaped}</textarea><script>{script}\
         frame.srcdoc = document.querySelector('textarea').value;</script>"
    )
}

/// Whatever is measured and however: tags that fit, headings in order, nothing from elsewhere, the same results inside.
fn assert_sound(page: &str, results: &Value) {
    let tags = tags(page);
    assert_nested(&tags);
    assert_headings(&tags);
    assert_nothing_loaded(&tags, page);
    assert_described(&tags);
    assert_tables(&tags);
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"results\">").unwrap();
    let embedded: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(&embedded, results);
    assert!(!page.contains("NaN") && !page.contains("inf%"), "{page}");
}

/// A tag as written: its name, with a slash in front where it ends something, and its attributes.
struct Tag<'a> {
    name: &'a str,
    attributes: Vec<(&'a str, String)>,
}

impl Tag<'_> {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}

/// All tags. A `<` that begins none is an error, but for those within styles and scripts, which are skipped.
fn tags(page: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page of HTML");
    while let Some((_, after)) = rest.split_once('<') {
        let end = end_of_tag(after);
        let tag = tag(&after[..end]);
        rest = &after[end + 1..];
        if let name @ ("style" | "script") = tag.name {
            rest = &rest[rest.find(&format!("</{name}>")).expect("the end of a style or script")..];
        }
        tags.push(tag);
    }
    tags
}

/// Where the tag ends: the first `>` that is in no attribute.
fn end_of_tag(text: &str) -> usize {
    let mut is_quoted = false;
    let end = text.char_indices().find(|&(_, letter)| {
        is_quoted ^= letter == '"';
        letter == '>' && !is_quoted
    });
    end.expect("the end of a tag").0
}

fn tag(text: &str) -> Tag<'_> {
    let (name, mut rest) = text.split_once(' ').unwrap_or((text, ""));
    assert!(
        name.trim_start_matches('/').starts_with(|letter: char| letter.is_ascii_alphabetic()),
        "a `<` that begins no tag: {text}"
    );
    let mut attributes = Vec::new();
    while let Some((attribute, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"').expect("the end of an attribute");
        attributes.push((attribute.trim(), unescaped(value)));
        rest = after;
    }
    assert!(rest.trim().is_empty(), "not an attribute: {rest} in {text}");
    Tag { name, attributes }
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

fn assert_nested(tags: &[Tag<'_>]) {
    let mut open = Vec::new();
    for tag in tags {
        match tag.name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if ["meta", "link", "br", "hr", "img", "input"].contains(&tag.name) => {}
            None => open.push(tag.name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// One first heading, and none that skips a level.
fn assert_headings(tags: &[Tag<'_>]) {
    let level = |tag: &Tag<'_>| tag.name.strip_prefix('h').and_then(|digit| digit.parse::<u32>().ok());
    let levels: Vec<u32> = tags.iter().filter_map(level).collect();
    assert_eq!(levels.first(), Some(&1));
    assert_eq!(levels.iter().filter(|&&level| level == 1).count(), 1, "{levels:?}");
    assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
}

fn assert_nothing_loaded(tags: &[Tag<'_>], page: &str) {
    for tag in tags {
        assert!(!["link", "img", "iframe", "object", "base", "form"].contains(&tag.name), "{}", tag.name);
        assert_eq!(tag.attribute("src"), None);
        assert!(tag.attribute("href").is_none_or(|href| href.starts_with('#')), "{:?}", tag.attributes);
        assert!(tag.attributes.iter().all(|(name, _)| !name.starts_with("on")), "{:?}", tag.attributes);
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

/// A language, labels for what is drawn, scopes for heads of tables, and links and labels that lead somewhere.
fn assert_described(tags: &[Tag<'_>]) {
    let ids: Vec<&str> = tags.iter().filter_map(|tag| tag.attribute("id")).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "an id stands for one thing: {ids:?}");
    for tag in tags {
        let labels =
            tag.attribute("aria-labelledby").unwrap_or_default().split(' ').filter(|id| !id.is_empty());
        let links = tag.attribute("href").map(|href| &href[1..]);
        assert!(labels.chain(links).all(|id| ids.contains(&id)), "{:?}", tag.attributes);
        if tag.attribute("role") == Some("img") {
            let label = tag.attribute("aria-label").or(tag.attribute("aria-labelledby"));
            assert!(label.is_some_and(|label| !label.is_empty()), "{:?}", tag.attributes);
        }
        assert!(tag.name != "th" || tag.attribute("scope").is_some(), "{:?}", tag.attributes);
        assert!(tag.name != "html" || tag.attribute("lang") == Some("en"));
    }
    let count = |name: &str| tags.iter().filter(|tag| tag.name == name).count();
    assert_eq!(count("table"), count("caption"));
    assert_eq!(count("figure"), count("figcaption"));
}

/// As many cells in each row of a table as in the others, cells that span several counted so.
fn assert_tables(tags: &[Tag<'_>]) {
    let tables = tags.split(|tag| tag.name == "table").skip(1);
    for table in tables {
        let table = table.split(|tag| tag.name == "/table").next().unwrap();
        let rows = table.split(|tag| tag.name == "tr").skip(1);
        let is_cell = |tag: &&Tag<'_>| ["th", "td"].contains(&tag.name);
        let width = |tag: &Tag<'_>| tag.attribute("colspan").map_or(1, |span| span.parse::<usize>().unwrap());
        let reaches_down = |row: &[Tag<'_>]| row.iter().any(|tag| tag.attribute("rowspan").is_some());
        let mut widths: Vec<usize> =
            rows.clone().map(|row| row.iter().filter(is_cell).map(width).sum()).collect();
        // What reaches down from the first row is a cell of the second.
        if let (Some(row), Some(second)) = (rows.clone().next(), widths.get_mut(1)) {
            *second += usize::from(reaches_down(row));
        }
        assert!(widths.len() > 1 && widths.iter().all(|width| *width == widths[0]), "{widths:?}");
    }
}

/// Goal: the checks above find what they are for.
#[test]
fn checks_find_faults() {
    let fails = |page: &str, check: fn(&[Tag<'_>])| {
        std::panic::catch_unwind(|| check(&tags(&format!("<!DOCTYPE html>{page}")))).is_err()
    };
    assert!(!fails("<p class=\"a > b\">x<br></p>", assert_nested));
    assert!(fails("<p><b></p></b>", assert_nested));
    assert!(fails("<p>", assert_nested));
    assert!(fails("<p>1 < 2</p>", assert_nested));
    assert!(fails("<h1></h1><h3></h3>", assert_headings));
    assert!(fails("<a href=\"#x\"></a>", assert_described));
    assert!(fails("<th></th>", assert_described));
    assert!(!fails("<table><tr><th></th></tr><tr><td></td></tr></table>", assert_tables));
    assert!(fails("<table><tr><th></th></tr><tr><td></td><td></td></tr></table>", assert_tables));
    assert!(fails("<img src=\"x\">", |tags| assert_nothing_loaded(tags, "")));
}
