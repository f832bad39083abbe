//! Requests to the command file that no library makes, and their allowed answers.

use std::collections::BTreeMap;
use std::ptr::null_mut;

use libc::{c_int, c_ulong};

use super::random::Random;
use super::verbs::{Device, Station, connect, exchange};

/// `RDMA_VERBS_IOCTL`
pub const REQUEST: c_ulong = 0xc018_1b01;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Header {
    pub length: u16,
    pub object: u16,
    pub method: u16,
    pub attributes: u16,
    pub reserved1: u64,
    pub driver: u32,
    pub reserved2: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    pub id: u16,
    pub length: u16,
    pub flags: u16,
    pub reserved: u16,
    pub data: u64,
}

#[repr(C)]
pub struct Request {
    pub header: Header,
    pub attributes: [Attribute; 32],
}

/// `UVERBS_ATTR_F_MANDATORY`
pub const MANDATORY: u16 = 1;

pub const fn attribute(id: u16, length: u16, data: u64) -> Attribute {
    Attribute { id, length, flags: MANDATORY, reserved: 0, data }
}

pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().expect("an errno")
}

/// Makes a request; the errno if it is refused.
pub fn call(file: c_int, object: u16, method: u16, given: &[Attribute]) -> Result<(), c_int> {
    answer(file, object, method, given).map(|_| ())
}

/// Makes a request whose first attribute is the handle of something new; that handle.
pub fn make(file: c_int, object: u16, method: u16, given: &[Attribute]) -> Result<u64, c_int> {
    answer(file, object, method, given).map(|request| request.attributes[0].data)
}

fn answer(file: c_int, object: u16, method: u16, given: &[Attribute]) -> Result<Request, c_int> {
    let none = Attribute { id: 0, length: 0, flags: 0, reserved: 0, data: 0 };
    let mut request = Request {
        header: Header {
            length: (24 + 16 * given.len()) as u16,
            object,
            method,
            attributes: given.len() as u16,
            reserved1: 0,
            driver: 1,
            reserved2: 0,
        },
        attributes: [none; 32],
    };
    request.attributes[..given.len()].copy_from_slice(given);
    // SAFETY: the request is there and as long as it says; what it points to is memory of this
    // test's own, or none.
    match unsafe { libc::ioctl(file, REQUEST, &mut request) } {
        0 => Ok(request),
        result => {
            assert_eq!(result, -1);
            Err(errno())
        }
    }
}

/// The kind of value that an attribute takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Input of so many bytes, at least and at most.
    In(u16, u16),
    /// Room for so many bytes of output, at least.
    Out(u16),
    /// A handle or a descriptor.
    Handle,
    /// Output for the handle of a new object.
    New,
}
use Kind::{Handle, In, New, Out};

pub struct Method {
    pub object: u16,
    pub method: u16,
    /// Attributes that have to be given.
    pub required: &'static [(u16, Kind)],
    /// Those that may be.
    pub optional: &'static [(u16, Kind)],
}

pub const ANY: Kind = In(0, u16::MAX);
pub const IN: (u16, Kind) = (0x1000, ANY);
pub const OUT: (u16, Kind) = (0x1001, Out(0));

