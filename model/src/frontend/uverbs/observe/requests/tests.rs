use std::sync::{Arc, Mutex};

use super::super::devices::Devices;
use super::*;
use crate::clock::Clock;
use crate::frontend::uverbs::request::abi::{Attribute, Header as Head};
use crate::memory::ProcessMemory;
use crate::trace::{Detail, Header, Observed, Reader, Sink, Tap, What};

const CQ: u32 = 9;
const HANDLE: u32 = 3;
const FD: c_int = 5;

/// A CQ of 4 CQEs and the ring of 8 CQEs that it gets, whose device and program are the test.
struct Resized {
    observer: Observer,
    stream: Arc<Mutex<Vec<u8>>>,
    old: Box<[u8; 4 * 64]>,
    new: Box<[u8; 8 * 64]>,
    record: Box<[u8; 8]>,
}

impl Resized {
    fn new() -> Self {
        let stream = Arc::new(Mutex::new(Vec::new()));
        let devices = Devices::of_the_machine();
        let header = Header::of_this_process(devices.identities(), Detail::Observed);
        let observer = Observer {
            process: 0,
            tap: Tap::recording(Sink::Memory(stream.clone()), &header, Clock::real()),
            // SAFETY: the rings are those of this test, which writes them while nothing else runs.
            memory: unsafe { ProcessMemory::new(false) },
            devices,
            queues: Mutex::default(),
        };
        let (old, new) = (Box::new([0xf0; 4 * 64]), Box::new([0xf0; 8 * 64]));
        let this = Self { observer, stream, old, new, record: Box::default() };
        let mut queues = lock(&this.observer.queues);
        let ring = CqRing::new(this.old.as_ptr() as u64, 4, 64, this.record.as_ptr() as u64);
        queues.cqs.insert((0, CQ), ring.unwrap());
        let context = queues.contexts.entry(FD).or_default();
        context.objects.insert(HANDLE, Object::Cq(CQ, 64));
        drop(queues);
        this
    }

    /// The device writes a CQE with a mark into the old ring, or the new one.
    fn write(ring: &mut [u8], index: usize, opcode: u8, mark: u8) {
        let entries = ring.len() / 64;
        let cqe = &mut ring[index % entries * 64..][..64];
        cqe.fill(mark);
        cqe[63] = opcode << 4 | (index / entries % 2) as u8;
    }

    fn consume(&mut self, count: u32) {
        self.record[..4].copy_from_slice(&count.to_be_bytes());
    }

    fn look(&self) {
        lock(&self.observer.queues).look(&self.observer);
    }

    /// The kernel has answered the program's request.
    fn answered(&self) {
        let core = ResizeCq { cq_handle: HANDLE, cqe: 7, ..Default::default() };
        let driver = ResizeCqDriver { buf_addr: self.new.as_ptr() as u64, ..Default::default() };
        let reply = 7u64;
        let of = |id, length: usize, data: u64| Attribute {
            id,
            length: length as u16,
            data,
            ..Default::default()
        };
        let given = [
            of(0, size_of_val(&core), &raw const core as u64),
            of(DRIVER_IN, size_of_val(&driver), &raw const driver as u64),
            of(1, size_of_val(&reply), &raw const reply as u64),
        ];
        let length = size_of::<Head>() + size_of_val(&given);
        let header = Head { length: length as u16, attributes: 3, ..Default::default() };
        let argument = [header.as_bytes(), given.as_bytes()].concat();
        let (_, attributes) = Attributes::read(argument.as_ptr() as u64).unwrap();
        let queues = lock(&self.observer.queues);
        let observer = &self.observer;
        resize_cq(&mut Request { observer, queues, fd: FD, card: 0, attributes }).unwrap();
    }

    /// Returns the recorded CQEs, each by its index, opcode and mark.
    fn recorded(self) -> Vec<(u32, u8, u8)> {
        self.observer.tap.flush();
        let stream = self.stream.lock().unwrap().clone();
        let mut reader = Reader::new(&stream[..]).unwrap();
        let mut cqes = Vec::new();
        while let Some(performed) = reader.next_call().unwrap() {
            cqes.extend(performed.events().filter_map(|event| match event.what {
                What::Observed(Observed::Cqe { index, bytes, .. }) => {
                    Some((index, bytes[63] >> 4, bytes[0]))
                }
                What::Observed(missed @ Observed::Missed { .. }) => panic!("{missed:?}"),
                _ => None,
            }));
        }
        cqes
    }
}

/// Two CQEs, a resize while the program has consumed so many of them, and another CQE.
fn resized(consumed: u32, is_seen: bool) -> Vec<(u32, u8, u8)> {
    const RESIZE: u8 = 5;
    let mut cq = Resized::new();
    for index in [0, 1] {
        Resized::write(&mut *cq.old, index, 0, 10 + index as u8);
    }
    cq.consume(consumed);
    cq.look();
    Resized::write(&mut *cq.old, 2, RESIZE, 12);
    if is_seen {
        cq.look();
    }
    cq.answered();
    // libmlx5 moves each CQE that waits to the slot behind its own, and so its consumer index.
    for index in consumed as usize..2 {
        Resized::write(&mut *cq.new, index + 1, 0, 10 + index as u8);
    }
    Resized::write(&mut *cq.new, 3, 0, 13);
    cq.look();
    cq.consume(4);
    cq.look();
    cq.recorded()
}

#[test]
fn cqes_around_a_resize_are_recorded_once() {
    for consumed in [0, 1, 2] {
        for is_seen in [false, true] {
            let expected = [(0, 0, 10), (1, 0, 11), (2, 5, 12), (3, 0, 13)];
            assert_eq!(resized(consumed, is_seen), expected, "{consumed} {is_seen}");
        }
    }
}
