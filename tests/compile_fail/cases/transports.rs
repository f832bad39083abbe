//! Transports: an operation exists only where the HCA executes it.

/// An RC queue pair fails as a whole. Only an SQ that stopped alone goes on.
mod recovery {
    use mlx5::{ring::*, ib::*, verbs::*};

    #[cfg(misuse)]
    fn again(queue: &mut SendQueue<Rc>) {
        let _ = queue.recover();
        //~^ E0599 recover exists trait bounds were not satisfied
    }

    mod again_accepted {
        use super::*;

        fn again(queue: &mut SendQueue<Ud>) {
            let _ = queue.recover();
        }
    }
}

/// Atomics, also masked ones, need a reliable peer that answers.
mod atomics {
    use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

    #[cfg(misuse)]
    fn unreliable(queue: &mut SendQueue<Uc>, old: Word, at: Remote) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, MaskedFetchAdd::new(old, at, 1u64)) };
        //~^ E0277 MaskedFetchAdd cannot be posted on the transport Uc
    }

    fn reliable(queue: &mut SendQueue<Rc>, old: Word, at: Remote) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, MaskedFetchAdd::new(old, at, 1u64)) };
    }
}

/// Masked atomics take operands of the sizes that HCAs know.
mod operands {
    use mlx5::wqe::*;

    #[cfg(misuse)]
    fn short(old: Word, at: Remote) {
        let _ = MaskedFetchAdd::new(old, at, 1u16);
        //~^ E0277 the trait bound u16: Number is not satisfied
    }

    fn long(old: Word, at: Remote) {
        let _ = MaskedFetchAdd::new(old, at, 1u32);
    }
}

/// A UD request carries its address, and SEND is its only operation.
mod datagrams {
    use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

    #[cfg(misuse)]
    fn to_nobody(queue: &mut SendQueue<Ud>, sge: Sge) -> Result<(), PostError> {
        // SAFETY: compiled, and never run.
        unsafe { queue.post(1, SendMessage::new(sge)) }
        //~^ E0277 SendMessage<Sge> cannot be posted on the transport Ud
    }

    #[cfg(misuse)]
    fn read(queue: &mut SendQueue<Ud>, sge: Sge, to: UdAddress) -> Result<(), PostError> {
        // SAFETY: compiled, and never run.
        unsafe { queue.post(1, RdmaRead::new(sge, Remote::new(0, 0)).to(to)) }
        //~^ E0277 To<RdmaRead<Sge>, UdAddress> cannot be posted on the transport Ud
    }

    fn to_somebody(queue: &mut SendQueue<Ud>, sge: Sge, to: UdAddress) -> Result<(), PostError> {
        // SAFETY: compiled, and never run.
        unsafe { queue.post(1, SendMessage::new(sge).to(to)) }
    }
}

/// A DCI request carries its address, and a DCI receives nothing. A DCT only receives.
mod dynamic {
    #[cfg(misuse)]
    mod to_nobody_refused {
        use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

        fn to_nobody(queue: &mut SendQueue<Dci>, sge: Sge) -> Result<(), PostError> {
            // SAFETY: compiled, and never run.
            unsafe { queue.post(1, RdmaWrite::new(sge, Remote::new(0, 0))) }
            //~^ E0277 RdmaWrite<Sge> cannot be posted on the transport Dci
        }
    }

    #[cfg(misuse)]
    mod datagram_refused {
        use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

        fn datagram(queue: &mut SendQueue<Dci>, sge: Sge, to: UdAddress) -> Result<(), PostError> {
            // SAFETY: compiled, and never run.
            unsafe { queue.post(1, RdmaWrite::new(sge, Remote::new(0, 0)).to(to)) }
            //~^ E0277 To<RdmaWrite<Sge>, UdAddress> cannot be posted on the transport Dci
        }
    }

    #[cfg(misuse)]
    mod receives_refused {
        use mlx5::{ring::*, ib::*, verbs::*};

        fn receives(
            qp: &QueuePair<Dci, Rts>,
            completions: &mut CqReader,
        ) -> mlx5::Result<ReceiveQueue> {
            ReceiveQueue::new(qp, completions, ReceiveConfig::default())
            //~^ E0277 queue pairs of transport Dci take no receives
        }
    }

    #[cfg(misuse)]
    mod sends_refused {
        use mlx5::{ib::*, verbs::{attr::*, *}};

        fn sends(qp: QueuePair<Dct, Rtr>) {
            let _ = qp.rts(&RtsAttributes::default());
            //~^ E0599 rts exists trait bounds were not satisfied
        }
    }

    mod to_target_accepted {
        use mlx5::{ring::*, ib::*, verbs::{attr::*, *}, wqe::*};

        fn to_target(queue: &mut SendQueue<Dci>, sge: Sge, to: DcAddress) -> Result<(), PostError> {
            // SAFETY: compiled, and never run.
            unsafe { queue.post(1, RdmaWrite::new(sge, Remote::new(0, 0)).to(to)) }
        }
        fn receives(
            qp: &QueuePair<Dct, Rtr>,
            shared: &mut Srq,
            completions: &mut CqReader,
        ) -> mlx5::Result<()> {
            shared.attach(qp, completions)
        }
        fn sends(qp: QueuePair<Dci, Rtr>) {
            let _ = qp.rts(&RtsAttributes::default());
        }
    }
}

