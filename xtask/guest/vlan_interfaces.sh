#!/bin/sh
# The model in a process, with its port on an interface of the guest: GIDs of VLANs follow their interfaces.
# link: roce
# device: none
# limit: 300
# programs: mlx5 libmlx5_model.so
. /scenario/lib.sh

SETTINGS="MLX5_MODEL=always MLX5_MODEL_LINK=roce MLX5_MODEL_NETWORK=machine:d0"
ON_MODEL="env $SETTINGS LD_PRELOAD=/bin/libmlx5_model.so"

# Functions of shells on the model, which are bash: lib.sh is for others. Such a shell reads files by itself: a process of its own would look at the
# interfaces anew.
cat >/tmp/gids <<'END'
PORT=/sys/class/infiniband/mlx5_0/ports/1

word() {
    WORD=
    read -r WORD <"$1" 2>/dev/null || true
}

# gid VERSION INTERFACE ADDRESS: sets INDEX to that of the entry.
gid() {
    for INDEX in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        word "$PORT/gids/$INDEX"
        [ "$WORD" = "0000:0000:0000:0000:0000:ffff:$3" ] || continue
        word "$PORT/gid_attrs/ndevs/$INDEX"
        [ "$WORD" = "$2" ] || continue
        word "$PORT/gid_attrs/types/$INDEX"
        [ "$WORD" = "$1" ] && return 0
    done
    return 1
}

no_gid() {
    ! gid "$@"
}
END

cat >/tmp/find <<'END'
. /tmp/gids
gid "$@" && echo "$INDEX"
END

# A process that holds the device open while VLANs come and go.
cat >/tmp/holder <<'END'
. /tmp/gids
fail() {
    echo "FAILED: $*"
    exit 1
}

# waits COMMAND...: repeats the command for ten seconds, until it succeeds.
waits() {
    for _ in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
        "$@" && return 0
        sleep 0.5
    done
    return 1
}

exec 3<>/dev/infiniband/uverbs0
for version in "IB/RoCE v1" "RoCE v2"; do
    gid "$version" d0 c000:0201 || fail "d0 has no entry of $version"
    gid "$version" d0.5 c000:0201 || fail "d0.5 has no entry of $version of the same address"
    gid "$version" d0.5 0a05:0001 || fail "d0.5 has no entry of $version of its second address"
done
ip address del 10.5.0.1/24 dev d0.5
waits no_gid "RoCE v2" d0.5 0a05:0001 || fail "the entry of a removed address is left"
gid "RoCE v2" d0.5 c000:0201 || fail "the other entry is gone"
ip link add link d0 name vlan6 type vlan id 6
ip address add 10.6.0.1/24 dev vlan6
waits gid "RoCE v2" vlan6 0a06:0001 || fail "a new VLAN has no entry"
ip link delete d0.5
waits no_gid "RoCE v2" d0.5 c000:0201 || fail "the entry of a deleted interface is left"
gid "RoCE v2" d0 c000:0201 || fail "the interface below has lost its entry"
ip link set vlan6 name d0.6
waits gid "RoCE v2" d0.6 0a06:0001 || fail "the entry has the old name of its interface"
END

load 8021q veth
ip link add d0 type veth peer name d1
ip address add 192.0.2.1/24 dev d0
ip link set d1 up
ip link set d0 up
ip link add link d0 name d0.5 type vlan id 5
ip link set d0.5 address 02:00:00:00:00:05
ip address add 192.0.2.1/24 dev d0.5
ip address add 10.5.0.1/24 dev d0.5
ip link set d0.5 up

step "traffic in VLAN 5, whose interface has an Ethernet address of its own"
index=$($ON_MODEL bash /tmp/find "RoCE v2" d0.5 0a05:0001) || fail "VLAN 5 has no GID of its IPv4 address"
for program in ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong; do
    program="$ON_MODEL $program -n 50 -g $index"
    pair "tcp_listens 18515" "$program" "$program HOST"
done

# The end of a listener's name is its port, 7174.
listens_on_model() {
    grep -q '@mlx5-model/.*1c06$' /proc/net/unix
}
ping="-C 5 -v -a 10.5.0.1 -p 7174"
pair listens_on_model "$ON_MODEL rping -s $ping" "$ON_MODEL rping -c $ping"

step "events of VLANs that come and go"
$ON_MODEL ibv_asyncwatch >/tmp/events 2>&1 &
watcher=$!
within 10 grep -q 'async event FD' /tmp/events || fail "ibv_asyncwatch does not watch"
$ON_MODEL bash /tmp/holder || fail "status $? of the holder"
# Two entries less, two more, and one event at least for an interface that is gone.
told_of_changes() {
    [ "$(grep -c IBV_EVENT_GID_CHANGE /tmp/events)" -ge 5 ]
}
within 10 told_of_changes || { cat /tmp/events; fail "events are missing"; }
kill "$watcher"

step "mlx5 doctor"
own=$($ON_MODEL bash /tmp/find "RoCE v2" d0 c000:0201) || fail "d0 has no GID"
of_vlan=$($ON_MODEL bash /tmp/find "RoCE v2" d0.6 0a06:0001) || fail "VLAN 6 has no GID"
env $SETTINGS mlx5 doctor --listen --once --gid-index "$of_vlan" 2>/tmp/listener >/dev/null &
within 10 grep -q listening /tmp/listener || { cat /tmp/listener; fail "doctor does not listen"; }
env $SETTINGS mlx5 doctor 127.0.0.1 --gid-index "$own" >/tmp/doctor || true
grep 'no VLAN here, VLAN 6 there' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not tell of VLAN 6"; }
