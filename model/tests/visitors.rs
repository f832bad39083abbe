//! Queries of an open device by other processes: the served ones, and the refused messages of
//! strangers. Here the process queries itself, through the socket that others use.

mod support;

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use mlx5_model as _;
use mlx5_sys::verbs::{
    ibv_close_device, ibv_context, ibv_free_device_list, ibv_get_device_list, ibv_open_device,
};
use support::random::Random;
use support::sockets;

/// The kinds of requests from a guest (`visitor/message.rs`).
const FILE: u32 = 1;
const REQUEST: u32 = 2;
const RESOURCES: u32 = 3;

/// The name of the socket that this process answers at.
fn host() -> String {
    sockets::find(&format!("{}process/{}.", sockets::names(), std::process::id()))
}

/// An open device.
struct Device(*mut ibv_context);

impl Device {
    fn open() -> Device {
        // SAFETY: a null count is allowed; the list has the model's device, and is freed once.
        unsafe {
            let list = ibv_get_device_list(std::ptr::null_mut());
            assert!(!list.is_null() && !(*list).is_null());
            let context = ibv_open_device(*list);
            ibv_free_device_list(list);
            assert!(!context.is_null());
            Device(context)
        }
    }

    fn descriptor(&self) -> u32 {
        // SAFETY: the context is open.
        unsafe { (*self.0).cmd_fd as u32 }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: opened by this structure, closed once.
        unsafe { ibv_close_device(self.0) };
    }
}

struct Guest(UnixStream);

impl Guest {
    fn connect() -> Guest {
        let address = SocketAddr::from_abstract_name(host()).unwrap();
        let stream = UnixStream::connect_addr(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Guest(stream)
    }

    /// A guest of a device.
    fn of(device: &Device) -> Guest {
        let mut guest = Guest::connect();
        assert_eq!(guest.ask(&words(&[FILE, device.descriptor()])).unwrap(), words(&[1]));
        guest
    }

    /// The answer; `None` if the guest was sent away.
    fn ask(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let mut whole = (message.len() as u32).to_ne_bytes().to_vec();
        whole.extend(message);
        self.0.write_all(&whole).ok()?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length).ok()?;
        let mut answer = vec![0; u32::from_ne_bytes(length) as usize];
        self.0.read_exact(&mut answer).ok()?;
        Some(answer)
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Encodes an attribute: identifier, length, data, the bytes it points to, and whether it is marked
/// as an output.
fn attribute(id: u16, length: u16, data: u64, input: &[u8], output: u32) -> Vec<u8> {
    let mut bytes = words(&[16]);
    for half in [id, length, 0, 0] {
        bytes.extend(half.to_ne_bytes());
    }
    bytes.extend(data.to_ne_bytes());
    bytes.extend(words(&[input.len() as u32]));
    bytes.extend(input);
    bytes.extend(words(&[output]));
    bytes
}

fn request(object: u32, method: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut message = words(&[REQUEST, object, method, attributes.len() as u32]);
    attributes.iter().for_each(|attribute| message.extend(attribute));
    message
}

/// QUERY_PORT of port 1.
fn query_port() -> Vec<u8> {
    request(0, 2, &[attribute(0, 1, 1, &[], 0), attribute(1, 48, 0, &[], 1)])
}

fn errno(answer: &[u8]) -> i32 {
    i32::from_ne_bytes(*answer.first_chunk().unwrap())
}

#[test]
fn questions_are_answered_and_nothing_else_is_done() {
    let device = Device::open();
    let mut guest = Guest::of(&device);
    let answer = guest.ask(&query_port()).unwrap();
    assert_eq!(errno(&answer), 0);
    // The errno, the first attribute's flags without output, and the second's with 48 bytes of
    // output.
    assert_eq!(answer.len(), 4 + 8 + 8 + 48);
    // To make a protection domain (ALLOC_PD, the older way), a register page, or a file of events.
    let allocate = [attribute(2, 8, 3, &[], 0), attribute(1, 4, 0, &[], 1)];
    for making in [
        request(0, 0, &allocate),
        request(0x1008, 0x1000, &[attribute(0x1001, 8, 0, &[], 0)]),
        request(16, 0, &[attribute(0, 0, 0, &[], 0)]),
        request(0, 3, &[]),
    ] {
        assert_eq!(errno(&guest.ask(&making).unwrap()), libc::EOPNOTSUPP);
    }
    // A descriptor that is no device, and a request before any.
    let mut other = Guest::connect();
    assert_eq!(other.ask(&words(&[FILE, 0])).unwrap(), words(&[0]));
    assert_eq!(other.ask(&query_port()), None);
    // Queue pairs, from the first on: none. A list of nothing, and a question that is cut off.
    let mut third = Guest::connect();
    assert_eq!(third.ask(&words(&[RESOURCES, 10, 0])).unwrap(), words(&[0]));
    assert_eq!(third.ask(&words(&[RESOURCES, 999, 5])).unwrap(), words(&[0]));
    assert_eq!(third.ask(&words(&[RESOURCES, 10])), None);
}

#[test]
fn a_guest_does_not_say_where_answers_are_written() {
    let device = Device::open();
    let mut untouched = [0x5au8; 64];
    let address = untouched.as_mut_ptr() as u64;
    let mut guest = Guest::of(&device);
    // The port's attributes, and capabilities, to an address of the guest's choice.
    for said in [0, 1] {
        let output = attribute(1, 48, address, &[], said);
        let answer = guest.ask(&request(0, 2, &[attribute(0, 1, 1, &[], 0), output])).unwrap();
        assert_eq!((errno(&answer), answer.len()), (0, 4 + 8 + 8 + 48));
        let vectors =
            [attribute(0, 4, address, &[], said), attribute(0x1000, 72, address, &[], said)];
        guest.ask(&request(0, 4, &vectors)).unwrap();
    }
    // An input that is too long to be in the attribute is not read from there either.
    let long = attribute(0, 32, address, &[], 0);
    assert_eq!(guest.ask(&request(0, 0, &[long, attribute(2, 8, 1, &[], 0)])), None);
    assert_eq!(untouched, [0x5a; 64]);
}

#[test]
fn strangers_messages_end_their_connection_at_most() {
    let device = Device::open();
    let mut random = Random::new(7);
    let valid = query_port();
    for round in 0..3000 {
        let mut guest = Guest::of(&device);
        let mut message = valid.clone();
        for _ in 0..1 + random.next() % 4 {
            let at = random.next() as usize % message.len();
            message[at] = random.next() as u8;
        }
        if round % 3 == 0 {
            message.truncate(random.next() as usize % message.len());
        }
        let _ = guest.ask(&message);
    }
    // A length that is longer than any message.
    let mut guest = Guest::connect();
    guest.0.write_all(&u32::MAX.to_ne_bytes()).unwrap();
    assert_eq!(guest.0.read(&mut [0; 1]).unwrap_or(0), 0);
    assert_eq!(errno(&Guest::of(&device).ask(&valid).unwrap()), 0);
}
