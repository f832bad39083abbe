//! Causes of failed requests, with the requests that they can concern.

use super::super::Cause;
use super::Operations;

macro_rules! reasons {
    ($($name:ident $operations:ident $($fabric:ident)? $cause:literal => $cure:literal;)*) => {
        $(pub(crate) const $name: Cause = Cause {
            cause: $cause,
            cure: $cure,
            operations: $operations,
            fabric: $crate::explain::causes::reason::reasons!(@fabric $($fabric)?),
        };)*
    };
    (@fabric) => { None };
    (@fabric ROCE) => { Some(super::Fabric::Roce) };
}
pub(super) use reasons;

const ANY: Operations = Operations::ALL;
const SENDS: Operations = Operations::SEND;
const RECEIVES: Operations = Operations::RECEIVE;
const REQUESTS: Operations = RECEIVES.complement();
const ATOMICS: Operations = Operations::ATOMIC;
const KEYS: Operations = Operations::KEY;
const FETCHES: Operations = Operations::READ.union(ATOMICS);
const MEMORY: Operations = Operations::WRITE.union(FETCHES);
const FILLS: Operations = RECEIVES.union(FETCHES);

reasons! {
    SHORT_RECEIVE RECEIVES "a receive is shorter than the message that took it"
        => "post receives as long as the longest message, or send no more than was agreed";
    LONG_REQUEST REQUESTS "a request is longer than the port's largest message (2^31 bytes, or the path MTU on UD)"
        => "split the message";
    PATH_MTU ANY "the two ends use different path MTUs"
        => "give both interfaces and the switch one MTU; compare active_mtu (`ibv_devinfo`) of both sides";
    INLINE_HEADERS SENDS "an Ethernet WQE has fewer bytes of headers in it than the HCA wants in the WQE itself"
        => "ask the port for its minimal inline mode and put those headers into the WQE";

    MALFORMED ANY "the WQE is malformed: a wrong size (DS), index or opcode, or segments in the wrong order"
        => "decode the WQE and compare it with what the operation needs";
    NO_OPERATION REQUESTS "the transport does not have the operation, or the queue pair was not made for it"
        => "compare the operation with the queue pair's type and creation attributes";
    TOO_MANY_READS FETCHES "more READs and atomics than max_rd_atomic allows, or max_rd_atomic is 0"
        => "raise max_rd_atomic when the queue pair is moved to RTS";
    OVERWRITTEN ANY "the WQE was overwritten before the HCA fetched it"
        => "post no more than the ring holds: count what is complete, not what was posted";

    WRONG_LKEY ANY "a wrong lkey, or an address or length outside the memory region"
        => "compare each data segment of the WQE with address, length and lkey of its region";
    DEREGISTERED ANY "the region was deregistered, or its memory freed, before the request was complete"
        => "keep a region until the completion that retires its request";
    OTHER_DOMAIN ANY "the region belongs to another protection domain than the queue pair"
        => "register the memory with the queue pair's domain";
    NO_LOCAL_WRITE FILLS "a receive, READ or atomic writes to a region without local write access"
        => "register it with IBV_ACCESS_LOCAL_WRITE";
    DEVICE_MEMORY ANY "the memory is a GPU's or another device's, and the HCA cannot reach it"
        => "load nvidia-peermem or use a dma-buf; switch PCIe ACS off, or put HCA and device \
            behind one switch";
    IOMMU ANY "the IOMMU stopped the HCA (IO_PAGE_FAULT or DMAR lines in the kernel's log)"
        => "look for them at the same time; then it is a driver that unmapped too early";

    EARLIER_FAILURE ANY "an earlier request on the same queue pair failed"
        => "look for the first completion with another status: that one has the cause";
    CQ_OVERRUN ANY "the CQ is smaller than the completions that it has to hold"
        => "make it as large as the requests outstanding on its queues; look for a CQ error event";
    CLOSED ANY "the program or a library moved the queue pair to the error state to close the connection"
        => "nothing is wrong: expect these when a connection ends";
    PEER_CLOSED ANY "the peer ended the connection (librdmacm: RDMA_CM_EVENT_DISCONNECTED)"
        => "look at the peer's log";

    KEY_IN_USE ANY "the key or the window is in use, or was freed already"
        => "invalidate it first, and wait for the completion of that";
    KEY_DOMAIN ANY "key, region and queue pair are not of the same protection domain"
        => "make all of them with one domain";
    KEY_KIND ANY "the key is not of the kind that requests may change, or has no room for so many entries"
        => "make it with UMR enabled and with enough entries";
    NO_BIND_RIGHT KEYS "the region has no IBV_ACCESS_MW_BIND"
        => "register it with that right";

    OUT_OF_STEP ANY "one side was reset and connected anew, and the other was not: they disagree about PSNs"
        => "connect both sides anew, with the PSNs that they told each other";
    TWO_PAIRS ANY "two queue pairs believe to be connected to the same peer"
        => "check QPNs and LID or GID that the sides exchanged";

    RECEIVE_NO_WRITE RECEIVES "the region that a receive names lacks local write access"
        => "register it with IBV_ACCESS_LOCAL_WRITE";
    PEERS_REQUEST ANY "a peer's request failed on memory of this side"
        => "look at the peer's completion: it names address and rkey";

    LONG_SEND SENDS "a SEND is longer than the receive that it took"
        => "post longer receives at the responder";
    QP_RIGHTS MEMORY "the responder's queue pair does not allow the operation (access flags at RESET to INIT)"
        => "give it remote read, write or atomic when it is moved to INIT";
    MANY_AT_RESPONDER FETCHES "more READs and atomics in flight than the responder keeps"
        => "max_rd_atomic must be no more than the responder's max_dest_rd_atomic";
    NOT_AT_RESPONDER REQUESTS "an operation that the responder's transport or HCA does not have"
        => "compare both ends' queue pair types";
    UNALIGNED ATOMICS "the address of an atomic is not a multiple of 8"
        => "align it";

    WRONG_RKEY ANY "a wrong rkey, or an address or length outside the peer's region"
        => "compare the WQE's remote address and rkey with what the peer told";
    PEER_DEREGISTERED ANY "the peer deregistered the region, or died and was started again"
        => "agree about the end of its use before the peer deregisters it";
    REGION_RIGHTS ANY "the region or the responder's queue pair lacks remote read, write or atomic rights"
        => "register the memory, and move the queue pair to INIT, with those rights";
    PEER_DOMAIN ANY "the peer's region belongs to another protection domain than its queue pair"
        => "register it with the queue pair's domain";
    PEER_DEVICE_MEMORY ANY "the memory at the responder is a GPU's, and its HCA cannot reach it or do this there"
        => "load nvidia-peermem or use a dma-buf at the responder; switch PCIe ACS off; no atomics on GPU memory";

    RESPONDER_RECEIVE ANY "a receive of the responder names memory that it may not use"
        => "look for a local protection or local access error at the responder";
    RESPONDER_FAILED ANY "the responder's queue pair failed"
        => "look at the peer's first completion with an error";

    PEER_GONE ANY "the peer's queue pair is gone, in error, or not yet in RTR: its process ended or failed"
        => "look at the peer's log for what happened first";
    WRONG_GID ANY ROCE "RoCE: the GID index, RoCE version or network of the GID does not reach the peer"
        => "compare `show_gids` on both sides; choose the index of a RoCE v2 entry with an address that the peer can ping";
    WRONG_ATTRIBUTES ANY "the connection's attributes are wrong: LID or GID, QPN, PSN, path MTU, service level"
        => "print both sides' attributes; on RoCE the MTU of both interfaces and of the switch";
    LOSSY_FABRIC ANY ROCE "RoCE: packets are lost for lack of flow control (PFC, ECN) or in congestion"
        => "configure PFC and ECN on hosts and switches for the traffic class that the program uses";
    BAD_LINK ANY "packets are lost: link, cable, transceiver, switch"
        => "look at the port's counters at both ends and at the switch (`ibqueryerrors`, `mlxlink`)";
    WRONG_PATH ANY "the port that was chosen has no path to the peer: other rails, networks, or a firewall between"
        => "limit the program to devices that reach each other; test each pair with `ib_write_bw`";
    SHORT_TIMEOUT ANY "timeout and retry_cnt are too small for the fabric or for a peer that pauses"
        => "raise retry_cnt to 7, and timeout above 16: devices wait 2 * 4.096 us * 2^timeout, and 537 ms at least";
    OLD_SOFTWARE ANY "a defect of the program, the library, driver or firmware of that version"
        => "update program, libraries, firmware and driver; look at their release notes";

    LATE_RECEIVES ANY "the peer posts receives too late or too few"
        => "post receives before the peer is told to send, and again before they run out";
    SMALL_RNR_RETRY ANY "rnr_retry is small"
        => "set it to 7, which means for ever";
    SHORT_RNR_TIMER ANY "min_rnr_timer at the peer is short"
        => "raise it there, so that retries are further apart";

    PAGE_FAULT ANY "with on-demand paging: a page fault at the responder could not be served"
        => "see whether the memory is still mapped there, and the kernel's log";
    UNNAMED ANY "something that only the syndrome and the vendor's code tell"
        => "look these up below, and ask the vendor with HCA, firmware version and the dump";
}
