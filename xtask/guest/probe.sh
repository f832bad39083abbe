#!/bin/sh
# The driver probes the function, and its port becomes active.
. /scenario/lib.sh

start_driver
ibv_devinfo -v
ibv_devinfo | grep -q PORT_ACTIVE || fail "ibv_devinfo does not show an active port"
ibstat
