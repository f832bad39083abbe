//! Text that people paste beside logs: counters, states of links, packets, and forms of libraries.

use mlx5_diag::decode::{self, DecodedRecord, Options, RecordKind};
use mlx5_diag::explain::causes::Grounds;

fn decoded(text: &str) -> Vec<DecodedRecord> {
    decode::text(text, Options::default())
}

/// Returns the only record of a text.
fn only(text: &str) -> DecodedRecord {
    let records = decoded(text);
    assert_eq!(records.len(), 1, "{text}\n{records:#?}");
    records.into_iter().next().expect("one")
}

/// Returns the meaning of a field.
fn meaning<'a>(record: &'a DecodedRecord, name: &str) -> &'a str {
    let field = record.fields.iter().find(|field| field.name == name);
    field.and_then(|field| field.meaning.as_deref()).unwrap_or_default()
}

const LISTING: &str = "\
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/lifespan:12
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err:2705
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent:1333
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer:0
";

#[test]
fn a_listing_of_counters_is_read_with_meanings_and_checks() {
    let record = only(LISTING);
    assert_eq!(record.kind, RecordKind::Counters);
    assert_eq!((record.value("device"), record.lines), (Some("mlx5_0/1"), Some((1, 4))));
    assert_eq!(record.value("local_ack_timeout_err"), Some("2705"));
    assert!(meaning(&record, "local_ack_timeout_err").contains("did not come in time"));
    assert_eq!((record.value("out_of_buffer"), record.value("lifespan")), (None, None));
    assert!(record.title.contains("1 tells of a fault"), "{}", record.title);
    // The fault comes before what only grows, each with its first check and no cause.
    let codes: Vec<&str> = record.findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes, ["local_ack_timeout_err", "np_cnp_sent"]);
    assert!(
        record.findings.iter().all(|finding| finding.check.is_some() && finding.causes.is_empty())
    );
}

#[test]
fn two_listings_are_read_as_their_difference() {
    let later = LISTING.replace("2705", "2811").replace("buffer:0", "buffer:9");
    let record = only(&format!("before\n{LISTING}after\n{later}"));
    assert_eq!(record.value("local_ack_timeout_err"), Some("+106 (2705 to 2811)"));
    assert_eq!(record.value("out_of_buffer"), Some("+9 (0 to 9)"));
    assert_eq!(record.value("np_cnp_sent"), None);
    assert!(record.title.contains("grew") && record.title.contains("2 tell"), "{}", record.title);
    let same = only(&format!("{LISTING}\n{LISTING}"));
    assert!(same.title.contains("none grew") && same.findings.is_empty(), "{same:#?}");
    let reset = only("out_of_sequence: 9\nout_of_sequence: 2\n");
    assert_eq!(reset.value("out_of_sequence"), Some("9 to 2: it was reset"));
}

#[test]
fn counters_of_every_tool_are_read() {
    let ethtool = only(
        "# ethtool -S eth2\nNIC statistics:\n     rx_packets: 5\n     rx_discards_phy: 7\n     rx_prio3_pause: 2\n",
    );
    assert_eq!(ethtool.value("device"), Some("eth2"));
    assert_eq!(
        (ethtool.value("rx_discards_phy"), ethtool.value("rx_prio3_pause")),
        (Some("7"), Some("2"))
    );
    let rdma = only("link mlx5_1/1 rx_write_requests 4 out_of_sequence 3 packet_seq_err 0 ");
    assert_eq!(
        (rdma.value("device"), rdma.value("out_of_sequence")),
        (Some("mlx5_1/1"), Some("3"))
    );
    assert!(rdma.title.contains("1 tells of a fault"));
    let vnic = only(
        "pci/0000:08:00.0:\n vNIC env counters:\n    total_error_queues: 0 send_queue_priority_update_flow: 0\n    cq_overrun: 2 async_eq_overrun: 0\n",
    );
    assert_eq!(
        (vnic.value("device"), vnic.value("cq_overrun")),
        (Some("pci/0000:08:00.0"), Some("2"))
    );
    let queue = only("link mlx5_0/1 cntn 4 rx_write_requests 0 out_of_sequence 3 LQPN: <178>");
    assert_eq!(queue.value("out_of_sequence"), Some("3"));
    let query = only(
        "# Port counters: Lid 1 port 1\nSymbolErrorCounter:..............7\nLinkDownedCounter:...............0\n",
    );
    assert_eq!(query.value("SymbolErrorCounter"), Some("7"));
    let port = only("symbol_error:12\nlink_downed:0\n");
    assert!(meaning(&port, "symbol_error").contains("lane"));
    for other in [
        "epoch: 5\nloss: 3\n",
        "out_of_sequence",
        "out_of_sequence: x",
        "a out_of_buffer 3 b 4",
        ": 5",
        "/: 5",
    ] {
        assert!(decoded(other).is_empty(), "{other}");
    }
}

