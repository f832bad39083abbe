//! Queues: one batch at a time, one thread, and each CQ polled for the queues that complete on it.

/// A peeked completion is unreachable after the poll that takes it.
mod peek {
    use mlx5::ring::*;

    #[cfg(misuse)]
    fn late(completions: &mut CqReader, queue: &mut SendQueue) -> Result<u32, PollError> {
        let Some(next) = completions.peek()? else { return Ok(0) };
        let _ = completions.poll(queue)?;
        //~^ E0499 cannot borrow *completions as mutable more than once at a time
        Ok(next.byte_len())
    }

    fn in_time(completions: &mut CqReader, queue: &mut SendQueue) -> Result<u32, PollError> {
        let Some(next) = completions.peek()? else { return Ok(0) };
        let length = next.byte_len();
        let _ = completions.poll(queue)?;
        Ok(length)
    }
}

/// A batch is rung once.
mod ring {
    use mlx5::{ring::*, wqe::*};

    #[cfg(misuse)]
    fn twice(queue: &mut SendQueue) -> Result<(), PostError> {
        let mut batch = queue.batch();
        batch.append(1, Nop::new())?;
        // SAFETY: compiled, and never run.
        unsafe { batch.ring() };
        batch.append(2, Nop::new())
        //~^ E0382 borrow of moved value: batch
    }

    fn once(queue: &mut SendQueue) -> Result<(), PostError> {
        let mut batch = queue.batch();
        batch.append(1, Nop::new())?;
        batch.append(2, Nop::new())?;
        // SAFETY: compiled, and never run.
        unsafe { batch.ring() };
        Ok(())
    }
}

/// A queue has one batch at a time, and is not polled while the batch is filled.
mod batch {
    use mlx5::{ring::*, wqe::*};

    #[cfg(misuse)]
    fn two(queue: &mut SendQueue) {
        let (first, second) = (queue.batch(), queue.batch());
        //~^ E0499 cannot borrow *queue as mutable more than once at a time
    }

    #[cfg(misuse)]
    fn polled(queue: &mut SendQueue, completions: &mut CqReader) {
        let batch = queue.batch();
        let _ = completions.poll(queue);
        //~^ E0499 cannot borrow *queue as mutable more than once at a time
        // SAFETY: compiled, and never run.
        unsafe { batch.ring() };
    }

    fn in_turn(queue: &mut SendQueue, completions: &mut CqReader) {
        let batch = queue.batch();
        // SAFETY: compiled, and never run.
        unsafe { batch.ring() };
        let _ = completions.poll(queue);
    }
}

/// An SRQ has one batch at a time, and is not polled while the batch is filled.
mod shared_receive {
    use mlx5::ring::*;

    #[cfg(misuse)]
    fn polled(queue: &mut Srq, completions: &mut CqReader) {
        let batch = queue.batch();
        let _ = completions.poll(queue);
        //~^ E0499 cannot borrow *queue as mutable more than once at a time
        // SAFETY: compiled, and never run.
        unsafe { batch.ring() };
    }

    fn in_turn(queue: &mut Srq, completions: &mut CqReader) {
        let batch = queue.batch();
        // SAFETY: compiled, and never run.
        unsafe { batch.ring() };
        let _ = completions.poll(queue);
    }
}

/// Two threads cannot write one region, post to one queue or poll one CQ.
mod threads {
    #[cfg(misuse)]
    mod write_refused {
        use mlx5::{ib::*, verbs::*};

        fn write(region: &MemoryRegion) {
            region.write(0, b"so may others");
            //~^ E0596 cannot borrow *region as mutable, as it is behind a & reference
        }
    }

    #[cfg(misuse)]
    mod send_queue_refused {
        use mlx5::ring::*;

        fn misused() {
            fn shared<T: Sync>() {}
            shared::<SendQueue>();
            //~^ E0277 cannot be shared between threads safely
        }
    }

    #[cfg(misuse)]
    mod receive_queue_refused {
        use mlx5::ring::*;

        fn misused() {
            fn shared<T: Sync>() {}
            shared::<ReceiveQueue>();
            //~^ E0277 cannot be shared between threads safely
        }
    }

    #[cfg(misuse)]
    mod completions_refused {
        use mlx5::ring::*;

        fn misused() {
            fn shared<T: Sync>() {}
            shared::<CqReader>();
            //~^ E0277 cannot be shared between threads safely
        }
    }

    mod all_accepted {
        use mlx5::{ring::*, ib::*, verbs::*};

        fn used() {
            fn moved<T: Send>() {}
            fn shared<T: Sync>() {}
            moved::<SendQueue>();
            moved::<ReceiveQueue>();
            moved::<CqReader>();
            moved::<mlx5::endpoint::Endpoint>();
            shared::<MemoryRegion>();
        }
    }
}

/// A BlueFlame register of several queues belongs to one thread, and to one queue at a time.
mod blueflame {
    use mlx5::{expert::*, ring::*, wqe::*};

    #[cfg(misuse)]
    fn two_threads(register: &mut DedicatedRegister) {
        let shared = &*register;
        std::thread::scope(|threads| {
            threads.spawn(|| shared.len());
            //~^ E0277 cannot be shared between threads safely
        });
    }

    #[cfg(misuse)]
    fn two_turns(register: &mut DedicatedRegister) {
        let (mut first, mut second) = (register.turn(0), register.turn(1));
        //~^ E0499 cannot borrow *register as mutable more than once at a time
        let _ = (first.batch(), second.batch());
    }

    #[cfg(misuse)]
    fn two_owners(register: DedicatedRegister) {
        let there = std::thread::spawn(move || register.len());
        let here = register.len();
        //~^ E0382 borrow of moved value: register
    }

    fn moved(mut register: DedicatedRegister) {
        let there = std::thread::spawn(move || {
            let first = register.turn(0).free_blocks();
            first + register.turn(1).free_blocks()
        });
    }
}

/// A tag-matching SRQ is polled by its own poll only.
mod tags {
    use mlx5::{expert::*, ring::*};

    #[cfg(misuse)]
    fn others(tags: &mut TmSrq, completions: &mut CqReader) {
        let _ = completions.poll(tags);
        //~^ E0277 the trait bound TmSrq: Queues is not satisfied
    }

    fn own(tags: &mut TmSrq, completions: &mut CqReader) {
        let _ = tags.poll(completions, &mut ());
    }
}

/// A collapsed CQ completes sends only: receives would lose their lengths.
mod collapsed {
    use mlx5::{expert::*, ring::*};

    #[cfg(misuse)]
    fn poll(completions: &mut CollapsedCqReader, queue: &mut ReceiveQueue) {
        let _ = completions.poll(queue);
        //~^ E0308 mismatched types expected &mut SendQueue<_>, found &mut ReceiveQueue
    }

    mod poll_accepted {
        use super::*;

        fn poll(completions: &mut CollapsedCqReader, queue: &mut SendQueue) {
            let _ = completions.poll(queue);
        }
    }
}
