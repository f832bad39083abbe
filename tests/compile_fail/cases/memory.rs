//! Memory: the HCA gets only memory that its request owns, or that an unsafe call vouches for.

/// Naming memory by address is unsafe. The safe layer does not accept it.
mod by_address {
    #[cfg(misuse)]
    mod post_refused {
        use mlx5::{ring::*, wqe::*};

        fn post(queue: &mut SendQueue, sge: Sge) -> Result<(), PostError> {
            queue.post(1, SendMessage::new(sge))
            //~^ E0133 call to unsafe function post
        }
    }

    #[cfg(misuse)]
    mod post_refused_too {
        use mlx5::{endpoint::*, wqe::*};

        fn post(channel: &mut Endpoint, sge: Sge) {
            let _ = channel.post(1, SendMessage::new(sge));
            //~^ E0277 Sge names memory that the safe layer does not own
        }
    }

    mod post_accepted {
        use mlx5::{endpoint::*, wqe::*};

        fn post(channel: &mut Endpoint, slice: MrSlice) {
            let _ = channel.post(1, SendMessage::new(slice));
        }
    }
}

/// Memory in flight is unreachable, also by earlier borrows.
mod in_flight {
    use mlx5::{endpoint::*, wqe::*};

    #[cfg(misuse)]
    fn read(channel: &mut Endpoint, slice: MrSlice) -> Vec<u8> {
        let _ = channel.post_receive(1, slice);
        slice.to_vec()
        //~^ E0382 borrow of moved value: slice
    }

    #[cfg(misuse)]
    fn keep(channel: &mut Endpoint, mut slice: MrSlice) -> u8 {
        let bytes = slice.as_mut_slice().unwrap();
        let _ = channel.post_receive(1, slice);
        //~^ E0505 cannot move out of slice because it is borrowed
        bytes[0]
    }

    fn before(channel: &mut Endpoint, mut slice: MrSlice) -> u8 {
        let byte = slice.as_mut_slice().unwrap()[0];
        let _ = channel.post_receive(1, slice);
        byte
    }
}

/// A slice has one owner, and its region is reached through it only.
mod exclusive {
    #[cfg(misuse)]
    mod copy_refused {
        use mlx5::{endpoint::*, wqe::*};

        fn copy(slice: &MrSlice) -> MrSlice {
            MrSlice::clone(slice)
            //~^ E0277 the trait bound MrSlice: Clone is not satisfied
        }
    }

    #[cfg(misuse)]
    mod both_refused {
        use mlx5::{endpoint::*, ib::*, verbs::*};

        fn both(mut region: MemoryRegion) -> MrSlice {
            let slice = MrSlice::new(region);
            region.write(0, b"behind its back");
            //~^ E0382 borrow of moved value: region
            slice
        }
    }

    mod either_accepted {
        use mlx5::{endpoint::*, ib::*, verbs::*};

        fn either(mut region: MemoryRegion) -> MrSlice {
            region.write(0, b"before");
            MrSlice::new(region)
        }
    }
}

/// A memory region owns its memory. Implementing `Buffer` is unsafe.
mod registered {
    use mlx5::{ib::*, verbs::*};

    #[cfg(misuse)]
    fn borrowed(pd: &ProtectionDomain) -> mlx5::Result<MemoryRegion> {
        let mut bytes = [0u8; 64];
        Ok(pd.register(&mut bytes[..], Access::LOCAL_WRITE)?)
        //~^ E0597 bytes does not live long enough
    }

    #[cfg(misuse)]
    mod liar_refused {
        use super::*;

        struct Liar;
        impl Buffer for Liar {
            //~^ E0200 the trait Buffer requires an unsafe impl declaration
            fn into_parts(self) -> (std::ptr::NonNull<u8>, usize, usize) {
                (std::ptr::NonNull::dangling(), 1 << 40, 0)
            }
            unsafe fn from_parts(_: std::ptr::NonNull<u8>, _: usize, _: usize) -> Self {
                Liar
            }
        }
    }

    fn owned(pd: &ProtectionDomain) -> mlx5::Result<MemoryRegion> {
        let bytes = vec![0u8; 64];
        Ok(pd.register(bytes, Access::LOCAL_WRITE)?)
    }
}

/// Device memory cannot be borrowed as bytes. Registering the whole address space is unsafe.
mod device_memory {
    #[cfg(misuse)]
    mod lend_refused {
        use mlx5::{endpoint::*, ib::*, verbs::*};

        fn lend(region: DeviceRegion) -> MrSlice {
            MrSlice::new(region)
            //~^ E0308 mismatched types expected MemoryRegion, found DeviceRegion
        }
    }

    #[cfg(misuse)]
    mod everything_refused {
        use mlx5::{ib::*, verbs::*};

