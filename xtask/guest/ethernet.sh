#!/bin/sh
# IP between two guests over the functions' Ethernet ports, also with MTU 9000 where the port takes it.
# link: roce
# guests: 2
# limit: 240
. /scenario/lib.sh

start_link
start_driver
device=$(port_device)
peer=$PORT_NET.$((3 - GUEST))
meet 101

largest=$(ip -d link show "$device" | sed -n 's/.* maxmtu \([0-9]*\).*/\1/p')
sizes=1500
if [ "$largest" -ge 9000 ]; then
    sizes="$sizes 9000"
else
    echo "the largest MTU is $largest: 9000 is left out"
fi
for mtu in $sizes; do
    step "MTU $mtu"
    ip link set "$device" mtu "$mtu"
    within 20 port_is_active || fail "the port is not active with MTU $mtu"
    meet $((mtu + 1))
    within 20 ping -q -c 1 -W 1 "$peer" || fail "no answer to ping"
    # The largest packet that is not fragmented: 28 bytes are headers.
    ping -q -c 20 -i 0.1 -M do -s $((mtu - 28)) "$peer" || fail "packets are lost"
    if [ "$GUEST" = 1 ]; then
        iperf3 -s -1 >/tmp/server 2>&1 &
        server=$!
        within 20 tcp_listens 5201 || fail "iperf3 does not listen"
        meet $((mtu + 2))
        wait "$server" || { cat /tmp/server; fail "iperf3 as a server"; }
    else
        meet $((mtu + 2))
        iperf3 -c "$peer" -t 3 -B "$PORT_NET.$GUEST" || fail "iperf3 as a client"
    fi
    meet $((mtu + 3))
done
ip -s link show "$device"
