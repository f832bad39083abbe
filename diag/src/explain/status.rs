//! Why requests fail: each status of a completion, with its causes.

use super::Status;
use super::{Explanation, explanation};

/// Every status that has a syndrome of its own, as the HCA numbers them.
pub const STATUSES: [Status; 13] = [
    Status::LocalLength,
    Status::LocalQpOperation,
    Status::LocalProtection,
    Status::Flushed,
    Status::MemoryWindowBind,
    Status::BadResponse,
    Status::LocalAccess,
    Status::RemoteInvalidRequest,
    Status::RemoteAccess,
    Status::RemoteOperation,
    Status::RetriesExceeded,
    Status::RnrRetriesExceeded,
    Status::RemoteAborted,
];

/// Returns the meaning and the causes of a status.
///
/// Meanings are those of the InfiniBand Architecture Specification, volume 1, 11.6.2, and of
/// `ibv_poll_cq(3)`.
#[doc(alias = "ibv_wc_status_str")]
#[must_use]
pub const fn explain(status: Status) -> Explanation {
    match status {
        Status::LocalLength => explanation! {
            "A length does not fit on this side.";
            "a receive is shorter than the message that took it"
                => "post receives as long as the longest message, or send no more than was agreed";
            "a request is longer than the port's largest message (2^31 bytes, or the path MTU on UD)"
                => "split the message";
            "an Ethernet WQE has fewer bytes of headers in it than the HCA wants in the WQE itself"
                => "ask the port for its minimal inline mode and put those headers into the WQE";
        },
        Status::LocalQpOperation => explanation! {
            "The HCA could not execute the WQE.";
            "the WQE is malformed: a wrong size (DS), index or opcode, or segments in the wrong order"
                => "decode the WQE and compare it with what the operation needs";
            "the transport does not have the operation, or the queue pair was not made for it"
                => "compare the operation with the queue pair's type and creation attributes";
            "more READs and atomics than max_rd_atomic allows, or max_rd_atomic is 0"
                => "raise max_rd_atomic when the queue pair is moved to RTS";
            "the WQE was overwritten before the HCA fetched it"
                => "post no more than the ring holds: count what is complete, not what was posted";
        },
        Status::LocalProtection => explanation! {
            "Local memory that the request names is not covered by its key.";
            "a wrong lkey, or an address or length outside the memory region"
                => "compare each data segment of the WQE with address, length and lkey of its region";
            "the region was deregistered, or its memory freed, before the request was complete"
                => "keep a region until the completion that retires its request";
            "the region belongs to another protection domain than the queue pair"
                => "register the memory with the queue pair's domain";
            "a receive, READ or atomic writes to a region without local write access"
                => "register it with IBV_ACCESS_LOCAL_WRITE";
            "the memory is a GPU's or another device's, and the HCA cannot reach it"
                => "load nvidia-peermem or use a dma-buf; switch PCIe ACS off, or put HCA and device \
                    behind one switch";
            "the IOMMU stopped the HCA (IO_PAGE_FAULT or DMAR lines in the kernel's log)"
                => "look for them at the same time; then it is a driver that unmapped too early";
        },
        Status::Flushed => explanation! {
            "The queue pair was in the error state already: the request was not executed.";
            "an earlier request on the same queue pair failed"
                => "look for the first completion with another status: that one has the cause";
            "the program or a library moved the queue pair to the error state to close the connection"
                => "nothing is wrong: expect these when a connection ends";
            "the peer ended the connection (librdmacm: RDMA_CM_EVENT_DISCONNECTED)"
                => "look at the peer's log";
        },
        Status::MemoryWindowBind => explanation! {
            "A memory window could not be bound, or a key not changed by UMR.";
            "the key or the window is in use, or was freed already"
                => "invalidate it first, and wait for the completion of that";
            "key, region and queue pair are not of the same protection domain"
                => "make all of them with one domain";
            "the key is not of the kind that requests may change, or has no room for so many entries"
                => "make it with UMR enabled and with enough entries";
            "the region has no IBV_ACCESS_MW_BIND"
                => "register it with that right";
        },
        Status::BadResponse => explanation! {
            "The responder's answer broke the protocol.";
            "one side was reset and connected anew, and the other was not: they disagree about PSNs"
                => "connect both sides anew, with the PSNs that they told each other";
            "two queue pairs believe to be connected to the same peer"
                => "check QPNs and LID or GID that the sides exchanged";
        },
        Status::LocalAccess => explanation! {
            "A message could not be written into this side's memory.";
            "the region that a receive names lacks local write access"
                => "register it with IBV_ACCESS_LOCAL_WRITE";
            "a peer's request failed on memory of this side"
                => "look at the peer's completion: it names address and rkey";
        },
        Status::RemoteInvalidRequest => explanation! {
            "The responder found the request invalid.";
            "a SEND is longer than the receive that it took"
                => "post longer receives at the responder";
            "the responder's queue pair does not allow the operation (access flags at RESET to INIT)"
                => "give it remote read, write or atomic when it is moved to INIT";
            "more READs and atomics in flight than the responder keeps"
                => "max_rd_atomic must be no more than the responder's max_dest_rd_atomic";
            "an operation that the responder's transport or HCA does not have"
                => "compare both ends' queue pair types";
        },
        Status::RemoteAccess => explanation! {
            "The responder refused access to its memory.";
            "a wrong rkey, or an address or length outside the peer's region"
                => "compare the WQE's remote address and rkey with what the peer told";
            "the peer deregistered the region, or died and was started again"
                => "agree about the end of its use before the peer deregisters it";
            "the region or the responder's queue pair lacks remote read, write or atomic rights"
                => "register the memory, and move the queue pair to INIT, with those rights";
            "the peer's region belongs to another protection domain than its queue pair"
                => "register it with the queue pair's domain";
            "the address of an atomic is not a multiple of 8"
                => "align it";
        },
        Status::RemoteOperation => explanation! {
            "The responder could not complete the operation for reasons of its own.";
            "a receive of the responder names memory that it may not use"
                => "look for a local protection or local access error at the responder";
            "the responder's HCA cannot reach the memory, as that of a GPU"
                => "see there for nvidia-peermem, PCIe ACS and the IOMMU";
            "the responder's queue pair failed"
                => "look at the peer's first completion with an error";
        },
        Status::RetriesExceeded => explanation! {
            "The peer did not answer, however often the request was sent.";
            "the peer's queue pair is gone, in error, or not yet in RTR: its process ended or failed"
                => "look at the peer's log for what happened first";
            "the connection's attributes are wrong: LID or GID, QPN, PSN, path MTU, GID index"
                => "print both sides' attributes; on RoCE compare GID index and RoCE version";
            "packets are lost: link, cable, switch, firewall, VLAN, or PFC and ECN on RoCE"
                => "look at the port's counters at both ends and at the switch";
            "timeout and retry_cnt are too small for the fabric or for a peer that pauses"
                => "raise timeout (4.096 us * 2^timeout) to 14 or more, and retry_cnt to 7";
        },
        Status::RnrRetriesExceeded => explanation! {
            "The peer had no receive posted, however often the request was sent.";
            "the peer posts receives too late or too few"
                => "post receives before the peer is told to send, and again before they run out";
            "rnr_retry is small"
                => "set it to 7, which means for ever";
            "min_rnr_timer at the peer is short"
                => "raise it there, so that retries are further apart";
        },
        Status::RemoteAborted => explanation! {
            "The responder gave the operation up.";
            "with on-demand paging: a page fault at the responder could not be served"
                => "see whether the memory is still mapped there, and the kernel's log";
        },
        Status::General(_) => explanation! {
            "The HCA gives no reason that verbs have a name for.";
            "something that only the syndrome and the vendor's code tell"
                => "look these up below, and ask the vendor with HCA, firmware version and the dump";
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_causes_with_cures() {
        for code in 0..=u8::MAX {
            let explanation = explain(Status::from_syndrome(code));
            assert!(explanation.meaning.ends_with('.'));
            assert!(!explanation.causes.is_empty());
            for cause in explanation.causes {
                assert!(!cause.cause.is_empty() && !cause.cure.is_empty());
                assert!(!cause.cause.contains("  ") && !cause.cure.contains("  "), "{cause:?}");
            }
        }
        let mut syndromes = STATUSES.map(Status::syndrome);
        syndromes.sort_unstable();
        assert_eq!(syndromes, STATUSES.map(Status::syndrome), "as the HCA numbers them");
    }
}
