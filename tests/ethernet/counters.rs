//! Counters of verbs, through libmlx5: a flow names them, and a program reads packets and bytes at the
//! places that it chose.

use std::ptr::null_mut;

use mlx5::verbs::Context;
use mlx5::wqe::{EthSend, Inline};
use mlx5_sys::verbs::{
    ibv_attach_counters_point_flow, ibv_counter_attach_attr, ibv_counter_description, ibv_counters,
    ibv_counters_init_attr, ibv_create_counters, ibv_create_flow, ibv_destroy_counters,
    ibv_destroy_flow, ibv_flow, ibv_flow_attr, ibv_flow_attr_type, ibv_flow_spec_action_tag,
    ibv_flow_spec_counter_action, ibv_flow_spec_eth, ibv_flow_spec_type, ibv_read_counters,
};

use crate::{Side, address, rig, udp};

/// Counters that libmlx5 made.
struct Counters(*mut ibv_counters);

impl Counters {
    fn new(context: &Context) -> Self {
        let mut attr = ibv_counters_init_attr { comp_mask: 0 };
        // SAFETY: the context is open, and the attributes live through the call.
        let counters = unsafe { ibv_create_counters(context.as_raw().as_ptr(), &mut attr) };
        let counters = counters.unwrap_or(null_mut());
        assert!(!counters.is_null(), "{}", std::io::Error::last_os_error());
        Self(counters)
    }

    /// Wants a count at a place.
    fn want(&self, counted: ibv_counter_description::Type, index: u32) {
        let mut attr = ibv_counter_attach_attr { counter_desc: counted, index, comp_mask: 0 };
        // SAFETY: the counters live, and the attributes live through the call.
        assert_eq!(unsafe { ibv_attach_counters_point_flow(self.0, &mut attr, null_mut()) }, 0);
    }

    fn read<const N: usize>(&self) -> Result<[u64; N], i32> {
        let mut counts = [u64::MAX; N];
        // SAFETY: the counters live, and there is room for as many counts.
        match unsafe { ibv_read_counters(self.0, counts.as_mut_ptr(), N as u32, 0) } {
            0 => Ok(counts),
            errno => Err(errno),
        }
    }

    /// Destroys them, or says why not.
    fn destroy(&self) -> i32 {
        // SAFETY: they are not used after they are gone.
        unsafe { ibv_destroy_counters(self.0) }
    }
}

/// Flows to an address that are counted, each specification as often as `counters` are given.
#[repr(C)]
struct Attributes {
    flow: ibv_flow_attr,
    address: ibv_flow_spec_eth,
    tag: ibv_flow_spec_action_tag,
    counters: [ibv_flow_spec_counter_action; 2],
}

/// Leads frames to an address to a side, and counts them.
fn lead(side: &Side, to: [u8; 6], counters: &[&Counters]) -> Result<*mut ibv_flow, i32> {
    // SAFETY: zero is a value of every field.
    let mut all: Attributes = unsafe { std::mem::zeroed() };
    all.flow.type_ = ibv_flow_attr_type::IBV_FLOW_ATTR_NORMAL;
    all.flow.port = 1;
    all.flow.num_of_specs = 2 + counters.len() as u8;
    all.flow.size = size_of::<Attributes>() as u16;
    all.address.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_ETH;
    all.address.size = size_of_val(&all.address) as u16;
    (all.address.val.dst_mac, all.address.mask.dst_mac) = (to, [0xff; 6]);
    all.tag.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_ACTION_TAG;
    all.tag.size = size_of_val(&all.tag) as u16;
    for (spec, counters) in all.counters.iter_mut().zip(counters) {
        spec.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_ACTION_COUNT;
        spec.size = size_of_val(spec) as u16;
        spec.counters = counters.0;
    }
    // SAFETY: the queue pair lives, and the attributes live through the call.
    let flow = unsafe { ibv_create_flow(side.qp.as_raw().as_ptr(), (&raw mut all).cast()) };
    flow.filter(|flow| !flow.is_null())
        .ok_or_else(|| std::io::Error::last_os_error().raw_os_error().unwrap())
}

fn end(flow: *mut ibv_flow) {
    // SAFETY: the flow was made by `lead`, and is not used again.
    assert_eq!(unsafe { ibv_destroy_flow(flow) }, 0);
}

use ibv_counter_description::{IBV_COUNTER_BYTES as BYTES, IBV_COUNTER_PACKETS as PACKETS};

#[test]
fn counters_show_packets_and_bytes_where_the_program_wants_them() {
    let rig = rig();
    let mut side = Side::new(&rig);
    let counters = Counters::new(&rig.context);
    counters.want(BYTES, 0);
    counters.want(PACKETS, 2);
    // Several counts at one place add up.
    counters.want(PACKETS, 3);
    counters.want(BYTES, 3);
    assert_eq!(counters.read::<4>(), Err(libc::EINVAL), "no flow has them");
    let flow = lead(&side, address(0x50), &[&counters]).unwrap();
    let frames = [udp(address(0x50), 1, &[1; 20]), udp(address(0x50), 1, &[2; 30])];
    let bytes = (frames[0].len() + frames[1].len()) as u64;
    for frame in &frames {
        // SAFETY: all of it is in the WQE.
        unsafe { side.send.post(1, EthSend::new(Inline(frame)).signaled()).unwrap() };
        assert!(side.sent.poll(&mut side.send).unwrap().is_some());
    }
    assert_eq!(counters.read(), Ok([bytes, 0, 2, 2 + bytes]));
    assert_eq!(counters.read::<3>(), Err(libc::EINVAL), "a place is beyond the array");
    assert_eq!(counters.read(), Ok([bytes, 0, 2, 2 + bytes, 0]));

    // A second flow counts in the same; both keep them.
    let second = lead(&side, address(0x51), &[&counters]).unwrap();
    assert_eq!(counters.destroy(), libc::EBUSY);
    end(flow);
    assert_eq!(counters.read(), Ok([bytes, 0, 2, 2 + bytes]));
    end(second);
    assert_eq!(counters.read::<4>(), Err(libc::EINVAL));
    assert_eq!(counters.destroy(), 0);
}

#[test]
fn a_flow_has_one_set_of_counters_and_says_what_it_wants() {
    let rig = rig();
    let side = Side::new(&rig);
    let (wanted, silent) = (Counters::new(&rig.context), Counters::new(&rig.context));
    wanted.want(PACKETS, 0);
    assert_eq!(lead(&side, address(0x52), &[&silent]), Err(libc::EINVAL));
    assert_eq!(lead(&side, address(0x52), &[&wanted, &silent]), Err(libc::EINVAL));
    let flow = lead(&side, address(0x52), &[&wanted]).unwrap();
    assert_eq!(wanted.read(), Ok([0]));
    end(flow);
    assert_eq!((wanted.destroy(), silent.destroy()), (0, 0));
}
