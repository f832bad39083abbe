//! Decoding a WQE into a request. Written from the segment layouts of the PRM, independently of any
//! encoder.

use super::{
    Address, Atomic, Data, EthernetSegment, Extended, Fence, Remote, SendWqe, Signal, Syndrome,
    TWO_GIB,
};
use super::{extended, tags, umr};
use crate::wire::Service;

/// Send opcodes (`mlx5dv.h`, `MLX5_OPCODE_*`).
pub(crate) mod opcode {
    pub const NOP: u8 = 0x00;
    pub const WAIT: u8 = 0x0f;
    pub const SEND_ENABLE: u8 = 0x17;
    pub const MMO: u8 = 0x2f;
    pub const TAG_MATCHING: u8 = 0x28;
    pub const SEND_INVAL: u8 = 0x01;
    pub const RDMA_WRITE: u8 = 0x08;
    pub const RDMA_WRITE_IMM: u8 = 0x09;
    pub const SEND: u8 = 0x0a;
    pub const SEND_IMM: u8 = 0x0b;
    pub const TSO: u8 = 0x0e;
    pub const DUMP: u8 = 0x23;
    pub const RDMA_READ: u8 = 0x10;
    pub const ATOMIC_CS: u8 = 0x11;
    pub const ATOMIC_FA: u8 = 0x12;
    pub const ATOMIC_MASKED_CS: u8 = 0x14;
    pub const ATOMIC_MASKED_FA: u8 = 0x15;
    pub const UMR: u8 = 0x25;
}

/// The control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub modifier: u8,
    pub index: u16,
    pub opcode: u8,
    pub qpn: u32,
    /// Segments of 16 bytes in the WQE, this one included.
    pub ds: u8,
    /// Stream of an initiator of dynamic connections.
    pub stream: u16,
    pub flags: u8,
    pub immediate: [u8; 4],
}

impl Control {
    pub fn decode(bytes: &[u8; 16]) -> Self {
        Self {
            modifier: bytes[0],
            index: u16::from_be_bytes([bytes[1], bytes[2]]),
            opcode: bytes[3],
            qpn: u32::from_be_bytes([0, bytes[4], bytes[5], bytes[6]]),
            ds: bytes[7] & 0x3f,
            stream: u16::from_be_bytes([bytes[9], bytes[10]]),
            flags: bytes[11],
            immediate: [bytes[12], bytes[13], bytes[14], bytes[15]],
        }
    }
}

/// The undecoded rest of a WQE.
struct Segments<'a>(&'a [u8]);

