//! The attributes of the transitions of unreliable queue pairs. A connection needs no timeouts and
//! no depths, because it has no acknowledgements and no READs. Datagrams need a Q_Key instead of a
//! peer.

use mlx5_sys::verbs::{ibv_qp_attr, ibv_qp_attr_mask as bit};

use super::attributes::{Attributes, check_24_bits, check_mtu, check_pkey};
use super::transition::{Moved, set_alternate};
use super::{
    AddressVector, AlternatePath, Change, Init, Makes, QueuePair, Reset, Rtr, RtrAttributes, Rts,
    RtsAttributes,
};
use crate::error::Result;
use crate::ib::Ud;
use crate::verbs::{Context, Mtu};

/// INIT to RTR of a connection that executes no READs of the peer: an unreliable one, or the
/// requesting end of an extended reliable one. Names the peer.
///
/// `UcRtrAttributes { path_mtu: Mtu::Mtu4096, ..UcRtrAttributes::new(qpn, address) }`, or converted
/// from the attributes of a reliable one, which have more.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::connect::LocalPort;
/// use mlx5::ib::Uc;
/// use mlx5::verbs::QueuePairBuilder;
///
/// let qp = QueuePairBuilder::<Uc>::new(&pd, &cq).build()?;
/// let local = LocalPort::new(&context, 1, None)?;
/// let data = local.connection_data(&qp); // its own peer
/// let qp = qp.init(&local.init())?;
/// // What `LocalPort` derives for RC has all that UC needs.
/// let qp = qp.rtr(&local.rtr(&data, &data).into())?;
/// let qp = qp.rts(&local.rts(&data, &data).into())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug)]
pub struct UcRtrAttributes {
    /// The peer's queue pair number, 24 bits.
    pub destination: u32,
    /// The first packet sequence number that the peer will send, 24 bits.
    pub rq_psn: u32,
    /// The largest payload of a packet; both sides must agree.
    pub path_mtu: Mtu,
    /// The address of the peer.
    pub address: AddressVector,
    /// The alternate path, used when the primary path fails.
    pub alternate: Option<AlternatePath>,
}

impl UcRtrAttributes {
    /// Returns the attributes for a peer: MTU 1024, PSN 0.
    pub fn new(destination: u32, address: AddressVector) -> UcRtrAttributes {
        RtrAttributes::new(destination, address).into()
    }
}

impl From<RtrAttributes> for UcRtrAttributes {
    fn from(reliable: RtrAttributes) -> UcRtrAttributes {
        let RtrAttributes { destination, rq_psn, path_mtu, address, alternate, .. } = reliable;
        UcRtrAttributes { destination, rq_psn, path_mtu, address, alternate }
    }
}

impl Attributes for UcRtrAttributes {
    fn check(&self, context: &Context) -> Result<()> {
        check_24_bits("destination QP number", self.destination)?;
        check_24_bits("rq_psn", self.rq_psn)?;
        check_mtu(self.path_mtu, &self.address.check(context)?)?;
        self.alternate.as_ref().map_or(Ok(()), |path| path.check(context))
    }

    fn set(&self, attr: &mut ibv_qp_attr) -> u32 {
        attr.path_mtu = self.path_mtu.code().into();
        attr.dest_qp_num = self.destination;
        attr.rq_psn = self.rq_psn;
        attr.ah_attr = self.address.to_raw();
        bit::IBV_QP_AV.0
            | bit::IBV_QP_PATH_MTU.0
            | bit::IBV_QP_DEST_QPN.0
            | bit::IBV_QP_RQ_PSN.0
            | self.alternate.as_ref().map_or(0, |path| set_alternate(attr, path))
    }
}

/// RTR to RTS of an unreliable connection or a datagram queue pair: how to send.
///
/// See the example on [`UdInitAttributes`].
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreliableRtsAttributes {
    /// The first packet sequence number to send, 24 bits: the `rq_psn` of the peer of a connection.
    /// Receivers of datagrams ignore it.
    pub sq_psn: u32,
}

impl From<RtsAttributes> for UnreliableRtsAttributes {
    fn from(reliable: RtsAttributes) -> UnreliableRtsAttributes {
        UnreliableRtsAttributes { sq_psn: reliable.sq_psn }
    }
}

