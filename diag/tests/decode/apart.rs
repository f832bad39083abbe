//! Texts that only look like failures, and failures between other lines.

use mlx5_diag::decode::{self, DecodedRecord, Options, RecordKind};

fn decoded(text: &str) -> Vec<DecodedRecord> {
    decode::text(text, Options::default())
}

fn titles(text: &str) -> Vec<String> {
    decoded(text).into_iter().map(|record| record.title).collect()
}

#[test]
fn what_is_about_something_else_is_no_record() {
    for text in [
        // Programs that crash, and prose about kernels.
        "traps: ib_write_bw[123] general protection fault ip:7f sp:7f error:0 in libmlx5.so.1.20[7f0+3000]",
        "The mlx5 driver is unable to handle more than 64 queues.",
        "* 1234567 net/mlx5: Fix soft lockup in mlx5_eq_poll",
        "Subject: [PATCH] RDMA/mlx5: Fix WARNING: CPU in mlx5_ib_x",
        "grep \"could not insert\" /var/log/syslog | grep mlx5_ib",
        "We had Unknown symbol in mlx5_ib last year.",
        "You may see \"RLIMIT_MEMLOCK is 65536 bytes\" from libibverbs.",
        "./mlnxofedinstall --add-kernel-support\nInstallation passed successfully\n",
        // Other modules.
        "mlxsw_core: Unknown symbol devlink_alloc (err -2)",
        "rmmod: ERROR: Module nvidia is in use by: nvidia_peermem",
        "modprobe: ERROR: could not insert 'nvme': Invalid argument, needed by rdma_rxe",
        // Memory of the host.
        "EDAC MC0: 1 CE Error on mc#0 (page:0x0 offset:0x0 grain:64 syndrome:0x450a00)",
        "[Hardware Error]: Error Addr: 0x1 IPID: 0x1, Syndrome: 0x1d0d02",
        "decode error: syndrome 0x1234567",
        // Builds of other programs, and what build systems try.
        "/home/me/mlx5-tools/foo.c:1:10: fatal error: zlib.h: No such file or directory",
        "cc -I/usr/include/infiniband -c foo.c: undefined reference to `main'",
        "/usr/bin/ld: cannot find -lnuma while linking mlx5_test",
        "ImportError: /opt/mlx5env/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
        "libc.so.6: version `GLIBC_2.34' not found (required by /usr/lib/libibverbs.so.1)",
        "conftest.c:(.text+0x9): undefined reference to `ibv_exp_create_qp'",
        // States of other things.
        "state: down\nlink_layer: x\n",
        " State: down\n phys state: 2\n",
        "state: running\nphys_state: up\n",
        "The link was in state down and physical_state polling for a while",
        "a b c ==> d (Down)",
        // Events that are named only.
        "stats: RDMA_CM_EVENT_REJECTED=0 RDMA_CM_EVENT_ESTABLISHED=12",
        "#define X RDMA_CM_EVENT_REJECTED",
    ] {
        assert_eq!(titles(text), [""; 0], "{text}");
    }
}

const TRACE: &str = "\
[  1.0] INFO: task ib_write_bw:51234 blocked for more than 120 seconds.
[  1.0] Call Trace:
[  1.0] mlx5_core 0000:3b:00.0: wait_func_handle_exec_timeout:1108:(pid 1): cmd[0]: CREATE_MKEY(0x200) Async, timeout. Will cause a leak of a command resource
[  1.0]  uverbs_destroy_ufile_hw+0x46/0x80 [ib_uverbs]
";

#[test]
fn failures_between_the_lines_of_another_record_are_kept() {
    let records = decoded(TRACE);
    let kinds: Vec<RecordKind> = records.iter().map(|record| record.kind).collect();
    assert_eq!(kinds.len(), 2, "{records:#?}");
    assert!(kinds.contains(&RecordKind::Crash) && records[1].value("command").is_some());
    assert_eq!(records[0].value("task"), Some("ib_write_bw"));

    let failed = "Failed status 12: wr_id 0 syndrom 0x81\n";
    let insert = "modprobe: ERROR: could not insert 'mlx5_ib': Invalid argument\n";
    assert_eq!(titles(&format!("{insert}{failed}{insert}")).len(), 3);
    let listing =
        format!("CA 'mlx5_0'\n\tPort 1:\n\t\tState: Down\n{failed}\t\tPhysical state: Polling\n");
    let records = decoded(&listing);
    assert_eq!(records.len(), 2, "{records:#?}");
    assert_eq!(records[0].value("physical state"), Some("Polling"));
    let counters = format!("out_of_sequence: 5\n{failed}packet_seq_err: 2\n");
    assert_eq!(titles(&counters).len(), 2);
}