impl Segments<'_> {
    /// The next 16 bytes.
    fn next(&mut self) -> Option<[u8; 16]> {
        let (segment, rest) = self.0.split_first_chunk::<16>()?;
        self.0 = rest;
        Some(*segment)
    }

    fn remote(&mut self) -> Result<Remote, Syndrome> {
        let segment = self.next().ok_or(Syndrome::LocalQpOperation)?;
        Ok(Remote { address: be64(&segment, 0), key: be32(&segment, 8) })
    }

    /// An address vector: of 16 bytes, or extended to 48.
    fn address(&mut self) -> Result<Address, Syndrome> {
        /// `mlx5dv.h`, MLX5_EXTENDED_UD_AV.
        const EXTENDED: u32 = 1 << 31;
        const GRH: u32 = 1 << 30;
        let base = self.next().ok_or(Syndrome::LocalQpOperation)?;
        let number = be32(&base, 8);
        let extended = if number & EXTENDED == 0 {
            None
        } else {
            let middle = self.next().ok_or(Syndrome::LocalQpOperation)?;
            let gid = self.next().ok_or(Syndrome::LocalQpOperation)?;
            let mut mac = [0; 6];
            mac.copy_from_slice(&middle[4..10]);
            let word = be32(&middle, 12);
            Some(Extended {
                mac,
                traffic_class: middle[10],
                hop_limit: middle[11],
                global: word & GRH != 0,
                source_index: (word >> 20) as u8,
                flow_label: word & 0xf_ffff,
                gid,
            })
        };
        Ok(Address {
            q_key: be32(&base, 0),
            access_key: be64(&base, 0),
            stream: 0,
            destination: number & 0xff_ffff,
            rate_level: base[12],
            lid: u16::from_be_bytes([base[14], base[15]]),
            extended,
        })
    }

    /// The Ethernet segment: 16 bytes, of which the last two are the first of the frame, and as many
    /// more as its header has.
    fn ethernet(&mut self) -> Result<EthernetSegment, Syndrome> {
        /// `mlx5dv.h`, MLX5_ETH_WQE_L3_CSUM, _L4_CSUM, _INSERT_VLAN.
        const NETWORK: u8 = 0x40;
        const TRANSPORT: u8 = 0x80;
        const INSERT: u16 = 0x8000;
        let first = self.next().ok_or(Syndrome::LocalQpOperation)?;
        let half = |at: usize| u16::from_be_bytes([first[at], first[at + 1]]);
        let mut segment = EthernetSegment {
            fill_network: first[4] & NETWORK != 0,
            fill_transport: first[4] & TRANSPORT != 0,
            maximum: half(6),
            ..EthernetSegment::default()
        };
        // A tag takes the place of header bytes.
        if half(12) & INSERT != 0 {
            segment.insert = Some(half(14));
            return Ok(segment);
        }
        let length = usize::from(half(12));
        segment.header.extend_from_slice(&first[14..14 + length.min(2)]);
        while segment.header.len() < length {
            let more = self.next().ok_or(Syndrome::LocalQpOperation)?;
            segment.header.extend_from_slice(&more[..(length - segment.header.len()).min(16)]);
        }
        Ok(segment)
    }

    /// Pointers and inline payloads up to the end.
    fn data(&mut self, inline: bool) -> Result<Vec<Data>, Syndrome> {
        let mut data = Vec::new();
        while let Some(segment) = self.next() {
            let count = be32(&segment, 0);
            if count & 0x8000_0000 == 0 {
                let length = if count == 0 { TWO_GIB } else { count };
                data.push(Data::Pointer {
                    length,
                    key: be32(&segment, 4),
                    address: be64(&segment, 8),
                });
                continue;
            }
            // The length has ten bits (`mlx5dv.h`, MLX5_INLINE_SEG); what is between is reserved.
            let length = (count & 0x3ff) as usize;
            if !inline || count & !0x8000_03ff != 0 {
                return Err(Syndrome::LocalQpOperation);
            }
            let mut bytes = segment[4..4 + length.min(12)].to_vec();
            while bytes.len() < length {
                let more = self.next().ok_or(Syndrome::LocalQpOperation)?;
                bytes.extend_from_slice(&more[..(length - bytes.len()).min(16)]);
            }
            data.push(Data::Inline(bytes));
        }
        Ok(data)
    }
}

/// Whether a service has an operation.
fn has(service: Service, code: u8) -> bool {
    match service {
        Service::Rc | Service::Xrc | Service::Dc => true,
        Service::Uc => !matches!(
            code,
            opcode::SEND_INVAL
                | opcode::RDMA_READ
                | opcode::ATOMIC_CS
                | opcode::ATOMIC_FA
                | opcode::ATOMIC_MASKED_CS
                | opcode::ATOMIC_MASKED_FA
                | opcode::MMO
        ),
        Service::Ud => matches!(
            code,
            opcode::NOP | opcode::SEND | opcode::SEND_IMM | opcode::WAIT | opcode::SEND_ENABLE
        ),
        Service::Ethernet => {
            matches!(code, opcode::NOP | opcode::SEND | opcode::TSO | opcode::DUMP)
        }
    }
}

