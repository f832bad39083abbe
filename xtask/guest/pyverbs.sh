#!/bin/sh
# rdma-core's own Python tests on the kernel's driver.
# limit: 1500
# memory: 6144
# tests: pyverbs
. /scenario/lib.sh

start_driver
echo 16 >/proc/sys/vm/nr_hugepages
modules="device pd mr cq cq_events qp atomic qpex cqex addr relaxed_ordering fork parent_domain shared_pd
    mlx5_mkey odp mlx5_uar mlx5_dma_memcpy mlx5_raw_wqe mlx5_dc mlx5_cq mlx5_timestamp mlx5_devx
    mlx5_huge_page mlx5_dm_ops mlx5_query_port mlx5_udp_sport mlx5_pp mlx5_var"
case $LINK in
    # Tests of tag matching ask for the capability after they have used it.
    infiniband) modules="$modules tag_matching" ;;
    roce)
        modules="$modules flow rss_traffic mlx5_flow rdmacm"
        # Tests with raw packets send to addresses that are not the port's.
        ip link set "$(port_device)" promisc on
        ;;
esac
cd /root/tests
gunzip ./*.gz
status=0
timeout 1400 python3 /scenario/rdma_core_tests.py "$LINK" /scenario/pyverbs.skips \
    $(for module in $modules; do echo "tests.test_$module"; done) || status=$?
keep /tmp/report "pyverbs-$KERNEL-$LINK.txt"
[ "$status" = 0 ] || fail "status $status of rdma-core's tests"