/// Methods of the kernel's interface (`ib_user_ioctl_cmds.h`, `mlx5_user_ioctl_cmds.h`), written
/// down apart from those the model serves.
pub const METHODS: &[Method] = &[
    // DEVICE: INVOKE_WRITE, QUERY_PORT, GET_CONTEXT, QUERY_CONTEXT, QUERY_GID_TABLE, QUERY_GID_ENTRY
    Method {
        object: 0,
        method: 0,
        required: &[(2, In(8, 8))],
        optional: &[(0, ANY), (1, Out(0)), IN, OUT],
    },
    Method { object: 0, method: 2, required: &[(0, In(1, 8)), (1, Out(40))], optional: &[] },
    Method { object: 0, method: 3, required: &[], optional: &[(0, Out(4)), (1, Out(8)), IN, OUT] },
    Method {
        object: 0,
        method: 4,
        required: &[(0x1000, Out(72))],
        optional: &[(0, Out(4)), (1, Out(8))],
    },
    Method {
        object: 0,
        method: 5,
        required: &[(0, In(1, 8)), (2, Out(0)), (3, Out(8))],
        optional: &[(1, In(1, 8))],
    },
    Method {
        object: 0,
        method: 6,
        required: &[(0, In(1, 8)), (1, In(1, 8)), (3, Out(32))],
        optional: &[(2, In(1, 8))],
    },
    // PD: DESTROY, QUERY (mlx5)
    Method { object: 1, method: 0, required: &[(0, Handle)], optional: &[] },
    Method {
        object: 1,
        method: 0x1000,
        required: &[(0x1000, Handle), (0x1001, Out(4))],
        optional: &[],
    },
    // CQ: CREATE, DESTROY
    Method {
        object: 3,
        method: 0,
        required: &[(0, New), (1, In(4, 4)), (2, In(8, 8)), (4, In(4, 4)), (6, Out(4))],
        optional: &[(3, Handle), (5, In(4, 4)), (7, Handle), IN, OUT],
    },
    Method { object: 3, method: 1, required: &[(0, Handle), (1, Out(8))], optional: &[] },
    // QP: CREATE, DESTROY
    Method {
        object: 4,
        method: 0,
        required: &[
            (0, New),
            (7, In(8, 8)),
            (8, In(20, 20)),
            (9, In(8, 8)),
            (13, Out(20)),
            (14, Out(4)),
        ],
        optional: &[
            (2, Handle),
            (3, Handle),
            (4, Handle),
            (5, Handle),
            (10, In(4, 4)),
            (12, Handle),
            IN,
            OUT,
        ],
    },
    Method { object: 4, method: 1, required: &[(0, Handle), (1, Out(4))], optional: &[] },
    // SRQ: CREATE, DESTROY
    Method {
        object: 5,
        method: 0,
        required: &[
            (0, New),
            (1, Handle),
            (4, In(8, 8)),
            (5, In(4, 4)),
            (6, In(4, 4)),
            (7, In(4, 4)),
            (9, In(8, 8)),
            (11, Out(4)),
            (12, Out(4)),
        ],
        optional: &[(2, Handle), (3, Handle), (8, In(4, 4)), (10, Handle), (13, Out(4)), IN, OUT],
    },
    Method { object: 5, method: 1, required: &[(0, Handle), (1, Out(4))], optional: &[] },
    // AH: DESTROY
    Method { object: 6, method: 0, required: &[(0, Handle)], optional: &[] },
    // MR: DESTROY, QUERY
    Method { object: 7, method: 1, required: &[(0, Handle)], optional: &[] },
    Method {
        object: 7,
        method: 3,
        required: &[(0, Handle), (1, Out(4)), (2, Out(4)), (3, Out(8))],
        optional: &[(4, Out(8))],
    },
    // MW: DESTROY
    Method { object: 8, method: 0, required: &[(0, Handle)], optional: &[] },
    // XRCD: DESTROY
    Method { object: 10, method: 0, required: &[(0, Handle)], optional: &[] },
    // ASYNC_EVENT: ALLOC
    Method { object: 16, method: 0, required: &[(0, New)], optional: &[] },
    // DMABUF: ALLOC
    Method { object: 18, method: 0, required: &[(0, New), (1, In(8, 8))], optional: &[] },
    // MLX5 DEVX: OTHER, QUERY_EQN
    Method {
        object: 0x1000,
        method: 0x1000,
        required: &[(0x1000, In(16, u16::MAX)), (0x1001, Out(16))],
        optional: &[],
    },
    Method {
        object: 0x1000,
        method: 0x1002,
        required: &[(0x1000, In(4, 4)), (0x1001, Out(4))],
        optional: &[],
    },
    // MLX5 DEVX: SUBSCRIBE_EVENT, and ALLOC of its files
    Method {
        object: 0x1000,
        method: 0x1003,
        // The first is a descriptor.
        required: &[(0x1002, In(2, u16::MAX)), (0x1000, Handle)],
        optional: &[(0x1001, Handle), (0x1003, In(4, 4)), (0x1004, In(8, 8))],
    },
    Method {
        object: 0x1005,
        method: 0x1000,
        required: &[(0x1000, New), (0x1001, In(1, 8))],
        optional: &[],
    },
    // MLX5 UAR: ALLOC
    Method {
        object: 0x1008,
        method: 0x1000,
        required: &[
            (0x1000, New),
            (0x1001, In(1, 8)),
            (0x1002, Out(8)),
            (0x1003, Out(4)),
            (0x1004, Out(4)),
        ],
        optional: &[],
    },
    // MLX5 DEVX_OBJ: CREATE, DESTROY, MODIFY, QUERY
    Method {
        object: 0x1001,
        method: 0x1000,
        required: &[(0x1000, New), (0x1001, In(16, u16::MAX)), (0x1002, Out(16))],
        optional: &[],
    },
    Method { object: 0x1001, method: 0x1001, required: &[(0x1000, Handle)], optional: &[] },
    Method {
        object: 0x1001,
        method: 0x1002,
        required: &[(0x1000, Handle), (0x1001, In(16, u16::MAX)), (0x1002, Out(16))],
        optional: &[],
    },
    Method {
        object: 0x1001,
        method: 0x1003,
        required: &[(0x1000, Handle), (0x1001, In(16, u16::MAX)), (0x1002, Out(16))],
        optional: &[],
    },
    // MLX5 DEVX_OBJ: ASYNC_QUERY, and ALLOC of its files
    Method {
        object: 0x1001,
        method: 0x1004,
        // The last is a descriptor.
        required: &[
            (0x1000, Handle),
            (0x1001, In(16, u16::MAX)),
            (0x1003, In(8, 8)),
            (0x1004, In(1, 8)),
            (0x1002, Handle),
        ],
        optional: &[],
    },
    Method { object: 0x1004, method: 0x1000, required: &[(0x1000, New)], optional: &[] },
    // MLX5 DEVX_UMEM: REG, DEREG
    Method {
        object: 0x1002,
        method: 0x1000,
        required: &[
            (0x1000, New),
            (0x1001, In(8, 8)),
            (0x1002, In(8, 8)),
            (0x1003, In(1, 8)),
            (0x1004, Out(4)),
        ],
        optional: &[],
    },
    Method { object: 0x1002, method: 0x1001, required: &[(0x1000, Handle)], optional: &[] },
    // MLX5 UAR: DESTROY
    Method { object: 0x1008, method: 0x1001, required: &[(0x1000, Handle)], optional: &[] },
];

