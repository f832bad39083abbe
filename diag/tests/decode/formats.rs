//! Lines as programs print them: fields, and text that is no record.

use mlx5_diag::decode::{self, DecodedRecord, Options, RecordKind};

fn decoded(text: &str) -> Vec<DecodedRecord> {
    decode::text(text, Options::default())
}

fn only(text: &str) -> DecodedRecord {
    let records = decoded(text);
    assert_eq!(records.len(), 1, "{text}\n{records:#?}");
    records.into_iter().next().expect("one")
}

/// Text, and fields of its only record.
const LINES: &[(&str, &[(&str, &str)])] = &[
    (
        "[[52131,1],3][btl_openib_component.c:3644:handle_wc] from n1 to: n2 error polling LP CQ with status RETRY EXCEEDED ERROR status number 12 for wr_id 25e14b8 opcode 1  vendor error 129 qp_idx 0",
        &[
            ("status", "IBV_WC_RETRY_EXC_ERR"),
            ("vendor code", "0x81"),
            ("wr_id", "0x25e14b8"),
            ("peer", "n2"),
        ],
    ),
    (
        "[c1:mpi_rank_3][handle_cqe] src/mpid/ch3/x.c:587: Got completion with error 12, vendor code=0x81, dest rank=5",
        &[("status", "IBV_WC_RETRY_EXC_ERR"), ("vendor code", "0x81"), ("peer", "rank 5")],
    ),
    (
        "LNetError: 2:0:(o2iblnd_cb.c:1027:kiblnd_tx_complete()) Tx -> 10.0.0.1@o2ib cookie 0x5d8 sending 1 waiting 1: failed 12",
        &[("status", "IBV_WC_RETRY_EXC_ERR"), ("peer", "10.0.0.1@o2ib"), ("queue", "send queue")],
    ),
    (
        "LNetError: 2:0:(o2iblnd_cb.c:469:kiblnd_rx_complete()) Rx from 10.0.0.1@o2ib failed: 5",
        &[("status", "IBV_WC_WR_FLUSH_ERR"), ("queue", "receive queue")],
    ),
    (
        "E0603 20:16:59.104586 27322 worker_pool.cpp:271] Worker: Process failed for slice (opcode: 1, source_addr: 0x7f20, length: 65536, dest_addr: 0x7f3d, local_nic: mlx5_7, peer_nic: 10.9.8.1:1@mlx5_0, dest_rkey: 2116517, retry_cnt: 0): transport retry counter exceeded",
        &[("status", "IBV_WC_RETRY_EXC_ERR"), ("operation", "RDMA_WRITE"), ("device", "mlx5_7")],
    ),
    (
        "rdma.c: 512:nvmf_rdma: *ERROR*: CQ error on Connection 0x7f, Request 0x94 (12): transport retry counter exceeded",
        &[("status", "IBV_WC_RETRY_EXC_ERR")],
    ),
    (
        "[[1,1],7][btl_openib_component.c:2951:handle_wc] from n1 to: n2 error polling LP CQ with status RETRY EXCEEDED ERROR status number 12 for wr_id 294230912 opcode 1  vendor error 129 qp_idx 1",
        &[("wr_id", "294230912"), ("peer", "n2")],
    ),
    (
        "rpcrdma: Recv: local length error (1/0xd7)",
        &[("status", "IBV_WC_LOC_LEN_ERR"), ("vendor code", "0xd7")],
    ),
    ("0-gvol0-client-0: could not create QP", &[("call", "ibv_create_qp")]),
    (
        "active got: Failed to Create QP. Errno: 95, Operation not supported",
        &[("call", "ibv_create_qp"), ("error", "EOPNOTSUPP")],
    ),
    (
        "rdma.c: 689:nvmf_rdma_qpair_initialize: *ERROR*: RDMA CQ resize failed: errno 11: Resource temporarily unavailable",
        &[("call", "ibv_resize_cq"), ("error", "EAGAIN")],
    ),
    ("ibv_reg_mr returned null, errno unrecognized", &[("call", "ibv_reg_mr")]),
    (
        "kernel: drbd drbd1 rdma: ib_post_send() failed -12",
        &[("call", "ib_post_send"), ("error", "ENOMEM")],
    ),
    ("ibv_post_send return error 12", &[("call", "ibv_post_send"), ("error", "ENOMEM")]),
    (
        "_qp_reset_failed_sends Failed to post a send for the qpair 0x7fa3380e6e20 with errno -12",
        &[("call", "ibv_post_send"), ("error", "ENOMEM")],
    ),
    ("QP creation failed: Invalid argument", &[("call", "ibv_create_qp"), ("error", "EINVAL")]),
    (
        "then we see an IBV_WC_REM_ACCESS_ERR (status=10, vendor_err=136) at each restart",
        &[("status", "IBV_WC_REM_ACCESS_ERR"), ("vendor code", "0x88")],
    ),
    (
        "CQE ERROR wr_id=12887842422 status=12(transport retry counter exceeded) opcode=4 byte_len=0 vendor_err=0xa qp_num=0x2e24",
        &[("wr_id", "12887842422"), ("status", "IBV_WC_RETRY_EXC_ERR")],
    ),
    ("Couldn't allocate MR with error=14", &[("call", "ibv_reg_mr"), ("error", "EFAULT")]),
    (
        "libfabric:2:6:verbs:ep_ctrl:vrb_ep_enable():884<warn> rdma_create_qp: Cannot allocate memory (12)",
        &[("call", "rdma_create_qp"), ("error", "ENOMEM")],
    ),
    (
        "libfabric:ofi_rxm:cq:rxm_cq_read_write_error():819<warn> fi_cq_readerr: err: 5, prov_err: remote access error (10)",
        &[("status", "IBV_WC_REM_ACCESS_ERR")],
    ),
    ("ibgda.cpp:1889: NULL value cannot allocate mlx5dv_devx_uar", &[("call", "mlx5dv_devx_uar")]),
    (
        "[1]  ib_iface.c:988  UCX  ERROR iface=0x2: failed to create UD QP TX wr:256 sge:6 inl:64 resp:0 RX wr:4096 sge:1 resp:0: Cannot allocate memory",
        &[("call", "ibv_create_qp"), ("error", "ENOMEM")],
    ),
    (
        "net_mlx5: probe of PCI device 0000:af:00.2 aborted after encountering an error: No such file or directory",
        &[("device", "0000:af:00.2"), ("error", "ENOENT")],
    ),
    ("mlx5_common: Verbs device not found: 0000:c3:00.2", &[("device", "0000:c3:00.2")]),
    (
        "[h:1:0:2]  ib_mlx5.c:90   UCX  ERROR mlx5dv_create_cq(cqe=4096) failed: Cannot allocate memory",
        &[("call", "mlx5dv_create_cq"), ("error", "ENOMEM")],
    ),
    (
        "n1:5:9 [0] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out errno 110",
        &[("call", "ibv_modify_qp"), ("error", "ETIMEDOUT")],
    ),
    (
        "wc status 10 vendor_err 88, failed: status=10 wr_id 25e14b8",
        &[("wr_id", "0x25e14b8"), ("status", "IBV_WC_REM_ACCESS_ERR")],
    ),
    (
        "[h:1] ib_mlx5_log.c:113  FATAL: Error on QP 0x1590d wqe[057]: Transport retry count exceeded (synd 0x15 vend 0x81) opcode SEND",
        &[("QP", "0x1590d"), ("operation", "SEND")],
    ),
    (
        "ib_mlx5_dv.c:217  UCX  ERROR mlx5dv_devx_qp_modify(503) failed, syndrome 0: Invalid argument",
        &[("opcode", "0x503")],
    ),
    (
        "[Wed Jul 29 14:40:27 2026] mlx5_bond_0/1: QP 51291 error: local length error (0x8e 0x0 0x0)",
        &[("status", "IBV_WC_LOC_LEN_ERR"), ("QP", "0xc85b"), ("vendor code", "0x8e")],
    ),
    (
        "mlx5_0/1: QP 300 error: local protection error (0x3b 0x0 0x9d)",
        &[("QP", "0x12c"), ("device", "mlx5_0/1"), ("hardware syndrome", "0/0x9d")],
    ),
    (
        "[12.5] rocep2s0/1: QP 137 error: unrecognized status (0x41 0x0 0x0)",
        &[("vendor code", "0x41"), ("message", "unrecognized status"), ("device", "rocep2s0/1")],
    ),
    (
        "[h:1:0]   ib_mlx5dv_md.c:718  UCX  ERROR mlx5dv_devx_umem_reg() zero umem failed: Cannot allocate memory",
        &[("call", "mlx5dv_devx_umem_reg"), ("error", "ENOMEM")],
    ),
    (
        "Failed to modify QP to RTR: Connection timed out",
        &[("call", "ibv_modify_qp"), ("error", "ETIMEDOUT")],
    ),
    ("mlx5dv_create_cq(cqe=4608) failed: Operation canceled", &[("error", "ECANCELED")]),
    ("mlx5_core: INFO: synd 0x8: unrecoverable hardware error.", &[("synd", "0x8")]),
    (
        "mlx5_core 0000:01:00.0: Detected insufficient power on the PCIe slot (27W).",
        &[("device", "0000:01:00.0")],
    ),
    (
        "mlx5_core 0000:01:00.0: Port module event[error]: module 1, Cable error, High Temperature",
        &[("module", "1")],
    ),
    ("mlx5_core 0000:01:00.0: Port module event: module 0, Cable unplugged", &[("module", "0")]),
    ("NETDEV WATCHDOG: eth2 (mlx5_core): transmit queue 3 timed out", &[]),
    (
        "mlx5_core 0000:01:00.0: mlx5_function_setup:984:(pid 7): Firmware over 120000 MS in pre-initializing state, aborting",
        &[],
    ),
    (
        "[2022-01-17 16:03:57.63] rdma.c:3769:nvmf_rdma_log_wc_status: *ERROR*: Error on CQ 0x20155a0, (qp state 1 ibv_state 6) request 0x139974757082280, type DATA, status: (12): transport retry counter e",
        &[("status", "IBV_WC_RETRY_EXC_ERR")],
    ),
    (
        "ibrc.cpp:420: non-zero status: 4 ibv_poll_cq failed, status: 4",
        &[("status", "IBV_WC_LOC_PROT_ERR")],
    ),
    (
        "pyverbs.pyverbs_error.PyverbsRDMAError: Failed to modify QP state to RTR. Errno: 22, Invalid argument",
        &[("call", "ibv_modify_qp"), ("error", "EINVAL")],
    ),
    ("ibgda.cpp:2234: ibv_dealloc_pd failed", &[("call", "ibv_dealloc_pd")]),
    (
        "[1502987696.852541] [h:36589:3]  ib_device.c:171  UCX  ERROR IB Async event on mlx5_0: DCT access error on DCTN 0x2a8a3",
        &[("device", "mlx5_0")],
    ),
    (
        "n1:22:33 [0] transport/net_ib.cc:111 NCCL WARN NET/IB : mlx5_7:1 Got async event : port error",
        &[("device", "mlx5_7")],
    ),
    (
        "mlx5_core 0000:d8:00.0: mlx5_cmd_eq_recover:245:(pid 1416): Recovered 1 EQEs on cmd_eq",
        &[("device", "0000:d8:00.0")],
    ),
    (
        "mlx5_core 0000:01:00.0: wait_func_handle_exec_timeout: ... DESTROY_EQ(0x302) timeout.\n   Will cause a leak of a command resource",
        &[("command", "DESTROY_EQ"), ("device", "0000:01:00.0")],
    ),
    (
        "mlx5_core 0000:08:00.0: mlx5_cmd_out_err:821:(pid 19722):\nDEALLOC_PD(0x801) op_mod(0x0) failed, status bad resource state(0x9),\nsyndrome (0xef0c8a), err(-22)",
        &[("device", "0000:08:00.0"), ("syndrome", "0xef0c8a")],
    ),
    ("mlx5_core 0002:01:00.0: query_mcia_reg failed: status: 0x3", &[("device", "0002:01:00.0")]),
    ("infiniband mlx5_0: create_mkey_callback:131:(pid 0): async reg mr failed. status -12", &[]),
    (
        "mlx5_core 0000:01:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer",
        &[],
    ),
    (
        "> > [[19373,1],54][btl_openib_component.c:3320:handle_wc] from compute-c3-07\n> > to: compute-c3-01 error polling LP CQ with status RECEIVER NOT READY\n> > RETRY EXCEEDED ERROR status\n> > number 13 for wr_id 2a25c200 opcode 128 vendor error 135 qp_idx 0",
        &[
            ("status", "IBV_WC_RNR_RETRY_EXC_ERR"),
            ("host", "compute-c3-07"),
            ("peer", "compute-c3-01"),
            ("wr_id", "0x2a25c200"),
        ],
    ),
    (
        "> > [[12770,1],0][btl_openib_component.c:3227:handle_wc] from bn0103 to:\n> bn0122\n> > error polling LP CQ with status LOCAL LENGTH ERROR status number 1 for\n> > wr_id 560618664 opcode 1  vendor error 105 qp_idx 3",
        &[("status", "IBV_WC_LOC_LEN_ERR"), ("host", "bn0103"), ("peer", "bn0122")],
    ),
    (
        "mlx5_core 0017:01:00.0 eth1: Error cqe on cqn 0x54e, ci 0xb06, ...",
        &[("device", "0017:01:00.0")],
    ),
    (
        "mlx5_core 0000:04:00.1: mlx5_pcie_print_link_status:411:(pid 143482): PCIe width is lower than device's capability",
        &[("device", "0000:04:00.1")],
    ),
    (
        "[[27217,0],12][btl_openib_component.c:3556:handle_wc] from nvb27 to: nvb27 error polling L\nP CQ with status REMOTE ACCESS ERROR status number 10 for wr_id 19059c8 opcode 4  vendor e\nrror 136 qp_idx 3",
        &[("status", "IBV_WC_REM_ACCESS_ERR"), ("vendor code", "0x88"), ("wr_id", "0x19059c8")],
    ),
    (
        "Check failed: wc_[i].status == IBV_WC_SUCCESS Failed status \ntransport retry counter exceeded 12 139 129",
        &[("status", "IBV_WC_RETRY_EXC_ERR"), ("vendor code", "0x81"), ("wr_id", "139")],
    ),
    (
        "F0101 net/x.cc:10] Check failed: wc.status == IBV_WC_SUCCESS (12 vs. 0)",
        &[("status", "IBV_WC_RETRY_EXC_ERR")],
    ),
    ("Send with RDMA_WRITE(WITH_IMM) failed.", &[("call", "ibv_post_send")]),
    ("reg_mr failed: Bad address", &[("call", "ibv_reg_mr"), ("error", "EFAULT")]),
    (
        "Failed status transport retry counter exceeded (12) for wr_id 3",
        &[("status", "IBV_WC_RETRY_EXC_ERR"), ("wr_id", "3")],
    ),
    (
        "krping: cq completion failed with wr_id 0 status 12 opcode 1 vender_err 81",
        &[("status", "IBV_WC_RETRY_EXC_ERR"), ("vendor code", "0x81")],
    ),
    (
        "ib0: failed cm send event (status=12, wrid=3 vend_err 81)",
        &[("vendor code", "0x81"), ("wr_id", "3")],
    ),
    (
        "isert: isert_print_wc: recv failure: WR flushed (5) vend_err f9",
        &[("status", "IBV_WC_WR_FLUSH_ERR"), ("vendor code", "0xf9")],
    ),
    (
        "RDS/IB: recv completion <10.1.1.1,10.1.1.2,0> had status 1 vendor_err 0x69, disconnecting and reconnecting",
        &[("status", "IBV_WC_LOC_LEN_ERR"), ("vendor code", "0x69")],
    ),
    (
        "send work request on `mlx5_0' returned error wc.status = 13, wc.vendor_err = 135, post->buf = 0x7f",
        &[("status", "IBV_WC_RNR_RETRY_EXC_ERR"), ("vendor code", "0x87")],
    ),
    (
        "wc.status(12:transport retry counter exceeded) != IBV_WC_SUCCESS",
        &[("status", "IBV_WC_RETRY_EXC_ERR")],
    ),
    (
        "{WR: send 3, error: transport retry counter exceeded, vendor_error: 129}",
        &[("vendor code", "0x81")],
    ),
    (
        "cqe error status transport retry counter exceeded (12 v:129) for count 3",
        &[("vendor code", "0x81")],
    ),
    ("recv completion failed, status=12", &[("status", "IBV_WC_RETRY_EXC_ERR")]),
    (
        "panicked at x.rs:1: work completion failed: RetryCounterExceededError, vendor_err 129",
        &[("status", "IBV_WC_RETRY_EXC_ERR"), ("vendor code", "0x81")],
    ),
    (
        "DTO completion ERR: status 12, op OP_RDMA_WRITE, vendor_err 0x81 - 10.0.0.1",
        &[("operation", "RDMA_WRITE"), ("vendor code", "0x81")],
    ),
    ("scsi host1: ib_srp: failed receive status 5", &[("status", "IBV_WC_WR_FLUSH_ERR")]),
    (
        "ksmbd: smb_direct: Recv error. status='WR flushed (5)' opcode=128",
        &[("status", "IBV_WC_WR_FLUSH_ERR")],
    ),
    ("svcrdma: Send: transport retry counter exceeded (12/0x81)", &[("vendor code", "0x81")]),
    (
        "Completion ERROR: transport retry counter exceeded\nWC opcode: 0\nWC vendor error: 129",
        &[("vendor code", "0x81")],
    ),
    (
        "QP 0x123 wqe[4] is flushed",
        &[("status", "IBV_WC_WR_FLUSH_ERR"), ("QP", "0x123"), ("WQE", "0x0004")],
    ),
    ("port 0 Rx queue 0 CQ creation failure", &[("port", "0")]),
    (
        "nvme_qpair.c: 804:x: *ERROR*: CQ transport error -6 (No such device or address) on qpair id 1",
        &[("queue", "1")],
    ),
    ("nvme_qpair.c: 243:x: *NOTICE*: ABORTED - SQ DELETION (00/08) qid:3 cid:0", &[("queue", "3")]),
    ("cma event RDMA_CM_EVENT_REJECTED, error 28", &[("reason", "28"), ("error", "ECONNREFUSED")]),
    ("nvme nvme0: Connect rejected: status 8 (invalid service ID).", &[("reason", "8")]),
    (
        "wc->status == IBV_WC_SUCCESS. 5 vs 0. Send for slot 0: Work Request Flushed Error",
        &[("status", "IBV_WC_WR_FLUSH_ERR")],
    ),
    (
        "[enforce fail at pair.cc:466] wc->status == IBV_WC_SUCCESS. 12 vs 0. Memory region send",
        &[("status", "IBV_WC_RETRY_EXC_ERR")],
    ),
    ("@ 0> snd status=10 opcode=2 dst_node=1 dst_qp=0", &[("status", "IBV_WC_REM_ACCESS_ERR")]),
    (
        "what():  a work item failed: status 12 (Ib failure: Cannot allocate memory)",
        &[("status", "IBV_WC_RETRY_EXC_ERR")],
    ),
    (
        "Check failed: !(r = ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_AV)) QP to Ready to Receive 101",
        &[("call", "ibv_modify_qp"), ("error", "ENETUNREACH")],
    ),
    (
        "Failed to create a completion queue (CQ):\n\nHostname: n1\nRequested CQE: 16384\nError:    Cannot allocate memory",
        &[("call", "ibv_create_cq"), ("error", "ENOMEM")],
    ),
    ("fio: rdma_create_event_channel fail", &[("call", "rdma_create_event_channel")]),
    (
        "z_rdma_listen: rdma_create_event_channel failed. zerr 7",
        &[("call", "rdma_create_event_channel")],
    ),
    ("rdma_getaddrinfo: No such device", &[("call", "rdma_getaddrinfo"), ("error", "ENODEV")]),
    (
        "Creating the queue pair failed with errno 16.",
        &[("call", "ibv_create_qp"), ("error", "EBUSY")],
    ),
    ("nvme_rdma.c:1132: *ERROR*: RDMA connect error -74", &[("event", "rdma_connect")]),
    (
        "mlx5_net: port 0 Rx queue 0: Scatter offload is not configured and no enough mbuf space(2176)",
        &[("port", "0")],
    ),
    ("[0] wc[0] status 12 wc[i].opcode 0", &[("status", "IBV_WC_RETRY_EXC_ERR")]),
    ("failed to modify QP from ERR to INIT state (ret = -22)", &[("error", "EINVAL")]),
    ("ibv_create_comp_channel failed (errno=24 - Too many open files)", &[("error", "EMFILE")]),
    ("- Error syndrome: 0x537801 (SET_HCA_CAP)", &[("syndrome", "0x537801")]),
];

