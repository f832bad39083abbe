//! `cargo xtask book`: the pages as a searchable book, by mdBook.
//!
//! mdBook wants all pages in one folder, and renders only those that its summary lists. So the pages
//! are copied into a folder of the target folder, in the places that they have in the repository.
//! Programs to which they link become pages too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;

/// The version that is installed, under the target folder.
const VERSION: &str = "0.5.4";

/// Pages beside those in docs/.
const PAGES: &[&str] = &["README.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// `cargo xtask book`.
pub fn command() -> Result {
    let target = build::target_directory()?;
    let mdbook = ready(&target.join("tools"))?;
    let book = target.join("book");
    if book.exists() {
        fs::remove_dir_all(&book).map_err(|error| cannot("remove", &book, error))?;
    }
    stage(&build::root(), &book)?;
    build::run("mdbook build", Command::new(mdbook).arg("build").arg(&book))?;
    let html = book.join("book");
    let broken = broken_links(&html)?;
    if !broken.is_empty() {
        return Err(format!("links of the book lead nowhere:\n{}", broken.join("\n")));
    }
    println!("the book is in {}", html.join("index.html").display());
    Ok(())
}

/// Installs mdBook where it is missing, and returns its path.
fn ready(tools: &Path) -> Result<PathBuf> {
    let program = tools.join("bin/mdbook");
    let version = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    let right = |text: &[u8]| String::from_utf8_lossy(text).trim() == format!("mdbook v{VERSION}");
    if version.is_ok_and(|output| right(&output.stdout)) {
        return Ok(program);
    }
    let mut install = Command::new(build::program());
    install.args(["install", "mdbook", "--version", VERSION, "--locked", "--force"]);
    install.args(["--no-default-features", "--features", "search", "--root"]).arg(tools);
    build::run("installing mdBook (it needs crates.io and Rust 1.88)", &mut install)?;
    Ok(program)
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| cannot("read", path, error))
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| cannot("make", folder, error))?;
    fs::write(path, content).map_err(|error| cannot("write", path, error))
}

/// All files under a folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (vec![], vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| cannot("read", &folder, error))?;
        for entry in entries {
            let path = entry.map_err(|error| cannot("read", &folder, error))?.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a file is a page. Summary and configuration are not.
fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("SUMMARY.md")
}

/// Copies the pages of `root` to `book`, with its summary and configuration.
fn stage(root: &Path, book: &Path) -> Result {
    let source = book.join("src");
    let mut paths: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    paths.extend(files(&root.join("docs"))?);
    let mut programs: BTreeSet<PathBuf> = files(&root.join("examples"))?.into_iter().collect();
    for path in paths {
        let place = source.join(path.strip_prefix(root).unwrap_or(&path));
        if !is_page(&path) {
            let content = fs::read(&path).map_err(|error| cannot("read", &path, error))?;
            write(&place, content)?;
            continue;
        }
        let (text, linked) = with_pages_of_programs(&read(&path)?, &path);
        programs.extend(linked);
        write(&place, text)?;
    }

    let mut summary = of_root(&read(&root.join("docs/SUMMARY.md"))?);
    summary += "\n# Sources\n\n";
    for program in programs {
        let name = program.strip_prefix(root).unwrap_or(&program).display();
        let language = program.extension().unwrap_or_default().to_string_lossy();
        let page = format!("# {name}\n\n````{language}\n{}````\n", read(&program)?);
        write(&source.join(format!("{name}.md")), page)?;
        summary += &format!("- [{name}]({name}.md)\n");
    }
    write(&source.join("SUMMARY.md"), summary)?;
    write(&book.join("book.toml"), read(&root.join("docs/book.toml"))?)
}

/// The summary for a folder above docs/.
fn of_root(summary: &str) -> String {
    summary.replace("](", "](docs/").replace("](docs/../", "](")
}

/// A page whose links to programs lead to their pages, and these programs.
fn with_pages_of_programs(text: &str, path: &Path) -> (String, Vec<PathBuf>) {
    let folder = path.parent().unwrap_or(path);
    let mut parts = text.split("](");
    let mut result = parts.next().unwrap_or_default().to_owned();
    let mut programs = vec![];
    for part in parts {
        let (link, rest) = part.split_once(')').unwrap_or((part, ""));
        let file = normal(&folder.join(link));
        let is_program = ["rs", "txt"].iter().any(|end| file.extension() == Some(end.as_ref()));
        result += "](";
        result += link;
        if is_program && file.is_file() {
            result += ".md";
            programs.push(file);
        }
        result += &part[link.len()..part.len() - rest.len()];
        result += rest;
    }
    (result, programs)
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            other => result.push(other),
        }
    }
    result
}

/// The local links of the pages in a folder that lead to no file, or to no element of it.
fn broken_links(html: &Path) -> Result<Vec<String>> {
    let mut broken = vec![];
    for page in files(html)? {
        // The page for printers has all others in it, and their links.
        if page.extension().is_none_or(|end| end != "html") || page.ends_with("print.html") {
            continue;
        }
        for link in attributes(&read(&page)?, &["href", "src"]) {
            if link.contains(':') || link.starts_with('/') {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let folder = page.parent().unwrap_or(html);
            let file = if path.is_empty() { page.clone() } else { normal(&folder.join(path)) };
            let found = match anchor {
                "" => file.is_file(),
                _ => read(&file).is_ok_and(|text| {
                    attributes(&text, &["id"]).iter().any(|element| element == anchor)
                }),
            };
            if !found {
                let name = page.strip_prefix(html).unwrap_or(&page);
                broken.push(format!("{}: {link}", name.display()));
            }
        }
    }
    Ok(broken)
}

/// The values of attributes in HTML, in their order.
fn attributes(html: &str, names: &[&str]) -> Vec<String> {
    let mut values = vec![];
    for name in names {
        for rest in html.split(&format!(" {name}=\"")).skip(1) {
            values.push(rest.split('"').next().unwrap_or_default().to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_pages_by_their_place_in_the_repository() {
        let summary = "[mlx5](../README.md)\n- [Concepts](concepts.md)\n";
        assert_eq!(of_root(summary), "[mlx5](README.md)\n- [Concepts](docs/concepts.md)\n");
    }

    #[test]
    fn links_to_programs_lead_to_their_pages() {
        let page = build::root().join("docs/page.md");
        let text = "see [one](../xtask/src/book.rs), [page](a.md) and [none](none.rs) (or not)";
        let (text, programs) = with_pages_of_programs(text, &page);
        assert_eq!(
            text,
            "see [one](../xtask/src/book.rs.md), [page](a.md) and [none](none.rs) (or not)"
        );
        assert_eq!(programs, [build::root().join("xtask/src/book.rs")]);
    }

    #[test]
    fn attributes_are_found() {
        let html = "<a id=\"x\" href=\"a.html#x\"><img src=\"b.svg\"></a>";
        assert_eq!(attributes(html, &["href", "src"]), ["a.html#x", "b.svg"]);
        assert_eq!(attributes(html, &["id"]), ["x"]);
    }
}