/// Handle that no object has.
pub const NOBODY: u64 = 0x7fff_fff0;
pub const PAGE: usize = 4096;

/// Pages to point to: two writable, one read-only, one that nothing answers at.
pub struct Scratch(pub u64);

impl Scratch {
    pub fn new() -> Self {
        // SAFETY: a new mapping, never unmapped.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(null_mut(), 4 * PAGE, protection, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            libc::mprotect(base.byte_add(2 * PAGE), PAGE, libc::PROT_READ);
            libc::mprotect(base.byte_add(3 * PAGE), PAGE, libc::PROT_NONE);
            Self(base as u64)
        }
    }

    pub fn writable(&self) -> u64 {
        self.0
    }

    pub fn read_only(&self) -> u64 {
        self.0 + 2 * PAGE as u64
    }

    /// Addresses at which no two words can be read.
    pub fn unreadable(&self) -> [u64; 6] {
        let hole = self.0 + 3 * PAGE as u64;
        [0, 0x10, hole, hole - 4, 0xffff_8000_0000_0000, u64::MAX - 3]
    }

    /// Attributes that are all valid except for handles, which are unused.
    pub fn attributes(&self, method: &Method) -> Vec<Attribute> {
        let all = method.required.iter().chain(method.optional);
        all.map(|(id, kind)| match *kind {
            In(least, _) if least <= 8 => attribute(*id, least, 0),
            In(least, _) => attribute(*id, least, self.writable()),
            Out(least) => attribute(*id, least.max(8), self.writable() + 512),
            Handle => attribute(*id, 0, NOBODY),
            New => attribute(*id, 0, 0),
        })
        .collect()
    }

    pub fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= 2 * PAGE);
        // SAFETY: the bytes are inside the writable pages. A card may be writing there too, which
        // does no harm.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.0 as *mut u8, bytes.len()) };
    }
}