#[test]
fn a_link_that_is_down_says_why() {
    let record = only(
        "Operational Info\n----------------\nState                              : Polling\nPhysical state                     : ETH_AN_FSM_ENABLE\nSpeed                              : N/A\n\nTroubleshooting Info\n--------------------\nStatus Opcode                      : 2\nGroup Opcode                       : PHY FW\nRecommendation                     : Negotiation failure\n",
    );
    assert_eq!(record.kind, RecordKind::State);
    assert!(record.title.contains("Polling") && record.title.contains("Negotiation failure"));
    assert!(meaning(&record, "Status Opcode").contains("no partner"));
    assert!(record.findings[0].check.is_some());
    let up = only(
        "State : Active\nPhysical state : LinkUp\nStatus Opcode : 0\nRecommendation : No issue was observed\n",
    );
    assert!(up.title.ends_with("Active"), "{}", up.title);
    for other in ["State : Polling", "State: Running\nName: x", "Status Opcode"] {
        assert!(decoded(other).is_empty(), "{other}");
    }
}

#[test]
fn health_reporters_with_errors_are_told_from_healthy_ones() {
    let text = "pci/0000:82:00.0:\n  reporter fw\n    state error error 1 recover 0 auto_dump true\n  reporter fw_fatal\n    state healthy error 0 recover 0 grace_period 60000\npci/0000:82:00.0/1:\n  reporter tx\n    state healthy error 3 recover 3 last_dump_date 2024-02-01 last_dump_time 10:00:00\n";
    let records = decoded(text);
    let parts: Vec<_> = records
        .iter()
        .map(|record| {
            let of = |name| record.value(name).unwrap_or_default();
            (of("device"), of("reporter"), of("state"), of("errors"), record.findings.len())
        })
        .collect();
    assert_eq!(
        parts,
        [
            ("pci/0000:82:00.0", "fw", "error", "1", 1),
            ("pci/0000:82:00.0", "fw_fatal", "healthy", "0", 0),
            ("pci/0000:82:00.0/1", "tx", "healthy", "3", 1),
        ]
    );
    assert_eq!(records[2].value("last dump"), Some("2024-02-01 10:00:00"));
    assert!(decoded("our reporter fw\nsaid").is_empty());
}

#[test]
fn many_open_contexts_are_a_sign_of_used_up_uar_pages() {
    let text = "ibv_create_qp: Cannot allocate memory(12)\n0: mlx5_0: pd 2 cq 3 qp 1 cm_id 0 mr 0 ctx 4027 srq 2 \n1: mlx5_1: pd 2 cq 3 qp 1 cm_id 0 mr 0 ctx 3 srq 2 \n";
    let records = decoded(text);
    assert_eq!(records.len(), 3, "{records:#?}");
    assert!(records[0].findings[0].causes[0].cause.contains("UAR pages"), "{:#?}", records[0]);
    assert_eq!(
        (records[1].value("device"), records[1].value("ctx")),
        (Some("mlx5_0"), Some("4027"))
    );
    assert_eq!((records[1].findings.len(), records[2].findings.len()), (1, 0));
    assert_eq!(records[1].lines, Some((2, 2)));
}

