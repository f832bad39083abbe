//! Modules, libraries and tools that do not fit each other, failures of the kernel, and ports.

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

/// Returns the likeliest cause of a record, and asserts that the message itself tells it.
fn told(record: &DecodedRecord) -> &'static str {
    let cause = record.findings[0].causes.first().expect("a cause");
    assert_eq!(cause.grounds, Grounds::Code, "{record:#?}");
    cause.cause
}

#[test]
fn symbols_of_one_module_are_one_record_that_tells_another_build_from_a_missing_one() {
    let text = "[ 9.41] mlx5_ib: disagrees about version of symbol mlx5_cmd_exec\n\
                [ 9.42] mlx5_ib: Unknown symbol mlx5_cmd_exec (err -22)\n\
                [ 9.43] mlx5_ib: disagrees about version of symbol mlx5_core_attach_mcg\n\
                [ 9.44] mlx5_ib: Unknown symbol mlx5_core_attach_mcg (err -22)\n";
    let record = only(text);
    assert_eq!((record.kind, record.lines), (RecordKind::Installation, Some((1, 4))));
    assert_eq!(record.value("module"), Some("mlx5_ib"));
    assert_eq!(record.value("symbols"), Some("mlx5_cmd_exec, mlx5_core_attach_mcg"));
    assert!(told(&record).contains("two packages or builds are mixed"));
    let missing = only("[ 9.4] ib_uverbs: Unknown symbol ib_unsafe (err -2)");
    assert!(told(&missing).contains("not loaded"), "{missing:#?}");
    let peer = only("nv_peer_mem: Unknown symbol ib_register_peer_memory_client (err 0)");
    assert!(told(&peer).contains("the kernel's own"), "{peer:#?}");
    let mixed = "mlx5_ib: Unknown symbol a (err -2)\nib_iser: Unknown symbol b (err -2)\nmlx5_ib: Unknown symbol c (err -2)\n";
    assert_eq!(decoded(mixed).len(), 3, "{:#?}", decoded(mixed));
    // Two modules are two records, and modules of others are none.
    let two = "mlx5_ib: Unknown symbol a (err -2)\nib_iser: Unknown symbol a (err -2)\n";
    assert_eq!(decoded(two).len(), 2);
    assert!(decoded("snd_hda_intel: disagrees about version of symbol snd_card_new").is_empty());
}

#[test]
fn refused_modules_say_why() {
    for (line, cause) in [
        ("modprobe: ERROR: could not insert 'mlx5_core': Required key not available", "signature"),
        ("modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument", "not installed"),
        (
            "mlx5_core: version magic '5.4.0-1 SMP mod_unload ' should be '5.4.0-2 SMP mod_unload '",
            "another kernel",
        ),
        (
            "modprobe: FATAL: Module mlx5_ib not found in directory /lib/modules/6.1.0-13-amd64",
            "not installed for the kernel",
        ),
        ("rmmod: ERROR: Module ib_core is in use by: ib_uverbs rdma_cm", "other modules"),
    ] {
        let record = only(line);
        assert!(told(&record).contains(cause), "{line}\n{record:#?}");
    }
    assert!(
        decoded("modprobe: FATAL: Module floppy not found in directory /lib/modules/6.1")
            .is_empty()
    );
}

#[test]
fn libraries_that_are_missing_or_of_another_version_are_named() {
    for (line, file, cause) in [
        (
            "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': libmlx5-rdmav34.so: cannot open shared object file: No such file or directory",
            Some("libmlx5-rdmav34.so"),
            "not installed, or is of another build",
        ),
        (
            "app: /usr/lib/libibverbs.so.1: version `IBVERBS_1.14' not found (required by app)",
            Some("/usr/lib/libibverbs.so.1"),
            "older package",
        ),
        (
            "/lib/libmlx5.so.1: version `MLX5_OFED' not found (required by ./x.so)",
            Some("/lib/libmlx5.so.1"),
            "before 5.5",
        ),
        (
            "mlx5_common: Cannot load glue library: librte_common_mlx5_glue.so.24: cannot open shared object file: No such file or directory",
            Some("librte_common_mlx5_glue.so.24"),
            "glue library is not where DPDK looks",
        ),
        (
            "libibverbs: Warning: Driver mlx5 does not support the kernel ABI of 3 (supports 1 to 1) for device /sys/class/infiniband/mlx5_0",
            None,
            "older or newer than the kernel's modules",
        ),
        ("/usr/bin/ld: cannot find -libverbs: No such file or directory", None, "for building"),
        (
            "x.c:3:10: fatal error: infiniband/verbs.h: No such file or directory",
            Some("infiniband/verbs.h"),
            "headers",
        ),
    ] {
        let record = only(line);
        assert_eq!(record.value("file"), file, "{line}");
        assert!(told(&record).contains(cause), "{line}\n{record:#?}");
    }
    assert!(
        decoded(
            "error while loading shared libraries: libfoo.so.2: cannot open shared object file"
        )
        .is_empty()
    );
}

