//! Requests that got no answer, or no receive.

use super::*;

statuses! {
    // No answer of the peer.
    RetriesExceeded _ ALL Nccl WRONG_GID
        "NCCL_IB_GID_INDEX of the RoCE v2 entry with an address (`show_gids`; often 3), then test with perftest and the same index"
        "https://github.com/NVIDIA/nccl/issues/426";
    RetriesExceeded _ ALL Nccl WRONG_GID
        "NCCL_IB_GID_INDEX=3: the default GID did not reach hosts behind another switch"
        "https://github.com/pytorch/pytorch/issues/81628";
    RetriesExceeded _ ALL Nccl SHORT_TIMEOUT
        "NCCL_IB_TIMEOUT (up to 22) and NCCL_IB_RETRY_CNT=7, if the NICs reach each other at all"
        "https://github.com/NVIDIA/nccl/issues/902";
    RetriesExceeded _ ALL Nccl BAD_LINK
        "a link that goes up and down (`Got async event : port error` in NCCL's log): check cables, `ibqueryerrors`"
        "https://github.com/NVIDIA/nccl/issues/905";
    RetriesExceeded _ ALL Nccl WRONG_PATH
        "NCCL_NET_DISABLE_INTRA=1 if the NICs of one host do not reach each other: the default lets them talk"
        "https://github.com/NVIDIA/nccl/issues/1405";
    RetriesExceeded _ ALL Nccl WRONG_PATH
        "see why the two addresses in the message do not reach each other; NCCL_IB_HCA limits the NICs"
        "https://github.com/NVIDIA/nccl/issues/1170";
    RetriesExceeded _ ALL Ucx WRONG_GID
        "UCX_IB_GID_INDEX of the RoCE v2 entry (3 there, 0 failed)"
        "https://github.com/openucx/ucx/issues/1878";
    RetriesExceeded _ READ Ucx WRONG_GID
        "UCX_IB_GID_INDEX of the RoCE v2 entry (often 3), and UCX_IB_TRAFFIC_CLASS of the lossless class (106 there)"
        "https://github.com/openucx/ucx/issues/2434";
    RetriesExceeded _ ALL Ucx BAD_LINK
        "look for PortRcvErrors on links between switches, not only at the hosts (`ibqueryerrors`)"
        "https://github.com/openucx/ucx/issues/9590";
    RetriesExceeded _ ALL Ucx LOSSY_FABRIC
        "configure lossless RoCE (PFC) on hosts and switches; UCX_IB_TRAFFIC_CLASS of that class"
        "https://github.com/openucx/ucx/issues/2346";
    RetriesExceeded _ ALL Ucx OLD_SOFTWARE
        "a UCX with the fix of pull request 5016"
        "https://github.com/openucx/ucx/issues/3305";
    RetriesExceeded _ WRITE Mooncake WRONG_PATH
        "device_name with the NICs to use, such as mlx5_0,mlx5_1, that reach the peer's"
        "https://github.com/kvcache-ai/Mooncake/issues/1055";
    RetriesExceeded _ WRITE Mooncake WRONG_PATH
        "MC_MS_AUTO_DISC=0: automatic discovery had chosen NICs without a path to the peer"
        "https://github.com/kvcache-ai/Mooncake/issues/1450";
    RetriesExceeded _ ALL Ucx PEER_GONE
        "let the peers wait for each other before one closes its endpoints: a program had ended first"
        "https://github.com/openucx/ucx/commit/fa3d54927c";
    RetriesExceeded _ SEND Ucx PEER_GONE
        "a UCX with a disconnect protocol: a peer closed before it had acknowledged the last message"
        "https://github.com/openucx/ucx/issues/844";
    RetriesExceeded _ ALL _ WRONG_GID
        "the index of a RoCE v2 entry: index 0 was a link-local address that is not routed"
        "https://github.com/uccl-project/uccl/commit/6a6c1845";
    RetriesExceeded _ ALL Nccl WRONG_PATH
        "NCCL_CTRAN_LOCAL_CTRL_BACKEND=socket (torchcomms), if two NICs of one host do not reach each other"
        "https://github.com/meta-pytorch/torchcomms/commit/ccf94433c";
    RetriesExceeded _ ALL Ucx BAD_LINK
        "the same rate for all ports of the job: some had another one"
        "https://github.com/openucx/ucx/issues/2684";
    RetriesExceeded _ ALL Spdk BAD_LINK
        "look at the port's link: `Async event: port error` stood before it"
        "https://github.com/spdk/spdk/issues/414";
    RetriesExceeded _ ALL Mooncake WRONG_PATH
        "a Mooncake with that change: for memory of another NUMA node it chose a NIC of another network"
        "https://github.com/kvcache-ai/Mooncake/commit/713edc524";
    RetriesExceeded _ ALL OpenMpi BAD_LINK
        "Open MPI's own text: something is wrong in the fabric; note the hosts, and look at their links and switches"
        "https://github.com/open-mpi/ompi/blob/v4.1.6/opal/mca/btl/openib/help-mpi-btl-openib.txt";

    // No receive.
    RnrRetriesExceeded _ SEND _ LATE_RECEIVES
        "post receives before the queue pair is moved to RTR"
        "https://github.com/meta-pytorch/torchcomms/pull/3345";
    RnrRetriesExceeded _ SEND _ LATE_RECEIVES
        "send again instead of dropping the request when the receiver has no buffer free"
        "https://github.com/openlake-project/openlake/pull/61";
    RnrRetriesExceeded _ SEND _ SMALL_RNR_RETRY
        "rnr_retry 7 for queue pairs whose peer may post late"
        "https://github.com/hellas-ai/thunderbolt-ibverbs/pull/71";
    RnrRetriesExceeded _ SEND _ LATE_RECEIVES
        "post receives again first, then tell the peer that there is room"
        "https://github.com/LINBIT/drbd/commit/08f55eab0";
    RnrRetriesExceeded _ SEND _ LATE_RECEIVES
        "count posted receives without a gap: the peer was told of one too many"
        "https://github.com/LINBIT/drbd/commit/f9525b53a";
    RnrRetriesExceeded _ SEND _ SMALL_RNR_RETRY
        "rnr_retry_count 7 in the parameters of rdma_connect: it was 0"
        "https://github.com/LINBIT/drbd/commit/4f8200c48";
    RnrRetriesExceeded _ SEND Spdk SMALL_RNR_RETRY
        "a SPDK whose initiator sets rnr_retry_count, so that it tries again while the target is not ready"
        "https://github.com/spdk/spdk/commit/438bae7966";
    RnrRetriesExceeded _ SEND Perftest SMALL_RNR_RETRY
        "a newer perftest: with -R, rnr_retry_count was 0"
        "https://github.com/linux-rdma/perftest/commit/8f0a073";
}
