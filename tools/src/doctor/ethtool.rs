//! Statistics and pause frames of a network interface, as `ethtool -S` and `ethtool -a` show them.
//!
//! The calls are those of `include/uapi/linux/ethtool.h`.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// `SIOCETHTOOL`.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// `ETHTOOL_GPAUSEPARAM`.
const GPAUSEPARAM: u32 = 0x12;
/// `ETHTOOL_GSTRINGS`.
const GSTRINGS: u32 = 0x1b;
/// `ETHTOOL_GSTATS`.
const GSTATS: u32 = 0x1d;
/// `ETHTOOL_GSSET_INFO`.
const GSSET_INFO: u32 = 0x37;
/// `ETH_SS_STATS`.
const STATS: u32 = 1;
/// Bytes of a name, `ETH_GSTRING_LEN`.
const NAME: usize = 32;
/// Most statistics that are read. mlx5 has some thousands with many rings.
const MOST: usize = 1 << 16;

/// Reads the statistics of an interface by name.
///
/// # Errors
/// The kernel's errno: no such interface in this network namespace, or it has no statistics.
pub fn statistics(interface: &str) -> io::Result<Vec<(String, u64)>> {
    let socket = socket()?;
    let count = count(&socket, interface)?;
    // `struct ethtool_gstrings`: three words, then names.
    let mut names = vec![0u64; (12 + count * NAME).div_ceil(8)];
    set_words(&mut names, &[GSTRINGS, STATS, count as u32]);
    call(&socket, interface, &mut names)?;
    // `struct ethtool_stats`: two words, then values.
    let mut values = vec![0u64; 1 + count];
    set_words(&mut values, &[GSTATS, count as u32]);
    call(&socket, interface, &mut values)?;
    let names: Vec<u8> = names.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(joined(names.get(12..).unwrap_or_default(), &values[1..]))
}

/// The directions in which pause frames of the whole link are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The interface waits when it gets one.
    pub receives: bool,
    /// The interface sends them when its buffers fill.
    pub sends: bool,
}

/// Asks for the pause frames of an interface.
///
/// # Errors
/// The kernel's errno: no such interface in this network namespace, or it has none.
pub fn pause(interface: &str) -> io::Result<Pause> {
    // `struct ethtool_pauseparam`: the command, and words for negotiation, receiving and sending.
    let mut words = [0; 2];
    set_words(&mut words, &[GPAUSEPARAM]);
    call(&socket()?, interface, &mut words)?;
    let [a, b, c, d, e, f, g, h] = words[1].to_ne_bytes();
    let set = |word: [u8; 4]| u32::from_ne_bytes(word) != 0;
    Ok(Pause { receives: set([a, b, c, d]), sends: set([e, f, g, h]) })
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the socket was just opened, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Returns the number of statistics.
fn count(socket: &OwnedFd, interface: &str) -> io::Result<usize> {
    // `struct ethtool_sset_info`: command, reserved, mask of 64 bits, then a word for each set bit.
    let mut info = [0, 1 << STATS, 0];
    set_words(&mut info, &[GSSET_INFO, 0]);
    call(socket, interface, &mut info)?;
    let [a, b, c, d, ..] = info[2].to_ne_bytes();
    let count = u32::from_ne_bytes([a, b, c, d]) as usize;
    match (info[1], count) {
        // The kernel clears the bits of sets that the interface lacks.
        (0, _) | (_, 0) => Err(io::Error::new(io::ErrorKind::Unsupported, "it has no statistics")),
        (_, MOST..) => Err(io::Error::new(io::ErrorKind::InvalidData, "too many statistics")),
        _ => Ok(count),
    }
}

/// Writes words of 32 bits at the beginning of a buffer.
fn set_words(buffer: &mut [u64], words: &[u32]) {
    for (at, pair) in words.chunks(2).enumerate() {
        let second = pair.get(1).copied();
        let old = buffer[at].to_ne_bytes();
        let second = second.map_or([old[4], old[5], old[6], old[7]], u32::to_ne_bytes);
        let [a, b, c, d] = pair[0].to_ne_bytes();
        let [e, f, g, h] = second;
        buffer[at] = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    }
}

fn call(socket: &OwnedFd, interface: &str, buffer: &mut [u64]) -> io::Result<()> {
    let mut name = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() || interface.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name of an interface"));
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: buffer.as_mut_ptr().cast() },
    };
    // SAFETY: the kernel reads and writes the structure that the first word of `buffer` names. The
    // callers size it for the number of entries that it also names, and the kernel writes no more.
    // It lives through the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Joins names of [`NAME`] bytes, which end with zeros, with values.
fn joined(names: &[u8], values: &[u64]) -> Vec<(String, u64)> {
    let name = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    names.chunks_exact(NAME).map(name).zip(values.iter().copied()).collect()
}

/// Reads what `ethtool -S` has printed.
pub fn printed(text: &str) -> Vec<(String, u64)> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(':'));
    let values = lines
        .filter_map(|(name, value)| Some((name.trim().to_owned(), value.trim().parse().ok()?)));
    values.take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_joined() {
        let mut names = [0; 2 * NAME];
        names[..4].copy_from_slice(b"rx_a");
        names[NAME..].copy_from_slice(&[b'x'; NAME]);
        let joined = joined(&names, &[1, 2]);
        assert_eq!(joined, [("rx_a".to_owned(), 1), ("x".repeat(NAME), 2)]);
    }

    #[test]
    fn words_are_written_where_the_kernel_reads_them() {
        let mut buffer = [u64::MAX; 2];
        set_words(&mut buffer, &[1, 2, 3]);
        let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4), word(8), word(12)], [1, 2, 3, u32::MAX]);
    }

    #[test]
    fn what_ethtool_prints_is_read() {
        let text = "NIC statistics:\n     rx_discards_phy: 12\n     rx0_packets: 7\n  bad: x\n";
        assert_eq!(
            printed(text),
            [("rx_discards_phy".to_owned(), 12), ("rx0_packets".to_owned(), 7)]
        );
    }

    /// Every interface of this machine answers, or says why not.
    #[test]
    fn interfaces_are_asked() {
        assert!(statistics("none-such").is_err() && statistics(&"x".repeat(99)).is_err());
        for entry in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if let Ok(statistics) = statistics(&name) {
                assert!(statistics.iter().all(|(name, _)| !name.is_empty()), "{statistics:?}");
            }
        }
    }
}
