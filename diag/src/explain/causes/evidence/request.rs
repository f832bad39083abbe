//! Requests that were wrong themselves, or that another failure took along.

use super::*;

statuses! {
    // Lengths.
    LocalLength _ ALL Nccl PATH_MTU
        "give both hosts' interfaces the same MTU (`ibv_devinfo` shows active_mtu)"
        "https://github.com/NVIDIA/nccl/pull/2135";
    LocalLength 0x68 SEND Linux INLINE_HEADERS
        "a program that writes frames itself has to put the layer 2 headers into the WQE on ConnectX-4 Lx"
        "https://lore.kernel.org/netdev/741209d2a42d46ebdb8249caaef7531f5ad8fa76.camel@kernel.org/";
    LocalLength _ RECEIVE Spdk SHORT_RECEIVE
        "a SPDK with that change: its initiator sent descriptors that exceed the target's in-capsule data"
        "https://github.com/spdk/spdk/commit/eb78b90ca8";
    LocalLength _ ALL Mooncake PATH_MTU
        "MC_MTU with the smaller MTU (1024 there) on both sides"
        "https://github.com/kvcache-ai/Mooncake/issues/3868";

    // Flushed.
    Flushed _ ALL Nccl EARLIER_FAILURE
        "look for a completion with another vendor err before it: 129 (a timeout) stood there"
        "https://github.com/NVIDIA/nccl/issues/1405";
    Flushed _ ALL Nccl EARLIER_FAILURE
        "switch PCIe ACS off, and update the platform's firmware (Dell), if no other error stands before it"
        "https://github.com/NVIDIA/nccl/issues/1353";
    Flushed _ ALL Spdk CLOSED
        "nothing is wrong if the host disconnects: SPDK moves the queue pair to the error state"
        "https://github.com/spdk/spdk/issues/298";
    Flushed _ ALL Spdk CLOSED
        "a SPDK with that change does not print these while it cleans up"
        "https://github.com/spdk/spdk/commit/db09de9866";
    Flushed _ ALL Spdk CLOSED
        "a SPDK with that change ignores completions of a queue pair that is disconnected"
        "https://github.com/spdk/spdk/commit/ca5ce67f6e";
    Flushed _ ALL Spdk CLOSED
        "a SPDK with that change does not print these when its initiator disconnects"
        "https://github.com/spdk/spdk/commit/abc45c4642";
    Flushed _ ALL Libfabric PEER_CLOSED
        "look for the peer's end of the connection: receives that were posted are flushed then"
        "https://github.com/ofiwg/libfabric/commit/fe16dd128";
    Flushed _ ALL _ PEER_CLOSED
        "see which peer was stopped: the requests to it come back so"
        "https://github.com/Derecho-Project/derecho/issues/141";
    Flushed _ ALL Nccl CQ_OVERRUN
        "NCCL_CTRAN_IB_MAX_NUM_CQE (torchcomms) no smaller than the requests outstanding"
        "https://github.com/meta-pytorch/torchcomms/commit/d5ae5eb3f";

    // The WQE.
    LocalQpOperation _ WRITE Ucx MALFORMED
        "an old HCA does not take WRITEs of 0 bytes without a valid key, with which UCX flushes"
        "https://github.com/openucx/ucx/issues/5318";
    LocalQpOperation 0xd6 RECEIVE Ucx MALFORMED
        "a UCX with the fix of pull request 11444: a receive WQE was malformed"
        "https://github.com/openucx/ucx/pull/11444";

    // The request at the peer.
    RemoteInvalidRequest _ ALL Mooncake PATH_MTU
        "MC_MTU with the smaller MTU (1024 there) on both sides"
        "https://github.com/kvcache-ai/Mooncake/issues/3868";
    RemoteInvalidRequest _ READ Spdk MANY_AT_RESPONDER
        "no more READs in flight than the responder takes: 8 there, though 16 were agreed on"
        "https://github.com/spdk/spdk/issues/2261";
    RemoteInvalidRequest 0x8a ALL _ PATH_MTU
        "a Charm++ with that change: its sides used different MTUs"
        "https://github.com/charmplusplus/charm/commit/c23209702";
}
