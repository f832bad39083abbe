//! Messages of mlx5e, the driver of network interfaces.

use super::families;

families! {
    // Queues.
    "core/en_txrx.c" "mlx5e_cq_error_event" "" Driver "a completion queue of a network interface failed"
        "The device could not write a CQE of the interface's own queue. The channel stands still until it is recovered." "" "event 0x04 is the CQ's error: look for the line with its syndrome (1: overrun) just before it";
    "core/en/health.c" "mlx5e_health_channel_eq_recover" "" Host "events were found that no interrupt had announced"
        "The driver polled an event queue of the interface and found events." "an interrupt was lost" "look for irqbalance, virtualisation, and at /proc/interrupts";
    "core/en/health.c" "mlx5e_health_sq_to_ready" "" Firmware "a send queue of an interface could not be recovered"
        "After an error CQE the driver takes its queue through RESET, and firmware refused." "" "look for the syndrome of MODIFY_SQ, and for the error CQE before it";
    "core/en/health.c" "" "" Driver "a health report of an interface's queue"
        "devlink's tx or rx reporter saw an error and prints it." "" "look at `devlink health show`; the error CQE is just before it";
    "core/en/reporter_*" "" "reporter, err" Driver "a health reporter of an interface could not be made"
        "Errors of its queues are not shown by `devlink health`. The interface works." "" "look at the errno";
    "core/en/reporter_*" "" "" Driver "a queue of an interface could not be recovered"
        "After an error CQE or a time-out the driver empties and restarts its queue. A step failed." "" "look for the error CQE or \"TX timeout\" before it; `devlink health recover`";
    "core/en/txrx.h" "" "" Driver "a request of a network interface failed"
        "An error CQE of the interface's own queue." "" "decode its syndrome and the hex dump behind it";
    "core/en_tx.c" "" "" Driver "a packet has too many headers for a WQE"
        "The interface dropped a packet whose headers do not fit inline." "" "look for tunnels with long headers; update the kernel";
    "core/en_rx.c" "" "" Driver "a received packet has no handler"
        "A queue of the interface has no function for its packets, or the queue pair of IPoIB is not known." "" "look at the interface's features; update the kernel";
    "core/en_main.c" "mlx5e_tx_timeout" "" Driver "a transmit queue of an interface stands still"
        "No completion came for the kernel's packets for some seconds." "" "look at the lines of the tx reporter and for health lines; pause frames also stop it (`ethtool -S`)";
    "core/en_main.c" "mlx5e_flush_rq|mlx5e_wait_for_min_rx_wqes|mlx5e_*icosq*|mlx5e_rq_to_ready|mlx5e_flush*" "" Driver "a receive queue of an interface could not be emptied or filled"
        "The interface has too few buffers, or its queue did not go through RESET." "" "look at the host's free memory and for an error CQE before it";
    "core/en_main.c" "mlx5e_create_rq_umr_mkey|mlx5e_create_umr_mkey|mlx5e_create_rq_hd_umr_mkey" "" Driver "the memory key of an interface's receive queue could not be made"
        "Striding receive queues and AF_XDP register their memory in the device." "" "ask for shorter rings (`ethtool -G`); look for the syndrome of CREATE_MKEY";

    // What the administrator asked for.
    "core/en_main.c" "mlx5e_fix_*|mlx5e_handle_feature|set_feature_*|mlx5e_set_features|mlx5e_mqprio*|mlx5e_setup_tc*|mlx5e_set_tx_maxrate|mlx5e_set_sq_maxrate|mlx5e_xdp_allowed|mlx5e_params_validate_xdp|mlx5e_xsk_validate_mtu|mlx5e_hwstamp*|mlx5e_attach_netdev|mlx5e_set_dev_port_mtu|mlx5e_change_mtu|mlx5e_*vf*" "" Administrator "a setting of a network interface was refused or changed"
        "ethtool, tc, ip or a new configuration asked for features, channels, rates or an MTU that do not go together on this device." "the setting that the message names does not go with the others, or with the device" "compare with `ethtool -k` and `ethtool -l INTERFACE`; change the one that the message names";
    "core/en_main.c" "mlx5e_netdev_change_profile" "" Driver "a network interface could not change between NIC and switchdev"
        "The driver rebuilds the interface when the e-switch's mode changes, and a step failed." "" "look at the errno; load the driver anew";
    "core/en_main.c" "mlx5e_num_channels_changed|mlx5e_update_tx_netdev_queues|mlx5e_channel_stats_alloc|mlx5e_update_netdev_queues|mlx5e_open_drop_rq" "" Driver "the number of an interface's queues could not be changed"
        "The kernel or the device refused another number of queues, or a statistic is lost." "" "look at the errno; compare with `ethtool -l INTERFACE`";
    "core/en_main.c" "" "" Driver "a network interface could not be made"
        "A step of making or starting the interface failed. RDMA may work without it on InfiniBand, not on RoCE." "" "look at the errno and for a command that failed before it";
    "core/en_ethtool.c" "" "self test|query|get_|failed to" Driver "a request of ethtool could not be done"
        "A query or change of port, module or time stamps failed in the device or in the driver." "" "look at the errno and for a command that failed before it";
    "core/en_ethtool.c" "" "" Administrator "a setting by ethtool was refused"
        "The asked number of channels, ring size, speed, flag or hash does not go with this device or with other settings." "the asked setting does not go with the others, or with the device" "change the setting that the message names first";
    "core/en_fs_ethtool.c" "" "" Administrator "a steering rule by ethtool was refused"
        "The administrator asked for a rule (`ethtool -N`) that the device cannot match, or has no room for." "" "simplify the rule; look at the errno";
    "core/en_dcbnl.c" "" "failed to set|failed to get" Firmware "a setting of priorities was refused by the device"
        "PFC, ETS or trust are set in the device's port." "" "look at the errno; firmware may own them (LLDP_NB_DCBX of mlxconfig)";
    "core/en_dcbnl.c" "" "" Administrator "a setting of priorities is out of range"
        "lldptool, dcb or mlnx_qos asked for bandwidths or priorities that are not valid." "the asked values are not valid" "give each priority a class, and bandwidths that add up to 100";
    "core/en/port_buffer.c" "" "" Administrator "the port's buffers do not fit"
        "The asked buffer sizes or cable length leave too little for other priorities." "the asked sizes are too large or too small" "look at `mlnx_qos -i INTERFACE`; make the buffers smaller, or give the right cable length";
    "core/en/htb.c" "" "" Administrator "a class of traffic could not be offloaded (HTB)"
        "tc qdisc htb with offload makes send queues and scheduling elements in the device." "" "look at the errno and the number of classes; look for a command that failed before it";
    "core/en/qos.c" "" "" Administrator "a rate limit is out of range, or not supported"
        "tc asked for a rate for queues." "" "ask for more than the least rate in the message; update the firmware";
    "core/qos*" "" "" Driver "a scheduling element could not be made"
        "Rates for queues and virtual functions are elements of the device." "" "look for the syndrome of CREATE_SCHEDULING_ELEMENT";
    "core/en/params.c" "" "" Administrator "an interface's settings do not go together"
        "MTU, ring length, AF_XDP frames and the kind of receive queue do not fit." "the values in the message do not fit" "use a smaller MTU, or another ring length (`ethtool -G`)";
    "core/en/xsk/*" "" "" Administrator "an AF_XDP socket's settings do not go with the interface"
        "Frame size and alignment decide how the device can use the socket's memory." "the frame size does not fit, or is slow" "use frames of a power of two, or of a page";

    // Receive side and steering of interfaces.
    "core/en/rss.c" "" "" Driver "the hashing of packets to queues could not be changed"
        "Receive-side scaling keeps its table (RQT) and its hashes (TIR) in the device. Firmware refused to make or change one." "" "look for the syndrome of CREATE_TIR, MODIFY_TIR or MODIFY_RQT";
    "core/en/rx_res.c" "" "" Driver "packets could not be sent to an interface's queue"
        "Each queue has a table (RQT) and a receive object (TIR) in the device. Firmware refused to make or change one." "" "look for the syndrome of CREATE_TIR, MODIFY_TIR or MODIFY_RQT";
    "core/en_common.c" "" "" Driver "the objects that all queues of an interface use could not be made"
        "The interface has a protection domain, a transport domain, a memory key and TIS objects of its own." "" "look for the syndrome of the command before it";
    "core/en_arfs.c" "" "" Driver "a rule of accelerated receive flow steering could not be made"
        "Packets go to their queue by hash instead. Traffic is not lost." "" "look at the errno; switch ntuple off (`ethtool -K`) if it comes often";
    "core/en_fs.c" "" "list size" Administrator "an interface has more addresses or VLANs than the device keeps"
        "Some addresses are dropped from the device's list." "too many addresses or VLANs" "use fewer, or promiscuous mode";
    "core/en_fs.c" "" "vlan doesn" Driver "a VLAN that is not there was changed"
        "The kernel named a VLAN that the interface does not have." "" "nothing: this is harmless";
    "core/en_fs.c" "" "" Driver "a steering rule of an interface could not be made"
        "Interfaces have rules for addresses, VLANs and kinds of packets. Packets of that kind are lost or go to one queue." "" "look at the errno and for the syndrome of SET_FLOW_TABLE_ENTRY";
    "core/en/fs_tt_redirect.c" "" "" Driver "a rule that sends a kind of packet elsewhere could not be made"
        "PTP, TLS or traps redirect a kind of packet." "" "look at the errno";
    "core/en/trap.c" "" "" Driver "a packet trap could not be changed"
        "devlink traps hand dropped packets to the kernel." "" "look at `devlink trap show`";
    "core/en_selftest.c" "" "" Administrator "the self test of an interface could not run"
        "ethtool -t asked for it." "" "bring the interface up, then try again";
    "core/en/hv_vhca_stats.c" "" "" Host "the hypervisor did not take an interface's statistics"
        "Hyper-V reads statistics of virtual functions." "" "look at the errno; traffic is not affected";
    "core/ipoib/*" "" "" Driver "an IPoIB interface could not be made or started"
        "IPoIB has a queue pair and steering of its own. No program owns them." "" "look at the errno and for a command that failed before it";

    // Encryption.
    "core/en_accel/macsec*" "" "supported|should be|must" Administrator "a MACsec setting cannot be offloaded"
        "The device does MACsec with some settings only." "the setting that the message names is not supported" "change it, or switch the offload off (`ip macsec offload`)";
    "core/en_accel/macsec*" "" "" Driver "a MACsec object could not be made"
        "MACsec offload keeps keys and rules in the device." "" "look at the errno and for a command that failed before it";
    "core/lib/macsec_fs.c" "" "" Driver "a steering rule of MACsec could not be made"
        "MACsec offload sends packets through tables of its own." "" "look at the errno and for the syndrome of SET_FLOW_TABLE_ENTRY";
    "core/en_accel/ipsec*" "" "" Driver "an IPsec object or rule could not be made"
        "IPsec offload keeps keys and rules in the device." "" "look at the errno; `ip xfrm state` shows what is offloaded";
    "core/lib/ipsec_fs_roce.c" "" "" Driver "a steering rule for RoCE under IPsec could not be made"
        "IPsec offload sends RoCE packets through tables of its own." "" "look at the errno and for the syndrome of SET_FLOW_TABLE_ENTRY";
    "core/en_accel/*" "" "not supported" Administrator "an offload that the device does not have was asked for"
        "TLS or another offload is not supported here." "the device does not support it" "switch it off (`ethtool -K INTERFACE`)";
    "core/en_accel/*" "" "" Driver "a rule or object for an offload could not be made"
        "TLS offload keeps rules for its connections in the device." "" "look at the errno; the kernel encrypts instead";

    // Everything else of interfaces.
    "core/en_rep.c" "" "" Driver "the interface of a virtual function's port (representor) could not be made or read"
        "In switchdev mode every function has an interface on the host." "" "look at the errno and for a command that failed before it";
    "core/en_tc.c" "" "supported|aren't|isn't|can't|cannot|not allowed|unsupported|max" Administrator "a rule of tc cannot be offloaded"
        "The device cannot do the rule's match or action. The kernel does it in software, unless skip_sw was given." "the match or action that the message names is not supported" "look at `tc -s filter show`: in_hw or not_in_hw; change the rule";
    "core/en_tc.c" "" "" Driver "a rule of tc could not be put into the device"
        "The driver or firmware failed to make tables or rules for it." "" "look at the errno and for the syndrome of SET_FLOW_TABLE_ENTRY";
    "core/en/tc/act/*" "" "" Administrator "an action of a tc rule cannot be offloaded"
        "The kernel does it in software, unless skip_sw was given." "the action that the message names is not supported here" "change the rule's actions";
    "core/en/tc*" "" "supported|must|can't|cannot|too big|too large|not registered|isn't|not allowed" Administrator "a tunnel or meter of a tc rule cannot be offloaded"
        "The kernel does it in software, unless skip_sw was given." "what the message names is not supported, or not set up" "change the rule, or set the tunnel's port up";
    "core/en/tc*" "" "" Driver "a table or rule for tc could not be made in the device"
        "Connection tracking, meters, sampling and tunnels have tables of their own." "" "look at the errno and for a command that failed before it";
    "core/en/rep/*" "" "" Driver "a function's port (representor) could not follow a bond, a bridge or a neighbour"
        "In switchdev mode the driver mirrors the kernel's network in the device." "" "look at the errno";
    "core/en*" "" "" Driver "the driver of network interfaces reports a problem"
        "mlx5e, the driver of network interfaces, reports it." "" "look at the errno and for a command that failed before it";
}
