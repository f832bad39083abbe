//! An identifier of librdmacm, and the event channel that it owns.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};

use mlx5_sys::cm::{
    rdma_ack_cm_event, rdma_cm_id, rdma_create_event_channel, rdma_create_id,
    rdma_destroy_event_channel, rdma_destroy_id, rdma_event_channel, rdma_get_cm_event,
    rdma_init_qp_attr, rdma_leave_multicast, rdma_migrate_id, rdma_port_space,
};
use mlx5_sys::load::Library;
use mlx5_sys::verbs::{ibv_context, ibv_device_attr, ibv_qp_attr, ibv_query_device};

use super::address;
use super::event::Event;
use crate::error::{Cause, Errno, Error, Result, check, non_null};
use crate::verbs::{QpState, Readiness, Zeroed, interrupted, opened_device_name, would_block};

/// An event channel, and what programs wait on for its events.
struct Channel {
    readiness: Readiness,
    raw: RawChannel,
}

/// An event channel of librdmacm. Closed when it is dropped.
struct RawChannel(NonNull<rdma_event_channel>);

impl Channel {
    fn new() -> Result<Channel> {
        Library::Cm.open()?;
        // SAFETY: the call takes nothing.
        let channel = unsafe { rdma_create_event_channel() };
        let channel = non_null("rdma_create_event_channel", channel).map_err(|error| {
            let cause = error.errno().and_then(why_no_channel);
            error.because(cause)
        })?;
        let raw = RawChannel(channel);
        let readiness = Readiness::of_events(raw.fd())?;
        Ok(Channel { readiness, raw })
    }
}

