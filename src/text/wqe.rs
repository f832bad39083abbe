//! WQEs as text.

use core::fmt;

use mlx5_sys::wqe::{
    AtomicSeg, CE_MASK, CtrlSeg, DataSeg, FENCE_MASK, INLINE_SEG, INVALID_LKEY, InlineHeader,
    RaddrSeg, SEGMENT_SIZE, SOLICITED, opcode,
};
use zerocopy::FromBytes;

use super::Hex;

/// Inline payload shown before the rest is cut off, in bytes.
const SHOWN: usize = 32;

/// A send WQE of an RC queue pair: its bytes from the ctrl segment on, made contiguous where it
/// wraps. Bytes beyond the WQE's own size are ignored.
#[derive(Clone, Copy, Debug)]
pub struct SendWqe<'a>(pub &'a [u8]);

/// A receive WQE without a leading segment of its own: scatter entries up to the terminator or the
/// end of the bytes.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWqe<'a>(pub &'a [u8]);

/// Takes a segment off the front of what is left; says so if there is not enough.
fn segment<S: FromBytes>(rest: &mut &[u8], name: &str, f: &mut fmt::Formatter<'_>) -> Read<S> {
    match S::read_from_prefix(rest) {
        Ok((segment, later)) => {
            *rest = later;
            Ok(Some(segment))
        }
        Err(_) => {
            write!(f, "\n  {name}: missing, {} bytes left: {}", rest.len(), Hex(rest))?;
            *rest = &[];
            Ok(None)
        }
    }
}

type Read<S> = Result<Option<S>, fmt::Error>;

impl fmt::Display for SendWqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok((ctrl, _)) = CtrlSeg::read_from_prefix(self.0) else {
            return write!(f, "send WQE of {} bytes, too short: {}", self.0.len(), Hex(self.0));
        };
        let (first, second) = (ctrl.opmod_idx_opcode.get(), ctrl.qpn_ds.get());
        let (code, ds) = (first as u8, (second & 0x3f) as usize);
        match opcode::name(code) {
            Some(name) => write!(f, "{name}")?,
            None => write!(f, "opcode {code:#04x} (unknown)")?,
        }
        write!(f, " WQE {:#06x} QP {:#x} ds {ds}", first >> 8 & 0xffff, second >> 8)?;
        write_flags(f, ctrl.fm_ce_se)?;
        if first >> 24 != 0 {
            write!(f, " opmod {:#04x}", first >> 24)?;
        }
        if ctrl.imm.get() != 0 {
            write!(f, " imm {:#010x}", ctrl.imm.get())?;
        }
        if ctrl.signature != 0 {
            write!(f, " signature {:#04x}", ctrl.signature)?;
        }
        let size = ds * SEGMENT_SIZE;
        if size < CtrlSeg::SIZE {
            return f.write_str(" (ds does not cover the ctrl segment)");
        }
        if size > self.0.len() {
            write!(f, " (only {} of {size} bytes given)", self.0.len())?;
        }
        let mut rest = &self.0[CtrlSeg::SIZE..size.min(self.0.len())];
        match code {
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM | opcode::RDMA_READ => {
                write_remote(&mut rest, f)?;
            }
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => {
                write_remote(&mut rest, f)?;
                if let Some(atomic) = segment::<AtomicSeg>(&mut rest, "atomic", f)? {
                    let (operand, compare) = (atomic.swap_add.get(), atomic.compare.get());
                    match code {
                        opcode::ATOMIC_CS => {
                            write!(f, "\n  atomic: compare {compare:#x}, swap {operand:#x}")?;
                        }
                        _ => write!(f, "\n  atomic: add {operand:#x}")?,
                    }
                }
            }
            opcode::NOP | opcode::SEND | opcode::SEND_IMM | opcode::SEND_INVAL => {}
            _ => return write!(f, "\n  segments: {}", Hex(rest)),
        }
        while !rest.is_empty() {
            write_data(&mut rest, f)?;
        }
        Ok(())
    }
}

fn write_flags(f: &mut fmt::Formatter<'_>, flags: u8) -> fmt::Result {
    f.write_str(match flags & CE_MASK {
        0 => "",
        0x04 => " first-error",
        0x08 => " signaled",
        _ => " signaled+event",
    })?;
    if flags & SOLICITED != 0 {
        f.write_str(" solicited")?;
    }
    f.write_str(match (flags & FENCE_MASK) >> 5 {
        0 => "",
        1 => " small-fence",
        2 => " fence",
        3 => " strong-order",
        4 => " fenced",
        _ => " fence-mode?",
    })?;
    if flags & 0x11 != 0 {
        write!(f, " flag bits {:#04x}", flags & 0x11)?;
    }
    Ok(())
}