/// Decodes a WQE of a service's queue: all its segments, in order and without the ring's wrap.
/// Anything that no request of the service looks like is [`Syndrome::LocalQpOperation`].
pub(crate) fn request(service: Service, bytes: &[u8]) -> Result<SendWqe, Syndrome> {
    let mut segments = Segments(bytes);
    let control = Control::decode(&segments.next().ok_or(Syndrome::LocalQpOperation)?);
    let mut wqe = SendWqe {
        index: control.index,
        blocks: bytes.len().div_ceil(64) as u16,
        opcode: control.opcode,
        modifier: control.modifier,
        fence: match control.flags >> 5 {
            0 => Fence::None,
            1 => Fence::Small,
            2 | 4 => Fence::Full,
            3 => Fence::Strong,
            _ => return Err(Syndrome::LocalQpOperation),
        },
        signal: if control.flags & 0x08 == 0 { Signal::OnError } else { Signal::Always },
        solicited: control.flags & 0x02 != 0,
        immediate: control.immediate,
        address: None,
        remote: None,
        atomic: None,
        masked: None,
        local: None,
        ethernet: None,
        umr: None,
        xrc_srq: None,
        data: Vec::new(),
    };
    let varies =
        matches!(control.opcode, opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA | opcode::MMO);
    if (control.modifier != 0 && !varies) || !has(service, control.opcode) {
        return Err(Syndrome::LocalQpOperation);
    }
    let stays = matches!(
        control.opcode,
        opcode::NOP | opcode::UMR | opcode::WAIT | opcode::SEND_ENABLE | opcode::MMO
    );
    if service == Service::Xrc && !stays {
        let segment = segments.next().ok_or(Syndrome::LocalQpOperation)?;
        wqe.xrc_srq = Some(be32(&segment, 0) & 0xff_ffff);
    }
    if service == Service::Dc && !stays {
        let address = segments.address()?;
        wqe.address = Some(Address { stream: control.stream, ..address });
    }
    fill(&mut wqe, &control, service, segments)?;
    Ok(wqe)
}

/// Decodes the segments that the opcode asks for.
fn fill(
    wqe: &mut SendWqe,
    control: &Control,
    service: Service,
    mut segments: Segments<'_>,
) -> Result<(), Syndrome> {
    match control.opcode {
        // What follows the control segment of a NOP is only room.
        opcode::NOP => {}
        opcode::SEND | opcode::TSO if service == Service::Ethernet => {
            wqe.ethernet = Some(Box::new(segments.ethernet()?));
            wqe.data = segments.data(true)?;
        }
        opcode::DUMP => wqe.data = segments.data(false)?,
        opcode::SEND | opcode::SEND_IMM | opcode::SEND_INVAL => {
            if service == Service::Ud {
                wqe.address = Some(segments.address()?);
            }
            wqe.data = segments.data(true)?;
        }
        opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => {
            wqe.remote = Some(segments.remote()?);
            wqe.data = segments.data(true)?;
        }
        opcode::RDMA_READ => {
            wqe.remote = Some(segments.remote()?);
            wqe.data = segments.data(false)?;
        }
        opcode::ATOMIC_CS | opcode::ATOMIC_FA => {
            wqe.remote = Some(segments.remote()?);
            let operands = segments.next().ok_or(Syndrome::LocalQpOperation)?;
            wqe.atomic =
                Some(Atomic { swap_or_add: be64(&operands, 0), compare: be64(&operands, 8) });
            wqe.data = segments.data(false)?;
            if wqe.length() != 8 {
                return Err(Syndrome::LocalLength);
            }
        }
        opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA => {
            wqe.remote = Some(segments.remote()?);
            let swap = control.opcode == opcode::ATOMIC_MASKED_CS;
            let (masked, rest) = extended::masked(control.modifier, swap, segments.0)?;
            segments.0 = rest;
            wqe.data = segments.data(false)?;
            if wqe.length() != masked.size as u64 {
                return Err(Syndrome::LocalLength);
            }
            wqe.masked = Some(Box::new(masked));
        }
        opcode::MMO => {
            wqe.local = Some(Box::new(extended::copy(control.modifier, segments.0)?));
        }
        opcode::TAG_MATCHING => {
            let list = |bytes: &[u8]| Ok(super::list(bytes));
            wqe.local = Some(Box::new(extended::Local::Tags(tags::decode(segments.0, list)?)));
        }
        opcode::WAIT | opcode::SEND_ENABLE => {
            let wait = control.opcode == opcode::WAIT;
            wqe.local = Some(Box::new(extended::queues(wait, control.modifier, segments.0)?));
        }
        opcode::UMR => {
            let key = u32::from_be_bytes(control.immediate);
            wqe.umr = Some(Box::new(umr::decode(key, segments.0)?));
        }
        _ => return Err(Syndrome::LocalQpOperation),
    }
    Ok(())
}

