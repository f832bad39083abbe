//! Syndromes of error CQEs. Any other value is a general error.

use crate::layout::constants;

constants! {
    /// A local length does not fit the operation.
    LOCAL_LENGTH: u8 = 0x01, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    /// The WQE is not one this QP can execute.
    LOCAL_QP_OP: u8 = 0x02, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    /// A local key, its range or its rights do not cover the memory.
    LOCAL_PROT: u8 = 0x04, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    /// The QP is in the error state; the WQE was not executed, or not completely.
    WR_FLUSH: u8 = 0x05, MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
    /// A memory window could not be bound.
    MW_BIND: u8 = 0x06, MLX5_CQE_SYNDROME_MW_BIND_ERR;
    /// The responder answered what the protocol does not allow.
    BAD_RESP: u8 = 0x10, MLX5_CQE_SYNDROME_BAD_RESP_ERR;
    /// A receive: the responder's own memory could not be written as the message asked.
    LOCAL_ACCESS: u8 = 0x11, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR;
    /// The responder found the request invalid.
    REMOTE_INVAL_REQ: u8 = 0x12, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
    /// The responder's key, range or rights do not cover the remote memory.
    REMOTE_ACCESS: u8 = 0x13, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
    /// The responder failed.
    REMOTE_OP: u8 = 0x14, MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
    /// No answer within the timeout, as often as retries are allowed.
    TRANSPORT_RETRY_EXC: u8 = 0x15, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
    /// The responder was not ready, as often as retries are allowed.
    RNR_RETRY_EXC: u8 = 0x16, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR;
    /// The responder aborted the operation.
    REMOTE_ABORTED: u8 = 0x22, MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR;

    /// Vendor syndrome: a page fault on memory that is registered on demand.
    VENDOR_ODP_PFAULT: u8 = 0x93, MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT;
}
