//! Reasons why firmware refuses commands.

use mlx5_sys::ifc::{opcode, status};

use super::{Explanation, Knowledge, explanation};

/// Returns the meaning and the causes of a status; `None` if it is not known.
///
/// Meanings are those of Linux's `cmd_status_str` (`mlx5/core/cmd.c`).
#[must_use]
pub const fn explain(code: u8) -> Option<Explanation> {
    Some(match code {
        status::OK => explanation! { "The command was done."; },
        status::INT_ERR => explanation! {
            "Something in the firmware failed.";
            "an error of the firmware" => "look into the kernel's log for a health report; update the firmware";
        },
        status::BAD_OP_ERR => explanation! {
            "The HCA has no such command, or not in this state.";
            "the firmware or the HCA does not have the feature"
                => "look at the capabilities (`mlx5 info`); update the firmware";
            "the object is in a state in which the command is not allowed"
                => "query the object's state first";
        },
        status::BAD_PARAM_ERR => explanation! {
            "A field of the command has a value that the HCA does not take.";
            "a field is out of the range that the capabilities give"
                => "decode the command and compare its fields with the capabilities";
            "a reserved field is not zero, or two fields contradict each other"
                => "clear the command before its fields are set";
            "the driver is newer than the firmware" => "update the firmware";
        },
        status::BAD_SYS_STATE_ERR => explanation! {
            "The HCA or the function is in a state in which the command is not allowed.";
            "the function is being reset, or was not initialized"
                => "look into the kernel's log; load the driver anew";
        },
        status::BAD_RES_ERR => explanation! {
            "An object that the command names does not exist, or belongs to somebody else.";
            "the object was destroyed already, or never made" => "keep objects until their users are gone";
            "the object belongs to another user context (uid)" => "name objects of the same context only";
            "the function may not touch it, as a register of another function"
                => "ask from the function that owns it";
        },
        status::RES_BUSY => explanation! {
            "Another object stands on it.";
            "objects are destroyed in the wrong order" => "destroy what stands on it first";
        },
        status::NOT_READY => explanation! {
            "The firmware is not ready for the command yet.";
            "it needs more time (Linux says no more, and answers EAGAIN)"
                => "issue the command again later";
        },
        status::LIM_ERR => explanation! {
            "A limit of the HCA is reached.";
            "too many objects of that kind, perhaps leaked ones" => "look at `rdma resource show`";
        },
        status::BAD_RES_STATE_ERR => explanation! {
            "The object is not in the state that the command needs.";
            "something still uses the object" => "take it out of use before it is changed or freed";
            "a step before this one failed" => "look for the first command that failed";
        },
        status::IX_ERR => explanation! {
            "An index is out of range.";
            "a number that is not the HCA's, as of a GID table's entry" => "query the size of the table";
        },
        status::NO_RES_ERR => explanation! {
            "The HCA has no resources left.";
            "memory of the HCA (ICM) or objects of that kind are used up"
                => "look at `rdma resource show`; close programs that hold many";
        },
        status::BAD_QP_STATE_ERR => explanation! {
            "The queue pair is not in the state that the command needs.";
            "a move from a state in which it is not, or it failed meanwhile"
                => "query the queue pair, and take it through RESET again";
        },
        status::BAD_PKT_ERR => explanation! {
            "A packet that came with the command was wrong, and was discarded.";
            "a malformed MAD" => "look at what is sent to the port's management agent";
        },
        status::BAD_SIZE_OUTS_CQES_ERR => explanation! {
            "More CQEs are outstanding than the new size takes.";
            "a CQ is made smaller than what is in it" => "poll it first";
        },
        status::BAD_INP_LEN_ERR => explanation! {
            "The command is too short or too long.";
            "a list is shorter than a field says, or layout and firmware are of different versions"
                => "compare the length with the layout, and list lengths with their counts";
        },
        status::BAD_OUTP_LEN_ERR => explanation! {
            "There is too little room for the reply.";
            "the buffer is shorter than the layout" => "give it the whole layout's size";
        },
        _ => return None,
    })
}

