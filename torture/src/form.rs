//! The transports: how each makes queue pairs, connects them and addresses its requests.

use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::ib::{Dci, HasQueues, Rc, Uc, Ud, XrcSend};
use mlx5::ring::{Batch, CqReader, PostError, ReceiveConfig, ReceiveQueue, SendQueue};
use mlx5::verbs::attr::{
    AckTimeout, InitAttributes, RtsAttributes, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::verbs::{
    AddressHandle, Init, ProtectionDomain, QueuePair, QueuePairBuilder, Rts, SharedReceiveQueue,
};
use mlx5::wqe::{
    CompareSwap, DcAddress, FetchAdd, Inline, RdmaRead, RdmaWrite, RdmaWriteImm, SendImm,
    SendMessage, UdAddress, Word, XrcAddress,
};
use mlx5_sys::verbs::ibv_send_wr;

use crate::plan::{Action, Plan};
use crate::wire::{Request, Result};

/// The Q_Key of all datagram queue pairs.
pub const QKEY: u32 = 0x1ee7_5eed;
/// The access key of all DC targets.
pub const ACCESS_KEY: u64 = 0x0dc0_ffee_0000_0001;

/// The peer's receiving end.
pub struct Peer<'a> {
    pub pd: &'a ProtectionDomain,
    pub local: &'a LocalPort,
    pub endpoint: &'a ConnectionData,
    /// The number of its shared receive queue, or of its DC target.
    pub number: u32,
}

/// A transport that episodes run on.
pub trait Form: HasQueues + Sized {
    /// The address of requests.
    type Address;

    /// Moves a new queue pair to INIT.
    fn init(
        local: &LocalPort,
        builder: QueuePairBuilder<Self>,
    ) -> mlx5::Result<QueuePair<Self, Init>>;

    /// Moves it on to RTS.
    fn rts(
        local: &LocalPort,
        qp: QueuePair<Self, Init>,
        mine: &ConnectionData,
        theirs: &ConnectionData,
        timeout: AckTimeout,
    ) -> mlx5::Result<QueuePair<Self, Rts>>;

