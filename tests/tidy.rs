//! House rules over the source tree that no lint knows. What breaks one has a line with its reason
//! in `tests/tidy_allow.txt`, and only for as long as it does.

#[path = "tidy/code.rs"]
mod code;

use code::{code_only, functions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Where `unsafe` may be.
const UNSAFE_HOMES: [&str; 5] =
    ["src/ports/", "src/ffi/", "libfabric-sys/", "tables/src/arena.rs", "tests/no_alloc.rs"];
/// Not in code, anywhere.
const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
/// Not on the data path: these hash, read clocks or allocate.
const OFF_THE_DATA_PATH: [&str; 7] =
    ["HashMap", "Instant::now", "SystemTime", "vec![", "with_capacity", "Box::new", "to_vec("];
const DATA_PATH: [&str; 2] = ["src/systems/", "src/receive/"];
const TEXT: [&str; 12] =
    ["rs", "md", "toml", "txt", "sh", "yml", "yaml", "c", "h", "lock", "json", "run"];

/// One broken rule.
struct Finding {
    path: String,
    rule: &'static str,
    line: usize,
    what: String,
}

struct File {
    path: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All text files of the tree, with paths relative to its root.
fn files() -> Vec<File> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the tree") {
            let entry = entry.expect("an entry of the tree");
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type().expect("its type").is_dir() {
                if !["target", ".git", "corpus", "artifacts", "seeds"].iter().any(|it| name == **it)
                {
                    folders.push(path);
                }
            } else if is_text(&path) {
                let relative = path.strip_prefix(root()).expect("below the root");
                let text = std::fs::read_to_string(&path).expect("text is UTF-8");
                found.push(File { path: relative.to_str().expect("ASCII").to_owned(), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 50, "only {} files: the walk is broken", found.len());
    found
}

fn is_text(path: &Path) -> bool {
    match path.extension() {
        Some(extension) => TEXT.iter().any(|it| extension == *it),
        None => true,
    }
}

fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".rs"))
}

fn is_under(path: &str, places: &[&str]) -> bool {
    places.iter().any(|place| path.starts_with(place))
}

fn lengths(file: &File, found: &mut Vec<Finding>) {
    if file.path.starts_with("libfabric-sys/") {
        return;
    }
    let mut add = |rule, line, what| {
        found.push(Finding { path: file.path.clone(), rule, line, what });
    };
    for (i, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            add("columns", i + 1, format!("{columns} columns"));
        }
    }
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        add("file-lines", 1, format!("{lines} lines"));
    }
    for f in functions(&code_only(&file.text)) {
        if f.lines > FUNCTION_LINES_MAX {
            add("function-lines", f.line, format!("fn {} of {} lines", f.name, f.lines));
        }
    }
}

fn words(file: &File, found: &mut Vec<Finding>) {
    let code = code_only(&file.text);
    for (i, line) in code.lines().enumerate() {
        for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
            let what = format!("{word} in code");
            found.push(Finding { path: file.path.clone(), rule: "unfinished", line: i + 1, what });
        }
        if !is_under(&file.path, &DATA_PATH) {
            continue;
        }
        for word in OFF_THE_DATA_PATH.iter().filter(|word| line.contains(**word)) {
            let what = format!("{word} on the data path");
            found.push(Finding { path: file.path.clone(), rule: "data-path", line: i + 1, what });
        }
    }
}

fn unsafety(file: &File, found: &mut Vec<Finding>) {
    let code = code_only(&file.text);
    let original: Vec<_> = file.text.lines().collect();
    let at_home = is_under(&file.path, &UNSAFE_HOMES);
    for (i, line) in code.lines().enumerate() {
        let is_word = |(at, _): (usize, &str)| {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            !line[..at].ends_with(is_part) && !line[at + "unsafe".len()..].starts_with(is_part)
        };
        if !line.match_indices("unsafe").any(is_word) {
            continue;
        }
        let mut add = |rule, what: &str| {
            let what = what.to_owned();
            found.push(Finding { path: file.path.clone(), rule, line: i + 1, what });
        };
        if !at_home {
            add("unsafe-home", "`unsafe` outside its homes");
        }
        let needs_reason = line.contains("unsafe {") || line.contains("unsafe impl");
        let reasons = &original[i.saturating_sub(6)..=i];
        if needs_reason && !reasons.iter().any(|line| line.contains("SAFETY:")) {
            add("safety", "`unsafe` without `SAFETY:` within the six lines before");
        }
    }
}

fn places(file: &File, found: &mut Vec<Finding>) {
    // Put together here, or this file would break its own rule.
    let absolute = ["work", "root", "home"].map(|folder| format!("/{folder}/"));
    for (i, line) in file.text.lines().enumerate() {
        for place in &absolute {
            let is_absolute = |(at, _): (usize, &str)| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-*)}/".contains(c))
            };
            if line.match_indices(place.as_str()).any(is_absolute) {
                let what = format!("a path of one machine: {}", line.trim());
                found.push(Finding { path: file.path.clone(), rule: "paths", line: i + 1, what });
            }
        }
    }
}

