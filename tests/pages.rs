//! The pages of the repository: code that they repeat, errors that they quote, and their links.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mlx5::cqe::{QueueKind, Status};
use mlx5::ring::{Excess, PollError, PostError, QueueError};

/// Set this to write the code of the examples into the cookbook.
const WRITE: &str = "MLX5_WRITE_COOKBOOK";
const COOKBOOK: &str = "docs/cookbook.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Folders with examples that the README and the cookbook have.
const EXAMPLES: [&str; 2] = ["examples", "smoltcp/examples"];

/// Paths of the files in a folder that end in `extension`, sorted.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(extension)).collect();
    names.sort();
    names.into_iter().map(|name| format!("{folder}/{name}")).collect()
}

/// The code of an example between the comments `ANCHOR: name` and `ANCHOR_END: name`, indented as
/// little as possible.
fn excerpt(example: &str, name: &str) -> String {
    let text = read(example);
    let is = |line: &str, comment: String| line.trim() == comment;
    let mut lines = text.lines().skip_while(|line| !is(line, format!("// ANCHOR: {name}")));
    assert!(lines.next().is_some(), "{example} has no anchor {name}");
    let lines: Vec<_> =
        lines.take_while(|line| !is(line, format!("// ANCHOR_END: {name}"))).collect();
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let least = lines.iter().filter(|line| !line.is_empty()).map(indent).min().unwrap_or(0);
    lines.iter().map(|line| format!("{}\n", line.get(least..).unwrap_or(""))).collect()
}