#[test]
fn lines_of_programs_are_read() {
    for (text, fields) in LINES {
        let record = only(text);
        for (field, expected) in *fields {
            assert_eq!(record.value(field), Some(*expected), "{field} of {text}\n{record:#?}");
        }
        assert!(record.findings.iter().any(|finding| !finding.causes.is_empty()), "{record:#?}");
        assert_ne!(record.value("device"), Some("QP"), "{text}");
    }
}

#[test]
fn prose_and_source_code_are_no_records() {
    for text in [
        "abort requests after transport retry counter exceeded, status of the completion is lost",
        "if (wc.status == IBV_WC_WR_FLUSH_ERR) {",
        "case IBV_WC_RETRY_EXC_ERR:",
        "We are getting transport retry counter exceeded with this completion",
        "r8125 0000:22:04.0 eth4: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5010 ms",
        "the CREATE_DCT(0x710) command; see ibv_reg_mr(3) for details",
        "mlx5_core 0000:01:00.0: firmware version: 16.35.2000",
        "we saw that ibv_reg_mr failed when the limit was small",
        "the program prints an async event and goes on",
        "assert(wc.status == IBV_WC_SUCCESS);",
        "printf(\"wc.status %d\", wc.status);",
        "case RDMA_CM_EVENT_REJECTED:",
        "chat completion failed, status=500",
        "HTTP status 12 of the download",
        "the team lost 12 vs 0 in the last match",
        "assert(ibv_post_send(qp, &wr, &bad) == 0);",
        "the manual of rdma_getaddrinfo explains this",
    ] {
        assert!(decoded(text).is_empty(), "{text}");
    }
}

