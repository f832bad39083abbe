//! Multicast groups that datagram queue pairs are attached to.

use std::fmt;
use std::sync::Arc;

use mlx5_sys::verbs::{ibv_attach_mcast, ibv_detach_mcast, ibv_gid};

use super::verbs::VerbsPair;
use super::{Pair, QueuePair, State};
use crate::error::{Cause, Error, Result, check};
use crate::ib::{Gid, Ud};

impl<S: State> QueuePair<Ud, S> {
    /// Makes the queue pair receive the messages to a multicast group until the result is dropped:
    /// those of other queue pairs, here or elsewhere, and its own. The messages must carry its
    /// Q_Key, like any message. A group costs the HCA one of a limited number of entries.
    ///
    /// `lid` is the group's LID on InfiniBand, which the subnet manager reports to each member that
    /// joins. On RoCE it means nothing, and is 0. This call does not join the group. On InfiniBand
    /// the program asks the subnet manager (librdmacm, or `/dev/infiniband/umad*`). On RoCE it
    /// tells the switches by IGMP or MLD (librdmacm, or a socket that joins the group). Between
    /// queue pairs of one port, RoCE needs neither.
    ///
    /// # Errors
    /// [`Error::Attribute`] where that is no multicast group, [`Error::Call`] where the HCA has no
    /// entry left.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_multicast(&self, group: Gid, lid: u16) -> Result<MulticastMembership> {
        if !group.is_multicast() {
            let rule = "a multicast group begins with ff, or is an IPv4 one, mapped";
            return Err(Error::attribute("multicast GID", group, rule));
        }
        let raw = ibv_gid { raw: group.0 };
        // SAFETY: the queue pair is alive, and the GID lives through the call.
        let result = unsafe { ibv_attach_mcast(self.as_raw().as_ptr(), &raw, lid) };
        check("ibv_attach_mcast", result).map_err(|error| {
            let cause = match error.errno().map(|errno| errno.0) {
                Some(libc::EINVAL) => Some(Cause::Known(
                    "on InfiniBand a group has a LID of 0xc000 to 0xfffe, which the subnet manager \
                     gives to those who join it",
                )),
                Some(libc::ENOMEM) => Some(Cause::Known(
                    "the HCA has no room for the group, or the group none for the queue pair: see \
                     max_mcast_grp and max_mcast_qp_attach of `ibv_devinfo -v`",
                )),
                _ => None,
            };
            error.because(cause)
        })?;
        Ok(MulticastMembership { queue_pair: self.keep(), group, lid })
    }
}

/// A queue pair's being attached to a multicast group. It is detached when this is dropped, and is
/// kept alive until then.
///
/// Attached twice, it is one member all the same, and is one no more as soon as either goes.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::{Gid, Ud};
/// use mlx5::verbs::attr::UdInitAttributes;
/// use mlx5::verbs::QueuePairBuilder;
///
/// let qp = QueuePairBuilder::<Ud>::new(&pd, &cq).build()?.init(&UdInitAttributes::new(1, 1))?;
/// let group: Gid = "ff12:401b::7".parse()?;
/// // On InfiniBand the subnet manager tells the LID of the group.
/// let membership = qp.attach_multicast(group, 0xc007)?;
/// assert_eq!(membership.group(), group);
/// drop(membership); // datagrams to the group no longer arrive
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_detach_mcast")]
#[must_use = "the queue pair leaves the group when this is dropped"]
pub struct MulticastMembership {
    queue_pair: Arc<Pair<VerbsPair>>,
    group: Gid,
    lid: u16,
}

impl MulticastMembership {
    /// Returns the group.
    pub fn group(&self) -> Gid {
        self.group
    }

    /// Returns its LID on InfiniBand.
    pub fn lid(&self) -> u16 {
        self.lid
    }
}

impl Drop for MulticastMembership {
    fn drop(&mut self) {
        let raw = ibv_gid { raw: self.group.0 };
        // SAFETY: `queue_pair` keeps the QP alive; the GID lives through the call.
        unsafe { ibv_detach_mcast(self.queue_pair.object.qp.as_ptr(), &raw, self.lid) };
    }
}

impl fmt::Debug for MulticastMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MulticastMembership")
            .field("queue_pair", &format_args!("{:#x}", self.queue_pair.number()))
            .field("group", &self.group)
            .field("lid", &format_args!("{:#x}", self.lid))
            .finish()
    }
}
