//! Local message sockets, under names that vanish with the process.

use crate::private::{OwnFd, Private, check, complain, files, system};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// A descriptor that the program cannot close.
pub(crate) type Fd = Private;

/// Bytes of buffer to request in each direction.
static BUFFER: libc::c_int = 4 << 20;

/// The format of what processes send each other, and of the names of their sockets. It is a part of
/// each name, so that builds with different formats do not meet. A change of either needs a new one.
pub(super) const FORMAT: &str = "v2";

/// Returns the common start of the names of this user's sockets in all formats.
pub(super) fn names_of_all_formats() -> String {
    format!("mlx5-model/{}/", system::user())
}

/// Returns the common start of the names of this user's sockets. Another user may bind such a name
/// as well, so both ends of a connection check the credentials.
pub(crate) fn user_names() -> String {
    format!("{}{FORMAT}/", names_of_all_formats())
}

/// Returns an unguessable end for a name.
pub(crate) fn unguessable() -> io::Result<String> {
    let mut random = [0; 8];
    // SAFETY: `random` has the bytes that the call may write.
    let got = unsafe { system::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    if got != random.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(format!("{:016x}", u64::from_ne_bytes(random)))
}

/// Returns the names of sockets in this thread's network namespace that start with `start`, without
/// it.
pub(crate) fn names(start: &str) -> io::Result<BTreeSet<String>> {
    let start = format!(" @{start}");
    let look = || -> io::Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        // Line by line: sockets of other programs do not change the use of the heap, which is the
        // program's as well. So addresses in recordings repeat.
        let list = files::open("/proc/thread-self/net/unix", libc::O_RDONLY, 0)?;
        let mut list = BufReader::new(&list);
        let mut line = Vec::with_capacity(1024);
        // Each line ends with the name, whose first byte, zero, is shown as "@". Accepted
        // connections have the name of their listener. Names may contain any bytes.
        while list.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line));
            if let Some((_, rest)) = text.split_once(&start) {
                found.insert(rest.to_owned());
            }
            line.clear();
        }
        Ok(found)
    };
    // The kernel builds the list piece by piece, and may skip a name when another one is removed.
    let mut all = look()?;
    for _ in 0..3 {
        let again = look()?;
        if again.is_subset(&all) {
            break;
        }
        all.extend(again);
    }
    Ok(all)
}

/// Returns whether a call failed for lack of descriptors or memory, which may be available later.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let short = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    error.raw_os_error().is_some_and(|errno| short.contains(&errno))
}

/// Reports once on standard error that packets wait for descriptors.
pub(crate) fn complain_of_shortage(error: &io::Error) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        complain!(
            "packets wait, no connection to another process: {error}; close files or \
             raise the limit (`ulimit -n`)"
        );
    });
}

/// Takes ownership of a descriptor that a system call has just created, and moves it out of the way of the
/// program's own. A negative `result` means that the call failed.
///
/// # Safety
/// A `result` that is not negative is an open descriptor without another owner.
pub(crate) unsafe fn own(result: libc::c_int) -> io::Result<Fd> {
    // SAFETY: the caller guarantees that the descriptor is open and has no other owner.
    unsafe { OwnFd::new(result) }.map(Private::aside)
}

/// Returns a socket of a kind (`SOCK_SEQPACKET`, `SOCK_STREAM`, with flags).
fn socket(kind: libc::c_int) -> io::Result<Fd> {
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: `socket` passes no memory. It returns a new descriptor, which `own` takes.
    unsafe { own(system::socket(libc::AF_UNIX, kind, 0)) }
}

fn address(name: &str) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    // The first byte stays zero: the name is in the network namespace, not in the file system.
    let room = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((address, length as libc::socklen_t))
}

/// Binds a name and listens; fails with `AddrInUse` if another process has the name.
pub(crate) fn listen(name: &str) -> io::Result<Fd> {
    let fd = bind(name)?;
    start(&fd)?;
    Ok(fd)
}

/// Binds a name and listens for connections that carry a stream of bytes.
pub(crate) fn listen_for_streams(name: &str) -> io::Result<Fd> {
    let fd = bind_as(name, libc::SOCK_STREAM | libc::SOCK_NONBLOCK)?;
    start(&fd)?;
    Ok(fd)
}

/// Binds a name; fails with `AddrInUse` if another process has it.
pub(super) fn bind(name: &str) -> io::Result<Fd> {
    bind_as(name, libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK)
}

