#!/bin/sh
# Ten failures of a verbs program and their causes, by mlx5 monitor under the kernel's driver.
# memory: 1024
# limit: 300
# programs: mlx5 faults.c
. /scenario/lib.sh

start_driver

# explains FAULT PATTERN...: the program ends with the fault, and the paragraphs have these words.
explains() {
    local fault=$1 pattern
    shift
    step "mlx5 monitor -- faults $fault"
    timeout 60 mlx5 monitor --metrics /tmp/metrics -- faults "$fault" >/tmp/out 2>/tmp/err ||
        { cat /tmp/out /tmp/err; fail "status $? of the program"; }
    cat /tmp/out /tmp/err
    for pattern in "$@" 'peer: queue pair 0x' 'last acknowledge: '; do
        grep -q -e "$pattern" /tmp/err || fail "nothing says \"$pattern\""
    done
    tail -n 1 /tmp/metrics | grep -q '^# EOF$' || fail "the metrics are cut"
}

explains rkey IBV_WC_REM_ACCESS_ERR 'a wrong rkey' 'none with this rkey succeeded'
explains beyond IBV_WC_REM_ACCESS_ERR 'an address or length outside'
explains region-right IBV_WC_REM_ACCESS_ERR 'lacks remote read, write or atomic rights'
explains queue-right IBV_WC_REM_INV_REQ_ERR "the responder's queue pair does not allow the operation"
explains lkey IBV_WC_LOC_PROT_ERR 'a wrong lkey' 'none with this lkey succeeded'
explains missing-receive IBV_WC_RNR_RETRY_EXC_ERR 'the peer posts receives too late or too few'
explains short-receive IBV_WC_REM_INV_REQ_ERR IBV_WC_LOC_LEN_ERR 'a receive is shorter than the message'
explains receive-lkey IBV_WC_REM_OP_ERR IBV_WC_LOC_PROT_ERR 'a receive of the responder names memory'
explains read-depth IBV_WC_REM_INV_REQ_ERR 'more READs and atomics in flight'
explains peer-gone IBV_WC_RETRY_EXC_ERR "the peer's queue pair is gone"

step "a program without a failure"
mlx5 monitor -- faults none >/tmp/out 2>/tmp/err || fail "status $?"
cat /tmp/out /tmp/err
[ ! -s /tmp/err ] || fail "a paragraph without a failure"
