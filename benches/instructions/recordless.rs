//! This crate, raw layer, on a send queue without a doorbell record.

use mlx5::devx;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{RdmaWrite, Remote, Sge};

use crate::MODE;
use crate::side::{LENGTH, Row, Side, forget};
use rig::Rig;

pub struct Raw {
    send: SendQueue<Rc>,
    completions: CqReader,
    memory: MemoryRegion,
    _ends: [QueuePair<Rc, Rts, devx::Firmware>; 2],
    _rig: Rig,
}

impl Raw {
    pub fn new() -> Self {
        let rig = Rig::new(MODE);
        let cqs =
            [(); 2].map(|()| CompletionQueue::by_command(&rig.context, 512).build().expect("a CQ"));
        let [qp, peer] = cqs.each_ref().map(|cq| {
            let builder = QueuePair::by_command(&rig.pd, cq).max_send_wr(128).max_inline_data(64);
            rig.init(builder.without_send_record())
        });
        let ends: [_; 2] = rig.connect(qp, peer).into();
        let mut completions = CqReader::new(&cqs[0]).expect("a CQ of its own");
        let send = SendQueue::new(&ends[0], &mut completions, SendConfig::default());
        let send = send.expect("a queue pair of its own");
        let memory = rig.memory(4096);
        Self { send, completions, memory, _ends: ends, _rig: rig }
    }

    #[inline(never)]
    fn pointer(&mut self, calls: usize) -> usize {
        let sge = Sge::new(self.memory.address(), LENGTH, self.memory.lkey());
        let remote = Remote::new(self.memory.remote_address() + 1024, self.memory.rkey());
        for id in 0..calls as u64 {
            forget(&mut self.send);
            let write = RdmaWrite::new(sge, remote).signaled();
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(id, write) }.expect("posted");
        }
        calls
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::Recordless => Some(self.pointer(calls)),
            Row::Poll | Row::Empty if calls != 0 => {
                let taken = (0..calls).map_while(|_| self.completions.poll(&mut self.send).ok()?);
                Some(taken.count())
            }
            _ => None,
        }
    }
}
