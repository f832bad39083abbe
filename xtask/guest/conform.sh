#!/bin/sh
# The conformance suite of this project on the kernel's driver: `mlx5 conform`.
# guests: 1 2
# memory: 1024
# limit: 900
# programs: mlx5
. /scenario/lib.sh

[ "$GUESTS" = 1 ] || start_link
start_driver
if [ "$GUESTS" = 1 ]; then
    # The case times.real compares with the PTP clock.
    [ "$LINK" != roce ] || ls -d /sys/class/infiniband/*/device/ptp/ptp* || fail "no PTP clock"
    status=0
    mlx5 conform --report /tmp/report.json || status=$?
    keep /tmp/report.json "guest-$KERNEL-$LINK.json"
    [ "$status" = 0 ] || fail "status $status of conform"
elif [ "$GUEST" = 1 ]; then
    mlx5 conform --listen --once &
    server=$!
    within 20 tcp_listens 18517 || fail "mlx5 conform does not listen"
    meet 101
    wait "$server"
else
    meet 101
    mlx5 conform "$LINK_NET.1"
fi
