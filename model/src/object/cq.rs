//! Completion queues.

use mlx5_sys::ifc::{Field, cqc};

use super::{Compression, Pages};

/// The condition that a CQ is armed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The next completion.
    Any,
    /// The next solicited completion, or an error.
    Solicited,
}

/// Completions that an armed CQ has not reported by an event yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untold {
    /// Their number.
    pub(crate) completions: u32,
    /// Latest time for the event.
    pub(crate) deadline: u64,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub struct Cq {
    /// User context that created it.
    pub uid: u16,
    /// The CQ context as commands have set it.
    pub context: Box<[u8; cqc::SIZE]>,
    /// The ring.
    pub pages: Pages,
    /// CQEs in the ring, a power of two.
    pub entries: u32,
    /// Bytes of a CQE: 64 or 128.
    pub cqe_size: usize,
    /// Counter (24 bits) of the next CQE to write.
    pub producer: u32,
    /// Counter (24 bits) of the first CQE not yet taken: the doorbell record as last read.
    pub consumer: u32,
    /// The condition it is armed for.
    pub armed: Option<Arm>,
    /// Sequence number of the arm that fired the last event. Arming again with it is a repetition.
    pub fired: Option<u8>,
    /// The last arm: sequence number in bits 29:28, command in 24, consumer counter below.
    pub arm_word: u32,
    /// Producer counter at the last event: completions before it have been reported.
    pub notified: u32,
    /// Counter after the last solicited or failed completion.
    pub solicited: u32,
    /// Whether it failed: no more CQEs are written.
    pub failed: bool,
    /// The CQEs held back, if the CQ compresses.
    pub compression: Option<Compression>,
    /// Completions whose event moderation delays.
    pub untold: Option<Untold>,
    /// CQEs of the ring that were not written yet, and that software should have made invalid.
    pub unwritten: u32,
}

impl Cq {
    /// Returns a field of the context.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.context[..]) as u32
    }

    /// Returns whether every CQE overwrites the one before.
    pub fn is_collapsed(&self) -> bool {
        self.get(cqc::CC) == 1
    }

    /// Returns the laps of the ring, modulo 256: byte 62 of a CQE in the enhanced layout.
    pub fn iteration(&self) -> u8 {
        (self.producer >> self.entries.ilog2()) as u8
    }

    /// Returns the address of the doorbell record.
    pub fn record(&self) -> u64 {
        cqc::DBR_ADDR.get(&self.context[..])
    }

    /// Returns the context with its current state.
    pub fn query(&self) -> [u8; cqc::SIZE] {
        let mut context = *self.context;
        cqc::STATUS.set(&mut context, if self.failed { 0x9 } else { 0 });
        cqc::ST.set(
            &mut context,
            match (self.armed, self.fired) {
                (Some(Arm::Solicited), _) => 0x6,
                (Some(Arm::Any), _) => 0x9,
                (None, _) => 0xa,
            },
        );
        cqc::PRODUCER_COUNTER.set(&mut context, self.producer.into());
        cqc::CONSUMER_COUNTER.set(&mut context, self.consumer.into());
        // The index of the CQE itself: a ConnectX-6 Dx has 0xffffff in both before the first one (evidence
        // F149).
        let last = |after: u32| u64::from(after.wrapping_sub(1) & 0xff_ffff);
        cqc::LAST_NOTIFIED_INDEX.set(&mut context, last(self.notified));
        cqc::LAST_SOLICIT_INDEX.set(&mut context, last(self.solicited));
        context
    }
}
