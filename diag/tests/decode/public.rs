//! Dumps from public threads. The expected findings were read from bytes and threads by hand.

use std::fmt::Write as _;
use std::path::PathBuf;

use expect_test::expect_file;
use mlx5_diag::decode::{self, DecodedRecord, Options, RecordKind};
use mlx5_diag::explain::Knowledge;

use crate::dumps::{dump, names};

fn decoded(name: &str) -> Vec<DecodedRecord> {
    decode::text(&dump(name), Options::default())
}

/// The expected fields of a completion: operation, QP, WQE, status, vendor syndrome; `-` where the
/// text does not have them.
const COMPLETIONS: &[(&str, usize, [&str; 5])] = &[
    ("libmlx5_read_access", 0, ["RDMA_READ", "0x12abe", "0x0dd0", "IBV_WC_REM_ACCESS_ERR", "0x88"]),
    ("libmlx5_interleaved", 0, ["-", "0x6214", "-", "IBV_WC_REM_ACCESS_ERR", "0x88"]),
    ("libmlx5_interleaved", 1, ["RDMA_WRITE", "0x6214", "0x0000", "IBV_WC_REM_ACCESS_ERR", "0x88"]),
    ("libmlx5_qp_operation", 0, ["RDMA_WRITE", "0x12e", "0x1f3a", "IBV_WC_LOC_QP_OP_ERR", "0x61"]),
    ("libmlx5_qp_operation", 2, ["-", "-", "-", "IBV_WC_RETRY_EXC_ERR", "-"]),
    ("libmlx5_gpu", 0, ["SEND", "0x2fe", "0x0002", "IBV_WC_LOC_PROT_ERR", "0x51"]),
    ("perftest_with_dump", 0, ["RDMA_WRITE", "0x1a78", "0x0000", "IBV_WC_LOC_PROT_ERR", "0x51"]),
    ("perftest_with_dump", 1, ["-", "-", "-", "IBV_WC_LOC_PROT_ERR", "0x51"]),
    ("kernel_words", 0, ["RDMA_READ", "0x1af37", "0x115e", "IBV_WC_REM_ACCESS_ERR", "0x88"]),
    ("kernel_words", 1, ["RDMA_READ", "-", "-", "IBV_WC_REM_ACCESS_ERR", "-"]),
    ("spdk_bare_words", 0, ["RDMA_WRITE", "0x28f15", "0x2532", "IBV_WC_REM_ACCESS_ERR", "0x88"]),
    ("kernel_nfs", 0, ["RDMA_WRITE", "0x113", "0x0747", "IBV_WC_REM_ACCESS_ERR", "0x88"]),
    ("kernel_nfs", 1, ["RDMA_WRITE", "0x108", "0x6bd2", "IBV_WC_REM_ACCESS_ERR", "0x88"]),
    ("kernel_nvme_iommu", 0, ["-", "0x1e9", "0x0054", "IBV_WC_LOC_PROT_ERR", "0x56"]),
    ("kernel_umr", 0, ["UMR", "0x11b9", "0x000e", "IBV_WC_MW_BIND_ERR", "0x78"]),
    ("kernel_smc", 0, ["RDMA_WRITE", "0x361b3", "0x1ea1", "IBV_WC_REM_ACCESS_ERR", "0x88"]),
    ("kernel_odp", 0, ["UMR", "0x58", "0x00da", "IBV_WC_MW_BIND_ERR", "0x78"]),
    ("kernel_flushed", 0, ["-", "-", "-", "IBV_WC_WR_FLUSH_ERR", "0xf9"]),
    ("mlx5e_gro", 0, ["-", "0x0", "0x0000", "IBV_WC_LOC_PROT_ERR", "0x32"]),
    ("mlx5e_inline", 0, ["SEND", "0x1dbb", "0x000f", "IBV_WC_LOC_LEN_ERR", "0x68"]),
    ("mlx5e_inline_miscopied", 0, ["SEND", "0x1dbb", "0x000f", "IBV_WC_LOC_LEN_ERR", "0x68"]),
    ("mlx5e_words", 0, ["-", "0x10a9", "-", "IBV_WC_LOC_PROT_ERR", "0x32"]),
    ("dpdk_cqe", 0, ["SEND", "0x1542", "0x0019", "IBV_WC_LOC_PROT_ERR", "0x53"]),
    ("dpdk_cqe", 1, ["SEND", "0x1534", "0x005a", "IBV_WC_LOC_PROT_ERR", "0x53"]),
    ("ucx_gpu", 0, ["SEND", "0x169", "0x0003", "IBV_WC_LOC_PROT_ERR", "0x51"]),
    ("ucx_dci_read", 0, ["RDMA_READ", "0x1ca1", "0x0006", "IBV_WC_REM_OP_ERR", "0x89"]),
    ("ucx_roce", 0, ["SEND", "0x14e4", "0x0000", "IBV_WC_RETRY_EXC_ERR", "0x81"]),
    ("ucx_roce", 2, ["SEND", "0x156d", "0x0000", "IBV_WC_RETRY_EXC_ERR", "0x81"]),
    ("ucx_one_line", 0, ["SEND", "0xe6d7", "0x1e8d", "IBV_WC_RETRY_EXC_ERR", "0x81"]),
    ("ucx_verbs", 0, ["-", "0xf9db", "-", "IBV_WC_LOC_PROT_ERR", "0x51"]),
    ("perftest", 0, ["-", "-", "-", "IBV_WC_RETRY_EXC_ERR", "0x81"]),
    // The thread takes 81 for hexadecimal, which is another code.
    ("nccl_decimal", 0, ["-", "-", "-", "IBV_WC_LOC_PROT_ERR", "0x51"]),
    ("nccl_retry", 0, ["-", "-", "-", "IBV_WC_RETRY_EXC_ERR", "0x81"]),
    ("nccl_retry", 1, ["-", "-", "-", "IBV_WC_WR_FLUSH_ERR", "0xf9"]),
    ("program_numbers", 0, ["-", "-", "-", "IBV_WC_RETRY_EXC_ERR", "0x81"]),
    ("program_numbers", 1, ["-", "-", "-", "IBV_WC_WR_FLUSH_ERR", "0xf9"]),
    ("other_vendor", 0, ["-", "0x2e24", "-", "IBV_WC_RETRY_EXC_ERR", "0x0a"]),
];