/// A request on a connection carries no address.
mod connected {
    use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

    #[cfg(misuse)]
    fn elsewhere(queue: &mut SendQueue<Rc>, sge: Sge, to: UdAddress) -> Result<(), PostError> {
        // SAFETY: compiled, and never run.
        unsafe { queue.post(1, SendMessage::new(sge).to(to)) }
        //~^ E0277 To<SendMessage<Sge>, UdAddress> cannot be posted on the transport Rc
    }

    fn to_peer(queue: &mut SendQueue<Rc>, sge: Sge) -> Result<(), PostError> {
        // SAFETY: compiled, and never run.
        unsafe { queue.post(1, SendMessage::new(sge)) }
    }
}

/// UC has no READ, no atomics and no time-outs.
mod unreliable {
    #[cfg(misuse)]
    mod add_refused {
        use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

        fn add(queue: &mut SendQueue<Uc>, old: Word, remote: Remote) -> Result<(), PostError> {
            // SAFETY: compiled, and never run.
            unsafe { queue.post(1, FetchAdd::new(old, remote, 1)) }
            //~^ E0277 FetchAdd cannot be posted on the transport Uc
        }
    }

    #[cfg(misuse)]
    mod timeouts_refused {
        use mlx5::{ib::*, verbs::{attr::*, *}};

        fn timeouts(qp: QueuePair<Uc, Rtr>) {
            let _ = qp.rts(&RtsAttributes::default());
            //~^ E0308 mismatched types expected &UnreliableRtsAttributes, found &RtsAttributes
        }
    }

    mod write_accepted {
        use mlx5::{ring::*, ib::*, verbs::{attr::*, *}, wqe::*};

        fn write(queue: &mut SendQueue<Uc>, sge: Sge, remote: Remote) -> Result<(), PostError> {
            // SAFETY: compiled, and never run.
            unsafe { queue.post(1, RdmaWrite::new(sge, remote)) }
        }
        fn none(qp: QueuePair<Uc, Rtr>) {
            let _ = qp.rts(&UnreliableRtsAttributes::default());
        }
    }
}

/// Only UD queue pairs join multicast groups.
mod multicast {
    use mlx5::{ib::*, verbs::*};

    #[cfg(misuse)]
    fn join(qp: &QueuePair<Uc, Rts>, group: Gid) -> mlx5::Result<MulticastMembership> {
        qp.attach_multicast(group, 0)
        //~^ E0599 no method named attach_multicast found
    }

    mod join_accepted {
        use super::*;

        fn join(qp: &QueuePair<Ud, Rts>, group: Gid) -> mlx5::Result<MulticastMembership> {
            qp.attach_multicast(group, 0)
        }
    }
}

/// Memory windows are bound on connections. Only type 2 is invalidated.
mod windows {
    #[cfg(misuse)]
    mod bind_refused {
        use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

        unsafe fn bind(queue: &mut SendQueue<Ud>, request: BindWindow) -> Result<(), PostError> {
            // SAFETY: compiled, and never run.
            unsafe { queue.post(1, request) }
            //~^ E0277 BindWindow cannot be posted on the transport Ud
        }
    }

    mod bind_accepted {
        use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

        unsafe fn bind(queue: &mut SendQueue<Uc>, request: BindWindow) -> Result<(), PostError> {
            // SAFETY: compiled, and never run.
            unsafe { queue.post(1, request) }
        }
    }

    #[cfg(misuse)]
    mod end_refused {
        use mlx5::{ib::*, verbs::*, wqe::*};

        fn end(window: &MemoryWindow<Type1>) -> LocalInvalidate {
            window.invalidate()
            //~^ E0599 no method named invalidate found
        }
    }

    mod end_accepted {
        use mlx5::{ib::*, verbs::*, wqe::*};

        fn end(window: &MemoryWindow<Type2>) -> LocalInvalidate {
            window.invalidate()
        }
    }
}

/// UC has no SEND with invalidate.
mod send_invalidate {
    use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

    #[cfg(misuse)]
    unsafe fn end(queue: &mut SendQueue<Uc>, rkey: u32) -> Result<(), PostError> {
        // SAFETY: compiled, and never run.
        unsafe { queue.post(1, SendInvalidate::new(Inline(b"done"), rkey)) }
        //~^ E0277 SendInvalidate<Inline> cannot be posted on the transport Uc
    }

    mod end_accepted {
        use super::*;

        unsafe fn end(queue: &mut SendQueue<Rc>, rkey: u32) -> Result<(), PostError> {
            // SAFETY: compiled, and never run.
            unsafe { queue.post(1, SendInvalidate::new(Inline(b"done"), rkey)) }
        }
    }
}

/// An XRC request names an SRQ.
mod xrc_address {
    use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

