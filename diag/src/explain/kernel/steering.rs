//! Messages about steering and the e-switch.

use super::families;

families! {
    "core/fs_core.c" "" "can't" Firmware "a steering rule or table could not be removed"
        "Firmware refused to delete or change it. It stays in the device." "" "look for its syndrome; a device in the error state or in a reset refuses";
    "core/fs_core.c" "" "" Driver "a steering table or rule could not be made or connected"
        "Interfaces, RDMA and the e-switch share the device's steering tables." "" "look for the syndrome of the flow table command before it";
    "core/fs_cmd.c" "" "" Driver "a steering rule asks for more than the device has"
        "The number of actions or encapsulations, or the kind of action, is beyond the device's limit." "a limit of the device that the message names" "use fewer actions in the rule; update the firmware";
    "core/fs_counters.c" "" "" Driver "counters of steering rules could not be read or made"
        "Statistics of tc rules stand still. The rules work." "" "look at the errno; the host may lack memory";
    "core/fs_ft_pool.c" "" "" Driver "no steering table of the asked size is left"
        "The device's tables are used up." "" "use fewer rules or smaller groups";
    "core/lib/fs_*" "" "" Driver "a steering table could not be made"
        "Chains of tc and the tables for kinds of packets are made of the device's tables." "" "look at the errno and for the syndrome of CREATE_FLOW_TABLE";
    "core/lib/geneve.c" "" "" Administrator "the device cannot match another GENEVE option"
        "It has one object for options." "" "use one option's class and type in all rules";
    "core/lib/port_tun.c" "" "" Driver "the port's tunnel settings could not be read or changed"
        "Tunnelled packets need them." "" "look at the errno";
    "core/steering/hws/*" "" "not supported|unsupported|exceed|invalid|cannot|limited|should be|must" Driver "hardware steering cannot do a rule or table of this kind"
        "The driver's hardware steering was asked for what the device or the code does not have." "what the message names is not supported" "look at the rule that was asked for; try software steering (`devlink dev param` flow_steering_mode)";
    "core/steering/hws/*" "" "" Driver "hardware steering could not make or change a rule or table"
        "In hardware steering the driver writes rules by requests on queues of its own. No program owns them." "" "look for the command or error CQE before it; the device's memory for rules may be used up";
    "core/steering/*" "" "not supported|unsupported|exceed|invalid|cannot|can't" Driver "software steering cannot do a rule or table of this kind"
        "The driver's software steering was asked for what the device or the code does not have." "what the message names is not supported" "look at the rule that was asked for; try firmware steering (`devlink dev param` flow_steering_mode)";
    "core/steering/*" "" "" Driver "software steering could not make or change a rule or table"
        "In software steering the driver writes rules by RDMA writes on a queue pair of its own. No program owns it." "" "look for the error CQE or the command before it; the device's memory for rules may be used up";
    "core/esw/qos.c" "" "" Administrator "a rate of a virtual function could not be set"
        "Rates of functions (`devlink port function rate`, `ip link … max_tx_rate`) are scheduling elements of the device." "" "look at the errno and for the syndrome of CREATE_SCHEDULING_ELEMENT";
    "core/esw/legacy.c" "" "" Driver "the e-switch could not be set up for virtual functions"
        "In legacy mode the driver forwards packets of virtual functions by tables of the device." "" "look at the errno and for a command that failed before it";
    "core/esw/acl/*" "" "" Driver "the filter of a virtual function's port could not be made"
        "VLAN, trust and spoof check of virtual functions are rules at their ports." "" "look at the errno and for the syndrome of SET_FLOW_TABLE_ENTRY";
    "core/esw/bridge*" "" "" Driver "a bridge could not be offloaded"
        "In switchdev mode the driver mirrors a kernel bridge in the device." "" "look at the errno; the kernel forwards in software";
    "core/esw/*" "" "" Driver "a table of the e-switch could not be made"
        "The e-switch forwards packets between functions by tables of the device." "" "look at the errno and for a command that failed before it";
    "core/eswitch_offloads*" "" "supported|not allowed|inline|must" Administrator "the e-switch cannot do what was asked"
        "devlink or tc asked for a mode or rule that the device does not have, or not in this state." "what the message names is not supported, or not in this state" "look at `devlink dev eswitch show`; update the firmware";
    "core/eswitch.c" "" "param|spoofchk" Administrator "a setting of a virtual function or of the e-switch was not taken"
        "devlink or ip asked for it." "" "compare with `ip -d link show` and `devlink dev param show`";
    "core/eswitch*" "" "" Driver "the e-switch could not be changed"
        "The e-switch forwards packets between functions by tables of the device." "" "look at the errno and for a command that failed before it";
}
