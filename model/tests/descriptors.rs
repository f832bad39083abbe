//! Descriptors: after every way to close a device's descriptor, the next file with its number is not
//! the model's. Mappings keep the device. Programs cannot close the sockets between devices. Without free
//! descriptors packets wait.

mod support;

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::Stdio;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use libc::c_int;
use mlx5_model as _;
use mlx5_sys::verbs::ibv_reg_mr;
use support::role::{Player, hear, play, say};
use support::sockets;
use support::target::{introduce, make, reach, target};
use support::verbs::{Device, PATIENCE, Station, Timing, connect, exchange, poll};

unsafe extern "C" {
    fn closefrom(first: c_int);
}

#[test]
fn role() {
    play(&[
        ("target", target),
        ("closed", closed),
        ("kept", kept),
        ("daemon", daemon),
        ("full", full),
        ("guest", guest),
        ("host", host),
    ]);
}

fn errno() -> Option<c_int> {
    std::io::Error::last_os_error().raw_os_error()
}

/// A way to close a descriptor, and its name.
type Way = (&'static str, fn(RawFd));

fn ways() -> Vec<Way> {
    let mut ways: Vec<Way> = vec![
        ("close", |fd| {
            // SAFETY: here as below the descriptor is a test's, which does not use it any more.
            assert_eq!(unsafe { libc::close(fd) }, 0);
        }),
        ("close_range", |fd| {
            // SAFETY: the descriptor is a test's, which does not use it any more.
            assert_eq!(unsafe { libc::close_range(fd as u32, fd as u32, 0) }, 0);
        }),
        ("close_range, the system call", |fd| {
            // SAFETY: the descriptor is a test's, which does not use it any more.
            assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, fd, fd, 0) }, 0);
        }),
        ("closefrom", |fd| {
            // SAFETY: the descriptor is a test's, which does not use it any more. This role has no
            // higher one open.
            unsafe { closefrom(fd) };
        }),
        ("fclose", |fd| {
            // SAFETY: the descriptor is a test's, which does not use it any more. The stream is
            // new.
            unsafe {
                let stream = libc::fdopen(fd, c"r+".as_ptr());
                assert!(!stream.is_null());
                assert_eq!(libc::fclose(stream), 0);
            }
        }),
        ("dup2", |fd| {
            // SAFETY: the descriptor is a test's, which does not use it any more.
            assert_eq!(unsafe { libc::dup2(0, fd) }, fd);
        }),
        ("dup3", |fd| {
            // SAFETY: the descriptor is a test's, which does not use it any more.
            assert_eq!(unsafe { libc::dup3(0, fd, libc::O_CLOEXEC) }, fd);
        }),
        ("freopen", |fd| {
            // SAFETY: the descriptor is a test's, which does not use it any more. The stream is
            // new.
            unsafe {
                let stream = libc::fdopen(fd, c"r+".as_ptr());
                let stream = libc::freopen(c"/etc/passwd".as_ptr(), c"r".as_ptr(), stream);
                assert!(!stream.is_null());
            }
        }),
    ];
    #[cfg(target_arch = "x86_64")]
    ways.push(("a system call of the program's own", |fd| {
        let mut result = libc::SYS_close;
        // SAFETY: the descriptor is a test's, which does not use it any more. The instruction
        // changes only the registers listed.
        unsafe {
            std::arch::asm!("syscall", inout("rax") result, in("rdi") fd, out("rcx") _, out("r11") _);
        }
        assert_eq!(result, 0);
    }));
    ways
}

