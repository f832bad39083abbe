//! Messages of Linux's driver by families: whose object failed, and no program is blamed for it.

use mlx5_diag::decode::{self, DecodedRecord, Options, RecordKind};

/// Returns the only record of a text.
fn only(text: &str) -> DecodedRecord {
    let records = decode::text(text, Options::default());
    assert_eq!(records.len(), 1, "{text}\n{records:#?}");
    records.into_iter().next().expect("one")
}

fn core(message: &str) -> DecodedRecord {
    only(&format!("[   12.345678] mlx5_core 0000:03:00.0: {message}"))
}

fn verbs(message: &str) -> DecodedRecord {
    only(&format!("[   12.345678] infiniband mlx5_0: {message}"))
}

/// Checks the owner of a record's object, and words of its title.
fn is_of(record: &DecodedRecord, owner: &str, title: &str) {
    assert_eq!(record.value("object of"), Some(owner), "{record:#?}");
    assert!(record.title.contains(title), "{title}: {record:#?}");
    assert_eq!(record.kind, RecordKind::KernelEvent);
    let finding = &record.findings[0];
    assert!(finding.check.is_some() || !finding.causes.is_empty(), "{record:#?}");
}

#[test]
fn objects_of_the_kernel_are_no_programs_calls() {
    for (record, title) in [
        (
            verbs(
                "mlx5_ib_dev_res_cq_init:3087:(pid 42): Couldn't create CQ for res init, err=-22",
            ),
            "its own verbs objects",
        ),
        (
            verbs(
                "mlx5_ib_dev_res_srq_init:9:(pid 42): Couldn't create SRQ 1 for res init, err=-12",
            ),
            "its own verbs objects",
        ),
        (
            verbs("mlx5r_umr_post_send_wait:386:(pid 42): UMR post send failed, err -12"),
            "memory key",
        ),
        (
            verbs("mlx5r_umr_recover:9:(pid 42): Couldn't modify UMR QP to RTS, err=-110"),
            "queue pair for memory keys",
        ),
        (
            verbs("mlx5_ib_create_gsi:9:(pid 42): unable to create hardware GSI QP. error -12"),
            "management",
        ),
        (verbs("modify_to_rts:9:(pid 42): could not change QP12 state to RTR: -22"), "management"),
        (
            core("mlx5_wc_create_cq:131:(pid 42): Failed to create wc cq, err=-22"),
            "write combining",
        ),
        (core("mlx5_aso_create_sq:9:(pid 42): Failed to open aso wq sq, err=-5"), "ASO"),
        (core("mlx5_fw_tracer_init:9:(pid 42): FWTracer: Failed to allocate PD -12"), "tracer"),
        (
            core(
                "mlx5_fpga_conn_create:9:(pid 42): FPGA: mlx5_fpga_conn_create:9:(pid 42): Failed to create QP: -22",
            ),
            "FPGA",
        ),
    ] {
        is_of(&record, "driver", title);
        assert!(!record.findings[0].causes.iter().any(|cause| cause.cause.contains("SGE")));
    }
}

#[test]
fn the_siblings_of_a_command_time_out_are_read() {
    let of = |message: &str| core(&format!("wait_func:1104:(pid 42): {message}"));
    for (message, title) in [
        ("CREATE_QP(0x500) timeout while waiting for command semaphore.", "for its turn"),
        ("CREATE_QP(0x500) canceled on out of queue timeout.", "given up before"),
        ("CREATE_QP(0x500) timed out while waiting for a slot.", "free slot"),
        (
            "cmd[3]: CREATE_QP(0x500) Async, timeout. Will cause a leak of a command resource",
            "not answered",
        ),
    ] {
        let record = of(message);
        is_of(&record, "firmware", title);
        assert_eq!(record.value("command"), Some("CREATE_QP"), "{message}");
    }
}