    /// Makes the address of the peer.
    fn address(peer: &Peer<'_>) -> Result<Self::Address>;

    /// Says how its receives are posted.
    fn with_receives(
        builder: QueuePairBuilder<Self>,
        plan: &Plan,
        srq: Option<&SharedReceiveQueue>,
    ) -> QueuePairBuilder<Self>;

    /// Takes over its receive queue, if it has one of its own.
    fn receives(
        qp: &QueuePair<Self, Init>,
        completions: &mut CqReader,
    ) -> Option<mlx5::Result<ReceiveQueue>>;

    /// Appends a request to a batch.
    fn append(
        batch: &mut Batch<'_, Self>,
        request: &Request,
        address: &Self::Address,
    ) -> std::result::Result<(), PostError>;

    /// Posts one request.
    ///
    /// # Safety
    /// The memory that the request names stays registered and untouched until it is complete.
    unsafe fn post(
        queue: &mut SendQueue<Self>,
        request: &Request,
        address: &Self::Address,
    ) -> std::result::Result<(), PostError>;

    /// Writes the address into libibverbs' request.
    fn say(wr: &mut ibv_send_wr, address: &Self::Address);
}

/// Evaluates `$put` with an operation, flags set.
macro_rules! flagged {
    ($it:ident, |$made:ident| $put:expr, $make:expr $(, $solicited:ident)?) => {{
        let $made = $make.signaled_if($it.signaled);
        let $made = if $it.fenced { $made.fenced() } else { $made };
        $(let $made = if $it.$solicited { $made.$solicited() } else { $made };)?
        $put
    }};
}

/// Evaluates `$put` with the SEND that the request stands for; `$rest` are the arms of others.
macro_rules! operation {
    ($request:ident, |$made:ident| $put:expr, $($rest:tt)*) => {{
        let it = &$request.operation;
        let (list, data) = (&$request.list[..], Inline(&it.data));
        match it.action {
            Action::Send if it.inline => flagged!(it, |$made| $put, SendMessage::new(data), solicited),
            Action::Send => flagged!(it, |$made| $put, SendMessage::new(list), solicited),
            Action::SendImm(imm) if it.inline => {
                flagged!(it, |$made| $put, SendImm::new(data, imm), solicited)
            }
            Action::SendImm(imm) => flagged!(it, |$made| $put, SendImm::new(list, imm), solicited),
            $($rest)*
        }
    }};
}

/// As `operation`, on transports with WRITE.
macro_rules! connected {
    ($request:ident, |$made:ident| $put:expr, $($rest:tt)*) => {{
        let remote = $request.remote;
        operation!($request, |$made| $put,
            Action::Write if $request.operation.inline => {
                let it = &$request.operation;
                flagged!(it, |$made| $put, RdmaWrite::new(Inline(&it.data), remote))
            }
            Action::Write => {
                let it = &$request.operation;
                flagged!(it, |$made| $put, RdmaWrite::new(&$request.list[..], remote))
            }
            Action::WriteImm(imm) if $request.operation.inline => {
                let it = &$request.operation;
                flagged!(it, |$made| $put, RdmaWriteImm::new(Inline(&it.data), remote, imm), solicited)
            }
            Action::WriteImm(imm) => {
                let it = &$request.operation;
                flagged!(it, |$made| $put, RdmaWriteImm::new(&$request.list[..], remote, imm), solicited)
            }
            $($rest)*
        )
    }};
}

/// As `connected`, on transports with READ and atomics.
macro_rules! reliable {
    ($request:ident, |$made:ident| $put:expr,) => {{
        let word = || Word::new($request.list[0].addr, $request.list[0].lkey);
        let remote = $request.remote;
        connected!($request, |$made| $put,
            Action::Read => {
                let it = &$request.operation;
                flagged!(it, |$made| $put, RdmaRead::new(&$request.list[..], remote))
            }
            Action::FetchAdd(add) => {
                let it = &$request.operation;
                flagged!(it, |$made| $put, FetchAdd::new(word(), remote, add))
            }
            Action::CompareSwap { compare, swap } => {
                let it = &$request.operation;
                flagged!(it, |$made| $put, CompareSwap::new(word(), remote, compare, swap))
            }
        )
    }};
}

/// How the transport's requests are posted: `$all` names the macro of its operations, `$to` turns
/// an operation into one with its address.
macro_rules! posting {
    ($all:ident, |$made:ident, $address:ident| $to:expr, $($rest:tt)*) => {
        fn append(
            batch: &mut Batch<'_, Self>,
            request: &Request,
            $address: &Self::Address,
        ) -> std::result::Result<(), PostError> {
            $all!(request, |$made| batch.append(request.id, $to), $($rest)*)
        }

        unsafe fn post(
            queue: &mut SendQueue<Self>,
            request: &Request,
            $address: &Self::Address,
        ) -> std::result::Result<(), PostError> {
            // SAFETY: the caller keeps the request's memory.
            $all!(request, |$made| unsafe { queue.post(request.id, $to) }, $($rest)*)
        }
    };
}

/// The code that transports with a single peer share.
macro_rules! connecting {
    () => {
        fn init(
            local: &LocalPort,
            builder: QueuePairBuilder<Self>,
        ) -> mlx5::Result<QueuePair<Self, Init>> {
            builder.build()?.init(&local.init()).map_err(|failed| failed.error)
        }

        fn rts(
            local: &LocalPort,
            qp: QueuePair<Self, Init>,
            mine: &ConnectionData,
            theirs: &ConnectionData,
            timeout: AckTimeout,
        ) -> mlx5::Result<QueuePair<Self, Rts>> {
            let rtr = local.rtr(mine, theirs).into();
            let qp = qp.rtr(&rtr).map_err(|failed| failed.error)?;
            let rts = RtsAttributes { timeout, ..local.rts(mine, theirs) };
            qp.rts(&rts.into()).map_err(|failed| failed.error)
        }
    };
}

macro_rules! own_receives {
    () => {
        fn with_receives(
            builder: QueuePairBuilder<Self>,
            plan: &Plan,
            srq: Option<&SharedReceiveQueue>,
        ) -> QueuePairBuilder<Self> {
            let builder = builder.max_recv_sge(plan.sges);
            match srq {
                Some(srq) => builder.shared_receive_queue(srq),
                None => builder.max_recv_wr(plan.receive_depth),
            }
        }

        fn receives(
            qp: &QueuePair<Self, Init>,
            completions: &mut CqReader,
        ) -> Option<mlx5::Result<ReceiveQueue>> {
            Some(ReceiveQueue::new(qp, completions, ReceiveConfig::default()))
        }
    };
}

macro_rules! no_receives {
    () => {
        fn with_receives(
            builder: QueuePairBuilder<Self>,
            _: &Plan,
            _: Option<&SharedReceiveQueue>,
        ) -> QueuePairBuilder<Self> {
            builder
        }

        fn receives(
            _: &QueuePair<Self, Init>,
            _: &mut CqReader,
        ) -> Option<mlx5::Result<ReceiveQueue>> {
            None
        }
    };
}

macro_rules! unaddressed {
    () => {
        type Address = ();

        fn address(_: &Peer<'_>) -> Result<()> {
            Ok(())
        }

        fn say(_: &mut ibv_send_wr, (): &()) {}
    };
}

impl Form for Rc {
    connecting!();
    own_receives!();
    unaddressed!();
    posting!(reliable, |made, _address| made,);
}

impl Form for Uc {
    connecting!();
    own_receives!();
    unaddressed!();
    posting!(connected, |made, _address| made, other => unreachable!("{other:?} over UC"));
}

/// The way to a datagram queue pair.
pub struct Datagram {
    handle: AddressHandle,
    address: UdAddress,
    qpn: u32,
}

impl Form for Ud {
    type Address = Datagram;