/// Closes devices, and checks the reuse of their numbers.
fn closed() -> i32 {
    for (way, close) in ways() {
        let device = Device::open(0);
        // SAFETY: the context is open.
        let fd = unsafe { (*device.context).cmd_fd };
        close(fd);
        // A file with the number is a file.
        let file = loop {
            let file = File::open("/etc/passwd").expect("a file");
            if file.as_raw_fd() >= fd || fs::read_link(format!("/proc/self/fd/{fd}")).is_ok() {
                break file;
            }
            std::mem::forget(file);
        };
        let replaced = ["dup2", "dup3", "freopen"].contains(&way);
        if !replaced {
            assert_eq!(file.as_raw_fd(), fd, "{way}");
            // SAFETY: a new mapping of a file, which is unmapped.
            unsafe {
                let flags = libc::MAP_PRIVATE;
                let at = libc::mmap(null_mut(), 1, libc::PROT_READ, flags, fd, 0);
                assert_ne!(at, libc::MAP_FAILED, "{way}: {:?}", errno());
                libc::munmap(at, 1);
            }
        }
        // And no device.
        // SAFETY: `RDMA_VERBS_IOCTL` on what has no such request.
        let asked = unsafe { libc::ioctl(fd, 0xc018_1b01, null_mut::<u8>()) };
        let refused = errno().expect("an error");
        assert!(asked == -1 && [libc::ENOTTY, libc::EINVAL].contains(&refused), "{way}: {refused}");
        drop(file);
        // SAFETY: whatever has the number now is this test's.
        unsafe { libc::close(fd) };
        // Another device can be opened and used.
        let device = Device::open(0);
        let (one, other) = (Station::new(device), Station::new(device));
        connect(&one, &other);
        exchange(&one, &other);
        one.destroy();
        other.destroy();
        device.close();
    }
    0
}

#[test]
fn numbers_of_closed_devices_are_not_the_models() {
    Player::of("closed").end_well();
}

/// A mapping of this process.
struct Mapping {
    start: usize,
    length: usize,
    /// Permissions, offset, device, inode and name, as the kernel writes them.
    about: String,
    /// Whether a forked child gets it.
    is_inherited: bool,
}

/// Returns the mappings of this process.
fn mappings() -> Vec<Mapping> {
    let text = fs::read_to_string("/proc/self/smaps").expect("the kernel's list");
    let mut found: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        let range = |line: &str| {
            let (range, about) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            Some((number(start)?, number(end)?, about.to_owned()))
        };
        if let Some((start, end, about)) = range(line) {
            found.push(Mapping { start, length: end - start, about, is_inherited: true });
        } else if line.starts_with("VmFlags:") && line.split(' ').any(|flag| flag == "dc") {
            found.last_mut().expect("a mapping").is_inherited = false;
        }
    }
    found
}

/// Closes the descriptor of a device whose registers are mapped, goes on, and unmaps them.
fn kept() -> i32 {
    /// Bytes of memory that a region pins: of no other mapping.
    const PINNED: usize = 37 << 12;
    let device = Device::open(0);
    let (one, other) = (Station::new(device), Station::new(device));
    connect(&one, &other);
    exchange(&one, &other);
    let peer = other.address();
    // SAFETY: new memory, which is registered before it is unmapped. The device keeps its pages.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(null_mut(), PINNED, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert!(!ibv_reg_mr(one.pd, at, PINNED, 1).is_null());
        assert_eq!(libc::munmap(at, PINNED), 0);
        assert_eq!(libc::close((*device.context).cmd_fd), 0);
    }
    let is_pinned =
        || mappings().iter().any(|mapping| !mapping.is_inherited && mapping.length == PINNED);
    assert!(is_pinned());
    for (id, byte) in [(1, 0x11), (2, 0x22), (3, 0x33)] {
        one.put(0, &[byte; 64]);
        one.write(id, 0, 64, peer);
        one.expect(id);
        assert_eq!(other.get(0, 64), [byte; 64]);
    }
    // What the program may not write to: pages of registers that trap, and of the clocks.
    let mut mapped = mappings();
    mapped.retain(|Mapping { about, is_inherited, .. }| {
        about.starts_with("r--s") && about.contains("/memfd:mlx5-")
            || about.starts_with("---p") && !is_inherited
    });
    assert!(!mapped.is_empty());
    for Mapping { start, length, .. } in mapped {
        assert!(is_pinned(), "the device is open until its last mapping is gone");
        // SAFETY: the mapping is the program's way to the device, which it does not use any more.
        assert_eq!(unsafe { libc::munmap(start as *mut _, length) }, 0);
    }
    assert!(!is_pinned(), "the device is closed when its last mapping is gone");
    0
}

