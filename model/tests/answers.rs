//! Asynchronous queries by libmlx5, and the kernel interface's rules for reading their answers.

mod verbs;

use std::os::fd::RawFd;
use std::ptr::NonNull;

use mlx5_sys::dv::*;
use mlx5_sys::ifc::*;
use mlx5_sys::verbs::ibv_close_device;
use verbs::{Device, errno};

/// An object that can be asked about and needs no other: a set of counters, and its number.
struct Counters(NonNull<mlx5dv_devx_obj>, u64);

/// Bytes of an answer, and of one with its cookie.
const ANSWER: usize = query_q_counter_out::SIZE;
const WHOLE: usize = ANSWER + 8;

impl Counters {
    fn new(device: &Device) -> Self {
        // Firmware gives programs no sets by default.
        assert!(mlx5_model::set_counter_sets(0, mlx5_model::CounterSets::Allowed));
        let mut input = [0; 16];
        let mut output = [0; 16];
        cmd_in::OPCODE.set(&mut input, opcode::ALLOC_Q_COUNTER.into());
        // SAFETY: the context is open, and both buffers are as long as said.
        let object = unsafe {
            mlx5dv_devx_obj_create(
                device.context.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        let object = NonNull::new(object).unwrap_or_else(|| panic!("errno {}", errno()));
        Self(object, alloc_q_counter_out::COUNTER_SET_ID.get(&output))
    }

    fn query(&self) -> [u8; query_q_counter_in::SIZE] {
        let mut input = [0; query_q_counter_in::SIZE];
        cmd_in::OPCODE.set(&mut input, opcode::QUERY_Q_COUNTER.into());
        query_q_counter_in::COUNTER_SET_ID.set(&mut input, self.1);
        input
    }
}

/// A file of answers.
struct Channel(NonNull<mlx5dv_devx_cmd_comp>);

impl Channel {
    fn new(device: &Device) -> Self {
        // SAFETY: the context is open.
        let channel = unsafe { mlx5dv_devx_create_cmd_comp(device.context.as_ptr()) };
        Self(NonNull::new(channel).unwrap_or_else(|| panic!("errno {}", errno())))
    }

    fn fd(&self) -> RawFd {
        // SAFETY: the channel lives.
        unsafe { self.0.as_ref().fd }
    }

    fn ask(&self, of: &Counters, input: &[u8], room: usize, cookie: u64) -> i32 {
        // SAFETY: object and channel live, and the command is as long as said.
        unsafe {
            mlx5dv_devx_obj_query_async(
                of.0.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                room,
                cookie,
                self.0.as_ptr(),
            )
        }
    }

    /// Reads by the system call of a file: bytes, and the cookie.
    fn read(&self, room: usize) -> Result<(usize, u64), i32> {
        read(self.fd(), room)
    }

    fn is_readable(&self) -> bool {
        let mut wait = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&mut wait, 1, 0) == 1 }
    }

    fn do_not_wait(&self) {
        // SAFETY: flags only.
        assert_eq!(unsafe { libc::fcntl(self.fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }

    fn close(self) {
        // SAFETY: the channel is not used again.
        unsafe { mlx5dv_devx_destroy_cmd_comp(self.0.as_ptr()) };
    }
}

fn read(fd: RawFd, room: usize) -> Result<(usize, u64), i32> {
    let mut buffer = vec![0u64; room.div_ceil(8).max(1)];
    // SAFETY: there is as much room as said.
    let got = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), room) };
    Ok((usize::try_from(got).map_err(|_| errno())?, buffer[0]))
}

#[test]
fn an_answer_is_read_whole_or_stays() {
    let device = Device::open(0);
    let (channel, counters) = (Channel::new(&device), Counters::new(&device));
    channel.do_not_wait();
    assert!(!channel.is_readable());
    assert_eq!(channel.read(WHOLE), Err(libc::EAGAIN));
    for cookie in [7, 8] {
        assert_eq!(channel.ask(&counters, &counters.query(), ANSWER, cookie), 0);
    }
    assert!(channel.is_readable());
    for room in [0, 7, 8, WHOLE - 1] {
        assert_eq!(channel.read(room), Err(libc::ENOSPC), "{room} bytes");
    }
    assert_eq!(channel.read(WHOLE), Ok((WHOLE, 7)));
    // One at a time, whatever room there is; a bad address takes it, as in the kernel.
    assert_eq!(channel.read(4 * WHOLE), Ok((WHOLE, 8)));
    assert!(!channel.is_readable());
    assert_eq!(channel.ask(&counters, &counters.query(), ANSWER, 9), 0);
    // SAFETY: there is nothing at that address, which is what is asked here.
    let got = unsafe { libc::read(channel.fd(), 8 as *mut libc::c_void, WHOLE) };
    assert_eq!((got, errno()), (-1, libc::EFAULT));
    assert_eq!(channel.read(WHOLE), Err(libc::EAGAIN));
    channel.close();
}

