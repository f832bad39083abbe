//! A vfio-user client, and above it a driver that starts the HCA by BAR and command queue.

#![allow(dead_code, reason = "no test needs all of it")]

pub mod driver;

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use mlx5_model::card::{Link, Profile};
use mlx5_model_pci::options::{Log, Options};
use mlx5_model_pci::protocol::{Access, HEADER, Header, command, words};
use mlx5_model_pci::server::Server;

/// Bytes of a guest's memory.
pub const MEMORY: u64 = 4 << 20;
/// Regions.
pub const BAR: u32 = 0;
pub const CONFIG: u32 = 7;

/// Starts a server of so many functions, and returns the paths of their sockets.
pub fn serve(functions: usize, link: Link) -> Vec<PathBuf> {
    serve_as(functions, link, Profile::default())
}

/// The same, of a generation of ConnectX.
pub fn serve_as(functions: usize, link: Link, profile: Profile) -> Vec<PathBuf> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let run = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir();
    let name = |index| format!("mlx5-model-pci-{}.{run}.{index}", std::process::id());
    let sockets: Vec<PathBuf> = (0..functions).map(|index| folder.join(name(index))).collect();
    let options = Options { sockets: sockets.clone(), link, profile, log: Log::Refused };
    let _running = Server::start(&options).expect("the server starts");
    sockets
}

/// Connects to a socket and removes its file. Only for the last connection of a test.
pub fn connect_last(socket: &PathBuf) -> Client {
    let client = Client::connect(socket);
    std::fs::remove_file(socket).unwrap();
    client
}

/// A client with memory and eventfds.
pub struct Client {
    pub stream: UnixStream,
    pub memory: File,
    next: u16,
}

impl Client {
    pub fn connect(socket: &PathBuf) -> Self {
        let stream = UnixStream::connect(socket).expect("the server listens");
        // SAFETY: the call reads the name. The descriptor it returns is new.
        let memory = unsafe {
            let fd = libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        memory.set_len(MEMORY).unwrap();
        Self { stream, memory, next: 0 }
    }

    /// Sends a command, with descriptors.
    pub fn send(&mut self, command: u16, flags: u32, payload: &[u8], descriptors: &[RawFd]) {
        self.next = self.next.wrapping_add(1);
        let size = (HEADER + payload.len()) as u32;
        let header = Header { id: self.next, command, size, flags, error: 0 };
        let mut bytes = header.bytes().to_vec();
        bytes.extend_from_slice(payload);
        if descriptors.is_empty() {
            self.stream.write_all(&bytes).unwrap();
        } else {
            send_with(&self.stream, &bytes, descriptors).unwrap();
        }
    }

    /// Receives a reply: its header and payload.
    pub fn receive(&mut self) -> io::Result<(Header, Vec<u8>)> {
        let mut header = [0; HEADER];
        self.stream.read_exact(&mut header)?;
        let header = Header::read(&header);
        let mut payload = vec![0; header.size as usize - HEADER];
        self.stream.read_exact(&mut payload)?;
        Ok((header, payload))
    }

    /// Returns the reply's payload, or its errno.
    pub fn ask_with(
        &mut self,
        command: u16,
        payload: &[u8],
        fds: &[RawFd],
    ) -> Result<Vec<u8>, i32> {
        self.send(command, 0, payload, fds);
        let (header, reply) = self.receive().expect("a reply");
        assert_eq!((header.id, header.command), (self.next, command));
        if header.error == 0 { Ok(reply) } else { Err(header.error as i32) }
    }

    pub fn ask(&mut self, command: u16, payload: &[u8]) -> Result<Vec<u8>, i32> {
        self.ask_with(command, payload, &[])
    }

    /// Agrees on a version, and shares the memory at bus address zero.
    pub fn start(&mut self) {
        let mut version = words(&[1 << 16]);
        version.extend(b"{\"capabilities\":{\"max_msg_fds\":8}}\0");
        self.ask(command::VERSION, &version).unwrap();
        self.map(0, 0, MEMORY, 3).unwrap();
    }

    pub fn map(
        &mut self,
        offset: u64,
        address: u64,
        length: u64,
        flags: u32,
    ) -> Result<Vec<u8>, i32> {
        let mut payload = words(&[32, flags]);
        payload.extend([offset, address, length].iter().flat_map(|long| long.to_le_bytes()));
        let memory = self.memory.as_raw_fd();
        self.ask_with(command::DMA_MAP, &payload, &[memory])
    }

    pub fn unmap(&mut self, address: u64, length: u64) -> Result<Vec<u8>, i32> {
        let mut payload = words(&[24, 0]);
        payload.extend([address, length].iter().flat_map(|long| long.to_le_bytes()));
        self.ask(command::DMA_UNMAP, &payload)
    }

    pub fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, i32> {
        let reply = self.ask(command::REGION_READ, &Access { offset, region, count }.bytes())?;
        assert_eq!(reply.len(), Access::SIZE + count as usize);
        Ok(reply[Access::SIZE..].to_vec())
    }

    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<Vec<u8>, i32> {
        let mut payload = Access { offset, region, count: data.len() as u32 }.bytes().to_vec();
        payload.extend_from_slice(data);
        self.ask(command::REGION_WRITE, &payload)
    }

    /// Reads a word of the initialization segment.
    pub fn word(&mut self, offset: u64) -> u32 {
        u32::from_be_bytes(self.read(BAR, offset, 4).unwrap().try_into().unwrap())
    }

    /// Writes a word of the initialization segment.
    pub fn set_word(&mut self, offset: u64, value: u32) {
        self.write(BAR, offset, &value.to_be_bytes()).unwrap();
    }

    /// Listens to a vector of MSI-X.
    pub fn listen(&mut self, vector: u32) -> File {
        // SAFETY: the call passes integers. The descriptor it returns is new.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        let payload = words(&[20, 4 | 32, 2, vector, 1]);
        self.ask_with(command::DEVICE_SET_IRQS, &payload, &[event.as_raw_fd()]).unwrap();
        event
    }

    pub fn peek(&self, address: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.memory.read_exact_at(&mut bytes, address).unwrap();
        bytes
    }

    pub fn poke(&self, address: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, address).unwrap();
    }
}

/// Returns how often an eventfd was signalled since the last call.
pub fn signals(event: &mut File) -> u64 {
    let mut count = [0; 8];
    event.read_exact(&mut count).map_or(0, |()| u64::from_ne_bytes(count))
}

/// Sends bytes in one message with descriptors.
fn send_with(stream: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let mut control = [0u64; 64];
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let length = size_of_val(descriptors) as u32;
    // SAFETY: zeros are a value of this structure. The control buffer is larger than CMSG_SPACE of
    // the few descriptors, which are copied to the place that CMSG_DATA says.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(length) as _;
        assert!(message.msg_controllen as usize <= size_of_val(&control));
        let header = &mut *libc::CMSG_FIRSTHDR(&message);
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        header.cmsg_len = libc::CMSG_LEN(length) as _;
        let data = libc::CMSG_DATA(header).cast::<RawFd>();
        for (index, fd) in descriptors.iter().enumerate() {
            data.add(index).write_unaligned(*fd);
        }
        libc::sendmsg(stream.as_raw_fd(), &message, 0)
    };
    assert_eq!(size_of::<RawFd>(), 4);
    if sent == bytes.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}