    #[cfg(misuse)]
    fn nowhere(queue: &mut SendQueue<XrcSend>, sge: Sge) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, SendMessage::new(sge)) };
        //~^ E0277 SendMessage<Sge> cannot be posted on the transport XrcSend
    }

    #[cfg(misuse)]
    fn elsewhere(queue: &mut SendQueue<XrcSend>, sge: Sge, to: UdAddress) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, SendMessage::new(sge).to(to)) };
        //~^ E0277 To<SendMessage<Sge>, UdAddress> cannot be posted on the transport XrcSend
    }

    fn somewhere(queue: &mut SendQueue<XrcSend>, sge: Sge, to: XrcAddress) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, SendMessage::new(sge).to(to)) };
    }
}

/// SEND with invalidate takes an address on XRC. A local invalidate takes none.
mod invalidate {
    use mlx5::{ring::*, ib::*, verbs::*, wqe::*};

    #[cfg(misuse)]
    fn nowhere(queue: &mut SendQueue<XrcSend>, rkey: u32) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, SendInvalidate::new(Inline(b"done"), rkey)) };
        //~^ E0277 SendInvalidate<Inline> cannot be posted on the transport XrcSend
    }

    #[cfg(misuse)]
    fn somewhere(queue: &mut SendQueue<Dci>, rkey: u32, to: DcAddress) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { queue.post(1, LocalInvalidate::new(rkey).to(to)) };
        //~^ E0599 no method named to found
    }

    fn both(xrc: &mut SendQueue<XrcSend>, dc: &mut SendQueue<Dci>, rkey: u32, to: XrcAddress) {
        // SAFETY: compiled, and never run.
        let _ = unsafe { xrc.post(1, SendInvalidate::new(Inline(b"done"), rkey).to(to)) };
        // SAFETY: compiled, and never run.
        let _ = unsafe { dc.post(1, LocalInvalidate::new(rkey)) };
    }
}

/// Neither end of XRC has receives, and the target has no queues.
mod xrc_receives {
    #[cfg(misuse)]
    mod receive_refused {
        use mlx5::{ring::*, ib::*, verbs::*};

        fn receive(qp: &QueuePair<XrcSend, Init>, completions: &mut CqReader) {
            let _ = ReceiveQueue::new(qp, completions, ReceiveConfig::default());
            //~^ E0277 queue pairs of transport XrcSend take no receives
        }
    }

    #[cfg(misuse)]
    mod share_refused {
        use mlx5::{ring::*, ib::*, verbs::*};

        fn share(srq: &mut Srq, qp: &QueuePair<XrcRecv, Init>, cq: &mut CqReader) {
            let _ = srq.attach(qp, cq);
            //~^ E0277 queue pairs of transport XrcRecv take no receives
        }
    }

    #[cfg(misuse)]
    mod answers_refused {
        use mlx5::{ib::*, verbs::*};

        fn answers(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &SharedReceiveQueue) {
            let _ = QueuePairBuilder::<XrcSend>::new(pd, cq).shared_receive_queue(srq);
            //~^ E0599 shared_receive_queue exists trait bounds were not satisfied
        }
    }

    #[cfg(misuse)]
    mod cq_refused {
        use mlx5::{ib::*, verbs::*};

        fn cq(qp: &QueuePair<XrcRecv, Rts>) {
            let _ = qp.send_cq();
            //~^ E0599 send_cq exists trait bounds were not satisfied
        }
    }

    mod share_accepted {
        use mlx5::{ring::*, ib::*, verbs::*};

        fn share(srq: &mut Srq, qp: &QueuePair<Rc, Init>, cq: &mut CqReader) {
            let _ = srq.attach(qp, cq);
        }
        fn cq(qp: &QueuePair<XrcSend, Rts>) {
            let _ = qp.send_cq();
        }
        fn answers(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &SharedReceiveQueue) {
            let _ = QueuePairBuilder::<Rc>::new(pd, cq).shared_receive_queue(srq);
        }
    }
}

/// Tags are matched on RC only.
mod tag_matching {
    use mlx5::{expert::*, ring::*, ib::*, verbs::*};

    #[cfg(misuse)]
    fn datagrams(
        tags: &mut TmSrq,
        qp: &QueuePair<Ud, Init>,
        completions: &mut CqReader,
    ) {
        let _ = tags.attach(qp, completions);
        //~^ E0271 type mismatch resolving Transport == Rc
    }

    fn reliable(
        tags: &mut TmSrq,
        qp: &QueuePair<Rc, Init>,
        completions: &mut CqReader,
    ) {
        let _ = tags.attach(qp, completions);
    }
}

/// A tag header goes before a gather list, because it takes the space of inline data.
mod tag_header {
    use mlx5::{expert::*, wqe::*};

    #[cfg(misuse)]
    fn misused() {
        let message = SendMessage::new((TagHeader::eager(7), Inline(b"bytes")));
        //~^ E0277 the trait bound Inline: SgeList is not satisfied
    }

    fn used() {
        let message = SendMessage::new((TagHeader::eager(7), Sge::new(0, 5, 0)));
    }
}