#[test]
fn tools_and_plugins_say_what_hinders_them() {
    for (line, cause) in [
        ("Exiting.. can not change : incorrect RDMA subsystem network namespace", "exclusive"),
        ("-E- Failed to open the device", "address is wrong"),
        (
            "-E- PSID mismatch. The PSID on flash (MT_1) differs from the PSID in the image (MT_2)",
            "another board",
        ),
        (
            "Error! Bad return status for module build on kernel: 6.8.0-31 (x86_64)",
            "older than the kernel",
        ),
    ] {
        assert!(told(&only(line)).contains(cause), "{line}");
    }
    // One of three causes is no cause that the message tells.
    let none = only("No IB devices found");
    assert!(none.findings[0].causes.iter().all(|cause| cause.grounds == Grounds::None));
}

const OOPS: &str = "\
[  88.1] BUG: kernel NULL pointer dereference, address: 0000000000000010
[  88.1] #PF: supervisor read access in kernel mode
[  88.1] Oops: 0000 [#1] SMP NOPTI
[  88.1] CPU: 3 PID: 900 Comm: ib_write_bw Tainted: G           OE     5.15.0-91-generic #101-Ubuntu
[  88.1] RIP: 0010:mlx5_ib_create_qp+0x1b2/0x430 [mlx5_ib]
[  88.1] RSP: 0018:ffffb5e0c0e7fb60 EFLAGS: 00010246
[  88.1] Call Trace:
[  88.1]  <TASK>
[  88.1]  ? __die_body+0x1a/0x60
[  88.1]  create_qp+0x11d/0x300 [ib_core]
[  88.1]  ib_uverbs_run_method+0x1/0x2 [ib_uverbs]
[  88.1]  __x64_sys_ioctl+0x91/0xc0
[  88.1]  </TASK>
[  88.1] ---[ end trace 0000000000000000 ]---
[  88.2] Kernel panic - not syncing: Fatal exception
";

#[test]
fn a_crash_in_the_drivers_code_names_function_task_and_packages() {
    let record = only(OOPS);
    assert_eq!((record.kind, record.lines), (RecordKind::Crash, Some((1, 15))));
    let field = |name| record.value(name);
    assert_eq!((field("function"), field("module")), (Some("mlx5_ib_create_qp"), Some("mlx5_ib")));
    assert_eq!((field("task"), field("kernel")), (Some("ib_write_bw"), Some("5.15.0-91-generic")));
    assert_eq!(field("called by"), Some("create_qp, ib_uverbs_run_method"));
    assert_eq!(field("then"), Some("Kernel panic - not syncing: Fatal exception"));
    let tainted = record.fields.iter().find(|field| field.name == "tainted").expect("letters");
    assert!(tainted.meaning.as_deref().unwrap_or_default().contains("outside the kernel's tree"));
    // No cause is claimed: which defect it is, the trace does not say.
    assert!(record.findings[0].causes.is_empty() && record.findings[0].check.is_some());
    // Two reports are two records, also where the end of the first is missing.
    let cut: String = OOPS.lines().take(12).map(|line| format!("{line}\n")).collect();
    let again = OOPS.replace("ib_write_bw", "ib_read_bw");
    let twice = decoded(&format!("{cut}------------[ cut here ]------------\n{again}"));
    let tasks: Vec<_> = twice.iter().map(|record| record.value("task")).collect();
    assert_eq!(tasks, [Some("ib_write_bw"), Some("ib_read_bw")]);
    // A crash of others is none of ours.
    let other =
        OOPS.replace("mlx5_ib", "xfs").replace("ib_core", "xfs").replace("ib_uverbs", "vfs");
    assert!(decoded(&other).is_empty(), "{:#?}", decoded(&other));
}

#[test]
fn a_checksum_that_differs_is_told_of_any_interface() {
    let record = only("[ 1.0] eth2: hw csum failure");
    assert!(record.title.contains("checksum"), "{record:#?}");
}

const IBSTAT: &str = "\
CA 'mlx5_0'
\tCA type: MT4123
\tNumber of ports: 1
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 200
\t\tBase lid: 65535
\t\tSM lid: 0
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tNumber of ports: 1
\tPort 1:
\t\tState: Down
\t\tPhysical state: Disabled
\t\tRate: 40
\t\tBase lid: 0
\t\tSM lid: 0
\t\tLink layer: Ethernet
";

#[test]
fn listings_of_ports_name_the_port_and_what_hinders_it() {
    let records = decoded(IBSTAT);
    let titles: Vec<&str> = records.iter().map(|record| record.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "port mlx5_0/1: the link is up, and no subnet manager has set the port up",
            "port mlx5_1/1: the port is disabled"
        ]
    );
    assert!(records.iter().all(|record| record.kind == RecordKind::State));
    // Ports of one device, and a device without a state.
    let two = IBSTAT.replace("CA 'mlx5_1'\n\tNumber of ports: 1\n\tPort 1:", "\tPort 2:");
    assert!(decoded(&two)[1].title.starts_with("port mlx5_0/2: the port is disabled"));
    assert!(decoded(&"hca_id: mlx5_0\n".repeat(3)).is_empty());
    let devinfo = only(
        "hca_id:\tmlx5_2\n\ttransport:\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_DOWN (1)\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tsm_lid:\t\t\t0\n\t\t\tport_lid:\t\t0\n\t\t\tlink_layer:\t\tInfiniBand\n",
    );
    assert_eq!(devinfo.title, "port mlx5_2/1: the port is down");
    let link = only("link mlx5_3/1 state DOWN physical_state POLLING netdev eth3");
    assert!(link.title.starts_with("port mlx5_3/1: the port looks for a partner"), "{link:#?}");
    let good = only("link mlx5_3/1 state ACTIVE physical_state LINK_UP netdev eth3");
    assert!(good.findings.is_empty() && good.title.ends_with("ACTIVE"), "{good:#?}");
    let pairs = only("mlx5_0 port 1 ==> ib0 (Down)\nmlx5_1 port 1 ==> eth2 (Up)\n");
    assert_eq!((pairs.value("mlx5_0/1"), pairs.lines), (Some("ib0 (Down)"), Some((1, 2))));
    assert!(decoded("State: running\nRate: 5\n").is_empty());
}