#[test]
fn a_vendor_code_that_is_none_is_not_shown_as_one() {
    let record =
        only("{status = IBV_WC_RETRY_EXC_ERR, opcode = 32767, vendor_err = 21845, byte_len = 0}");
    assert_eq!(record.value("vendor code"), None);
    assert!(record.notes.iter().any(|note| note.contains("0x5555")), "{record:#?}");
    assert!(!record.findings.iter().any(|finding| finding.code.contains("vendor")));
}

#[test]
fn a_failed_check_without_a_status_is_a_record_that_says_so() {
    for text in [
        "a.out: x.c:10: main: Assertion `wc.status == IBV_WC_SUCCESS' failed.",
        "on_completion: status is not IBV_WC_SUCCESS.",
    ] {
        let record = only(text);
        assert_eq!((record.kind, record.value("status")), (RecordKind::Completion, None));
        assert!(record.notes[0].contains("ibv_wc_status_str"), "{record:#?}");
    }
}

#[test]
fn a_symptom_with_many_causes_has_a_first_check() {
    let check = |text: &str| only(text).findings[0].check.unwrap_or_default();
    assert!(check("Failed status 12: wr_id 0 syndrom 0x81").contains("ib_write_bw"));
    assert!(check("Call to ibv_modify_qp failed with 22 Invalid argument").contains("show_gids"));
    assert!(check("Couldn't allocate MR").contains("Max locked memory"));
    assert_eq!(check("ibv_dealloc_pd failed: Device or resource busy"), "");
}