        fn everything(pd: &ProtectionDomain) -> mlx5::Result<ImplicitOdpRegion> {
            pd.register_whole(Access::LOCAL_WRITE)
            //~^ E0133 call to unsafe function register_whole
        }
    }

    mod lend_accepted {
        use mlx5::{endpoint::*, ib::*, verbs::*};

        fn lend(region: MemoryRegion) -> MrSlice {
            MrSlice::new(region)
        }
    }
}

/// A WQE given as bytes is unsafe.
mod raw_wqe {
    use mlx5::{expert::*, ring::PostError};

    #[cfg(misuse)]
    fn taken(bytes: &[u8]) -> Result<RawWqe<'_>, PostError> {
        RawWqe::new(bytes)
        //~^ E0133 call to unsafe function new
    }

    fn promised(bytes: &[u8]) -> Result<RawWqe<'_>, PostError> {
        // SAFETY: compiled, and never run.
        unsafe { RawWqe::new(bytes) }
    }
}

/// Implementing an allocator of queue memory is unsafe.
mod allocator {
    use mlx5::{expert::*, ib::*, verbs::*};

    #[cfg(misuse)]
    mod liar_refused {
        use super::*;

        struct Liar;
        impl QueueAllocator for Liar {
            //~^ E0200 the trait QueueAllocator requires an unsafe impl declaration
            fn allocate(
                &self,
                _: usize,
                _: usize,
                _: QueueBuffer,
            ) -> Option<std::ptr::NonNull<u8>> {
                Some(std::ptr::NonNull::dangling())
            }
            unsafe fn free(&self, _: std::ptr::NonNull<u8>, _: QueueBuffer) {}
        }
    }

    fn placed(builder: QueuePairBuilder<Rc>) -> mlx5::Result<QueuePair<Rc, Reset>> {
        builder.placement(&std::sync::Arc::new(Placement::new().on_node(0))).build()
    }
}

/// Memory posted to a striding RQ is unreachable until it is reclaimed.
mod striding {
    use mlx5::endpoint::*;

    #[cfg(misuse)]
    fn both(receiver: &mut StridingReceiver, memory: MrSlice) {
        let _ = receiver.post(memory);
        memory.to_vec();
        //~^ E0382 borrow of moved value: memory
    }

    fn again(receiver: &mut StridingReceiver) {
        if let Some(memory) = receiver.reclaim() {
            let _ = receiver.post(memory);
        }
    }
}

/// A key over other keys may grant more than they do, so making one is unsafe.
mod indirect_key {
    use mlx5::{devx::*, wqe::*};

    #[cfg(misuse)]
    fn over(pd: &DevxPd, piece: Sge) {
        let _ = DevxMkey::builder(pd).list(&[piece]);
        //~^ E0133 call to unsafe function list
    }

    mod over_accepted {
        use super::*;

        unsafe fn over(pd: &DevxPd, piece: Sge) {
            // SAFETY: compiled, and never run.
            let _ = unsafe { DevxMkey::builder(pd).list(&[piece]) };
        }
    }
}

/// A slice in flight is the endpoints', whichever connection it was posted on, or thread it was
/// posted by.
mod in_flight_of_many {
    use mlx5::{endpoint::*, wqe::*};

    #[cfg(misuse)]
    fn read(server: &mut Endpoints, to: ConnectionKey, slice: MrSlice) {
        let _ = server.post(to, 1, SendMessage::new(slice));
        slice.to_vec();
        //~^ E0382 borrow of moved value: slice
    }

    #[cfg(misuse)]
    fn received(server: &mut Endpoints, slice: MrSlice) {
        let _ = server.post_receive(1, slice);
        slice.to_vec();
        //~^ E0382 borrow of moved value: slice
    }

    #[cfg(misuse)]
    fn shared(producer: &EndpointProducer, slice: MrSlice) {
        let _ = producer.post(1, SendMessage::new(slice));
        slice.to_vec();
        //~^ E0382 borrow of moved value: slice
    }

    #[cfg(misuse)]
    fn by_address(producer: &EndpointProducer, slice: &MrSlice) {
        let _ = producer.post(1, SendMessage::new(slice.sge().unwrap()));
        //~^ E0277 Sge names memory that the safe layer does not own
    }

    #[cfg(misuse)]
    fn receives(endpoint: &mut SendEndpoint, slice: MrSlice) {
        let _ = endpoint.post_receive(1, slice);
        //~^ E0599 no method named post_receive found
    }

    fn returned(server: &mut Endpoints, to: ConnectionKey, slice: MrSlice) -> Option<Vec<u8>> {
        server.post(to, 1, SendMessage::new(slice)).ok()?;
        let (_, returned) = server.poll_one().ok()??;
        Some(returned.buffers.one().ok()?.to_vec())
    }
}