#[test]
fn the_start_of_a_device_is_read_with_its_owner() {
    for (message, owner, title) in [
        ("mlx5_load:9:(pid 42): Failed to create EQs", "driver", "event queues"),
        ("mlx5_load:9:(pid 42): Failed to alloc IRQs", "host", "interrupt"),
        (
            "mlx5_cmd_enable:9:(pid 42): Driver cmdif rev(5) differs from firmware's(4)",
            "firmware",
            "different revisions",
        ),
        ("mlx5_function_enable:9:(pid 42): failed to allocate boot pages", "host", "pages"),
        ("alloc_system_page:9:(pid 42): failed dma mapping page", "host", "page"),
        (
            "mlx5_sync_reset_request_event:9:(pid 42): PCI Sync FW Update Reset Nack",
            "configuration",
            "refused a firmware reset",
        ),
        (
            "mlx5_check_hotplug_interrupt:9:(pid 42): FW reset is not supported as HotPlug is enabled",
            "configuration",
            "slot",
        ),
        (
            "mlx5_sriov_enable:9:(pid 42): pci_enable_sriov failed : -12",
            "configuration",
            "virtual functions",
        ),
        ("Couldn't get PCI resources, aborting", "host", "PCI function"),
        ("E-Switch: FDB: Failed to add unicast miss flow rule err -22", "driver", "e-switch"),
    ] {
        is_of(&core(message), owner, title);
    }
    let feature = only("mlx5_core 0000:03:00.0 eth2: Disabling LRO, not supported in legacy RQ");
    is_of(&feature, "configuration", "setting");
    assert_eq!(feature.value("device"), Some("0000:03:00.0"));
}

#[test]
fn a_programs_requests_are_its_own() {
    for message in [
        "create_qp:3000:(pid 42): Create QP type 9 failed",
        "set_user_buf_size:9:(pid 42): sq_wqe_count 100 is not a power of two",
        "mlx5_poll_one:9:(pid 42): CQN: 0x40 Got SIGERR on key: 0x8 err_type 1 err_offset 200 expected 9f actual 9e",
    ] {
        is_of(&verbs(message), "program", "");
    }
    let fault =
        "mlx5_ib_page_fault_resume:9:(pid 42): Failed to resolve the page fault on WQ 0x91 err -5";
    is_of(&verbs(fault), "driver", "page fault");
}

#[test]
fn an_errno_tells_a_cause_where_it_has_one() {
    let told = core("mlx5_load:9:(pid 42): Failed to init FW tracer -110");
    assert_eq!(told.value("error"), Some("ETIMEDOUT"));
    assert!(told.findings[0].causes[0].cause.contains("did not answer"));
    // EINVAL alone tells nothing: there is a first check only.
    let untold =
        verbs("mlx5_ib_dev_res_cq_init:3087:(pid 42): Couldn't create CQ for res init, err=-22");
    assert!(untold.findings[0].causes.is_empty() && untold.findings[0].check.is_some());
}

#[test]
fn other_versions_of_a_message_are_known_by_its_function() {
    let other = core("create_comp_eq:9:(pid 42): completion vectors cannot be had");
    is_of(&other, "driver", "event queue");
    assert!(other.notes[0].contains("another version"), "{other:#?}");
    let lines = [
        "mlx5_core 0000:03:00.0: create_comp_eq:9:(pid 42): allocated completion EQN 5",
        "mlx5_core 0000:03:00.0: firmware version: 16.35.1012",
        "mlx5_core 0000:03:00.0: some_function:9:(pid 42): failed",
        "[   12.345678] usb 1-1: failed to create a device",
    ];
    for line in lines {
        assert!(decode::text(line, Options::default()).is_empty(), "{line}");
    }
}

