//! The header of a stream: its process and devices, and the initial state of a fresh device.

use super::bytes::{Put, Take};
use super::{BUILD, OLDEST, ReadError, VERSION};
use crate::identity::{Bus, CounterSets, GidEntry, Identity, PortState, Profile, Timeouts};
use crate::wire::{Link, RoceVersion};

/// The first bytes of every stream.
const MAGIC: [u8; 8] = *b"mlx5-trc";
/// Bytes of the fixed part: magic, version, length of the variable part, and its checksum.
pub(super) const FIXED: usize = 20;
/// Maximum length of the variable part.
const LONGEST: usize = 1 << 20;
/// Most cards, and most entries of a GID table, and bytes of a command line.
const CARDS: usize = 16;
const GIDS: usize = 256;
/// The bit of the number of GIDs that says that a byte of the version of RoCE is before each.
const WITH_VERSIONS: u16 = 1 << 15;
const PROGRAM: usize = 4096;

/// The kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The acts of the model's devices. It can only be shown.
    Story,
    /// Also what they read, so that it can be replayed.
    Replay,
    /// The observed acts of a program with a device of the machine. It can only be shown.
    Observed,
}

impl Detail {
    const ALL: [Detail; 3] = [Detail::Story, Detail::Replay, Detail::Observed];
}

/// The header of a stream.
#[derive(Clone, Debug)]
pub struct Header {
    /// [`BUILD`] of the model that wrote it.
    pub build: String,
    /// The kind of the stream.
    pub detail: Detail,
    /// The process. Zero in a [repeatable](Self::repeatable) stream, as are the next two times.
    pub process: u32,
    /// Its command line, arguments separated by blanks.
    pub program: String,
    /// When the stream began, in nanoseconds since the epoch.
    pub began: u64,
    /// The same on the machine's monotonic clock, which all processes share.
    pub monotonic: u64,
    /// The cards. They have no prefixes of QP numbers yet.
    pub cards: Vec<Identity>,
}

impl Header {
    /// Creates the header of a stream of this process that begins now.
    #[must_use]
    pub fn of_this_process(cards: Vec<Identity>, detail: Detail) -> Header {
        let arguments: Vec<String> =
            std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let mut program = arguments.join(" ");
        while program.len() > PROGRAM {
            program.pop();
        }
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Header {
            // From memory, so that it stands in the library's file.
            build: std::hint::black_box(BUILD).into(),
            detail,
            process: std::process::id(),
            program,
            began: since.map_or(0, |since| since.as_nanos() as u64),
            monotonic: monotonic(),
            cards,
        }
    }