/// A device with objects for the requests to hit, and a pair of stations that must not notice.
pub struct Scene {
    pub healthy: (Station, Station),
    pub file: c_int,
    pub scratch: Scratch,
}

impl Scene {
    pub fn new() -> Self {
        let device = Device::open(0);
        let healthy = (Station::new(device), Station::new(device));
        connect(&healthy.0, &healthy.1);
        let victim = Device::open(0);
        // Their objects have the lowest handles, so random requests meet them.
        let stations = (Station::new(victim), Station::new(victim));
        connect(&stations.0, &stations.1);
        // SAFETY: the context is open.
        let file = unsafe { (*victim.context).cmd_fd };
        let scene = Self { healthy, file, scratch: Scratch::new() };
        scene.check();
        scene
    }

    /// The others still speak.
    #[track_caller]
    pub fn check(&self) {
        exchange(&self.healthy.0, &self.healthy.1);
    }

    /// At the end: new devices open, and the old one closes.
    pub fn end(self) -> i32 {
        self.check();
        // SAFETY: the library is not used on this file again.
        assert_eq!(unsafe { libc::close(self.file) }, 0);
        self.check();
        let device = Device::open(0);
        let (one, other) = (Station::new(device), Station::new(device));
        connect(&one, &other);
        exchange(&one, &other);
        exchange(&other, &one);
        one.destroy();
        other.destroy();
        device.close();
        self.check();
        0
    }
}

/// The errors that the kernel may return for an invalid request.
pub const ERRNOS: [c_int; 15] = [
    libc::EINVAL,
    libc::EFAULT,
    libc::ENOENT,
    libc::EPROTONOSUPPORT,
    libc::EOPNOTSUPP,
    libc::ENOSPC,
    libc::EBADF,
    libc::ENOMEM,
    libc::EBUSY,
    libc::ENODATA,
    libc::EIO,
    libc::EREMOTEIO,
    libc::ENOTTY,
    libc::EPERM,
    libc::EAGAIN,
];

/// Words that mean something somewhere.
pub fn word(random: &mut Random, scratch: &Scratch) -> u64 {
    match random.below(12) {
        0..=3 => random.below(6) as u64,
        4 => scratch.writable() + random.below(PAGE) as u64 * 8 % PAGE as u64,
        5 => scratch.writable(),
        6 => scratch.read_only(),
        7 => random.pick(&scratch.unreadable()),
        8 => 1 << random.below(64),
        9 => u64::MAX >> random.below(64),
        10 => random.next() >> 40,
        // High half and low half of two small numbers.
        _ => (random.below(300) as u64) << 32 | random.below(300) as u64,
    }
}

/// Structures that are made of such words.
pub fn structure(random: &mut Random, scratch: &Scratch, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        bytes.extend(word(random, scratch).to_ne_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Counts answers, each of which has to be one of the kernel's.
#[derive(Default)]
pub struct Tally(BTreeMap<c_int, usize>);

impl Tally {
    #[track_caller]
    pub fn count(&mut self, result: Result<(), c_int>) {
        let errno = result.err().unwrap_or(0);
        assert!(errno == 0 || ERRNOS.contains(&errno), "errno {errno}");
        *self.0.entry(errno).or_default() += 1;
    }

    /// Some got through and some did not, or this was no test of anything.
    pub fn end(&self, what: &str) {
        println!("{what}: answers by errno: {:?}", self.0);
        assert!(self.0.contains_key(&0) && self.0.len() > 4, "{what}: {:?}", self.0);
    }
}