    own_receives!();
    posting!(operation, |made, address| made.to(&address.address),
        other => unreachable!("{other:?} over UD"));

    fn init(_: &LocalPort, builder: QueuePairBuilder<Self>) -> mlx5::Result<QueuePair<Self, Init>> {
        builder.build()?.init(&UdInitAttributes::new(1, QKEY)).map_err(|failed| failed.error)
    }

    fn rts(
        _: &LocalPort,
        qp: QueuePair<Self, Init>,
        mine: &ConnectionData,
        _: &ConnectionData,
        _: AckTimeout,
    ) -> mlx5::Result<QueuePair<Self, Rts>> {
        let qp = qp.rtr().map_err(|failed| failed.error)?;
        qp.rts(&UnreliableRtsAttributes { sq_psn: mine.psn }).map_err(|failed| failed.error)
    }

    fn address(peer: &Peer<'_>) -> Result<Datagram> {
        let way = peer.local.address(peer.endpoint);
        let handle = AddressHandle::new(peer.pd, &way).map_err(|error| error.to_string())?;
        let qpn = peer.endpoint.qpn;
        Ok(Datagram { address: UdAddress::new(&handle, qpn, QKEY), handle, qpn })
    }

    fn say(wr: &mut ibv_send_wr, address: &Datagram) {
        wr.wr.ud.ah = address.handle.as_raw().as_ptr();
        wr.wr.ud.remote_qpn = address.qpn;
        wr.wr.ud.remote_qkey = QKEY;
    }
}

impl Form for XrcSend {
    type Address = (XrcAddress, u32);

    connecting!();
    no_receives!();
    posting!(reliable, |made, address| made.to(&address.0),);

    fn address(peer: &Peer<'_>) -> Result<(XrcAddress, u32)> {
        Ok((XrcAddress::new(peer.number), peer.number))
    }

    fn say(wr: &mut ibv_send_wr, address: &(XrcAddress, u32)) {
        wr.qp_type.xrc.remote_srqn = address.1;
    }
}

impl Form for Dci {
    type Address = DcAddress;

    no_receives!();
    posting!(reliable, |made, address| made.to(address),);

    fn init(
        local: &LocalPort,
        builder: QueuePairBuilder<Self>,
    ) -> mlx5::Result<QueuePair<Self, Init>> {
        let port = InitAttributes::new(local.attributes().port);
        builder.build()?.init(&port).map_err(|failed| failed.error)
    }

    fn rts(
        local: &LocalPort,
        qp: QueuePair<Self, Init>,
        mine: &ConnectionData,
        theirs: &ConnectionData,
        timeout: AckTimeout,
    ) -> mlx5::Result<QueuePair<Self, Rts>> {
        let qp = qp.rtr(mine.mtu.min(theirs.mtu)).map_err(|failed| failed.error)?;
        let rts = RtsAttributes { timeout, ..local.rts(mine, theirs) };
        qp.rts(&rts).map_err(|failed| failed.error)
    }

    fn address(peer: &Peer<'_>) -> Result<DcAddress> {
        let way = peer.local.address(peer.endpoint);
        let handle = AddressHandle::new(peer.pd, &way).map_err(|error| error.to_string())?;
        Ok(DcAddress::new(&handle, peer.number, ACCESS_KEY))
    }

    fn say(_: &mut ibv_send_wr, _: &DcAddress) {
        unreachable!("libibverbs has no dynamic connections")
    }
}