#[test]
fn connections_of_the_kernels_storage_drivers_are_read() {
    let nvme = only("nvme nvme0: rdma connection establishment failed (-104)");
    assert_eq!(nvme.value("error"), Some("ECONNRESET"));
    assert!(nvme.findings[0].causes[0].cure.contains("Connect rejected"), "{nvme:#?}");
    let lustre = only(
        "LNet: 3:0:(o2iblnd_cb.c:2878:kiblnd_rejected()) 10.0.0.1@o2ib rejected: no listener at 987",
    );
    assert_eq!(lustre.value("event"), Some("RDMA_CM_EVENT_REJECTED"));
    let nfs = only("rpcrdma: connection to 10.0.0.9:20049 closed (-111)");
    assert_eq!(nfs.value("error"), Some("ECONNREFUSED"));
}

#[test]
fn a_method_that_the_kernel_does_not_have_is_no_missing_feature_of_the_device() {
    let record = only("mlx5dv_devx_create_event_channel() failed: Protocol not supported");
    assert!(told(&record).contains("do not know this call"), "{record:#?}");
}

#[test]
fn signs_in_the_text_rule_causes_out() {
    let first = |text: &str| {
        let record =
            decoded(text).into_iter().find(|record| record.kind == RecordKind::CallFailure);
        record.expect("a call").findings[0].causes[0]
    };
    let failed = "ibv_reg_mr(address=0x7f, length=4096) failed: Bad address\n";
    assert!(first(failed).cause.contains("no module makes it reachable"));
    let amd = first(&format!("{failed}address 0x7f (rocm)\n"));
    assert!(amd.cause.contains("AMD"), "{amd:#?}");
    let loaded = first(&format!("nvidia_peermem 16384 0\n{failed}cuMemAlloc\n"));
    assert!(!loaded.cause.contains("no module"), "{loaded:#?}");
    // A receive queue of mbufs is DPDK's.
    let qp = decoded("rdma_create_qp failed: Cannot allocate memory");
    assert!(qp[0].findings[0].causes.iter().all(|cause| !cause.cause.contains("mbufs")));
    let zero = "remote address: LID 0000 QPN 0x4e\n GID: 00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00\nFailed to modify QP 77 to RTR\n";
    assert!(first(zero).cause.contains("the GID index is empty"));
}

#[test]
fn ibqueryerrors_is_read_as_counters() {
    let record = only(
        " GUID 0x1070 port 3: [LinkDownedCounter == 25 (25.000)] [PortXmitWait == 146 (146.000)]",
    );
    assert_eq!(record.value("LinkDownedCounter"), Some("25"));
    assert!(record.title.contains("1 tells of a fault"), "{}", record.title);
}

