//! Memory windows, invalidation, keys over keys, regions that change, and copies by the device.

use mlx5::cqe::{QueueKind, ReceiveKind, SendOperation, Status};
use mlx5::devx::Group;
use mlx5::devx::ifc::cmd_hca_cap;
use mlx5::ib::{Access, Rc};
use mlx5::verbs::{DeviceMemory, MemoryRegion, Mkey, Pages, ProtectionDomain};
use mlx5::wqe::{
    DmaMemcpy, FetchAdd, Inline, Interleaved, RdmaRead, RdmaWrite, Remote, SendInvalidate,
    SendMessage, Sge, Strided,
};

use super::errors::works_again;
use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrived, Door, Rights, Shape, Window, pattern};
use crate::side::Side;
use crate::verdict::{Verdict, holds, lacking, same};

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "memory.window-type-1",
        "A window of type 1 opens its part of a region, with its rights, until it is bound anew.",
        type_1,
    ),
    Case::new(
        "memory.window-bounds",
        "Beyond a window, and with rights that it lacks, access is IBV_WC_REM_ACCESS_ERR.",
        bounds,
    ),
    Case::new(
        "memory.window-type-2",
        "A window of type 2 is open until local invalidation, and then closed.",
        type_2,
    ),
    Case::new(
        "memory.send-invalidate",
        "A SEND with invalidate closes a window, and its receive names the key.",
        send_invalidate,
    ),
    Case::new(
        "memory.key-list",
        "A key configured over a list of pieces gathers and scatters them.",
        key_list,
    ),
    Case::new(
        "memory.key-strided",
        "A key configured over a strided pattern walks it.",
        key_strided,
    ),
    Case::new(
        "memory.key-invalidated",
        "A configured key that is invalidated is IBV_WC_LOC_PROT_ERR.",
        key_invalidated,
    ),
    Case::new(
        "memory.rereg-access",
        "A region whose rights change grants the new ones: without local write, a READ into it fails.",
        rereg_access,
    ),
    Case::new(
        "memory.rereg-domain",
        "A region that moves to another protection domain is IBV_WC_LOC_PROT_ERR until it returns.",
        rereg_domain,
    ),
    Case::new(
        "memory.rereg-translation",
        "A region that gets another buffer, longer or shorter, is that buffer from end to end.",
        rereg_translation,
    ),
    Case::new("memory.copy", "The device copies memory (DMA memcpy).", copy)
        .needs(&[Need::Capability(Group::General, cmd_hca_cap::DMA_MMO_SQ, 1)]),
    Case::new("memory.device", "Device memory is a source and a target of messages.", device),
];

const READ_AND_WRITE: Rights = Rights { read: true, write: true, atomic: false, bind: false };

fn connect(bench: &mut Bench) -> Verdict<(Side<Rc>, Door)> {
    let theirs = Shape { region: Rights::BIND, ..Shape::default() };
    let (mut side, door) = bench.rc_with(&Shape::default(), &theirs)?;
    let bytes: Vec<u8> = pattern(4096, 1).collect();
    side.memory.write(0, &bytes);
    Ok((side, door))
}

fn at(door: &Door, rkey: u32, offset: usize) -> Remote {
    Remote { rkey, ..door.remote(offset) }
}

fn write(side: &mut Side<Rc>, to: Remote, length: usize) -> Verdict {
    side.post(5, RdmaWrite::new(side.sge(0, length), to).signaled())
}

fn read(side: &mut Side<Rc>, from: Remote, length: usize) -> Verdict {
    side.post(6, RdmaRead::new(side.sge(8192, length), from).signaled())
}

