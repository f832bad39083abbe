//! Events of a queue in memory of a fixed size.
//!
//! WQEs, doorbells and CQEs each have a ring of their own, so that none pushes out another's, and
//! are put in order by a number that all events of a queue count.

use mlx5_sys::wqe::WQEBB_SIZE;

use super::settings::Config;

/// Words of eight bytes in a block.
const WORDS: usize = WQEBB_SIZE / 8;

/// 64 bytes as they lie in memory.
pub(super) type Block = [u64; WORDS];

/// When something happened: its place among the queue's events, and the counter.
#[derive(Clone, Copy, Default)]
pub(super) struct Moment {
    pub(super) order: u64,
    pub(super) tick: u64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Wqe {
    pub(super) moment: Moment,
    pub(super) size: u32,
    pub(super) index: u16,
    pub(super) found: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Bell {
    pub(super) moment: Moment,
    pub(super) bell: mlx5_diag::flight::Doorbell,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Cqe {
    pub(super) moment: Moment,
    pub(super) bytes: Block,
}

/// The last events, with room for as many of each kind.
pub(super) struct Log {
    /// Room for each kind, less one: a power of two, less one.
    mask: usize,
    /// Blocks that are kept of a WQE.
    blocks: usize,
    wqes: Box<[Wqe]>,
    /// `blocks` for each WQE.
    bytes: Box<[Block]>,
    bells: Box<[Bell]>,
    cqes: Box<[Cqe]>,
    /// Events of each kind so far.
    pub(super) counts: [u64; 3],
}

impl Log {
    pub(super) fn new(config: Config) -> Self {
        let (room, blocks) = config.rooms();
        let bell = mlx5_diag::flight::Doorbell {
            kind: mlx5_diag::flight::DoorbellKind::Doorbell,
            record: 0,
            register: None,
        };
        Self {
            mask: room - 1,
            blocks,
            wqes: vec![Wqe::default(); room].into(),
            bytes: vec![[0; WORDS]; room * blocks].into(),
            bells: vec![Bell { moment: Moment::default(), bell }; room].into(),
            cqes: vec![Cqe::default(); room].into(),
            counts: [0; 3],
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.counts = [0; 3];
    }

    /// Adds a WQE. `fill` writes the blocks that are kept, by their numbers.
    #[inline(always)]
    pub(super) fn wqe(&mut self, wqe: Wqe, mut fill: impl FnMut(usize, &mut Block)) {
        let at = self.counts[0] as usize & self.mask;
        self.counts[0] += 1;
        self.wqes[at] = wqe;
        let kept = (wqe.size as usize).div_ceil(WQEBB_SIZE).min(self.blocks);
        let places = &mut self.bytes[at * self.blocks..][..kept];
        for (number, place) in places.iter_mut().enumerate() {
            fill(number, place);
        }
    }

    #[inline(always)]
    pub(super) fn bell(&mut self, bell: Bell) {
        let at = self.counts[1] as usize & self.mask;
        self.counts[1] += 1;
        self.bells[at] = bell;
    }

    #[inline(always)]
    pub(super) fn cqe(&mut self, cqe: Cqe) {
        let at = self.counts[2] as usize & self.mask;
        self.counts[2] += 1;
        self.cqes[at] = cqe;
    }

    /// Places of the events of a kind that are there, oldest first.
    fn places(&self, kind: usize) -> impl Iterator<Item = usize> + use<> {
        let (count, mask) = (self.counts[kind], self.mask);
        let there = count.min(mask as u64 + 1);
        (count - there..count).map(move |number| number as usize & mask)
    }

    pub(super) fn wqes(&self) -> impl Iterator<Item = (&Wqe, Vec<u8>)> {
        self.places(0).map(|at| {
            let wqe = &self.wqes[at];
            let blocks = &self.bytes[at * self.blocks..][..self.blocks];
            let words = blocks.iter().flatten().flat_map(|word| word.to_ne_bytes());
            (wqe, words.take(wqe.size as usize).collect())
        })
    }

    pub(super) fn bells(&self) -> impl Iterator<Item = &Bell> {
        self.places(1).map(|at| &self.bells[at])
    }

    pub(super) fn cqes(&self) -> impl Iterator<Item = &Cqe> {
        self.places(2).map(|at| &self.cqes[at])
    }
}