/// The errno that Linux turns a status into (`cmd_status_to_err`), by name.
#[must_use]
pub const fn errno(code: u8) -> Option<&'static str> {
    Some(match code {
        status::OK => return None,
        status::INT_ERR
        | status::BAD_SYS_STATE_ERR
        | status::BAD_INP_LEN_ERR
        | status::BAD_OUTP_LEN_ERR => "EIO",
        status::BAD_OP_ERR
        | status::BAD_PARAM_ERR
        | status::BAD_RES_ERR
        | status::BAD_RES_STATE_ERR
        | status::IX_ERR
        | status::BAD_QP_STATE_ERR
        | status::BAD_PKT_ERR
        | status::BAD_SIZE_OUTS_CQES_ERR => "EINVAL",
        status::RES_BUSY => "EBUSY",
        status::LIM_ERR => "ENOMEM",
        status::NOT_READY | status::NO_RES_ERR => "EAGAIN",
        _ => return None,
    })
}

/// A command's syndrome of which something is publicly known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSyndrome {
    /// The syndrome. Firmware versions may number them differently.
    pub syndrome: u32,
    /// Opcode of the command that it was met with.
    pub opcode: u16,
    /// How much is known of it.
    pub knowledge: Knowledge,
    /// The meaning, or the circumstances in which it was seen.
    pub what: &'static str,
    /// The cure, if an author or a maintainer confirmed the cause, or nothing.
    pub cure: &'static str,
    /// The source.
    pub source: &'static str,
}

macro_rules! syndromes {
    ($($syndrome:literal $opcode:ident $knowledge:ident $what:literal $cure:literal $source:literal;)*) => {
        /// Every syndrome of commands of which something public is known, in the order of numbers.
        pub const SYNDROMES: &[CommandSyndrome] = &[$(CommandSyndrome {
            syndrome: $syndrome,
            opcode: opcode::$opcode,
            knowledge: Knowledge::$knowledge,
            what: $what,
            cure: $cure,
            source: $source,
        }),*];
    };
}

