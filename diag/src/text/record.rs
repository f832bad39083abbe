//! Doorbell records as text.

use core::fmt;

use mlx5_sys::doorbell::{
    ARM_SEQUENCE_SHIFT, ARM_SOLICITED, CONSUMER_INDEX_MASK, COUNTER_MASK, CQ_ARM_WORD,
    CQ_CONSUMER_WORD, RECEIVE_WORD, RECORD_SIZE, SEND_WORD,
};

fn word(bytes: &[u8; RECORD_SIZE], index: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[index * 4..][..4]);
    u32::from_be_bytes(word)
}

/// A queue pair's doorbell record, as it lies in memory.
#[derive(Clone, Copy, Debug)]
pub struct QpRecord<'a>(pub &'a [u8; RECORD_SIZE]);

impl fmt::Display for QpRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (receive, send) = (word(self.0, RECEIVE_WORD), word(self.0, SEND_WORD));
        write!(f, "receive {:#06x}, send {:#06x}", receive & COUNTER_MASK, send & COUNTER_MASK)?;
        if (receive | send) & !COUNTER_MASK != 0 {
            write!(f, " (bits 31-16 set: {receive:#010x} {send:#010x})")?;
        }
        Ok(())
    }
}

/// A completion queue's doorbell record, as it lies in memory.
#[derive(Clone, Copy, Debug)]
pub struct CqRecord<'a>(pub &'a [u8; RECORD_SIZE]);

impl fmt::Display for CqRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (consumer, arm) = (word(self.0, CQ_CONSUMER_WORD), word(self.0, CQ_ARM_WORD));
        let what = if arm & ARM_SOLICITED != 0 { "solicited" } else { "any" };
        write!(
            f,
            "consumer {:#08x}, arm sequence {} {what} from {:#08x}",
            consumer & CONSUMER_INDEX_MASK,
            arm >> ARM_SEQUENCE_SHIFT & 3,
            arm & CONSUMER_INDEX_MASK,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_named() {
        let record = [0, 0, 0x12, 0x34, 0, 0, 0, 5];
        assert_eq!(QpRecord(&record).to_string(), "receive 0x1234, send 0x0005");
        let record = [0, 0, 0, 7, 0x21, 0, 0, 7];
        let text = CqRecord(&record).to_string();
        assert_eq!(text, "consumer 0x000007, arm sequence 2 solicited from 0x000007");
    }
}
