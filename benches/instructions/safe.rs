//! This crate, owned layer.

use mlx5::endpoint::{Buffers, Endpoint, MrSlice, Outcome, Receiver};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{InlineBytes, RdmaWrite, Remote};

use crate::MODE;
use crate::side::{LENGTH, LIST, Row, Side, forget, put_back, shape, watch};
use rig::Rig;

/// Slices at hand: as many as are in flight at once, for sends and for receives.
pub const SLICES: usize = 128;

pub struct Safe {
    pub channel: Endpoint<Rc>,
    slices: Vec<MrSlice>,
    pub remote: Remote,
    sum: u64,
    _peer: QueuePair<Rc, Rts>,
    _target: MemoryRegion,
    _rig: Rig,
}

impl Safe {
    pub fn new() -> Self {
        let rig = Rig::new(MODE);
        let (cq, peer_cq) = (rig.cq(511), rig.cq(511));
        let qp = rig.init(shape(&rig, &cq));
        let mut completions = CqReader::new(&cq).expect("a CQ of its own");
        let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default());
        let (qp, peer) = rig.connect(qp, rig.init(shape(&rig, &peer_cq)));
        watch(qp.as_raw(), cq.as_raw());
        let receiver = receiver.expect("a QP of its own");
        let channel = Endpoint::new(qp, receiver, completions, SendConfig::default());
        let mut whole = MrSlice::new(rig.memory(SLICES * LENGTH as usize));
        let slices = (0..SLICES).rev().map(|at| whole.split_off(at * LENGTH as usize)).collect();
        let target = rig.memory(4096);
        let remote = Remote::new(target.remote_address(), target.rkey());
        Self {
            channel: channel.expect("a QP of its own"),
            slices,
            remote,
            sum: 0,
            _peer: peer,
            _target: target,
            _rig: rig,
        }
    }

    #[inline(never)]
    fn inline(&mut self, calls: usize) -> usize {
        for id in 0..calls as u64 {
            forget(self);
            let write = RdmaWrite::new(InlineBytes(id.to_ne_bytes()), self.remote).signaled();
            self.channel.post(id, write).expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn pointer(&mut self, calls: usize) -> usize {
        for id in 0..calls as u64 {
            forget(self);
            let Some(slice) = self.slices.pop() else { return id as usize };
            self.channel.post(id, RdmaWrite::new(slice, self.remote).signaled()).expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        for done in 0..calls {
            forget(self);
            let mut batch = self.channel.batch();
            for id in 0..LIST as u64 {
                let Some(slice) = self.slices.pop() else { return done * LIST };
                let write = RdmaWrite::new(slice, self.remote).signaled();
                batch.append(id, write).expect("appended");
            }
            batch.ring();
        }
        calls * LIST
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            forget(self);
            if let Some(Ok(returned)) = self.channel.poll().next() {
                if let Outcome::Sent(_) = returned.outcome {
                    self.sum += returned.id;
                    found += 1;
                }
                match returned.buffers {
                    Buffers::None => {}
                    Buffers::One(slice) => put_back(&mut self.slices, slice),
                    Buffers::Many(slices) => self.slices.extend(slices),
                }
            }
        }
        found
    }

    #[inline(never)]
    fn receive(&mut self, calls: usize) -> usize {
        for id in 0..calls as u64 {
            forget(self);
            let Some(slice) = self.slices.pop() else { return id as usize };
            self.channel.post_receive(id, slice).expect("posted");
        }
        calls
    }
}

impl Side for Safe {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::Inline => self.inline(calls),
            Row::Pointer => self.pointer(calls),
            Row::List => self.list(calls),
            Row::Poll | Row::Empty => self.poll(calls),
            Row::Receive => self.receive(calls),
            _ => return None,
        })
    }
}