#[test]
fn packets_that_refuse_a_request_are_read() {
    for (syndrome, words, status) in [
        (96, "sequence error", None),
        (97, "invalid request", Some("IBV_WC_REM_INV_REQ_ERR")),
        (98, "remote access error", Some("IBV_WC_REM_ACCESS_ERR")),
        (99, "remote operational error", Some("IBV_WC_REM_OP_ERR")),
    ] {
        let record = only(&format!(
            "  102 0.000131 198.51.100.2 -> 198.51.100.1 RRoCE 62 RC Acknowledge QP=0x0001b7 AETH Syndrome: {syndrome}, Negative Acknowledge"
        ));
        assert_eq!((record.kind, record.value("status")), (RecordKind::Packet, status));
        assert!(record.title.contains(words), "{}", record.title);
        let ends = ["from", "to", "QP"].map(|name| record.value(name).unwrap_or_default());
        assert_eq!(ends, ["198.51.100.2", "198.51.100.1", "0x1b7"]);
    }
    let late = only(
        "103 1.2 10.0.0.2 → 10.0.0.1 RRoCE 62 RC Acknowledge QP=0x11 AETH Syndrome: 44, RNR Nak",
    );
    assert_eq!(late.value("RNR timer"), Some("12"));
    for other in [
        "104 1.3 10.0.0.2 -> 10.0.0.1 RRoCE 62 RC Acknowledge QP=0x11 AETH Syndrome: 31, Ack",
        "the server sent a NAK to our DHCP request",
        "Negative Acknowledge",
    ] {
        assert!(decoded(other).is_empty(), "{other}");
    }
}

#[test]
fn statuses_in_the_forms_of_libraries_are_read() {
    for (text, status) in [
        ("Completion with error: Operation canceled (err 125 prov_errno 5)", "IBV_WC_WR_FLUSH_ERR"),
        ("cq error entry: err 5 prov_errno 10", "IBV_WC_REM_ACCESS_ERR"),
        (
            "rdma-input: tx error CQE: syndrome MLX5_CQE_SYNDROME_LOCAL_PROT_ERR vendor_err_synd 0x52",
            "IBV_WC_LOC_PROT_ERR",
        ),
        ("CQE status MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR", "IBV_WC_RETRY_EXC_ERR"),
        ("bad CQE: MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR", "IBV_WC_REM_INV_REQ_ERR"),
    ] {
        assert_eq!(only(text).value("status"), Some(status), "{text}");
    }
    for other in ["prov_errno 0", "err 5 prov_errno 99", "efa: err 5 prov_errno 10"] {
        assert!(decoded(other).iter().all(|record| record.value("status").is_none()), "{other}");
    }
}

#[test]
fn calls_in_the_forms_of_libraries_are_read() {
    for (text, call, error) in [
        (
            "VMA ERROR: rfs[0x7f]:279:create_ibv_flow() Create of QP flow ID (tag: 387) failed with flow dst:198.51.100.1:1, src:198.51.100.2:2, proto:TCP (errno=17 - File exists)",
            "ibv_create_flow",
            Some("EEXIST"),
        ),
        (
            "VMA ERROR: create_ibv_flow() Create of QP flow ID failed (errno=22 - Invalid argument)",
            "ibv_create_flow",
            Some("EINVAL"),
        ),
        (
            "VMA ERROR: qpm[0x2]:625:prepare_ibv_qp() failed to modify QP from ERR to INIT state (ret = -3)",
            "ibv_modify_qp",
            None,
        ),
        (
            "dc_mlx5.c:1244 UCX  ERROR error modifying DCT to RTR: Invalid argument",
            "ibv_modify_qp",
            Some("EINVAL"),
        ),
        (
            "RegisterRdmaMemoryRegion failed! addr:0x7f00, size:9, accessFlag:15, errno:22 (Invalid argument)",
            "ibv_reg_mr",
            Some("EINVAL"),
        ),
        (
            "using DMA-BUF for GPU buffer address at 0x7f\nCouldn't allocate MR with error=93",
            "ibv_reg_dmabuf_mr",
            Some("EPROTONOSUPPORT"),
        ),
    ] {
        let record = only(text);
        assert_eq!((record.value("call"), record.value("error")), (Some(call), error), "{text}");
    }
    let again = only("VMA ERROR: create_ibv_flow() failed (errno=17 - File exists)");
    assert!(again.findings[0].causes[0].cause.contains("same match"), "{again:#?}");
}

