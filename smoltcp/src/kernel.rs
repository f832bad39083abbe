//! The kernel's tables of IPv4 routes and neighbours, in `/proc/net`.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a neighbour may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the table is read meanwhile.
const AGAIN: Duration = Duration::from_millis(10);
/// UDP's discard port: what is sent there has no effect.
const DISCARD: u16 = 9;

/// Returns the Ethernet address of the next hop to an address. Has the kernel resolve it, by a datagram.
pub(crate) fn next_hop(probe: &UdpSocket, to: Ipv4Addr) -> io::Result<[u8; 6]> {
    let hop = gateway(&fs::read_to_string("/proc/net/route")?, to).unwrap_or(to);
    let started = Instant::now();
    loop {
        if let Some(found) = neighbour(&fs::read_to_string("/proc/net/arp")?, hop) {
            return Ok(found);
        }
        if started.elapsed() > PATIENCE {
            let text = format!("{hop}, the next hop to {to}, does not answer: `ip neigh`");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        probe.send_to(&[0], (hop, DISCARD))?;
        sleep(AGAIN);
    }
}

/// Returns the gateway of the most specific route to an address; `None` if it is on the link. The table has
/// addresses as numbers in hexadecimal, in the order of the processor.
fn gateway(table: &str, to: Ipv4Addr) -> Option<Ipv4Addr> {
    let number =
        |text: &str| Some(Ipv4Addr::from(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()));
    let routes = table.lines().skip(1).filter_map(|line| {
        let mut columns = line.split_whitespace();
        let (to, gateway) = (number(columns.nth(1)?)?, number(columns.next()?)?);
        let mask = number(columns.nth(4)?)?;
        Some((to, gateway, mask))
    });
    let fits = |(route, _, mask): &(Ipv4Addr, Ipv4Addr, Ipv4Addr)| to & *mask == *route;
    let best = routes.filter(fits).max_by_key(|(_, _, mask)| *mask);
    best.map(|(_, gateway, _)| gateway).filter(|gateway| !gateway.is_unspecified())
}

/// Returns the Ethernet address of a neighbour that has one.
fn neighbour(table: &str, address: Ipv4Addr) -> Option<[u8; 6]> {
    /// `ATF_COM`: the entry is complete.
    const COMPLETE: u32 = 2;
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [known, _, flags, mac, ..] = columns[..] else { return None };
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
        if known.parse() != Ok(address) || flags & COMPLETE == 0 {
            return None;
        }
        let bytes: Option<Vec<u8>> =
            mac.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        bytes?.try_into().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
eth1\t006433C6\tFE0200C0\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
    const NEIGHBOURS: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
192.0.2.1        0x1         0x2         02:00:5e:00:00:01     *        eth0
192.0.2.9        0x1         0x0         00:00:00:00:00:00     *        eth0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_most_specific_route_counts() {
        let to = |a, b, c, d| gateway(ROUTES, Ipv4Addr::new(a, b, c, d));
        assert_eq!(to(192, 0, 2, 77), None, "on the link");
        assert_eq!(to(198, 51, 100, 7), Some(Ipv4Addr::new(192, 0, 2, 254)));
        assert_eq!(to(203, 0, 113, 1), Some(Ipv4Addr::new(192, 0, 2, 1)), "the default");
    }

    #[test]
    fn only_complete_neighbours_count() {
        let of = |last| neighbour(NEIGHBOURS, Ipv4Addr::new(192, 0, 2, last));
        assert_eq!(of(1), Some([2, 0, 0x5e, 0, 0, 1]));
        assert_eq!((of(9), of(5)), (None, None));
    }
}
