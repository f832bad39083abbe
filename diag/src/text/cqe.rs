//! CQEs as text.

use core::fmt;

use mlx5_sys::cqe::{
    Cqe64, ErrorCqe, FORMAT_COMPRESSED, FORMAT_INLINE_32, FORMAT_INLINE_64, NUMBER_MASK,
    OPCODE_SHIFT, OWNER_MASK, opcode,
};
use mlx5_sys::wqe::opcode as wqe_opcode;
use zerocopy::FromBytes;

use super::Hex;
use crate::explain::Status;

/// A CQE's 64 bytes, as they lie in memory. Of a 128-byte CQE, the last 64.
#[derive(Clone, Copy, Debug)]
pub struct Cqe<'a>(pub &'a [u8; 64]);

impl Cqe<'_> {
    /// Returns the fields of an error CQE; `None` if the opcode is neither REQ_ERR nor RESP_ERR.
    #[must_use]
    pub fn error(&self) -> Option<CqeError> {
        let cqe = ErrorCqe::read_from_bytes(self.0).ok()?;
        let queue = match cqe.op_own >> OPCODE_SHIFT {
            opcode::REQ_ERR => QueueKind::Send,
            opcode::RESP_ERR => QueueKind::Receive,
            _ => return None,
        };
        let number = cqe.s_wqe_opcode_qpn.get();
        Some(CqeError {
            queue,
            qpn: number & NUMBER_MASK,
            wqe_index: cqe.wqe_counter.get(),
            opcode: (number >> 24) as u8,
            status: Status::from_syndrome(cqe.syndrome),
            syndrome: cqe.syndrome,
            vendor_syndrome: cqe.vendor_err_synd,
            hardware_syndrome: cqe.hw_err_synd,
            hardware_type: cqe.hw_synd_type >> 4,
            srqn_or_user_index: cqe.srqn_uidx.get() & NUMBER_MASK,
            signature: cqe.signature,
            owner: cqe.op_own & OWNER_MASK,
        })
    }
}

/// The fields of an error CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqeError {
    /// The queue whose WQE failed: a send queue for REQ_ERR, a receive queue for RESP_ERR.
    pub queue: QueueKind,
    /// Number of the queue pair; for an Ethernet queue, number of that queue.
    pub qpn: u32,
    /// Index of the WQE, modulo 2^16. For a send queue, the index of its first 64-byte block.
    pub wqe_index: u16,
    /// Opcode of the WQE; only of a send queue.
    pub opcode: u8,
    /// The status that the syndrome means.
    pub status: Status,
    /// The syndrome (`MLX5_CQE_SYNDROME_*`).
    pub syndrome: u8,
    /// The vendor syndrome.
    pub vendor_syndrome: u8,
    /// The hardware syndrome; 0 if the hardware did not fail the request.
    pub hardware_syndrome: u8,
    /// Type of the hardware syndrome, 4 bits. UCX prints it before the code.
    pub hardware_type: u8,
    /// SRQ number or, with CQE version 1, user index of the queue; 24 bits.
    pub srqn_or_user_index: u32,
    /// The signature byte.
    pub signature: u8,
    /// The owner bit.
    pub owner: u8,
}

impl CqeError {
    /// Returns the name of the WQE's opcode; `None` for a receive queue and for unknown opcodes.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        match self.queue {
            QueueKind::Send => wqe_opcode::name(self.opcode),
            QueueKind::Receive => None,
        }
    }
}

/// A queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// Send queue.
    Send,
    /// Receive queue.
    Receive,
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
        })
    }
}

/// The name of a CQE's opcode.
fn opcode_name(code: u8) -> Option<&'static str> {
    Some(match code {
        opcode::REQ => "REQ",
        opcode::RESP_WR_IMM => "RESP_WR_IMM",
        opcode::RESP_SEND => "RESP_SEND",
        opcode::RESP_SEND_IMM => "RESP_SEND_IMM",
        opcode::RESP_SEND_INV => "RESP_SEND_INV",
        opcode::RESIZE_CQ => "RESIZE_CQ",
        opcode::NO_PACKET => "NO_PACKET",
        opcode::SIG_ERR => "SIG_ERR",
        opcode::REQ_ERR => "REQ_ERR",
        opcode::RESP_ERR => "RESP_ERR",
        opcode::INVALID => "INVALID",
        _ => return None,
    })
}