#[test]
fn wrapped_messages_and_wordless_ones_are_read() {
    let wrapped = only(
        "mlx5_core 0000:03:00.0: wait_func:9:(pid 42): CREATE_QP(0x500) timeout\nwhile waiting for command semaphore.",
    );
    is_of(&wrapped, "firmware", "for its turn");
    assert_eq!(wrapped.lines, Some((1, 2)));
    is_of(&verbs("mlx5_ib_post_send:1100:(pid 42): "), "program", "not posted");
    // Without a device.
    let alone = only(
        "[   12.345678] mlx5_core: WARNING: Invalid module parameter prof_sel 9, valid range 0-4, changing back to default(2)",
    );
    is_of(&alone, "configuration", "module parameter");
}

#[test]
fn the_words_of_a_failed_queue_pair_are_its_syndrome() {
    for (words, numbers, status, syndrome) in [
        ("local length error", "0x8e 0x0 0x0", "IBV_WC_LOC_LEN_ERR", "0x01"),
        ("WR flushed", "0xf9 0x0 0x0", "IBV_WC_WR_FLUSH_ERR", "0x05"),
        ("operation aborted", "0x1 0x0 0x0", "IBV_WC_BAD_RESP_ERR", "0x10"),
        ("invalid EE context number", "0x33 0x0 0x0", "IBV_WC_LOC_ACCESS_ERR", "0x11"),
        ("invalid EE context state", "0x8a 0x0 0x0", "IBV_WC_REM_INV_REQ_ERR", "0x12"),
        ("fatal error", "0x88 0x0 0x0", "IBV_WC_REM_ACCESS_ERR", "0x13"),
        ("response timeout error", "0x89 0x0 0x0", "IBV_WC_REM_OP_ERR", "0x14"),
        ("general error", "0x81 0x0 0x0", "IBV_WC_RETRY_EXC_ERR", "0x15"),
        // The words of another status: a syndrome without a name.
        ("remote access error", "0x88 0x0 0x0", "IBV_WC_GENERAL_ERR", "0x0a"),
    ] {
        let record = only(&format!("mlx5_0/1: QP 301 error: {words} ({numbers})"));
        let fields = ["QP", "status", "syndrome", "vendor code"].map(|name| record.value(name));
        let vendor = numbers
            .split(' ')
            .next()
            .map(|code| format!("{:#04x}", u8::from_str_radix(&code[2..], 16).unwrap()));
        assert_eq!(
            fields,
            [Some("0x12d"), Some(status), Some(syndrome), vendor.as_deref()],
            "{words}"
        );
        assert_eq!(record.kind, RecordKind::AsyncEvent);
        assert!(!record.title.contains("request"), "{}", record.title);
    }
    let unknown = only("rocep2s0/1: QP 298 error: unrecognized status (0x22 0x0 0x95)");
    assert_eq!(
        (unknown.value("status"), unknown.value("hardware syndrome")),
        (None, Some("0/0x95"))
    );
    assert!(unknown.findings[0].causes[0].cause.contains("another protection domain"));
    let mtu = only("mlx5_bond_0/1: QP 51291 error: local length error (0x8e 0x0 0x0)");
    assert!(mtu.findings[0].causes[0].cause.contains("path MTU"), "{mtu:#?}");
}

#[test]
fn syndromes_of_completion_queues_are_named() {
    let of = |syndrome| {
        core(&format!(
            "cq_err_event_notifier:517:(pid 9): CQ error on CQN 0x407, syndrome {syndrome}"
        ))
    };
    for (syndrome, title) in [("0x1", "overran"), ("0x2", "not accessible"), ("0x9", "failed")] {
        let record = of(syndrome);
        assert!(record.title.ends_with(title), "{record:#?}");
        assert_eq!((record.value("CQ"), record.value("syndrome")), (Some("0x407"), Some(syndrome)));
        assert_eq!(record.value("device"), Some("0000:03:00.0"));
    }
    assert!(of("0x9").findings[0].causes.is_empty());
    let own = only("mlx5_core 0000:00:06.0 ens6np0: mlx5e_cq_error_event: cqn=0x00043e event=0x04");
    assert!(
        own.title.contains("of a network interface") && own.value("CQ") == Some("0x43e"),
        "{own:#?}"
    );
}