const ROWS: [&str; 4] = [
    "00000000 00000000 00000000 00000000",
    "00000000 00000000 00000000 00000000",
    "00000000 00000000 00000000 00000000",
    "00000000 00008813 0800621X 0000f6d2",
];

#[test]
fn dumps_behind_the_prefix_of_a_launcher_are_read_and_keep_their_rank() {
    let heading = "mlx5: h1: got completion with error:";
    let mut text = String::new();
    // Two processes take turns.
    for row in std::iter::once(heading).chain(ROWS) {
        for rank in [4, 5] {
            text += &format!("[1,{rank}]<stderr>:{}\n", row.replace('X', &rank.to_string()));
        }
    }
    let records = decoded(&text);
    let found: Vec<_> =
        records.iter().map(|record| (record.value("QP"), record.origin.rank.as_deref())).collect();
    assert_eq!(found, [(Some("0x6214"), Some("4")), (Some("0x6215"), Some("5"))]);
    // A container's JSON lines.
    let json: String = std::iter::once(heading)
        .chain(ROWS)
        .map(|row| {
            let row = row.replace('X', "7");
            format!(
                "{{\"log\":\"{row}\\n\",\"stream\":\"stderr\",\"time\":\"2024-05-01T10:00:00Z\"}}\n"
            )
        })
        .collect();
    let record = only(&json);
    assert_eq!(record.value("QP"), Some("0x6217"));
    assert_eq!(record.origin.time.as_deref(), Some("2024-05-01T10:00:00Z"));
}

