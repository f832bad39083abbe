#!/bin/sh
# The server is killed during traffic: the guest sees a dead device, and goes on.
# limit: 240
. /scenario/lib.sh

start_driver
begin_traffic
step "the server is killed"
# QEMU 11.1 ends itself if the server dies while one of its requests is on the way.
kill -STOP "$SERVER" "$CLIENT"
echo "@host kill-server"
within 90 said "mlx5_core.*Fatal error 1 detected" || fail "the kernel notices nothing"
kill -CONT "$SERVER" "$CLIENT" || fail "the programs have ended by themselves"
step "programs end"
end_traffic
step "the driver ends"
function=$(function)
timeout 120 sh -c "echo $function >/sys/bus/pci/drivers/mlx5_core/unbind" || fail "status $? of unbind"
[ ! -e /sys/class/infiniband/mlx5_0 ] || fail "the device is still there"
[ "$(vectors)" = 0 ] || fail "$(vectors) interrupts are left"
rmmod rdma_ucm ib_umad mlx5_ib mlx5_core