fn type_1(bench: &mut Bench) -> Verdict {
    let (mut side, door) = connect(bench)?;
    let first = bench.peer.bind(Window::Type1, 0, 256, 512, READ_AND_WRITE)?;
    write(&mut side, at(&door, first, 256), 512)?;
    side.sent(5, SendOperation::Write)?;
    bench.peer.check(256, 512, 1)?;
    bench.peer.has(768, &[0; 8])?;
    read(&mut side, at(&door, first, 257), 100)?;
    side.sent(6, SendOperation::Read)?;
    same("what was read", side.memory.to_vec(8192, 100), side.memory.to_vec(1, 100))?;
    // Bound anew: elsewhere, with fewer rights, by another key.
    let read_only = Rights { write: false, ..READ_AND_WRITE };
    let second = bench.peer.bind(Window::Type1, 0, 0, 8, read_only)?;
    holds(second != first, "a window that is bound anew has its old key")?;
    read(&mut side, at(&door, second, 0), 8)?;
    side.sent(6, SendOperation::Read)?;
    write(&mut side, at(&door, second, 0), 8)?;
    side.send_fails(5, Status::RemoteAccess)?;
    works_again(bench, &mut side)?;
    read(&mut side, at(&door, first, 256), 8)?;
    side.send_fails(6, Status::RemoteAccess)?;
    works_again(bench, &mut side).map(drop)
}

fn bounds(bench: &mut Bench) -> Verdict {
    let (mut side, door) = connect(bench)?;
    for (offset, length) in [(255, 2), (767, 2), (768, 1), (0, 1024)] {
        let rkey = bench.peer.bind(Window::Type1, 0, 256, 512, READ_AND_WRITE)?;
        write(&mut side, at(&door, rkey, offset), length)?;
        side.send_fails(5, Status::RemoteAccess)?;
        works_again(bench, &mut side)?;
    }
    bench.peer.has(255, &[0; 2])?;
    bench.peer.has(767, &[0; 2])?;
    if bench.base.atomics {
        let rkey = bench.peer.bind(Window::Type1, 0, 256, 512, READ_AND_WRITE)?;
        let add = FetchAdd::new(side.word(8192), at(&door, rkey, 256), 1);
        side.post(7, add.signaled())?;
        side.send_fails(7, Status::RemoteAccess)?;
        works_again(bench, &mut side)?;
    }
    Ok(())
}

fn type_2(bench: &mut Bench) -> Verdict {
    let (mut side, door) = connect(bench)?;
    for tag in [0x80, 0xff, 0] {
        let rkey = bench.peer.bind(Window::Type2, tag, 0, 128, READ_AND_WRITE)?;
        same("tag of the window's key", rkey as u8, tag)?;
        write(&mut side, at(&door, rkey, 0), 128)?;
        side.sent(5, SendOperation::Write)?;
        bench.peer.check(0, 128, 1)?;
        bench.peer.unbind()?;
        write(&mut side, at(&door, rkey, 0), 128)?;
        side.send_fails(5, Status::RemoteAccess)?;
        works_again(bench, &mut side)?;
    }
    Ok(())
}

fn send_invalidate(bench: &mut Bench) -> Verdict {
    let (mut side, door) = connect(bench)?;
    let rkey = bench.peer.bind(Window::Type2, 9, 0, 128, READ_AND_WRITE)?;
    write(&mut side, at(&door, rkey, 0), 16)?;
    side.sent(5, SendOperation::Write)?;
    bench.peer.receive(11, 1024, 64)?;
    side.post(12, SendInvalidate::new(Inline(b"over and out"), rkey).signaled())?;
    side.sent(12, SendOperation::SendInvalidate)?;
    bench.peer.received(11, Arrived::SendInvalidate(rkey), 12)?;
    bench.peer.has(1024, b"over and out")?;
    write(&mut side, at(&door, rkey, 0), 16)?;
    side.send_fails(5, Status::RemoteAccess)?;
    works_again(bench, &mut side).map(drop)
}

/// Makes a key; not every device has them for programs.
fn key(bench: &Bench, entries: u16) -> Verdict<Mkey> {
    Mkey::new(&bench.base.pd, entries)
        .map_err(|error| lacking(format!("no indirect keys: {error}")))
}

