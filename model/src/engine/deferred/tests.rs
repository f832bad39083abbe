//! Unit tests.

use std::sync::Mutex;

use super::*;
use crate::card::Link;
use crate::command::test::Rig;

struct Log(Mutex<Vec<(usize, Vec<u8>)>>);

impl Registers for Log {
    fn execute(&self, _: &mut Card, offset: usize, bytes: &[u8]) {
        self.0.lock().unwrap().push((offset, bytes.to_vec()));
    }
}

#[test]
fn stores_keep_their_order_and_bytes_over_many_laps() {
    static LOG: Log = Log(Mutex::new(Vec::new()));
    let (queue, mut card) = (Deferred::new(), Rig::on(Link::InfiniBand).card);
    let store = |n: usize| Store::new(&LOG, n, &n.to_le_bytes()).unwrap();
    let mut next = 0;
    for burst in [1, 5, ROOM, 700, ROOM] {
        for n in next..next + burst {
            assert!(queue.put(store(n)));
        }
        assert_eq!(queue.put(store(0)), burst < ROOM, "no more than there is room for");
        for _ in 0..burst + usize::from(burst < ROOM) {
            queue.take().expect("a store").execute(&mut card);
        }
        assert!(queue.take().is_none());
        let log = std::mem::take(&mut *LOG.0.lock().unwrap());
        let expected: Vec<_> =
            (next..next + burst).map(|n| (n, n.to_le_bytes().to_vec())).collect();
        assert_eq!(log[..burst], expected);
        next += burst;
    }
    assert!(Store::new(&LOG, 0, &[0; LONGEST + 1]).is_none());
}

#[test]
fn stores_of_devices_need_no_room_and_keep_their_place() {
    static LOG: Log = Log(Mutex::new(Vec::new()));
    let (queue, mut card) = (Deferred::new(), Rig::on(Link::InfiniBand).card);
    let store = |n: usize| Store::new(&LOG, n, &[1]).unwrap();
    for n in 0..ROOM {
        assert!(queue.put(store(n)));
    }
    queue.put_from_device(store(ROOM));
    queue.put_from_device(store(ROOM + 1));
    assert!(!queue.put(store(0)), "a handler's has to wait");
    while let Some(store) = queue.take() {
        store.execute(&mut card);
    }
    let offsets: Vec<usize> = LOG.0.lock().unwrap().iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, (0..ROOM + 2).collect::<Vec<_>>());
}

#[test]
fn threads_put_at_the_same_time() {
    static LOG: Log = Log(Mutex::new(Vec::new()));
    let (queue, mut card) = (Deferred::new(), Rig::on(Link::InfiniBand).card);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let queue = &queue;
            scope.spawn(move || {
                for n in 0..2000 {
                    let store = Store::new(&LOG, n, &[thread]).unwrap();
                    while !queue.put(store) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut count = 0;
        while count < 8000 {
            match queue.take() {
                Some(store) => {
                    store.execute(&mut card);
                    count += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    });
    let log = LOG.0.lock().unwrap();
    for thread in 0..4u8 {
        let of: Vec<usize> =
            log.iter().filter(|(_, bytes)| bytes == &[thread]).map(|(n, _)| *n).collect();
        assert_eq!(of, (0..2000).collect::<Vec<_>>());
    }
}
