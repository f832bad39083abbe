#!/bin/sh
# A function-level reset during traffic: the driver recovers, and traffic flows again.
# limit: 240
. /scenario/lib.sh

start_driver
begin_traffic
step "reset"
function=$(function)
echo 1 >"/sys/bus/pci/devices/$function/reset"
kill -0 "$SERVER" "$CLIENT" || fail "the programs have ended by themselves"
step "recovery"
within 90 said "mlx5_core.*Fatal error 3 detected" || fail "the driver does not notice"
end_traffic
within 90 said "mlx5_core.*health recovery succeeded" || fail "the driver does not recover"
start_driver
traffic
