//! The header against the definitions in Rust, and the library's symbols against the header.
//!
//! The header is written by hand, since it is the contract that users read. So tests compare it.

mod support;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::mem::offset_of;
use std::process::Command;

use mlx5direct::{
    Address, CHECKSUMS, COMPLETION_GRH, COMPLETION_SOLICITED, CQ_UNPOLLED, Change, Completion,
    FENCED, INLINE, INLINE_HEADER, INTERLEAVED, LIST_IN_MEMORY, Operation, PACKET_IP_OK,
    PACKET_IPV4, PACKET_IPV6, PACKET_L4_OK, PACKET_LAST, PACKET_TCP, PACKET_UDP, PACKET_VLAN,
    Packet, Receive, Request, SIGNALED, SOLICITED, SQ_OWN_REGISTER, Status, TYPE_2, VERSION, VLAN,
    ZERO_BASED,
};
use support::{Language, built, compile, folder, package};

fn header() -> String {
    fs::read_to_string(package("include/mlx5.h")).unwrap()
}

/// The header without comments.
fn code() -> String {
    let mut code = String::new();
    let header = header();
    let mut rest = header.as_str();
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").expect("a comment ends").1;
    }
    code + rest
}

/// `FirstSecond` as `FIRST_SECOND`.
fn constant(name: &str) -> String {
    let mut constant = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at != 0 {
            constant.push('_');
        }
        constant.push(letter.to_ascii_uppercase());
    }
    constant
}

/// Every enumerator, with its value in Rust.
fn enumerators() -> Vec<(String, u64)> {
    let statuses = Status::ALL.iter().map(|status| {
        let name = constant(&format!("{status:?}"));
        (
            format!("MLX5_STATUS_{name}").replace("MLX5_STATUS_NOT_MLX5", "MLX5_STATUS_NOT_MLX5"),
            *status as u64,
        )
    });
    let operations = Operation::ALL.iter().map(|operation| {
        (format!("MLX5_OP_{}", constant(&format!("{operation:?}"))), *operation as u64)
    });
    let flags = [
        ("MLX5_SIGNALED", SIGNALED.into()),
        ("MLX5_FENCED", FENCED.into()),
        ("MLX5_SOLICITED", SOLICITED.into()),
        ("MLX5_INLINE", INLINE.into()),
        ("MLX5_CHECKSUMS", CHECKSUMS.into()),
        ("MLX5_INTERLEAVED", INTERLEAVED.into()),
        ("MLX5_LIST_IN_MEMORY", LIST_IN_MEMORY.into()),
        ("MLX5_INLINE_HEADER", INLINE_HEADER.into()),
        ("MLX5_VLAN", VLAN.into()),
        ("MLX5_TYPE_2", TYPE_2.into()),
        ("MLX5_ZERO_BASED", ZERO_BASED.into()),
        ("MLX5_PACKET_IPV4", PACKET_IPV4.into()),
        ("MLX5_PACKET_IPV6", PACKET_IPV6.into()),
        ("MLX5_PACKET_IP_OK", PACKET_IP_OK.into()),
        ("MLX5_PACKET_TCP", PACKET_TCP.into()),
        ("MLX5_PACKET_UDP", PACKET_UDP.into()),
        ("MLX5_PACKET_L4_OK", PACKET_L4_OK.into()),
        ("MLX5_PACKET_VLAN", PACKET_VLAN.into()),
        ("MLX5_PACKET_LAST", PACKET_LAST.into()),
        ("MLX5_COMPLETION_GRH", COMPLETION_GRH.into()),
        ("MLX5_COMPLETION_SOLICITED", COMPLETION_SOLICITED.into()),
        ("MLX5_CQ_UNPOLLED", CQ_UNPOLLED.into()),
        ("MLX5_SQ_OWN_REGISTER", SQ_OWN_REGISTER.into()),
    ];
    let flags = flags.into_iter().map(|(name, value): (&str, u64)| (name.to_owned(), value));
    statuses.chain(operations).chain(flags).collect()
}

/// Sizes and offsets in Rust of the structures that programs fill and read.
fn layouts() -> Vec<(String, u64)> {
    let mut layouts = vec![
        ("sizeof(enum mlx5_status)".to_owned(), size_of::<Status>() as u64),
        ("sizeof(struct mlx5_address)".to_owned(), size_of::<Address>() as u64),
    ];
    macro_rules! layout {
        ($name:literal, $type:ty, $($field:ident)*) => {{
            layouts.push((format!("sizeof(struct {})", $name), size_of::<$type>() as u64));
            $({
                let name = stringify!($field);
                let offset = offset_of!($type, $field);
                layouts.push((format!("offsetof(struct {}, {name})", $name), offset as u64));
                let _ = |value: &$type| {
                    let _ = &value.$field;
                };
            })*
        }};
    }
    layout!(
        "mlx5_request", Request,
        id operation flags sg_list num_sge immediate remote_addr rkey reserved compare_add swap address
    );
    layout!("mlx5_receive", Receive, id sg_list num_sge reserved);
    layout!("mlx5_change", Change, bytes offset length);
    layout!(
        "mlx5_packet", Packet,
        id timestamp status byte_len flow_tag hash vlan checksum flags vendor_error wqe_index offset
        reserved
    );
    layout!(
        "mlx5_completion", Completion,
        id qpn status operation byte_len immediate src_qp slid wqe_index sl dlid_path_bits flags
        vendor_error
    );
    layouts
}

