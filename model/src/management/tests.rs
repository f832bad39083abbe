//! The codec against the layouts of the specification.

mod connection;

use super::ip::{self, Addresses};
use super::mad::{Addressee, HEADER, Mad, SIZE};
use super::message::{
    Confirm, Delay, Disconnect, Ece, Ids, LoadPath, Message, Path, PathLoaded, Reason, Reject,
    Reply, Request, Resolve, Resolved, room,
};
use super::subnet::{self, Signature};
use crate::clock::Random;
use crate::wire::{Global, Link, Route};

const IDS: Ids = Ids { local: 0x0102_0304, remote: 0x0506_0708 };

fn path() -> Path {
    Path {
        local_lid: 0x1122,
        remote_lid: 0x3344,
        local_gid: [0xa1; 16],
        remote_gid: [0xb2; 16],
        flow_label: 0xf_edcb,
        rate: 0x2a,
        traffic_class: 0x55,
        hop_limit: 0x66,
        level: 0x9,
        subnet_local: true,
        ack_timeout: 0x15,
    }
}

fn request() -> Request {
    Request {
        local: 0x0102_0304,
        service: 0x1112_1314_1516_1718,
        guid: 0x2122_2324_2526_2728,
        q_key: 0x3132_3334,
        qp: 0x41_4243,
        responder_resources: 0x51,
        initiator_depth: 0x61,
        remote_timeout: 0x14,
        transport: 3,
        flow_control: true,
        psn: 0x71_7273,
        local_timeout: 0x13,
        retry_count: 7,
        p_key: 0x8182,
        mtu: 5,
        rnr_retry_count: 6,
        max_retries: 15,
        srq: true,
        extended_transport: 1,
        primary: path(),
        alternate: Path { local_lid: 9, ..path() },
        ece: Ece { vendor: 0xc1_c2c3, options: 0xd1d2_d3d4 },
        private: vec![0xee; room::REQUEST],
    }
}

/// One message of each kind, with every field set.
fn messages() -> Vec<Message> {
    let private = |room: usize| vec![0xee; room];
    vec![
        Message::Request(Box::new(request())),
        Message::Delay(Delay { ids: IDS, message: 2, timeout: 24, private: private(room::DELAY) }),
        Message::Reject(Reject {
            ids: IDS,
            message: 1,
            reason: Reason::CONSUMER,
            information: vec![0xdd; 72],
            private: private(room::REJECT),
        }),
        Message::Reply(Reply {
            ids: IDS,
            q_key: 0x3132_3334,
            qp: 0x41_4243,
            target: 0x44_4546,
            psn: 0x71_7273,
            responder_resources: 0x51,
            initiator_depth: 0x61,
            ack_delay: 0x15,
            failover: 2,
            flow_control: true,
            rnr_retry_count: 5,
            srq: true,
            guid: 0x2122_2324_2526_2728,
            ece: Ece { vendor: 0xc1_c2c3, options: 0xd1d2_d3d4 },
            private: private(room::REPLY),
        }),
        Message::Ready(Confirm { ids: IDS, private: private(room::READY) }),
        Message::Disconnect(Disconnect {
            ids: IDS,
            remote_qp: 0x41_4243,
            private: private(room::DISCONNECT),
        }),
        Message::Disconnected(Confirm { ids: IDS, private: private(room::DISCONNECTED) }),
        Message::Resolve(Resolve {
            request: 7,
            p_key: 0x8182,
            service: 0x1112_1314_1516_1718,
            private: private(room::RESOLVE),
        }),
        Message::Resolved(Resolved {
            request: 7,
            status: 2,
            qp: 0x41_4243,
            service: 0x1112_1314_1516_1718,
            q_key: 0x3132_3334,
            private: private(room::RESOLVED),
        }),
        Message::LoadPath(Box::new(LoadPath {
            ids: IDS,
            remote_qp: 0x41_4243,
            remote_timeout: 0x14,
            path: path(),
            private: private(room::LOAD),
        })),
        Message::PathLoaded(PathLoaded {
            ids: IDS,
            status: 3,
            information: vec![0xdd; 72],
            private: private(room::LOADED),
        }),
    ]
}

