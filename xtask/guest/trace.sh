#!/bin/sh
# What programs do with the device under the kernel's driver, by mlx5 trace and mlx5 lint.
# memory: 1024
# limit: 300
# programs: mlx5 rc_pingpong devx_rc
. /scenario/lib.sh

start_driver
gid=
if [ "$LINK" = roce ]; then
    within 10 roce_gid >/dev/null || fail "the port has no GID of its IPv4 address"
    gid="-g $(roce_gid)"
fi

# shows FILE COUNT PATTERN: so many lines of a trace match.
shows() {
    local count
    count=$(grep -c -E "$3" "$1" || true)
    [ "$count" = "$2" ] || { cat "$1"; fail "$1 has $count lines of \"$3\", not $2"; }
}

# One doorbell and one WQE for each message, a CQE for each send and receive, and no mistake.
shows_messages() {
    shows "$1" "$2" '  doorbell +UAR [0-9]+\+0x[89ab]00: QP 0x[0-9a-f]+ up to WQE'
    shows "$1" "$2" "  wqe +$3"
    shows "$1" "$2" "  cqe .*, completes WQE 0x[0-9a-f]+ \\($3"
    shows "$1" 0 '^ *[0-9.]+ !'
}

PINGPONG="ibv_rc_pingpong $gid"
pair "tcp_listens 18515" "mlx5 trace --record /tmp/server.trace -o /tmp/server.txt -- $PINGPONG -n 20" \
    "mlx5 trace --record /tmp/client.trace -o /tmp/client.txt -- $PINGPONG -n 20 HOST"
for side in server client; do
    cat "/tmp/$side.txt"
    shows_messages "/tmp/$side.txt" 20 SEND
    shows "/tmp/$side.txt" 20 '  cqe .* RESP_SEND .*, completes WQE 0x[0-9a-f]+ \(receive, 4096 bytes'
    for command in ALLOC_PD CREATE_MKEY CREATE_CQ CREATE_QP RST2INIT_QP INIT2RTR_QP RTR2RTS_QP \
        DESTROY_QP DESTROY_CQ DESTROY_MKEY DEALLOC_PD; do
        shows "/tmp/$side.txt" 1 "  command +$command "
    done
done

step "a recording of a device is shown, checked, and not replayed"
mlx5 trace --from /tmp/client.trace >/tmp/again.txt
cmp -s /tmp/again.txt /tmp/client.txt || shows_messages /tmp/again.txt 20 SEND
mlx5 lint /tmp/client.trace || fail "status $? of lint of the recording"
mlx5 replay /tmp/client.trace >/tmp/replay 2>&1 && fail "the recording was replayed"
grep -q 'observed on a device' /tmp/replay || { cat /tmp/replay; fail "replay does not say why it refuses"; }

pair "tcp_listens 18515" "mlx5 lint --json -- $PINGPONG -n 20" "mlx5 lint --json -- $PINGPONG -n 20 HOST >/tmp/lint"
cat /tmp/lint
grep -q '"wqes": 20,' /tmp/lint || fail "lint has not seen 20 WQEs"
grep -q '"defects": 0,' /tmp/lint || fail "lint finds defects in WQEs of libmlx5"

for mode in send write; do
    pair "tcp_listens 4711" "rc_pingpong --listen 127.0.0.1:4711" \
        "mlx5 trace -o /tmp/direct.txt -- rc_pingpong --connect HOST:4711 --mode $mode --iters 20"
    grep -v ' command ' /tmp/direct.txt | head -20
    shows /tmp/direct.txt 0 '^ *[0-9.]+ !'
    grep -q '  cqe .*, completes WQE' /tmp/direct.txt || fail "no CQE of a request of rc_pingpong"
done

step "mlx5 trace -- devx_rc"
timeout 60 mlx5 trace -o /tmp/devx.txt -- devx_rc || fail "status $? of devx_rc"
cat /tmp/devx.txt
for command in CREATE_UMEM CREATE_CQ CREATE_QP; do
    grep -q "  command  *$command " /tmp/devx.txt || fail "no $command of devx_rc"
done

step "cost"
pair "tcp_listens 18515" "$PINGPONG -n 300" "$PINGPONG -n 300 HOST | grep usec/iter"
pair "tcp_listens 18515" "$PINGPONG -n 300" "mlx5 trace -o /tmp/cost.txt -- $PINGPONG -n 300 HOST | grep usec/iter"
