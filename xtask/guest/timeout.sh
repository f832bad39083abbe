#!/bin/sh
# A command that the function does not see times out, and later ones are executed.
# limit: 300
# programs: hostile_guest
. /scenario/lib.sh

start_driver
resource=/sys/bus/pci/devices/$(function)
step "the address of the command queue is lost"
queue=$(hostile_guest queue "$resource")
hostile_guest queue "$resource" 0
ibv_devinfo -v >/tmp/devinfo 2>&1 &
program=$!
within 150 said "timeout. Will cause a leak of a command resource" || fail "no command times out"
step "the address is back"
hostile_guest queue "$resource" "$queue"
within 60 gone "$program" || fail "ibv_devinfo does not end"
ibv_devinfo | grep -q PORT_ACTIVE || fail "ibv_devinfo does not show an active port"
traffic
