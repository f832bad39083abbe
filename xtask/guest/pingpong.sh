#!/bin/sh
# Traffic of ibverbs-utils, perftest and rping, polled and by events.
# guests: 1 2
# limit: 300
. /scenario/lib.sh

[ "$GUESTS" = 1 ] || start_link
start_driver
gid= index=
if [ "$LINK" = roce ]; then
    within 10 roce_gid >/dev/null || fail "the port has no GID of its IPv4 address"
    gid="-g $(roce_gid)" index="-x $(roce_gid)"
fi

for options in "rc -n 200 -c" "rc -n 200 -c -e" "uc -n 200" "ud -n 200" "ud -n 200 -e" "srq -n 200 -q 2"; do
    kind=${options%% *}
    program="ibv_${kind}_pingpong ${options#* } $gid"
    pair "tcp_listens 18515" "$program" "$program HOST"
done

for test in ib_send_lat ib_write_lat ib_read_lat ib_send_bw "ib_write_bw -c UC" "ib_send_lat -c UD" "ib_send_bw -e"; do
    program="$test -d mlx5_0 -n 100 -F $index"
    pair "tcp_listens 18515" "$program" "$program HOST"
done

# rdma_cm finds a port by an IP address, which an InfiniBand port has only with IPoIB. Debian's cloud
# kernels have no IPoIB.
if [ "$LINK" = roce ]; then
    pair cm_listens "rping -s -C 5 -v -a $PORT_NET.1" "rping -c -C 5 -v -a $PORT_NET.1"
fi