impl Attributes for UnreliableRtsAttributes {
    fn check(&self, _: &Context) -> Result<()> {
        check_24_bits("sq_psn", self.sq_psn)
    }

    fn set(&self, attr: &mut ibv_qp_attr) -> u32 {
        attr.sq_psn = self.sq_psn;
        bit::IBV_QP_SQ_PSN.0
    }
}

/// RESET to INIT of a datagram queue pair: the port, and the Q_Key that senders must know.
///
/// `UdInitAttributes { pkey_index: 1, ..UdInitAttributes::new(1, 0x1234) }`
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::Ud;
/// use mlx5::verbs::attr::{QpState, UdInitAttributes, UnreliableRtsAttributes};
/// use mlx5::verbs::QueuePairBuilder;
///
/// // Datagrams with another Q_Key are dropped.
/// let qp = QueuePairBuilder::<Ud>::new(&pd, &cq).build()?;
/// let qp = qp.init(&UdInitAttributes::new(1, 0x1234))?.rtr()?;
/// let qp = qp.rts(&UnreliableRtsAttributes::default())?;
/// assert_eq!((qp.query()?.state, qp.query()?.qkey), (QpState::Rts, 0x1234));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdInitAttributes {
    /// The local port, from 1.
    pub port: u8,
    /// Index into the port's P_Key table: the partition. Both sides must be in the same.
    pub pkey_index: u16,
    /// The Q_Key. Messages with another Q_Key are dropped. Bit 31 is for privileged programs: a
    /// request whose Q_Key has it set is sent with the Q_Key of its own queue pair.
    pub qkey: u32,
}

impl UdInitAttributes {
    /// Returns the attributes for port `port`: P_Key index 0, Q_Key `qkey`.
    pub const fn new(port: u8, qkey: u32) -> UdInitAttributes {
        UdInitAttributes { port, pkey_index: 0, qkey }
    }

    pub(crate) fn check(&self, context: &Context) -> Result<()> {
        check_pkey(context, self.port, self.pkey_index)
    }

    pub(crate) fn set(&self, change: &mut Change) {
        change.attr.port_num = self.port;
        change.attr.pkey_index = self.pkey_index;
        change.attr.qkey = self.qkey;
        change.mask = bit::IBV_QP_PKEY_INDEX.0 | bit::IBV_QP_PORT.0 | bit::IBV_QP_QKEY.0;
    }
}

impl<B: Makes<Ud>> QueuePair<Ud, Reset, B> {
    /// RESET to INIT. From now on receives can be posted.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`](crate::Error::NoSuchPort),
    /// [`Error::Attribute`](crate::Error::Attribute); [`Error::Call`](crate::Error::Call) by verbs,
    /// [`Error::Refused`](crate::Error::Refused) by command.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(self, attributes: &UdInitAttributes) -> Moved<Ud, Init, Reset, B> {
        let mut change = Change::to::<Reset, Init>();
        attributes.set(&mut change);
        let checked = attributes.check(self.context());
        self.step(checked, change)
    }
}

impl<B: Makes<Ud>> QueuePair<Ud, Init, B> {
    /// INIT to RTR. From now on messages with the right Q_Key are accepted.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) by verbs, [`Error::Refused`](crate::Error::Refused) by
    /// command.
    #[doc(alias = "ibv_modify_qp")]
    pub fn rtr(self) -> Moved<Ud, Rtr, Init, B> {
        self.step(Ok(()), Change::to::<Init, Rtr>())
    }
}

impl<B: Makes<Ud>> QueuePair<Ud, Rtr, B> {
    /// RTR to RTS. From now on requests can be sent.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute); [`Error::Call`](crate::Error::Call) by verbs,
    /// [`Error::Refused`](crate::Error::Refused) by command.
    #[doc(alias = "ibv_modify_qp")]
    pub fn rts(self, attributes: &UnreliableRtsAttributes) -> Moved<Ud, Rts, Rtr, B> {
        let mut change = Change::to::<Rtr, Rts>();
        change.mask = attributes.set(&mut change.attr);
        let checked = attributes.check(self.context());
        self.step(checked, change)
    }
}