#[test]
fn a_trace_without_its_first_line_is_read_by_its_frames_and_pointer() {
    let headless: String = OOPS.lines().skip(6).map(|line| format!("{line}\n")).collect();
    let record = only(&headless);
    assert_eq!(record.value("function"), Some("create_qp"));
    assert!(record.title.contains("printed a trace"), "{}", record.title);
    assert_eq!(record.value("then"), Some("Kernel panic - not syncing: Fatal exception"));
    // Newer kernels print the instruction pointer again behind the end.
    let again = headless.replace(
        "---[ end trace 0000000000000000 ]---\n",
        "---[ end trace 0000000000000000 ]---\n[  88.1] RIP: 0010:mlx5_ib_create_qp+0x1b2/0x430 [mlx5_ib]\n",
    );
    let record = only(&again);
    assert_eq!(record.value("function"), Some("mlx5_ib_create_qp"));
    assert_eq!(record.value("called by"), Some("create_qp, ib_uverbs_run_method"));
    let registers: String = OOPS.lines().skip(4).map(|line| format!("{line}\n")).collect();
    let record = only(&registers);
    assert_eq!(record.value("function"), Some("mlx5_ib_create_qp"));
    assert_eq!(record.value("called by"), Some("create_qp, ib_uverbs_run_method"));
    // The name of a task is cut where the state of kdump begins.
    let dumping = only(&OOPS.replace("Comm: ib_write_bw", "Comm: sh Kdump: loaded"));
    assert_eq!(dumping.value("task"), Some("sh"));
}

#[test]
fn more_tools_are_known_by_what_they_print() {
    for (line, cause) in [
        ("Failed to write to /dev/nvme-fabrics: Invalid argument", "nvme-rdma is not loaded"),
        (
            "missing RDMA device spec for device 0000:e1:00.0, RDMA device \"issm\" not found",
            "too wide",
        ),
        (
            "src/query_smp.c:195; umad (DR path slid 0; dlid 0; 0,1,13 Attr 0x11:0) bad status 110; Connection timed out",
            "switched off",
        ),
        ("n_gids_found=0", "not in this container"),
        ("Error: mlnx-ofed-kernel-modules installation failed!", "older than the running kernel"),
        ("By default, for Open MPI 4.0 and later, infiniband ports on a device", "without UCX"),
    ] {
        assert!(told(&only(line)).contains(cause), "{line}");
    }
}

#[test]
fn a_device_without_a_node_guid_is_told() {
    let listing = "hca_id:\tmlx5_0\n\tnode_guid:\t0000:0000:0000:0000\n\tport:\t1\n\t\tstate:\tPORT_ACTIVE (4)\n\t\tport_lid:\t3\n\t\tlink_layer:\tInfiniBand\n";
    let record = only(listing);
    assert!(record.title.contains("node GUID"), "{record:#?}");
    let good = only(&listing.replace("0000:0000:0000:0000", "b8ce:f603:00e9:d18e"));
    assert!(good.findings.is_empty(), "{good:#?}");
    // The list may end there.
    let short = only("hca_id: mlx5_0\n  node_guid: 0000:0000:0000:0000\n");
    assert!(short.title.contains("node GUID"), "{short:#?}");
}

#[test]
fn a_syndrome_of_zero_sends_to_the_kernels_log() {
    let record = only(
        "ib_mlx5_dv.c:217  UCX  ERROR mlx5dv_devx_qp_modify(503) failed, syndrome 0: Invalid argument",
    );
    assert!(record.notes.iter().any(|note| note.contains("dmesg")), "{record:#?}");
    let without = only(
        "ibgda.cpp:1345: non-zero status: 121 Error in mlx5dv_devx_obj_modify for INIT2RTR_QP with syndrome 29e0df",
    );
    let fields = ["command", "syndrome", "error"].map(|name| without.value(name));
    assert_eq!(fields, [Some("INIT2RTR_QP"), Some("0x29e0df"), Some("EREMOTEIO")]);
    assert!(decoded("error with syndrome 12345").is_empty());
}

#[test]
fn a_move_to_init_has_no_peer_to_resolve() {
    let init = only("Failed to modify QP to INIT: Invalid argument");
    let causes = &init.findings[0].causes;
    assert!(
        causes[0].cause.contains("P_Key index")
            && causes.iter().all(|cause| !cause.cause.contains("GID")),
        "{init:#?}"
    );
    let ucx = only(
        "ib_mlx5_dv.c:223  UCX  ERROR mlx5dv_devx_qp_modify(502) failed, syndrome 0: Invalid argument",
    );
    assert!(ucx.findings[0].causes[0].cause.contains("P_Key index"), "{ucx:#?}");
    let rtr = only("Failed to modify QP from INIT to RTR: Invalid argument");
    assert!(rtr.findings[0].causes[0].cause.contains("GID"), "{rtr:#?}");
}

#[test]
fn what_only_says_that_somebody_refused_is_no_finding() {
    let record = only("mlx5_common: Failed to initialize device context.");
    assert!(
        record.findings[0].causes.iter().all(|cause| cause.grounds == Grounds::None),
        "{record:#?}"
    );
}