#[test]
fn completions_are_what_their_threads_say() {
    for (name, at, expected) in COMPLETIONS {
        let records = decoded(name);
        let record = records.get(*at).unwrap_or_else(|| panic!("{name} has no record {at}"));
        let found = ["operation", "QP", "WQE", "status", "vendor code"]
            .map(|field| record.value(field).unwrap_or("-"));
        assert_eq!(found, *expected, "{name}, record {at}");
        // Each has causes with cures, and says of the vendor's code what is known.
        let status = &record.findings[0];
        assert!(!status.causes.is_empty(), "{name}: {status:?}");
        if expected[4] != "-" {
            let vendor = &record.findings[1];
            assert!(vendor.code.ends_with(expected[4]), "{name}: {vendor:?}");
            assert!(vendor.source.is_some() || vendor.knowledge > Knowledge::Told);
        }
    }
}

/// Command, status, syndrome, and whether something public is known of the syndrome.
const COMMANDS: &[(&str, usize, [&str; 3], bool)] = &[
    ("command_modify", 0, ["RTR2RTS_QP", "0x3", "0x4bb88f"], true),
    ("command_mkey", 0, ["CREATE_MKEY", "0x3", "0x35e6ec"], true),
    ("command_wrapped", 0, ["CREATE_GENERAL_OBJECT", "0x3", "0x5fa1c"], true),
    ("command_in_use", 0, ["DEALLOC_MODIFY_HEADER_CONTEXT", "0x9", "0x1ab444"], true),
    ("command_in_use", 1, ["DEALLOC_PACKET_REFORMAT_CONTEXT", "0x9", "0x179e84"], true),
    ("command_page_size", 0, ["CREATE_MKEY", "0x3", "0x38a711"], true),
    ("command_mailboxes", 2, ["CREATE_QP", "0x5", "0x65b500"], true),
    ("ucx_command", 0, ["mlx5dv_devx_obj_create(QP)", "-", "0x2c4154"], true),
    ("ucx_command_withheld", 0, ["mlx5dv_devx_qp_modify(503)", "-", "0x0"], false),
    ("command_timeout", 0, ["2RST_QP", "-", "-"], false),
    ("command_timeout", 2, ["QUERY_VPORT_COUNTER", "-", "-"], false),
];