fn key_list(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    let key = key(bench, 4)?;
    let bytes: Vec<u8> = pattern(348, 3).collect();
    let list = [(100, 7), (5000, 300), (0, 1), (4096, 40)];
    let mut taken = 0;
    for (place, length) in list {
        side.memory.write(place, &bytes[taken..taken + length]);
        taken += length;
    }
    let pieces = list.map(|(place, length)| side.sge(place, length));
    let request = key.configure().access(Access::LOCAL_WRITE).layout(pieces);
    side.post(1, request.signaled())?;
    side.sent(1, SendOperation::Umr)?;
    for (from, to) in [(0, 348), (5, 200), (307, 308)] {
        bench.peer.receive(2, 0, 512)?;
        let sge = Sge::new(from as u64, (to - from) as u32, key.lkey());
        side.post(3, SendMessage::new(sge).signaled())?;
        side.sent(3, SendOperation::Send)?;
        bench.peer.received(2, Arrived::Send, (to - from) as u32)?;
        let end = to.min(from + 64);
        bench.peer.has(0, &bytes[from..end])?;
    }
    // And as the memory of a receive.
    side.receive.post(4, Sge::new(0, 348, key.lkey()))?;
    bench.peer.fill(0, 348, 0xee)?;
    bench.peer.send(5, 0, 348)?;
    side.received(4, ReceiveKind::Send, 348)?;
    bench.peer.sent(5)?;
    let met: Vec<u8> =
        list.iter().flat_map(|&(place, length)| side.memory.to_vec(place, length)).collect();
    holds(met.iter().copied().eq(pattern(348, 0xee)), "the pieces are not as sent")
}

fn key_strided(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    let key = key(bench, 4)?;
    let bytes: Vec<u8> = pattern(8000, 5).collect();
    side.memory.write(0, &bytes);
    let (start, lkey) = (side.memory.address(), side.memory.lkey());
    let pieces = [
        Strided { addr: start + 1000, lkey, length: 8, skip: 56 },
        Strided { addr: start + 4000, lkey, length: 3, skip: 0 },
    ];
    let layout = Interleaved { repeat: 5, pieces: &pieces };
    let request = key.configure().access(Access::LOCAL_WRITE).layout(layout);
    side.post(1, request.signaled())?;
    side.sent(1, SendOperation::Umr)?;
    let whole: Vec<u8> = (0..5)
        .flat_map(|turn| {
            let (first, second) = (1000 + turn * 64, 4000 + turn * 3);
            [&bytes[first..first + 8], &bytes[second..second + 3]].concat()
        })
        .collect();
    bench.peer.receive(2, 0, 64)?;
    side.post(3, SendMessage::new(Sge::new(0, 55, key.lkey())).signaled())?;
    side.sent(3, SendOperation::Send)?;
    bench.peer.received(2, Arrived::Send, 55)?;
    bench.peer.has(0, &whole)?;
    // One byte more is behind its end.
    side.post(4, SendMessage::new(Sge::new(0, 56, key.lkey())).signaled())?;
    side.send_fails(4, Status::LocalProtection)?;
    works_again(bench, &mut side).map(drop)
}

fn key_invalidated(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    let key = key(bench, 4)?;
    let request = key.configure().access(Access::LOCAL_WRITE).layout([side.sge(0, 64)]);
    side.post(1, request.signaled())?;
    side.sent(1, SendOperation::Umr)?;
    side.post(2, key.invalidate().signaled())?;
    side.sent(2, SendOperation::Umr)?;
    side.post(3, SendMessage::new(Sge::new(0, 8, key.lkey())).signaled())?;
    side.fails(QueueKind::Send, 3, &[Status::LocalProtection])?;
    works_again(bench, &mut side).map(drop)
}

/// READs the peer's first bytes to an offset in a region.
fn fetch(side: &mut Side<Rc>, to: (&MemoryRegion, usize), length: u32, from: &Door) -> Verdict {
    let (region, at) = to;
    // Whatever rights and length the region has: the device is to refuse what it must not reach.
    let sge = Sge { length, ..region.source(at, 1)? };
    side.post(6, RdmaRead::new(sge, from.remote(0)).signaled())
}

fn fetches(side: &mut Side<Rc>, to: (&MemoryRegion, usize), from: &Door) -> Verdict {
    fetch(side, to, 64, from)?;
    side.sent(6, SendOperation::Read)?;
    let mut met = vec![0; 64];
    to.0.read(to.1, &mut met);
    holds(met.into_iter().eq(pattern(64, 9)), "what was read differs")
}

