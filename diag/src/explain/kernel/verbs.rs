//! Messages of mlx5_ib, the driver of verbs.

use super::families;

families! {
    // Objects that the kernel makes for itself.
    "ib/main.c" "mlx5_ib_dev_res_*|create_dev_resources|mlx5_ib_stage_dev_res*" "" Driver "the driver could not make its own verbs objects"
        "When the device is loaded, mlx5_ib makes a protection domain, a CQ and shared receive queues of its own." "" "look at the errno and at the command that failed before it in the kernel's log";
    "ib/umr.c" "mlx5r_umr_recover" "" Driver "the driver could not repair its queue pair for memory keys"
        "mlx5_ib changes memory keys by requests on a queue pair of its own (UMR). It failed, and could not be taken through RESET: registrations fail from now on." "" "look for the error CQE of that queue pair and for health lines before it";
    "ib/umr.c" "mlx5r_umr_post_send_wait|mlx5_ib_post_send_wait" "reg umr failed" Driver "a request for a memory key failed"
        "The kernel's queue pair for memory keys (UMR) got a completion with an error. The number is its status. The driver repairs the queue pair and repeats the request." "" "decode the error CQE that the kernel prints with it; update the firmware if it comes again";
    "ib/umr.c" "" "" Driver "a request for a memory key could not be made"
        "mlx5_ib changes memory keys by requests on a queue pair of its own (UMR). A registration of memory waits for it." "" "look at the errno, and for an earlier failure of this queue pair";
    "ib/mr.c" "mlx5_mkey_cache*|mlx5_mr_cache*|__cache_work_func|add_keys|alloc_cache_mr|create_mkey_warn|create_mkey_callback|cache_*|create_cache*" "" Driver "the driver could not fill its cache of memory keys"
        "mlx5_ib makes memory keys ahead, so that registrations are quick. Registrations go on more slowly, or fail if firmware refuses every key." "" "look for the syndrome of CREATE_MKEY in the kernel's log";
    "ib/mr.c" "mlx5_ib_check_mr_status|mlx5_alloc_integrity_descs|mlx5_ib_dereg_mr|__mlx5_ib_dereg_mr|__mlx5_ib_alloc_mr|mlx5_ib_alloc_*" "" Program "a region for signatures or fast registration was refused"
        "A kernel module (NVMe, iSER or another) asked for a region or for its signature's state." "" "look at the lines of that module around it";
    "ib/mr.c" "" "" Program "a memory key for a region could not be made"
        "The memory key of a registration could not be made or given back." "" "look for the syndrome of CREATE_MKEY or DESTROY_MKEY in the kernel's log";
    "ib/mem.c" "" "" Host "the test of write combining failed"
        "The driver tries whether the host writes BlueFlame registers in one piece." "" "look at the lines before it";
    "ib/gsi.c" "" "" Driver "the kernel's queue pair for management (GSI) failed"
        "The kernel makes GSI queue pairs for management datagrams and for connections by rdma_cm. No program owns them." "" "look at the errno and at the command that failed before it in the kernel's log";
    "ib/mad.c" "" "" Firmware "the firmware did not answer a management request"
        "A MAD to the port's own agent failed." "" "look at the errno: 121 means refused, 110 means no answer";
    "ib/cong.c" "" "" Driver "the debug files of congestion control could not be made"
        "The parameters of congestion control are not shown in debugfs. Traffic is not affected." "" "look whether debugfs is mounted";
    "ib/counters.c" "" "" Driver "a counter set of a port could not be made"
        "The driver asks the device for a set of queue counters for each port. hw_counters of the port stay empty." "" "look at the errno and for a command that failed before it";
    "ib/ib_virt.c" "" "" Administrator "the policy of a virtual function could not be read"
        "The administrator asked for the configuration of a virtual function's port." "" "look at the errno, and whether the function exists";
    "ib/data_direct.c" "" "dma mask|enable pci" Host "the data direct function could not be set up"
        "The PCI function for data direct memory could not be enabled." "" "look for PCI lines before it";
    "ib/data_direct.c" "" "" Device "the data direct function has no identity"
        "The vital product data of the PCI function could not be read, or lacks the number that links it to its RDMA device." "" "read it with `lspci -vvv`; update the firmware";

    // On-demand paging.
    "ib/odp.c" "mlx5r_odp_create_eq|mlx5_ib_odp_*|mlx5r_odp_*" "" Driver "the driver could not make its event queue for page faults"
        "Regions with on-demand paging do not work without it." "" "look at the errno and for a command that failed before it";
    "ib/odp.c" "mlx5_ib_page_fault_resume" "" Driver "a page fault could not be answered"
        "The device waits for the end of a page fault (on-demand paging), and the driver's answer was refused. The queue stands still." "" "look for the syndrome of PAGE_FAULT_RESUME in the kernel's log";
    "ib/odp.c" "mlx5_ib_mr_*_pfault_handler*|mlx5_ib_mr_wqe_pfault_handler" "" Program "a page fault named a WQE that could not be read"
        "A queue pair met a page fault (on-demand paging), and the driver could not read its WQE from the program's memory, or cannot handle a WQE of that kind." "" "look whether the program overwrote its ring or ended; the number is the queue pair";
    "ib/odp.c" "alloc_implicit_mr|mlx5_ib_alloc_implicit*|implicit*" "" Driver "an implicit region could not be made"
        "An implicit region with on-demand paging needs more memory keys." "" "look for the syndrome of CREATE_MKEY in the kernel's log";
    "ib/odp.c" "pagefault_*|populate_mtt*" "" Driver "a page fault could not be resolved"
        "The driver had the pages of a region with on-demand paging, and could not give them to the device." "" "look at the errno and for failures of UMR before it";
    "ib/odp.c" "" "" Firmware "a page fault of an unknown kind"
        "The device reported a page fault (on-demand paging) that this kernel does not know." "" "update the kernel: the firmware may be newer";

    // Queues.
    "ib/cq.c" "mlx5_ib_cq_event|mlx5_ib_cq_comp" "" Driver "an event of an unknown kind came for a completion queue"
        "The driver handles errors of completion queues only." "" "update the kernel: the firmware may be newer";
    "ib/cq.c" "get_sig_err_item|get_umr_comp" "" Driver "a completion of a signature or memory key has an unknown code"
        "A completion of the kernel's own queue has a status or signature syndrome that this kernel does not know." "" "update the kernel: the firmware may be newer";
    "ib/cq.c" "mlx5_poll_one" "sigerr" Program "a signature check found damaged data"
        "The device compared data with its protection information (T10-DIF), and they differ. `expected` and `actual` are the two values." "the data, or its protection information, was changed on its way" "look at the block's writer and at the lines of the storage driver; the key names the region";
    "ib/cq.c" "create_cq_user" "" Program "a program asked for completions of a kind that the device does not have"
        "The program asked for compressed or padded CQEs, and CQE size or device do not allow them." "the CQE's size, or the device, does not go with the asked compression or padding" "set MLX5_CQE_SIZE, or leave the attribute of mlx5dv_create_cq away";
    "ib/cq.c" "mlx5_ib_modify_cq" "" Program "the moderation of a completion queue could not be changed"
        "ibv_modify_cq, or a kernel module, asked for another moderation and firmware refused." "" "look for the syndrome of MODIFY_CQ in the kernel's log";
    "ib/cq.c" "mlx5_ib_resize_cq|copy_resize_cqes|mlx5_poll_one|resize_*" "" Program "a completion queue could not be resized"
        "A program or kernel module asked for another length of a completion queue (ibv_resize_cq)." "" "compare the length with max_cqe of `ibv_devinfo -v`";
    "ib/cq.c" "" "" Driver "a completion queue of verbs has a problem"
        "mlx5_ib reports it of a completion queue." "" "look for a command that failed before it";
    "ib/qp.c" "mlx5_ib_qp_event|mlx5_ib_handle_qp_event|mlx5_ib_wq_event" "" Driver "an event of an unknown kind came for a queue pair"
        "The device reported an event that this kernel does not know." "" "update the kernel: the firmware may be newer";
    "ib/qp.c" "set_user_buf_size|calc_sq_size|set_rq_size|create_user_rq|create_user_qp|_create_user_qp|sq_overhead*" "" Program "a program's queue pair has sizes that the device does not take"
        "Lengths, addresses or offsets that libmlx5 passed for a queue pair are beyond the device's limits." "the asked lengths are beyond the device's limits" "compare max_send_wr, max_recv_wr and inline data with `ibv_devinfo -v`; use one version of rdma-core";
    "ib/qp.c" "create_qp|mlx5_ib_create_qp" "" Program "a queue pair could not be made"
        "A program's ibv_create_qp, or a kernel module's request, was refused. The number is the type (IB_QPT_*): 2 RC, 3 UC, 4 UD, 8 raw packet, 9 XRC initiator, 10 XRC target." "" "compare the attributes with `ibv_devinfo -v`; look for the syndrome of CREATE_QP in the kernel's log";
    "ib/qp.c" "destroy_qp_common|mlx5_ib_destroy_dct|destroy_*" "" Firmware "a queue pair could not be destroyed"
        "Firmware refused to reset or destroy a queue pair. Its number and memory stay in use." "" "look for its syndrome, and for health lines or a reset of the device, in the kernel's log";
    "ib/qp.c" "mlx5_set_path" "" Program "a move of a queue pair named an entry beyond the GID table"
        "The address of the peer has an index (sgid_index) that the port does not have." "the GID index is beyond the table" "choose an index that `show_gids` lists";
    "ib/qp.c" "modify_raw_packet_qp_sq|__mlx5_ib_modify_qp|mlx5_ib_modify_*" "" Program "a move of a queue pair has an attribute that is not allowed"
        "The kernel refuses an MTU, a rate limit or a transition of ibv_modify_qp before it asks the firmware." "the attribute that the message names is not allowed in this move" "compare it with ibv_modify_qp(3) and with active_mtu of `ibv_devinfo`";
    "ib/qp.c" "create_rq|set_delay_drop" "" Administrator "delay drop could not be switched on"
        "The asked delay for packets without a receive is not supported, or firmware refused it." "" "look at the errno; the module parameter and the device's capability decide";
    "ib/qp.c" "" "" Driver "a queue pair of verbs has a problem"
        "mlx5_ib reports it of a queue pair." "" "look for a command that failed before it";
    "ib/srq.c" "mlx5_ib_srq_event" "" Driver "an event of an unknown kind came for a shared receive queue"
        "The device reported an event that this kernel does not know." "" "update the kernel: the firmware may be newer";
    "ib/srq.c" "create_srq_kernel" "" Host "a kernel module's shared receive queue got no memory"
        "The doorbell record of a shared receive queue of a kernel module could not be had." "" "look at the host's free memory";
    "ib/srq.c" "" "" Program "a shared receive queue could not be made"
        "ibv_create_srq of a program, or a kernel module's request, failed." "" "compare max_wr and max_sge with max_srq_wr and max_srq_sge of `ibv_devinfo -v`";
    "ib/wr.c" "set_sig_*|set_psv_wr|handle_psv|handle_reg_mr_integrity|mlx5_set_bsf|set_pi_umr_wr" "" Program "a kernel module's request for signatures is not valid"
        "A storage module (NVMe or iSER) posted a request with protection information that the device cannot execute." "" "look at the lines of that module; set its protection to off for a test";
    "ib/wr.c" "handle_qpt_rc" "" Program "a kernel module posted an atomic operation"
        "mlx5_ib does not post atomic operations for kernel modules." "the operation is not supported for kernel modules" "look at the lines of the module";
    "ib/wr.c" "" "" Program "a kernel module's request was not posted"
        "A kernel module (not a user's program, which posts without the kernel) posted a request that is not valid, that is too long, or that finds a full queue." "" "look at the lines of the module that posts (NFS, NVMe, iSER, SMC, IPoIB)";

    // Ports and contexts.
    "ib/fs.c" "" "" Program "a flow rule of a program is not allowed"
        "A program asked for a rule (ibv_create_flow) with a tag of a kind that does not take one." "the rule's kind takes no flow tag" "leave the tag away, or use another kind of rule";
    "ib/main.c" "uar_mmap|mlx5_ib_mmap*|alloc_uar*" "" Program "a program could not map its doorbell page"
        "libmlx5 asked for a page of the device's registers, by a number that the program does not own, or none is left." "" "use one version of rdma-core; look whether UAR pages are used up (PF_LOG_BAR_SIZE)";
    "ib/main.c" "allocate_uars|deallocate_uars" "" Driver "a doorbell page could not be given back"
        "When a program ended, firmware refused to take a UAR page back." "" "look for health lines or a reset of the device in the kernel's log";
    "ib/main.c" "mlx5_ib_mcg_attach|mlx5_ib_mcg_detach" "" Program "a queue pair could not join or leave a multicast group"
        "ibv_attach_mcast or ibv_detach_mcast of a program was refused." "" "look for the syndrome of ATTACH_TO_MCG in the kernel's log; compare with max_mcast_grp";
    "ib/main.c" "set_roce_addr|mlx5_ib_add_gid" "" Driver "an entry of the GID table has an unknown kind"
        "The kernel's RDMA core gave the driver an address of a kind that it does not know." "" "update the kernel";
    "ib/main.c" "mlx5_mtu_to_ib_mtu|translate_*" "" Firmware "the port reports an MTU or speed that is not known"
        "The driver shows another value for it." "" "update the kernel: the firmware may be newer";
    "ib/main.c" "set_port_caps_atomic" "" Program "a change of a port's capabilities is not allowed"
        "The subnet manager's agent or a module asked for capability bits that the port cannot change." "" "look at the agent that asks (OpenSM, ibacm)";
    "ib/main.c" "delay_drop*" "" Device "receive queues dropped packets, and delay drop could not be set again"
        "Packets waited for receives for longer than the time-out." "" "look at hw_counters/out_of_buffer: receivers are too slow";
    "ib/main.c" "mlx5_ib_handle_event|handle_*_event|handle_general_event|mlx5_ib_handle_sys*" "" Device "an event came for a port that does not exist"
        "The device reported an event of a port's number outside its ports." "" "look at the lines before it; update the firmware";
    "ib/main.c" "set_has_smi_cap|mlx5_ib_init_*|get_port_caps|__get_port_caps|mlx5_query_*" "" Firmware "the capabilities of a port could not be read"
        "mlx5_ib asks for them when it is loaded. The RDMA device is not made without them." "" "look for the syndrome of the command in the kernel's log";
    "ib/main.c" "mlx5_ib_unbind_slave_port|mlx5_ib_bind_slave_port|mlx5_ib_init_multiport*" "" Driver "the ports of a dual-port device could not be joined or parted"
        "Two functions serve one RDMA device. Firmware refused to change the affiliation." "" "look for the syndrome of MODIFY_NIC_VPORT_CONTEXT in the kernel's log";
    "ib/main.c" "mlx5_ib_stage_*" "" Driver "a step of loading the RDMA device failed"
        "mlx5_ib is loaded in steps, and one failed." "" "look at the errno and for a command that failed before it";
    "ib/main.c" "" "" Driver "the RDMA driver reports a problem of the device"
        "mlx5_ib reports it of the device or of a port." "" "look for a command that failed before it in the kernel's log";
    "ib/*" "" "" Driver "the RDMA driver reports a problem"
        "mlx5_ib, the kernel's driver of verbs, reports it." "" "look for a command that failed before it in the kernel's log";
}
