//! libibverbs, libmlx5, and how libibverbs finds libmlx5.

use super::check::{Check, Group, Question};
use super::situation::{Live, Situation};
use super::tree::Tree;

/// Library folders of distributions.
const FOLDERS: [&str; 6] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "usr/local/lib",
];

pub fn look(situation: &Situation) -> Vec<Check> {
    vec![
        library(situation, "libibverbs", "apt-get install libibverbs1    # dnf install libibverbs"),
        library(
            situation,
            "libmlx5",
            "apt-get install ibverbs-providers    # dnf install libibverbs",
        ),
        provider(situation),
    ]
}

/// Returns the file of a library with its full version: `libmlx5.so.1.24.44.0`.
fn file(tree: &Tree, name: &str) -> Option<String> {
    // The copy that this process has loaded, wherever it came from.
    if tree.is_own() {
        let maps = tree.read("proc/self/maps").unwrap_or_default();
        let mut loaded = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let start = format!("/{name}.so");
        if let Some(path) = loaded.rfind(|path| path.contains(&start)) {
            return Some(path.to_owned());
        }
    }
    FOLDERS.iter().find_map(|folder| {
        let names = tree.list(folder).into_iter();
        let longest = names.filter(|file| file.starts_with(&format!("{name}.so.")));
        Some(format!("/{folder}/{}", longest.max_by_key(String::len)?))
    })
}

/// Returns rdma-core's version from a library's: the third number since they are built together.
fn package(file: &str) -> Option<u32> {
    let version = file.rsplit_once(".so.")?.1;
    let numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    (numbers.len() == 4).then(|| numbers[2])
}

/// Returns the version of rdma-core that libibverbs is of.
pub fn rdma_core(tree: &Tree) -> Option<u32> {
    package(&file(tree, "libibverbs")?)
}

fn library(situation: &Situation, name: &'static str, cure: &str) -> Check {
    let question = Question::new(
        Group::Libraries,
        name,
        "/proc/self/maps, the folders of libraries",
        "the control path goes through it; what it knows of the device depends on its version",
    );
    match file(&situation.tree, name) {
        Some(file) => question.good(match package(&file) {
            Some(version) => format!("{file} (rdma-core {version})"),
            None => file,
        }),
        None if situation.tree.is_own() => question.broken(format!("no {name}.so.1"), cure),
        None => question.unknown(format!("no {name}.so.1 in the tree"), Some(cure.to_owned())),
    }
}

fn provider(situation: &Situation) -> Check {
    const DRIVERS: &str = "etc/libibverbs.d";
    let tree = &situation.tree;
    let question = Question::new(
        Group::Libraries,
        "provider",
        format!("/{DRIVERS}/mlx5.driver, libibverbs/libmlx5-rdmav*.so"),
        "libibverbs finds no ConnectX without its provider, as ibv_devices then shows",
    );
    let named = tree.list(DRIVERS).into_iter().find(|file| {
        let text = tree.read(&format!("{DRIVERS}/{file}")).unwrap_or_default();
        text.lines().any(|line| line.trim() == "driver mlx5" || line.trim().ends_with("/libmlx5"))
    });
    let plugin = FOLDERS.iter().find_map(|folder| {
        let folder = format!("{folder}/libibverbs");
        let names = tree.list(&folder).into_iter();
        let mut plugins = names.filter(|name| name.starts_with("libmlx5-rdmav"));
        Some(format!("/{folder}/{}", plugins.next()?))
    });
    let cure = "apt-get install --reinstall ibverbs-providers    # dnf reinstall libibverbs";
    match (named, plugin) {
        (Some(file), Some(plugin)) => question.good(format!("/{DRIVERS}/{file}, {plugin}")),
        (named, plugin) => {
            let missing = match (&named, &plugin) {
                (Some(_), _) => "libibverbs/libmlx5-rdmav*.so is missing",
                (None, Some(_)) => "no file of /etc/libibverbs.d names mlx5",
                (None, None) => "neither /etc/libibverbs.d names mlx5, nor is its plugin there",
            };
            match &situation.live {
                // This program links libmlx5 in; other programs search for the provider.
                Live::Open(_) => {
                    question.warning(format!("{missing}; other programs need it"), cure)
                }
                Live::Copied => question.unknown(missing, Some(cure.to_owned())),
                Live::Absent(_) | Live::Closed(_) => question.broken(missing, cure),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_tells_the_package_that_it_is_of() {
        assert_eq!(package("/usr/lib64/libmlx5.so.1.24.44.0"), Some(44));
        assert_eq!(package("/usr/lib64/libmlx5.so.1"), None);
    }
}
