//! Packet matches in the form of a firmware command: values of header fields, and masks of their
//! bits.

use std::net::IpAddr;
use std::ptr::NonNull;

use mlx5_sys::dv::{
    MLX5DV_FLOW_ACTION_COUNTERS_DEVX, MLX5DV_FLOW_ACTION_DEST_DEVX, MLX5DV_FLOW_ACTION_DEST_IBV_QP,
    MLX5DV_FLOW_ACTION_DROP, MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION, MLX5DV_FLOW_ACTION_TAG,
    MLX5DV_FLOW_MATCHER_MASK_FT_TYPE, mlx5dv_create_flow, mlx5dv_create_flow_matcher,
    mlx5dv_destroy_flow_matcher, mlx5dv_devx_obj, mlx5dv_flow_action_attr,
    mlx5dv_flow_action_attr__bindgen_ty_1, mlx5dv_flow_match_parameters, mlx5dv_flow_matcher,
    mlx5dv_flow_matcher_attr,
};
use mlx5_sys::ifc::{Field, fte_match_param, fte_match_set_lyr_2_4 as outer};
use mlx5_sys::verbs::{ibv_flow, ibv_flow_attr_type};

use super::action::{FlowDirection, HeaderAction};
use super::filter::{Filter, Ports};
use super::sealed::Place;
use super::{FlowBuilder, explained};
use crate::error::{Error, Result, non_null};
use crate::verbs::Context;

/// Size of the outer headers' fields, which come first. Kernels accept any part of the whole.
const SIZE: usize = outer::SIZE;
const _: () = assert!(fte_match_param::OUTER_HEADERS.bit_offset() == 0);

/// Match parameters, as libmlx5 takes them: the size, and that many bytes.
#[repr(C)]
struct Parameters {
    size: usize,
    bytes: [u64; SIZE / 8],
}

impl Parameters {
    fn new(bytes: &[u8; SIZE]) -> Box<Parameters> {
        const {
            assert!(std::mem::offset_of!(Parameters, bytes) == size_of::<usize>());
            assert!(size_of::<mlx5dv_flow_match_parameters>() == size_of::<usize>());
        }
        let mut words = [0; SIZE / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut whole = [0; 8];
            whole.copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        Box::new(Parameters { size: SIZE, bytes: words })
    }

    fn as_raw(&mut self) -> *mut mlx5dv_flow_match_parameters {
        std::ptr::from_mut(self).cast()
    }
}

/// What becomes of packets that match.
pub(super) enum Fate {
    /// They go there.
    To(Place),
    /// They leave by the port that their queue sends to.
    Passed,
    /// No queue gets them.
    Discarded,
}

/// A match for packets.
pub(super) struct Matching {
    kind: ibv_flow_attr_type::Type,
    direction: FlowDirection,
    priority: u16,
    tag: Option<u32>,
    criteria: [u8; SIZE],
    value: [u8; SIZE],
}

/// Actions of a flow beside leading packets somewhere.
pub(super) struct Actions<'a> {
    pub counter: Option<NonNull<mlx5dv_devx_obj>>,
    pub headers: &'a [HeaderAction],
}

impl Matching {
    /// Writes a rule's filter as values and masks.
    pub(super) fn new(rule: &FlowBuilder) -> Matching {
        let FlowBuilder { kind, direction, priority, tag, .. } = *rule;
        let (criteria, value) = ([0; SIZE], [0; SIZE]);
        let mut matching = Matching { kind, direction, priority, tag, criteria, value };
        matching.ethernet(&rule.filter);
        matching.addresses(&rule.filter);
        matching.ports(17, (outer::UDP_SPORT, outer::UDP_DPORT), rule.filter.udp);
        matching.ports(6, (outer::TCP_SPORT, outer::TCP_DPORT), rule.filter.tcp);
        matching
    }

    /// Compares all bits of a field.
    fn whole(&mut self, field: Field, value: Option<impl Into<u64>>) {
        let all = if field.width() == 64 { u64::MAX } else { (1 << field.width()) - 1 };
        if let Some(value) = value {
            field.set(&mut self.criteria, all);
            field.set(&mut self.value, value.into());
        }
    }

