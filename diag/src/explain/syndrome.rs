//! Syndromes of error CQEs, under the names of `enum ibv_wc_status`.

use core::fmt;

use mlx5_sys::cqe::syndrome;
use mlx5_sys::verbs::ibv_wc_status;

/// Why a request failed, as `enum ibv_wc_status` (`verbs.h`) distinguishes it.
#[doc(alias = "ibv_wc_status")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// `IBV_WC_LOC_LEN_ERR`.
    #[doc(alias = "IBV_WC_LOC_LEN_ERR")]
    LocalLength,
    /// `IBV_WC_LOC_QP_OP_ERR`.
    #[doc(alias = "IBV_WC_LOC_QP_OP_ERR")]
    LocalQpOperation,
    /// `IBV_WC_LOC_PROT_ERR`.
    #[doc(alias = "IBV_WC_LOC_PROT_ERR")]
    LocalProtection,
    /// `IBV_WC_WR_FLUSH_ERR`.
    #[doc(alias = "IBV_WC_WR_FLUSH_ERR")]
    Flushed,
    /// `IBV_WC_MW_BIND_ERR`.
    #[doc(alias = "IBV_WC_MW_BIND_ERR")]
    MemoryWindowBind,
    /// `IBV_WC_BAD_RESP_ERR`.
    #[doc(alias = "IBV_WC_BAD_RESP_ERR")]
    BadResponse,
    /// `IBV_WC_LOC_ACCESS_ERR`.
    #[doc(alias = "IBV_WC_LOC_ACCESS_ERR")]
    LocalAccess,
    /// `IBV_WC_REM_INV_REQ_ERR`.
    #[doc(alias = "IBV_WC_REM_INV_REQ_ERR")]
    RemoteInvalidRequest,
    /// `IBV_WC_REM_ACCESS_ERR`.
    #[doc(alias = "IBV_WC_REM_ACCESS_ERR")]
    RemoteAccess,
    /// `IBV_WC_REM_OP_ERR`.
    #[doc(alias = "IBV_WC_REM_OP_ERR")]
    RemoteOperation,
    /// `IBV_WC_RETRY_EXC_ERR`.
    #[doc(alias = "IBV_WC_RETRY_EXC_ERR")]
    RetriesExceeded,
    /// `IBV_WC_RNR_RETRY_EXC_ERR`.
    #[doc(alias = "IBV_WC_RNR_RETRY_EXC_ERR")]
    RnrRetriesExceeded,
    /// `IBV_WC_REM_ABORT_ERR`.
    #[doc(alias = "IBV_WC_REM_ABORT_ERR")]
    RemoteAborted,
    /// `IBV_WC_GENERAL_ERR`: a syndrome without a name of its own, given here.
    #[doc(alias = "IBV_WC_GENERAL_ERR")]
    General(u8),
}

impl Status {
    /// The status that a CQE's syndrome means.
    pub const fn from_syndrome(code: u8) -> Self {
        match code {
            syndrome::LOCAL_LENGTH => Self::LocalLength,
            syndrome::LOCAL_QP_OP => Self::LocalQpOperation,
            syndrome::LOCAL_PROT => Self::LocalProtection,
            syndrome::WR_FLUSH => Self::Flushed,
            syndrome::MW_BIND => Self::MemoryWindowBind,
            syndrome::BAD_RESP => Self::BadResponse,
            syndrome::LOCAL_ACCESS => Self::LocalAccess,
            syndrome::REMOTE_INVAL_REQ => Self::RemoteInvalidRequest,
            syndrome::REMOTE_ACCESS => Self::RemoteAccess,
            syndrome::REMOTE_OP => Self::RemoteOperation,
            syndrome::TRANSPORT_RETRY_EXC => Self::RetriesExceeded,
            syndrome::RNR_RETRY_EXC => Self::RnrRetriesExceeded,
            syndrome::REMOTE_ABORTED => Self::RemoteAborted,
            other => Self::General(other),
        }
    }