#[test]
fn mixed_dumps_without_a_prefix_give_every_record_and_no_other() {
    let heading = "mlx5: h1: got completion with error:";
    let mut text = String::new();
    for row in std::iter::once(heading).chain(ROWS) {
        for process in [1, 2, 3, 4] {
            text += &format!("{}\n", row.replace('X', &process.to_string()));
        }
    }
    let records = decoded(&text);
    let numbers: Vec<_> = records.iter().filter_map(|record| record.value("QP")).collect();
    assert_eq!(numbers, ["0x6211", "0x6212", "0x6213", "0x6214"], "{records:#?}");
    assert!(records.iter().all(|record| record.kind == RecordKind::Cqe));
}

#[test]
fn health_reports_of_devices_whose_lines_alternate_are_told_apart() {
    let line = |device: usize, text: &str| {
        format!("mlx5_core 0000:03:00.{device}: print_health_info:430:(pid 0): {text}\n")
    };
    // The second device has a syndrome alone.
    let text = [
        line(0, "assert_var[0] 0x00000001"),
        line(1, "synd 0x10: High temperature"),
        line(0, "synd 0x1: firmware internal error"),
    ];
    let titles = |text: &str| -> Vec<String> {
        decoded(text).into_iter().map(|record| record.title).collect()
    };
    let [firmware, hot, irisc] =
        ["firmware internal error", "High temperature", "irisc not responding"]
            .map(|words| format!("health report: {words}"));
    assert_eq!(titles(&text.concat()), [firmware.clone(), hot.clone()]);

    let syndromes = [
        "synd 0x1: firmware internal error",
        "synd 0x10: High temperature",
        "synd 0x7: irisc not responding",
    ];
    for devices in [2, 3] {
        let mut text = String::new();
        for word in 0..5 {
            (0..devices).for_each(|device| {
                text += &line(device, &format!("assert_var[{word}] 0x{device}{word}"))
            });
        }
        for words in ["fw_ver 16.24.1000", "irisc_index 0"] {
            (0..devices).for_each(|device| text += &line(device, words));
        }
        (0..devices).for_each(|device| text += &line(device, syndromes[device]));
        (0..devices).for_each(|device| text += &line(device, &format!("ext_synd 0x000{device}")));
        let records = decoded(&text);
        assert_eq!(
            titles(&text),
            [firmware.clone(), hot.clone(), irisc.clone()][..devices],
            "{records:#?}"
        );
        for (device, record) in records.iter().enumerate() {
            assert_eq!(record.value("device"), Some(&*format!("0000:03:00.{device}")));
            assert_eq!(record.value("ext_synd"), Some(&*format!("0x000{device}")));
            assert_eq!(record.value("fw_ver"), Some("16.24.1000"));
            let words = record.value("assert_var").unwrap();
            assert_eq!(words.split(' ').count(), 5, "{words}");
            assert!(words.ends_with(&format!("{device}4")), "{words}");
        }
    }
}