syndromes! {
    0x008fef CREATE_EQ Told
        "the driver's layout of the capabilities was shifted, so that it read wrong values"
        "a kernel whose capability layout is that of the firmware"
        "https://lore.kernel.org/r/CALzJLG-TgHP8tgv_1eqYmWjpO4nRD3=7QRdyGXGp1x_qQdKErg@mail.gmail.com";
    0x03bf6f CREATE_MKEY Told
        "the key has no entries: their number overflowed to 0 in the driver"
        "a kernel with that commit"
        "https://git.kernel.org/torvalds/c/023d2a43ed0d9ab73d4a35757121e4c8e01298e5";
    0x05fa1c CREATE_GENERAL_OBJECT Told
        "the memory of a virtio queue was not mapped any more when the queue was made again"
        "a kernel with that change: it keeps the mapping until the queue is gone"
        "https://lore.kernel.org/r/1676424640-11673-1-git-send-email-si-wei.liu@oracle.com";
    0x063c66 SET_ROCE_ADDRESS Told
        "a GID was set again after the state of the function was loaded, which has restored the table"
        "do not set GIDs again after LOAD_VHCA_STATE"
        "a public text whose address is not known: tests of live migration on ConnectX-7";
    0x0754a4 CREATE_FLOW_TABLE Told
        "an egress ACL table on BlueField was made without the flag for another vport"
        "a kernel with that commit"
        "https://git.kernel.org/torvalds/c/43a0696f11567278b9412f947e43dd7906c831a8";
    0x0d5ef2 SET_FLOW_TABLE_ENTRY Told
        "the group has a rule with the same value already"
        "one rule for each value; give it several destinations instead"
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-tc-shuffle-3.sh";
    0x12822d SET_ROCE_ADDRESS Told
        "a GID was deleted as RoCE v1 on a function without RoCE v1, such as a subfunction"
        "a kernel with that change; nothing else is wrong"
        "https://lore.kernel.org/r/d3f54129c90ca329caf438dbe31875d8ad08d91a.1618753425.git.leonro@nvidia.com";
    0x144b7a SET_FLOW_TABLE_ENTRY Told
        "the rule neither forwards nor drops"
        "a kernel with that commit; give the rule a destination or a drop"
        "https://git.kernel.org/torvalds/c/ae2741e2b6ce2bf1b656b1152c4ef147ff35b096";
    0x177405 RST2INIT_QP Told
        "the port number is invalid: in switchdev mode or without RoCE, only raw Ethernet queue pairs are allowed"
        "RoCE on (`devlink dev param`, enable_roce), or raw Ethernet queue pairs only"
        "https://lore.kernel.org/r/20200506071602.7177-3-leon@kernel.org";
    0x179e84 DEALLOC_PACKET_REFORMAT_CONTEXT Told
        "a rule still uses the header that is freed"
        "a kernel with that commit; delete the rule first"
        "https://git.kernel.org/torvalds/c/6b5926eb1c034affff3fb44a98cb8c67153847d8";
    0x17faa8 CREATE_FLOW_GROUP Told
        "the bit for inner headers is not set, but the group matches inner headers"
        "set the criteria bit of inner headers in the group"
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-tc-vxlan-decap-inner-match-drop.sh";
    0x1870ad DESTROY_CQ Told
        "a queue pair still uses the CQ, since its own destruction was refused before"
        "look for the failed destruction of the queue pair before it"
        "https://lore.kernel.org/linux-pci/20220121214035.7moslsnar55sqdl7@sx1/";
    0x19c6d6 CREATE_QP Met
        "a program held 130,000 queue pairs, half of max_qp, and got no more"
        ""
        "https://github.com/ofiwg/libfabric/issues/7368";
    0x1ab444 DEALLOC_MODIFY_HEADER_CONTEXT Told
        "a rule still uses the actions that are freed"
        "a kernel with that commit; delete the rule first"
        "https://git.kernel.org/torvalds/c/6b5926eb1c034affff3fb44a98cb8c67153847d8";
    0x1e5585 ACCESS_REG Told
        "the port's counters (PPCNT) were asked with a local port other than 1, on an HCA with one port for each function"
        "a kernel with that commit"
        "https://git.kernel.org/torvalds/c/74b30b3ad5cec95d2647e796d10137438a098bc1";
    0x22a5af SET_FLOW_TABLE_ENTRY Told
        "a table of the NIC's transmit side forwards to a vport, on ConnectX-4 Lx"
        "allow or drop there: these tables take nothing else"
        "a public text whose address is not known: notes of a driver for ConnectX-4 Lx without an operating system";
    0x25b161 DESTROY_QP Told
        "the queue pair could not be moved to RESET before"
        "look for the failed move to RESET before it"
        "https://lore.kernel.org/linux-pci/20220121214035.7moslsnar55sqdl7@sx1/";
    0x263211 MODIFY_VHCA_STATE Told
        "the bit for the embedded processor was set, which firmware does not take for subfunctions"
        "a kernel with that change"
        "https://lore.kernel.org/r/20210322202524.68886-7-saeed@kernel.org";
    0x294609 SET_FLOW_TABLE_ENTRY Told
        "a rule of the e-switch that changes, pops or pushes headers forwards to no vport"
        "forward the rule to a vport"
        "https://github.com/DPDK/dpdk/blob/00ae11c4e876e05988c7ed87bfb12d7113bb7900/drivers/net/mlx5/mlx5_flow_tcf.c";
    0x2c4154 CREATE_QP Met
        "a parallel program made queue pairs by command; newer firmware, or queue pairs by verbs, were advised"
        ""
        "https://github.com/openucx/ucx/issues/10451";
    0x2edcc3 ALLOC_MODIFY_HEADER_CONTEXT Told
        "the list has more actions than the HCA takes"
        "fewer actions in one rule, or two rules"
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-tc-insert-rules-pedit.sh";
    0x2f50ca CREATE_QP Told
        "the list of pages is shorter than the sizes of the queues ask for"
        "give an address for each page of both rings"
        "a public text whose address is not known: notes of a driver for ConnectX-4 without an operating system";
    0x305684 ACCESS_REG Met
        "a monitoring program read counters of a physical function that firmware restricts, as on DGX; exclude that device"
        ""
        "https://github.com/leptonai/gpud/blob/HEAD/components/accelerator/nvidia/infiniband/kmsg_matcher.go";
    0x31b635 DEALLOC_PD Told
        "a memory key of the domain was not destroyed"
        "destroy memory keys before their domain"
        "https://lore.kernel.org/r/20210311142024.1282004-1-leon@kernel.org";
    0x325a82 QUERY_CONG_PARAMS Told
        "general RoCE parameters were asked of an HCA that does not report them"
        "a kernel with that change; nothing else is wrong"
        "https://lore.kernel.org/r/e7ade70bad52b7468bdb1de4d41d5fad70c8b71c.1706433934.git.leon@kernel.org";
    0x35e6ec CREATE_MKEY Met
        "NVMe over RDMA asked for keys with signatures; NVIDIA's known issue 3735400 was named as the same"
        ""
        "https://github.com/openucx/ucx/issues/9488";
    0x389e56 DESTROY_FLOW_TABLE Met
        "a virtual function in a cloud, while something still referred to the table"
        ""
        "a public text whose address is not known: a kernel's log";
    0x38a711 CREATE_MKEY Told
        "the page size of the key is larger than the capabilities allow"
        "a kernel with that change"
        "https://lore.kernel.org/r/eab4eeb4785105a4bb5eb362dc0b3662cd840412.1751979184.git.leon@kernel.org";
    0x3ad328 SET_FLOW_TABLE_ENTRY Told
        "the rule has bits that its group does not match"
        "match only what the group's criteria have"
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-tc-insert-rules.sh";
    0x3b7492 SET_FLOW_TABLE_ENTRY Told
        "a rule of the e-switch that changes the IPv4 TTL may not forward to an internal vport"
        "forward to the uplink, or leave the TTL alone"
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-tc-insert-rules-pedit-ttl.sh";
    0x3b8512 CREATE_RQ Told
        "ts_format is free running where only the default passes, or vsd is set on a virtual function, or uar_page is set"
        "the default ts_format, vsd 0, and no uar_page in a receive queue"
        "a public text whose address is not known: a program for GPUs that is derived from DPDK";
    0x43d98f CREATE_RQ Told
        "real-time stamps were asked for, and the firmware's clock is free running"
        "ask rq_ts_format in the capabilities first, or switch REAL_TIME_CLOCK_ENABLE on (mlxconfig)"
        "https://github.com/NVIDIA/daqiri/pull/284";
    0x4497be ACCESS_REG Told
        "the register PPLR was written with fields that the port does not take (\"invalid access\", says its tracer)"
        "read the register first, and change what its mask allows"
        "https://github.com/snabbco/snabb/issues/994";
    0x45d3a4 CREATE_MKEY Met
        "UCX tried an access mode (KSM) that the firmware lacks, and went on"
        ""
        "a public text whose address is not known: a log of UCX";
    0x498c8b RTS2RTS_QP Told
        "opt_param_mask names the primary path, which the move from RTS to RTS does not take"
        "another path by SQD, or by a new connection"
        "a public text whose address is not known: tests of live migration on ConnectX-7";
    0x4bb88f RTR2RTS_QP Met
        "the program had set retry_cnt to 20, and the field takes 0 to 7"
        ""
        "https://github.com/charmplusplus/charm/pull/2712";
    0x537801 SET_HCA_CAP Told
        "a stored max_macs (devlink) was applied to a link of InfiniBand, which has no such list"
        "remove the stored max_macs (`devlink dev param`), or a kernel with that change"
        "https://lore.kernel.org/r/20260611135230.534513-1-tariqt@nvidia.com";
    0x54b97c SET_FLOW_TABLE_ENTRY Met
        "a test looks for it in the kernel's log, without a cause"
        ""
        "a public text whose address is not known: a test of NVIDIA";
    0x562b00 CREATE_TIR Told
        "the host's driver was loaded before BlueField's driver had set up encapsulation"
        "load the driver of the host after that of BlueField, or a kernel with that change"
        "https://lore.kernel.org/r/20201120230339.651609-16-saeedm@nvidia.com";
    0x563e2f DESTROY_FLOW_GROUP Met
        "mirroring to virtual functions under load; rules of the group were left"
        ""
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-tc-vf-mirror.sh";
    0x595b5d CREATE_TIS Told
        "virtual functions on Linux 6.8-rc1, whose driver lacked two patches"
        "Linux 6.8 or newer"
        "https://lore.kernel.org/r/Za7IMcstTALcSnPG@x130";
    0x59c8a4 CREATE_MKEY Met
        "hundreds of refusals in a row, with the status of a limit: memory keys were used up"
        ""
        "a public text whose address is not known: a kernel's log";
    0x5a7939 ALLOC_UAR Told
        "the UAR pages of the HCA's BAR are used up: too many processes have opened it"
        "a larger PF_LOG_BAR_SIZE (mlxconfig), then a reboot"
        "https://github.com/openucx/ucx/issues/6049";
    0x5add95 QUERY_HCA_CAP Told
        "the firmware is older than the group of capabilities that was asked for (CAP2)"
        "read it as \"not offered\"; hca_cap_2 of the general group says whether the group exists"
        "a public text whose address is not known: a log of UCX on ConnectX-6";
    0x62bbc6 CREATE_CQ Met
        "the HCA had no translation entries left for the queue (\"fail to allocate mtt index\", says its tracer)"
        ""
        "https://github.com/snabbco/snabb/issues/995";
    0x658908 ENABLE_HCA Told
        "a subfunction reset the PCI device in its own recovery, which only the physical function may do"
        "a kernel with that commit"
        "https://git.kernel.org/torvalds/c/33de865f7bce3968676e43b0182af0a2dd359dae";
    0x65b500 CREATE_QP Met
        "a program made queue pairs until the HCA gave no more, at half of max_qp or nearly all of it"
        ""
        "https://lore.kernel.org/linux-rdma/CY5PR11MB65342B7EDE1F12E1012ACC09DDB99@CY5PR11MB6534.namprd11.prod.outlook.com/";
    0x65c1fb SET_FLOW_TABLE_ENTRY Met
        "a rule of an IPsec tunnel on a virtual function"
        ""
        "a public text whose address is not known: notes of an IPsec program";
    0x66d6c3 DESTROY_FLOW_TABLE Met
        "a virtual function in a cloud, after a group of the table could not be destroyed"
        ""
        "a public text whose address is not known: a kernel's log";
    0x685f19 ACCESS_REG Told
        "the register MPIR (multi-PF devices) was asked on BlueField, on its own processor or in separate mode"
        "a kernel with that commit; nothing else is wrong"
        "https://git.kernel.org/torvalds/c/c31fe2b5095d8c84562ce90db07600f7e9f318df";
    0x6ae84c SET_FLOW_TABLE_ENTRY Told
        "firmware checked levels of tables which hardware steering (HWS) numbers itself"
        "a kernel with that commit"
        "https://git.kernel.org/torvalds/c/efb877cf27e300e47e1c051f4e8fd80fc42325d5";
    0x6c4d48 ACCESS_REG Told
        "Linux 6.8 reads MPIR (multi-PF devices), which older firmware of ConnectX-5 and ConnectX-6 does not have; the probe fails"
        "newer firmware, or a kernel that asks the capability first"
        "a public text whose address is not known: a bisection on the kernel's list";
    0x6cdcfa SET_FLOW_TABLE_ENTRY Told
        "a table of the NIC's transmit side forwards to the uplink, on ConnectX-4 Lx"
        "allow or drop there: these tables take nothing else"
        "a public text whose address is not known: notes of a driver for ConnectX-4 Lx without an operating system";
    0x76555f CREATE_MKEY Told
        "the uid of the command is not registered; other commands for objects have the same syndrome"
        "create the user context first (CREATE_UCTX), and keep it until its objects are gone"
        "a public text whose address is not known: tests of live migration on ConnectX-7";
    0x7bc3c1 SET_FLOW_TABLE_ENTRY Met
        "a multiport e-switch forwarded between ports (NVIDIA's bug 3107213)"
        ""
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-eswitch-multiport-fwd-vf-to-vf-and-upl.sh";
    0x7d49cb CREATE_LAG Told
        "the bond was made before SR-IOV was switched on, and the driver made it a second time"
        "a kernel with that change; switch SR-IOV on before the bond is made"
        "https://lore.kernel.org/r/20221124081040.171790-4-saeed@kernel.org";
    0x7d79ae ACCESS_REG Told
        "a register of sensors was read that the device does not offer (NVIDIA's issue 3944219)"
        "nothing is wrong: hwmon shows fewer sensors"
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/common.sh";
    0x7e1579 CREATE_FLOW_GROUP Met
        "decapsulation of VXLAN with a rule for all protocols (NVIDIA's bug 1572366)"
        ""
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-tc-vxlan-decap-proto-all.sh";
    0x7e1580 CREATE_FLOW_GROUP Told
        "the bit for outer headers is set, but the group matches none of their fields"
        "leave the criteria bit out, or match a field"
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-tc-insert-rule-without-match.sh";
    0x7ea02d QP_2RST Told
        "there is no queue pair of that number any more"
        "look for the queue pair's destruction or a reset of the HCA before it"
        "https://lore.kernel.org/linux-pci/20220121214035.7moslsnar55sqdl7@sx1/";
    0x823f8d INIT2RTR_QP Told
        "a field of the context that the program had not set: UCX did not clear it when it made a queue pair for commands"
        "a UCX with that change: clear the whole command first"
        "https://github.com/openucx/ucx/pull/10478";
    0x83d555 CREATE_GENERAL_OBJECT Met
        "emulation of NVMe on BlueField-3 with a stateful region of the BAR"
        ""
        "a public text whose address is not known: a forum";
    0x8708c3 SET_FLOW_TABLE_ENTRY Told
        "the rule drops and also changes headers"
        "a kernel with that commit; do not change headers of what is dropped"
        "https://git.kernel.org/torvalds/c/23216d387c40b090b221ad457c95912fb47eb11e";
    0x88f347 ALLOW_OTHER_VHCA_ACCESS Met
        "UCX tried keys across virtual machines on a function without them, and went on"
        ""
        "https://github.com/openucx/ucx/issues/8687";
    0x8975f1 ALLOC_Q_COUNTER Told
        "a user context asked for a set of counters, which only the driver gets"
        "read the port's counters (hw_counters), or those of a queue pair by `rdma statistic`"
        "https://github.com/unionxic/rdma-fault-characterization";
    0x9a6171 ACCESS_REG Met
        "a monitoring program read a register that is not offered on DGX boards, again and again"
        ""
        "a public text whose address is not known: advice of the vendor";
    0xa22b82 CREATE_DCT Told
        "dynamic connections (DCT) are not supported on virtual functions in LAG mode"
        "use RC, or no LAG on virtual functions"
        "https://lore.kernel.org/r/4eb5c13e-6e9a-5d79-da7d-bd4219eef447@nvidia.com";
    0xa43321 CREATE_FLOW_TABLE Told
        "IPsec packet offload in tunnel mode together with the e-switch's encapsulation: the HCA does not encapsulate twice"
        "encapsulation off in the e-switch (`devlink dev eswitch set … encap-mode none`)"
        "https://lore.kernel.org/r/ee971aa614d3264c9fe88eb77a6f61687a3ff363.1681106636.git.leonro@nvidia.com";
    0xa9c090 SET_FLOW_TABLE_ENTRY Told
        "a rule of the e-switch that pushes a VLAN header may forward to the uplink only"
        "forward rules that push a VLAN to the uplink only"
        "https://github.com/DPDK/dpdk/blob/00ae11c4e876e05988c7ed87bfb12d7113bb7900/drivers/net/mlx5/mlx5_flow_tcf.c";
    0xaa0093 DESTROY_GENERAL_OBJECT Told
        "the table context (RTC) of hardware steering is in use, or does not exist"
        "a DPDK with that change: clear what the flow table points to first"
        "https://github.com/DPDK/dpdk/commit/2234c15d46";
    0xaca205 SET_FLOW_TABLE_ENTRY Told
        "the destinations are of mixed kinds, as in hairpin rules without a termination table"
        "a kernel with that change"
        "https://lore.kernel.org/r/20230420010959.276760-11-saeed@kernel.org";
    0xb06e1f ACCESS_REG Met
        "a line of a kernel's log without more"
        ""
        "a public text whose address is not known: a kernel's log";
    0xc1f678 MODIFY_NIC_VPORT_CONTEXT Told
        "RoCE was switched on for a vport that does not support it, or in a bond of ports that differ in that"
        "a kernel with that commit; the same RoCE setting on all ports of a bond"
        "https://git.kernel.org/torvalds/c/9ca05b0f27de928be121cccf07735819dc9e1ed3";
    0xcdb051 SET_FLOW_TABLE_ENTRY Told
        "a rule from uplink to uplink without a termination table (an internal port of OVS as route)"
        "a kernel with that commit"
        "https://git.kernel.org/torvalds/c/06b4eac9c4beda520b8a4dbbb8e33dba9d1c8fba";
    0xd29096 SET_FLOW_TABLE_ENTRY Met
        "connection tracking over VXLAN with a mirror (NVIDIA's bug 1806549)"
        ""
        "https://github.com/Mellanox/ovs-tests/blob/HEAD/test-ovs-ct-vxlan-vf-mirror.sh";
    0xd61c0b CREATE_SQ Told
        "the queue's format of time stamps is not that of the HCA's clock"
        "a kernel with that change; the clock format of the firmware (REAL_TIME_CLOCK_ENABLE) and of the queue must agree"
        "https://lore.kernel.org/r/20221024115357.37278-7-saeed@kernel.org";
    0xe4ac33 DESTROY_LAG Told
        "the bond was destroyed after the layer below it was torn down"
        "a kernel with that commit"
        "https://git.kernel.org/torvalds/c/a31208b1e11d";
    0xebf586 CREATE_SCHEDULING_ELEMENT Met
        "the group of a subfunction was given tx_max and tx_share"
        ""
        "https://github.com/Mellanox/ovs-tests/blob/39d46ece/test-eswitch-sf-qos.sh";
    0xef0c8a DEALLOC_PD Told
        "objects still belong to the domain: a queue pair, or encryption keys (kTLS, PSP) at `devlink dev reload`"
        "destroy what belongs to the domain first; for encryption keys, a kernel with that commit"
        "https://git.kernel.org/torvalds/c/3e4cf1dd2ce413f4be3e2c9062fb470e2ad2be88";
    0xf2ff71 SET_FLOW_TABLE_ENTRY Told
        "the rule names a header (packet reformat) that was freed already"
        "a kernel with that commit"
        "https://git.kernel.org/torvalds/c/e9fce818fe003b6c527f25517b9ac08eb4661b5d";
    0xf6db90 CREATE_GENERAL_OBJECT Told
        "the buffers of a virtio queue are smaller than the HCA wants them since its mode was changed"
        "a kernel with that commit"
        "https://git.kernel.org/torvalds/c/abb0dcf9938c93f765abf8cb45567cadef0af6b2";
}