#[test]
fn a_report_ends_where_another_begins() {
    let text = "\
[ 1.0] INFO: task jbd2/sda1-8:512 blocked for more than 120 seconds.
[ 1.0] Call Trace:
[ 1.0]  __schedule+0x2c4/0x8a0
[ 1.1] BUG: kernel NULL pointer dereference, address: 0000000000000010
[ 1.1] CPU: 3 PID: 0 Comm: swapper/3 Not tainted 5.15.0
[ 1.1] RIP: 0010:mlx5e_x+0x1f/0x60 [mlx5_core]
[ 1.1] Call Trace:
[ 1.1]  mlx5e_handle_rx_cqe+0x1/0x2 [mlx5_core]
";
    let records = decoded(text);
    assert_eq!(records.len(), 1, "{records:#?}");
    assert_eq!(records[0].title, "the kernel crashed, in mlx5e_x of mlx5_core");
    assert_eq!(records[0].value("task"), Some("swapper/3"));
    let rebooted = "Kernel panic - not syncing: x\nCPU: 1 PID: 300 Comm: a\nLinux version 5.15\n mlx5_foo+0x1/0x2 [mlx5_core]\n";
    assert_eq!(titles(rebooted), [""; 0]);
}

#[test]
fn a_trace_of_arm64_is_one_record() {
    let text = "\
[ 1.0] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010
[ 1.0] Mem abort info:
[ 1.0]   ESR = 0x0000000096000004
[ 1.0]   EC = 0x25: DABT (current EL), IL = 32 bits
[ 1.0]   SET = 0, FnV = 0
[ 1.0]   EA = 0, S1PTW = 0
[ 1.0]   FSC = 0x04: level 0 translation fault
[ 1.0] Data abort info:
[ 1.0]   ISV = 0, ISS = 0x00000004
[ 1.0]   CM = 0, WnR = 0
[ 1.0] Internal error: Oops: 0000000096000004 [#1] SMP
[ 1.0] CPU: 2 PID: 77 Comm: kworker/2:1 Not tainted 6.1.0-13-arm64 #1
[ 1.0] Workqueue: events mlx5e_rx_dim_work [mlx5_core]
[ 1.0] pc : mlx5e_modify_rq+0x1c/0x80 [mlx5_core]
[ 1.0] lr : mlx5e_close_rq+0x1c/0x80 [mlx5_core]
[ 1.0] Call trace:
[ 1.0]  mlx5e_modify_rq+0x1c/0x80 [mlx5_core]
[ 1.0]  mlx5e_close_rq+0x10/0x40 [mlx5_core]
[ 1.0] ---[ end trace 0000000000000000 ]---
[ 1.0] Kernel panic - not syncing: Oops: Fatal exception
";
    let records = decoded(text);
    assert_eq!(records.len(), 1, "{records:#?}");
    let record = &records[0];
    assert_eq!(record.title, "the kernel crashed, in mlx5e_modify_rq of mlx5_core");
    assert_eq!(record.value("called by"), Some("mlx5e_close_rq, mlx5e_rx_dim_work"));
    assert_eq!(record.value("then"), Some("Kernel panic - not syncing: Oops: Fatal exception"));
}

#[test]
fn the_function_is_where_the_processor_was() {
    let text = "\
BUG: unable to handle page fault for address: 0000000000000010
RIP: 0010:nf_conntrack_in+0x1f/0x60 [nf_conntrack]
Call Trace:
 mlx5e_handle_rx_cqe+0x1/0x2 [mlx5_core]
 mlx5e_napi_poll+0x1/0x2 [mlx5_core]
";
    let record = &decoded(text)[0];
    assert_eq!(record.title, "the kernel crashed, in nf_conntrack_in of nf_conntrack");
    assert_eq!(record.value("called by"), Some("mlx5e_handle_rx_cqe, mlx5e_napi_poll"));
}

#[test]
fn ports_keep_their_device_and_kind() {
    let capabilities = "\tmax_x: 1\n".repeat(100);
    let verbose = format!(
        "hca_id:\tmlx5_4\n{capabilities}\t\tport:\t1\n\t\t\tstate:\tPORT_DOWN (1)\n{}\t\t\tphys_state:\tDISABLED (3)\n\t\t\tlink_layer:\tEthernet\n",
        "\t\t\tmax_msg_sz:\t1\n".repeat(12)
    );
    assert_eq!(titles(&verbose), ["port mlx5_4/1: the port is disabled"]);
    let ipoib = "link mlx5_2/1 subnet_prefix fe80:0000 lid 65535 sm_lid 0 lmc 0 state INIT physical_state LINK_UP netdev ib0";
    assert!(titles(ipoib)[0].contains("no subnet manager"), "{:?}", titles(ipoib));
    let long = decoded("0000:3b:00.0 mlx5_0 (MT4123 - X) CX6 fw 20.1 port 1 (DOWN) ==> ib0 (Down)");
    assert_eq!(long[0].value("mlx5_0/1"), Some("ib0 (Down)"), "{long:#?}");
}

#[test]
fn counters_of_two_ports_are_not_subtracted() {
    let text = "# Port counters: Lid 12 port 1 (CapMask: 0x5300)\nSymbolErrorCounter:..............0\nLinkDownedCounter:...............3\n\
                # Port counters: Lid 13 port 1 (CapMask: 0x5300)\nSymbolErrorCounter:..............7\nLinkDownedCounter:...............1\n";
    let records = decoded(text);
    assert_eq!(records.len(), 2, "{records:#?}");
    assert_eq!(records[1].value("SymbolErrorCounter"), Some("7"));
    let named = "mlx5_0\nout_of_sequence: 5\nmlx5_1\nout_of_sequence: 9\n";
    assert_eq!(decoded(named).len(), 2, "{:#?}", decoded(named));
}

#[test]
fn the_commonest_line_of_modprobe_is_read() {
    let record = &decoded(
        "modprobe: ERROR: could not insert 'mlx5_core': Unknown symbol in module, or unknown parameter (see dmesg)",
    )[0];
    assert_eq!((record.value("module"), record.value("symbols")), (Some("mlx5_core"), None));
    assert!(record.title.contains("symbols that do not fit"), "{record:#?}");
    let loaded = titles("modprobe: ERROR: could not insert 'mlx5_core': File exists");
    assert!(loaded[0].contains("loaded already"), "{loaded:?}");
}

#[test]
fn every_form_of_a_report_is_one_record() {
    let trace = "Call Trace:\n mlx5_cmd_exec+0x34/0x40 [mlx5_core]\n";
    for (head, title, callers) in [
        // The first line and the registers have functions, too.
        (
            "WARNING: CPU: 1 PID: 2 at drivers/x.c:345 ib_a+0x60/0x80 [ib_core]\n",
            "the kernel warns, in ib_a of ib_core",
            Some("mlx5_cmd_exec"),
        ),
        (
            "refcount_t: underflow; use-after-free.\nWARNING: CPU: 1 PID: 2 at lib/refcount.c:28 refcount_warn_saturate+0xa6/0xf0\n",
            "the kernel counted the users of an object wrongly, in mlx5_cmd_exec of mlx5_core",
            None,
        ),
        (
            "BUG: unable to handle kernel paging request at ffffc90\nIP: mlx5_ib_x+0x1/0x2 [mlx5_ib]\nOops: 0000 [#1] SMP\nRIP: 0010:mlx5_ib_x+0x1/0x2 [mlx5_ib]\n",
            "the kernel crashed, in mlx5_ib_x of mlx5_ib",
            Some("mlx5_cmd_exec"),
        ),
        (
            "Unable to handle kernel paging request for data at address 0x10\nNIP [d000] mlx5_ib_poll_cq+0x24/0x100 [mlx5_ib]\nLR [d000] ib_y+0x1/0x2 [ib_core]\n",
            "the kernel crashed, in mlx5_ib_poll_cq of mlx5_ib",
            Some("mlx5_cmd_exec"),
        ),
        (
            "BUG: sleeping function called from invalid context at x.c:1\n",
            "the kernel slept where it must not, in mlx5_cmd_exec of mlx5_core",
            None,
        ),
    ] {
        let records = decoded(&format!("{head}{trace}"));
        assert_eq!(records.len(), 1, "{head}\n{records:#?}");
        assert_eq!((records[0].title.as_str(), records[0].value("called by")), (title, callers));
    }
    let interrupted = "\
BUG: unable to handle page fault for address: 10
RIP: 0010:mlx5_x+0x1/0x2 [mlx5_core]
Call Trace:
<IRQ>
 mlx5_y+0x1/0x2 [mlx5_core]
</IRQ>
RIP: 0010:cpuidle_enter_state+0xdd/0x4f0
 do_idle+0x1/0x2
---[ end trace 00 ]---
RIP: 0010:mlx5_x+0x1/0x2 [mlx5_core]
Kernel panic - not syncing: Fatal exception in interrupt
";
    let records = decoded(interrupted);
    assert_eq!(records.len(), 1, "{records:#?}");
    assert_eq!(records[0].title, "the kernel crashed, in mlx5_x of mlx5_core");
    assert!(records[0].value("then").is_some());
    // Where only an interrupt's trace has registers, they are not those of the fault.
    let served = "\
kworker/0:1: page allocation failure: order:4, mode:0x40a20
Call Trace:
<IRQ>
 mlx5e_alloc_rx_wqe+0x1/0x2 [mlx5_core]
</IRQ>
RIP: 0010:cpuidle_enter_state+0xdd/0x4f0
 do_idle+0x1/0x2
";
    assert!(
        titles(served)[0].ends_with(", in mlx5e_alloc_rx_wqe of mlx5_core"),
        "{:?}",
        titles(served)
    );
    let hung = "INFO: task b:304 blocked for more than 122 seconds.\nCall Trace:\n uverbs_x+0x2e/0xf0 [ib_uverbs]\nKernel panic - not syncing: hung_task: blocked tasks\n";
    assert_eq!(
        decoded(hung)[0].value("then"),
        Some("Kernel panic - not syncing: hung_task: blocked tasks")
    );
}

#[test]
fn what_is_cut_or_less_usual_is_read() {
    for (text, part) in [
        ("/usr/bin/ld: cannot find -lmlx5", "the linker does not find a library"),
        (
            "depmod: WARNING: /lib/modules/6.1/mlx5_ib.ko disagrees about version of symbol ib_dealloc",
            "mlx5_ib: a kernel module is of another build",
        ),
        (
            "mlx5_ib: no symbol version for ib_register_device",
            "mlx5_ib: a kernel module is of another build",
        ),
        (
            "insmod: ERROR: could not insert module mlx5_ib.ko: Invalid module format",
            "another kernel or processor",
        ),
        ("Physical state: Polling\nRate: 10\nBase lid: 65535\n", "the port looks for a partner"),
        (
            "0000:3b:00.1 mlx5_1 (MT4123 - MCX653106A-HDAT) ConnectX-6 VPI adapter card, HDR IB (200Gb/s) and 200GbE, dual-port QSFP56 fw 20.31 port 1 (DOWN  ) ==> ens1f1 (Down)",
            "1 of 1 interfaces are down",
        ),
    ] {
        assert!(
            titles(text).first().is_some_and(|title| title.contains(part)),
            "{text}: {:?}",
            titles(text)
        );
    }
    // Each reason is a record of its own.
    let two = "modprobe: ERROR: could not insert 'mlx5_ib': Invalid argument\nmodprobe: ERROR: could not insert 'mlx5_ib': No such device\n";
    assert_eq!(titles(two).len(), 2);
    let lustre = decoded(
        "(o2iblnd_cb.c:2878:kiblnd_rejected()) 10.0.0.1@o2ib rejected: reason 28, size 148",
    );
    assert_eq!(lustre[0].value("reason"), Some("28"));
    for text in [
        "if (event->event != RDMA_CM_EVENT_REJECTED)",
        "NCCL INFO dlvsym failed on ibv_reg_dmabuf_mr - /usr/lib/libibverbs.so.1: undefined symbol",
        "State: Acti\nPhysical state: Lin\n",
    ] {
        assert_eq!(titles(text), [""; 0], "{text}");
    }
}