#[test]
fn health_syndromes_are_found_in_wrapped_mails_and_in_devlink_output() {
    let wrapped = "\
[ 9.1] mlx5_core 0001:01:00.0: print_health_info:411:(pid 0): assert_var[0]
0x00000001
[ 9.1] mlx5_core 0001:01:00.0: print_health_info:424:(pid 0): fw_ver
14.24.8000
[ 9.1] mlx5_core 0001:01:00.0: print_health_info:427:(pid 0): synd
0x7: irisc not responding
[ 9.1] mlx5_core 0001:01:00.0: print_health_info:428:(pid 0): ext_synd
0x8a02";
    let record = only(wrapped);
    assert_eq!(record.title, "health report: irisc not responding", "{record:#?}");
    let devlink = "\
   assert_var[0] 0xfc3fc043
   assert_var[1] 0x0001b41c
   assert_exit_ptr 0x008033b4
   fw_ver 16.24.1000
   irisc_index 0
   synd 0x8: unrecoverable hardware error
   ext_synd 0x003d
   raw fw_ver 0x101803e8";
    let record = only(devlink);
    assert_eq!(record.title, "health report: unrecoverable hardware error");
    for (field, expected) in [
        ("synd", "0x8"),
        ("ext_synd", "0x003d"),
        ("fw_ver", "16.24.1000"),
        ("raw fw_ver", "0x101803e8"),
    ] {
        assert_eq!(record.value(field), Some(expected), "{field}");
    }
}