/// How many findings of one rule a file may have, and the line of the exception.
fn exceptions() -> BTreeMap<(String, String), (usize, usize)> {
    let text =
        std::fs::read_to_string(root().join("tests/tidy_allow.txt")).expect("the exceptions");
    let mut all = BTreeMap::new();
    for (i, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut parts = line.splitn(4, ' ');
        let (path, rule) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let count = parts.next().and_then(|count| count.parse().ok());
        let reason = parts.next().unwrap_or("").trim();
        let count = count.filter(|&count: &usize| count > 0 && !reason.is_empty());
        let count = count.unwrap_or_else(|| panic!("line {}: `path rule count reason`", i + 1));
        let before = all.insert((path.to_owned(), rule.to_owned()), (count, i + 1));
        assert!(before.is_none(), "line {}: {path} {rule} twice", i + 1);
    }
    all
}

#[test]
fn house_rules() {
    let files = files();
    let mut found = Vec::new();
    for file in rust(&files) {
        lengths(file, &mut found);
        words(file, &mut found);
        unsafety(file, &mut found);
    }
    for file in &files {
        places(file, &mut found);
    }
    let mut by_rule: BTreeMap<_, Vec<Finding>> = BTreeMap::new();
    for finding in found {
        let key = (finding.path.clone(), finding.rule.to_owned());
        by_rule.entry(key).or_default().push(finding);
    }
    let mut wrong = Vec::new();
    let mut allowed = exceptions();
    for (key, findings) in &by_rule {
        let count = allowed.remove(key).map_or(0, |(count, _)| count);
        if findings.len() > count {
            wrong.push(format!("{} {}: {} found, {count} allowed", key.0, key.1, findings.len()));
            wrong.extend(findings.iter().map(|f| format!("  {}:{}: {}", f.path, f.line, f.what)));
        } else if findings.len() < count {
            let fewer = findings.len();
            wrong.push(format!("{} {}: only {fewer} left, {count} allowed", key.0, key.1));
        }
    }
    for ((path, rule), (_, line)) in allowed {
        wrong.push(format!("tests/tidy_allow.txt:{line}: {path} {rule} is no longer needed"));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// What `pattern` finds in `text`: a prefix, then characters of which `is_part`.
fn cited(text: &str, prefix: &str, is_part: fn(char) -> bool) -> BTreeSet<String> {
    text.match_indices(prefix)
        .map(|(at, _)| {
            let rest = &text[at + prefix.len()..];
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            rest[..end].trim_end_matches('.').to_owned()
        })
        .filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

/// Numbers of the clauses that begin `- **<number>**` in a document.
fn numbered(path: &str, prefix: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(path)).expect("a document");
    let start = format!("- **{prefix}");
    let clauses: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix(&start)?.split("**").next().map(str::to_owned))
        .collect();
    let set: BTreeSet<_> = clauses.iter().cloned().collect();
    assert_eq!(set.len(), clauses.len(), "{path}: a number stands twice");
    assert!(!set.is_empty(), "{path}: no numbered clauses");
    set
}

#[test]
fn invariants_are_documented_and_cited() {
    let files = files();
    let code = rust(&files).filter(|file| file.path.starts_with("src/"));
    let cited: BTreeSet<_> =
        code.flat_map(|file| cited(&file.text, "I-", |c| c.is_ascii_digit())).collect();
    assert_eq!(cited, numbered("docs/invariants.md", "I-"), "left: code, right: document");
}

#[test]
fn wire_clauses_exist() {
    let files = files();
    let documented = numbered("docs/wire-format.md", "");
    for file in rust(&files).filter(|file| file.path != "tests/tidy.rs") {
        for number in cited(&file.text, "wire ", |c| c.is_ascii_digit() || c == '.') {
            // A whole section may be cited, too.
            let section = format!("{number}.");
            let exists = documented.contains(&number)
                || !number.contains('.') && documented.iter().any(|it| it.starts_with(&section));
            assert!(exists, "{}: wire {number} is not in docs/wire-format.md", file.path);
        }
    }
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let mut names: Vec<PathBuf> = std::fs::read_dir(root().join("docs/decisions"))
        .expect("the decision records")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no decision records");
    for (i, path) in names.iter().enumerate() {
        let name = path.file_name().and_then(|name| name.to_str()).expect("ASCII");
        let number = format!("{:04}-", i + 1);
        assert!(name.starts_with(&number) && name.ends_with(".md"), "{name}: expected {number}");
        let text = std::fs::read_to_string(path).expect("a record");
        for part in ["## Question", "## Choice", "## Rejected", "## What would change our mind"] {
            assert!(text.contains(part), "{name}: without {part:?}");
        }
    }
}
