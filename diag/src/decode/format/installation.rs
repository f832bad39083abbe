//! Modules of the kernel, shared libraries and tools that do not fit what else is installed.
//!
//! The kernel: "mlx5_ib: disagrees about version of symbol mlx5_core_destroy_psv". kmod: "modprobe:
//! ERROR: could not insert 'mlx5_ib': Invalid argument". libibverbs: "couldn't load driver
//! 'libmlx5-rdmav34.so'". The loader: "libibverbs.so.1: cannot open shared object file". mstflint:
//! "-E- Failed to open the device".

use crate::explain::event::KernelEvent;
use crate::explain::{ExplainedCode, installation};

use super::super::lines::Lines;
use super::super::record::{DecodedRecord, RecordKind};
use super::{Format, Reading};

/// The format of these messages.
pub(super) const FORMAT: Format = Format {
    name: "installation",
    reads: "Linux, modprobe: \"disagrees about version of symbol\", \"Unknown symbol\", \"could not insert\"; libibverbs, DPDK, the loader, the linker: a library that is missing or of another version; mstflint, OFED's installer, Kubernetes' plugins: what they refuse",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 2048;

/// Other lines between those about the symbols of one module.
const APART: usize = 2;

/// Symbols that are named.
const NAMED: usize = 3;

/// Beginnings of the names of RDMA's modules, with `_` for every hyphen.
const MODULES: [&str; 10] = [
    "mlx4",
    "mlx5",
    "mlxfw",
    "mlx_compat",
    "ib_",
    "iw_",
    "nv_peer",
    "nvidia_peer",
    "ko2iblnd",
    "bnxt_re",
];

/// Names of others of its modules.
const OTHERS: [&str; 3] = ["siw", "qib", "hfi1"];

/// Beginnings of RDMA's functions.
const FUNCTIONS: [&str; 6] = ["ibv_", "mlx5dv_", "mlx4dv_", "rdma_", "umad_", "efadv_"];

/// Parts of names of RDMA's libraries, of versions of their symbols, and of their headers.
const LIBRARIES: [&str; 10] = [
    "ibverbs",
    "libmlx",
    "mlx5_glue",
    "rdmacm",
    "ibumad",
    "ibmad",
    "rdmav",
    "infiniband/",
    "rdma/",
    "rdma-core",
];

/// Beginnings of the versions of RDMA's symbols.
const VERSIONS: [&str; 5] = ["IBVERBS_", "MLX5_", "MLX4_", "RDMACM_", "IBUMAD_"];

/// Names of the files that a build system compiles to try what there is.
const PROBES: [&str; 3] = ["conftest", "testfile", "CheckSymbolExists"];

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.len() > LONGEST {
        return None;
    }
    match module(line) {
        Some((name, event)) => Some(modules(lines, at, &name, event)),
        None => library(line).or_else(|| tool(line)).map(|record| Reading::to(at, vec![record])),
    }
}

/// Returns whether a module is one of RDMA's.
pub(super) fn is_module(name: &str) -> bool {
    let name = name.replace('-', "_");
    name.contains("rdma")
        || OTHERS.contains(&name.as_str())
        || MODULES.iter().any(|known| name.starts_with(known))
}

/// Returns the module of RDMA that a line is about, and what the line says of it.
fn module(line: &str) -> Option<(String, &'static KernelEvent)> {
    let event = installation::module(line)?;
    let begins = line.find(event.begins()).or_else(|| line.find("Unknown symbol"))?;
    // "mlx5_ib: disagrees …" has the name before the words, "insert 'mlx5_ib': …" behind them.
    let name = match event.begins() {
        "could not insert" | "can't insert" | "ERROR: Module" | "FATAL: Module" => {
            let (_, behind) = line.split_once(event.begins())?;
            behind
                .trim_start_matches(" module")
                .trim_start()
                .split([' ', '\'', '"', ':'])
                .find(|word| !word.is_empty())?
        }
        // depmod names the file, without a colon.
        _ => {
            let before = line[..begins].trim_end();
            let path = before.ends_with(".ko") || before.contains(".ko.");
            let before = before.strip_suffix(':').or_else(|| path.then_some(before))?;
            before.rsplit([' ', ']']).next()?
        }
    };
    let name = stem(name);
    is_module(name).then(|| (name.to_owned(), event))
}

/// Returns the name of a module in its path.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split(".ko").next().unwrap_or(name)
}

/// Reads all lines about one module that say the same: there is one for each symbol.
fn modules(lines: &Lines<'_>, at: usize, name: &str, event: &'static KernelEvent) -> Reading {
    let mut symbols: Vec<&str> = Vec::new();
    let (mut end, mut next) = (at, at);
    let mut own = vec![at];
    // Other lines than those about symbols have a reason each.
    let last = if event.begins().contains("symbol") { lines.len() } else { at + 1 };
    while next < last && next <= end + 1 + APART {
        let line = lines.get(next);
        let found = Some(line).filter(|line| line.len() <= LONGEST).and_then(module);
        if let Some((of, what)) = found {
            // Those of another module are another record.
            if of != name || what != event {
                break;
            }
            end = next;
            if next > at {
                own.push(next);
            }
            let symbol = line
                .split_once("symbol ")
                .filter(|_| line.contains("(err") || line.contains("version of symbol"))
                .map(|(_, rest)| rest);
            let symbol = symbol.and_then(|rest| rest.split([' ', '(']).next());
            symbols.extend(symbol.filter(|symbol| !symbols.contains(symbol)));
        }
        next += 1;
    }
    let mut record =
        DecodedRecord::new(RecordKind::Installation, format!("{name}: {}", event.title));
    record.field("module", name);
    if !symbols.is_empty() {
        let more = symbols.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        symbols.truncate(NAMED);
        record.field("symbols", format!("{}{more}", symbols.join(", ")));
    } else {
        record.field("message", words(lines.get(at)));
    }
    record.findings.push(ExplainedCode::event(event));
    Reading::of(&own, end, vec![record])
}