#[test]
fn a_mapping_keeps_a_device_whose_descriptor_is_closed() {
    Player::of("kept").end_well();
}

/// Closes all that it did not open, as daemons do, and goes on.
fn daemon() -> i32 {
    let all: [fn(); 4] = [
        || {
            // SAFETY: this role has nothing open that it uses later.
            assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
        },
        || {
            // SAFETY: this role has nothing open that it uses later.
            unsafe { closefrom(3) };
        },
        || {
            (3..4096).for_each(|fd| {
                // SAFETY: this role has nothing open that it uses later.
                unsafe { libc::close(fd) };
            });
        },
        || {
            let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")
                .expect("the kernel's list")
                .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                .collect();
            // The device is replaced, what connects the cards is not.
            // SAFETY: this role has nothing open that it uses later.
            let replaced = |fd: &RawFd| *fd > 2 && unsafe { libc::dup2(0, *fd) } == *fd;
            let refused = open.iter().filter(|fd| **fd > 2 && !replaced(fd)).count();
            assert_eq!(errno(), Some(libc::EBUSY));
            assert!(refused > 3, "{refused} of {open:?}");
        },
    ];
    let meeting = || {
        let station = Station::new(Device::open(0));
        say(station.address());
        let peer = hear().expect("an address").parse().expect("an address");
        station.connect(peer, Timing::PATIENT);
        reach(&station, peer);
        say("reached");
        assert_eq!(hear().as_deref(), Some("go on"));
    };
    meeting();
    for close in all {
        close();
        // A flag is not set on the model's own either, and nothing is closed by it.
        // SAFETY: this role has nothing open that it uses later, and the call closes nothing.
        assert_eq!(unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) }, 0);
        meeting();
    }
    0
}

#[test]
fn a_program_that_closes_every_descriptor_keeps_its_card() {
    let mut player = Player::of("daemon");
    let device = Device::open(0);
    for _ in 0..5 {
        let station = Station::new(device);
        let peer = player.hear().parse().expect("an address");
        station.connect(peer, Timing::PATIENT);
        player.tell(station.address());
        assert_eq!(player.hear(), "reached");
        reach(&station, peer);
        player.tell("go on");
        station.destroy();
    }
    player.end_well();
}

