#!/bin/sh
# The function is removed from the bus under traffic and found again, three times.
# limit: 240
. /scenario/lib.sh

start_driver
for round in 1 2 3; do
    step "removed, round $round"
    begin_traffic
    path=/sys/bus/pci/devices/$(function)
    timeout 60 sh -c "echo 1 >$path/remove" || fail "status $? of remove"
    [ ! -e "$path" ] || fail "the function is still there"
    [ ! -e /sys/class/infiniband/mlx5_0 ] || fail "the device is still there"
    [ "$(vectors)" = 0 ] || fail "$(vectors) interrupts are left"
    end_traffic
    step "found again, round $round"
    echo 1 >/sys/bus/pci/rescan
    within 20 test -e "$path" || fail "the function does not appear"
    start_driver
    traffic
done