/// Returns the record of a line about one of RDMA's libraries.
fn library(line: &str) -> Option<DecodedRecord> {
    if !line.contains("lib")
        && !line.contains("mlx")
        && !LIBRARIES.iter().chain(&FUNCTIONS).any(|part| line.contains(part))
    {
        return None;
    }
    let event = installation::library(line)?;
    // NCCL looks for functions that a library may have.
    if line.contains("dlvsym failed") || PROBES.iter().any(|probe| line.contains(probe)) {
        return None;
    }
    let name = missing(line, event)?;
    let title = match name {
        "" => event.title.to_owned(),
        name => format!("{name}: {}", event.title),
    };
    let mut record = DecodedRecord::new(RecordKind::Installation, title);
    record.field_if("file", Some(name).filter(|name| !name.is_empty()));
    record.field("message", words(line));
    record.findings.push(ExplainedCode::event(event));
    Some(record)
}

/// Returns the library or header that a message is about, or an empty text; `None` if it is none of
/// RDMA's.
fn missing<'a>(line: &'a str, event: &KernelEvent) -> Option<&'a str> {
    let is_own = |name: &&str| LIBRARIES.iter().any(|part| file(name).contains(part));
    let marks = ['\'', '"', '`', ':', '(', ')', ' ', ',', '‘', '’'];
    let mut words = line.split(marks).filter(|word| !word.is_empty());
    let library = || line.split(marks).find(|word| word.contains(".so") && is_own(word));
    let quoted = |before: &str| {
        let rest = line.split_once(before)?.1.trim_start_matches(marks);
        rest.split(marks).next()
    };
    let is_function = |name: &str| FUNCTIONS.iter().any(|known| name.starts_with(known));
    match event.begins() {
        // A function of RDMA's, or a library of RDMA's that lacks one.
        "undefined symbol" => {
            let own = quoted("undefined symbol").is_some_and(is_function);
            library().or(own.then_some(""))
        }
        "undefined reference to" => {
            let own = quoted("undefined reference to").is_some_and(is_function);
            own.then_some("")
        }
        "version `" => {
            let version = quoted("version `")?;
            let own = VERSIONS.iter().any(|known| version.starts_with(known));
            own.then(|| library().unwrap_or(""))
        }
        "cannot find -l" => {
            let name = line.split_once("cannot find -l")?.1.split(marks).next()?;
            ["ibverbs", "mlx5", "mlx4", "rdmacm", "ibumad", "ibmad"].contains(&name).then_some("")
        }
        ".h: No such file or directory" => {
            let header = words.find(|word| word.ends_with(".h"))?;
            let own = ["infiniband/", "rdma/"].iter().any(|folder| header.starts_with(folder));
            own.then_some(header)
        }
        "cannot open shared object file" => library(),
        // The words are libibverbs' or DPDK's own.
        _ => Some(library().unwrap_or("")),
    }
}

/// Returns the part of a path that names the file; of a header, with its folder.
fn file(path: &str) -> &str {
    if path.ends_with(".h") { path } else { path.rsplit('/').next().unwrap_or(path) }
}

/// Returns the record of a line of a tool.
fn tool(line: &str) -> Option<DecodedRecord> {
    let event = installation::tool(line)?;
    let mut record = DecodedRecord::new(RecordKind::Installation, event.title);
    record.field("message", words(line));
    record.findings.push(ExplainedCode::event(event));
    Some(record)
}

/// Returns a message without the prefix of syslog and the time of the kernel's log.
pub(super) fn words(line: &str) -> &str {
    let mut text = line.split_once(" kernel: ").map_or(line, |(_, rest)| rest).trim();
    // The time, and the thread or processor that printed it.
    while let Some((_, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        text = rest.trim();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_of_a_line_is_found() {
        let name = |line| module(line).map(|(name, _)| name);
        for (line, of) in [
            ("[    9.1] mlx5_ib: disagrees about version of symbol ib_dealloc", "mlx5_ib"),
            ("[    9.1] mlx5_ib: Unknown symbol ib_dealloc (err -22)", "mlx5_ib"),
            (
                "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument",
                "nvidia_peermem",
            ),
            (
                "insmod: ERROR: could not insert module ./nv_peer_mem.ko: Unknown symbol in module",
                "nv_peer_mem",
            ),
            (
                "modprobe: FATAL: Module ib-uverbs not found in directory /lib/modules/6.1",
                "ib-uverbs",
            ),
        ] {
            assert_eq!(name(line).as_deref(), Some(of), "{line}");
        }
        assert_eq!(name("snd_hda: Unknown symbol snd_x (err -2)"), None);
        assert_eq!(name("modprobe: FATAL: Module floppy not found in directory /x"), None);
    }

    #[test]
    fn libraries_of_others_are_none() {
        assert!(library("libfoo.so.1: cannot open shared object file: No such file").is_none());
        let own = library(
            "x: error while loading shared libraries: libibverbs.so.1: cannot open shared object file: No such file or directory",
        );
        assert_eq!(
            own.and_then(|record| record.value("file").map(str::to_owned)).as_deref(),
            Some("libibverbs.so.1")
        );
    }
}