#[test]
fn every_message_is_read_as_it_was_written() {
    for message in messages() {
        let mad = Mad { transaction: 0x1234_5678_9abc_def0, message };
        assert_eq!(Mad::decode(&mad.encode()), Some(mad));
    }
}

/// Offsets of IBA 1.3, table 12-6, from the end of the MAD's header.
#[test]
fn request_has_the_layout_of_the_specification() {
    let mad = Mad { transaction: 1, message: Message::Request(Box::new(request())) };
    let bytes = mad.encode();
    assert_eq!(bytes[..8], [1, 7, 2, 3, 0, 0, 0, 0]);
    assert_eq!(bytes[16..18], [0, 0x10]);
    let data = &bytes[HEADER..];
    // The options of ECE, and the vendor.
    assert_eq!(bytes[20..24], [0xd1, 0xd2, 0xd3, 0xd4]);
    assert_eq!(data[..8], [1, 2, 3, 4, 0, 0xc1, 0xc2, 0xc3]);
    assert_eq!(data[8..16], 0x1112_1314_1516_1718_u64.to_be_bytes());
    assert_eq!(data[16..24], 0x2122_2324_2526_2728_u64.to_be_bytes());
    assert_eq!(data[28..36], [0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x51]);
    // Remote time-out, transport 3, flow control.
    assert_eq!(data[36..44], [0, 0, 0, 0x61, 0, 0, 0, 0x14 << 3 | 3 << 1 | 1]);
    assert_eq!(data[44..48], [0x71, 0x72, 0x73, 0x13 << 3 | 7]);
    // MTU and RNR retries; CM retries, SRQ and extended transport.
    assert_eq!(data[48..52], [0x81, 0x82, 0x56, 0xf9]);
    assert_eq!(data[52..56], [0x11, 0x22, 0x33, 0x44]);
    assert_eq!(data[56], 0xa1);
    assert_eq!(data[72], 0xb2);
    // Flow label and rate; traffic class, hop limit, service level and subnet, time-out.
    assert_eq!(data[88..96], [0xfe, 0xdc, 0xb0, 0x2a, 0x55, 0x66, 0x98, 0xa8]);
    assert_eq!(data[96..98], [0, 9]);
    assert_eq!(data[139], 0xa8);
    assert_eq!(data[140], 0xee);
    assert_eq!(data.len(), 140 + room::REQUEST);
}

/// Offsets of the numbers of vendors in a REP: `ibta_vol1_c12.h` of Linux.
#[test]
fn reply_has_the_vendor_in_the_bytes_behind_other_fields() {
    let bytes = Mad { transaction: 1, message: messages().remove(3) }.encode();
    let data = &bytes[HEADER..];
    assert_eq!([data[15], data[19], data[23]], [0xc1, 0xc2, 0xc3]);
    assert_eq!(data[12..15], [0x41, 0x42, 0x43]);
    assert_eq!(bytes[20..24], [0xd1, 0xd2, 0xd3, 0xd4]);
}

#[test]
fn hostile_bytes_are_read_or_refused() {
    let mut random = Random::seeded(6);
    for attribute in 0x0e..0x1d_u16 {
        for _ in 0..200 {
            let mut bytes = [0; SIZE];
            bytes.iter_mut().for_each(|byte| *byte = random.draw() as u8);
            bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
            bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
            let known = (0x10..=0x1a).contains(&attribute);
            let read = Mad::decode(&bytes);
            assert_eq!(read.is_some(), known);
            // What was read can be written, and reads the same.
            if let Some(mad) = read {
                assert_eq!(Mad::decode(&mad.encode()), Some(mad));
            }
        }
    }
    let good = Mad { transaction: 1, message: messages().remove(4) }.encode();
    assert!(Mad::decode(&good[..SIZE - 1]).is_none(), "too short");
    for at in 0..4 {
        let mut bad = good;
        bad[at] ^= 0x10;
        assert!(Mad::decode(&bad).is_none(), "byte {at} counts");
    }
}

#[test]
fn private_data_beyond_its_room_is_cut_off() {
    let private = vec![1; 1000];
    let message = Message::Ready(Confirm { ids: IDS, private });
    let read = Mad::decode(&Mad { transaction: 1, message }.encode()).unwrap();
    let Message::Ready(ready) = read.message else { panic!("{read:?}") };
    assert_eq!(ready.private, [1; room::READY]);
}