fn be32(segment: &[u8; 16], at: usize) -> u32 {
    u32::from_be_bytes([segment[at], segment[at + 1], segment[at + 2], segment[at + 3]])
}

fn be64(segment: &[u8; 16], at: usize) -> u64 {
    u64::from(be32(segment, at)) << 32 | u64::from(be32(segment, at + 4))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rc(bytes: &[u8]) -> Result<SendWqe, Syndrome> {
        request(Service::Rc, bytes)
    }

    /// A control segment: opcode, segments in all, fm_ce_se.
    fn control(opcode: u8, ds: u8, flags: u8) -> Vec<u8> {
        vec![0, 0xab, 0xcd, opcode, 0, 0x12, 0x34, ds, 0, 0, 0, flags, 1, 2, 3, 4]
    }

    const REMOTE: [u8; 16] = [0, 0, 0, 0, 0x70, 0, 1, 0, 0, 0, 9, 0x5a, 0, 0, 0, 0];
    const POINTER: [u8; 16] = [0, 0, 0, 8, 0, 0, 8, 0x11, 0, 0, 0, 0, 0x60, 0, 0, 0x10];
    const OPERANDS: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 5];

    fn wqe(segments: &[&[u8]]) -> Vec<u8> {
        segments.concat()
    }

    fn pointer() -> Data {
        Data::Pointer { length: 8, key: 0x811, address: 0x6000_0010 }
    }

    #[test]
    fn a_send_with_pointers_and_inline_data() {
        let mut inline = vec![0x80, 0, 0, 20];
        inline.extend(1..=20);
        inline.resize(32, 0);
        let bytes = wqe(&[&control(opcode::SEND_IMM, 5, 0x8a), &POINTER, &inline, &POINTER]);
        let decoded = rc(&bytes).unwrap();
        assert_eq!(decoded.index, 0xabcd);
        assert_eq!(decoded.blocks, 2);
        assert_eq!(decoded.opcode, opcode::SEND_IMM);
        assert_eq!(decoded.fence, Fence::Full);
        assert_eq!(decoded.signal, Signal::Always);
        assert!(decoded.solicited);
        assert_eq!(decoded.immediate, [1, 2, 3, 4]);
        assert_eq!(decoded.remote, None);
        assert_eq!(decoded.data, [pointer(), Data::Inline((1..=20).collect()), pointer()]);
        assert_eq!(decoded.length(), 36);
    }

    #[test]
    fn remote_operations_carry_their_segments() {
        let remote = Some(Remote { address: 0x7000_0100, key: 0x95a });
        for opcode in [opcode::RDMA_WRITE, opcode::RDMA_WRITE_IMM, opcode::RDMA_READ] {
            let decoded = rc(&wqe(&[&control(opcode, 3, 0), &REMOTE, &POINTER])).unwrap();
            assert_eq!(decoded.remote, remote);
            assert_eq!(decoded.data, [pointer()]);
            assert_eq!(decoded.signal, Signal::OnError);
            assert_eq!(decoded.fence, Fence::None);
        }
        for opcode in [opcode::ATOMIC_CS, opcode::ATOMIC_FA] {
            let bytes = wqe(&[&control(opcode, 4, 0x20), &REMOTE, &OPERANDS, &POINTER]);
            let decoded = rc(&bytes).unwrap();
            assert_eq!(decoded.remote, remote);
            assert_eq!(decoded.atomic, Some(Atomic { swap_or_add: 7, compare: 5 }));
            assert_eq!(decoded.fence, Fence::Small);
        }
    }

    #[test]
    fn a_byte_count_of_zero_is_two_gibibytes() {
        let mut pointer = POINTER;
        pointer[3] = 0;
        let decoded = rc(&wqe(&[&control(opcode::SEND, 2, 0), &pointer])).unwrap();
        assert_eq!(decoded.length(), 1 << 31);
    }

    #[test]
    fn nothing_to_send_is_a_message_too() {
        assert_eq!(rc(&control(opcode::SEND, 1, 8)).unwrap().data, []);
        assert_eq!(rc(&control(opcode::NOP, 1, 8)).unwrap().data, []);
    }

    #[test]
    fn malformed_requests_are_told_apart() {
        use Syndrome::{LocalLength, LocalQpOperation};
        let inline = [0x80, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut reserved = inline;
        reserved[2] = 4;
        let mut endless = inline;
        endless[3] = 13;
        let mut modified = control(opcode::SEND, 1, 0);
        modified[0] = 1;
        let mut long = POINTER;
        long[3] = 16;
        for (bytes, syndrome) in [
            (control(0x0e, 1, 0), LocalQpOperation),
            (control(0x18, 1, 0), LocalQpOperation),
            (control(0x25, 1, 0), LocalQpOperation),
            (control(opcode::SEND, 1, 0xa0), LocalQpOperation),
            (modified, LocalQpOperation),
            (control(opcode::RDMA_WRITE, 1, 0), LocalQpOperation),
            (wqe(&[&control(opcode::ATOMIC_CS, 2, 0), &REMOTE]), LocalQpOperation),
            (wqe(&[&control(opcode::ATOMIC_CS, 3, 0), &REMOTE, &OPERANDS]), LocalLength),
            (wqe(&[&control(opcode::ATOMIC_FA, 4, 0), &REMOTE, &OPERANDS, &long]), LocalLength),
            (wqe(&[&control(opcode::RDMA_READ, 3, 0), &REMOTE, &inline]), LocalQpOperation),
            (wqe(&[&control(opcode::SEND, 2, 0), &reserved]), LocalQpOperation),
            (wqe(&[&control(opcode::SEND, 2, 0), &endless]), LocalQpOperation),
        ] {
            assert_eq!(rc(&bytes), Err(syndrome), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_datagram_says_where_it_goes() {
        let base = [0x11, 0x11, 0, 7, 0, 0, 0, 0, 0x80, 0x12, 0x34, 0x56, 0xa5, 0, 0, 9];
        let middle = [0, 0, 0, 0, 2, 3, 4, 5, 6, 7, 0x20, 64, 0x40, 0x3f, 0xed, 0xcb];
        let gid: [u8; 16] = std::array::from_fn(|at| at as u8);
        let bytes = wqe(&[&control(opcode::SEND, 5, 8), &base, &middle, &gid, &POINTER]);
        let decoded = request(Service::Ud, &bytes).unwrap();
        let extended = Extended {
            mac: [2, 3, 4, 5, 6, 7],
            traffic_class: 0x20,
            hop_limit: 64,
            global: true,
            source_index: 3,
            flow_label: 0xf_edcb,
            gid,
        };
        let address = Address {
            q_key: 0x1111_0007,
            access_key: 0x1111_0007_0000_0000,
            stream: 0,
            destination: 0x12_3456,
            rate_level: 0xa5,
            lid: 9,
            extended: Some(extended),
        };
        assert_eq!(decoded.address, Some(address));
        assert_eq!(decoded.data, [pointer()]);
        // Without the bit that says it is extended, data follows at once.
        let mut short = base;
        short[8] = 0;
        let bytes = wqe(&[&control(opcode::SEND_IMM, 3, 8), &short, &POINTER]);
        let decoded = request(Service::Ud, &bytes).unwrap();
        assert_eq!(decoded.address, Some(Address { extended: None, ..address }));
        assert_eq!(decoded.data, [pointer()]);
        for segments in [&[][..], &[&base[..]], &[&base[..], &middle]] {
            let whole = control(opcode::SEND, 1 + segments.len() as u8, 0);
            let bytes = [whole, segments.concat()].concat();
            assert_eq!(request(Service::Ud, &bytes), Err(Syndrome::LocalQpOperation));
        }
    }

    #[test]
    fn requests_of_xrc_name_the_queue_they_are_for() {
        let mut srq = [0; 16];
        srq[..4].copy_from_slice(&0x0012_3456u32.to_be_bytes());
        let remote = Some(Remote { address: 0x7000_0100, key: 0x95a });
        let bytes = wqe(&[&control(opcode::RDMA_WRITE_IMM, 4, 8), &srq, &REMOTE, &POINTER]);
        let decoded = request(Service::Xrc, &bytes).unwrap();
        assert_eq!((decoded.xrc_srq, decoded.remote), (Some(0x12_3456), remote));
        assert_eq!(decoded.data, [pointer()]);
        let bytes = wqe(&[&control(opcode::SEND, 3, 8), &srq, &POINTER]);
        assert_eq!(request(Service::Xrc, &bytes).unwrap().data, [pointer()]);
        let none = control(opcode::SEND, 1, 8);
        assert_eq!(request(Service::Xrc, &none), Err(Syndrome::LocalQpOperation));
        assert_eq!(request(Service::Xrc, &control(opcode::NOP, 1, 8)).unwrap().xrc_srq, None);
    }

    #[test]
    fn requests_to_targets_say_where_they_go_and_what_opens_it() {
        let base = [1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0x12, 0x34, 0x56, 0xa5, 0, 0, 9];
        let gid: [u8; 16] = std::array::from_fn(|at| at as u8);
        let mut control = control(opcode::RDMA_WRITE, 6, 8);
        control[9..11].copy_from_slice(&0x0203u16.to_be_bytes());
        let bytes = wqe(&[&control, &base, &[0; 16], &gid, &REMOTE, &POINTER]);
        let decoded = request(Service::Dc, &bytes).unwrap();
        let address = decoded.address.unwrap();
        assert_eq!(address.access_key, 0x0102_0304_0506_0708);
        assert_eq!((address.destination, address.stream), (0x12_3456, 0x0203));
        assert_eq!((address.lid, address.extended.unwrap().gid), (9, gid));
        assert_eq!(decoded.remote, Some(Remote { address: 0x7000_0100, key: 0x95a }));
        assert_eq!(decoded.data, [pointer()]);
        let none = super::tests::control(opcode::SEND, 1, 8);
        assert_eq!(request(Service::Dc, &none), Err(Syndrome::LocalQpOperation));
        let nop = super::tests::control(opcode::NOP, 1, 8);
        assert_eq!(request(Service::Dc, &nop).unwrap().address, None);
    }

    #[test]
    fn unreliable_services_have_fewer_operations() {
        let remote = |code| wqe(&[&control(code, 3, 0), &REMOTE, &POINTER]);
        for code in [opcode::RDMA_WRITE, opcode::RDMA_WRITE_IMM, opcode::RDMA_READ] {
            let uc = request(Service::Uc, &remote(code));
            assert_eq!(uc.is_ok(), code != opcode::RDMA_READ);
            assert_eq!(request(Service::Ud, &remote(code)), Err(Syndrome::LocalQpOperation));
        }
        for code in [opcode::ATOMIC_CS, opcode::ATOMIC_FA] {
            let bytes = wqe(&[&control(code, 4, 0), &REMOTE, &OPERANDS, &POINTER]);
            for service in [Service::Uc, Service::Ud] {
                assert_eq!(request(service, &bytes), Err(Syndrome::LocalQpOperation));
            }
        }
        for service in [Service::Uc, Service::Ud] {
            assert!(request(service, &control(opcode::NOP, 1, 8)).is_ok());
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            code in any::<u8>(),
            mut bytes in proptest::collection::vec(any::<u8>(), 0..1008),
            known in any::<bool>(),
        ) {
            if known && bytes.len() > 3 {
                let (modifier, chosen) = match code % 0x1a {
                    0x13 => (0, opcode::UMR),
                    0x14 => (1, opcode::MMO),
                    0x15 => (0, opcode::SEND_ENABLE),
                    other @ 0x16..=0x19 => (8 | other & 3, opcode::ATOMIC_MASKED_CS | code >> 7),
                    other => (0, other),
                };
                (bytes[0], bytes[3]) = (modifier, chosen);
            }
            for service in [
                Service::Rc,
                Service::Uc,
                Service::Ud,
                Service::Xrc,
                Service::Dc,
                Service::Ethernet,
            ] {
                let Ok(decoded) = request(service, &bytes) else { continue };
                let inline: usize = decoded
                    .data
                    .iter()
                    .map(|data| if let Data::Inline(bytes) = data { bytes.len() } else { 0 })
                    .sum();
                prop_assert!(inline <= bytes.len());
            }
        }
    }
}