    /// Returns the status for a value of `enum ibv_wc_status`, which verbs programs print. `None`
    /// for success, and for values that no HCA reports by a CQE's syndrome. libmlx5's general error
    /// has lost its syndrome, which is returned as 0.
    pub const fn from_wc_status(value: ibv_wc_status::Type) -> Option<Self> {
        Some(match value {
            ibv_wc_status::IBV_WC_LOC_LEN_ERR => Self::LocalLength,
            ibv_wc_status::IBV_WC_LOC_QP_OP_ERR => Self::LocalQpOperation,
            ibv_wc_status::IBV_WC_LOC_PROT_ERR => Self::LocalProtection,
            ibv_wc_status::IBV_WC_WR_FLUSH_ERR => Self::Flushed,
            ibv_wc_status::IBV_WC_MW_BIND_ERR => Self::MemoryWindowBind,
            ibv_wc_status::IBV_WC_BAD_RESP_ERR => Self::BadResponse,
            ibv_wc_status::IBV_WC_LOC_ACCESS_ERR => Self::LocalAccess,
            ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => Self::RemoteInvalidRequest,
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => Self::RemoteAccess,
            ibv_wc_status::IBV_WC_REM_OP_ERR => Self::RemoteOperation,
            ibv_wc_status::IBV_WC_RETRY_EXC_ERR => Self::RetriesExceeded,
            ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => Self::RnrRetriesExceeded,
            ibv_wc_status::IBV_WC_REM_ABORT_ERR => Self::RemoteAborted,
            ibv_wc_status::IBV_WC_GENERAL_ERR => Self::General(0),
            _ => return None,
        })
    }

    /// Returns the syndrome in a CQE that means this.
    pub const fn syndrome(self) -> u8 {
        match self {
            Self::LocalLength => syndrome::LOCAL_LENGTH,
            Self::LocalQpOperation => syndrome::LOCAL_QP_OP,
            Self::LocalProtection => syndrome::LOCAL_PROT,
            Self::Flushed => syndrome::WR_FLUSH,
            Self::MemoryWindowBind => syndrome::MW_BIND,
            Self::BadResponse => syndrome::BAD_RESP,
            Self::LocalAccess => syndrome::LOCAL_ACCESS,
            Self::RemoteInvalidRequest => syndrome::REMOTE_INVAL_REQ,
            Self::RemoteAccess => syndrome::REMOTE_ACCESS,
            Self::RemoteOperation => syndrome::REMOTE_OP,
            Self::RetriesExceeded => syndrome::TRANSPORT_RETRY_EXC,
            Self::RnrRetriesExceeded => syndrome::RNR_RETRY_EXC,
            Self::RemoteAborted => syndrome::REMOTE_ABORTED,
            Self::General(code) => code,
        }
    }

    /// Returns the value of `enum ibv_wc_status`.
    pub const fn wc_status(self) -> ibv_wc_status::Type {
        match self {
            Self::LocalLength => ibv_wc_status::IBV_WC_LOC_LEN_ERR,
            Self::LocalQpOperation => ibv_wc_status::IBV_WC_LOC_QP_OP_ERR,
            Self::LocalProtection => ibv_wc_status::IBV_WC_LOC_PROT_ERR,
            Self::Flushed => ibv_wc_status::IBV_WC_WR_FLUSH_ERR,
            Self::MemoryWindowBind => ibv_wc_status::IBV_WC_MW_BIND_ERR,
            Self::BadResponse => ibv_wc_status::IBV_WC_BAD_RESP_ERR,
            Self::LocalAccess => ibv_wc_status::IBV_WC_LOC_ACCESS_ERR,
            Self::RemoteInvalidRequest => ibv_wc_status::IBV_WC_REM_INV_REQ_ERR,
            Self::RemoteAccess => ibv_wc_status::IBV_WC_REM_ACCESS_ERR,
            Self::RemoteOperation => ibv_wc_status::IBV_WC_REM_OP_ERR,
            Self::RetriesExceeded => ibv_wc_status::IBV_WC_RETRY_EXC_ERR,
            Self::RnrRetriesExceeded => ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR,
            Self::RemoteAborted => ibv_wc_status::IBV_WC_REM_ABORT_ERR,
            Self::General(_) => ibv_wc_status::IBV_WC_GENERAL_ERR,
        }
    }

