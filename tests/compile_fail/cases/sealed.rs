//! Methods of sealed traits: programs cannot call those that would break a promise of the types.

/// The parts of an endpoint keep the memory in flight and their rings.
mod halves {
    use mlx5::{endpoint::*, ib::*, ring::*};

    #[cfg(misuse)]
    fn take_posted(receiver: &mut Receiver) {
        let _ = receiver.give_up();
        //~^ E0061 this method takes 1 argument but 0 arguments were supplied
    }

    #[cfg(misuse)]
    fn take_retired(receiver: &mut Receiver) {
        let _ = receiver.take_retired();
        //~^ E0061 this method takes 1 argument but 0 arguments were supplied
    }

    #[cfg(misuse)]
    fn swap_queues(a: &mut Receiver, b: &mut Receiver) {
        std::mem::swap(a.queue_mut(), b.queue_mut());
        //~^ E0061 this method takes 1 argument but 0 arguments were supplied
        //~^^ E0061 this method takes 1 argument but 0 arguments were supplied
    }

    #[cfg(misuse)]
    fn swap_states(a: &mut SendQueue<Rc>, b: &mut SendQueue<Ud>) {
        std::mem::swap(a.state_mut(), b.state_mut());
        //~^ E0061 this method takes 1 argument but 0 arguments were supplied
        //~^^ E0061 this method takes 1 argument but 0 arguments were supplied
    }

    fn look(receiver: &Receiver) -> u32 {
        receiver.queue().outstanding()
    }
}

/// The sources of queues keep their claims.
mod owners {
    use mlx5::{expert::*, ring::*};

    #[cfg(misuse)]
    fn release<C: CompletionSource>(cq: &C) {
        cq.owner().release();
        //~^ E0061 this method takes 1 argument but 0 arguments were supplied
    }

    #[cfg(misuse)]
    fn unclaim<S: SharedReceiveSource>(queue: &S) {
        queue.owner().unclaim(None);
        //~^ E0061 this method takes 1 argument but 0 arguments were supplied
    }

    #[cfg(misuse)]
    fn release_sends<S: SendSource>(qp: &S) {
        let _ = qp.owner();
        //~^ E0061 this method takes 1 argument but 0 arguments were supplied
    }

    #[cfg(misuse)]
    fn release_receives<S: ReceiveSource>(qp: &S) {
        let _ = qp.owner();
        //~^ E0061 this method takes 1 argument but 0 arguments were supplied
    }

    fn read<C: CompletionSource>(cq: &C) -> mlx5::Result<CqReader> {
        CqReader::new(cq)
    }
}
