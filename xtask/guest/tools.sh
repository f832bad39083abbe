#!/bin/sh
# The command mlx5 on the kernel's driver: info, doctor, and dump of another process.
# memory: 1024
# limit: 180
# programs: mlx5
. /scenario/lib.sh

start_driver
step "mlx5 info"
mlx5 info
step "mlx5 doctor"
mlx5 doctor || fail "status $? of doctor"
step "mlx5 dump"
# A server that waits for its client has its queues already.
ibv_rc_pingpong >/tmp/server 2>&1 &
server=$!
within 20 tcp_listens 18515 || fail "ibv_rc_pingpong does not listen"
mlx5 dump --pid "$server" || fail "status $? of dump"
kill "$server"