#[test]
fn commands_are_what_their_threads_say() {
    for (name, at, expected, known) in COMMANDS {
        let records = decoded(name);
        let record = records.get(*at).unwrap_or_else(|| panic!("{name} has no record {at}"));
        assert_eq!(record.kind, RecordKind::CommandFailure, "{name}");
        let found =
            ["command", "status", "syndrome"].map(|field| record.value(field).unwrap_or("-"));
        assert_eq!(found, *expected, "{name}");
        let sources = record.findings.iter().filter(|finding| finding.source.is_some()).count();
        assert_eq!(sources > 0, *known, "{name}: {record:?}");
    }
}

#[test]
fn a_completion_leads_to_the_wqe_that_it_names() {
    // The kernel's dump of both; the WQE has no header in it, which is what its card wants.
    let records = decoded("mlx5e_inline");
    assert_eq!(records[0].wqe, Some(2));
    let wqe = &records[1];
    assert_eq!(wqe.kind, RecordKind::Wqe);
    assert_eq!(wqe.text, ["Ethernet: no headers", "data: 0x59ee30800, 43 bytes, lkey 0x80000"]);
    // UCX's words of it.
    let records = decoded("ucx_dci_read");
    assert_eq!(records[0].wqe, Some(2));
    assert_eq!(
        records[1].text,
        [
            "to: QP 0x20fc rlid 93",
            "remote: 0x7fb33a733188 rkey 0x6029",
            "data: 0x7fbdea5c1388, 632 bytes, lkey 0x41e6"
        ]
    );
    // Two of the same index, of different queue pairs.
    let records = decoded("ucx_roce");
    assert_eq!([0, 2].map(|at| records[at].wqe), [Some(2), Some(4)]);
}

#[test]
fn mailboxes_are_read_field_by_field() {
    let records = decoded("command_mailboxes");
    let input = &records[0];
    assert_eq!(input.title, "CREATE_QP (0x500), 304 bytes");
    for (field, expected) in [
        ("uid", "2"),
        ("qpc.pd", "0x18"),
        ("qpc.cqn_snd", "0x10d"),
        ("qpc.uar_page", "0x16"),
        ("qpc.user_index", "0x3ff5f"),
        ("qpc.dbr_addr", "0x55b6fe840"),
    ] {
        assert_eq!(input.value(field), Some(expected), "{field}");
    }
    assert_eq!(records[1].title, "reply of CREATE_QP (0x500): BAD_RES_ERR");
}

#[test]
fn health_reports_are_named_and_those_of_absent_cards_are_not_believed() {
    let records = decoded("health_assert");
    assert_eq!(records[0].title, "health report: firmware internal error");
    assert_eq!(records[0].value("fw_ver"), Some("22.44.1036"));
    let records = decoded("health_gone");
    assert_eq!(records[0].title, "health report of an HCA that does not answer");
    assert!(records[0].findings.is_empty());
}

#[test]
fn every_dump_names_its_source_and_has_something_in_it() {
    let names = names();
    assert!(names.len() >= 25, "{} dumps", names.len());
    let tested = |name: &str| {
        COMPLETIONS.iter().any(|entry| entry.0 == name)
            || COMMANDS.iter().any(|entry| entry.0 == name)
            || name.starts_with("health_")
    };
    for name in names {
        assert!(dump(&name).starts_with("Source: https://"), "{name}");
        assert!(!decoded(&name).is_empty(), "{name}");
        assert!(tested(&name), "{name} is in no table");
    }
}

/// Titles and fields of all of them: what a change of a format does to others is seen here.
#[test]
fn every_dump_is_read_as_before() {
    let mut all = String::new();
    for name in names() {
        writeln!(all, "## {name}").unwrap();
        for record in decoded(&name) {
            let (first, last) = record.lines.expect("text has lines");
            let wqe = record.wqe.map(|wqe| format!(" -> {wqe}")).unwrap_or_default();
            let times =
                if record.times > 1 { format!(" x{}", record.times) } else { String::new() };
            writeln!(all, "{first}-{last} {}: {}{times}{wqe}", record.format, record.title)
                .unwrap();
            for field in &record.fields {
                writeln!(all, "  {} = {}", field.name, field.value).unwrap();
            }
            for line in &record.text {
                writeln!(all, "  - {line}").unwrap();
            }
        }
    }
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/decode-dumps.txt");
    expect_file![file].assert_eq(&all);
}
