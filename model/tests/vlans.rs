//! Traffic over GIDs of a VLAN, between two processes, and what a capture shows of it.

mod support;

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::ptr::null_mut;

use mlx5_model::set_vlan_addresses;
use mlx5_sys::verbs::*;
use support::capture::{Folder, fields, read};
use support::role::{Player, hear, play, say};
use support::verbs::{Address, Device, PATIENCE, Station, Timing};

/// The VLAN, and the addresses that the two ports have in it.
const VLAN: u16 = 5;
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
/// The entries behind those of the default GID and of the port's own address: of RoCE v1, and of v2.
const ENTRIES: [u8; 2] = [4, 5];
const Q_KEY: u32 = 0x1111_1111;
/// Room for the IP header of a datagram.
const GRH: usize = 40;

#[test]
fn role() {
    play(&[("end", end)]);
}

fn gid(port: usize) -> [u8; 16] {
    ADDRESSES[port].to_ipv6_mapped().octets()
}

/// A station at one port, connected with one at the other port, in another process. The first one sends a
/// message by RC and one by UD, over an entry of each version of RoCE.
fn end() -> i32 {
    let own: usize = hear().expect("a port").parse().expect("a number");
    let device = Device::open(own);
    for (port, address) in ADDRESSES.into_iter().enumerate() {
        assert_eq!(set_vlan_addresses(port, VLAN, &[address.into()]), Ok(true));
    }
    for entry in ENTRIES {
        let station = Station::new(device);
        let datagrams = Datagrams::new(&station);
        say(format!("{}|{}", station.address(), datagrams.number()));
        let peer = hear().expect("a peer");
        let (address, number) = peer.split_once('|').expect("address and number");
        let address: Address = address.parse().expect("an address");
        station.connect_over(address, Timing::PATIENT, Some((entry, gid(1 - own))));
        station.receive(1, 0, 64);
        datagrams.receive(&station, 2);
        say("ready");
        assert_eq!(hear().as_deref(), Some("go"));
        let (first, second) = (b"over RC, in the VLAN", b"over UD, in the VLAN");
        if own == 0 {
            station.put(4096, first);
            station.send(3, 4096, first.len());
            station.expect(3);
            station.put(4096, second);
            let to = (entry, gid(1), number.parse().expect("a number"));
            datagrams.send(&station, 4, second.len() as u32, to);
            station.expect(4);
        } else {
            station.expect(1);
            assert_eq!(station.get(0, first.len()), first);
            station.expect(2);
            assert_eq!(station.get(1024 + GRH, second.len()), second);
        }
        say("done");
        datagrams.destroy();
        station.destroy();
    }
    0
}

/// A queue pair of datagrams, with memory and completions of a station.
struct Datagrams(*mut ibv_qp);

impl Datagrams {
    fn new(station: &Station) -> Self {
        use ibv_qp_attr_mask as mask;
        // SAFETY: all zeros are valid attributes. The station's objects live.
        unsafe {
            let mut init: ibv_qp_init_attr = zeroed();
            (init.send_cq, init.recv_cq) = (station.cq, station.cq);
            init.qp_type = ibv_qp_type::IBV_QPT_UD;
            (init.cap.max_send_wr, init.cap.max_recv_wr) = (1, 1);
            (init.cap.max_send_sge, init.cap.max_recv_sge) = (1, 1);
            let qp = ibv_create_qp(station.pd, &mut init);
            assert!(!qp.is_null(), "{}", std::io::Error::last_os_error());
            let mut attributes: ibv_qp_attr = zeroed();
            (attributes.qkey, attributes.port_num) = (Q_KEY, 1);
            let init = mask::IBV_QP_PKEY_INDEX.0 | mask::IBV_QP_PORT.0 | mask::IBV_QP_QKEY.0;
            for (state, further) in [
                (ibv_qp_state::IBV_QPS_INIT, init),
                (ibv_qp_state::IBV_QPS_RTR, 0),
                (ibv_qp_state::IBV_QPS_RTS, mask::IBV_QP_SQ_PSN.0),
            ] {
                attributes.qp_state = state;
                let which = mask::IBV_QP_STATE.0 | further;
                assert_eq!(
                    ibv_modify_qp(qp, &mut attributes, which as c_int),
                    0,
                    "to state {state}"
                );
            }
            Self(qp)
        }
    }

    fn number(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { (*self.0).qp_num }
    }

