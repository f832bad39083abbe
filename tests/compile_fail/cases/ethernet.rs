//! Raw packet queue pairs: Ethernet frames only.

/// A raw packet queue pair sends frames, and has no RDMA.
mod operations {
    use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

    #[cfg(misuse)]
    unsafe fn write(queue: &mut SendQueue<RawPacket>, sge: Sge, remote: Remote) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, RdmaWrite::new(sge, remote)) };
        //~^ E0277 RdmaWrite<Sge> cannot be posted on the transport RawPacket
    }

    unsafe fn frame(queue: &mut SendQueue<RawPacket>, sge: Sge) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, EthSend::new(sge)) };
    }
}

/// Large sends exist for raw packets only.
mod large_send {
    use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

    #[cfg(misuse)]
    unsafe fn large(queue: &mut SendQueue<Ud>, header: &[u8], sge: Sge) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, EthTso::new(header, 1400, sge)) };
        //~^ E0277 EthTso<Sge> cannot be posted on the transport Ud
    }

    mod large_accepted {
        use super::*;

        unsafe fn large(queue: &mut SendQueue<RawPacket>, header: &[u8], sge: Sge) {
            // SAFETY: compiled, and never run.
            let _ = unsafe { queue.post(1, EthTso::new(header, 1400, sge)) };
        }
    }
}

/// A raw packet queue pair counts in the port's counter set, and in no other.
mod counters {
    use mlx5::{devx::*, ib::*, verbs::*};

    #[cfg(misuse)]
    fn packets(counters: &QueueCounters, qp: &QueuePair<RawPacket, Rts>) {
        let _ = counters.count(qp);
        //~^ E0277 queue pairs of transport RawPacket are not made by CREATE_QP
    }

    fn connection(counters: &QueueCounters, qp: &QueuePair<Rc, Rts>) {
        let _ = counters.count(qp);
    }
}

/// The bytes of a packet are lent until the next poll.
mod lent {
    use mlx5::packet::*;

    #[cfg(misuse)]
    fn longer(receiver: &mut PacketReceiver) -> Option<u8> {
        let first = receiver.poll(1).next()?.ok()?;
        let bytes = first.bytes();
        let _ = receiver.poll(1);
        //~^ E0499 cannot borrow *receiver as mutable more than once at a time
        bytes.first().copied()
    }

    #[cfg(misuse)]
    fn outlives(mut receiver: PacketReceiver) -> Option<u8> {
        let first = receiver.poll(1).next()?.ok()?;
        drop(receiver);
        //~^ E0505 cannot move out of receiver because it is borrowed
        first.bytes().first().copied()
    }

    fn kept(mut receiver: PacketReceiver) -> Option<u8> {
        let first = receiver.poll(1).next()?.ok()?.keep()?;
        let _ = receiver.poll(1);
        drop(receiver);
        first.first().copied()
    }
}