    /// Leaves out the number of the process and the times of the machine, which differ between two runs
    /// of a program.
    #[must_use]
    pub fn repeatable(self) -> Header {
        Header { process: 0, began: 0, monotonic: 0, ..self }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut content = Vec::new();
        let mut put = Put(&mut content);
        let text = |put: &mut Put<'_>, text: &str| {
            put.u16(text.len() as u16).rest(text.as_bytes());
        };
        text(&mut put, &self.build);
        put.u8(self.detail as u8).u32(self.process);
        text(&mut put, &self.program);
        put.u64(self.began).u64(self.monotonic).u8(self.cards.len() as u8);
        for card in &self.cards {
            put.u64(card.node_guid).u8((card.link == Link::Roce).into()).u16(card.lid);
            put.rest(&card.mac);
            put.u16(card.gids.len() as u16 | WITH_VERSIONS);
            for entry in &card.gids {
                put.u8((entry.version == RoceVersion::V1).into()).rest(&entry.gid);
            }
            put.u64(card.seed);
            // Streams of builds that knew one profile, and no refusal of counter sets, have 0 for both.
            let profile = (card.profile as u8) << 2;
            let is_pci = u8::from(card.bus == Bus::Pci) << 1;
            let no_sets = u8::from(card.counter_sets == CounterSets::Refused) << 7;
            put.u8(no_sets | profile | is_pci | u8::from(card.user_contexts));
            let prefetch = u8::from(card.prefetch.is_some()) << 7;
            let placement = u8::from(card.placement.is_some()) << 6;
            put.u8(card.port as u8 | prefetch | placement).u8(card.log_mtu.unwrap_or(0) as u8);
            put.u8(card.timeouts.code());
            for seed in [card.prefetch, card.placement].into_iter().flatten() {
                put.u64(seed);
            }
        }
        let mut bytes = MAGIC.to_vec();
        Put(&mut bytes)
            .u32(VERSION)
            .u32(content.len() as u32)
            .u32(crc32fast::hash(&content))
            .rest(&content);
        bytes
    }

    /// How many bytes follow the first [`FIXED`], and their checksum.
    pub(super) fn announced(fixed: &[u8; FIXED]) -> Result<(usize, u32), ReadError> {
        let mut take = Take(fixed);
        if take.bytes(MAGIC.len()) != Some(&MAGIC) {
            return Err(ReadError::NoTrace);
        }
        let (Some(version), Some(length), Some(checksum)) = (take.u32(), take.u32(), take.u32())
        else {
            return Err(ReadError::NoTrace);
        };
        if !(OLDEST..=VERSION).contains(&version) {
            return Err(ReadError::Version(version));
        }
        match length as usize {
            length if length <= LONGEST => Ok((length, checksum)),
            _ => Err(ReadError::Header),
        }
    }

    pub(super) fn read(content: &[u8], checksum: u32) -> Result<Header, ReadError> {
        if crc32fast::hash(content) != checksum {
            return Err(ReadError::Header);
        }
        Self::take(&mut Take(content)).ok_or(ReadError::Header)
    }

    fn take(take: &mut Take<'_>) -> Option<Header> {
        let text = |take: &mut Take<'_>| {
            let length = take.u16()?;
            let bytes = take.bytes(length.into())?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let build = text(take)?;
        let detail = *Detail::ALL.get(usize::from(take.u8()?))?;
        let process = take.u32()?;
        let program = text(take)?;
        let (began, monotonic) = (take.u64()?, take.u64()?);
        let count = usize::from(take.u8()?);
        if !(1..=CARDS).contains(&count) {
            return None;
        }
        let mut cards = Vec::new();
        for _ in 0..count {
            let node_guid = take.u64()?;
            let link = if take.bool()? { Link::Roce } else { Link::InfiniBand };
            let lid = take.u16()?;
            let mac = take.bytes(6)?.try_into().ok()?;
            let entries = take.u16()?;
            let has_versions = entries & WITH_VERSIONS != 0;
            let entries = usize::from(entries & !WITH_VERSIONS);
            if !(1..=GIDS).contains(&entries) {
                return None;
            }
            let mut gids = Vec::new();
            for _ in 0..entries {
                let is_v1 = has_versions && take.bool()?;
                let version = if is_v1 { RoceVersion::V1 } else { RoceVersion::V2 };
                gids.push(GidEntry::new(take.bytes(16)?.try_into().ok()?, version));
            }
            let (seed, flags) = (take.u64()?, take.u8()?);
            let profile = *Profile::ALL.get(usize::from(flags >> 2 & 0x1f))?;
            let counter_sets = match flags >> 7 {
                0 => CounterSets::Allowed,
                _ => CounterSets::Refused,
            };
            let user_contexts = flags & 1 == 1;
            let bus = if flags & 2 == 0 { Bus::Process } else { Bus::Pci };
            let port = take.u8()?;
            let (prefetches, places) = (port >> 7 == 1, port >> 6 & 1 == 1);
            let port = *PortState::ALL.get(usize::from(port & 0x3f))?;
            let log_mtu = match take.u8()? {
                0 => None,
                log_mtu @ 8..=12 => Some(log_mtu.into()),
                _ => return None,
            };
            let timeouts = take.u8().and_then(Timeouts::from_code)?;
            let prefetch = if prefetches { Some(take.u64()?) } else { None };
            let placement = if places { Some(take.u64()?) } else { None };
            cards.push(Identity {
                node_guid,
                link,
                lid,
                mac,
                gids,
                qpn_prefixes: Vec::new(),
                seed,
                user_contexts,
                bus,
                profile,
                port,
                log_mtu,
                timeouts,
                counter_sets,
                prefetch,
                placement,
            });
        }
        let header = Header { build, detail, process, program, began, monotonic, cards };
        take.is_empty().then_some(header)
    }
}

/// Nanoseconds of the machine's monotonic clock: see [`Header::monotonic`].
#[must_use]
pub fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
