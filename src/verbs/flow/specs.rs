//! A rule in the form of `ibv_create_flow`: attributes, and a list of specifications behind them.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::ptr::{self, NonNull};
use std::slice;

use mlx5_sys::verbs::{
    ibv_create_flow, ibv_flow, ibv_flow_attr, ibv_flow_spec_action_tag, ibv_flow_spec_eth,
    ibv_flow_spec_ipv4, ibv_flow_spec_ipv6, ibv_flow_spec_tcp_udp, ibv_flow_spec_type, ibv_qp,
};

use super::filter::{Filter, Ports};
use super::{FlowBuilder, explained};
use crate::error::Result;
use crate::verbs::Zeroed;

/// The bytes of structures one behind the other, some of which may be padding without a value.
#[derive(Default)]
struct Bytes {
    bytes: Vec<MaybeUninit<u8>>,
    structures: u8,
}

impl Bytes {
    fn append<T: Copy>(&mut self, value: &T) {
        // SAFETY: the structure's own bytes, which need not have values, as long as it is borrowed.
        self.bytes.extend_from_slice(unsafe {
            slice::from_raw_parts(ptr::from_ref(value).cast::<MaybeUninit<u8>>(), size_of::<T>())
        });
        self.structures += 1;
    }

    fn ethernet(&mut self, filter: &Filter) {
        let Filter { destination, source, ether_type, vlan, .. } = filter;
        if (destination, source, ether_type, vlan) == (&None, &None, &None, &None) {
            return;
        }
        let mut spec = ibv_flow_spec_eth::zeroed();
        spec.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_ETH;
        spec.size = size_of_val(&spec) as u16;
        if let Some(address) = destination {
            (spec.val.dst_mac, spec.mask.dst_mac) = (*address, [0xff; 6]);
        }
        if let Some(address) = source {
            (spec.val.src_mac, spec.mask.src_mac) = (*address, [0xff; 6]);
        }
        if let Some(kind) = ether_type {
            (spec.val.ether_type, spec.mask.ether_type) = (kind.to_be(), u16::MAX);
        }
        if let Some(identifier) = vlan {
            (spec.val.vlan_tag, spec.mask.vlan_tag) = (identifier.to_be(), 0xfff_u16.to_be());
        }
        self.append(&spec);
    }

    fn addresses(&mut self, from: Option<IpAddr>, to: Option<IpAddr>) {
        match from.or(to) {
            Some(IpAddr::V4(_)) => {
                let mut spec = ibv_flow_spec_ipv4::zeroed();
                spec.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_IPV4;
                spec.size = size_of_val(&spec) as u16;
                if let Some(IpAddr::V4(from)) = from {
                    (spec.val.src_ip, spec.mask.src_ip) = (u32::from(from).to_be(), u32::MAX);
                }
                if let Some(IpAddr::V4(to)) = to {
                    (spec.val.dst_ip, spec.mask.dst_ip) = (u32::from(to).to_be(), u32::MAX);
                }
                self.append(&spec);
            }
            Some(IpAddr::V6(_)) => {
                let mut spec = ibv_flow_spec_ipv6::zeroed();
                spec.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_IPV6;
                spec.size = size_of_val(&spec) as u16;
                if let Some(IpAddr::V6(from)) = from {
                    (spec.val.src_ip, spec.mask.src_ip) = (from.octets(), [0xff; 16]);
                }
                if let Some(IpAddr::V6(to)) = to {
                    (spec.val.dst_ip, spec.mask.dst_ip) = (to.octets(), [0xff; 16]);
                }
                self.append(&spec);
            }
            None => {}
        }
    }

    fn ports(&mut self, kind: ibv_flow_spec_type::Type, ports: Ports) {
        if !ports.any() {
            return;
        }
        let mut spec = ibv_flow_spec_tcp_udp::zeroed();
        spec.type_ = kind;
        spec.size = size_of_val(&spec) as u16;
        if let Some(port) = ports.source {
            (spec.val.src_port, spec.mask.src_port) = (port.to_be(), u16::MAX);
        }
        if let Some(port) = ports.destination {
            (spec.val.dst_port, spec.mask.dst_port) = (port.to_be(), u16::MAX);
        }
        self.append(&spec);
    }

    fn tag(&mut self, tag: u32) {
        let mut spec = ibv_flow_spec_action_tag::zeroed();
        spec.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_ACTION_TAG;
        spec.size = size_of_val(&spec) as u16;
        spec.tag_id = tag;
        self.append(&spec);
    }
}

/// Creates the flow of a rule that steers to a queue pair, which is alive.
pub(super) fn create(rule: &FlowBuilder, qp: NonNull<ibv_qp>) -> Result<NonNull<ibv_flow>> {
    let filter = &rule.filter;
    let mut specs = Bytes::default();
    specs.ethernet(filter);
    specs.addresses(filter.source_ip, filter.destination_ip);
    specs.ports(ibv_flow_spec_type::IBV_FLOW_SPEC_UDP, filter.udp);
    specs.ports(ibv_flow_spec_type::IBV_FLOW_SPEC_TCP, filter.tcp);
    if let Some(tag) = rule.tag {
        specs.tag(tag);
    }
    let mut attr = ibv_flow_attr::zeroed();
    attr.type_ = rule.kind;
    attr.size = (size_of::<ibv_flow_attr>() + specs.bytes.len()) as u16;
    attr.priority = rule.priority;
    attr.num_of_specs = specs.structures;
    attr.port = rule.port;
    let mut whole = Bytes::default();
    whole.append(&attr);
    whole.bytes.extend_from_slice(&specs.bytes);
    let bytes = whole.bytes;
    // Words, so that the structure is aligned. Padding makes no integers.
    let mut words = vec![MaybeUninit::<u64>::zeroed(); bytes.len().div_ceil(8)];
    // SAFETY: the words have room for all bytes, and are other memory.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_mut_ptr().cast(), bytes.len()) };
    // SAFETY: the queue pair is alive, and the attributes live through the call.
    let flow = unsafe { ibv_create_flow(qp.as_ptr(), words.as_mut_ptr().cast()) };
    explained("ibv_create_flow", flow.unwrap_or(ptr::null_mut()))
}
