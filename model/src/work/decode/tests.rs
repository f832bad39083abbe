//! Unit tests.

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
    for (bytes, syndrome) in [
        (control(0x0e, 1, 0), LocalQpOperation),
        (control(0x18, 1, 0), LocalQpOperation),
        (control(0x25, 1, 0), LocalQpOperation),
        (control(opcode::SEND, 1, 0xa0), LocalQpOperation),
        (modified, LocalQpOperation),
        (control(opcode::RDMA_WRITE, 1, 0), LocalQpOperation),
        (wqe(&[&control(opcode::ATOMIC_CS, 2, 0), &REMOTE]), LocalQpOperation),
        (wqe(&[&control(opcode::ATOMIC_CS, 3, 0), &REMOTE, &OPERANDS]), LocalLength),
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
                0x15 => (0, opcode::SEND_EN),
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
