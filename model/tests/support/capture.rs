//! Captures, read by a library that has no part in writing them, and by tshark.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use mlx5_model::wire::Link;
use mlx5_model::wire::icrc::{ICRC, icrc};
use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::installed;

/// Bytes of an Ethernet header, of an ERF record's header, and of an InfiniBand packet's VCRC.
const ETHERNET: usize = 14;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
const ERF: usize = 16;
const VCRC: usize = 2;

/// A folder for the files of a test, removed with the value.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("mlx5-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder of its own");
        Self(folder)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Value of the variable for a capture of each process.
    pub fn each(&self) -> String {
        self.file("%p.pcapng").to_str().expect("text").to_owned()
    }

    /// The captures in it.
    pub fn captures(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).expect("it is there");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A captured frame.
#[derive(Debug)]
pub struct Passed {
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time: u128,
    pub inbound: bool,
    pub comment: Option<String>,
    /// What the link's headers and checksums surround: from LRH to ICRC, or the Ethernet frame.
    pub bytes: Vec<u8>,
    pub link: Link,
}

impl Passed {
    /// The packet of the transport, as the ICRC covers it; none for other Ethernet frames.
    pub fn transport(&self) -> Option<&[u8]> {
        if self.link == Link::InfiniBand {
            return Some(&self.bytes);
        }
        let header = ETHERNET + if self.vlan().is_some() { TAG } else { 0 };
        let packet = &self.bytes[header..];
        let (protocol, udp) = match self.bytes[header - 2..header] {
            // RoCE v1.
            [0x89, 0x15] => return Some(packet),
            [0x08, 0x00] => (packet[9], 20),
            [0x86, 0xdd] => (packet[6], 40),
            _ => return None,
        };
        (protocol == 17 && packet[udp + 2..udp + 4] == 4791u16.to_be_bytes()).then_some(packet)
    }

    /// The VLAN of an Ethernet frame with a tag.
    pub fn vlan(&self) -> Option<u16> {
        match self.bytes[12..ETHERNET + 2] {
            [0x81, 0x00, high, low] if self.link == Link::Roce => {
                Some(u16::from_be_bytes([high, low]) & 0xfff)
            }
            _ => None,
        }
    }

    /// Bytes before the BTH of a packet of the transport.
    fn network(&self, packet: &[u8]) -> usize {
        match self.link {
            Link::InfiniBand => {
                if packet[1] & 3 == 3 {
                    48
                } else {
                    8
                }
            }
            Link::Roce => match (packet[0] >> 4, packet[6]) {
                (6, 0x1b) => 40,
                (6, _) => 48,
                _ => 28,
            },
        }
    }

    /// The BTH and all after it, without the ICRC.
    pub fn bth(&self) -> Option<&[u8]> {
        let packet = self.transport()?;
        Some(&packet[self.network(packet)..packet.len() - ICRC])
    }
}

/// Reads a whole capture. Checks each ICRC, and that times never go back.
#[track_caller]
pub fn read(capture: &Path) -> Vec<Passed> {
    let mut reader = PcapNgReader::new(File::open(capture).expect("it is there")).expect("pcapng");
    let (mut links, mut all) = (Vec::new(), Vec::<Passed>::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap_or_else(|error| panic!("{}: {error}", capture.display())) {
            Block::InterfaceDescription(interface) => {
                let name = format!("mlx5_{}/1", links.len());
                let named = InterfaceDescriptionOption::IfName(name.into());
                assert!(interface.options.contains(&named), "{interface:?}");
                assert!(interface.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                links.push(match interface.linktype {
                    DataLink::ETHERNET => Link::Roce,
                    DataLink::ERF => Link::InfiniBand,
                    other => panic!("{other:?}"),
                });
            }
            Block::EnhancedPacket(packet) => {
                assert_eq!(packet.original_len as usize, packet.data.len());
                let link = links[packet.interface_id as usize];
                let bytes = match link {
                    Link::Roce => &packet.data[..],
                    Link::InfiniBand => {
                        // Type 21, and the lengths of record and packet.
                        assert_eq!(packet.data[8], 21);
                        let length = |at: usize| {
                            usize::from(u16::from_be_bytes([packet.data[at], packet.data[at + 1]]))
                        };
                        assert_eq!(length(10), packet.data.len());
                        assert_eq!(length(14), packet.data.len() - ERF);
                        &packet.data[ERF..packet.data.len() - VCRC]
                    }
                };
                let (mut direction, mut comment) = (0, None);
                for option in &packet.options {
                    match option {
                        EnhancedPacketOption::Flags(flags) => direction = flags & 3,
                        EnhancedPacketOption::Comment(text) => comment = Some(text.to_string()),
                        other => panic!("{other:?}"),
                    }
                }
                assert!(direction == 1 || direction == 2, "{packet:?}");
                let passed = Passed {
                    interface: packet.interface_id,
                    time: packet.timestamp.as_nanos(),
                    inbound: direction == 1,
                    comment,
                    bytes: bytes.to_vec(),
                    link,
                };
                if let Some(packet) = passed.transport() {
                    let (covered, found) = packet.split_at(packet.len() - ICRC);
                    assert_eq!(icrc(link, covered).expect("headers"), found, "{passed:?}");
                }
                assert!(all.last().is_none_or(|last| last.time <= passed.time));
                all.push(passed);
            }
            other => panic!("{other:?}"),
        }
    }
    all
}

/// What tshark makes of a capture: the opcode of each frame's BTH, none of other frames. Fails if it
/// finds anything malformed, or worth a warning.
#[track_caller]
pub fn dissect(capture: &Path) -> Vec<Option<u8>> {
    /// Severities are flags in the upper half. What is malformed is an error, 0x800000.
    const WARNING: u32 = 0x60_0000;
    let shown =
        fields(capture, &["infiniband.bth.opcode", "_ws.expert.severity", "_ws.expert.message"]);
    let opcode = |line: &Vec<String>| {
        let mut severities = line[1].split(',').filter(|severity| !severity.is_empty());
        let is_doubt = |severity: &str| severity.parse::<u32>().expect("a number") >= WARNING;
        assert!(!severities.any(is_doubt), "{}: {line:?}", capture.display());
        line[0].parse().ok()
    };
    shown.iter().map(opcode).collect()
}

/// Returns the values that tshark shows of these fields, for each frame of a capture.
#[track_caller]
pub fn fields(capture: &Path, names: &[&str]) -> Vec<Vec<String>> {
    let mut command = installed("tshark");
    // RoCE over IPv6 has no UDP checksum, which the dissector takes for a fault.
    command.args(["-o", "udp.ignore_ipv6_zero_checksum:TRUE", "-T", "fields"]);
    for name in names {
        command.args(["-e", name]);
    }
    let output = command.arg("-r").arg(capture).output().expect("tshark starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let (found, said) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{}: {said}", capture.display());
    found.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}