    fn ethernet(&mut self, filter: &Filter) {
        for (upper, lower, address) in [
            (outer::DMAC_47_16, outer::DMAC_15_0, filter.destination),
            (outer::SMAC_47_16, outer::SMAC_15_0, filter.source),
        ] {
            let halves = address.map(|[a, b, c, d, e, f]| {
                (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]))
            });
            self.whole(upper, halves.map(|halves| halves.0));
            self.whole(lower, halves.map(|halves| halves.1));
        }
        self.whole(outer::ETHERTYPE, filter.ether_type);
        self.whole(outer::CVLAN_TAG, filter.vlan.map(|_| 1_u16));
        self.whole(outer::FIRST_VID, filter.vlan);
    }

    fn addresses(&mut self, filter: &Filter) {
        for (field, address) in [
            (outer::SRC_IPV4_SRC_IPV6, filter.source_ip),
            (outer::DST_IPV4_DST_IPV6, filter.destination_ip),
        ] {
            let Some(address) = address else { continue };
            let (version, octets) = match address {
                IpAddr::V4(address) => (4_u8, address.octets().to_vec()),
                IpAddr::V6(address) => (6, address.octets().to_vec()),
            };
            self.whole(outer::IP_VERSION, Some(version));
            // An address of IPv4 is the last four bytes.
            let end = field.bytes().end;
            let place = end - octets.len()..end;
            self.criteria[place.clone()].fill(0xff);
            self.value[place].copy_from_slice(&octets);
        }
    }

    fn ports(&mut self, protocol: u8, (source, destination): (Field, Field), ports: Ports) {
        self.whole(outer::IP_PROTOCOL, ports.any().then_some(protocol));
        self.whole(source, ports.source);
        self.whole(destination, ports.destination);
    }

    /// Creates the flow, whose packets meet that fate, are counted and change. The matcher must be dropped
    /// after the flow.
    ///
    /// # Safety
    /// Destination and counter are alive, and of this device. The actions live as long as the flow.
    pub(super) unsafe fn create(
        &self,
        fate: Fate,
        Actions { counter, headers }: Actions<'_>,
        context: &Context,
    ) -> Result<(NonNull<ibv_flow>, Matcher)> {
        if self.kind != ibv_flow_attr_type::IBV_FLOW_ATTR_NORMAL {
            let rule =
                "the kernel leads these to queue pairs only, without a counter, and discards none";
            return Err(Error::attribute("rule", "rest or sniffer", rule));
        }
        let matcher = self.matcher(context)?;
        let mut value = Parameters::new(&self.value);
        type Value = mlx5dv_flow_action_attr__bindgen_ty_1;
        let action =
            |type_, value: Value| mlx5dv_flow_action_attr { type_, __bindgen_anon_1: value };
        let object = |object: NonNull<mlx5dv_devx_obj>| Value { obj: object.as_ptr() };
        let fate = match fate {
            Fate::To(Place::Qp(qp)) => {
                Some(action(MLX5DV_FLOW_ACTION_DEST_IBV_QP, Value { qp: qp.as_ptr() }))
            }
            Fate::To(Place::Object(tir)) => Some(action(MLX5DV_FLOW_ACTION_DEST_DEVX, object(tir))),
            Fate::Discarded => Some(action(MLX5DV_FLOW_ACTION_DROP, Value { tag_value: 0 })),
            Fate::Passed => None,
        };
        let mut actions: Vec<_> = fate.into_iter().collect();
        actions.extend(headers.iter().map(|header| {
            let value = Value { action: header.as_raw().as_ptr() };
            action(MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION, value)
        }));
        actions
            .extend(self.tag.map(|tag| action(MLX5DV_FLOW_ACTION_TAG, Value { tag_value: tag })));
        actions.extend(
            counter.map(|counter| action(MLX5DV_FLOW_ACTION_COUNTERS_DEVX, object(counter))),
        );
        // SAFETY: the matcher is alive, and the caller keeps destination, counter and actions on headers
        // alive. Values and the list live through the call and have the lengths that are passed.
        let flow = unsafe {
            mlx5dv_create_flow(
                matcher.0.as_ptr(),
                value.as_raw(),
                actions.len(),
                actions.as_mut_ptr(),
            )
        };
        Ok((explained("mlx5dv_create_flow", flow)?, matcher))
    }

    fn matcher(&self, context: &Context) -> Result<Matcher> {
        let mut mask = Parameters::new(&self.criteria);
        let mut attr = mlx5dv_flow_matcher_attr {
            type_: self.kind,
            priority: self.priority,
            // Bit 0 enables the outer headers.
            match_criteria_enable: self.criteria.iter().any(|byte| *byte != 0).into(),
            match_mask: mask.as_raw(),
            ..Default::default()
        };
        if self.direction == FlowDirection::Sent {
            // Older kernels do not know the attribute. Without it the matcher is for received packets.
            attr.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE.into();
            attr.ft_type = self.direction.table();
        }
        let context = context.as_raw().as_ptr();
        // SAFETY: the context is open, and the attributes live through the call.
        let matcher = unsafe { mlx5dv_create_flow_matcher(context, &mut attr) };
        non_null("mlx5dv_create_flow_matcher", matcher).map(Matcher)
    }
}

/// The matcher of a flow, dropped after the flow.
pub(super) struct Matcher(NonNull<mlx5dv_flow_matcher>);

// SAFETY: libmlx5 keeps a handle in it, and this crate only destroys it.
unsafe impl Send for Matcher {}
// SAFETY: a shared reference only gives out the raw pointer.
unsafe impl Sync for Matcher {}

impl Drop for Matcher {
    fn drop(&mut self) {
        // SAFETY: this crate made the matcher and destroys it once, here, after its flow. The
        // flow's target keeps the context open.
        unsafe { mlx5dv_destroy_flow_matcher(self.0.as_ptr()) };
    }
}
