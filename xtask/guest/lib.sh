# Functions for scenarios. GUEST is this guest's number, GUESTS how many there are, LINK the link.
set -eu

# Addresses on the link between two guests, and of the function's own Ethernet port.
LINK_NET=10.9.0
PORT_NET=10.10.0

fail() {
    echo "FAILED: $*"
    exit 1
}

step() {
    echo "== $*"
}

# within SECONDS COMMAND...: repeats the command until it succeeds.
within() {
    local left=$(($1 * 5))
    shift
    until "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return 1
        sleep 0.2
    done
}

load() {
    local module
    for module in "$@"; do
        modprobe "$module" || fail "modprobe $module"
    done
}

port_state() {
    cat /sys/class/infiniband/mlx5_0/ports/1/state 2>/dev/null || echo none
}

port_is_active() {
    port_state | grep -q ACTIVE
}

# Loads the driver, and waits until the port is active.
start_driver() {
    load mlx5_core mlx5_ib ib_uverbs ib_umad rdma_ucm
    if [ "$LINK" = roce ]; then
        within 10 port_device >/dev/null || fail "the function has no network device"
        ip addr replace "$PORT_NET.$GUEST/24" dev "$(port_device)"
        ip link set "$(port_device)" up
    fi
    within 30 port_is_active || fail "the port is $(port_state), not active"
}

# device_of DRIVER: the network device of a driver.
device_of() {
    local folder
    for folder in /sys/class/net/*; do
        if [ "$(basename "$(readlink "$folder/device/driver" || true)")" = "$1" ]; then
            basename "$folder"
            return 0
        fi
    done
    return 1
}

port_device() {
    device_of mlx5_core
}

# The index of the port's GID for RoCE v2 and its IPv4 address.
roce_gid() {
    local type index gid
    for type in /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/*; do
        index=$(basename "$type")
        gid=$(cat "/sys/class/infiniband/mlx5_0/ports/1/gids/$index")
        if grep -q 'RoCE v2' "$type" 2>/dev/null && [ "${gid#0000:0000:0000:0000:0000:ffff:}" != "$gid" ]; then
            echo "$index"
            return 0
        fi
    done
    return 1
}

# Gives the link between two guests its addresses, and waits for the other guest.
start_link() {
    load virtio_pci virtio_net
    within 10 device_of virtio_net >/dev/null || fail "there is no link to the other guest"
    ip addr add "$LINK_NET.$GUEST/24" dev "$(device_of virtio_net)"
    ip link set "$(device_of virtio_net)" up
    within 60 ping -q -c 1 -W 1 "$LINK_NET.$((3 - GUEST))" >/dev/null || fail "the other guest does not answer"
}

# meet NUMBER: both guests wait here for each other; each number once.
meet() {
    [ "$GUESTS" = 2 ] || return 0
    local port=$((7000 + $1))
    if [ "$GUEST" = 1 ]; then
        timeout 100 nc -l -p "$port" -e true || fail "guest 2 does not come to meeting $1"
    else
        within 100 nc -w 5 "$LINK_NET.1" "$port" </dev/null 2>/dev/null || fail "guest 1 does not come to meeting $1"
    fi
}

tcp_listens() {
    ss -Hltn "sport = :$1" | grep -q .
}

cm_listens() {
    rdma resource show cm_id 2>/dev/null | grep -q LISTEN
}

# pair READY SERVER CLIENT: a server and a client, in two guests or in one. READY is a command that
# succeeds once the server listens. In CLIENT, HOST stands for the server's address.
MEETING=0
pair() {
    local ready=$1 server=$2 client=$3 host=127.0.0.1
    step "$server"
    if [ "$GUESTS" = 2 ]; then
        host=$LINK_NET.1
        MEETING=$((MEETING + 2))
    fi
    if [ "$GUEST" = 1 ]; then
        timeout 60 sh -c "$server" >/tmp/server 2>&1 &
        local pid=$!
        within 20 $ready || { cat /tmp/server; fail "the server does not listen: $server"; }
        meet $((MEETING - 1))
    else
        meet $((MEETING - 1))
    fi
    if [ "$GUEST" = "$GUESTS" ]; then
        timeout 60 sh -c "$(echo "$client" | sed "s/HOST/$host/g")" || fail "status $? of the client: $client"
    fi
    if [ "$GUEST" = 1 ]; then
        wait "$pid" || { cat /tmp/server; fail "the server: $server"; }
    fi
    meet "$MEETING"
}

# The function's address on the bus.
function() {
    basename "$(readlink /sys/class/infiniband/mlx5_0/device)"
}

# The number of the driver's interrupts.
vectors() {
    grep -c mlx5 /proc/interrupts || true
}

# A short run of messages.
traffic() {
    local gid=
    if [ "$LINK" = roce ]; then
        within 10 roce_gid >/dev/null || fail "the port has no GID of its IPv4 address"
        gid="-g $(roce_gid)"
    fi
    pair "tcp_listens 18515" "ibv_rc_pingpong -n 50 $gid" "ibv_rc_pingpong -n 50 $gid HOST"
}

# Starts traffic that lasts until the processes SERVER and CLIENT are killed.
begin_traffic() {
    local gid=
    if [ "$LINK" = roce ]; then
        within 10 roce_gid >/dev/null || fail "the port has no GID of its IPv4 address"
        gid="-g $(roce_gid)"
    fi
    step "traffic"
    ibv_rc_pingpong -n 10000000 $gid >/tmp/server 2>&1 &
    SERVER=$!
    within 20 tcp_listens 18515 || fail "ibv_rc_pingpong does not listen"
    ibv_rc_pingpong -n 10000000 $gid 127.0.0.1 >/tmp/client 2>&1 &
    CLIENT=$!
    within 20 moves || fail "there is no traffic"
}

# Ends the traffic, which may have failed.
end_traffic() {
    kill "$SERVER" "$CLIENT" 2>/dev/null || true
    within 60 gone "$SERVER" || fail "a program cannot be killed"
    within 60 gone "$CLIENT" || fail "a program cannot be killed"
}

# said PATTERN: the kernel's log has a line like that.
said() {
    dmesg | grep -Eq "$1"
}

# gone PROCESS: a child has ended.
gone() {
    ! kill -0 "$1" 2>/dev/null
}

absent() {
    [ ! -e "$1" ]
}

# moves: the port has sent packets since the last call.
SENT=
moves() {
    local before=$SENT
    SENT=$(cat /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets)
    [ -n "$before" ] && [ "$SENT" -gt "$before" ]
}

# keep FILE NAME: the host keeps a text file of this guest, in the folder of the run.
keep() {
    sed "s/^/@keep $2 /" "$1"
}
