//! Why requests fail: each status of a completion, with its causes.

use super::causes::reason;
use super::{Explanation, Status};

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
        Status::LocalLength => Explanation {
            meaning: "A length does not fit on this side.",
            causes: &[
                reason::SHORT_RECEIVE,
                reason::LONG_REQUEST,
                reason::INLINE_HEADERS,
                reason::PATH_MTU,
                reason::OLD_SOFTWARE,
            ],
        },
        Status::LocalQpOperation => Explanation {
            meaning: "The HCA could not execute the WQE.",
            causes: &[
                reason::MALFORMED,
                reason::NO_OPERATION,
                reason::TOO_MANY_READS,
                reason::OVERWRITTEN,
                reason::OLD_SOFTWARE,
            ],
        },
        Status::LocalProtection => Explanation {
            meaning: "Local memory that the request names is not covered by its key.",
            causes: &[
                reason::WRONG_LKEY,
                reason::DEREGISTERED,
                reason::OTHER_DOMAIN,
                reason::NO_LOCAL_WRITE,
                reason::DEVICE_MEMORY,
                reason::IOMMU,
                reason::OLD_SOFTWARE,
            ],
        },
        Status::Flushed => Explanation {
            meaning: "The queue pair was in the error state already: the request was not executed.",
            causes: &[
                reason::EARLIER_FAILURE,
                reason::CLOSED,
                reason::PEER_CLOSED,
                reason::CQ_OVERRUN,
            ],
        },
        Status::MemoryWindowBind => Explanation {
            meaning: "A memory window could not be bound, or a key not changed by UMR.",
            causes: &[
                reason::KEY_IN_USE,
                reason::KEY_DOMAIN,
                reason::KEY_KIND,
                reason::NO_BIND_RIGHT,
                reason::OLD_SOFTWARE,
            ],
        },
        Status::BadResponse => Explanation {
            meaning: "The responder's answer broke the protocol.",
            causes: &[reason::OUT_OF_STEP, reason::TWO_PAIRS],
        },
        Status::LocalAccess => Explanation {
            meaning: "A message could not be written into this side's memory.",
            causes: &[reason::RECEIVE_NO_WRITE, reason::PEERS_REQUEST],
        },
        Status::RemoteInvalidRequest => Explanation {
            meaning: "The responder found the request invalid.",
            causes: &[
                reason::LONG_SEND,
                reason::QP_RIGHTS,
                reason::UNALIGNED,
                reason::MANY_AT_RESPONDER,
                reason::NOT_AT_RESPONDER,
                reason::PATH_MTU,
                reason::OLD_SOFTWARE,
            ],
        },
        Status::RemoteAccess => Explanation {
            meaning: "The responder refused access to its memory.",
            causes: &[
                reason::WRONG_RKEY,
                reason::PEER_DEREGISTERED,
                reason::REGION_RIGHTS,
                reason::PEER_DOMAIN,
                reason::PEER_DEVICE_MEMORY,
                reason::UNALIGNED,
                reason::OLD_SOFTWARE,
            ],
        },
        Status::RemoteOperation => Explanation {
            meaning: "The responder could not complete the operation for reasons of its own.",
            causes: &[
                reason::RESPONDER_RECEIVE,
                reason::PEER_DEVICE_MEMORY,
                reason::RESPONDER_FAILED,
                reason::OLD_SOFTWARE,
            ],
        },
        Status::RetriesExceeded => Explanation {
            meaning: "The peer did not answer, however often the request was sent.",
            causes: &[
                reason::PEER_GONE,
                reason::WRONG_GID,
                reason::WRONG_PATH,
                reason::WRONG_ATTRIBUTES,
                reason::BAD_LINK,
                reason::LOSSY_FABRIC,
                reason::SHORT_TIMEOUT,
                reason::OLD_SOFTWARE,
            ],
        },
        Status::RnrRetriesExceeded => Explanation {
            meaning: "The peer had no receive posted, however often the request was sent.",
            causes: &[
                reason::LATE_RECEIVES,
                reason::SMALL_RNR_RETRY,
                reason::SHORT_RNR_TIMER,
                reason::OLD_SOFTWARE,
            ],
        },
        Status::RemoteAborted => Explanation {
            meaning: "The responder gave the operation up.",
            causes: &[reason::PAGE_FAULT],
        },
        Status::General(_) => Explanation {
            meaning: "The HCA gives no reason that verbs have a name for.",
            causes: &[reason::UNNAMED],
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