impl fmt::Display for Cqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(cqe) = Cqe64::read_from_bytes(self.0) else { return Err(fmt::Error) };
        match opcode_name(cqe.opcode()) {
            Some(name) => write!(f, "CQE {name}")?,
            None => write!(f, "CQE opcode {:#x} (unknown)", cqe.opcode())?,
        }
        write!(f, " owner {}", cqe.owner())?;
        if cqe.opcode() == opcode::INVALID {
            return f.write_str(" (never written)");
        }
        let number = cqe.sop_drop_qpn.get();
        write!(f, " QP {:#x} WQE {:#06x}", number & NUMBER_MASK, cqe.wqe_counter.get())?;
        match cqe.opcode() {
            opcode::REQ | opcode::REQ_ERR => {
                let code = (number >> 24) as u8;
                match wqe_opcode::name(code) {
                    Some(name) => write!(f, " {name}")?,
                    None => write!(f, " WQE opcode {code:#04x}")?,
                }
            }
            _ => {}
        }
        if let Some(error) = self.error() {
            write!(f, ": {}, syndrome {:#04x}", error.status, error.syndrome)?;
            write!(f, ", vendor code {:#04x}", error.vendor_syndrome)?;
            let CqeError { hardware_type, hardware_syndrome, .. } = error;
            if (hardware_type, hardware_syndrome) != (0, 0) {
                write!(f, ", hardware syndrome {hardware_type}/{hardware_syndrome:#04x}")?;
            }
            return Ok(());
        }
        write!(f, " bytes {}", cqe.byte_cnt.get())?;
        match cqe.opcode() {
            opcode::RESP_WR_IMM | opcode::RESP_SEND_IMM => {
                write!(f, " imm {:#010x}", cqe.imm_inval_pkey.get())?;
            }
            opcode::RESP_SEND_INV => {
                write!(f, " invalidated rkey {:#010x}", cqe.imm_inval_pkey.get())?;
            }
            _ => {}
        }
        if cqe.solicited() {
            f.write_str(" solicited")?;
        }
        match cqe.format() {
            FORMAT_INLINE_32 => {
                let length = (cqe.byte_cnt.get() as usize).min(32);
                write!(f, " data inside: {}", Hex(&self.0[..length]))
            }
            FORMAT_INLINE_64 => f.write_str(" data in the 64 bytes before"),
            FORMAT_COMPRESSED => f.write_str(" title of a compressed block"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{any_input, entry_bytes};
    use zerocopy::IntoBytes;

    fn bytes(cqe: &Cqe64) -> [u8; 64] {
        cqe.as_bytes().try_into().unwrap()
    }

    #[test]
    fn names_what_it_shows() {
        let mut cqe = Cqe64 {
            sop_drop_qpn: (u32::from(wqe_opcode::RDMA_WRITE) << 24 | 0x1234).into(),
            wqe_counter: 0xfffe.into(),
            op_own: 1,
            ..Cqe64::default()
        };
        let text = Cqe(&bytes(&cqe)).to_string();
        assert_eq!(text, "CQE REQ owner 1 QP 0x1234 WQE 0xfffe RDMA_WRITE bytes 0");

        cqe.op_own = opcode::RESP_SEND_IMM << 4 | 0b0110;
        cqe.imm_inval_pkey = 0xdead_beef.into();
        cqe.byte_cnt = 5.into();
        let mut raw = bytes(&cqe);
        raw[..5].copy_from_slice(b"hello");
        let text = Cqe(&raw).to_string();
        assert_eq!(
            text,
            "CQE RESP_SEND_IMM owner 0 QP 0x1234 WQE 0xfffe bytes 5 imm 0xdeadbeef solicited data \
             inside: 68656c6c 6f"
        );

        raw[63] = opcode::REQ_ERR << 4;
        raw[55] = 0x15;
        raw[54] = 0x81;
        let text = Cqe(&raw).to_string();
        assert!(text.ends_with("IBV_WC_RETRY_EXC_ERR, syndrome 0x15, vendor code 0x81"), "{text}");
        (raw[52], raw[53]) = (0x9d, 0x20);
        let text = Cqe(&raw).to_string();
        assert!(text.ends_with("vendor code 0x81, hardware syndrome 2/0x9d"), "{text}");

        assert!(Cqe(&[0xf0; 64]).to_string().contains("never written"));
    }

    #[test]
    fn error_fields_are_where_other_drivers_print_them() {
        // A dump that UCX's fields name: hw_synd 0/157 is byte 52 and bits 7-4 of byte 53.
        let mut bytes = [0; 64];
        bytes[32..36].copy_from_slice(&[0, 0, 0, 0x13]);
        bytes[52..64]
            .copy_from_slice(&[0x9d, 0x10, 0x53, 4, 0x0a, 0, 0x15, 0x42, 0, 0x19, 0xb0, 0xd2]);
        let entry = Cqe(&bytes).error().unwrap();
        assert_eq!((entry.queue, entry.operation()), (QueueKind::Send, Some("SEND")));
        assert_eq!((entry.qpn, entry.wqe_index, entry.owner), (0x1542, 0x19, 0));
        assert_eq!((entry.status, entry.vendor_syndrome), (Status::LocalProtection, 0x53));
        assert_eq!((entry.hardware_syndrome, entry.hardware_type), (157, 1));
        assert_eq!((entry.srqn_or_user_index, entry.signature), (0x13, 0xb0));
        // Other drivers have seen the lower four bits set, with type 0.
        bytes[53] = 0x01;
        assert_eq!(Cqe(&bytes).error().unwrap().hardware_type, 0);
        bytes[63] = 0xe3;
        let entry = Cqe(&bytes).error().unwrap();
        assert_eq!((entry.queue, entry.operation(), entry.owner), (QueueKind::Receive, None, 1));
        bytes[63] = 0x01;
        assert_eq!(Cqe(&bytes).error(), None);
    }

    #[test]
    fn prints_any_bytes() {
        any_input(entry_bytes(), |raw| assert!(!Cqe(&raw).to_string().is_empty()));
    }
}
