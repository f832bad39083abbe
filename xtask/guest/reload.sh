#!/bin/sh
# Ten times the driver is unloaded and loaded, and the function unbound and bound.
# limit: 480
. /scenario/lib.sh

start_driver
function=$(function)
before=$(vectors)
traffic
for round in 1 2 3 4 5 6 7 8 9 10; do
    step "rmmod and modprobe, round $round"
    rmmod rdma_ucm ib_umad mlx5_ib mlx5_core
    [ ! -e /sys/class/infiniband/mlx5_0 ] || fail "the device is still there"
    [ "$(vectors)" = 0 ] || fail "$(vectors) interrupts are left"
    start_driver
done
for round in 1 2 3 4 5 6 7 8 9 10; do
    step "unbind and bind, round $round"
    echo "$function" >/sys/bus/pci/drivers/mlx5_core/unbind
    [ ! -e /sys/class/infiniband/mlx5_0 ] || fail "the device is still there"
    [ "$(vectors)" = 0 ] || fail "$(vectors) interrupts are left"
    echo "$function" >/sys/bus/pci/drivers/mlx5_core/bind
    start_driver
done
[ "$(vectors)" = "$before" ] || fail "$(vectors) interrupts, and $before at first"
traffic
