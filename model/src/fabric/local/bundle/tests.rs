use super::*;

fn pair() -> [OwnFd; 2] {
    let mut fds = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call writes two descriptors to `fds`.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) }).unwrap();
    // SAFETY: the call has just created the descriptors, so they have no other owner.
    fds.map(|fd| unsafe { OwnFd::new(fd) }.unwrap())
}

/// Takes frames that wait.
fn take(buffers: &mut Buffers, fd: &OwnFd) -> (Vec<Frame>, Received) {
    let mut frames = Vec::new();
    let received = buffers.receive(fd, |frame| frames.push(frame.clone())).unwrap();
    (frames, received)
}

#[test]
fn frames_arrive_in_order_with_their_lengths() {
    let [from, to] = pair();
    let frames: Vec<Frame> = (1..=200).map(|n| Frame::new(vec![n as u8; n * 21])).collect();
    let (mut sent, mut arrived) = (0, Vec::new());
    let mut buffers = Buffers::new();
    while arrived.len() < frames.len() {
        let more = send(&from, frames[sent..].iter()).unwrap();
        assert!(more <= FRAMES);
        sent += more;
        arrived.extend(take(&mut buffers, &to).0);
        assert_eq!(arrived.len(), sent);
    }
    assert!(arrived == frames);
}

#[test]
fn frames_that_wait_together_share_a_message() {
    let [from, to] = pair();
    let frames = vec![Frame::new(vec![7; 40]); FRAMES];
    assert_eq!(send(&from, frames.iter()).unwrap(), FRAMES);
    let mut message = [0; LONGEST];
    // SAFETY: the call writes at most the bytes of `message`.
    let got = unsafe {
        libc::recv(to.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), libc::MSG_DONTWAIT)
    };
    assert_eq!(got as usize, FRAMES * (LENGTH + 40));
}

#[test]
fn bundle_ends_at_a_length_that_does_not_fit() {
    let one = |length: u32, bytes: &[u8]| [&length.to_ne_bytes()[..], bytes].concat();
    let whole = one(3, b"abc");
    for bad in [one(0, b""), one(4, b"xyz"), one(u32::MAX, b"xyz"), b"\x01\0".to_vec()] {
        let bundle = [whole.clone(), bad, whole.clone()].concat();
        // A length may take in what follows it, but nothing beyond the bundle.
        let frames: Vec<_> = split(&bundle).collect();
        assert_eq!(frames[0], b"abc");
        assert!(frames.iter().map(|frame| LENGTH + frame.len()).sum::<usize>() <= bundle.len());
    }
    assert_eq!(split(&[whole.clone(), one(0, b"")].concat()).count(), 1);
    assert_eq!(split(&[whole.clone(), one(4, b"xyz")].concat()).count(), 1);
    assert_eq!(split(&whole.repeat(FRAMES + 1)).count(), FRAMES);
}

#[test]
fn end_of_a_connection_is_told_from_silence() {
    let [from, to] = pair();
    let mut buffers = Buffers::new();
    let error = buffers.receive(&to, |_| panic!("a frame")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    drop(from);
    assert_eq!(take(&mut buffers, &to), (Vec::new(), Received::End));
}
