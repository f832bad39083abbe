//! Kinds of memory between two processes. A peer writes, reads and counts in device memory, in
//! on-demand memory and behind a descriptor, and is refused forbidden accesses.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use mlx5::connect::Connection;
use mlx5::cqe::{Completion, Status};
use mlx5::ib::{Access, Rc};
use mlx5::verbs::{DeviceMemory, Pages};
use mlx5::wqe::{FetchAdd, Inline, RdmaRead, RdmaWrite};

use super::processes::{connected, heard, told, with_peer};
use rig::{Rig, all_rights};

/// Connections: one for what is granted, and one for each refusal.
const CONNECTIONS: usize = 4;
/// Bytes of the region on demand, far more than is ever there.
const DEMANDED: usize = 1 << 30;

#[test]
fn memory_of_every_kind_is_reached_from_another_process() {
    with_peer(
        memory_of_every_kind_is_reached_from_another_process,
        peer_of_memory,
        |rig, mut control| {
            let _connections: Vec<_> = (0..CONNECTIONS)
                .map(|_| connected::<Rc>(&rig, &mut control, &|_, _| {}).0)
                .collect();
            let mut card = DeviceMemory::allocate(&rig.context, 4096, 6).unwrap();
            card.write(0, &[0; 4096]);
            card.store(8, 40);
            card.flush();
            let on_card = rig.pd.register_device(&card, 0, 4096, all_rights()).unwrap();
            let read_only = rig.pd.register_device(&card, 0, 64, Access::REMOTE_READ).unwrap();
            let access = all_rights() | Access::ON_DEMAND;
            let demanded = rig.pd.register(Pages::new(DEMANDED).unwrap(), access).unwrap();
            // SAFETY: a new descriptor of its own, mapped only by the model.
            let (fd, described) = unsafe {
                let name = c"described".as_ptr();
                let fd = OwnedFd::from_raw_fd(libc::memfd_create(name, libc::MFD_CLOEXEC));
                assert_eq!(libc::ftruncate(fd.as_raw_fd(), 8192), 0);
                let region = rig.pd.register_dmabuf(fd.as_fd(), 0, 8192, 1 << 40, all_rights());
                (fd, region.unwrap())
            };
            let regions =
                [on_card.remote(0), demanded.remote(0), described.remote(0), read_only.remote(0)]
                    .map(|remote| remote.unwrap());
            assert!(control.exchange_data(&told(&regions)).unwrap().is_empty());
            // The peer has done what it may.
            control.barrier(1).unwrap();
            let mut text = [0; 20];
            card.read(512, &mut text);
            assert_eq!((&text, card.load(8)), (b"to the card, from it", 42));
            demanded.read(DEMANDED - 20, &mut text);
            assert_eq!(&text, b"the end of a gigabyt");
            let file = std::fs::File::from(fd);
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut text, 4090).unwrap();
            assert_eq!(&text, b"across two pages of ");
            // And tried what it may not.
            control.barrier(2).unwrap();
            card.read(0, &mut text[..8]);
            assert_eq!(text[..8], [0; 8]);
        },
    );
}

fn peer_of_memory(rig: Rig, mut control: Connection) {
    let mut connections: Vec<_> =
        (0..CONNECTIONS).map(|_| connected::<Rc>(&rig, &mut control, &|_, _| {}).0).collect();
    let regions = heard(&control.exchange_data(&[]).unwrap());
    let [card, demanded, described, read_only] = regions[..] else { panic!("{regions:?}") };
    let side = &mut connections[0];
    let word = side.memory.word(1024).unwrap();
    // SAFETY: memory lives to the end, and is only looked at when requests are complete.
    unsafe {
        let text = Inline(b"to the card, from it");
        side.send.post(1, RdmaWrite::new(text, card.offset(512)).signaled()).unwrap();
        side.send.post(2, FetchAdd::new(word, card.offset(8), 2).signaled()).unwrap();
        side.send.post(3, RdmaRead::new(side.sge(0, 20), card.offset(512)).signaled()).unwrap();
        let end = demanded.offset(DEMANDED as u64 - 20);
        side.send.post(4, RdmaWrite::new(Inline(b"the end of a gigabyt"), end).signaled()).unwrap();
        let across = described.offset(4090);
        side.send
            .post(5, RdmaWrite::new(Inline(b"across two pages of "), across).signaled())
            .unwrap();
    }
    for id in 1..=5 {
        assert_eq!(side.sent().0, id);
    }
    assert_eq!(side.memory.to_vec(0, 20), b"to the card, from it");
    assert_eq!(side.memory.to_vec(1024, 8), 40_u64.to_ne_bytes());
    control.barrier(1).unwrap();
    let refused = [read_only, card.offset(4090), described.offset(8192)];
    for (side, at) in connections[1..].iter_mut().zip(refused) {
        // SAFETY: the payload is copied into the WQE.
        unsafe { side.send.post(6, RdmaWrite::new(Inline(b"intruded"), at).signaled()).unwrap() };
        match side.wait() {
            Completion::Failed(failure) => assert_eq!(failure.status, Status::RemoteAccess),
            other => panic!("{other:?}"),
        }
    }
    control.barrier(2).unwrap();
}