fn bind_as(name: &str, kind: libc::c_int) -> io::Result<Fd> {
    let fd = socket(kind)?;
    let (address, length) = address(name)?;
    // SAFETY: `address` is an address of `length` bytes, which the call reads.
    check(unsafe { system::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(fd)
}

/// Listens on a bound socket.
pub(super) fn start(fd: &Fd) -> io::Result<()> {
    // SAFETY: `listen` passes no memory.
    check(unsafe { system::listen(fd.as_raw_fd(), 4096) }).map(drop)
}

/// Connects to a name without waiting.
pub(crate) fn connect(name: &str) -> io::Result<Fd> {
    let fd = socket(libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK)?;
    enlarge(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF);
    connect_to(&fd, name)?;
    Ok(fd)
}

/// Connects to a name for a stream of bytes, and waits at most `patience` in each call.
pub(crate) fn connect_stream(name: &str, patience: Duration) -> io::Result<Fd> {
    let fd = socket(libc::SOCK_STREAM)?;
    connect_to(&fd, name)?;
    be_patient(&fd, patience)?;
    Ok(fd)
}

fn connect_to(fd: &OwnFd, name: &str) -> io::Result<()> {
    let (address, length) = address(name)?;
    // SAFETY: `address` is an address of `length` bytes, which the call reads.
    check(unsafe { system::connect(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    trusted(fd)
}

/// Has calls on a socket wait at most this long.
fn be_patient(fd: &OwnFd, patience: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_usec: patience.subsec_micros().into(),
    };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the call reads `time`, whose length it is given.
        check(unsafe {
            system::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const time).cast(),
                size_of_val(&time) as libc::socklen_t,
            )
        })?;
    }
    Ok(())
}

/// Accepts a connection; fails with `WouldBlock` if none waits.
pub(crate) fn accept(listener: &OwnFd) -> io::Result<Fd> {
    accept_as(listener, libc::SOCK_NONBLOCK)
}

/// Accepts a connection that carries a stream of bytes. Its calls wait at most `patience`.
pub(crate) fn accept_stream(listener: &OwnFd, patience: Duration) -> io::Result<Fd> {
    let fd = accept_as(listener, 0)?;
    be_patient(&fd, patience)?;
    Ok(fd)
}

fn accept_as(listener: &OwnFd, flags: libc::c_int) -> io::Result<Fd> {
    let flags = flags | libc::SOCK_CLOEXEC;
    let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the address is null, so the call writes no address. `accept4` returns a new
    // descriptor, which `own` takes.
    let fd = unsafe { own(system::accept4(listener.as_raw_fd(), address, length, flags)) }?;
    trusted(&fd)?;
    Ok(fd)
}

/// Returns the process at the other end of a connection; 0 if it has no number in this PID
/// namespace.
pub(crate) fn process(fd: &OwnFd) -> io::Result<libc::pid_t> {
    Ok(peer(fd)?.pid)
}

/// Returns the credentials of the other end of a connection.
fn peer(fd: &OwnFd) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the call writes at most `length` bytes, the size of `peer`.
    check(unsafe {
        system::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut length,
        )
    })?;
    Ok(peer)
}

/// Returns the bytes sent that the peer has not read, including the kernel's overhead.
pub(crate) fn unsent(fd: &OwnFd) -> usize {
    // `SIOCOUTQ` (`linux/sockios.h`) has the same value.
    count(fd, libc::TIOCOUTQ)
}

/// Returns the bytes that wait to be read on a connection.
pub(crate) fn unread(fd: &OwnFd) -> usize {
    count(fd, libc::FIONREAD)
}

/// Returns the byte count that an ioctl reports; 0 if it fails.
fn count(fd: &OwnFd, request: libc::c_ulong) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one int.
    let result = unsafe { system::ioctl(fd.as_raw_fd(), request, (&raw mut bytes).cast()) };
    if result < 0 { 0 } else { usize::try_from(bytes).unwrap_or(0) }
}

/// Returns whether the other end of a connection is closed.
pub(crate) fn is_hung_up(fd: &OwnFd) -> bool {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: the call is told of one entry, which outlives the call.
    let ready = unsafe { system::poll(&raw mut polled, 1, 0) };
    ready == 1 && polled.revents & (libc::POLLHUP | libc::POLLERR) != 0
}

/// Returns whether a process was stopped by a signal or a debugger; `false` if it cannot be
/// inspected.
pub(crate) fn is_stopped(process: libc::pid_t) -> bool {
    let Ok(status) = files::text(format!("/proc/{process}/stat")) else {
        return false;
    };
    // The state follows the name, which is in parentheses and may have some of its own.
    let state = status.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

/// Accepts only peers of the same user, or of root, as other slices of these devices. The kernel keeps
/// a peer's credentials as they were when it connected or listened, so packets on a connection need
/// no check. The own user is asked for with each connection: it may have changed (`setuid`).
fn trusted(fd: &OwnFd) -> io::Result<()> {
    let peer = peer(fd)?;
    if peer.uid == system::user() || peer.uid == 0 {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// Requests larger buffers. Smaller ones are only slower, so a refusal does not matter.
fn enlarge(fd: &OwnFd, force: libc::c_int, plain: libc::c_int) {
    for option in [force, plain] {
        // SAFETY: the value is an int, which the call reads.
        let result = unsafe {
            system::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const BUFFER).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result == 0 {
            return;
        }
    }
}

/// Waits until one of the descriptors is writable, at most `milliseconds`.
pub(crate) fn wait_writable(fds: &[RawFd], milliseconds: libc::c_int) {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLOUT, revents: 0 }).collect();
    // Ignore the result: the caller tries again or gives up.
    // SAFETY: `polled` has as many entries as the call is told, and outlives the call.
    unsafe { system::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
}
