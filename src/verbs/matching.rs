//! Packet matches in the form of a firmware command: values of header fields, and masks of their
//! bits.

use std::ptr::NonNull;

use mlx5_sys::dv::{
    MLX5DV_FLOW_ACTION_COUNTERS_DEVX, MLX5DV_FLOW_ACTION_DEST_DEVX, MLX5DV_FLOW_ACTION_DEST_IBV_QP,
    MLX5DV_FLOW_ACTION_TAG, mlx5dv_create_flow, mlx5dv_create_flow_matcher,
    mlx5dv_destroy_flow_matcher, mlx5dv_devx_obj, mlx5dv_flow_action_attr,
    mlx5dv_flow_action_attr__bindgen_ty_1, mlx5dv_flow_match_parameters, mlx5dv_flow_matcher,
    mlx5dv_flow_matcher_attr,
};
use mlx5_sys::ifc::{Field, fte_match_param, fte_match_set_lyr_2_4 as outer};
use mlx5_sys::verbs::{
    ibv_flow, ibv_flow_attr_type, ibv_flow_spec_eth, ibv_flow_spec_ipv4, ibv_flow_spec_tcp_udp,
    ibv_flow_spec_type,
};

use super::flow::explained;
use super::flow::sealed::Place;
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

/// A match for packets.
pub(super) struct Matching {
    kind: ibv_flow_attr_type::Type,
    priority: u16,
    tag: Option<u32>,
    criteria: [u8; SIZE],
    value: [u8; SIZE],
}

impl Matching {
    pub(super) fn new(kind: ibv_flow_attr_type::Type, priority: u16, tag: Option<u32>) -> Matching {
        Matching { kind, priority, tag, criteria: [0; SIZE], value: [0; SIZE] }
    }

    fn set(&mut self, field: Field, value: u64, mask: u64) {
        if mask != 0 {
            field.set(&mut self.criteria, mask);
            field.set(&mut self.value, value & mask);
        }
    }

    pub(super) fn ethernet(&mut self, spec: &ibv_flow_spec_eth) {
        let address = |bytes: [u8; 6]| {
            let whole = bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
            (whole >> 16, whole & 0xffff)
        };
        for (upper, lower, value, mask) in [
            (outer::DMAC_47_16, outer::DMAC_15_0, spec.val.dst_mac, spec.mask.dst_mac),
            (outer::SMAC_47_16, outer::SMAC_15_0, spec.val.src_mac, spec.mask.src_mac),
        ] {
            let (value, mask) = (address(value), address(mask));
            self.set(upper, value.0, mask.0);
            self.set(lower, value.1, mask.1);
        }
        let half = |value: u16| u64::from(u16::from_be(value));
        self.set(outer::ETHERTYPE, half(spec.val.ether_type), half(spec.mask.ether_type));
        let (tag, mask) = (half(spec.val.vlan_tag), half(spec.mask.vlan_tag));
        if mask != 0 {
            self.set(outer::CVLAN_TAG, 1, 1);
            self.set(outer::FIRST_VID, tag & 0xfff, mask & 0xfff);
            self.set(outer::FIRST_CFI, tag >> 12 & 1, mask >> 12 & 1);
            self.set(outer::FIRST_PRIO, tag >> 13, mask >> 13);
        }
    }

    pub(super) fn addresses(&mut self, spec: &ibv_flow_spec_ipv4) {
        // The last of the four words of an IPv6 address.
        let word = |place: Field| {
            let whole = place.bytes();
            Field::new(whole.end - 4, 31, 32)
        };
        let number = |value: u32| u64::from(u32::from_be(value));
        self.set(outer::IP_VERSION, 4, 0xf);
        let (value, mask) = (&spec.val, &spec.mask);
        self.set(word(outer::SRC_IPV4_SRC_IPV6), number(value.src_ip), number(mask.src_ip));
        self.set(word(outer::DST_IPV4_DST_IPV6), number(value.dst_ip), number(mask.dst_ip));
    }

    pub(super) fn ports(&mut self, spec: &ibv_flow_spec_tcp_udp) {
        let (protocol, source, destination) = match spec.type_ {
            ibv_flow_spec_type::IBV_FLOW_SPEC_TCP => (6, outer::TCP_SPORT, outer::TCP_DPORT),
            _ => (17, outer::UDP_SPORT, outer::UDP_DPORT),
        };
        let half = |value: u16| u64::from(u16::from_be(value));
        self.set(outer::IP_PROTOCOL, protocol, 0xff);
        self.set(source, half(spec.val.src_port), half(spec.mask.src_port));
        self.set(destination, half(spec.val.dst_port), half(spec.mask.dst_port));
    }

    /// Steers matching packets to a destination of that device, and counts them. The matcher must be
    /// dropped after the flow.
    ///
    /// # Safety
    /// Destination and counter are alive.
    pub(super) unsafe fn lead_to(
        &self,
        destination: Place,
        counter: Option<NonNull<mlx5dv_devx_obj>>,
        context: &Context,
    ) -> Result<(NonNull<ibv_flow>, Matcher)> {
        if self.kind != ibv_flow_attr_type::IBV_FLOW_ATTR_NORMAL {
            let rule = "to a TIR, or to a counter, the kernel leads frames that are described, and no others";
            return Err(Error::attribute("frames", "the rest, or all", rule));
        }
        let matcher = self.matcher(context)?;
        let mut value = Parameters::new(&self.value);
        type Value = mlx5dv_flow_action_attr__bindgen_ty_1;
        let action =
            |type_, value: Value| mlx5dv_flow_action_attr { type_, __bindgen_anon_1: value };
        let object = |object: NonNull<mlx5dv_devx_obj>| Value { obj: object.as_ptr() };
        let mut actions = vec![match destination {
            Place::Qp(qp) => action(MLX5DV_FLOW_ACTION_DEST_IBV_QP, Value { qp: qp.as_ptr() }),
            Place::Object(tir) => action(MLX5DV_FLOW_ACTION_DEST_DEVX, object(tir)),
        }];
        actions
            .extend(self.tag.map(|tag| action(MLX5DV_FLOW_ACTION_TAG, Value { tag_value: tag })));
        actions.extend(
            counter.map(|counter| action(MLX5DV_FLOW_ACTION_COUNTERS_DEVX, object(counter))),
        );
        // SAFETY: the matcher is alive, and the caller keeps destination and counter alive. Values
        // and actions live through the call and have the lengths that are passed.
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