#[test]
fn a_mad_goes_as_a_datagram_to_queue_pair_1() {
    let gid = |last| {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 198, 18, 0, last]);
        gid
    };
    let global = Global {
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        source: gid(1),
        destination: gid(2),
    };
    for (link, route) in [
        (
            Link::Roce,
            Route::Ethernet {
                source: [2; 6],
                destination: [4; 6],
                tag: None,
                global,
                port: Some(0xc000),
            },
        ),
        (Link::InfiniBand, Route::InfiniBand { level: 0, source: 1, destination: 2, global: None }),
    ] {
        let mad = Mad { transaction: 1, message: messages().remove(0) };
        let mut frame = mad.frame(route, 0xffff);
        assert_eq!(Mad::of_frame(link, &frame), Some((route, mad)));
        let last = frame.0.len() - 1;
        frame.0[last] ^= 1;
        assert_eq!(Mad::of_frame(link, &frame), None, "the ICRC counts");
    }
}

#[test]
fn messages_name_the_process_they_are_for() {
    for message in messages() {
        let attribute = message.attribute();
        let expected = match attribute {
            0x10 | 0x17 => Addressee::Service(0x1112_1314_1516_1718),
            0x18 => Addressee::Connection(7),
            _ => Addressee::Connection(IDS.remote),
        };
        assert_eq!(Mad { transaction: 1, message }.addressee(), expected, "{attribute:#x}");
    }
}

#[test]
fn addresses_are_in_private_data() {
    let four = Addresses {
        source: "192.0.2.1:4660".parse().unwrap(),
        destination: "192.0.2.2".parse().unwrap(),
    };
    let bytes = four.encode();
    assert_eq!(bytes[..4], [0, 0x40, 0x12, 0x34]);
    assert_eq!(bytes[4..16], [0; 12]);
    assert_eq!(bytes[16..20], [192, 0, 2, 1]);
    assert_eq!(bytes[32..], [192, 0, 2, 2]);
    assert_eq!(Addresses::decode(&bytes), Some(four));
    let six = Addresses {
        source: "[fd00::1]:4660".parse().unwrap(),
        destination: "fd00::2".parse().unwrap(),
    };
    assert_eq!(six.encode()[1], 0x60);
    assert_eq!(Addresses::decode(&six.encode()), Some(six));
    assert_eq!(Addresses::decode(&bytes[..35]), None);
    assert_eq!(Addresses::decode(&[5; 36]), None, "another version");
    // RDMA_PS_TCP
    assert_eq!(ip::service(0x0106, 7174), 0x0106_1c06);
}

#[test]
fn groups_are_those_that_linux_computes() {
    let four = "239.1.2.3".parse().unwrap();
    let on = |link, signature| subnet::group(link, four, 0xffff, signature);
    assert_eq!(
        on(Link::Roce, Signature::Rdma),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3]
    );
    assert_eq!(
        on(Link::InfiniBand, Signature::Rdma),
        [0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 15, 1, 2, 3]
    );
    assert_eq!(on(Link::InfiniBand, Signature::Ip)[3], 0x1b);
    for last in 0..=255 {
        let mut gid = on(Link::InfiniBand, Signature::Ip);
        gid[15] = last;
        assert!((0xc000..0xffff).contains(&subnet::group_lid(&gid)));
    }
}

#[test]
fn a_path_record_is_read_as_it_was_written() {
    let path = subnet::Path {
        source: [1; 16],
        destination: [2; 16],
        source_lid: 3,
        destination_lid: 4,
        p_key: 0xffff,
        level: 5,
        traffic_class: 6,
        flow_label: 0xa_bcde,
        hop_limit: 7,
        mtu: 5,
        life_time: 18,
    };
    let bytes = path.record();
    // IBA 1.3, 15.2.5.16
    assert_eq!(bytes[40..44], [0, 4, 0, 3]);
    assert_eq!(bytes[44..50], [0x0a, 0xbc, 0xde, 7, 6, 0x81]);
    assert_eq!(bytes[54..57], [0x85, 0x91, 0x92]);
    assert_eq!(subnet::Path::of_record(&bytes), Some(path));
    assert_eq!(subnet::Path::of_record(&bytes[1..]), None);
}
