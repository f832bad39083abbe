//! Multicast groups.

use std::net::{IpAddr, SocketAddr};
use std::ptr::null_mut;

use mlx5_sys::cm::{
    rdma_cm_join_mc_attr_ex, rdma_cm_join_mc_attr_mask as attribute, rdma_cm_mc_join_flags as flag,
    rdma_join_multicast_ex,
};

use super::{AddressResolved, Identifier, Joined, Pending, address};
use crate::error::{Cause, Error, Result, check};
use crate::ib::{Gid, Ud};
use crate::verbs::AddressVector;

/// The role of a member of a multicast group.
///
/// See the example on [`MulticastGroup`].
#[doc(alias = "rdma_cm_mc_join_flags")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JoinAs {
    /// Receives and sends.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_FULLMEMBER")]
    Member,
    /// Sends only: switches bring it none of the group's messages. Not every subnet manager knows
    /// it.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER")]
    Sender,
}

/// A multicast group that was joined: what a queue pair needs to receive from it and to send to it.
///
/// ```no_run
/// use std::time::Duration;
/// use mlx5::connect::cm::{Identifier, JoinAs};
/// use mlx5::ib::Ud;
/// use mlx5::verbs::{AddressHandle, CompletionQueue, ProtectionDomain, QueuePairBuilder};
/// use mlx5::wqe::UdAddress;
///
/// let second = Duration::from_secs(1);
/// let group = "239.1.2.3".parse()?;
/// let id = Identifier::datagrams()?.resolve_address(None, (group, 0).into(), second)?;
/// let id = id.wait(second)?.join(group, JoinAs::Member)?.wait(second)?;
/// let group = id.group();
///
/// let context = id.open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 128)?;
/// let qp = QueuePairBuilder::<Ud>::new(&pd, &cq).build()?.init(&id.init()?)?;
/// // To receive:
/// let membership = qp.attach_multicast(group.gid, group.lid)?;
/// // To send:
/// let handle = AddressHandle::new(&pd, &group.address)?;
/// let to = UdAddress::multicast(&handle, group.qkey);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MulticastGroup {
    /// Its address, for an [`AddressHandle`](crate::verbs::AddressHandle).
    pub address: AddressVector,
    /// Its GID.
    pub gid: Gid,
    /// Its LID on InfiniBand; 0 on RoCE.
    pub lid: u16,
    /// The Q_Key of its members.
    pub qkey: u32,
}

impl Identifier<Ud, AddressResolved> {
    /// Begins to join a multicast group on the port that the identifier is bound to. Wait then
    /// until it is joined. An identifier joins one group.
    ///
    /// # Errors
    /// [`Error::Attribute`] if that is no multicast address. [`Error::Call`]; for an IPv6 group on
    /// RoCEv2, which the kernel does not join. The wait reports
    /// [`CmError::Multicast`](super::CmError::Multicast).
    #[doc(alias("rdma_join_multicast", "rdma_join_multicast_ex"))]
    pub fn join(mut self, group: IpAddr, role: JoinAs) -> Result<Identifier<Ud, Pending<Joined>>> {
        if !group.is_multicast() {
            let rule = "a multicast address is of 224.0.0.0/4 or ff00::/8";
            return Err(Error::attribute("multicast group", group, rule));
        }
        let group = SocketAddr::from((group, 0));
        let mut raw = address::to_raw(group);
        let mask =
            attribute::RDMA_CM_JOIN_MC_ATTR_ADDRESS | attribute::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
        let flags = match role {
            JoinAs::Member => flag::RDMA_MC_JOIN_FLAG_FULLMEMBER,
            JoinAs::Sender => flag::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        };
        let mut attributes = rdma_cm_join_mc_attr_ex {
            comp_mask: mask.0,
            join_flags: flags.0,
            addr: (&raw mut raw).cast(),
        };
        // SAFETY: the identifier exists and is bound to a device, and attributes and address live
        // through the call.
        let result =
            unsafe { rdma_join_multicast_ex(self.id.as_ptr(), &mut attributes, null_mut()) };
        check("rdma_join_multicast_ex", result).map_err(why_not_joined)?;
        self.id.group = Some(group);
        Ok(self.awaiting())
    }
}

fn why_not_joined(error: Error) -> Error {
    /// The kernel's ENOTSUPP, which is none of the C library's.
    const ENOTSUPP: i32 = 524;
    let cause = match error.errno().map(|errno| errno.0) {
        Some(ENOTSUPP) => "on RoCEv2 the kernel joins IPv4 groups only",
        _ => return error,
    };
    error.because(Some(Cause::Known(cause)))
}

impl Identifier<Ud, Joined> {
    /// Returns the group's addresses.
    pub fn group(&self) -> MulticastGroup {
        let address = self.stage.group.address;
        MulticastGroup {
            address,
            gid: address.global.map(|route| route.dgid).unwrap_or_default(),
            lid: address.dlid,
            qkey: self.stage.group.qkey,
        }
    }

    /// Reads the events that wait: an event loop calls it when the identifier's descriptor is
    /// readable.
    ///
    /// # Errors
    /// [`CmError::Multicast`](super::CmError::Multicast): the membership has ended; join again.
    /// [`CmError::DeviceRemoved`](super::CmError::DeviceRemoved). [`Error::Call`].
    pub fn try_event(&mut self) -> Result<()> {
        self.read_events()
    }

    /// Leaves the group, as dropping the identifier does, and says whether that worked.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave(mut self) -> Result<()> {
        self.id.leave()
    }
}
