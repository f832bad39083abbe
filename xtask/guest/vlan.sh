#!/bin/sh
# GIDs of VLANs: RC, UD and rdma_cm in a VLAN between two guests, and no way from one VLAN to another.
# link: roce
# guests: 2
# limit: 300
. /scenario/lib.sh

VLAN_NET=10.55.0
PORT=/sys/class/infiniband/mlx5_0/ports/1

# gid_in INTERFACE ADDRESS: the index of the GID of RoCE v2 that an interface has.
gid_in() {
    local file index
    for file in "$PORT"/gid_attrs/types/*; do
        index=$(basename "$file")
        if grep -q 'RoCE v2' "$file" 2>/dev/null && [ "$(cat "$PORT/gid_attrs/ndevs/$index")" = "$1" ] &&
            [ "$(cat "$PORT/gids/$index")" = "$2" ]; then
            echo "$index"
            return 0
        fi
    done
    return 1
}

has_no_gid() {
    ! gid_in vlan5 "$own"
}

# add_vlan NUMBER: makes a VLAN on top of the port, where both guests have the same addresses as in any other.
add_vlan() {
    ip link add link "$device" name "vlan$1" type vlan id "$1"
    ip address add "$VLAN_NET.$GUEST/24" dev "vlan$1"
    ip link set "vlan$1" up
    within 10 gid_in "vlan$1" "$own" >/dev/null || { cat "$PORT"/gids/*; fail "VLAN $1 has no GID"; }
}

start_link
start_driver
load 8021q
device=$(port_device)
own=$(printf '0000:0000:0000:0000:0000:ffff:0a37:%04x' "$GUEST")
peer=$VLAN_NET.$((3 - GUEST))
add_vlan 5
meet 101
step "IP in VLAN 5"
within 20 ping -q -c 1 -W 1 "$peer" || fail "no answer to ping in the VLAN"
gid=$(gid_in vlan5 "$own")

for program in ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong; do
    pair "tcp_listens 18515" "$program -n 50 -g $gid" "$program -n 50 -g $gid HOST"
done
pair cm_listens "rping -s -C 5 -v -a $VLAN_NET.1" "rping -c -C 5 -v -a $VLAN_NET.1"

step "the link-local address of the VLAN"
local_gid=$(sed 's/^0000.*//' "$PORT"/gids/1)
within 10 gid_in vlan5 "$local_gid" >/dev/null || fail "the VLAN has no link-local GID"

step "VLAN 6 against VLAN 5"
meet 102
if [ "$GUEST" = 2 ]; then
    ip link delete vlan5
    within 10 has_no_gid || fail "the GID of VLAN 5 is left"
    add_vlan 6
fi
meet 103
if [ "$GUEST" = 1 ]; then
    ibv_rc_pingpong -n 1 -g "$gid" >/tmp/server 2>&1 &
    server=$!
    within 20 tcp_listens 18515 || { cat /tmp/server; fail "the server does not listen"; }
    meet 104
    meet 105
    kill "$server" 2>/dev/null || true
else
    meet 104
    if timeout 60 ibv_rc_pingpong -n 1 -g "$(gid_in vlan6 "$own")" "$LINK_NET.1" >/tmp/client 2>&1; then
        fail "a message passes from VLAN 6 to VLAN 5"
    fi
    cat /tmp/client
    grep -q "Failed to modify QP to RTR" /tmp/client || fail "the kernel finds a neighbour in the other VLAN"
    meet 105
fi