#[test]
fn what_a_program_writes_into_the_descriptor_is_no_answer() {
    let device = Device::open(0);
    let (channel, counters) = (Channel::new(&device), Counters::new(&device));
    let five = 5u64;
    // SAFETY: eight bytes.
    unsafe { libc::write(channel.fd(), (&raw const five).cast(), 8) };
    std::thread::scope(|scope| {
        // Waits, though the descriptor is readable.
        let fd = channel.fd();
        let reader = scope.spawn(move || read(fd, WHOLE));
        assert_eq!(channel.ask(&counters, &counters.query(), ANSWER, 3), 0);
        assert_eq!(reader.join().unwrap(), Ok((WHOLE, 3)));
    });
    channel.close();
}

#[test]
fn who_waits_is_told_that_the_device_is_closed() {
    let device = Device::open(0);
    let (channel, counters) = (Channel::new(&device), Counters::new(&device));
    let left = Channel::new(&device);
    assert_eq!(left.ask(&counters, &counters.query(), ANSWER, 4), 0);
    std::thread::scope(|scope| {
        let fd = channel.fd();
        let reader = scope.spawn(move || read(fd, WHOLE));
        // SAFETY: nothing uses the context any more: its other objects leak.
        assert_eq!(unsafe { ibv_close_device(device.context.as_ptr()) }, 0);
        assert_eq!(reader.join().unwrap(), Err(libc::EIO));
    });
    // Earlier answers can be read, but not by the library, which would use the context.
    assert_eq!(read(left.fd(), WHOLE), Ok((WHOLE, 4)));
    assert_eq!(read(left.fd(), WHOLE), Err(libc::EIO));
    for channel in [channel, left] {
        // SAFETY: the descriptor is not used any more. The channel leaks.
        assert_eq!(unsafe { libc::close(channel.fd()) }, 0);
    }
}

#[test]
fn queries_are_checked_before_they_are_taken() {
    let device = Device::open(0);
    let (channel, counters) = (Channel::new(&device), Counters::new(&device));
    let other = Counters::new(&device);
    assert_eq!(channel.ask(&counters, &other.query(), ANSWER, 0), libc::EINVAL);
    assert_eq!(channel.ask(&counters, &counters.query()[..15], ANSWER, 0), libc::EINVAL);
    let mut destroys = counters.query();
    cmd_in::OPCODE.set(&mut destroys, opcode::DEALLOC_Q_COUNTER.into());
    assert_eq!(channel.ask(&counters, &destroys, ANSWER, 0), libc::EINVAL);
    assert_eq!(channel.ask(&counters, &counters.query(), 1 << 16, 0), libc::EINVAL);
    // A file of answers of another context, and what is none.
    let elsewhere = Device::open(0);
    let foreign = Channel::new(&elsewhere);
    assert_eq!(foreign.ask(&counters, &counters.query(), ANSWER, 0), libc::EBADF);
    // SAFETY: the channel lives, and the completion channel's descriptor is put back.
    unsafe {
        let mine = channel.fd();
        (*channel.0.as_ptr()).fd = (*device.channel.as_ptr()).fd;
        assert_eq!(channel.ask(&counters, &counters.query(), ANSWER, 0), libc::EBADF);
        (*channel.0.as_ptr()).fd = mine;
    }
    assert!(!channel.is_readable());
    // An answer without room for more than a status is the program's own wish.
    assert_eq!(channel.ask(&counters, &counters.query(), 8, 1), 0);
    assert_eq!(channel.read(16), Ok((16, 1)));
    foreign.close();
    channel.close();
}

#[test]
fn a_copy_of_the_descriptor_reads_as_well_and_keeps_the_file_open() {
    let device = Device::open(0);
    let (channel, counters) = (Channel::new(&device), Counters::new(&device));
    assert_eq!(channel.ask(&counters, &counters.query(), ANSWER, 6), 0);
    // SAFETY: duplicating a descriptor touches no memory; the copy is this test's.
    let copy = unsafe { libc::dup(channel.fd()) };
    channel.close();
    assert_eq!(read(copy, WHOLE), Ok((WHOLE, 6)));
    // SAFETY: the copy is this test's.
    assert_eq!(unsafe { libc::close(copy) }, 0);
}
