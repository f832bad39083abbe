//! CQEs as text.

use core::fmt;

use mlx5_sys::cqe::{
    Cqe64, ErrorCqe, FORMAT_COMPRESSED, FORMAT_INLINE_32, FORMAT_INLINE_64, NUMBER_MASK, opcode,
};
use mlx5_sys::wqe::opcode as wqe_opcode;
use zerocopy::FromBytes;

use super::Hex;
use crate::explain::Status;

/// A CQE's 64 bytes, as they lie in memory. Of a 128-byte CQE, the last 64.
#[derive(Clone, Copy, Debug)]
pub struct Cqe<'a>(pub &'a [u8; 64]);

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
        if matches!(cqe.opcode(), opcode::REQ_ERR | opcode::RESP_ERR) {
            let Ok(error) = ErrorCqe::read_from_bytes(self.0) else { return Err(fmt::Error) };
            let status = Status::from_syndrome(error.syndrome);
            write!(f, ": {status}, syndrome {:#04x}", error.syndrome)?;
            write!(f, ", vendor code {:#04x}", error.vendor_err_synd)?;
            if error.hw_err_synd != 0 || error.hw_synd_type != 0 {
                let part = error.hw_synd_type >> 4;
                write!(f, ", hardware syndrome {part}/{:#04x}", error.hw_err_synd)?;
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
    fn prints_any_bytes() {
        any_input(entry_bytes(), |raw| assert!(!Cqe(&raw).to_string().is_empty()));
    }
}