    fn receive(&self, station: &Station, id: u64) {
        // SAFETY: all zeros is a valid request. The region lives and has the bytes.
        unsafe {
            let mut sge = ibv_sge {
                addr: station.buffer as u64 + 1024,
                length: 1024,
                lkey: (*station.mr).lkey,
            };
            let mut request: ibv_recv_wr = zeroed();
            (request.wr_id, request.sg_list, request.num_sge) = (id, &mut sge, 1);
            let mut bad = null_mut();
            assert_eq!(ibv_post_recv(self.0, &mut request, &mut bad), 0);
        }
    }

    /// Sends bytes to an address and a queue pair, from an entry of the GID table.
    fn send(&self, station: &Station, id: u64, length: u32, to: (u8, [u8; 16], u32)) {
        let (entry, gid, number) = to;
        // SAFETY: all zeros are valid attributes and a valid request. The region lives and has the bytes. The
        // device needs no address handle once the request is posted.
        unsafe {
            let mut path: ibv_ah_attr = zeroed();
            (path.port_num, path.is_global, path.sl) = (1, 1, 3);
            (path.grh.sgid_index, path.grh.hop_limit) = (entry, 64);
            path.grh.dgid.raw = gid;
            let handle = ibv_create_ah(station.pd, &mut path);
            assert!(!handle.is_null(), "{}", std::io::Error::last_os_error());
            let addr = station.buffer as u64 + 4096;
            let mut sge = ibv_sge { addr, length, lkey: (*station.mr).lkey };
            let mut request: ibv_send_wr = zeroed();
            (request.wr_id, request.sg_list, request.num_sge) = (id, &mut sge, 1);
            request.opcode = ibv_wr_opcode::IBV_WR_SEND;
            request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            request.wr.ud.ah = handle;
            (request.wr.ud.remote_qpn, request.wr.ud.remote_qkey) = (number, Q_KEY);
            let mut bad = null_mut();
            assert_eq!(ibv_post_send(self.0, &mut request, &mut bad), 0);
            assert_eq!(ibv_destroy_ah(handle), 0);
        }
    }

    fn destroy(self) {
        // SAFETY: it is destroyed once.
        assert_eq!(unsafe { ibv_destroy_qp(self.0) }, 0);
    }
}

/// Has two processes exchange their messages. Each writes a capture into the folder.
fn exchange(folder: &Folder) {
    let mut ends = [0, 1].map(|port| {
        let mut command = Player::command("end");
        command.env("MLX5_MODEL_LINK", "roce").env("MLX5_MODEL_DEVICES", "2");
        command.env("MLX5_MODEL_CAPTURE", folder.each());
        let mut end = Player::start(command);
        end.tell(port);
        end
    });
    for _ in ENTRIES {
        let addresses = ends.each_mut().map(Player::hear);
        for (end, other) in ends.iter_mut().zip(addresses.iter().rev()) {
            end.tell(other);
        }
        for word in ["ready", "done"] {
            ends.iter_mut().for_each(|end| assert_eq!(end.hear_within(PATIENCE), word));
            if word == "ready" {
                ends.iter_mut().for_each(|end| end.tell("go"));
            }
        }
    }
    ends.into_iter().for_each(Player::end_well);
}

#[test]
fn messages_of_a_vlan_pass_between_processes_with_its_tag() {
    /// Encodings of SEND of RC and of UD, and of an acknowledge.
    const OPCODES: [&str; 3] = ["4", "100", "17"];
    let folder = Folder::new("vlans");
    exchange(&folder);
    let captures = folder.captures();
    assert_eq!(captures.len(), 2);
    for capture in captures {
        let frames = read(&capture);
        assert!(
            frames.iter().all(|frame| frame.vlan() == Some(VLAN) && frame.transport().is_some())
        );
        let shown = fields(&capture, &["vlan.id", "vlan.priority", "infiniband.bth.opcode"]);
        assert_eq!(shown.len(), frames.len());
        let kinds: BTreeSet<(&str, &str, &str)> = shown
            .iter()
            .map(|line| (line[0].as_str(), line[1].as_str(), line[2].as_str()))
            .collect();
        // The priority is that of the address handle.
        let [send, datagram, acknowledge] = OPCODES;
        let expected = [("5", "0", send), ("5", "3", datagram), ("5", "0", acknowledge)];
        assert_eq!(kinds, BTreeSet::from(expected), "{}", capture.display());
    }
}