    /// Returns the name in `verbs.h`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LocalLength => "IBV_WC_LOC_LEN_ERR",
            Self::LocalQpOperation => "IBV_WC_LOC_QP_OP_ERR",
            Self::LocalProtection => "IBV_WC_LOC_PROT_ERR",
            Self::Flushed => "IBV_WC_WR_FLUSH_ERR",
            Self::MemoryWindowBind => "IBV_WC_MW_BIND_ERR",
            Self::BadResponse => "IBV_WC_BAD_RESP_ERR",
            Self::LocalAccess => "IBV_WC_LOC_ACCESS_ERR",
            Self::RemoteInvalidRequest => "IBV_WC_REM_INV_REQ_ERR",
            Self::RemoteAccess => "IBV_WC_REM_ACCESS_ERR",
            Self::RemoteOperation => "IBV_WC_REM_OP_ERR",
            Self::RetriesExceeded => "IBV_WC_RETRY_EXC_ERR",
            Self::RnrRetriesExceeded => "IBV_WC_RNR_RETRY_EXC_ERR",
            Self::RemoteAborted => "IBV_WC_REM_ABORT_ERR",
            Self::General(_) => "IBV_WC_GENERAL_ERR",
        }
    }

    /// Returns the usual cause, and the cure.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::LocalLength => {
                "A length does not fit: a receive is shorter than the message that took it, or a \
                 request is longer than the port's largest message. Post larger receives, or send \
                 less."
            }
            Self::LocalQpOperation => {
                "The HCA could not execute the WQE: a malformed segment, an operation that this \
                 queue pair's transport does not have, or more READs and atomics than the QP was \
                 set up for. Compare the WQE with what the operation needs."
            }
            Self::LocalProtection => {
                "Local memory is not covered: wrong lkey, an address or length outside the region, \
                 a region of another protection domain, missing local write access, or a region \
                 deregistered before the request was complete. Keep a region until the completion \
                 that retires its request."
            }
            Self::Flushed => {
                "The queue pair is in the error state: an earlier request failed, it was moved there, \
                 or it refused a request of its peer. The last has no failed completion here but an \
                 asynchronous event (IBV_EVENT_QP_ACCESS_ERR or IBV_EVENT_QP_REQ_ERR); a queue pair \
                 that is connected to itself refuses its own requests so: check their key, range and \
                 rights. Look at the first failure; then take the QP through RESET to RTS."
            }
            Self::MemoryWindowBind => {
                "The memory window could not be bound, or the key not changed: it belongs to another \
                 protection domain or queue pair, is in use and has to be invalidated first, is not \
                 of the kind that requests may change, or has no room for so many entries."
            }
            Self::BadResponse => {
                "The responder's answer broke the protocol: both ends disagree about PSNs, or one \
                 was reset and the other was not. Reconnect both."
            }
            Self::LocalAccess => {
                "A message could not be written into this side's memory: the receive's region \
                 lacks local write access, or a peer's WRITE failed here."
            }
            Self::RemoteInvalidRequest => {
                "The responder found the request invalid: a SEND longer than its receive, an \
                 operation its queue pair was not set up to allow, or more READs and atomics in \
                 flight than it keeps (max_dest_rd_atomic)."
            }
            Self::RemoteAccess => {
                "The responder refused the memory access: wrong rkey, an address outside the \
                 region, or a right (remote read, write, atomic) that region or queue pair lacks; \
                 an atomic's address that is not a multiple of 8."
            }
            Self::RemoteOperation => {
                "The responder could not complete the operation: its receive failed on its own \
                 side (look for a completion with an error there)."
            }
            Self::RetriesExceeded => {
                "No answer within timeout and retries: the peer's queue pair is gone or not in \
                 RTR/RTS, connection attributes (LID or GID, QPN, PSN, path MTU) are wrong, or the \
                 link is down."
            }
            Self::RnrRetriesExceeded => {
                "The peer had no receive posted, and rnr_retry retries were not enough: post \
                 receives before the peer sends, or set rnr_retry to 7, which waits for ever and in silence."
            }
            Self::RemoteAborted => {
                "The responder gave the operation up. With on-demand paging: the page fault could \
                 not be served."
            }
            Self::General(_) => "The HCA gives no reason that verbs have a name for.",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Self::General(code) = self {
            write!(f, " (syndrome {code:#04x})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_has_a_status_and_an_explanation() {
        let mut named = 0;
        for code in 0..=u8::MAX {
            let status = Status::from_syndrome(code);
            assert!(!status.explanation().is_empty());
            assert!(status.to_string().starts_with("IBV_WC_"));
            assert_ne!(status.wc_status(), ibv_wc_status::IBV_WC_SUCCESS);
            assert_eq!(status.syndrome(), code);
            let back = Status::from_wc_status(status.wc_status()).unwrap();
            assert_eq!(back.wc_status(), status.wc_status());
            named += u32::from(!matches!(status, Status::General(_)));
        }
        assert_eq!(named, 13);
        assert_eq!(Status::from_syndrome(0x77).to_string(), "IBV_WC_GENERAL_ERR (syndrome 0x77)");
    }
}
