//! The table of all supported ioctl methods and their attributes.

use super::super::driver::steering;
use super::super::objects::ah::Ah;
use super::super::objects::counters::Counters;
use super::super::objects::cq::Cq;
use super::super::objects::devx::object::Devx;
use super::super::objects::devx::umem::DevxUmem;
use super::super::objects::dm::Dm;
use super::super::objects::file::{CommandFile, destroy};
use super::super::objects::flow::Flow;
use super::super::objects::flow_action::FlowAction;
use super::super::objects::flow_matcher::Matcher;
use super::super::objects::mw::Mw;
use super::super::objects::pd::Pd;
use super::super::objects::qp::Qp;
use super::super::objects::srq::Srq;
use super::super::objects::uar::Uar;
use super::super::objects::wq::{IndirectionTable, Wq};
use super::super::objects::xrcd::Xrcd;
use super::super::objects::{
    advise, counters, cq, device, devx, dm, dmabuf, mr, pd, port, qp, srq, uar,
};
use super::super::objects::{flow_action, flow_matcher, wq};
use super::super::process::errno::Result;
use super::super::request::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT, Declared, Kind, may, must};
use super::commands;

/// A method.
pub(crate) struct Method {
    object: u16,
    method: u16,
    /// Its attributes.
    pub attributes: &'static [Declared],
    /// The function that serves it.
    pub serve: fn(&CommandFile, &mut Attributes) -> Result<()>,
}

/// The method of an object, if it is served.
pub(crate) fn find(object: u16, method: u16) -> Option<&'static Method> {
    METHODS.iter().find(|known| known.object == object && known.method == method)
}

/// Bytes of headers as flows look at them.
const MATCH: u16 = steering::MATCH as u16;
/// Any length that the header can say.
const ANY: Kind = Kind::In(0, u16::MAX);
/// A number of up to eight bytes.
const NUMBER: Kind = Kind::In(1, 8);
const FOUR: Kind = Kind::In(4, 4);
const EIGHT: Kind = Kind::In(8, 8);
/// One or two handles.
const HANDLES: Kind = Kind::In(4, 8);
/// A firmware command, with room for the number of an object, and its reply.
const COMMAND: Kind = Kind::In(16, u16::MAX);
const REPLY: Kind = Kind::Out(16);

macro_rules! methods {
    ($($object:literal $method:literal $serve:path {
        $($presence:ident $id:expr => $kind:expr;)*
    })*) => {
        &[$(Method {
            object: $object,
            method: $method,
            attributes: &[$($presence($id, $kind)),*],
            serve: $serve,
        }),*]
    };
}