/// Returns what is known of a syndrome. For others, searches of public threads, mails and commits
/// found nothing so far.
#[must_use]
pub fn syndrome(number: u32) -> Option<&'static CommandSyndrome> {
    SYNDROMES.iter().find(|entry| entry.syndrome == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_explained_and_has_an_errno() {
        for (name, code) in status::STATUSES {
            let explanation = explain(*code).unwrap_or_else(|| panic!("{name}"));
            let good = *code == status::OK;
            assert_eq!(
                (explanation.causes.is_empty(), errno(*code).is_none()),
                (good, good),
                "{name}"
            );
        }
        assert_eq!((explain(0x99), errno(0x99)), (None, None));
        assert_eq!((status::name(7), errno(7)), (Some("NOT_READY"), Some("EAGAIN")));
    }

    #[test]
    fn every_syndrome_names_its_source_and_stands_once() {
        for pair in SYNDROMES.windows(2) {
            assert!(pair[0].syndrome < pair[1].syndrome, "{pair:?}");
        }
        for entry in SYNDROMES {
            let known = ["https://", "a public text whose address is not known: "];
            assert!(known.iter().any(|start| entry.source.starts_with(start)), "{entry:?}");
            assert!(!entry.what.is_empty() && !entry.what.contains("  "), "{entry:?}");
            assert_eq!(entry.cure.is_empty(), entry.knowledge == Knowledge::Met, "{entry:?}");
            assert_eq!(syndrome(entry.syndrome), Some(entry));
        }
        assert_eq!(syndrome(1), None);
    }
}
