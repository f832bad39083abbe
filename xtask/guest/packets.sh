#!/bin/sh
# Ethernet examples of this project against Linux's own sockets: a feed, orders by UDP, a session of TCP.
# link: roce
# guests: 2
# limit: 300
# programs: feed order_entry tcp_order venue.c
. /scenario/lib.sh

start_link
start_driver
device=$(port_device)
own=$PORT_NET.$GUEST
peer=$PORT_NET.$((3 - GUEST))
within 20 ping -q -c 1 -W 1 "$peer" >/dev/null || fail "no answer to ping"

says() {
    grep -q "$1" "$2"
}

# Takes the port down and up again, under the program that is there.
flap() {
    ip link set "$device" down
    within 20 port_is_down || fail "the port is $(port_state), not down"
    ip link set "$device" up
    within 20 port_is_active || fail "the port is $(port_state), not active"
    within 20 ping -q -c 1 -W 1 "$peer" >/dev/null || fail "no answer to ping"
}

port_is_down() {
    port_state | grep -q DOWN
}

# against WORDS PROGRAM VENUE: a program of guest 1 that prints the words when it is ready, and the venue of
# guest 2.
MEETING=100
against() {
    local ready=$1 program=$2 venue=$3
    step "$program"
    MEETING=$((MEETING + 2))
    if [ "$GUEST" = 1 ]; then
        timeout 120 $program >/tmp/program 2>&1 &
        local pid=$!
        within 60 says "$ready" /tmp/program || { cat /tmp/program; fail "the program is not ready"; }
        [ "${program#feed}" = "$program" ] || flap
        meet $((MEETING - 1))
        wait "$pid" || { cat /tmp/program; fail "status $? of the program"; }
        cat /tmp/program
    else
        meet $((MEETING - 1))
        timeout 120 $venue || fail "status $? of the venue"
    fi
    meet "$MEETING"
}

against "listening on" "feed 239.1.1.1 239.1.1.2 9000 $device" "venue feed $own 239.1.1.1 239.1.1.2 9000"
if [ "$GUEST" = 1 ]; then
    says "^5000 messages" /tmp/program || fail "messages are missing"
    says "missing in both: \[4000, 4001\]" /tmp/program || fail "not the gap of the venue"
    says "lost here: 0 " /tmp/program || fail "packets were lost"
fi

mac=$(ip neigh show "$peer" dev "$device" | sed -n 's/.* lladdr \([^ ]*\).*/\1/p')
against "listening on" "order_entry $device 239.2.2.2:9100 $peer:9200 $mac" "venue ticks $own 239.2.2.2 9100 9200"

step "tcp_order"
if [ "$GUEST" = 2 ]; then
    timeout 120 venue lines 9300 >/tmp/venue 2>&1 &
    venue=$!
    within 20 tcp_listens 9300 || fail "the venue does not listen"
    meet 201
    wait "$venue" || { cat /tmp/venue; fail "status $? of the venue"; }
    cat /tmp/venue
else
    meet 201
    timeout 120 tcp_order "$device" "$peer:9300" || fail "status $? of tcp_order"
fi
meet 202
