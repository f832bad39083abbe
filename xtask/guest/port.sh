#!/bin/sh
# A port under Linux's driver has the values of the model in a process: device, port, tables, function, queries.
# limit: 240
# programs: libmlx5_model.so
. /scenario/lib.sh

# A script for bash, which prints everything about the device and its port that names no address. It reads files
# by itself, since the guest's other tools are linked statically.
cat >/tmp/values <<'END'
DEVICE=/sys/class/infiniband/mlx5_0
PORT=$DEVICE/ports/1

# word FILE: sets WORD to its first line.
word() {
    WORD=none
    read -r WORD 2>/dev/null <"$1" || true
}

# each FOLDER FILE...: the files of a folder, with their contents.
each() {
    local folder=$1 file
    shift
    for file in "$@"; do
        word "$folder/$file"
        echo "$file: $WORD"
    done
}

# names WHAT FOLDER: the names in a folder.
names() {
    local file
    for file in "$2"/*; do
        echo "$1: ${file##*/}"
    done
}

# count FOLDER: how many files it has.
count() {
    set -- "$1"/*
    echo $#
}

each "$DEVICE" node_type fw_ver hw_rev hca_type board_id
each "$PORT" state phys_state rate lid lid_mask_count sm_sl link_layer cap_mask
names counter "$PORT/counters"
names "hardware counter" "$PORT/hw_counters"
echo "GIDs: $(count "$PORT/gids")"
echo "P_Keys: $(count "$PORT/pkeys")"
each "$PORT/pkeys" 0 1 2
each "$DEVICE/device" vendor device subsystem_vendor subsystem_device class revision numa_node
[ "$DEVICE/device/driver" -ef /sys/bus/pci/drivers/mlx5_core ] && echo "driver: mlx5_core"
read -r first last _ <"$DEVICE/device/resource"
echo "size of BAR 0: $((last - first + 1))"
if [ "$LINK" = roce ]; then
    for interface in "$DEVICE"/device/net/*; do
        each "$interface" type addr_len mtu dev_id dev_port carrier operstate
        for index in 0 1 2 3; do
            word "$PORT/gid_attrs/types/$index"
            type=$WORD
            word "$PORT/gid_attrs/ndevs/$index"
            [ "$WORD" = "${interface##*/}" ] && echo "GID $index: $type, of the interface"
        done
    done
fi
ibv_devinfo -v -d mlx5_0
rdma link show mlx5_0/1
END

# Without addresses, and the name of the interface.
without_addresses() {
    grep -vE 'GID\[|guid:|_lid:|^hca_id' | sed 's/[[:space:]]\{1,\}/ /g; s/ netdev [^ ]*//'
}

# What differs, and why:
# - a PCI function has no on-demand paging,
# - the process shows 16 entries of the GID table, and the function has 255,
# - this kernel shows a quarter of the longest queue (log_max_qp_sz is the same),
# - the process shows counters of adaptive retransmission, which the function does not claim, and none of congestion,
# - on InfiniBand each has flags and a subnet manager of its own.
unexplained() {
    grep -vE 'ODP_SUPPORT|_odp_caps|^ (NO )?SUPPORT(_SEND|_RECV|_WRITE|_READ|_ATOMIC|_SRQ)?$' |
        grep -vE '^GIDs: |gid_tbl_len|max_qp_wr|counter: (np|rp|roce_adp|roce_slow)_' |
        if [ "$LINK" = roce ]; then cat; else grep -vE 'cap_mask|port_cap_flags' | sed 's/subnet_prefix.*lmc/lmc/'; fi
}

step "the model in a process"
env LD_PRELOAD=/bin/libmlx5_model.so MLX5_MODEL=always MLX5_MODEL_LINK="$LINK" \
    bash /tmp/values >/tmp/values.model || fail "status $?"
without_addresses </tmp/values.model | unexplained >/tmp/model

step "Linux's driver"
start_driver
bash /tmp/values >/tmp/values.linux || fail "status $?"
without_addresses </tmp/values.linux | unexplained >/tmp/linux
[ "$(wc -l </tmp/model)" -gt 100 ] || fail "few values: $(cat /tmp/model)"
wc -l </tmp/model
diff /tmp/model /tmp/linux || fail "the values above differ"