#[test]
fn the_code_of_the_cookbook_is_that_of_the_examples() {
    let page = read(COOKBOOK);
    let (mut wanted, mut used) = (String::new(), BTreeSet::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        assert!(!line.starts_with("```"), "a block of code without `<!-- examples/… -->`");
        wanted += &format!("{line}\n");
        let source = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let Some((example, name)) = source.and_then(|source| source.split_once(": ")) else {
            continue;
        };
        used.insert((example.to_owned(), name.to_owned()));
        assert_eq!(lines.next(), Some("```rust"), "behind {line}");
        lines.by_ref().find(|line| *line == "```").expect("the block ends");
        wanted += &format!("```rust\n{}```\n", excerpt(example, name));
    }
    let anchors: BTreeSet<_> = EXAMPLES
        .into_iter()
        .flat_map(|folder| files(folder, ".rs"))
        .flat_map(|path| {
            let names = read(&path);
            let names = names.lines().filter_map(|line| line.trim().strip_prefix("// ANCHOR: "));
            names.map(|name| (path.clone(), name.to_owned())).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(used, anchors, "the page uses each anchor, and each exists");
    if std::env::var_os(WRITE).is_some() {
        return fs::write(root().join(COOKBOOK), wanted).unwrap();
    }
    if let Some((number, (got, right))) =
        page.lines().zip(wanted.lines()).enumerate().find(|(_, (got, right))| got != right)
    {
        panic!(
            "{COOKBOOK}:{}: {got:?}, and in the example {right:?}; `{WRITE}=1 cargo test --test \
             pages` writes the page",
            number + 1
        );
    }
    assert_eq!(page.len(), wanted.len());
}

#[test]
fn errors_that_the_cookbook_quotes_say_so() {
    let page = read(COOKBOOK);
    let quoted: [&dyn ToString; 13] = [
        &PostError::QueueFull { free: 0 },
        &PostError::NothingSignaled { outstanding: 63 },
        &PostError::CqFull { slots: 64 },
        &PostError::NothingPrepared,
        &PostError::WrongState,
        &PostError::InlineTooLong(Excess::new(72, 64)),
        &PostError::WordTooShort,
        &PollError::Overrun,
        &PollError::QueueNotGiven { qpn: 0x42, queue: QueueKind::Receive },
        &QueueError::CqFull { cqes: 63, free: 0, needed: 1 },
        &QueueError::NotIdle,
        &QueueError::RegisterShared,
        &Status::MemoryWindowBind.name(),
    ];
    for error in quoted {
        assert!(page.contains(&format!("| `{}`", error.to_string())), "{}", error.to_string());
    }
}

#[test]
fn the_readme_lists_every_example() {
    let readme = read("README.md");
    let folders = EXAMPLES.map(|folder| fs::read_dir(root().join(folder)).unwrap());
    for example in folders.into_iter().flatten() {
        let name = example.unwrap().file_name().into_string().unwrap();
        let row = format!("| `{}`", name.trim_end_matches(".rs"));
        assert!(readme.contains(&row), "README.md has no row of {name}");
    }
}

#[test]
fn the_summary_of_the_book_has_every_page_once() {
    let summary: Vec<_> =
        links(&read("docs/SUMMARY.md")).into_iter().map(|link| format!("docs/{link}")).collect();
    for page in files("docs", ".md") {
        let times = summary.iter().filter(|link| **link == page).count();
        assert_eq!(times, usize::from(page != "docs/SUMMARY.md"), "{page}");
    }
}

/// The pages with links to check.
fn pages() -> Vec<String> {
    let mut pages = ["", "diag/", "fuzz/", "mlx5-sys/", "mlx5-sys/probe/", "model/", "tools/"]
        .map(|package| format!("{package}README.md"))
        .to_vec();
    pages.retain(|page| root().join(page).is_file());
    pages.extend(["CHANGELOG.md", "CONTRIBUTING.md"].map(str::to_owned));
    pages.extend(files("docs", ".md"));
    pages.extend(files("docs/benchmarks", ".md"));
    pages
}

#[test]
fn relative_links_and_their_anchors_resolve() {
    let (mut checked, mut broken) = (0, vec![]);
    for page in pages() {
        let folder = root().join(&page).parent().unwrap().to_owned();
        for link in links(&read(&page)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target: PathBuf =
                if path.is_empty() { root().join(&page) } else { folder.join(path) };
            let resolves = match anchor {
                "" => target.exists(),
                _ => fs::read_to_string(&target)
                    .is_ok_and(|text| headings(&text).iter().any(|heading| heading == anchor)),
            };
            checked += 1;
            if !resolves {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(checked > 100, "only {checked} links were found");
}

/// The figures of a page that are links to a table of the record: what the page says, the table,
/// its row and its column.
fn figures(text: &str) -> Vec<[&str; 4]> {
    let mut found = vec![];
    for (before, rest) in text.split("](").zip(text.split("](").skip(1)) {
        let Some((file, rest)) = rest.split_once(" \"").filter(|(file, _)| !file.contains(')'))
        else {
            continue;
        };
        let said = before.rsplit('[').next().unwrap();
        let (row, column) = rest.split('"').next().unwrap().rsplit_once(": ").unwrap();
        found.push([said, file, row, column]);
    }
    found
}

/// The first number of a cell of a table, rounded.
fn rounded(table: &str, row: &str, column: &str) -> Option<String> {
    let cells = |line: &str| line.split('|').map(|it| it.trim().to_owned()).collect::<Vec<_>>();
    let mut lines = table.lines().map(cells);
    let at = lines.next()?.iter().position(|name| name == column)?;
    let cell = lines.find(|cells| cells.get(1).is_some_and(|name| name == row))?.get(at)?.clone();
    let number: f64 = cell.split(' ').next()?.parse().ok()?;
    Some(format!("{number:.0}"))
}

#[test]
fn figures_in_prose_are_those_of_the_record() {
    let mut checked = 0;
    for page in pages() {
        let text = read(&page);
        let folder = Path::new(&page).parent().unwrap();
        for [said, file, row, column] in figures(&text) {
            let table = read(folder.join(file).to_str().unwrap());
            let recorded = rounded(&table, row, column);
            assert_eq!(Some(said), recorded.as_deref(), "{page}: {row}: {column} of {file}");
            checked += 1;
        }
    }
    assert!(checked > 15, "only {checked} figures were found");
}

/// The cells of the rows of the table of the transport's rules.
fn rules(page: &str) -> Vec<Vec<String>> {
    let rows = page.lines().skip_while(|line| *line != "| rule | section | code | test |").skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Returns why a name `path.rs::function` leads nowhere, with the path in one of the folders.
fn missing(name: &str, folders: [&str; 2], attribute: &str) -> Option<String> {
    let Some((path, function)) = name.split_once("::") else {
        return Some(format!("{name} names no function"));
    };
    let files = folders.map(|folder| root().join(folder).join(path));
    let Some(text) = files.iter().find_map(|file| fs::read_to_string(file).ok()) else {
        return Some(format!("{name}: no such file"));
    };
    let lines: Vec<_> = text.lines().map(str::trim_start).collect();
    let declares = |line: &str| {
        let before = ["pub ", "pub(super) ", "pub(crate) ", "pub(in crate::transport) "];
        let line = before.iter().find_map(|before| line.strip_prefix(before)).unwrap_or(line);
        let rest = line.strip_prefix("fn ").and_then(|rest| rest.strip_prefix(function));
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let found = lines.iter().enumerate().any(|(at, line)| {
        // What `proptest!` wraps has the attribute as well.
        declares(line) && (attribute.is_empty() || lines[..at].last() == Some(&attribute))
    });
    (!found).then(|| format!("{name}: no such function"))
}

#[test]
fn the_rules_of_the_transport_name_code_and_tests_that_exist() {
    let rules = rules(&read("docs/model.md"));
    let mut wrong = vec![];
    for row in &rules {
        let [rule, section, code, test] = &row[..] else { panic!("{row:?}") };
        assert!(!rule.is_empty() && !section.is_empty());
        let names = |cell: &str| -> Vec<String> {
            cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        if code == "not modelled" {
            assert_eq!(test, "–", "{rule}");
            continue;
        }
        let (code, test) = (names(code), names(test));
        assert!(!code.is_empty() && !test.is_empty(), "{rule}");
        let transport = ["model/src/transport", ""];
        wrong.extend(code.iter().filter_map(|name| missing(name, transport, "")));
        let tests = ["model/src/transport/test", ""];
        wrong.extend(test.iter().filter_map(|name| missing(name, tests, "#[test]")));
    }
    assert!(rules.len() >= 60, "{} rules", rules.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The lines of a page outside blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// A text without what stands between angle brackets.
fn without_generics(text: &str) -> String {
    let mut depth = 0;
    let text = text.replace("->", "");
    let kept = text.chars().filter(|character| {
        depth += i32::from(*character == '<');
        let keeps = depth == 0;
        depth -= i32::from(*character == '>');
        keeps
    });
    kept.collect()
}

/// The words that may be identifiers.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| !word.is_empty())
}

/// Code without comments, of the `.rs` files below a folder.
fn code_below(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code_below(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            files.push(code.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// The names that pages may use: those of the public API of `mlx5`, and those of other code.
struct Known {
    /// `docs/api/mlx5.txt` without generics, and its words.
    api: String,
    api_words: BTreeSet<String>,
    /// The words of each file.
    files: Vec<BTreeSet<String>>,
}

impl Known {
    fn new(folders: &[&str]) -> Known {
        let mut code = vec![];
        folders.iter().for_each(|folder| code_below(&root().join(folder), &mut code));
        let words = |text: &str| identifiers(text).map(str::to_owned).collect();
        let api: Vec<_> = read("docs/api/mlx5.txt").lines().map(without_generics).collect();
        let api = api.join("\n") + "\n";
        Known { api_words: words(&api), api, files: code.iter().map(|text| words(text)).collect() }
    }

    /// Whether a type of that name has the item, if one is given.
    fn has(&self, name: &str, item: Option<&str>) -> bool {
        let in_code = |file: &BTreeSet<String>| {
            file.contains(name) && item.is_none_or(|item| file.contains(item))
        };
        let in_api = || match item {
            None => self.api_words.contains(name),
            Some(item) => {
                self.api.match_indices(&format!("::{name}::{item}")).any(|(at, found)| {
                    !self.api[at + found.len()..]
                        .starts_with(|c: char| c.is_alphanumeric() || c == '_')
                })
            }
        };
        in_api() || self.files.iter().any(in_code)
    }
}

/// Types of other crates and of std in prose, and the heading of a changelog.
const NOT_OURS: [&str; 3] = ["AsyncFd", "Mutex", "Unreleased"];
/// Items of sideway's types, whose names this crate has too.
const OF_SIDEWAY: [&str; 2] = ["CompletionQueue::cq", "QueuePair::qp"];

/// The types in code spans of the prose, each with the item behind it: `devx::Rq::builder()` names
/// the type `Rq` and its item `builder`.
fn types_in_prose(page: &str) -> Vec<(String, Option<String>)> {
    let is_type = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.contains(|c: char| c.is_ascii_lowercase())
            && !word.contains('_')
    };
    let mut found = vec![];
    for span in prose(page).flat_map(|line| line.split('`').skip(1).step_by(2)) {
        let span = without_generics(span);
        let (path, arguments) = span.split_once('(').unwrap_or((&span, ")"));
        let parts: Vec<&str> = path.split("::").collect();
        if !arguments.ends_with(')') {
            continue;
        }
        if !parts.iter().all(|part| identifiers(part).eq([*part])) || OF_SIDEWAY.contains(&path) {
            continue;
        }
        for (at, part) in parts.iter().enumerate().filter(|(_, part)| is_type(part)) {
            found.push(((*part).to_owned(), parts.get(at + 1).map(|item| (*item).to_owned())));
        }
    }
    found.retain(|(name, _)| !NOT_OURS.contains(&name.as_str()));
    found
}

#[test]
fn types_that_pages_name_exist() {
    let public = ["mlx5-sys/src", "diag/src", "model/src", "src/devx/unproven", "src/wqe/unproven"];
    let public = Known::new(&public);
    // Two pages describe the code behind the public API as well.
    let private = Known::new(&["src"]);
    let (mut checked, mut missing) = (0, vec![]);
    let mut pages = files("docs", ".md");
    pages.push("README.md".to_owned());
    for page in pages {
        let describes_private = ["docs/architecture.md", "docs/ordering.md"].contains(&&*page);
        for (name, item) in types_in_prose(&read(&page)) {
            checked += 1;
            let has = |known: &Known| known.has(&name, item.as_deref());
            if !(has(&public) || describes_private && has(&private)) {
                let item = item.map_or(String::new(), |item| format!("::{item}"));
                missing.push(format!("{page}: `{name}{item}`"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(checked > 300, "only {checked} types were found");
    // The names that a page got wrong are found.
    assert!(!public.has("DevxEvent", Some("syndrome_of_cq")) && !public.has("NoSuchType", None));
    assert!(!public.has("Event", Some("cq_syndrome")));
}

#[test]
fn the_table_of_devx_objects_names_types_of_that_module() {
    let (page, api) = (read("docs/devx.md"), read("docs/api/mlx5.txt"));
    let rows = page.lines().skip_while(|line| !line.starts_with("| type | commands: ")).skip(2);
    let mut checked = 0;
    for row in rows.take_while(|line| line.starts_with('|')) {
        let name = row.split('`').nth(1).unwrap();
        let declared = ["(", "\n", "<"].iter().any(|end| {
            let declares = |kind| api.contains(&format!("pub {kind} mlx5::devx::{name}{end}"));
            declares("struct") || declares("enum")
        });
        assert!(declared || name.starts_with("unproven::"), "{row}");
        checked += 1;
    }
    assert!(checked >= 10, "only {checked} rows were found");
}

/// Targets of links and pictures.
fn links(text: &str) -> Vec<String> {
    let mut found = vec![];
    for line in prose(text) {
        // Every second part is code in backquotes.
        let line: Vec<_> = line.split('`').step_by(2).collect();
        let line = line.join("`");
        for rest in line.split("](").skip(1) {
            let target = rest.split(')').next().unwrap();
            let target = target.split_once(" \"").map_or(target, |(target, _title)| target);
            found.push(target.trim_matches(['<', '>']).to_owned());
        }
        for attribute in ["src=\"", "srcset=\"", "href=\""] {
            let targets = line.split(attribute).skip(1);
            found.extend(targets.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
    found
}

/// The anchors of the headings of a page, by the rules of GitHub.
fn headings(text: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        // Of a link, only the text counts.
        let title: Vec<_> = title
            .split("](")
            .enumerate()
            .map(|(at, part)| match at {
                0 => part,
                _ => part.split_once(')').map_or("", |(_, rest)| rest),
            })
            .collect();
        let slug = title.concat().trim().to_lowercase();
        let slug: String = slug
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let same = found.iter().filter(|other| {
            other.strip_prefix(&slug).is_some_and(|rest| {
                rest.is_empty()
                    || rest.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok())
            })
        });
        let same = same.count();
        found.push(if same == 0 { slug } else { format!("{slug}-{same}") });
    }
    found
}

#[test]
fn links_and_headings_of_a_page_are_found() {
    let page = "# A `page`: of [two](a.md) parts\n```\n# no ](heading)\n```\n## Same\n## Same\n\
                see `[no](code.md)`, [one](a.md#same) and ![a picture](b.svg)\n";
    assert_eq!(headings(page), ["a-page-of-two-parts", "same", "same-1"]);
    assert_eq!(links(page), ["a.md", "a.md#same", "b.svg"]);
}
