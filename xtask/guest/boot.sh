#!/bin/sh
# The kernel boots and loads the driver without a function: shows that QEMU and packages are whole.
# device: none
. /scenario/lib.sh

uname -a
load virtio_pci virtio_net mlx5_core mlx5_ib ib_uverbs ib_umad rdma_ucm
lsmod
ibv_devices
[ ! -e /sys/class/infiniband/mlx5_0 ] || fail "there is a device"
