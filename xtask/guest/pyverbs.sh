#!/bin/sh
# rdma-core's own Python tests on the kernel's driver.
# limit: 1500
# tests: pyverbs
. /scenario/lib.sh

start_driver
cd /root/tests
gunzip ./*.gz
modules="device pd mr cq cq_events qp atomic qpex cqex addr relaxed_ordering fork parent_domain shared_pd
    mlx5_mkey odp mlx5_uar mlx5_dma_memcpy mlx5_raw_wqe tag_matching mlx5_dc mlx5_cq mlx5_timestamp mlx5_devx
    mlx5_huge_page mlx5_dm_ops mlx5_query_port mlx5_udp_sport mlx5_pp mlx5_var"
[ "$LINK" = infiniband ] || modules="$modules flow rss_traffic mlx5_flow rdmacm"
names=$(for module in $modules; do echo "tests.test_$module"; done)
status=0
timeout 1200 python3 run_tests.py --dev mlx5_0 -v $names >/tmp/report 2>&1 || status=$?
keep /tmp/report "pyverbs-$KERNEL-$LINK.txt"
grep -E '^(Ran|OK|FAILED|ERROR:|FAIL:)' /tmp/report
[ "$status" = 0 ] || fail "status $status of rdma-core's tests"
