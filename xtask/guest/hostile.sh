#!/bin/sh
# A guest that stores and commands anything: the server survives, and the function works after a reset.
# limit: 300
# programs: hostile_guest
. /scenario/lib.sh

start_driver
function=$(function)
resource=/sys/bus/pci/devices/$function
step "without a driver"
echo "$function" >/sys/bus/pci/drivers/mlx5_core/unbind
for seed in 1 2 3; do
    timeout 60 hostile_guest attack "$resource" 10 "$seed" || fail "status $? of hostile_guest"
    echo 1 >"$resource/reset"
done
step "with its driver"
echo "$function" >/sys/bus/pci/drivers/mlx5_core/bind
start_driver
traffic