/// A program whose compilation compares each value.
fn comparison(language: Language) -> String {
    let check = match language {
        Language::C => "_Static_assert",
        Language::Cpp => "static_assert",
    };
    let mut program = String::from("#include \"mlx5.h\"\n");
    let version = [("MLX5_VERSION".to_owned(), VERSION.into())];
    for (expression, value) in version.into_iter().chain(enumerators()).chain(layouts()) {
        writeln!(program, "{check}({expression} == {value}, \"{value} in Rust\");").unwrap();
    }
    program
}

#[test]
fn values_sizes_and_offsets_are_those_of_the_library() {
    for language in [Language::C, Language::Cpp] {
        let source = folder().join(format!("comparison-{language:?}"));
        fs::write(&source, comparison(language)).unwrap();
        compile(language.compiler().arg("-fsyntax-only").arg(&source));
    }
}

#[test]
fn the_header_has_the_enumerators_of_the_library_and_no_others() {
    let code = code();
    let in_header: BTreeSet<&str> = code
        .lines()
        .filter_map(|line| line.trim().split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("MLX5_"))
        .collect();
    let enumerators = enumerators();
    let in_library: BTreeSet<&str> = enumerators.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(in_header, in_library);
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let code = code();
    let words = code
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '(');
    words
        .filter_map(|word| word.split_once('('))
        .filter(|(name, _)| name.starts_with("mlx5_"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// The symbols that the shared library defines for others.
fn exported() -> BTreeSet<String> {
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(built("libmlx5direct.so")).output();
    let output = output.expect("nm, of binutils");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

#[test]
fn the_library_exports_what_the_header_declares() {
    assert_eq!(exported(), declared());
}

/// Symbols that a released library had stay. With `MLX5_WRITE_SYMBOLS=1`, writes the list instead.
#[test]
fn exported_symbols_are_those_of_the_list() {
    let path = package("tests/symbols.txt");
    let symbols: String = exported().into_iter().map(|symbol| symbol + "\n").collect();
    if std::env::var_os("MLX5_WRITE_SYMBOLS").is_some() {
        fs::write(&path, &symbols).unwrap();
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        symbols, listed,
        "run this test with MLX5_WRITE_SYMBOLS=1, and look at the difference"
    );
}

#[test]
fn the_library_has_the_soname_of_its_interface() {
    let output = Command::new("objdump").arg("-p").arg(built("libmlx5direct.so")).output();
    let text = String::from_utf8(output.expect("objdump, of binutils").stdout).unwrap();
    let soname = text.lines().find(|line| line.contains("SONAME"));
    assert!(soname.is_some_and(|line| line.ends_with(" libmlx5direct.so.0")), "{soname:?}");
    // It opens libibverbs and libmlx5 at the first call.
    assert!(cfg!(feature = "link") || !text.contains("libibverbs"), "{text}");
}

/// Each function says which threads may call it.
#[test]
fn each_function_has_a_thread_rule() {
    let header = header();
    for function in declared() {
        let at = header.find(&format!("{function}(")).filter(|_| true);
        let declaration = header
            .match_indices(&format!("{function}("))
            .map(|(at, _)| at)
            .find(|at| !header[..*at].rsplit('\n').next().unwrap_or("").starts_with([' ', '/']))
            .or(at)
            .expect("declared");
        let comment = header[..declaration].rfind("/*").expect("a comment");
        assert!(header[comment..declaration].contains("Thread: "), "{function}");
    }
}

#[test]
fn each_header_compiles_alone() {
    let headers = [
        ("mlx5.h", &[Language::C, Language::Cpp][..]),
        ("mlx5_wqe.h", &[Language::C, Language::Cpp]),
        ("mlx5_engine.h", &[Language::C, Language::Cpp]),
        ("mlx5_ring.h", &[Language::C, Language::Cpp]),
        ("mlx5.hpp", &[Language::Cpp]),
    ];
    for (header, languages) in headers {
        for language in languages {
            let source = folder().join(format!("alone-{header}-{language:?}"));
            fs::write(&source, format!("#include <{header}>\n")).unwrap();
            compile(language.compiler().arg("-fsyntax-only").arg(&source));
            // std::span.
            if *language == Language::Cpp {
                let mut compiler = language.compiler();
                compile(compiler.args(["-std=c++20", "-fsyntax-only"]).arg(&source));
            }
        }
    }
}