/// A READ into a region that must not be reached. The connection is renewed.
fn fetch_fails(
    bench: &mut Bench,
    side: &mut Side<Rc>,
    to: (&MemoryRegion, usize),
    length: u32,
    from: &Door,
) -> Verdict<Door> {
    fetch(side, to, length, from)?;
    side.send_fails(6, Status::LocalProtection)?;
    let door = works_again(bench, side)?;
    bench.peer.fill(0, 64, 9)?;
    Ok(door)
}

fn rereg_access(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    bench.peer.fill(0, 64, 9)?;
    let mut region = bench.base.pd.allocate(4096, Access::LOCAL_WRITE)?;
    fetches(&mut side, (&region, 0), &door)?;
    region.set_access(Access::REMOTE_READ)?;
    let door = fetch_fails(bench, &mut side, (&region, 64), 64, &door)?;
    region.set_access(Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    fetches(&mut side, (&region, 128), &door)?;
    let mut met = [1; 64];
    region.read(64, &mut met);
    same("what a READ without the right left", met, [0; 64])
}

fn rereg_domain(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    bench.peer.fill(0, 64, 9)?;
    let mut region = bench.base.pd.allocate(4096, Access::LOCAL_WRITE)?;
    fetches(&mut side, (&region, 0), &door)?;
    let other = ProtectionDomain::new(&bench.base.context)?;
    region.set_protection_domain(&other)?;
    let door = fetch_fails(bench, &mut side, (&region, 64), 64, &door)?;
    region.set_protection_domain(&bench.base.pd)?;
    fetches(&mut side, (&region, 128), &door)
}

fn rereg_translation(bench: &mut Bench) -> Verdict {
    /// Bytes of the buffers, one after the other: the key has to grow, and then not.
    const LENGTHS: [usize; 4] = [1 << 20, (1 << 20) - 4096, 300, 600_000];
    let (mut side, mut door) = bench.rc(&Shape::default())?;
    bench.peer.fill(0, 64, 9)?;
    let mut region = bench.base.pd.allocate(4096, Access::LOCAL_WRITE)?;
    fetches(&mut side, (&region, 0), &door)?;
    for length in LENGTHS {
        region.replace_buffer(Pages::new(length)?)?;
        for place in [0, length / 2, length - 64] {
            fetches(&mut side, (&region, place), &door)?;
        }
        door = fetch_fails(bench, &mut side, (&region, length - 63), 64, &door)?;
    }
    Ok(())
}

fn copy(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    let bytes: Vec<u8> = pattern(20_000, 6).collect();
    side.memory.write(0, &bytes);
    let notes = side.memory.len() - DmaMemcpy::NOTES;
    let request = DmaMemcpy::new(side.sge(0, 20_000), side.word(30_000), side.word(notes));
    side.post(1, request.signaled())?;
    side.sent(1, SendOperation::DmaMemcpy)?;
    holds(side.memory.to_vec(30_000, 20_000) == bytes, "the copy differs")?;
    same("bytes behind it", side.memory.to_vec(50_000, 8), vec![0; 8])
}

fn device(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    if bench.base.context.device_memory()? == 0 {
        return Err(lacking("the device offers no memory of its own"));
    }
    let mut memory = DeviceMemory::allocate(&bench.base.context, 4096, 6)
        .map_err(|error| lacking(format!("no device memory: {error}")))?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let region = bench.base.pd.register_device(&memory, 0, 4096, access)?;
    let bytes: Vec<u8> = pattern(256, 7).collect();
    memory.write(0, &bytes);
    memory.flush();
    side.post(1, RdmaWrite::new(region.sge(0, 256)?, door.remote(0)).signaled())?;
    side.sent(1, SendOperation::Write)?;
    bench.peer.check(0, 256, 7)?;
    bench.peer.fill(512, 256, 8)?;
    side.post(2, RdmaRead::new(region.sge(1024, 256)?, door.remote(512)).signaled())?;
    side.sent(2, SendOperation::Read)?;
    let mut met = vec![0; 256];
    memory.read(1024, &mut met);
    holds(met.iter().copied().eq(pattern(256, 8)), "device memory is not as read")
}