#[test]
fn messages_joined_on_a_line_and_mails_in_quoted_printable_are_read() {
    let one = |qp: &str| {
        format!(
            "[h:7:0:7] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n\
             [h:7:0:7] ib_mlx5_log.c:139  RC QP {qp} wqe[3]: SEND s-- [va 0x10 len 1 lkey 0xb5d2]"
        )
    };
    let records = decoded(&format!("{}{}", one("0x11"), one("0x22")));
    assert_eq!(records.len(), 4, "{records:#?}");
    assert_eq!(records[1].text, ["data: 0x10, 1 bytes, lkey 0xb5d2"]);
    assert_eq!(records[3].value("QP"), Some("0x22"));
    // Of a launcher with time stamps.
    let tag = "Thu Jul  2 09:28:16 2020[1,136]<stdout>:";
    let line = "ibv_create_qp() failed: Cannot allocate memory";
    let records = decoded(&format!("{tag}{line}{}{line}", tag.replace("136", "137")));
    let ranks: Vec<_> = records.iter().map(|record| record.origin.rank.as_deref()).collect();
    assert_eq!(ranks, [Some("136"), Some("137")]);
    let mail = "NET/IB : Got completion from peer 10.0.0.1<3> with status=3D12 opcode=3D0 len=3D0 ven=\ndor err 129 (Recv)";
    assert_eq!(only(mail).value("vendor code"), Some("0x81"));
}

#[test]
fn time_host_and_rank_are_kept() {
    let line = "Nov 21 22:27:35 node7 app: Failed status 12: wr_id 0 syndrom 0x81";
    let origin = only(line).origin;
    assert_eq!(
        (origin.time.as_deref(), origin.host.as_deref()),
        (Some("Nov 21 22:27:35"), Some("node7"))
    );
    // Equal errors of two ranks stay apart.
    let rank = |rank| format!("[1,{rank}]<stdout>:Failed status 12: wr_id 0 syndrom 0x81\n");
    assert_eq!(decoded(&(rank(1) + &rank(2) + &rank(2))).len(), 2);
}
