//! Messages of mlx5_core about the device itself: its commands, firmware, events, memory and functions.

use super::families;

families! {
    // Commands.
    "core/cmd.c" "cmd_work_handler" "slot" Firmware "a command waited too long for a free slot"
        "All slots of the command interface are taken by commands that the firmware has not answered." "" "look for the first command time-out and for health lines before it in the kernel's log";
    "core/cmd.c" "wait_func" "semaphore" Firmware "a command waited too long for its turn"
        "Commands before it were not answered, so this one was not sent." "" "look for the first command time-out and for health lines before it in the kernel's log";
    "core/cmd.c" "wait_func" "out of queue" Firmware "a command was given up before it was sent"
        "It waited in the driver's queue until its time was over." "" "look for the first command time-out and for health lines before it in the kernel's log";
    "core/cmd.c" "wait_func*|cb_timeout_handler" "recovered" Host "a command's answer was found without its interrupt"
        "Firmware had answered, and the interrupt came late or not at all. The driver polled, and the command is done." "the interrupt of the command queue was lost or late" "look for soft lockups, for irqbalance and virtualisation, at /proc/interrupts";
    "core/cmd.c" "wait_func*|cb_timeout_handler" "" Firmware "a command was not answered"
        "The firmware did not answer in time. The driver cannot use the slot again." "" "look for health lines before it: the firmware hangs, or the device is gone from PCIe";
    "core/cmd.c" "mlx5_cmd_comp_handler" "" Firmware "an answer came for a command that was given up"
        "The firmware answered after the time-out." "the firmware or the host is slow" "look for the time-out before it, for soft lockups and for a busy host";
    "core/cmd.c" "mlx5_cmd_enable" "cmdif rev" Firmware "driver and firmware speak different revisions of the command interface"
        "The two numbers are the driver's and the firmware's revision. The device cannot be used." "the driver does not fit the firmware" "update the older one of both (`flint -d DEVICE query`, the kernel)";
    "core/cmd.c" "mlx5_cmd_enable" "" Firmware "the firmware's command queue is not as the driver needs it"
        "Size or place of the command queue, as firmware reports them, are beyond what the driver can use." "the firmware reports values that the driver cannot use" "power cycle; burn the firmware again; a passed-through device may be read wrongly (all ones)";
    "core/cmd.c" "mlx5_internal_err_ret_value" "" Driver "the driver has no answer for a command"
        "The device is in its error state, and the driver answers commands itself. It does not know this one." "" "look for the health lines that brought the device into the error state";
    "core/cmd.c" "mlx5_alloc_cmd_msg|mlx5_cmd_init|mlx5_cmd_invoke|cmd_work_handler|cmd_exec|create_*" "" Host "the driver had no memory for a command"
        "Memory or a work queue for a command could not be had in the kernel." "" "look at the errno and at the host's free memory";
    "core/cmd.c" "mlx5_cmd_out_err|mlx5_cmd_check*" "" Firmware "the firmware refused a command"
        "Status and syndrome say why." "" "decode the syndrome";
    "core/cmd.c" "" "" Driver "the command interface reports a problem"
        "The driver talks to the firmware by commands." "" "look for health lines before it in the kernel's log";

    // Start and stop.
    "core/main.c" "wait_fw_init" "aborting" Firmware "the firmware does not start"
        "It stayed in the named state for longer than the driver waits." "" "power off the host with its standby power; burn the firmware again; a DPU: wait until its own system is up";
    "core/main.c" "wait_fw_init" "being removed" Driver "the wait for the firmware ended because the device is being removed"
        "The driver is unloaded, or the function taken away, while firmware starts." "the device is being removed" "look who removes it: hotplug, a reset, or a change of virtual functions";
    "core/main.c" "wait_fw_init" "" Firmware "the firmware has not started yet"
        "The driver waits; the message has the time that is left." "" "if it ends in a time-out, power cycle and burn the firmware again";
    "core/main.c" "set_dma_caps|request_bar|mlx5_pci_init|mlx5_pci_enable_device" "" Host "the PCI function could not be set up"
        "The kernel could not enable the function, map its registers (BAR) or give it DMA addresses." "" "look for PCI and BAR lines before it; the BIOS may lack space (\"Above 4G decoding\"), or another driver (vfio-pci) has it";
    "core/main.c" "mlx5_pci_slot_reset|mlx5_pci_resume|mlx5_pci_err*" "" Device "the device could not be recovered after an error of the PCIe bus"
        "The kernel reset the slot, and the device did not come back." "" "look for AER lines before it; power cycle; reseat the card";
    "core/main.c" "mlx5_core_get_caps_mode|mlx5_query_hca_caps*" "" Firmware "the device's capabilities could not be read"
        "QUERY_HCA_CAP failed for the type in the message." "" "look for the syndrome of QUERY_HCA_CAP: an old firmware may lack the type";
    "core/main.c" "handle_hca_cap" "log_max_qp" Driver "the driver uses fewer queue pairs than its profile asks for"
        "The device has fewer than the module parameter prof_sel asks for. The driver takes the device's limit." "the device's limit is below the profile's" "nothing: this is harmless";
    "core/main.c" "set_hca_cap|handle_hca_cap*" "" Firmware "the device's capabilities could not be set"
        "Firmware refused SET_HCA_CAP of the named group." "" "look for the syndrome of SET_HCA_CAP; driver and firmware may be too far apart in age";
    "core/main.c" "mlx5_core_set_issi" "" Firmware "driver and firmware could not agree on the interface's version (ISSI)"
        "The driver needs version 1. Firmware that knows only 0 is very old." "" "update the firmware";
    "core/main.c" "to_fw_pkey_sz" "" Driver "the profile has a table size that is not allowed"
        "The driver's profile asks for a P_Key table of a size that does not exist." "" "leave the module parameter prof_sel at its default";
    "core/main.c" "mlx5_core_verify_params" "" Administrator "a module parameter is out of range"
        "The driver takes the default instead." "prof_sel of mlx5_core has a value that does not exist" "look at /etc/modprobe.d and the kernel's command line";
    "core/main.c" "" "failed to alloc irqs|initialize irq" Host "the driver got no interrupt vectors"
        "MSI-X vectors for the event queues could not be had." "" "look at the errno; a virtual function may have too few vectors, or the host's are used up (/proc/interrupts)";
    "core/main.c" "" "create eqs|initialize eq" Driver "the driver could not make its event queues"
        "Without event queues the device cannot be started." "" "look at the lines of mlx5_core just before: an interrupt or CREATE_EQ failed";
    "core/main.c" "mlx5_function_enable|mlx5_function_open" "boot pages|init pages" Host "the firmware did not get the pages that it asked for"
        "Firmware keeps its contexts in pages of the host. It asked for them, and the driver could not give them." "" "look for MANAGE_PAGES, IOMMU and memory lines before it";
    "core/main.c" "mlx5_function_close|mlx5_cmd_teardown*" "" Firmware "the firmware did not tear the device down"
        "TEARDOWN_HCA failed, so the driver leaves its pages with the device." "" "look for command time-outs before it; power cycle before the driver is loaded again";
    "core/main.c" "mlx5_function_enable|mlx5_function_open|mlx5_function_setup|mlx5_function_teardown" "" Firmware "a command of the device's start failed"
        "ENABLE_HCA, SET_ISSI, SET_HCA_CAP, INIT_HCA or a query after it failed." "" "look for the command with status and syndrome just before it; a virtual function needs the driver of its physical function";
    "core/main.c" "mlx5_load" "" Driver "a part of the device could not be started"
        "The message names the part: registers, tracer, dump, steering, functions. The driver gives the device up." "" "look at the errno and at the lines of mlx5_core just before it";
    "core/main.c" "mlx5_init_once" "" Driver "a table of the driver could not be made"
        "The message names the part. The device is not started." "" "look at the errno: 12 means that the host has no memory";
    "core/main.c" "mlx5_uninit_one|mlx5_unload_one*|mlx5_load_one*" "nop" Driver "the device was already started or stopped"
        "A load or unload found nothing to do." "the device was already in that state" "look for a reset or a failed start before it";
    "core/main.c" "" "" Driver "the driver could not start the device"
        "A step of the device's start failed; the errno, if there is one, says how." "" "look at the first line of mlx5_core with an error before it";
    "core/dev.c" "mlx5_eth_supported" "" Firmware "the device lacks what a network interface needs"
        "The named capability is missing, so no network interface is made." "a capability is missing, by firmware or configuration" "update the firmware; look at the function's profile (mlxconfig)";
    "core/dev.c" "" "" Driver "a part of the driver could not be loaded on the device"
        "A part (eth, rdma, vdpa) is an auxiliary device, and its driver failed." "" "look at the lines of that part just before it";
    "core/devlink.c" "" "" Driver "a trap of devlink is not known"
        "The driver was asked about a packet trap that it does not have." "" "look at `devlink trap show`; update the kernel";
    "core/debugfs.c" "" "" Driver "an object could not be shown in debugfs"
        "A file of debugfs was read, and the query of its object failed." "" "nothing: the object may have been destroyed meanwhile";

    // Firmware.
    "core/fw.c" "mlx5_cmd_fast_teardown_hca|mlx5_cmd_force_teardown_hca" "pci channel offline" Device "the device is gone from PCIe"
        "The driver waited for the end of a teardown, and the PCI channel is offline." "the PCI channel is offline" "look for AER and hotplug lines before it; reseat the card";
    "core/fw.c" "mlx5_cmd_fast_teardown_hca|mlx5_cmd_force_teardown_hca" "" Firmware "the firmware did not tear the device down quickly"
        "The driver stops the device in the ordinary way, or waits for it." "" "look for health lines before it; nothing else, if the driver unloads in the end";
    "core/fw.c" "" "" Firmware "the firmware's versions could not be read"
        "devlink asked for the running and the stored image, and the firmware did not tell." "" "look with `flint -d DEVICE query`; traffic is not affected";
    "core/fw_reset.c" "mlx5_check_hotplug_interrupt" "" Administrator "a firmware reset is not possible in this slot"
        "The slot's hotplug interrupt is on: it would see the reset as a removal." "hotplug is enabled on the slot" "reboot the host for the new firmware, or switch the slot's hotplug off";
    "core/fw_reset.c" "mlx5_is_reset_now_capable" "sfs should" Administrator "a firmware reset is refused while subfunctions exist"
        "A reset would take them away." "subfunctions exist on the device" "remove them (`devlink port del`), then reset again";
    "core/fw_reset.c" "mlx5_is_reset_now_capable|mlx5_check_dev_ids" "" Firmware "this device cannot take part in a firmware reset"
        "A step that the reset needs is not there, or a device behind the same slot is not known." "" "reboot the host for the new firmware";
    "core/fw_reset.c" "mlx5_sync_reset_request_event" "nack" Administrator "this host refused a firmware reset"
        "Another host of the device, or this one, asked for a reset that all must agree on." "reset by driver is not allowed here (devlink enable_remote_dev_reset, hotplug or subfunctions)" "look at `devlink dev param show` and at the line before it";
    "core/fw_reset.c" "mlx5_sync_reset_request_event" "" Administrator "a firmware reset was asked for"
        "Somebody asked for a reset of the device (`devlink dev reload action fw_activate`, mlxfwreset). The line tells what this host answers." "" "expect the device to be gone for some seconds";
    "core/fw_reset.c" "poll_sync_reset" "got device reset" Firmware "the device was reset by firmware"
        "Firmware has reset the device, as it was asked to." "a reset was asked for" "expect the driver to load the device again; look at its next lines";
    "core/fw_reset.c" "mlx5_pci_link_toggle|mlx5_sync_pci_reset|mlx5_fw_reset_complete_reload" "" Device "the device did not come back after a firmware reset"
        "The PCIe link was taken down for the reset, and device or firmware do not answer." "" "reboot the host; with standby power off, if it stays away";
    "core/fw_reset.c" "mlx5_sync_reset_abort_event" "" Administrator "a firmware reset was called off"
        "One of the hosts did not agree, or took the request back." "" "look at the logs of all hosts of the device";
    "core/fw_reset.c" "mlx5_sync_reset_timeout_work|mlx5_fw_reset_wait_reset_done|mlx5_fw_reset_verify*" "" Firmware "a firmware reset did not come to its end"
        "The request was agreed on, and the reset did not happen or did not finish in time." "" "ask for it again; else reboot the host";
    "core/fw_reset.c" "mlx5_sync_reset_unload*|mlx5_sync_reset_now*" "fail|timeout" Firmware "a step of a firmware reset failed"
        "The driver was about to hand the device over for a reset." "" "look at the errno; reboot the host for the new firmware";
    "core/fw_reset.c" "mlx5_fw_live_patch_event" "" Driver "the firmware's tracer was not started again after a live patch"
        "The patch itself is active." "" "load the driver anew if its traces are needed";
    "core/fw_reset.c" "" "" Firmware "a firmware reset is under way"
        "Somebody asked for a reset of the device's firmware, and the driver takes part in it." "a reset was asked for (devlink, mlxfwreset)" "wait for the driver's lines about the new start";

    // Health.
    "core/health.c" "poll_health" "miss count" Firmware "the device's health counter stands still"
        "Firmware did not count on for several polls: it hangs, or the device does not answer on PCIe." "" "look for a health report in the next lines, and for PCIe lines before it";
    "core/health.c" "poll_health" "" Firmware "the device reported a fatal error"
        "The driver starts recovery." "" "the health report in the next lines has the syndrome";
    "core/health.c" "lock_sem_sw_reset" "" Driver "another function resets the device"
        "The semaphore for a reset was not to be had." "" "look at the other function's lines";
    "core/health.c" "mlx5_error_sw_reset|mlx5_health_wait_pci_up|mlx5_health_try_recover" "pci channel offline|pci reads" Device "the device does not answer on PCIe"
        "Recovery waits for the PCI channel, and it is offline or reads all ones." "the device does not answer on PCIe" "look for AER and hotplug lines before it; reseat the card, power cycle";
    "core/health.c" "mlx5_error_sw_reset|reset_fw_if_needed|mlx5_handle_bad_state" "" Driver "the driver takes a failed device through a reset"
        "A fatal error was seen before. These lines are steps of the recovery, not causes." "" "look for the first health line before it: it has the error";
    "core/health.c" "mlx5_health_try_recover|mlx5_fw_fatal_reporter_err_work|mlx5_trigger_health_work|mlx5_health_wait_pci_up" "" Driver "the driver recovers the device, or gives it up"
        "A fatal error was seen before. These lines are steps of the recovery, not causes." "" "look for the first health line before it: it has the error";
    "core/health.c" "mlx5_fw_reporters_create" "" Driver "a health reporter of devlink could not be made"
        "Health events are not shown by `devlink health`. The device works." "" "look at the errno";
    "core/health.c" "" "" Firmware "the driver reports the device's health"
        "A line of the health poll or of recovery." "" "look for the first health line before it: it has the error";
    "core/diag/fw_tracer.c" "mlx5_fw_tracer_handle_traces" "lost" Firmware "traces of the firmware were lost"
        "Firmware wrote traces faster than the driver read them. Traffic is not affected." "traces came too fast" "nothing: only traces are missing";
    "core/diag/fw_tracer.c" "" "" Driver "the firmware's tracer does not run"
        "Only the traces of the firmware (tracing/events/mlx5) are missing. Traffic is not affected." "" "look at the errno; nothing else, if traces are not needed";
    "core/diag/rsc_dump.c" "" "" Driver "a resource dump could not be made"
        "The driver dumps objects of the device for reports. Traffic is not affected." "" "look at the errno and for a command that failed before it";
    "core/diag/crdump.c" "" "" Driver "a dump of the device's registers could not be made"
        "devlink's fw_fatal report lacks the dump. It is not the cause of a failure." "" "look for the health line that asked for the dump";
    "core/diag/*" "" "" Driver "a reporter of the device could not be made"
        "A diagnosis of devlink is missing. Traffic is not affected." "" "look at the errno";

    // Events and interrupts.
    "core/eq.c" "cq_err_event_notifier" "bogus" Driver "an error event came for a completion queue that is gone"
        "The queue was destroyed before its event was handled." "the queue was destroyed meanwhile" "look for an error of that queue before it";
    "core/eq.c" "cq_err_event_notifier" "" Driver "a completion queue failed"
        "The device could not write a CQE. All queue pairs of the queue fail." "" "the syndrome tells: 1 is an overrun, 2 an access violation";
    "core/eq.c" "mlx5_cmd_eq_recover" "" Host "events were found that no interrupt had announced"
        "The driver polled the event queue of commands and found events." "the interrupt of the command queue was lost" "look for irqbalance, virtualisation, and at /proc/interrupts";
    "core/eq.c" "create_comp_eq|mlx5_comp_eqn_get" "maximum" Host "all interrupt vectors for completions are taken"
        "No further completion vector can be made." "no vector is left" "ask for fewer channels, or give the function more vectors (`devlink port function`, sriov_vf_msix_count)";
    "core/eq.c" "set_rmap|mlx5_eq_table_create" "rmap" Host "the map from processors to interrupts could not be made"
        "Accelerated receive flow steering needs it." "" "look at the errno; the host may lack memory";
    "core/eq.c" "destroy_*|cleanup_*" "" Firmware "an event queue could not be destroyed"
        "Firmware refused DESTROY_EQ or did not answer." "" "look for command time-outs and health lines before it";
    "core/eq.c" "" "" Driver "an event queue could not be made"
        "The driver needs event queues for commands, for asynchronous events, for pages and for completions." "" "look at the line before: CREATE_EQ with its syndrome, an interrupt that could not be had, or no memory";
    "core/cq.c" "" "" Driver "a completion came for a queue without a handler"
        "A completion queue of the kernel was used before it was set up." "" "update the kernel";
    "core/pci_irq.c" "" "" Host "an interrupt vector could not be had"
        "The kernel gave no MSI-X vector for an event queue." "" "look at the errno; count vectors in /proc/interrupts; a virtual function has few";
    "core/irq_affinity.c" "" "" Host "no interrupt on a suitable processor was found"
        "The asked processors are offline, or no vector is left for them." "" "look at the processors that are online and at /proc/interrupts";
    "core/events.c" "temp_warn" "" Device "the device is too hot"
        "A sensor is above its threshold." "a sensor is above its threshold" "look at `sensors` or `mget_temp -d DEVICE`; raise the fan speed";
    "core/events.c" "port_module" "" Device "a module or cable has an error"
        "The message names module and error." "" "reseat or exchange the module; `mlxlink -d DEVICE -m` shows it";
    "core/events.c" "mlx5_pcie_event" "" Device "the PCIe slot gives too little power"
        "Ports may stay down." "the slot advertises less power than card and modules need" "use a slot of 75 W; look at auxiliary power and the BIOS";
    "core/events.c" "" "" Device "the device reported an event"
        "An event of port, module, temperature or power." "" "look at `devlink health` and `mlxlink -d DEVICE`";

    // Pages and functions.
    "core/pagealloc.c" "alloc_system_page|give_pages|req_pages_handler" "alloc|map" Host "the host had no page for the firmware"
        "Firmware keeps its contexts in pages of the host. A page could not be had or mapped for DMA." "" "look at free memory, at IOMMU lines, and at the errno";
    "core/pagealloc.c" "page_notify_fail|give_pages|pages_work_handler" "" Firmware "the firmware did not get pages, or did not take them"
        "Firmware asked the driver for pages (MANAGE_PAGES). func_id 0 is the physical function, others are virtual ones." "" "look for MANAGE_PAGES with its syndrome or time-out before it, and for memory lines";
    "core/pagealloc.c" "reclaim_pages|mlx5_reclaim*|mlx5_wait_for_pages" "" Firmware "the firmware does not give pages back"
        "When the driver stops, or virtual functions are taken away, firmware returns the host's pages. Some are still there." "" "look for command time-outs before it; a device in the error state gives none back";
    "core/pagealloc.c" "" "" Driver "the driver's count of pages is wrong"
        "Firmware and driver disagree on the pages of the host." "" "look for a reset of the device before it; update the kernel";
    "core/sriov.c" "" "reclaiming|pages" Firmware "a virtual function's pages did not come back"
        "Firmware returns the pages of virtual functions when these are taken away." "" "look whether a virtual machine still uses a function, and for command time-outs";
    "core/sriov.c" "mlx5_sriov_enable" "" Administrator "virtual functions could not be made"
        "The administrator wrote sriov_numvfs. The number in the message is the errno." "" "12 or 28: the BIOS has no space for their BARs; 22: SRIOV_EN and NUM_OF_VFS (mlxconfig)";
    "core/sriov.c" "" "" Administrator "a virtual function could not be set up"
        "A step of making or removing virtual functions failed for the function in the message." "" "look for the command with its syndrome before it; look whether the function is in use";
    "core/ecpf.c" "" "" Driver "a DPU could not manage its host's function"
        "The embedded processor manages the pages and the start of the host's physical function." "" "look at the errno; look whether the host is up and its driver unloaded in order";
    "core/sf/*" "" "" Driver "a subfunction could not be made or removed"
        "A subfunction is a device of its own (`devlink port add`)." "" "look at the errno and at the subfunction's own lines; compare with PF_TOTAL_SF (mlxconfig)";

    // Memory, queues and registers of the driver.
    "core/uar.c" "" "free" Firmware "a page of the device's registers could not be given back"
        "DEALLOC_UAR failed." "" "look for health lines or a reset before it";
    "core/uar.c" "" "" Driver "a page of the device's registers could not be had"
        "The driver needs a UAR page for its doorbells. Firmware gave none." "" "look for ALLOC_UAR with its syndrome or time-out; UAR pages may be used up (PF_LOG_BAR_SIZE)";
    "core/wc.c" "" "" Driver "the test of write combining failed"
        "The driver tries at its start, on queues of its own, whether the host writes BlueFlame registers in one piece. Without it doorbells are slower." "" "look at the errno and for a command that failed before it";
    "core/alloc.c" "" "" Host "memory for a queue has an alignment that the device does not take"
        "The DMA address of a buffer is not aligned as the driver asked." "" "look at the IOMMU's settings; update the kernel";
    "core/wq.c" "" "" Host "the memory of a queue of the driver could not be had"
        "Doorbell record or ring of a queue of the kernel's driver could not be allocated." "" "look at free memory: contiguous pages may be missing";
    "core/mlx5_core.h" "" "" Driver "a command's length is out of range"
        "The driver was asked for a command longer than it can be." "" "update the kernel";
    "core/port.c" "" "" Device "a module's memory could not be read"
        "A program asked for the module's EEPROM (ethtool -m)." "" "look at the status; reseat the module; another kind of module has other pages";
    "core/rdma.c" "" "" Driver "RoCE could not be switched on for the driver's own queue pairs"
        "mlx5_core uses RoCE itself, for software steering and FPGA." "" "look at the errno; RoCE may be off (`devlink dev param`, ROCE_CONTROL of mlxconfig)";
    "core/rl.c" "" "are not configured" Driver "a rate limit that is not there was taken away"
        "The driver's table of rates has no such entry." "" "nothing: this is harmless";
    "core/rl.c" "" "" Administrator "a rate limit could not be set"
        "A rate for a send queue (tx_maxrate, or a program's rate limit) is out of range, or the table is full." "" "compare with packet_pacing_caps of `ibv_devinfo -v`; use fewer different rates";
    "core/lib/aso.c" "" "" Driver "the driver's queue for flow objects (ASO) failed"
        "The driver changes meters, connection tracking, IPsec and MACsec objects by requests on a queue of its own." "" "look for the error CQE: its syndrome and vendor code follow";
    "core/lib/clock.c" "perout*" "" Administrator "a pulse output is out of range"
        "The administrator asked for a period or duration that the device does not have." "the asked value is out of range" "compare it with the limits in the message";
    "core/lib/clock.c" "" "" Driver "the device's clock is not fully usable"
        "Hardware time stamps or the PTP clock are missing or less exact." "" "look at `ethtool -T INTERFACE`; update the firmware";
    "core/lib/crypto.c" "" "" Driver "a key for encryption in the device could not be made"
        "TLS, IPsec or MACsec offload need keys in the device." "" "look at the errno and for the syndrome of SYNC_CRYPTO or CREATE_ENCRYPTION_KEY";
    "core/lib/hv.c" "" "" Host "the hypervisor did not take or give its configuration"
        "Hyper-V exchanges blocks with the driver of a virtual function." "" "look at the errno; update the host";
    "core/lib/pci_vsc.c" "" "" Device "the device's register space could not be reached by PCI configuration"
        "Dumps and resets use the vendor's PCI capability." "" "look whether another tool (mst, flint) holds it";
    "core/lib/gid.c" "" "" Driver "the driver's own GID entries are used up"
        "Software steering and FPGA queue pairs take GIDs of the driver." "" "look at `show_gids`; fewer addresses leave more";
    "core/lib/sd.c" "" "" Driver "two functions could not be joined to one interface (socket direct)"
        "Both PCI functions of a socket-direct card serve one network interface." "" "look at the errno; both functions need the same firmware and configuration";
    "core/lib/*" "" "" Driver "a part that others of the driver use failed"
        "The message names it." "" "look at the errno and for a command that failed before it";
    "core/fpga/conn.c" "" "" Driver "the driver's queue pair to the FPGA failed"
        "mlx5_core talks to the FPGA of an Innova card by a queue pair of its own. No program owns it." "" "look at the errno or status, and whether the FPGA's image is loaded";
    "core/fpga/*" "" "" Device "the FPGA of the card does not work"
        "The FPGA of an Innova card reported an error, or did not answer." "" "look at the status; load its image again";
    "core/lag/*" "" "unbound" Administrator "ports could not be bonded while virtual functions are bound"
        "The message asks for it." "a virtual function is bound to a driver" "unbind the virtual functions, then make the bond";
    "core/lag/*" "" "" Driver "the ports could not be joined, or parted, in the device (LAG)"
        "The kernel bonded the interfaces, and the driver mirrors this in the device. Without it, RDMA uses one port only." "" "look at the errno and the bond's mode (`ip -d link`): active-backup, balance-xor and 802.3ad go";
}