#[test]
fn causes_without_grounds_are_told_from_others() {
    let grounds = |text| {
        let records = decoded(text);
        let finding = &records.last().expect("a record").findings[0];
        finding.causes[0].grounds
    };
    let line = "ibv_modify_qp failed: Invalid argument";
    assert_eq!(grounds(line), Grounds::None);
    assert_eq!(grounds("Completion with error: err 125 prov_errno 12"), Grounds::None);
    assert_eq!(
        grounds("mlx5_core 0000:03:00.0: eth2: port error\nstatus IBV_WC_RETRY_EXC_ERR wr_id 3"),
        Grounds::Text
    );
    assert_eq!(
        grounds("VMA ERROR: create_ibv_flow() failed (errno=17 - File exists)"),
        Grounds::Code
    );
    assert_eq!(
        grounds(
            "mlx5_core 0000:03:00.0: cq_err_event_notifier:5:(pid 9): CQ error on CQN 0x4, syndrome 0x1"
        ),
        Grounds::Code
    );
}

#[test]
fn a_programs_own_number_is_no_errno() {
    for text in [
        "ibv_modify_qp failed ret = -3",
        "ibv_modify_qp failed, ret=-1",
        "ibv_reg_mr failed rc = 2",
    ] {
        let record = only(text);
        assert_eq!(record.value("error"), None, "{text}");
    }
    assert_eq!(only("ibv_modify_qp failed, errno 1").value("error"), Some("EPERM"));
}

#[test]
fn no_program_gets_the_cure_of_another() {
    let brpc = only(
        "W1124 07:27:34.681490 82718 0 external/brpc/src/brpc/rdma/rdma_endpoint.cpp:952] Fail to ibv_post_send: Cannot allocate memory, sq_window_size=5",
    );
    let causes = &brpc.findings[0].causes;
    assert!(causes.iter().all(|cause| !cause.cure.contains("Mooncake")), "{causes:#?}");
    assert!(causes[0].cure.contains("unsignaled"), "{causes:#?}");
    // The program registers by dma-buf already.
    let text = "using DMA-BUF for GPU buffer address at 0x7f\nCouldn't allocate MR with error=93\nFailed to create MR\n";
    let joined = only(text);
    let causes = &joined.findings[0].causes;
    assert!(causes[0].cause.contains("dma-buf"), "{causes:#?}");
    assert!(causes.iter().all(|cause| !cause.cure.starts_with("--use_cuda_dmabuf")), "{causes:#?}");
    assert!(causes.iter().all(|cause| !cause.cause.contains("no module makes it")), "{causes:#?}");
    // Both lines report one failure.
    assert_eq!(joined.lines, Some((2, 3)));
    assert!(joined.notes[0].contains("again"), "{joined:#?}");
}

#[test]
fn a_syndrome_is_joined_with_the_command_of_its_line() {
    let record = only("[CRITICAL] CREATE_RQ (DevX) failed: Remote I/O error (syndrome 0x43d98f)");
    let fields = ["command", "opcode", "syndrome", "error"].map(|name| record.value(name));
    assert_eq!(fields, [Some("CREATE_RQ"), Some("0x908"), Some("0x43d98f"), Some("EREMOTEIO")]);
    assert!(record.findings[0].causes[0].cause.contains("real-time"));
    let own = only("command failed with syndrome 0x5c0e05");
    assert!(own.findings[0].meaning.contains("model"), "{own:#?}");
}

#[test]
fn a_time_out_keeps_the_name_of_its_command() {
    let record = only(
        "mlx5_core 0000:61:00.0: wait_func_handle_exec_timeout:1104:(pid 1): cmd[22]: CREATE_DCT(0x710) No done completion",
    );
    assert_eq!(record.value("command"), Some("CREATE_DCT"));
    assert_eq!(record.value("message"), Some("cmd[22]: CREATE_DCT(0x710) No done completion"));
}

#[test]
fn the_health_report_of_a_dpu_without_memory_names_its_cause() {
    let text = "mlx5_core 0000:05:00.0: print_health_info:429:(pid 0): Health issue observed, firmware internal error, severity(2) CRITICAL:\nmlx5_core 0000:05:00.0: print_health_info:433:(pid 0): assert_var[0] 0x0000001e\n";
    let record = only(text);
    let causes: Vec<_> = record.findings.iter().flat_map(|finding| &finding.causes).collect();
    assert!(causes.iter().any(|cause| cause.cause.contains("NIC mode")), "{record:#?}");
    let other = only(&text.replace("1e\n", "1f\n"));
    assert!(other.findings.iter().all(|finding| !finding.code.contains("assert_var")));
}