impl RawChannel {
    /// Returns the descriptor that events are read from.
    fn fd(&self) -> RawFd {
        // SAFETY: the channel exists, and the field does not change.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

impl Drop for RawChannel {
    fn drop(&mut self) {
        // SAFETY: created by this crate and destroyed once, here. Its identifier is destroyed
        // before, and each event is acknowledged in the call that gets it.
        unsafe { rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

fn why_no_channel(errno: Errno) -> Option<Cause> {
    Some(Cause::Known(match errno.0 {
        libc::EACCES | libc::EPERM => {
            "this user may not open /dev/infiniband/rdma_cm, or the kernel's interface is too old; \
             give it read and write permission"
        }
        libc::ENOENT | libc::ENXIO => {
            "/dev/infiniband/rdma_cm is missing: load the module rdma_ucm (`modprobe rdma_ucm`), \
             and in a container pass the device in (`--device /dev/infiniband`)"
        }
        libc::ENODEV => {
            "there is no RDMA device, or no /dev/infiniband/rdma_cm: load the module rdma_ucm \
             (`modprobe rdma_ucm`)"
        }
        _ => return None,
    }))
}

/// An `rdma_cm_id`. Destroyed when it is dropped.
pub(super) struct RawId(NonNull<rdma_cm_id>);

// SAFETY: librdmacm allows calls on one identifier from any thread.
unsafe impl Send for RawId {}

impl RawId {
    /// Takes over an identifier.
    ///
    /// # Safety
    /// It exists, and nothing else destroys it or reads its events.
    pub(super) unsafe fn new(id: NonNull<rdma_cm_id>) -> RawId {
        RawId(id)
    }
}

impl Drop for RawId {
    fn drop(&mut self) {
        // SAFETY: destroyed once, here. The call waits for events that were got and are not
        // acknowledged: there are none, because `Id::try_event` acknowledges each before it
        // returns, and cannot run now. A failure can be neither reported nor repaired here.
        unsafe { rdma_destroy_id(self.0.as_ptr()) };
    }
}

/// An identifier with an event channel of its own.
pub struct Id {
    /// Destroyed before its channel.
    raw: RawId,
    channel: Channel,
    /// The queue pair with which a connection was asked for.
    pub(super) queue_pair: Option<u32>,
    /// The multicast group that was joined, or is being joined.
    pub(super) group: Option<SocketAddr>,
    /// Whether the connection has ended.
    pub(super) disconnected: bool,
}

// SAFETY: librdmacm allows calls on one identifier and its channel from any thread.
unsafe impl Send for Id {}
// SAFETY: shared references pass the identifier to calls that librdmacm allows from several threads
// at once, and read fields that change only in calls with an exclusive reference.
unsafe impl Sync for Id {}

impl Drop for Id {
    fn drop(&mut self) {
        // librdmacm frees its record of a group when the group is left. A failure can be neither
        // reported nor repaired here.
        let _ = self.leave();
    }
}

impl Id {
    pub(super) fn new(space: rdma_port_space::Type) -> Result<Id> {
        let channel = Channel::new()?;
        let mut id = null_mut();
        // SAFETY: the channel exists, and outlives the identifier; `id` is live.
        let result = unsafe { rdma_create_id(channel.raw.0.as_ptr(), &mut id, null_mut(), space) };
        check("rdma_create_id", result)?;
        let id = NonNull::new(id).ok_or_else(|| Error::last("rdma_create_id"))?;
        // SAFETY: just made for this value alone.
        Ok(Id::with(unsafe { RawId::new(id) }, channel))
    }

    /// Gives the identifier of a request a channel of its own.
    pub(super) fn of_request(raw: RawId) -> Result<Id> {
        let channel = Channel::new()?;
        // SAFETY: both exist. No event of the identifier is unacknowledged, so the call does not
        // wait. The new channel outlives the identifier.
        let result = unsafe { rdma_migrate_id(raw.0.as_ptr(), channel.raw.0.as_ptr()) };
        check("rdma_migrate_id", result)?;
        Ok(Id::with(raw, channel))
    }

    fn with(raw: RawId, channel: Channel) -> Id {
        Id { raw, channel, queue_pair: None, group: None, disconnected: false }
    }

    pub(super) fn as_ptr(&self) -> *mut rdma_cm_id {
        self.raw.0.as_ptr()
    }

    pub(super) fn as_raw(&self) -> NonNull<rdma_cm_id> {
        self.raw.0
    }

    /// Returns the descriptor that events are read from.
    pub(super) fn fd(&self) -> RawFd {
        self.channel.raw.fd()
    }

    /// Returns what programs wait on.
    pub(super) fn readiness(&self) -> &Readiness {
        &self.channel.readiness
    }

    /// Returns the next event, if one waits, and acknowledges it.
    pub(super) fn try_event(&mut self) -> Result<Option<Event>> {
        loop {
            let mut raw = null_mut();
            // SAFETY: the channel exists, and `raw` is live.
            let result = unsafe { rdma_get_cm_event(self.channel.raw.0.as_ptr(), &mut raw) };
            match check("rdma_get_cm_event", result) {
                Ok(()) => {
                    // SAFETY: the call returned an event, which is acknowledged below only.
                    let event = unsafe { Event::copy(&*raw) };
                    // SAFETY: got above, and acknowledged once.
                    unsafe { rdma_ack_cm_event(raw) };
                    return Ok(Some(event));
                }
                Err(error) if interrupted(&error) => {}
                Err(error) if would_block(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the device that the identifier is bound to. It stays open as long as the identifier,
    /// which holds a reference on librdmacm's record of it.
    pub(super) fn verbs(&self) -> Option<NonNull<ibv_context>> {
        // SAFETY: the identifier exists. The field changes in calls with an exclusive reference.
        NonNull::new(unsafe { (*self.as_ptr()).verbs })
    }

    /// Returns the name of the device that the identifier is bound to, or nothing.
    pub(super) fn device(&self) -> String {
        // SAFETY: the identifier keeps the device open.
        self.verbs().map(|verbs| unsafe { opened_device_name(verbs) }).unwrap_or_default()
    }

    /// Queries the limits of the device that the identifier is bound to.
    pub(super) fn limits(&self) -> Result<ibv_device_attr> {
        let mut raw = ibv_device_attr::zeroed();
        let Some(verbs) = self.verbs() else {
            return Err(Error::from_errno("ibv_query_device", Errno(libc::ENODEV)));
        };
        // SAFETY: the identifier keeps the device open, and `raw` lives through the call.
        check("ibv_query_device", unsafe { ibv_query_device(verbs.as_ptr(), &mut raw) })?;
        Ok(raw)
    }

    /// Returns what the queue pair needs to be moved to `state`.
    pub(super) fn attributes(&self, state: QpState) -> Result<ibv_qp_attr> {
        let mut raw = ibv_qp_attr { qp_state: state.raw(), ..ibv_qp_attr::zeroed() };
        let mut mask = 0;
        // SAFETY: the identifier exists, and both values live through the call.
        let result = unsafe { rdma_init_qp_attr(self.as_ptr(), &mut raw, &mut mask) };
        check("rdma_init_qp_attr", result)?;
        Ok(raw)
    }

    /// Returns this side's address, if it has one.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier exists. All bytes of the storage are initialized, and they change
        // in calls with an exclusive reference only.
        address::from_raw(unsafe { &(*self.as_ptr()).route.addr.src_addr_union.src_storage })
    }

    /// Returns the peer's address, if it has one.
    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier exists. All bytes of the storage are initialized, and they change
        // in calls with an exclusive reference only.
        address::from_raw(unsafe { &(*self.as_ptr()).route.addr.dst_addr_union.dst_storage })
    }

    /// Leaves the multicast group, if there is one.
    pub(super) fn leave(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        let mut group = address::to_raw(group);
        // SAFETY: the identifier exists, and the address lives through the call. The call waits for
        // events of the group that are not acknowledged: there are none.
        let result = unsafe { rdma_leave_multicast(self.as_ptr(), (&raw mut group).cast()) };
        check("rdma_leave_multicast", result)
    }
}
