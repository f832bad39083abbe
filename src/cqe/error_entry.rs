//! An error CQE as bytes, for dumps of other programs.

use mlx5_sys::cqe::{ErrorCqe, NUMBER_MASK, OPCODE_SHIFT, OWNER_MASK, opcode};
use mlx5_sys::wqe::opcode as wqe_opcode;
use zerocopy::FromBytes;

use super::{QueueKind, Status};

/// All fields of an error CQE, from its 64 bytes.
///
/// The rings read a CQE where the HCA wrote it and return a [`Failure`](super::Failure). This type
/// is for CQEs that were read elsewhere: in a log, a core file, or another library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// The queue whose request failed: a requester's CQE is of the send queue.
    pub queue: QueueKind,
    /// Number of the queue pair; of an Ethernet queue, of that queue.
    pub qpn: u32,
    /// Position of the WQE: of a send queue the index of its first 64-byte block, of a receive
    /// queue the index of the WQE; both count modulo 2^16 and do not wrap with the ring.
    pub wqe_counter: u16,
    /// Opcode of the WQE, of a send queue.
    pub opcode: u8,
    /// Why it failed.
    pub status: Status,
    /// The syndrome byte of the HCA.
    pub syndrome: u8,
    /// Vendor syndrome: the vendor's own code for the cause.
    pub vendor_code: u8,
    /// The hardware's own code for the cause; 0 if it was not the hardware that failed the request.
    pub hardware_syndrome: u8,
    /// The part of the hardware, 4 bits. UCX prints it before the code.
    pub hardware_type: u8,
    /// SRQ number or, with CQE version 1, user index of the queue.
    pub srqn_or_user_index: u32,
    /// The signature byte.
    pub signature: u8,
    /// The owner bit.
    pub owner: u8,
}

impl ErrorEntry {
    /// Parses the last 64 bytes of a CQE. `None` if its opcode is not that of an error CQE.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 64]) -> Option<ErrorEntry> {
        let cqe = ErrorCqe::read_from_bytes(bytes).ok()?;
        let queue = match cqe.op_own >> OPCODE_SHIFT {
            opcode::REQ_ERR => QueueKind::Send,
            opcode::RESP_ERR => QueueKind::Receive,
            _ => return None,
        };
        let number = cqe.s_wqe_opcode_qpn.get();
        Some(ErrorEntry {
            queue,
            qpn: number & NUMBER_MASK,
            wqe_counter: cqe.wqe_counter.get(),
            opcode: (number >> 24) as u8,
            status: Status::from_syndrome(cqe.syndrome),
            syndrome: cqe.syndrome,
            vendor_code: cqe.vendor_err_synd,
            hardware_syndrome: cqe.hw_err_synd,
            hardware_type: cqe.hw_synd_type >> 4,
            srqn_or_user_index: cqe.srqn_uidx.get() & NUMBER_MASK,
            signature: cqe.signature,
            owner: cqe.op_own & OWNER_MASK,
        })
    }

    /// Returns the name of the WQE's opcode, if it is of a send queue and known.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        match self.queue {
            QueueKind::Send => wqe_opcode::name(self.opcode),
            QueueKind::Receive => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_other_drivers_print_them() {
        // A dump that UCX's fields name: hw_synd 0/157 is byte 52 and bits 7-4 of byte 53.
        let mut bytes = [0; 64];
        bytes[32..36].copy_from_slice(&[0, 0, 0, 0x13]);
        bytes[52..64]
            .copy_from_slice(&[0x9d, 0x10, 0x53, 4, 0x0a, 0, 0x15, 0x42, 0, 0x19, 0xb0, 0xd2]);
        let entry = ErrorEntry::from_bytes(&bytes).unwrap();
        assert_eq!((entry.queue, entry.operation()), (QueueKind::Send, Some("SEND")));
        assert_eq!((entry.qpn, entry.wqe_counter, entry.owner), (0x1542, 0x19, 0));
        assert_eq!((entry.status, entry.vendor_code), (Status::LocalProtection, 0x53));
        assert_eq!((entry.hardware_syndrome, entry.hardware_type), (157, 1));
        assert_eq!((entry.srqn_or_user_index, entry.signature), (0x13, 0xb0));
        bytes[63] = 0xe3;
        let entry = ErrorEntry::from_bytes(&bytes).unwrap();
        assert_eq!((entry.queue, entry.operation(), entry.owner), (QueueKind::Receive, None, 1));
        bytes[63] = 0x01;
        assert_eq!(ErrorEntry::from_bytes(&bytes), None);
    }
}
