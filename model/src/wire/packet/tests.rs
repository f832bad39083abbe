//! Unit tests.

use proptest::prelude::*;

use super::*;
use crate::wire::Global;
use crate::wire::Tag;

fn gids() -> impl Strategy<Value = ([u8; 16], [u8; 16])> + Clone {
    let mapped = any::<[u8; 4]>().prop_map(|address| {
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&address);
        gid
    });
    let link_local = any::<[u8; 16]>().prop_map(|mut gid| {
        gid[0] = 0xfe;
        gid
    });
    prop_oneof![(mapped.clone(), mapped), (link_local.clone(), link_local)]
}

fn routes() -> impl Strategy<Value = Route> {
    let global = (gids(), any::<u8>(), 0..1u32 << 20, any::<u8>()).prop_map(
        |((source, destination), traffic_class, flow_label, hop_limit)| {
            let mapped = source[0] == 0;
            let flow_label = if mapped { 0 } else { flow_label };
            Global { traffic_class, flow_label, hop_limit, source, destination }
        },
    );
    prop_oneof![
        (0..16u8, any::<u16>(), any::<u16>(), proptest::option::of(global.clone())).prop_map(
            |(level, source, destination, global)| Route::InfiniBand {
                level,
                source,
                destination,
                global
            }
        ),
        (any::<[u8; 6]>(), any::<[u8; 6]>(), any::<Option<u16>>(), global, any::<Option<u16>>())
            .prop_map(|(source, destination, tag, global, port)| Route::Ethernet {
                source,
                destination,
                tag: tag.map(Tag::of_control),
                global,
                port
            }),
    ]
}

prop_compose! {
    fn headers()(
        route in routes(),
        (service, opcode) in (0..=255u8).prop_filter_map("reserved", Opcode::decode),
        flags in any::<[bool; 5]>(),
        p_key in any::<u16>(),
        destination in 0..1u32 << 24,
        psn in 0..1u32 << 24,
        reth in any::<(u64, u32, u32)>(),
        operands in any::<(u64, u64)>(),
        syndrome in prop_oneof![
            (0..32u8).prop_map(Acknowledge::Ack),
            (0..32u8).prop_map(Acknowledge::Rnr),
            Just(Acknowledge::Nak(NakCode::Sequence)),
            Just(Acknowledge::Nak(NakCode::RemoteOperation)),
        ],
        immediate in any::<[u8; 4]>(),
    ) -> Header {
        let (address, key, length) = reth;
        let (swap_or_add, compare) = operands;
        Header {
            service,
            solicited: flags[0],
            migrated: flags[1],
            ack_request: flags[2],
            fecn: flags[3],
            becn: flags[4],
            datagram: (service == Service::Ud)
                .then_some(Deth { q_key: key, source: length & 0xff_ffff }),
            xrc_srq: has_xrc(service, opcode).then_some(psn ^ 0x55),
            dynamic: (service == Service::Dc)
                .then_some(DcEth { key: address, source: psn ^ 0x77, connection: key }),
            reth: opcode.has_reth().then_some(Reth { address, key, length }),
            atomic: opcode.has_atomic().then_some(AtomicEth { address, key, swap_or_add, compare }),
            aeth: opcode.has_aeth().then_some(Aeth { syndrome, msn: psn }),
            original: (opcode == Opcode::AtomicAcknowledge).then_some(compare),
            immediate: opcode.has_immediate().then_some(immediate),
            ..Header::new(route, opcode, p_key, destination, psn)
        }
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(header in headers(), payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let Ok(frame) = header.frame(payload.len(), |to| {
            to.copy_from_slice(&payload);
            Ok::<_, ()>(())
        }) else { unreachable!() };
        let (decoded, range) = Header::decode(header.link(), &frame.0).unwrap();
        prop_assert_eq!(decoded, header);
        prop_assert_eq!(&frame.0[range], &payload[..]);
        prop_assert_eq!(Header::destination(header.link(), &frame.0), Some((header.route, header.destination)));
    }

    #[test]
    fn damage_is_noticed(header in headers(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let Ok(mut frame) = header.frame(64, |_| Ok::<_, ()>(())) else { unreachable!() };
        let at = at.index(frame.0.len());
        frame.0[at] ^= 1u8 << bit;
        // The ICRC does not cover what routers may change. Any other change must be detected.
        if let Ok((decoded, range)) = Header::decode(header.link(), &frame.0) {
            let plain = |mut header: Header| {
                let global = match &mut header.route {
                    Route::InfiniBand { global: None, .. } => None,
                    Route::InfiniBand { level, source, destination, global } => {
                        (*level, *source, *destination) = (0, 0, 0);
                        global.as_mut()
                    }
                    Route::Ethernet { source, destination, tag, global, .. } => {
                        (*source, *destination) = ([0; 6], [0; 6]);
                        *tag = tag.map(|_| Tag::of_control(0));
                        Some(global)
                    }
                };
                (header.fecn, header.becn) = (false, false);
                if let Some(global) = global {
                    (global.traffic_class, global.flow_label, global.hop_limit) = (0, 0, 0);
                }
                header
            };
            prop_assert_eq!(plain(decoded), plain(header));
            prop_assert!(frame.0[range].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for link in [Link::InfiniBand, Link::Roce] {
            let _ = Header::decode(link, &bytes);
            let _ = Header::destination(link, &bytes);
        }
    }

    #[test]
    fn any_cut_is_safe(header in headers(), length in 0..200usize) {
        let Ok(frame) = header.frame(40, |_| Ok::<_, ()>(())) else { unreachable!() };
        let cut = &frame.0[..length.min(frame.0.len() - 1)];
        prop_assert!(Header::decode(header.link(), cut).is_err());
    }
}

#[test]
fn payload_and_padding_are_whole_words() {
    let mut gid = [0; 16];
    gid[0] = 0xfe;
    let global =
        Global { traffic_class: 0, flow_label: 0, hop_limit: 1, source: gid, destination: gid };
    let port = Some(0xc000);
    let route = Route::Ethernet { source: [2; 6], destination: [2; 6], tag: None, global, port };
    let header = Header::new(route, Opcode::SendOnly, 0xffff, 0x1200, 1);
    let Ok(frame) = header.frame(8, |_| Ok::<_, std::convert::Infallible>(()));
    /// The offsets of the lengths of IPv6 and UDP.
    const LENGTHS: [usize; 2] = [14 + 4, 14 + 40 + 4];
    for (cut, decodes) in [(0, true), (1, false), (2, false), (3, false), (4, true)] {
        let mut bytes = frame.0.clone();
        bytes.truncate(bytes.len() - ICRC - cut);
        for at in LENGTHS {
            let length = u16::from_be_bytes([bytes[at], bytes[at + 1]]) - cut as u16;
            bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
        }
        let check = icrc(Link::Roce, &bytes[Link::Roce.header()..]).unwrap();
        bytes.extend_from_slice(&check);
        assert_eq!(Header::decode(Link::Roce, &bytes).is_ok(), decodes, "{cut} bytes less");
    }
}
