# A port under Linux's driver has the values of the model in a process: device, port, tables, function.
# limit: 240
# programs: libmlx5_model.so
. /scenario/lib.sh

DEVICE=/sys/class/infiniband/mlx5_0
PORT=$DEVICE/ports/1

# each FOLDER FILE...: the files of a folder, with their contents.
each() {
    local folder=$1 file
    shift
    for file in "$@"; do
        echo "$file: $(cat "$folder/$file" 2>/dev/null || echo none)"
    done
}

# The name of the port's network interface; none on InfiniBand.
interface() {
    ls "$DEVICE/device/net" 2>/dev/null || true
}

# Everything about the device and its port that does not name an address.
values() {
    each "$DEVICE" node_type fw_ver hw_rev hca_type board_id
    each "$PORT" state phys_state rate lid lid_mask_count sm_sl link_layer cap_mask
    ls "$PORT/counters" | sed 's/^/counter: /'
    ls "$PORT/hw_counters" | sed 's/^/hardware counter: /'
    echo "gids: $(ls "$PORT/gids" | wc -l)"
    echo "pkeys: $(cat "$PORT"/pkeys/* | sort | uniq -c | tr -s ' \n' ' ')"
    each "$DEVICE/device" vendor device subsystem_vendor subsystem_device class revision numa_node
    echo "driver: $(basename "$(readlink "$DEVICE/device/driver")")"
    local first last rest
    read -r first last rest <"$DEVICE/device/resource"
    echo "size of BAR 0: $((last - first + 1))"
    if [ "$LINK" = roce ]; then
        each "$DEVICE/device/net/$(interface)" type addr_len mtu dev_id dev_port carrier operstate
        # The default GID has the first two entries, the address the next.
        for index in 0 1 2 3; do
            echo "type of GID $index: $(cat "$PORT/gid_attrs/types/$index")"
        done
        test "$(cat "$PORT/gid_attrs/ndevs/3")" = "$(interface)" && echo "the GID has the interface"
    fi
    ibv_devinfo -v -d mlx5_0 | grep -vE 'GID\[|guid:|lid:|^hca_id' | sed 's/[[:space:]]\+/ /g'
    rdma dev show mlx5_0 | sed 's/_guid [^ ]*//g'
    rdma link show mlx5_0/1 | sed 's/netdev.*//; s/^link/rdma link/'
}

step "the model in a process"
export LD_PRELOAD=/bin/libmlx5_model.so MLX5_MODEL=always MLX5_MODEL_LINK="$LINK"
values >/tmp/model
unset LD_PRELOAD MLX5_MODEL MLX5_MODEL_LINK

step "Linux's driver"
start_driver
values >/tmp/linux
wc -l /tmp/model
diff -u /tmp/model /tmp/linux || fail "the values above differ"