fn write_remote(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(remote) = segment::<RaddrSeg>(rest, "remote", f)? else { return Ok(()) };
    write!(f, "\n  remote: {:#x} rkey {:#x}", remote.raddr.get(), remote.rkey.get())
}

/// A data segment, or inline data to the end of its padding.
fn write_data(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let all = *rest;
    let Some(data) = segment::<DataSeg>(rest, "data", f)? else { return Ok(()) };
    let count = data.byte_count.get();
    if count & INLINE_SEG == 0 {
        write!(f, "\n  data: {:#x}, ", data.addr.get())?;
        match count {
            0 => f.write_str("2 GiB")?,
            _ => write!(f, "{count} bytes")?,
        }
        return write!(f, ", lkey {:#x}", data.lkey.get());
    }
    let length = (count & !INLINE_SEG) as usize;
    let payload = &all[InlineHeader::SIZE..];
    write!(
        f,
        "\n  inline: {length} bytes: {}",
        Hex(&payload[..length.min(payload.len()).min(SHOWN)])
    )?;
    if length > payload.len() {
        write!(f, " (only {} in the WQE)", payload.len())?;
        *rest = &[];
        return Ok(());
    }
    if length > SHOWN {
        f.write_str(" ...")?;
    }
    let used = (InlineHeader::SIZE + length).next_multiple_of(SEGMENT_SIZE);
    *rest = all.get(used..).unwrap_or_default();
    Ok(())
}

impl fmt::Display for ReceiveWqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("receive WQE")?;
        let mut rest = self.0;
        while let Ok((data, later)) = DataSeg::read_from_prefix(rest) {
            if data.byte_count.get() == 0 && data.lkey.get() == INVALID_LKEY {
                return f.write_str("\n  end");
            }
            if data.byte_count.get() & INLINE_SEG != 0 {
                write!(f, "\n  not a scatter entry: {}", Hex(&rest[..SEGMENT_SIZE]))?;
                rest = later;
                continue;
            }
            write_data(&mut rest, f)?;
        }
        if !rest.is_empty() {
            write!(f, "\n  {} bytes left: {}", rest.len(), Hex(rest))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::random::Random;
    use zerocopy::IntoBytes;

    fn ctrl(code: u8, ds: u32, flags: u8) -> CtrlSeg {
        CtrlSeg {
            opmod_idx_opcode: (0xabcd << 8 | u32::from(code)).into(),
            qpn_ds: (0x77 << 8 | ds).into(),
            fm_ce_se: flags,
            ..CtrlSeg::default()
        }
    }

    #[test]
    fn shows_every_segment() {
        let mut wqe = ctrl(opcode::RDMA_WRITE, 4, 0x8a).as_bytes().to_vec();
        let remote = RaddrSeg { raddr: 0x1000.into(), rkey: 0x99.into(), reserved: 0.into() };
        wqe.extend(remote.as_bytes());
        wqe.extend((INLINE_SEG | 13).to_be_bytes());
        wqe.extend(b"thirteen byte");
        wqe.extend([0xee; 15]);
        let text = SendWqe(&wqe).to_string();
        assert_eq!(
            text,
            "RDMA_WRITE WQE 0xabcd QP 0x77 ds 4 signaled solicited fenced\n  \
             remote: 0x1000 rkey 0x99\n  \
             inline: 13 bytes: 74686972 7465656e 20627974 65"
        );

        let data = DataSeg { byte_count: 64.into(), lkey: 7.into(), addr: 0x2000.into() };
        let end = DataSeg { byte_count: 0.into(), lkey: INVALID_LKEY.into(), addr: 0.into() };
        let mut wqe = data.as_bytes().to_vec();
        wqe.extend(end.as_bytes());
        assert_eq!(
            ReceiveWqe(&wqe).to_string(),
            "receive WQE\n  data: 0x2000, 64 bytes, lkey 0x7\n  end"
        );
    }

    #[test]
    fn says_what_is_wrong() {
        assert!(SendWqe(&[1, 2, 3]).to_string().contains("too short"));
        let wqe = ctrl(opcode::ATOMIC_CS, 2, 0);
        assert!(SendWqe(wqe.as_bytes()).to_string().contains("only 16 of 32 bytes given"));
        let wqe = ctrl(opcode::SEND, 0, 0);
        assert!(SendWqe(wqe.as_bytes()).to_string().contains("does not cover"));
    }

    #[test]
    fn prints_any_bytes() {
        let mut random = Random::from_clock();
        for _ in 0..20_000 {
            let length = random.below(300) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            if length > 3 && random.below(2) == 0 {
                // Opcodes that have segments of their own are rare otherwise.
                bytes[3] = [8, 9, 0xa, 0xb, 0x10, 0x11, 0x12][random.below(7) as usize];
            }
            assert!(!SendWqe(&bytes).to_string().is_empty());
            assert!(!ReceiveWqe(&bytes).to_string().is_empty());
        }
    }
}
