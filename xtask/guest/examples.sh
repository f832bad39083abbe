#!/bin/sh
# Examples of this project on the kernel's driver.
# guests: 1 2
# limit: 240
# programs: rc_pingpong devx_rc devx_events events_epoll recovery
. /scenario/lib.sh

[ "$GUESTS" = 1 ] || start_link
start_driver
host=127.0.0.1
[ "$GUESTS" = 1 ] || host=$LINK_NET.1
for mode in send write; do
    pair "tcp_listens 4711" "rc_pingpong --listen $host:4711" "rc_pingpong --connect HOST:4711 --mode $mode --iters 200"
done
if [ "$GUEST" = "$GUESTS" ]; then
    for example in devx_rc devx_events events_epoll recovery; do
        step "$example"
        timeout 60 "$example" || fail "$example"
    done
fi