#[test]
fn calls_that_close_nothing_leave_the_device() {
    let device = Device::open(0);
    // SAFETY: the context is open; each call fails or concerns a child alone.
    unsafe {
        let fd = (*device.context).cmd_fd;
        assert_eq!(libc::dup2(-1, fd), -1);
        assert_eq!(libc::dup3(fd, fd, 0), -1);
        assert_eq!(libc::dup2(fd, fd), fd);
        assert_eq!(libc::close_range(fd as u32, fd as u32 - 1, 0), -1);
        assert_eq!(libc::close_range(fd as u32, fd as u32, 1 << 20), -1);
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        assert_eq!(libc::posix_spawn_file_actions_init(&mut actions), 0);
        assert_eq!(libc::posix_spawn_file_actions_addclose(&mut actions, fd), 0);
        assert_eq!(libc::posix_spawn_file_actions_adddup2(&mut actions, 1, fd), 0);
        let mut child = 0;
        let arguments = [c"true".as_ptr().cast_mut(), null_mut()];
        let name: &CStr = c"/bin/true";
        let (attributes, environment) = (std::ptr::null(), [null_mut()]);
        let spawned = libc::posix_spawn(
            &mut child,
            name.as_ptr(),
            &actions,
            attributes,
            arguments.as_ptr(),
            environment.as_ptr(),
        );
        assert_eq!(spawned, 0);
        libc::posix_spawn_file_actions_destroy(&mut actions);
        let mut status = 1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
    let (one, other) = (Station::new(device), Station::new(device));
    connect(&one, &other);
    exchange(&one, &other);
    one.destroy();
    other.destroy();
    device.close();
}

/// Lets this process have few descriptors.
fn limit() {
    let limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: the structure is there.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// Takes every descriptor that there is.
fn fill() -> Vec<File> {
    let path = CString::new("/dev/null").expect("no zero");
    let files = std::iter::from_fn(|| File::open(path.to_str().expect("a text")).ok());
    let files: Vec<File> = files.collect();
    assert_eq!(errno(), Some(libc::EMFILE));
    files
}

/// Sends to a process that it has not sent to, and is sent to, without a descriptor to do so.
fn full() -> i32 {
    limit();
    let mut player = Player::of("target");
    let device = Device::open(0);
    let station = Station::new(device);
    let peer = make(&mut player);
    let peer = introduce(&station, &mut player, (0, peer), Timing::PATIENT);
    let files = fill();
    station.write(7, 0, 64, peer);
    assert_eq!(poll(station.cq), None);
    // The peer's own WRITEs come to a listener that cannot accept.
    player.tell("stream 0");
    let start = usage();
    std::thread::sleep(Duration::from_millis(500));
    let used = usage() - start;
    assert!(used < Duration::from_millis(250), "{used:?} of 500 ms while nothing can be done");
    assert_eq!(poll(station.cq), None);
    drop(files);
    station.expect(7);
    let end = Instant::now() + PATIENCE;
    while station.byte(0) == 0 && station.byte(1) == 0 {
        assert!(Instant::now() < end, "the peer's stream does not arrive");
        std::thread::yield_now();
    }
    0
}

/// Time of processors that this process has used.
fn usage() -> Duration {
    // SAFETY: all zeros is a valid value, which the call fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        let time = |time: libc::timeval| {
            Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64)
        };
        time(usage.ru_utime) + time(usage.ru_stime)
    }
}

#[test]
fn packets_wait_for_descriptors_and_a_line_says_so() {
    let mut command = Player::command("full");
    command.stderr(Stdio::piped());
    let mut player = Player::start(command);
    let mut errors = player.child.stderr.take().expect("a pipe");
    player.end_well();
    let mut said = String::new();
    errors.read_to_string(&mut said).expect("what it said");
    assert!(said.contains("mlx5-model: packets wait") && said.contains("ulimit -n"), "{said}");
}

/// Asks a process for its queue pairs, as the kernel lists them.
fn guest() -> i32 {
    let start = hear().expect("a name");
    let address = SocketAddr::from_abstract_name(sockets::find(&start)).expect("an address");
    let mut host = UnixStream::connect_addr(&address).expect("a host that listens");
    // Twelve bytes long, for a list: of queue pairs, from the first on.
    let question: Vec<u8> = [12u32, 3, 10, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
    host.write_all(&question).expect("a question");
    say("asked");
    let mut answer = [0; 8];
    host.read_exact(&mut answer).expect("an answer");
    say("answered");
    assert_eq!(hear(), None);
    0
}

/// Is asked by others without a descriptor to accept them.
fn host() -> i32 {
    limit();
    let _device = Device::open(0);
    let mut guests = [Player::of("guest"), Player::of("guest")];
    let files = fill();
    let name = format!("{}process/{}.", sockets::names(), std::process::id());
    let [first, second] = &mut guests;
    first.tell(&name);
    assert_eq!(first.hear(), "asked");
    // By the one that is kept for this.
    assert_eq!(first.hear(), "answered");
    second.tell(&name);
    assert_eq!(second.hear(), "asked");
    let start = usage();
    std::thread::sleep(Duration::from_millis(500));
    let used = usage() - start;
    assert!(used < Duration::from_millis(250), "{used:?} of 500 ms while a guest waits");
    drop(files);
    assert_eq!(second.hear(), "answered");
    guests.into_iter().for_each(Player::end_well);
    0
}

#[test]
fn a_process_without_descriptors_is_asked_one_guest_at_a_time() {
    Player::of("host").end_well();
}