const METHODS: &[Method] = methods! {
    // UVERBS_OBJECT_DEVICE
    0 0 commands::invoke {
        may 0 => ANY;
        may 1 => Kind::Out(0);
        must 2 => EIGHT;
        may DRIVER_IN => ANY;
        may DRIVER_OUT => Kind::Out(0);
    }
    0 2 port::query { must 0 => NUMBER; must 1 => Kind::Out(40); }
    0 3 device::get_context {
        may 0 => Kind::Out(4);
        may 1 => Kind::Out(8);
        may DRIVER_IN => ANY;
        may DRIVER_OUT => Kind::Out(0);
    }
    0 4 device::query_context {
        may 0 => Kind::Out(4);
        may 1 => Kind::Out(8);
        must 0x1000 => Kind::Out(72);
    }
    0 5 port::gid_table {
        must 0 => NUMBER;
        may 1 => NUMBER;
        must 2 => Kind::Out(0);
        must 3 => Kind::Out(8);
    }
    0 6 port::gid_entry {
        must 0 => NUMBER;
        must 1 => NUMBER;
        may 2 => NUMBER;
        must 3 => Kind::Out(32);
    }
    // UVERBS_OBJECT_PD
    1 0 destroy::<Pd, 0> { must 0 => Kind::Handle; }
    1 0x1000 pd::query { must 0x1000 => Kind::Handle; must 0x1001 => Kind::Out(4); }
    // UVERBS_OBJECT_CQ
    3 0 cq::create {
        must 0 => Kind::NewHandle;
        must 1 => FOUR;
        must 2 => EIGHT;
        may 3 => Kind::Handle;
        must 4 => FOUR;
        may 5 => FOUR;
        must 6 => Kind::Out(4);
        may 7 => Kind::Handle;
        may DRIVER_IN => ANY;
        may DRIVER_OUT => Kind::Out(0);
    }
    3 1 destroy::<Cq, 0> { must 0 => Kind::Handle; must 1 => Kind::Out(8); }
    // UVERBS_OBJECT_QP
    4 0 qp::create {
        must 0 => Kind::NewHandle;
        may 1 => Kind::Handle;
        may 2 => Kind::Handle;
        may 3 => Kind::Handle;
        may 4 => Kind::Handle;
        may 5 => Kind::Handle;
        may 6 => Kind::Handle;
        must 7 => EIGHT;
        must 8 => Kind::In(20, 20);
        must 9 => EIGHT;
        may 10 => FOUR;
        may 11 => FOUR;
        may 12 => Kind::Handle;
        must 13 => Kind::Out(20);
        must 14 => Kind::Out(4);
        may DRIVER_IN => ANY;
        may DRIVER_OUT => Kind::Out(0);
    }
    4 1 destroy::<Qp, 0> { must 0 => Kind::Handle; must 1 => Kind::Out(4); }
    // UVERBS_OBJECT_SRQ
    5 0 srq::create {
        must 0 => Kind::NewHandle;
        must 1 => Kind::Handle;
        may 2 => Kind::Handle;
        may 3 => Kind::Handle;
        must 4 => EIGHT;
        must 5 => FOUR;
        must 6 => FOUR;
        must 7 => FOUR;
        may 8 => FOUR;
        must 9 => EIGHT;
        may 10 => Kind::Handle;
        must 11 => Kind::Out(4);
        must 12 => Kind::Out(4);
        may 13 => Kind::Out(4);
        may DRIVER_IN => ANY;
        may DRIVER_OUT => Kind::Out(0);
    }
    5 1 destroy::<Srq, 0> { must 0 => Kind::Handle; must 1 => Kind::Out(4); }
    // UVERBS_OBJECT_AH
    6 0 destroy::<Ah, 0> { must 0 => Kind::Handle; }
    // UVERBS_OBJECT_MR
    7 0 mr::register_device {
        must 0 => Kind::NewHandle;
        must 1 => EIGHT;
        must 2 => EIGHT;
        must 3 => Kind::Handle;
        must 4 => FOUR;
        must 5 => Kind::Handle;
        must 6 => Kind::Out(4);
        must 7 => Kind::Out(4);
    }
    7 1 mr::deregister { must 0 => Kind::Handle; }
    7 2 advise::advise {
        must 0 => Kind::Handle;
        must 1 => NUMBER;
        must 2 => FOUR;
        must 3 => Kind::In(16, u16::MAX);
    }
    7 3 mr::query {
        must 0 => Kind::Handle;
        must 1 => Kind::Out(4);
        must 2 => Kind::Out(4);
        must 3 => Kind::Out(8);
        may 4 => Kind::Out(8);
    }
    7 4 dmabuf::register {
        must 0 => Kind::NewHandle;
        must 1 => Kind::Handle;
        must 2 => EIGHT;
        must 3 => EIGHT;
        must 4 => EIGHT;
        must 5 => FOUR;
        must 6 => FOUR;
        must 7 => Kind::Out(4);
        must 8 => Kind::Out(4);
    }
    // UVERBS_OBJECT_MW
    8 0 destroy::<Mw, 0> { must 0 => Kind::Handle; }
    // UVERBS_OBJECT_FLOW
    9 0 destroy::<Flow, 0> { must 0 => Kind::Handle; }
    9 0x1000 flow_matcher::create_flow {
        must 0x1000 => Kind::NewHandle;
        must 0x1001 => Kind::In(1, MATCH);
        may 0x1002 => Kind::Handle;
        may 0x1003 => Kind::Handle;
        must 0x1004 => Kind::Handle;
        may 0x1005 => HANDLES;
        may 0x1006 => FOUR;
        may 0x1007 => FOUR;
        may 0x1008 => Kind::In(4, u16::MAX);
        may 0x1009 => NUMBER;
    }
    // UVERBS_OBJECT_XRCD
    10 0 destroy::<Xrcd, 0> { must 0 => Kind::Handle; }
    // UVERBS_OBJECT_DM
    14 0 dm::allocate {
        must 0 => Kind::NewHandle;
        must 1 => EIGHT;
        must 2 => FOUR;
        must 0x1000 => Kind::Out(8);
        must 0x1001 => Kind::Out(2);
        may 0x1002 => NUMBER;
    }
    14 1 destroy::<Dm, 0> { must 0 => Kind::Handle; }
    14 0x1001 dm::query {
        must 0x1000 => Kind::Handle;
        must 0x1001 => Kind::Out(8);
        must 0x1002 => Kind::Out(2);
        must 0x1003 => Kind::Out(8);
    }
    // UVERBS_OBJECT_RWQ_IND_TBL
    11 0 destroy::<IndirectionTable, 0> { must 0 => Kind::Handle; }
    // UVERBS_OBJECT_WQ
    12 0 wq::create {
        must 0 => Kind::NewHandle;
        must 1 => Kind::Handle;
        must 2 => Kind::Handle;
        must 3 => EIGHT;
        must 4 => EIGHT;
        may 5 => Kind::Handle;
        must 6 => FOUR;
        must 7 => FOUR;
        may 8 => FOUR;
        must 9 => Kind::Out(4);
        must 10 => Kind::Out(4);
        may 11 => Kind::Out(4);
        may DRIVER_IN => ANY;
        may DRIVER_OUT => Kind::Out(0);
    }
    12 1 destroy::<Wq, 0> { must 0 => Kind::Handle; must 1 => Kind::Out(4); }
    // UVERBS_OBJECT_FLOW_ACTION
    13 1 destroy::<FlowAction, 0> { must 0 => Kind::Handle; }
    13 0x1000 flow_action::create_modify_header {
        must 0x1000 => Kind::NewHandle;
        must 0x1001 => Kind::In(8, u16::MAX);
        must 0x1002 => NUMBER;
    }
    13 0x1001 flow_action::create_packet_reformat {
        must 0x1000 => Kind::NewHandle;
        must 0x1001 => NUMBER;
        must 0x1002 => NUMBER;
        may 0x1003 => Kind::In(1, u16::MAX);
    }
    // UVERBS_OBJECT_COUNTERS
    15 0 counters::create { must 0 => Kind::NewHandle; }
    15 1 destroy::<Counters, 0> { must 0 => Kind::Handle; }
    15 2 counters::read {
        must 0 => Kind::Handle;
        must 1 => Kind::Out(0);
        may 2 => NUMBER;
    }
    // UVERBS_OBJECT_ASYNC_EVENT
    16 0 device::alloc_events { must 0 => Kind::NewHandle; }
    // UVERBS_OBJECT_DMABUF
    18 0 dmabuf::export { must 0 => Kind::NewHandle; must 1 => EIGHT; }
    // MLX5_IB_OBJECT_DEVX
    0x1000 0x1000 devx::other { must 0x1000 => COMMAND; must 0x1001 => REPLY; }
    0x1000 0x1002 devx::query_eqn { must 0x1000 => FOUR; must 0x1001 => Kind::Out(4); }
    0x1000 0x1003 devx::event::subscribe {
        must 0x1000 => Kind::Handle;
        may 0x1001 => Kind::Handle;
        must 0x1002 => Kind::In(2, u16::MAX);
        may 0x1003 => FOUR;
        may 0x1004 => EIGHT;
    }
    // MLX5_IB_OBJECT_DEVX_OBJ
    0x1001 0x1000 devx::object::create {
        must 0x1000 => Kind::NewHandle;
        must 0x1001 => COMMAND;
        must 0x1002 => REPLY;
    }
    0x1001 0x1001 destroy::<Devx, 0x1000> { must 0x1000 => Kind::Handle; }
    0x1001 0x1002 devx::modify {
        must 0x1000 => Kind::Handle;
        must 0x1001 => COMMAND;
        must 0x1002 => REPLY;
    }
    0x1001 0x1003 devx::query {
        must 0x1000 => Kind::Handle;
        must 0x1001 => COMMAND;
        must 0x1002 => REPLY;
    }
    0x1001 0x1004 devx::answer::query {
        must 0x1000 => Kind::Handle;
        must 0x1001 => COMMAND;
        must 0x1002 => Kind::Handle;
        must 0x1003 => EIGHT;
        must 0x1004 => NUMBER;
    }
    // MLX5_IB_OBJECT_DEVX_UMEM
    0x1002 0x1000 devx::umem::register {
        must 0x1000 => Kind::NewHandle;
        must 0x1001 => EIGHT;
        must 0x1002 => EIGHT;
        must 0x1003 => NUMBER;
        must 0x1004 => Kind::Out(4);
        may 0x1005 => EIGHT;
        may 0x1006 => Kind::Handle;
    }
    0x1002 0x1001 destroy::<DevxUmem, 0x1000> { must 0x1000 => Kind::Handle; }
    // MLX5_IB_OBJECT_FLOW_MATCHER
    0x1003 0x1000 flow_matcher::create {
        must 0x1000 => Kind::NewHandle;
        must 0x1001 => Kind::In(1, MATCH);
        must 0x1002 => Kind::In(2, 2);
        must 0x1003 => Kind::In(1, 1);
        may 0x1004 => NUMBER;
        may 0x1005 => NUMBER;
    }
    0x1003 0x1001 destroy::<Matcher, 0x1000> { must 0x1000 => Kind::Handle; }
    // MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD
    0x1004 0x1000 devx::answer::create { must 0x1000 => Kind::NewHandle; }
    // MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD
    0x1005 0x1000 devx::event::create { must 0x1000 => Kind::NewHandle; must 0x1001 => NUMBER; }
    // MLX5_IB_OBJECT_UAR
    0x1008 0x1000 uar::allocate {
        must 0x1000 => Kind::NewHandle;
        must 0x1001 => NUMBER;
        must 0x1002 => Kind::Out(8);
        must 0x1003 => Kind::Out(4);
        must 0x1004 => Kind::Out(4);
    }
    0x1008 0x1001 destroy::<Uar, 0x1000> { must 0x1000 => Kind::Handle; }
};
